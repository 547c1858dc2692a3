// An error as an OpenAI client expects it: {"error":{"message","type","param","code"}} with an HTTP status.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/status.h"

namespace sluice::server {

struct HttpReply;

struct ApiError {
  int status = 400;
  std::string message;
  std::string param{};          // the field at fault; empty: null
  std::string code{};           // empty: null
  int retry_after_seconds = 0;  // 0: no Retry-After

  // {"error":{...}}. Bytes of the message that are not UTF-8 come out as U+FFFD.
  std::string body() const;
  HttpReply reply() const;
};

// The engine's refusal: 400 for what the client can mend, 503 for what may work later, 500 for the rest.
ApiError to_api_error(const Status& status);
// The same kind of error without a status of its own: the request's body is wrong.
inline ApiError bad_field(std::string param, std::string message, std::string code = {}) {
  return {.message = std::move(message), .param = std::move(param), .code = std::move(code)};
}

// A value, or the error to answer with.
template <class T>
class [[nodiscard]] ApiResult {
 public:
  ApiResult(T value) : value_(std::move(value)) {}
  ApiResult(ApiError error) : error_(std::move(error)) {}

  bool ok() const { return value_.has_value(); }
  const ApiError& error() const { return error_; }
  T& operator*() & { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }

 private:
  std::optional<T> value_;
  ApiError error_;
};

}  // namespace sluice::server

#include "server/api_error.h"

#include <fmt/format.h>

#include "server/http_types.h"
#include "server/json_text.h"

namespace sluice::server {
namespace {

constexpr int kRetryQueueSeconds = 1;
constexpr int kRetryNotReadySeconds = 5;

std::string_view error_type(int status) { return status >= 500 ? "server_error" : "invalid_request_error"; }

std::string text_or_null(const std::string& text) { return text.empty() ? "null" : json_string(text); }

}  // namespace

std::string ApiError::body() const {
  return fmt::format(R"({{"error":{{"message":{},"type":"{}","param":{},"code":{}}}}})", json_string(message),
                     error_type(status), text_or_null(param), text_or_null(code));
}

HttpReply ApiError::reply() const {
  HttpReply reply{.status = status, .content_type = "application/json", .body = body()};
  if (retry_after_seconds > 0) {
    reply.headers.emplace_back("Retry-After", std::to_string(retry_after_seconds));
  }
  return reply;
}

ApiError to_api_error(const Status& status) {
  switch (status.code()) {
    case Code::invalid_argument:
    case Code::out_of_range:
    case Code::unimplemented:
      return {.status = 400, .message = status.message()};
    case Code::resource_exhausted:
      return {.status = 503,
              .message = status.message(),
              .code = "queue_full",
              .retry_after_seconds = kRetryQueueSeconds};
    case Code::unavailable:
    case Code::aborted:
    case Code::cancelled:
    case Code::deadline_exceeded:
      return {.status = 503,
              .message = status.message(),
              .code = "not_ready",
              .retry_after_seconds = kRetryNotReadySeconds};
    default:
      return {.status = 500, .message = status.message(), .code = "internal_error"};
  }
}

}  // namespace sluice::server

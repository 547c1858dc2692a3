// Errors as values, for callers that can act on them. A message is written for the person who reads it: what
// was wrong, where, the value found and what would be right. Exceptions are left to code that can only stop.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace sluice {

enum class Code {
  ok,
  invalid_argument,    // the caller's input is wrong and will stay wrong
  not_found,           // a file, tensor, model or peer that does not exist
  out_of_range,        // an index or length beyond what exists
  resource_exhausted,  // memory, queue or slots are used up; may work later
  unavailable,         // a peer or service is not there now; may work later
  deadline_exceeded,   // the wait ended before the event
  data_loss,           // bytes that contradict themselves: truncated file, impossible header
  unimplemented,       // known, but not supported by Sluice
  aborted,             // the epoch ended under the caller
  cancelled,           // the client left
  internal,            // a fault of ours
};

std::string_view code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::ok; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same error, seen from further out: "loading model 'x': <message>".
  Status with_context(std::string_view context) const;

 private:
  Code code_ = Code::ok;
  std::string message_;
};

inline Status invalid_argument(std::string message) { return {Code::invalid_argument, std::move(message)}; }
inline Status not_found(std::string message) { return {Code::not_found, std::move(message)}; }
inline Status data_loss(std::string message) { return {Code::data_loss, std::move(message)}; }
inline Status unimplemented(std::string message) { return {Code::unimplemented, std::move(message)}; }
inline Status unavailable(std::string message) { return {Code::unavailable, std::move(message)}; }
inline Status aborted(std::string message) { return {Code::aborted, std::move(message)}; }
inline Status internal_error(std::string message) { return {Code::internal, std::move(message)}; }
// "<what>: <text of errno>".
Status errno_status(Code code, std::string_view what);

// A value or the reason why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {
    if (status_.ok()) status_ = internal_error("Result made from an ok Status without a value");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  // Only when ok().
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

#define SLUICE_CONCAT_INNER(a, b) a##b
#define SLUICE_CONCAT(a, b) SLUICE_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expression` (a Status) is an error.
#define SLUICE_RETURN_IF_ERROR(expression)                                                        \
  do {                                                                                            \
    if (::sluice::Status sluice_status = (expression); !sluice_status.ok()) return sluice_status; \
  } while (false)

// `SLUICE_ASSIGN_OR_RETURN(auto file, open(path));` declares or assigns from a Result, or returns its Status.
#define SLUICE_ASSIGN_OR_RETURN(target, expression) \
  SLUICE_ASSIGN_OR_RETURN_INNER(SLUICE_CONCAT(sluice_result_, __LINE__), target, expression)
#define SLUICE_ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                                     \
  if (!result.ok()) return result.status();                       \
  target = std::move(result).value()

}  // namespace sluice

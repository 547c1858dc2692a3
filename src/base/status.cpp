#include "base/status.h"

#include <cerrno>
#include <cstring>

namespace sluice {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::invalid_argument:
      return "invalid_argument";
    case Code::not_found:
      return "not_found";
    case Code::out_of_range:
      return "out_of_range";
    case Code::resource_exhausted:
      return "resource_exhausted";
    case Code::unavailable:
      return "unavailable";
    case Code::deadline_exceeded:
      return "deadline_exceeded";
    case Code::data_loss:
      return "data_loss";
    case Code::unimplemented:
      return "unimplemented";
    case Code::aborted:
      return "aborted";
    case Code::cancelled:
      return "cancelled";
    case Code::internal:
      return "internal";
  }
  return "unknown";
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return {code_, std::string(context) + ": " + message_};
}

Status errno_status(Code code, std::string_view what) {
  const int error = errno;
  return {code, std::string(what) + ": " + std::strerror(error)};
}

}  // namespace sluice

// What HTTP looks like to the code that answers it: a request that has been read whole, a reply, and the
// responder through which the reply goes out, at once or as a stream.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace sluice::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // as sent: "GET"
  std::string path;    // of the target, without query; percent escapes as sent
  std::string query;
  std::string id;         // x-request-id: the client's, or one drawn for it
  std::string peer;       // the client's address
  Headers headers;        // names in lower case
  bool has_body = false;  // a body follows the head (it may be empty when chunked)
  std::string body{};

  // The first header of that name, which is in lower case; empty when there is none.
  std::string_view header(std::string_view name) const;
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body{};
  Headers headers{};  // besides content type and length, date, connection and x-request-id
};

// How one exchange went: for metrics and the access log.
struct HttpAccess {
  std::string method;
  std::string path;
  std::string id;
  std::string peer;
  int status = 0;         // 0: the client left before there was one
  bool complete = false;  // the whole reply was handed to the kernel
  Nanos duration = 0;
};

// The way back to one request's client. Used on the io thread only. After the client has left, or once the
// reply is complete, every call does nothing.
class Responder {
 public:
  virtual ~Responder() = default;

  // The whole reply.
  virtual void reply(HttpReply reply) = 0;

  // Or a stream: status 200 and the headers, then pieces, then the end.
  virtual void begin_stream(std::string_view content_type, const Headers& headers) = 0;
  virtual void write(std::string_view piece) = 0;
  virtual void end_stream() = 0;

  // Called once on the io thread if the client leaves, or is thrown out because it reads too slowly, before
  // the reply is complete.
  virtual void on_disconnect(std::function<void()> callback) = 0;
};

}  // namespace sluice::server

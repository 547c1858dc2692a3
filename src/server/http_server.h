// An HTTP/1.0 and 1.1 server on one io thread: the thread that calls run(). It reads requests within limits,
// hands each to the handler on that thread, and carries replies and streams back. A client costs its socket
// and its bounded buffers and nothing else: nothing here waits for one. The handler must not block; work that
// takes time goes elsewhere and comes back through post().
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "server/http_types.h"

namespace sluice::server {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // 0: any free one
  size_t max_head_bytes = 32u << 10;
  size_t max_body_bytes = 8u << 20;
  size_t max_pipelined_bytes = 64u << 10;  // read ahead of the request that is being answered
  size_t max_unsent_bytes =
      256u << 10;  // of a stream, beyond the kernel's buffer: then the client is cut off
  int max_connections = 16'384;
  Nanos idle_timeout = seconds(75);   // between two requests on a connection
  Nanos head_timeout = seconds(20);   // from the first byte of a request to the end of its head
  Nanos body_timeout = seconds(60);   // from there to the end of its body
  Nanos write_timeout = seconds(60);  // without the client taking a single byte of what is queued
  Nanos linger_timeout = seconds(5);  // for the client to read a reply before which it was not done sending
  Nanos tick = milliseconds(500);     // how often time-outs are looked at
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // The head of a request has come, its body has not: a reply here refuses it without reading on.
  virtual std::optional<HttpReply> refuse(const HttpRequest& head) = 0;
  virtual void handle(HttpRequest request, std::shared_ptr<Responder> responder) = 0;
  // The body of a reply to what is not proper HTTP, or breaks a limit.
  virtual HttpReply protocol_error(int status, std::string message) = 0;
  virtual void finished(const HttpAccess& access) = 0;
  virtual void tick(Nanos now) = 0;
};

class HttpServer {
 public:
  using Task = std::function<void()>;

  // Listens at once; accepts from run() on. The handler must outlive the server.
  static Result<std::unique_ptr<HttpServer>> listen(const HttpOptions& options, HttpHandler& handler);
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
  // Serves until stop() or the end of drain().
  virtual void run() = 0;

  // Runs the task on the io thread, in the order of posting. The function may be called from any thread and
  // may outlive the server: then it does nothing.
  virtual std::function<void(Task)> poster() const = 0;

  // The rest is for the io thread, or for before run().

  // Calls the task once `fd` is readable.
  virtual void when_readable(int fd, Task task) = 0;
  // Closes idle connections, keeps listening (new requests are the handler's to refuse), and ends run() when
  // every request in progress is answered. At the time-out it calls `at_timeout`, which should end what is
  // left, and gives the last replies a second to go out.
  virtual void drain(Nanos timeout, Task at_timeout) = 0;
  virtual void stop() = 0;
  virtual int connections() const = 0;
};

}  // namespace sluice::server

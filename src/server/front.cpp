#include "server/front.h"

#include <fmt/format.h>

#include "base/log.h"
#include "server/http_server.h"
#include "server/model_context.h"
#include "server/service.h"

namespace sluice::server {
namespace {

Status serve(const FrontOptions& options, cluster::EngineClient& client, int stop_fd) {
  SLUICE_ASSIGN_OR_RETURN(
      ModelContext model,
      load_model_context(options.model_directory, options.served_model_name, options.max_model_len));
  const std::string name = model.served_name;
  const int context = model.max_model_len;
  Service service({.api_keys = options.api_keys}, std::move(model), client);
  HttpOptions http;
  http.host = options.host;
  http.port = options.port;
  http.max_body_bytes = options.max_body_bytes;
  SLUICE_ASSIGN_OR_RETURN(const auto server, HttpServer::listen(http, service));
  service.attach(*server);

  server->when_readable(stop_fd, [&] {
    log::info("stopping: requests in progress have {} s to finish", options.drain_timeout_seconds);
    service.begin_drain();
    server->drain(seconds(options.drain_timeout_seconds), [&] {
      service.fail_all({.status = 503,
                        .message = "the server is shutting down",
                        .code = "shutting_down",
                        .retry_after_seconds = 5});
    });
  });
  log::info("model '{}' (context {} tokens) on http://{}:{}, {}", name, context,
            options.host.find(':') == std::string::npos ? options.host : "[" + options.host + "]",
            server->port(),
            options.api_keys.empty() ? "no API key asked for"
                                     : fmt::format("{} API keys", options.api_keys.size()));
  server->run();
  return {};
}

}  // namespace

int run_front(const FrontOptions& options, cluster::EngineClient& client, int stop_fd) {
  const Status status = serve(options, client, stop_fd);
  if (status.ok()) return 0;
  log::error("the front cannot start: {}", status.message());
  return 1;
}

}  // namespace sluice::server

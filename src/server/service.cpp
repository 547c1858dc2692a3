#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>

#include "base/log.h"
#include "server/health.h"
#include "server/json_text.h"
#include "server/page.h"

namespace sluice::server {
namespace {

constexpr int kRetryNotReadySeconds = 5;
constexpr std::string_view kModelPrefix = "/v1/models/";

enum class Access { get, post };

struct Route {
  std::string_view path;
  Access access;
};

constexpr std::array<Route, 9> kRoutes = {{
    {"/", Access::get},
    {"/live", Access::get},
    {"/ready", Access::get},
    {"/health", Access::get},
    {"/metrics", Access::get},
    {"/v1/models", Access::get},
    {kModelPrefix, Access::get},
    {"/v1/chat/completions", Access::post},
    {"/v1/completions", Access::post},
}};

const Route* find_route(std::string_view path) {
  if (path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size()) path = kModelPrefix;
  const auto route =
      std::find_if(kRoutes.begin(), kRoutes.end(), [&](const Route& r) { return r.path == path; });
  return route == kRoutes.end() || path == kModelPrefix.substr(0, path.size() - 1) ? nullptr : &*route;
}

ApiError not_ready(const std::string& message) {
  return {.status = 503,
          .message = fmt::format("not ready: {}", message),
          .code = "not_ready",
          .retry_after_seconds = kRetryNotReadySeconds};
}

// Takes as long for every key of a length, wherever it differs.
bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
  }
  return difference == 0;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    const auto low = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
    return low(x) == low(y);
  });
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Percent escapes resolved; malformed ones stay as they are.
std::string unescaped(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0) {
      result += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

std::optional<ApiError> check_content(const HttpRequest& head) {
  const std::string_view type = head.header("content-type");
  if (!equal_ignoring_case(trimmed(type.substr(0, type.find(';'))), "application/json")) {
    return ApiError{.status = 415,
                    .message = fmt::format("the header Content-Type must be application/json, it is {}",
                                           type.empty() ? "missing" : fmt::format("'{}'", type))};
  }
  const std::string_view encoding = head.header("content-encoding");
  if (!encoding.empty() && !equal_ignoring_case(encoding, "identity")) {
    return ApiError{
        .status = 415,
        .message = fmt::format("the header Content-Encoding must be left out, it is '{}'", encoding)};
  }
  return {};
}

}  // namespace

Service::Service(ServiceOptions options, ModelContext model, cluster::EngineClient& client)
    : options_(std::move(options)),
      model_(std::move(model)),
      client_(client),
      host_{.client = client,
            .model = model_,
            .metrics = metrics_,
            .post = {},
            .draw = [random = std::mt19937_64(std::random_device{}())]() mutable { return random(); },
            .done =
                [this](Generation& generation) {
                  generations_.erase(&generation);
                  metrics_.running = static_cast<int>(generations_.size());
                },
            .ping_after = options_.ping_after},
      workers_(std::make_unique<WorkerPool>(options_.workers, options_.max_queued_jobs)) {}

Service::~Service() = default;

void Service::attach(HttpServer& server) {
  server_ = &server;
  host_.post = server.poster();
}

void Service::fail_all(const ApiError& error) {
  std::vector<std::shared_ptr<Generation>> open;
  for (const auto& [key, generation] : generations_) open.push_back(generation);
  for (const auto& generation : open) generation->fail(error);
}

std::optional<HttpReply> Service::refuse(const HttpRequest& head) {
  if (head.path.starts_with("/v1/") && !has_valid_key(head)) {
    HttpReply reply = ApiError{.status = 401,
                               .message =
                                   "the header Authorization does not carry a valid API key: "
                                   "send 'Authorization: Bearer KEY'",
                               .code = "invalid_api_key"}
                          .reply();
    reply.headers.emplace_back("WWW-Authenticate", "Bearer");
    return reply;
  }
  const Route* route = find_route(head.path);
  if (route == nullptr) {
    return ApiError{.status = 404, .message = fmt::format("Invalid URL ({} {})", head.method, head.path)}
        .reply();
  }
  const bool allowed =
      route->access == Access::post ? head.method == "POST" : head.method == "GET" || head.method == "HEAD";
  if (!allowed) {
    const std::string_view allow = route->access == Access::post ? "POST" : "GET, HEAD";
    HttpReply reply =
        ApiError{.status = 405,
                 .message = fmt::format("{} does not take {}: use {}", head.path, head.method, allow)}
            .reply();
    reply.headers.emplace_back("Allow", allow);
    return reply;
  }
  if (route->access == Access::get) return {};
  if (draining_) return not_ready("the server is shutting down").reply();
  if (auto error = check_content(head)) return error->reply();
  return {};
}

bool Service::has_valid_key(const HttpRequest& head) const {
  if (options_.api_keys.empty()) return true;
  std::string_view sent = head.header("authorization");
  constexpr std::string_view kScheme = "bearer ";
  if (!equal_ignoring_case(sent.substr(0, kScheme.size()), kScheme)) return false;
  sent = trimmed(sent.substr(kScheme.size()));
  bool valid = false;
  for (const std::string& key : options_.api_keys) valid |= equal_in_constant_time(sent, key);
  return valid;
}

void Service::handle(HttpRequest request, std::shared_ptr<Responder> responder) {
  const Route* route = find_route(request.path);
  if (route == nullptr) return responder->reply(protocol_error(404, "no such path"));
  if (request.path == "/") return responder->reply(page_reply());
  if (request.path == "/live") {
    return responder->reply({.body = R"({"status":"live","message":"Service is live"})"});
  }
  if (request.path == "/ready") return responder->reply(ready_reply());
  if (request.path == "/health") {
    const cluster::Health verdict = health();
    return responder->reply({
        .status = verdict.ready ? 200 : 503,
        .body = health_json(verdict, model_.served_name),
    });
  }
  if (request.path == "/metrics") return responder->reply(metrics_reply());
  if (request.path == "/v1/models") return responder->reply(models_reply());
  if (route->path == kModelPrefix) return responder->reply(model_reply(request.path));
  const ApiKind kind = request.path == "/v1/chat/completions" ? ApiKind::chat : ApiKind::completion;
  generate(kind, std::move(request), std::move(responder));
}

void Service::generate(ApiKind kind, HttpRequest request, std::shared_ptr<Responder> responder) {
  const auto generation = std::make_shared<Generation>(host_, responder);
  responder->on_disconnect([self = std::weak_ptr(generation)] {
    if (const auto left = self.lock()) left->client_left();
  });
  generations_.emplace(generation.get(), generation);
  metrics_.running = static_cast<int>(generations_.size());
  // The job holds no owner of the generation: that must end on the io thread.
  const bool posted = workers_->post(
      [this, kind, body = std::move(request.body), post = host_.post, self = std::weak_ptr(generation)] {
        if (self.expired()) return;
        auto prepared = std::make_shared<ApiResult<PreparedRequest>>(prepare_request(kind, body, model_));
        post([self, prepared] {
          if (const auto waiting = self.lock()) waiting->start(std::move(*prepared));
        });
      });
  if (!posted) {
    generation->fail(
        {.status = 503,
         .message = fmt::format("{} requests wait to be read, the limit", options_.max_queued_jobs),
         .code = "queue_full",
         .retry_after_seconds = 1});
  }
}

cluster::Health Service::health() const {
  cluster::Health verdict = client_.health();
  if (draining_) {
    verdict.ready = false;
    verdict.message = "the server is shutting down";
  }
  return verdict;
}

HttpReply Service::ready_reply() const {
  const cluster::Health verdict = health();
  return {
      .status = verdict.ready ? 200 : 503,
      .body = fmt::format(R"({{"status":"{}","message":{}}})", verdict.ready ? "ready" : "not_ready",
                          json_string(verdict.message)),
  };
}

std::string Service::model_json() const {
  return fmt::format(R"({{"id":{},"object":"model","created":{},"owned_by":"sluice","max_model_len":{}}})",
                     json_string(model_.served_name), model_.created, model_.max_model_len);
}

// Listed only while it can be used: a model that is listed and does not answer sends routers astray.
HttpReply Service::models_reply() const {
  const cluster::Health verdict = health();
  if (!verdict.ready) return not_ready(verdict.message).reply();
  return {.body = fmt::format(R"({{"object":"list","data":[{}]}})", model_json())};
}

HttpReply Service::model_reply(std::string_view path) const {
  const std::string name = unescaped(path.substr(kModelPrefix.size()));
  if (!model_.has_name(name)) {
    return ApiError{
        .status = 404,
        .message = fmt::format("the model '{}' does not exist here, '{}' does", name, model_.served_name),
        .param = "model",
        .code = "model_not_found"}
        .reply();
  }
  const cluster::Health verdict = health();
  if (!verdict.ready) return not_ready(verdict.message).reply();
  return {.body = model_json()};
}

HttpReply Service::metrics_reply() {
  metrics_.connections = server_->connections();
  metrics_.ready = health().ready;
  return {
      .content_type = "text/plain; version=0.0.4; charset=utf-8",
      .body = metrics_.text(model_.served_name),
  };
}

HttpReply Service::page_reply() const {
  return {.content_type = "text/html; charset=utf-8", .body = front_page(model_.served_name)};
}

HttpReply Service::protocol_error(int status, std::string message) {
  return ApiError{.status = status, .message = std::move(message)}.reply();
}

void Service::finished(const HttpAccess& access) {
  const Route* route = find_route(access.path);
  ++metrics_.requests[{std::string(route == nullptr ? "other" : route->path), access.status}];
  const bool worth_a_line = access.path.starts_with("/v1/");
  const std::string line = fmt::format("{} {} {}{} in {:.1f} ms, {} from {}", access.method, access.path,
                                       access.status, access.complete ? "" : " (client left)",
                                       static_cast<double>(access.duration) * 1e-6, access.id, access.peer);
  log::write(worth_a_line ? log::Level::info : log::Level::debug, line);
}

void Service::tick(Nanos now) {
  std::vector<std::shared_ptr<Generation>> open;
  open.reserve(generations_.size());
  for (const auto& [key, generation] : generations_) open.push_back(generation);
  for (const auto& generation : open) generation->tick(now);
}

}  // namespace sluice::server

// The routes of a front: which requests exist, who may send them, and what answers them. DESIGN §8.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "cluster/engine_client.h"
#include "server/generation.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/model_context.h"
#include "server/worker_pool.h"

namespace sluice::server {

struct ServiceOptions {
  std::vector<std::string> api_keys{};  // empty: anyone may use /v1
  int workers = 2;
  size_t max_queued_jobs = 4096;
  Nanos ping_after = seconds(15);  // of a stream's silence comes a comment, so that nobody takes it for dead
};

class Service : public HttpHandler {
 public:
  Service(ServiceOptions options, ModelContext model, cluster::EngineClient& client);
  ~Service() override;

  // Before the server runs. What is posted must run on its io thread.
  void attach(HttpServer& server);

  // From now on new work is refused and /ready says so.
  void begin_drain() { draining_ = true; }
  // Ends what is still in progress.
  void fail_all(const ApiError& error);

  std::optional<HttpReply> refuse(const HttpRequest& head) override;
  void handle(HttpRequest request, std::shared_ptr<Responder> responder) override;
  HttpReply protocol_error(int status, std::string message) override;
  void finished(const HttpAccess& access) override;
  void tick(Nanos now) override;

 private:
  void generate(ApiKind kind, HttpRequest request, std::shared_ptr<Responder> responder);
  bool has_valid_key(const HttpRequest& head) const;
  cluster::Health health() const;
  HttpReply ready_reply() const;
  HttpReply models_reply() const;
  HttpReply model_reply(std::string_view path) const;
  HttpReply metrics_reply();
  HttpReply page_reply() const;
  std::string model_json() const;

  ServiceOptions options_;
  ModelContext model_;
  cluster::EngineClient& client_;
  HttpServer* server_ = nullptr;
  Metrics metrics_;
  bool draining_ = false;
  GenerationHost host_;
  std::unordered_map<Generation*, std::shared_ptr<Generation>> generations_;
  // Last: its threads end before what they read goes.
  std::unique_ptr<WorkerPool> workers_;
};

}  // namespace sluice::server

#include "cluster/engine_server.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "cluster/wire.h"
#include "control.grpc.pb.h"

namespace sluice::cluster {
namespace {

// A request of 1 M token ids has at most 5 MB.
constexpr int kMaxMessageBytes = 64 << 20;

// One request. The engine's sink holds the call too: it may come after the client has left.
class GenerateCall final : public grpc::ServerWriteReactor<v1::GenerateReply> {
 public:
  static GenerateCall* start(engine::Engine& engine) {
    auto call = std::make_shared<GenerateCall>(engine);
    const std::lock_guard lock(call->mutex_);
    call->self_ = call;
    return call.get();
  }

  explicit GenerateCall(engine::Engine& engine) : engine_(engine) {}

  // The engine is never called under the lock: its sink takes it.
  void submit(engine::Request request) {
    auto sink = [call = self()](const engine::Output& output) { call->push(output); };
    Result<uint64_t> id = engine_.submit(std::move(request), std::move(sink));
    {
      const std::lock_guard lock(mutex_);
      if (!id.ok()) return close(to_grpc(id.status()));
      id_ = *id;
      if (!cancelled_) return;
    }
    engine_.cancel(*id);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return cancel();
    const std::lock_guard lock(mutex_);
    queue_.pop_front();
    write_next();
  }

  void OnCancel() override { cancel(); }

  void OnDone() override {
    std::shared_ptr<GenerateCall> last;  // released after the lock
    const std::lock_guard lock(mutex_);
    last = std::move(self_);
  }

 private:
  std::shared_ptr<GenerateCall> self() {
    const std::lock_guard lock(mutex_);
    return self_;
  }

  void push(const engine::Output& output) {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    to_wire(output, queue_.emplace_back());
    if (queue_.size() == 1) write_next();
  }

  // The last reply goes out together with the end of the call.
  void write_next() {
    if (closed_ || queue_.empty()) return;
    const v1::GenerateReply& reply = queue_.front();
    if (reply.finish() == v1::FINISH_NONE) return StartWrite(&reply);
    closed_ = true;
    StartWriteAndFinish(&reply, grpc::WriteOptions(), grpc::Status::OK);
  }

  void cancel() {
    std::optional<uint64_t> id;
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
      id = id_;
      close(grpc::Status::CANCELLED);
    }
    if (id) engine_.cancel(*id);
  }

  void close(const grpc::Status& status) {
    if (std::exchange(closed_, true)) return;
    Finish(status);
  }

  engine::Engine& engine_;
  std::mutex mutex_;
  std::shared_ptr<GenerateCall> self_;   // until OnDone
  std::deque<v1::GenerateReply> queue_;  // its front is being written
  std::optional<uint64_t> id_;
  bool cancelled_ = false;
  bool closed_ = false;
};

class EngineServerImplementation final : public EngineServer, public v1::Engine::CallbackService {
 public:
  explicit EngineServerImplementation(engine::Engine& engine) : engine_(engine) {}

  ~EngineServerImplementation() override {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  bool listen(const std::string& address) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    return server_ != nullptr;
  }

  grpc::ServerWriteReactor<v1::GenerateReply>* Generate(grpc::CallbackServerContext* /*context*/,
                                                        const v1::GenerateRequest* request) override {
    GenerateCall* call = GenerateCall::start(engine_);
    call->submit(from_wire(*request));
    return call;
  }

 private:
  engine::Engine& engine_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

Result<std::unique_ptr<EngineServer>> EngineServer::start(engine::Engine& engine,
                                                          const std::string& address) {
  adopt_grpc_log();
  auto server = std::make_unique<EngineServerImplementation>(engine);
  if (!server->listen(address)) return unavailable(fmt::format("the engine cannot listen on {}", address));
  return std::unique_ptr<EngineServer>(std::move(server));
}

}  // namespace sluice::cluster

#include "cluster/grpc_engine_client.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "cluster/wire.h"
#include "control.grpc.pb.h"

namespace sluice::cluster {
namespace {

constexpr auto kRetryAfter = std::chrono::milliseconds(100);

std::shared_ptr<grpc::Channel> open_channel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

// One process of a rank. A call keeps it until it has ended.
struct Peer {
  int rank = 0;
  std::string address;
  std::unique_ptr<v1::Engine::Stub> stub;
  int running = 0;  // requests of this front; under the client's lock
};

class Client final : public GrpcEngineClient {
 public:
  explicit Client(Options options);
  ~Client() override;

  Health health() const override;
  Result<uint64_t> submit(engine::Request request, engine::Sink sink) override;
  void cancel(uint64_t request) override;

 private:
  class Call;

  void watch();
  void update(ClusterView view);
  void coordinator_lost();
  std::shared_ptr<Peer> choose();
  std::string why_lost(int rank) const;
  void ended(Call* call);

  Options options_;
  std::unique_ptr<v1::Coordinator::Stub> coordinator_;
  mutable std::mutex mutex_;
  ClusterView view_;
  bool was_ready_ = false;
  bool connected_ = false;
  std::map<int, std::shared_ptr<Peer>> peers_;  // by rank: those that have joined
  std::unordered_map<uint64_t, Call*> calls_;
  int open_calls_ = 0;  // those being deleted too
  uint64_t next_request_ = 1;
  size_t turn_ = 0;  // rotates among equally loaded ranks
  grpc::ClientContext* watching_ = nullptr;
  bool stopping_ = false;
  std::condition_variable changed_;
  std::thread watcher_;
};

// One request's stream. Its own lock orders what gRPC's threads do one after the other.
class Client::Call final : public grpc::ClientReadReactor<v1::GenerateReply> {
 public:
  Call(Client& client, uint64_t id, std::shared_ptr<Peer> peer, engine::Sink sink)
      : client_(client), id_(id), peer_(std::move(peer)), sink_(std::move(sink)) {}

  void start(const engine::Request& request) {
    const std::lock_guard lock(mutex_);
    to_wire(request, request_);
    peer_->stub->async()->Generate(&context_, &request_, this);
    StartRead(&reply_);
    StartCall();
  }

  void cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    engine::Output output;
    bool wanted = false;
    {
      const std::lock_guard lock(mutex_);
      output = from_wire(reply_);
      reply_.Clear();
      wanted = !finished_;
      finished_ = finished_ || output.finish != engine::Finish::none;
    }
    output.request = id_;
    if (wanted) sink_(output);
    const std::lock_guard lock(mutex_);
    StartRead(&reply_);
  }

  void OnDone(const grpc::Status& status) override {
    bool finished = false;
    {
      const std::lock_guard lock(mutex_);
      finished = finished_;
    }
    if (!finished) {
      engine::Output output;
      output.request = id_;
      output.finish = engine::Finish::error;
      output.error = explain(from_grpc(status));
      if (output.error.code() == Code::cancelled) output.finish = engine::Finish::cancelled;
      sink_(output);
    }
    client_.ended(this);  // deletes this
  }

  uint64_t id() const { return id_; }
  Peer& peer() { return *peer_; }

 private:
  friend class Client;

  // The engine's refusals are passed on as they are; everything else that ends a stream early is a lost rank.
  Status explain(const Status& status) const {
    switch (status.code()) {
      case Code::invalid_argument:
      case Code::not_found:
      case Code::out_of_range:
      case Code::resource_exhausted:
      case Code::unimplemented:
        return status;
      default:
        break;
    }
    if (cancelled_) return {Code::cancelled, "cancelled"};
    return unavailable(fmt::format("rank {} was lost: {}", peer_->rank, client_.why_lost(peer_->rank)));
  }

  Client& client_;
  const uint64_t id_;
  const std::shared_ptr<Peer> peer_;
  const engine::Sink sink_;
  std::mutex mutex_;
  grpc::ClientContext context_;
  v1::GenerateRequest request_;
  v1::GenerateReply reply_;
  bool finished_ = false;                // the sink has had its last output
  std::atomic<bool> cancelled_ = false;  // by us
};

Client::Client(Options options)
    : options_(std::move(options)),
      coordinator_(v1::Coordinator::NewStub(open_channel(options_.coordinator))) {
  view_.health.message = "the coordinator has not been reached yet";
  watcher_ = std::thread([this] { watch(); });
}

Client::~Client() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  if (watching_ != nullptr) watching_->TryCancel();
  for (auto& [id, call] : calls_) {
    call->cancelled_ = true;
    call->cancel();
  }
  changed_.notify_all();
  changed_.wait(lock, [&] { return open_calls_ == 0; });
  lock.unlock();
  watcher_.join();
}

void Client::watch() {
  Nanos last_seen = now();
  bool orphaned = false;
  while (true) {
    grpc::ClientContext context;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      watching_ = &context;
    }
    const auto reader = coordinator_->Watch(&context, v1::WatchRequest());
    v1::ClusterState state;
    bool seen = false;
    while (reader->Read(&state)) {
      seen = true;
      update(from_wire(state));
    }
    reader->Finish();
    if (seen) last_seen = now();
    coordinator_lost();
    if (!orphaned && now() - last_seen > options_.orphan_timeout) {
      orphaned = true;
      log::error("no coordinator at {} for {:.3g} s", options_.coordinator,
                 static_cast<double>(options_.orphan_timeout) / 1e9);
      if (options_.on_orphaned) options_.on_orphaned();
    }
    std::unique_lock lock(mutex_);
    watching_ = nullptr;
    if (changed_.wait_for(lock, kRetryAfter, [&] { return stopping_; })) return;
  }
}

void Client::update(ClusterView view) {
  const std::lock_guard lock(mutex_);
  connected_ = true;
  for (size_t i = 0; i < view.health.ranks.size(); ++i) {
    const int rank = view.health.ranks[i].rank;
    const std::string& address = view.addresses[i];
    if (address.empty()) {
      peers_.erase(rank);
      continue;
    }
    std::shared_ptr<Peer>& peer = peers_[rank];
    if (peer != nullptr && peer->address == address) continue;
    const auto channel = open_channel(address);
    channel->GetState(/*try_to_connect=*/true);
    peer = std::make_shared<Peer>();
    peer->rank = rank;
    peer->address = address;
    peer->stub = v1::Engine::NewStub(channel);
  }
  was_ready_ = was_ready_ || view.health.ready;
  view_ = std::move(view);
}

// Nobody can say any more that the ranks are well; they may still be, so requests that run go on.
void Client::coordinator_lost() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(connected_, false) && !stopping_) {
    log::warning("the coordinator at {} cannot be reached", options_.coordinator);
  }
  view_.health.ready = false;
  view_.health.message = "the coordinator cannot be reached";
}

Health Client::health() const {
  const std::lock_guard lock(mutex_);
  return view_.health;
}

std::shared_ptr<Peer> Client::choose() {
  std::shared_ptr<Peer> best;
  const size_t turn = turn_++;
  size_t i = 0;
  for (size_t step = 0; step < peers_.size(); ++step) {
    i = (turn + step) % peers_.size();
    const std::shared_ptr<Peer>& peer = std::next(peers_.begin(), static_cast<std::ptrdiff_t>(i))->second;
    if (best == nullptr || peer->running < best->running) best = peer;
  }
  return best;
}

Result<uint64_t> Client::submit(engine::Request request, engine::Sink sink) {
  Call* call = nullptr;
  uint64_t id = 0;
  {
    const std::lock_guard lock(mutex_);
    const std::shared_ptr<Peer> peer = was_ready_ && !stopping_ ? choose() : nullptr;
    if (peer == nullptr) return unavailable("no engine can take requests: " + view_.health.message);
    id = next_request_++;
    call = new Call(*this, id, peer, std::move(sink));
    calls_[id] = call;
    ++open_calls_;
    ++peer->running;
    // Under the lock, so that the stream has begun before anybody can cancel it.
    call->start(request);
  }
  return id;
}

void Client::cancel(uint64_t request) {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(request);
  if (found == calls_.end()) return;
  found->second->cancelled_ = true;
  found->second->cancel();
}

std::string Client::why_lost(int rank) const {
  constexpr std::string_view kDead = "dead: ";
  const std::lock_guard lock(mutex_);
  for (const RankHealth& health : view_.health.ranks) {
    if (health.rank == rank && health.state.starts_with(kDead)) return health.state.substr(kDead.size());
  }
  return "its connection closed";
}

void Client::ended(Call* call) {
  {
    const std::lock_guard lock(mutex_);
    --call->peer().running;
    calls_.erase(call->id());
  }
  delete call;
  const std::lock_guard lock(mutex_);
  if (--open_calls_ == 0) changed_.notify_all();
}

}  // namespace

std::unique_ptr<GrpcEngineClient> GrpcEngineClient::start(Options options) {
  adopt_grpc_log();
  return std::make_unique<Client>(std::move(options));
}

}  // namespace sluice::cluster

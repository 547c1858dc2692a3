#include "cluster/coordinator.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/log.h"
#include "cluster/rendezvous.h"
#include "cluster/wire.h"
#include "control.grpc.pb.h"

namespace sluice::cluster {
namespace {

// How long open calls may take to end when the coordinator stops.
constexpr auto kStopPatience = std::chrono::seconds(1);
// What a rank may ask for in AllGather.
constexpr Nanos kLongestPatience = seconds(3600);

// A pointer that brings the order with it in which it was set and is read. gRPC hands calls from thread to
// thread under locks of its own, which ThreadSanitizer does not see.
template <class T>
class Handed {
 public:
  explicit Handed(T* target) { target_.store(target, std::memory_order_release); }
  T* operator->() const { return target_.load(std::memory_order_acquire); }

 private:
  std::atomic<T*> target_{nullptr};
};

}  // namespace

struct Coordinator::State final : public v1::Coordinator::CallbackService {
  class JoinCall;
  class WatchCall;

  explicit State(Membership::Options options) : membership(options) {
    timer = std::thread([this] { run_timer(); });
  }

  grpc::ServerBidiReactor<v1::RankEvent, v1::Directive>* Join(grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* AllGather(grpc::CallbackServerContext* context,
                                      const v1::AllGatherRequest* request,
                                      v1::AllGatherReply* reply) override;
  grpc::ServerWriteReactor<v1::ClusterState>* Watch(grpc::CallbackServerContext* context,
                                                    const v1::WatchRequest* request) override;

  void run_timer();
  void stop();
  // With the lock: carries out what membership has decided, and logs and publishes what has changed.
  void apply();
  void note(const Directive& directive);

  std::mutex mutex;
  Membership membership;
  Rendezvous rendezvous;
  std::map<Session, JoinCall*> joined;
  std::set<WatchCall*> watchers;
  Session next_session = 1;
  EpochId begun;  // the epoch that was logged last, and when it began
  Nanos begun_at = 0;
  bool was_ready = false;
  bool was_running = false;
  bool departures_expected = false;
  bool stopping = false;
  std::condition_variable timer_wake;
  std::thread timer;
  std::unique_ptr<grpc::Server> server;
};

// One rank's membership. Its session begins with an accepted Hello and ends with the stream. Everything is
// under the coordinator's lock, so that nothing relies on an order inside gRPC.
class Coordinator::State::JoinCall final : public grpc::ServerBidiReactor<v1::RankEvent, v1::Directive> {
 public:
  JoinCall(State& state, grpc::CallbackServerContext& context) : state_(&state), context_(context) {
    StartRead(&event_);
  }

  void send(const Directive& directive) {
    if (closing_) return;
    to_wire(directive, queue_.emplace_back());
    if (queue_.size() == 1) StartWrite(&queue_.front());
  }
  // Ends the call after what is queued.
  void close(const grpc::Status& status) {
    if (closing_) return;
    closing_ = true;
    final_ = status;
    if (queue_.empty()) finish();
  }

  void OnReadDone(bool ok) override {
    const std::lock_guard lock(state_->mutex);
    if (!ok) return lost();
    handle(event_);
    state_->apply();
    event_.Clear();
    if (!closing_) StartRead(&event_);
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(state_->mutex);
    if (!ok) return lost();
    queue_.pop_front();
    if (!queue_.empty()) return StartWrite(&queue_.front());
    if (closing_) finish();
  }

  void OnCancel() override {
    const std::lock_guard lock(state_->mutex);
    lost();
  }

  void OnDone() override {
    {
      const std::lock_guard lock(state_->mutex);
      state_->joined.erase(session_);
    }
    delete this;
  }

 private:
  void handle(const v1::RankEvent& event) {
    if (event.has_hello()) return hello(event.hello());
    if (session_ == 0)
      return close({grpc::StatusCode::INVALID_ARGUMENT, "the first event of Join must be hello"});
    if (event.has_ready()) {
      state_->membership.ready(session_, from_wire(event.ready().epoch()), from_wire(event.ready().fabric()));
    } else if (event.has_broken()) {
      state_->membership.broken(session_, from_wire(event.broken().epoch()), from_wire(event.broken()),
                                now());
    }
  }

  void hello(const v1::Hello& wire) {
    if (session_ != 0) return close({grpc::StatusCode::INVALID_ARGUMENT, "a second hello in one Join"});
    const Session session = state_->next_session++;
    const Introduction who = from_wire(wire);
    if (Status status = state_->membership.hello(session, who, now()); !status.ok()) {
      log::error("{}", status.message());
      return close(to_grpc(status));
    }
    session_ = session;
    state_->joined[session_] = this;
    log::info("rank {} (pid {}) joined", who.rank, who.pid);
    context_.AddInitialMetadata(kJoinedMetadata, "");
    StartSendInitialMetadata();
  }

  void lost() {
    closing_ = true;
    finish();
    state_->membership.leave(session_, "its connection closed", now());
    state_->apply();
  }

  void finish() {
    if (std::exchange(finished_, true)) return;
    Finish(final_);
  }

  const Handed<State> state_;
  grpc::CallbackServerContext& context_;
  v1::RankEvent event_;
  std::deque<v1::Directive> queue_;  // its front is being written
  Session session_ = 0;
  bool closing_ = false;
  bool finished_ = false;
  grpc::Status final_;
};

// One watcher: gets the newest state whenever the one before has been sent. Under the coordinator's lock too.
class Coordinator::State::WatchCall final : public grpc::ServerWriteReactor<v1::ClusterState> {
 public:
  explicit WatchCall(State& state) : state_(&state) {
    state.watchers.insert(this);
    changed();
  }

  void changed() {
    changed_ = true;
    if (writing_ || finished_) return;
    changed_ = false;
    writing_ = true;
    message_.Clear();
    to_wire(state_->membership.view(), message_);
    StartWrite(&message_);
  }
  void close(const grpc::Status& status) {
    if (std::exchange(finished_, true)) return;
    Finish(status);
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(state_->mutex);
    writing_ = false;
    if (!ok) return close(grpc::Status::CANCELLED);
    if (changed_) changed();
  }
  void OnCancel() override {
    const std::lock_guard lock(state_->mutex);
    close(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    {
      const std::lock_guard lock(state_->mutex);
      state_->watchers.erase(this);
    }
    delete this;
  }

 private:
  const Handed<State> state_;
  v1::ClusterState message_;
  bool writing_ = false;
  bool changed_ = false;
  bool finished_ = false;
};

grpc::ServerBidiReactor<v1::RankEvent, v1::Directive>* Coordinator::State::Join(
    grpc::CallbackServerContext* context) {
  const std::lock_guard lock(mutex);
  return new JoinCall(*this, *context);
}

grpc::ServerWriteReactor<v1::ClusterState>* Coordinator::State::Watch(
    grpc::CallbackServerContext* /*context*/, const v1::WatchRequest* /*request*/) {
  const std::lock_guard lock(mutex);
  return new WatchCall(*this);
}

grpc::ServerUnaryReactor* Coordinator::State::AllGather(grpc::CallbackServerContext* context,
                                                        const v1::AllGatherRequest* request,
                                                        v1::AllGatherReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const Nanos patience = std::clamp<Nanos>(request->patience_ns(), 0, kLongestPatience);
  const std::lock_guard lock(mutex);
  Rendezvous::Visit visit{.epoch = from_wire(request->epoch()),
                          .rank = request->rank(),
                          .round = request->round(),
                          .name = request->name(),
                          .value = request->value(),
                          .deadline = now() + patience,
                          .patience = patience};
  rendezvous.visit(std::move(visit), [reactor, reply](Result<std::vector<std::string>> values) {
    if (values.ok()) {
      for (std::string& value : *values) reply->add_values(std::move(value));
    }
    reactor->Finish(to_grpc(values.status()));
  });
  timer_wake.notify_one();
  return reactor;
}

void Coordinator::State::note(const Directive& directive) {
  if (directive.kind == Directive::Kind::begin && !(begun == directive.epoch)) {
    begun = directive.epoch;
    begun_at = now();
    rendezvous.open(directive.epoch, directive.members);
    log::info("epoch {} begins with {} ranks", to_string(begun), directive.members.size());
  }
}

void Coordinator::State::apply() {
  if (was_running && (!membership.running() || !(membership.epoch() == begun))) {
    rendezvous.close(membership.why_ended());
    log::write(departures_expected ? log::Level::debug : log::Level::warning,
               fmt::format("epoch {} ended: {}", to_string(begun), membership.why_ended()));
  }
  for (const Directive& directive : membership.take_directives()) {
    note(directive);
    if (const auto call = joined.find(directive.session); call != joined.end()) call->second->send(directive);
  }
  was_running = membership.running();
  const bool is_ready = membership.ready();
  if (is_ready && !was_ready) {
    log::info("{}, {:.3f} s after it began", membership.view().health.message,
              static_cast<double>(now() - begun_at) / 1e9);
  }
  was_ready = is_ready;
  for (WatchCall* watcher : watchers) watcher->changed();
  timer_wake.notify_one();
}

void Coordinator::State::run_timer() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    const auto tick = membership.next_tick();
    const auto deadline = rendezvous.next_deadline();
    if (!tick && !deadline) {
      timer_wake.wait(lock);
      continue;
    }
    const Nanos next = std::min(tick.value_or(INT64_MAX), deadline.value_or(INT64_MAX));
    if (const Nanos wait = next - now(); wait > 0) {
      timer_wake.wait_for(lock, std::chrono::nanoseconds(wait));
      continue;
    }
    membership.tick(now());
    rendezvous.expire(now());
    apply();
  }
}

void Coordinator::State::stop() {
  {
    const std::lock_guard lock(mutex);
    stopping = true;
    const grpc::Status gone(grpc::StatusCode::UNAVAILABLE, "the coordinator stops");
    rendezvous.close("the coordinator stops");
    for (auto& [session, call] : joined) call->close(gone);
    for (WatchCall* watcher : watchers) watcher->close(gone);
  }
  timer_wake.notify_one();
  timer.join();
  if (server == nullptr) return;
  server->Shutdown(std::chrono::system_clock::now() + kStopPatience);
  server->Wait();
  // The calls' last word was under the lock: what is destroyed next is ordered after it.
  const std::lock_guard lock(mutex);
}

Result<std::unique_ptr<Coordinator>> Coordinator::start(const std::string& address,
                                                        Membership::Options options) {
  adopt_grpc_log();
  auto state = std::make_unique<State>(options);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(state.get());
  state->server = builder.BuildAndStart();
  const bool listening = state->server != nullptr;
  std::unique_ptr<Coordinator> coordinator(new Coordinator(std::move(state)));
  if (!listening) return unavailable(fmt::format("the coordinator cannot listen on {}", address));
  return coordinator;
}

Coordinator::Coordinator(std::unique_ptr<State> state) : state_(std::move(state)) {}
Coordinator::~Coordinator() { state_->stop(); }

void Coordinator::process_started(int rank, int pid) {
  const std::lock_guard lock(state_->mutex);
  state_->membership.process_started(rank, pid);
  state_->apply();
}

void Coordinator::process_exited(int rank, int pid, const std::string& reason) {
  const std::lock_guard lock(state_->mutex);
  state_->membership.process_exited(rank, pid, reason, now());
  state_->apply();
}

void Coordinator::expect_departures() {
  const std::lock_guard lock(state_->mutex);
  state_->departures_expected = true;
}

Status Coordinator::hopeless() const {
  const std::lock_guard lock(state_->mutex);
  return state_->membership.hopeless();
}

ClusterView Coordinator::view() const {
  const std::lock_guard lock(state_->mutex);
  return state_->membership.view();
}

}  // namespace sluice::cluster

#include "cluster/coordinator_link.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "base/log.h"
#include "cluster/wire.h"
#include "control.grpc.pb.h"

namespace sluice::cluster {
namespace {

constexpr auto kRetryAfter = std::chrono::milliseconds(100);
// The coordinator answers a round by its deadline; this much later it counts as gone.
constexpr Nanos kAnswerSlack = seconds(5);

}  // namespace

struct CoordinatorLink::State {
  using Stream = grpc::ClientReaderWriter<v1::RankEvent, v1::Directive>;

  State(const std::string& address, Introduction introduction, Events handlers)
      : events(std::move(handlers)), who(std::move(introduction)) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    stub = v1::Coordinator::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }

  void run();
  Status stay();
  bool accept(const Directive& directive);
  void send(const v1::RankEvent& event);
  void stop();

  // A call that stop() cancels. False when the link has been stopped.
  bool enter(grpc::ClientContext& context);
  void leave(grpc::ClientContext& context);

  Events events;
  std::unique_ptr<v1::Coordinator::Stub> stub;

  std::mutex mutex;
  Introduction who;
  std::set<grpc::ClientContext*> calls;
  bool stopped = false;
  std::condition_variable wake;
  std::mutex write_mutex;
  Stream* stream = nullptr;  // while it can be written; under write_mutex
  std::thread thread;
};

bool CoordinatorLink::State::enter(grpc::ClientContext& context) {
  const std::lock_guard lock(mutex);
  if (stopped) return false;
  calls.insert(&context);
  return true;
}

void CoordinatorLink::State::leave(grpc::ClientContext& context) {
  const std::lock_guard lock(mutex);
  calls.erase(&context);
}

// A coordinator that was thought dead may speak again: only epochs above all seen ones are entered.
bool CoordinatorLink::State::accept(const Directive& directive) {
  const std::lock_guard lock(mutex);
  if (directive.kind == Directive::Kind::end) return directive.epoch == who.highest_epoch;
  if (!(who.highest_epoch < directive.epoch)) return false;
  who.highest_epoch = directive.epoch;
  return true;
}

// One stay in the cluster, from Hello until the stream ends; returns why it did.
Status CoordinatorLink::State::stay() {
  grpc::ClientContext context;
  if (!enter(context)) return unavailable("stopped");
  v1::RankEvent hello;
  {
    const std::lock_guard lock(mutex);
    to_wire(who, *hello.mutable_hello());
  }
  std::unique_ptr<Stream> mine = stub->Join(&context);
  if (mine->Write(hello)) {
    mine->WaitForInitialMetadata();
    {
      const std::lock_guard lock(write_mutex);
      stream = mine.get();
    }
    if (context.GetServerInitialMetadata().count(kJoinedMetadata) != 0) events.up();
    v1::Directive wire;
    while (mine->Read(&wire)) {
      Directive directive = from_wire(wire);
      if (accept(directive)) {
        events.directive(std::move(directive));
      } else {
        log::warning("ignoring a directive for epoch {}, which is not above what this rank has seen",
                     to_string(directive.epoch));
      }
    }
    const std::lock_guard lock(write_mutex);
    stream = nullptr;
  }
  const Status status = from_grpc(mine->Finish());
  leave(context);
  return status.ok() ? unavailable("the coordinator has ended the membership") : status;
}

void CoordinatorLink::State::run() {
  while (true) {
    const Status status = stay();
    {
      const std::lock_guard lock(mutex);
      if (stopped) return;
    }
    events.down(status);
    if (status.code() == Code::invalid_argument) return;
    std::unique_lock lock(mutex);
    if (wake.wait_for(lock, kRetryAfter, [&] { return stopped; })) return;
  }
}

void CoordinatorLink::State::send(const v1::RankEvent& event) {
  const std::lock_guard lock(write_mutex);
  if (stream != nullptr) stream->Write(event);
}

void CoordinatorLink::State::stop() {
  {
    const std::lock_guard lock(mutex);
    stopped = true;
    for (grpc::ClientContext* call : calls) call->TryCancel();
  }
  wake.notify_all();
}

class CoordinatorLink::GrpcBootstrap final : public fabric::Bootstrap {
 public:
  GrpcBootstrap(State& state, EpochId epoch) : state_(state), epoch_(epoch) {}

  Result<std::vector<std::string>> all_gather(std::string_view name, std::string mine,
                                              Deadline deadline) override {
    v1::AllGatherRequest request;
    to_wire(epoch_, *request.mutable_epoch());
    request.set_rank(state_.who.rank);
    request.set_round(round_++);
    request.set_name(std::string(name));
    request.set_value(std::move(mine));
    const Nanos patience = std::max<Nanos>(deadline.remaining(), 0);
    request.set_patience_ns(patience);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::nanoseconds(patience + kAnswerSlack));
    if (!state_.enter(context)) return aborted("this rank is stopping");
    v1::AllGatherReply reply;
    const Status status = from_grpc(state_.stub->AllGather(&context, request, &reply));
    state_.leave(context);
    if (!status.ok()) return status.with_context(fmt::format("gathering '{}'", name));
    return std::vector<std::string>(std::make_move_iterator(reply.mutable_values()->begin()),
                                    std::make_move_iterator(reply.mutable_values()->end()));
  }

 private:
  State& state_;
  EpochId epoch_;
  uint64_t round_ = 0;
};

CoordinatorLink::CoordinatorLink(const std::string& address, Introduction who, Events events) {
  adopt_grpc_log();
  state_ = std::make_unique<State>(address, std::move(who), std::move(events));
}

void CoordinatorLink::start() {
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

CoordinatorLink::~CoordinatorLink() {
  stop();
  if (state_->thread.joinable()) state_->thread.join();
}

void CoordinatorLink::stop() { state_->stop(); }

void CoordinatorLink::send_ready(EpochId epoch, const fabric::Report& report) {
  v1::RankEvent event;
  to_wire(epoch, *event.mutable_ready()->mutable_epoch());
  to_wire(report, *event.mutable_ready()->mutable_fabric());
  state_->send(event);
}

void CoordinatorLink::send_broken(EpochId epoch, const Breakage& why) {
  v1::RankEvent event;
  to_wire(why, *event.mutable_broken());
  to_wire(epoch, *event.mutable_broken()->mutable_epoch());
  state_->send(event);
}

std::unique_ptr<fabric::Bootstrap> CoordinatorLink::bootstrap(EpochId epoch) {
  return std::make_unique<GrpcBootstrap>(*state_, epoch);
}

}  // namespace sluice::cluster

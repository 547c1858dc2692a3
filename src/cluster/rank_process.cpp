#include "cluster/rank_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>

#include "base/log.h"
#include "cluster/coordinator_link.h"
#include "cluster/engine_server.h"
#include "cluster/exit_status.h"
#include "cluster/mailbox.h"

namespace sluice::cluster {
namespace {

// How long the opening of an epoch, which cannot be interrupted everywhere, may delay the end.
constexpr auto kStopPatience = std::chrono::seconds(5);

bool is_configuration_error(const Status& status) {
  return status.code() == Code::invalid_argument || status.code() == Code::unimplemented;
}

// Does what may take long, on a thread of its own: loading, then one directive at a time. Only the newest
// directive counts; those it overtakes are never looked at.
class EpochWorker {
 public:
  struct Events {
    std::function<void(Status)> loaded;
    std::function<void(EpochId, Status)> open_failed;
    std::function<std::unique_ptr<fabric::Bootstrap>(EpochId)> bootstrap;
  };

  EpochWorker(LoadRank load, engine::Callbacks callbacks, Events events)
      : load_(std::move(load)), callbacks_(std::move(callbacks)), events_(std::move(events)) {
    thread_ = std::thread([this] { run(); });
  }
  ~EpochWorker() {
    if (thread_.joinable()) thread_.join();
  }

  void follow(Directive directive) {
    const std::lock_guard lock(mutex_);
    next_ = std::move(directive);
    changed_.notify_all();
  }

  // True when the thread ended within the patience.
  bool stop(std::chrono::seconds patience) {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    return changed_.wait_for(lock, loading_ ? std::chrono::seconds(0) : patience, [&] { return ended_; });
  }

  // After `loaded`.
  engine::Rank& rank() { return *rank_; }
  // The epoch that the engine was put into last.
  EpochId entered() const {
    const std::lock_guard lock(mutex_);
    return entered_;
  }

 private:
  void run() {
    Result<std::unique_ptr<engine::Rank>> loaded = load_(std::move(callbacks_));
    const Status status = loaded.status();
    if (loaded.ok()) rank_ = std::move(*loaded);
    {
      const std::lock_guard lock(mutex_);
      loading_ = false;
    }
    events_.loaded(status);
    while (status.ok()) {
      const std::optional<Directive> directive = wait();
      if (!directive) break;
      rank_->engine().leave_epoch();
      if (directive->kind == Directive::Kind::begin) open(directive->epoch);
    }
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  std::optional<Directive> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || next_.has_value(); });
    if (stopping_) return std::nullopt;
    return std::exchange(next_, std::nullopt);
  }

  void open(EpochId epoch) {
    const std::unique_ptr<fabric::Bootstrap> bootstrap = events_.bootstrap(epoch);
    auto exchange = rank_->open_exchange(epoch.number, *bootstrap);
    if (!exchange.ok()) return events_.open_failed(epoch, exchange.status());
    {
      const std::lock_guard lock(mutex_);
      if (stopping_ || next_.has_value()) return;  // over before it began
      entered_ = epoch;
    }
    rank_->engine().enter_epoch(std::move(*exchange));
  }

  LoadRank load_;
  engine::Callbacks callbacks_;
  Events events_;
  std::unique_ptr<engine::Rank> rank_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Directive> next_;
  EpochId entered_;
  bool loading_ = true;
  bool stopping_ = false;
  bool ended_ = false;
  std::thread thread_;
};

// The main thread's part: everything here runs on it, but the lambdas that post to it.
class RankProcess {
 public:
  RankProcess(const RankProcessOptions& options, const LoadRank& load)
      : options_(options), worker_(load, callbacks(), worker_events()) {}

  int run(int stop_fd) {
    while (!exit_) {
      pollfd fds[2] = {{stop_fd, POLLIN, 0}, {mailbox_.fd(), POLLIN, 0}};
      ::poll(fds, 2, poll_timeout());
      if (fds[0].revents != 0) exit_ = kExitOk;
      mailbox_.run();
      check_orphaned();
    }
    return shut_down();
  }

 private:
  engine::Callbacks callbacks() {
    return {.on_ready = [this](uint64_t epoch) { mailbox_.post([this, epoch] { ready(epoch); }); },
            .on_broken =
                [this](uint64_t epoch, exchange::Blame blame, Status why) {
                  mailbox_.post([this, epoch, blame, why] { broken(epoch, blame, why); });
                }};
  }

  EpochWorker::Events worker_events() {
    return {
        .loaded = [this](Status status) { mailbox_.post([this, status] { loaded(status); }); },
        .open_failed = [this](EpochId epoch,
                              Status why) { mailbox_.post([this, epoch, why] { open_failed(epoch, why); }); },
        .bootstrap = [this](EpochId epoch) { return link_->bootstrap(epoch); }};
  }

  CoordinatorLink::Events link_events() {
    return {.up = [this] { mailbox_.post([this] { up(); }); },
            .directive = [this](Directive directive) { worker_.follow(std::move(directive)); },
            .down = [this](Status why) { mailbox_.post([this, why] { down(why); }); }};
  }

  void loaded(const Status& status) {
    if (!status.ok()) return fail(status, is_configuration_error(status) ? kExitConfiguration : kExitFailure);
    log::info("{}", worker_.rank().description());
    auto server = EngineServer::start(worker_.rank().engine(), options_.address);
    if (!server.ok()) return fail(server.status(), kExitFailure);
    server_ = std::move(*server);
    gone_since_ = now();
    link_ = std::make_unique<CoordinatorLink>(options_.coordinator,
                                              Introduction{.rank = options_.rank,
                                                           .pid = ::getpid(),
                                                           .address = options_.address,
                                                           .fingerprint = worker_.rank().fingerprint(),
                                                           .highest_epoch = {}},
                                              link_events());
    link_->start();  // from here on the worker uses it
  }

  void ready(uint64_t number) {
    const EpochId epoch = worker_.entered();
    if (epoch.number != number) return;
    link_->send_ready(epoch, worker_.rank().engine().report());
  }

  void broken(uint64_t number, const exchange::Blame& blame, const Status& why) {
    const EpochId epoch = worker_.entered();
    if (epoch.number != number) return;
    const Breakage breakage{.blamed_rank = blame.rank,
                            .layer = blame.layer,
                            .phase = blame.phase == exchange::Phase::dispatch ? "dispatch" : "combine",
                            .reason = blame.reason.empty() ? why.message() : blame.reason};
    log::debug("epoch {} is broken: {}", to_string(epoch), why.message());
    link_->send_broken(epoch, breakage);
  }

  void open_failed(EpochId epoch, const Status& why) {
    const Status status = why.with_context(fmt::format("cannot enter epoch {}", to_string(epoch)));
    if (is_configuration_error(why)) return fail(status, kExitConfiguration);
    log::debug("{}", status.message());  // the coordinator says it once for all ranks
    link_->send_broken(epoch, {.blamed_rank = -1, .layer = -1, .phase = {}, .reason = why.message()});
  }

  void up() {
    if (was_up_ && gone_since_) log::info("the coordinator is back");
    was_up_ = true;
    gone_since_.reset();
  }

  void down(const Status& why) {
    if (why.code() == Code::invalid_argument) return fail(why, kExitConfiguration);
    if (gone_since_) return;
    gone_since_ = now();
    log::warning("the coordinator is gone ({}); this rank exits in {:.3g} s unless it comes back",
                 why.message(), static_cast<double>(options_.orphan_timeout) / 1e9);
  }

  int poll_timeout() const {
    if (!gone_since_) return -1;
    const Nanos left = *gone_since_ + options_.orphan_timeout - now();
    return static_cast<int>(std::max<Nanos>(left, 0) / milliseconds(1)) + 1;
  }

  void check_orphaned() {
    if (exit_ || !gone_since_ || now() < *gone_since_ + options_.orphan_timeout) return;
    fail(unavailable(fmt::format("no coordinator at {} for {:.3g} s: exiting", options_.coordinator,
                                 static_cast<double>(options_.orphan_timeout) / 1e9)),
         kExitOrphaned);
  }

  void fail(const Status& status, int exit) {
    log::error("{}", status.message());
    exit_ = exit;
  }

  int shut_down() {
    if (link_ != nullptr) link_->stop();
    if (!worker_.stop(kStopPatience)) {
      log::info("stopping while the model loads or an epoch opens");
      std::_Exit(*exit_);
    }
    link_.reset();
    server_.reset();
    return *exit_;
  }

  RankProcessOptions options_;
  Mailbox mailbox_;
  std::unique_ptr<CoordinatorLink> link_;
  EpochWorker worker_;  // started by the constructor: after all that its events touch
  std::unique_ptr<EngineServer> server_;
  std::optional<Nanos> gone_since_;
  bool was_up_ = false;
  std::optional<int> exit_;
};

}  // namespace

int run_rank(const RankProcessOptions& options, const LoadRank& load, int stop_fd) {
  return RankProcess(options, load).run(stop_fd);
}

}  // namespace sluice::cluster

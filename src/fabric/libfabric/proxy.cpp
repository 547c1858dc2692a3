#include "fabric/libfabric/proxy.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/log.h"

namespace sluice::fabric::ofi {

namespace {

// Passes without work before the next stage of rest.
constexpr int kSpins = 20;
constexpr int kYields = 10;
// How long to sleep at most: while a post was refused, where there is nothing to wait on, and otherwise (a
// safeguard only, the descriptors wake us).
constexpr int kRefusedMs = 1;
constexpr int kBlindMs = 1;
constexpr int kIdleMs = 100;
constexpr Nanos kFlush = seconds(1);
// A caller drives for so long before it sleeps, and keeps the thread away for so long after its last drive.
constexpr Nanos kDrive = 500'000;
constexpr int kNapMs = 1;

}  // namespace

Proxy::Proxy(const Options& options, Rank rank, std::vector<Target> targets, std::function<void(int)> failed)
    : my_rank_(options.rank),
      rank_(std::move(rank)),
      on_failed_(std::move(failed)),
      progress_(options, rank_.endpoint, *rank_.window, rank_.staging, rank_.staging_region.descriptor,
                std::move(targets), [this](int peer, int error) { peer_failed(peer, error); }) {}

Result<std::unique_ptr<Proxy>> Proxy::start(const Options& options, Rank rank, std::vector<Target> targets,
                                            std::function<void(int)> failed) {
  std::unique_ptr<Proxy> proxy(new Proxy(options, std::move(rank), std::move(targets), std::move(failed)));
  proxy->wake_fd_ = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!proxy->wake_fd_) return errno_status(Code::resource_exhausted, "eventfd of the fabric's proxy");
  proxy->thread_ = std::thread([it = proxy.get()] { it->run(); });
  return proxy;
}

Proxy::~Proxy() {
  stopping_.store(true, std::memory_order_release);
  wake_up();
  if (thread_.joinable()) thread_.join();
  rank_.endpoint.close_traffic();
}

void Proxy::submit(const Order& order) {
  while (!progress_.push(order)) {
    wake_up();
    sched_yield();
  }
  if (const std::unique_lock lock(mutex_, std::try_to_lock); lock.owns_lock()) {
    progress_.send();
    if (progress_.drained() && !progress_.refused()) return;
  }
  wake_up();
}

// A read-modify-write on both sides: either the proxy, announcing its sleep, sees what was pushed before, or
// the producer sees that it sleeps.
void Proxy::wake_up() {
  if (!sleeping_.exchange(false, std::memory_order_acq_rel)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_fd_.get(), &one, sizeof(one));
}

bool Proxy::drive(FunctionRef<bool()> look, Deadline deadline) {
  driven_.store(++drives_, std::memory_order_release);
  const Nanos until = std::min(now() + kDrive, deadline.when());
  do {
    const bool worked = locked_pass();
    if (look()) return true;
    if (!worked) sched_yield();
  } while (now() < until);
  driven_.store(0, std::memory_order_release);
  wake_up();
  return look();
}

bool Proxy::locked_pass() {
  const std::lock_guard lock(mutex_);
  return progress_.pass();
}

// Whether the caller does this thread's work: it has driven since the last look.
bool Proxy::stand_back(uint64_t& seen) {
  const uint64_t driven = driven_.load(std::memory_order_acquire);
  if (driven == 0 || driven == seen || stopping_.load(std::memory_order_acquire)) return false;
  seen = driven;
  sleeping_.exchange(true, std::memory_order_acq_rel);
  // A hand-over between the first look and the announcement would not have woken us.
  wait_for_wake(-1, driven_.load(std::memory_order_acquire) != 0 ? kNapMs : 0);
  return true;
}

void Proxy::run() {
  int idle = 0;
  uint64_t seen = 0;
  Nanos stop_at = 0;
  while (true) {
    if (stand_back(seen)) {
      idle = 0;
      continue;
    }
    if (locked_pass()) {
      idle = 0;
      continue;
    }
    if (stopping_.load(std::memory_order_acquire)) {
      if (stop_at == 0) stop_at = now() + kFlush;
      if (progress_.idle() || now() >= stop_at) return;
    }
    ++idle;
    if (idle <= kSpins) continue;
    if (idle <= kSpins + kYields) {
      sched_yield();
      continue;
    }
    sleep();
  }
}

void Proxy::peer_failed(int peer, int error) {
  // Peers that close a moment earlier are no news.
  if (!stopping_.load(std::memory_order_acquire)) {
    log::warning("rank {}: the connection to rank {} failed: {}", my_rank_, peer, error_text(error));
  }
  on_failed_(peer);
}

void Proxy::sleep() {
  sleeping_.exchange(true, std::memory_order_acq_rel);
  const bool stopping = stopping_.load(std::memory_order_acquire);
  std::unique_lock lock(mutex_);
  const bool drained = progress_.drained();
  const bool may_sleep = drained && rank_.endpoint.may_sleep();
  const bool refused = progress_.refused();
  lock.unlock();
  const int fd = rank_.endpoint.wait_fd();
  if (may_sleep) {
    wait_for_wake(fd, refused || stopping ? kRefusedMs : kIdleMs);
  } else if (drained && fd < 0) {
    wait_for_wake(-1, kBlindMs);
  } else {
    wait_for_wake(-1, 0);
  }
}

// Ends what sleeping_ announced: by a wake, by `fd` unless it is negative, or after the time.
void Proxy::wait_for_wake(int fd, int timeout_ms) {
  std::array<pollfd, 2> fds{pollfd{wake_fd_.get(), POLLIN, 0}, pollfd{fd, POLLIN, 0}};
  if (timeout_ms > 0) ::poll(fds.data(), fds.size(), timeout_ms);
  const bool woken = !sleeping_.exchange(false, std::memory_order_acq_rel);
  // The second: a producer had taken the announcement of an earlier sleep, and wrote after that had ended.
  if (woken || (fds[0].revents & POLLIN) != 0) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_fd_.get(), &count, sizeof(count));
  }
}

}  // namespace sluice::fabric::ofi

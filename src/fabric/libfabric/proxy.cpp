#include "fabric/libfabric/proxy.h"

#include <poll.h>
#include <rdma/fi_errno.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>

#include "base/log.h"

namespace sluice::fabric::ofi {

namespace {

constexpr size_t kRingDepth = 4096;
constexpr int kBatch = 64;
// Passes without work before the next stage of rest.
constexpr int kSpins = 20;
constexpr int kYields = 10;
// How long to sleep at most: while a post was refused, where there is nothing to wait on, and otherwise (a
// safeguard only, the descriptors wake us).
constexpr int kRefusedMs = 1;
constexpr int kBlindMs = 1;
constexpr int kIdleMs = 100;
constexpr Nanos kFlush = seconds(1);

std::unique_ptr<std::byte[]> ring_memory() {
  constexpr size_t kAlignment = 64;
  // operator new[] of bytes aligns to 16; the ring wants a cache line.
  return std::make_unique<std::byte[]>(DescriptorRing::memory_bytes(kRingDepth) + kAlignment);
}

void* aligned(std::byte* memory) {
  return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory) + 63) / 64 * 64);
}

}  // namespace

Proxy::Proxy(const Options& options, Rank rank, std::vector<Target> targets, std::function<void(int)> failed)
    : my_rank_(options.rank),
      ranks_(options.ranks),
      rank_(std::move(rank)),
      on_failed_(std::move(failed)),
      arrivals_(*rank_.window, options),
      sender_(rank_.endpoint, options, rank_.staging, rank_.staging_region.descriptor, std::move(targets),
              [this](int peer, int error) { peer_failed(peer, error); }),
      ring_memory_(ring_memory()),
      ring_(aligned(ring_memory_.get()), kRingDepth) {}

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
  const auto words = encode_order(order);
  while (!ring_.try_push(words)) {
    wake_up();
    sched_yield();
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

void Proxy::run() {
  int idle = 0;
  Nanos stop_at = 0;
  while (true) {
    if (pass()) {
      idle = 0;
      continue;
    }
    if (stopping_.load(std::memory_order_acquire)) {
      if (stop_at == 0) stop_at = now() + kFlush;
      if ((sender_.idle() && ring_.empty()) || now() >= stop_at) return;
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

bool Proxy::pass() {
  bool worked = drain();
  worked = sender_.post() || worked;
  worked = complete() || worked;
  return worked;
}

bool Proxy::drain() {
  DescriptorRing::Words words{};
  int taken = 0;
  for (; taken < kBatch && ring_.try_pop(words); ++taken) {
    const auto order = decode_order(words);
    if (!order || order->peer >= ranks_) {
      log::error("rank {}: the fabric's proxy dropped an impossible descriptor {:x}", my_rank_, words[0]);
      continue;
    }
    sender_.accept(*order);
  }
  return taken > 0;
}

bool Proxy::complete() {
  std::array<fi_cq_data_entry, kBatch> entries;
  const ssize_t got = rank_.endpoint.poll(entries);
  if (got == -FI_EAVAIL) {
    read_errors();
    return true;
  }
  if (got < 0) {
    log::error("rank {}: reading the completion queue: {}", my_rank_, error_text(got));
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer != my_rank_) sender_.fail_peer(peer, static_cast<int>(-got));
    }
    return false;
  }
  bool ring = false;
  for (ssize_t i = 0; i < got; ++i) {
    const fi_cq_data_entry& entry = entries[static_cast<size_t>(i)];
    // Only this flag tells: lengths and FI_RMA are missing in some providers.
    if ((entry.flags & FI_REMOTE_CQ_DATA) != 0) {
      ring = deliver(static_cast<uint32_t>(entry.data)) || ring;
    } else if (entry.op_context != nullptr) {
      sender_.completed(entry.op_context);
    }
  }
  if (sender_.take_released() && waiters_.load(std::memory_order_seq_cst) != 0) ring = true;
  if (ring) rank_.window->bell().ring();
  return got > 0;
}

bool Proxy::deliver(uint32_t immediate) {
  const Arrivals::Event event = arrivals_.deliver(immediate);
  switch (event.what) {
    case Arrivals::Event::nothing:
      return false;
    case Arrivals::Event::published:
      return true;
    case Arrivals::Event::woken:
      sender_.acknowledge_wake(event.source, event.number);
      return true;
    case Arrivals::Event::wake_acked:
      sender_.wake_acknowledged(event.source, event.number);
      return false;
  }
  return false;
}

void Proxy::read_errors() {
  fi_cq_err_entry entry;
  while (rank_.endpoint.read_error(entry)) {
    if (entry.op_context != nullptr) {
      sender_.failed(entry.op_context, entry.err);
    } else {
      log::warning("rank {}: a receive failed: {}", my_rank_, error_text(entry.err));
    }
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
  if (ring_.empty() && rank_.endpoint.may_sleep()) {
    std::array<pollfd, 2> fds{pollfd{wake_fd_.get(), POLLIN, 0}, pollfd{rank_.endpoint.wait_fd(), POLLIN, 0}};
    int timeout = kIdleMs;
    if (sender_.refused() || stopping) timeout = kRefusedMs;
    ::poll(fds.data(), fds.size(), timeout);
  } else if (ring_.empty() && rank_.endpoint.wait_fd() < 0) {
    pollfd fd{wake_fd_.get(), POLLIN, 0};
    ::poll(&fd, 1, kBlindMs);
  }
  if (!sleeping_.exchange(false, std::memory_order_acq_rel)) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_fd_.get(), &count, sizeof(count));
  }
}

}  // namespace sluice::fabric::ofi

#include "fabric/libfabric/progress.h"

#include <rdma/fi_errno.h>

#include <array>

#include "base/log.h"
#include "fabric/libfabric/provider.h"

namespace sluice::fabric::ofi {

namespace {

constexpr size_t kRingDepth = 4096;
constexpr int kBatch = 64;

std::unique_ptr<std::byte[]> ring_memory() {
  constexpr size_t kAlignment = 64;
  // operator new[] of bytes aligns to 16; the ring wants a cache line.
  return std::make_unique<std::byte[]>(DescriptorRing::memory_bytes(kRingDepth) + kAlignment);
}

void* aligned(std::byte* memory) {
  return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory) + 63) / 64 * 64);
}

}  // namespace

Progress::Progress(const Options& options, Rail& rail, Window& window, Staging& staging, void* descriptor,
                   std::vector<Target> targets, std::function<void(int peer, int error)> failed)
    : rank_(options.rank),
      ranks_(options.ranks),
      rail_(rail),
      window_(window),
      arrivals_(window, options),
      sender_(rail, options, staging, descriptor, std::move(targets), std::move(failed)),
      ring_memory_(ring_memory()),
      ring_(aligned(ring_memory_.get()), kRingDepth) {}

bool Progress::pass() {
  const bool sent = send();
  return complete() || sent;
}

bool Progress::send() {
  const bool drained = drain();
  return sender_.post() || drained;
}

bool Progress::drain() {
  DescriptorRing::Words words{};
  int taken = 0;
  for (; taken < kBatch && ring_.try_pop(words); ++taken) {
    const auto order = decode_order(words);
    if (!order || order->peer >= ranks_) {
      log::error("rank {}: the fabric's proxy dropped an impossible descriptor {:x}", rank_, words[0]);
      continue;
    }
    sender_.accept(*order);
  }
  return taken > 0;
}

bool Progress::complete() {
  std::array<fi_cq_data_entry, kBatch> entries;
  const ssize_t got = rail_.poll(entries);
  if (got == -FI_EAVAIL) {
    read_errors();
    return true;
  }
  if (got < 0) {
    log::error("rank {}: reading the completion queue: {}", rank_, error_text(got));
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer != rank_) sender_.fail_peer(peer, static_cast<int>(-got));
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
  if (ring) window_.bell().ring();
  return got > 0;
}

bool Progress::deliver(uint32_t immediate) {
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

void Progress::read_errors() {
  fi_cq_err_entry entry;
  while (rail_.read_error(entry)) {
    if (entry.op_context != nullptr) {
      sender_.failed(entry.op_context, entry.err);
    } else {
      log::warning("rank {}: a receive failed: {}", rank_, error_text(entry.err));
    }
  }
}

}  // namespace sluice::fabric::ofi

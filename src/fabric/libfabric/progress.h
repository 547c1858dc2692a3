// One rank's work on the network, without a thread of its own: a pass drains the descriptor ring, posts,
// reads completions, publishes arrivals in the window and rings its bell. It never blocks. Whoever makes a
// pass (the proxy's thread, or the rank's caller while it waits) holds the proxy's lock; push() alone is for
// any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "fabric/arrivals.h"
#include "fabric/descriptor_ring.h"
#include "fabric/libfabric/rail.h"
#include "fabric/libfabric/sender.h"
#include "fabric/libfabric/staging.h"

namespace sluice::fabric::ofi {

class Progress {
 public:
  // Everything referred to must outlive this. `descriptor`: of the staging memory's registration.
  // `failed` is called in a pass, once for each peer that fails.
  Progress(const Options& options, Rail& rail, Window& window, Staging& staging, void* descriptor,
           std::vector<Target> targets, std::function<void(int peer, int error)> failed);

  // Any thread. False when the ring is full.
  bool push(const Order& order) { return ring_.try_push(encode_order(order)); }

  // Whether anything was done.
  bool pass();
  // What was pushed goes out, as far as credits and the rail allow; completions are left alone.
  bool send();

  // Nothing was pushed that send() has not seen.
  bool drained() const { return ring_.empty(); }
  // Everything that was pushed has left, and the provider holds nothing any more.
  bool idle() const { return sender_.idle() && ring_.empty(); }
  // The rail had no room for something.
  bool refused() const { return sender_.refused(); }

  const Arrivals& arrivals() const { return arrivals_; }
  // The caller is about to wait, or waits no more, for a staging slab. Any thread.
  void begin_wait() { waiters_.fetch_add(1, std::memory_order_seq_cst); }
  void end_wait() { waiters_.fetch_sub(1, std::memory_order_seq_cst); }

 private:
  bool drain();
  bool complete();
  bool deliver(uint32_t immediate);
  void read_errors();

  int rank_;
  int ranks_;
  Rail& rail_;
  Window& window_;
  Arrivals arrivals_;
  Sender sender_;
  std::unique_ptr<std::byte[]> ring_memory_;
  DescriptorRing ring_;
  std::atomic<int> waiters_{0};
};

}  // namespace sluice::fabric::ofi

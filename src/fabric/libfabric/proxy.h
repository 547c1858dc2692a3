// The thread that drives the network for one rank: drains the descriptor ring, posts, polls completions,
// publishes arrivals and rings the window's bell. Idle, it spins briefly, yields, then sleeps on the
// provider's descriptor and on an eventfd by which producers wake it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "fabric/arrivals.h"
#include "fabric/descriptor_ring.h"
#include "fabric/libfabric/endpoint.h"
#include "fabric/libfabric/sender.h"
#include "fabric/libfabric/staging.h"

namespace sluice::fabric::ofi {

// The registered memory of a rank and the endpoint that serves it.
struct Rank {
  std::shared_ptr<Window> window;
  Staging staging;
  Endpoint endpoint;
  Region staging_region;
  std::vector<Region> blocks;  // of the window, one a source: each can be revoked alone
};

class Proxy {
 public:
  // `failed` is called on the proxy's thread.
  static Result<std::unique_ptr<Proxy>> start(const Options& options, Rank rank, std::vector<Target> targets,
                                              std::function<void(int peer)> failed);
  // Sends what was ordered, for a second at most, then closes everything.
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  // Any thread. Waits for room in the ring, which the proxy makes whatever the peers do.
  void submit(const Order& order);

  Staging& staging() { return rank_.staging; }
  const Arrivals& arrivals() const { return arrivals_; }
  // The caller is about to wait, or waits no more, for a staging slab.
  void begin_wait() { waiters_.fetch_add(1, std::memory_order_seq_cst); }
  void end_wait() { waiters_.fetch_sub(1, std::memory_order_seq_cst); }

 private:
  Proxy(const Options& options, Rank rank, std::vector<Target> targets, std::function<void(int)> failed);

  void run();
  bool pass();
  bool drain();
  bool complete();
  bool deliver(uint32_t immediate);
  void read_errors();
  void sleep();
  void wake_up();
  void peer_failed(int peer, int error);

  int my_rank_;
  int ranks_;
  Rank rank_;
  std::function<void(int)> on_failed_;
  Arrivals arrivals_;
  Sender sender_;
  std::unique_ptr<std::byte[]> ring_memory_;
  DescriptorRing ring_;
  UniqueFd wake_fd_;
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<int> waiters_{0};
  std::thread thread_;
};

}  // namespace sluice::fabric::ofi

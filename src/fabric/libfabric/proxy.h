// Drives the network for one rank, from two places. A thread of its own does it by default: idle, it spins
// briefly, yields, then sleeps on the provider's descriptor and on an eventfd by which producers wake it. A
// caller that waits does it itself meanwhile (drive()), which saves two changes of thread an exchange; the
// thread then naps, and takes over again when the caller has gone to sleep or stayed away for kNapMs. Both
// hold the lock for a pass, and nothing else is held with it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/function_ref.h"
#include "base/unique_fd.h"
#include "fabric/libfabric/endpoint.h"
#include "fabric/libfabric/network_link.h"
#include "fabric/libfabric/progress.h"
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

class Proxy final : public Outlet {
 public:
  // `failed` is called by whoever makes a pass.
  static Result<std::unique_ptr<Proxy>> start(const Options& options, Rank rank, std::vector<Target> targets,
                                              std::function<void(int peer)> failed);
  // Sends what was ordered, for a second at most, then closes everything.
  ~Proxy() override;
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  // Any thread. Posts at once when nobody makes a pass. Waits for room in the ring, which the proxy makes
  // whatever the peers do.
  void submit(const Order& order) override;

  // Makes passes on the caller's thread until look() is true, but for a short while only: false means that
  // the thread has taken over and the caller may sleep on the window's bell. One caller at a time.
  bool drive(FunctionRef<bool()> look, Deadline deadline);

  Staging& staging() override { return rank_.staging; }
  void begin_wait() override { progress_.begin_wait(); }
  void end_wait() override { progress_.end_wait(); }
  const Arrivals& arrivals() const { return progress_.arrivals(); }

 private:
  Proxy(const Options& options, Rank rank, std::vector<Target> targets, std::function<void(int)> failed);

  void run();
  bool stand_back(uint64_t& seen);
  bool locked_pass();
  void sleep();
  void wait_for_wake(int fd, int timeout_ms);
  void wake_up();
  void peer_failed(int peer, int error);

  int my_rank_;
  Rank rank_;
  std::function<void(int)> on_failed_;
  std::mutex mutex_;  // over the passes: progress_ and rank_.endpoint
  Progress progress_;
  UniqueFd wake_fd_;
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> stopping_{false};
  // The ordinal of the caller's latest drive; 0 when the caller has left the work to the thread.
  std::atomic<uint64_t> driven_{0};
  uint64_t drives_ = 0;  // the caller's count
  std::thread thread_;
};

}  // namespace sluice::fabric::ofi

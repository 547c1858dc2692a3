// A fabric in memory that delivers in any order: puts are cut into fragments, a thread of its own copies them
// into the receiver's slabs at random times, and a put counts as arrived when its last fragment is in place.
// Bytes are copied at delivery, so a half that is reused too early shows as wrong data (and as a race to
// TSan). Seeded: the same seed draws the same delays and choices.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "fabric/fabric.h"

namespace sluice::exchange::test {

struct FakeOptions {
  int ranks = 2;
  uint64_t epoch = 1;
  std::array<size_t, fabric::kKinds> slab_bytes{};
  uint64_t seed = 1;
  int fragments = 3;          // at most, a put
  std::byte unwritten{0xcd};  // what staging holds before it is written
  int delay_percent = 10;     // of deliveries wait a while first
};

class FakeNetwork {
 public:
  explicit FakeNetwork(FakeOptions options);
  ~FakeNetwork();
  FakeNetwork(const FakeNetwork&) = delete;
  FakeNetwork& operator=(const FakeNetwork&) = delete;

  // Each rank once, all before any sends. The network must outlive what it gives out.
  std::unique_ptr<fabric::Fabric> join(int rank);

  // Sees and may change every put's payload before it travels. Set before the ranks run.
  using Tamper =
      std::function<void(int source, int target, fabric::Kind kind, uint64_t seq, std::vector<std::byte>&)>;
  void tamper(Tamper tamper) { tamper_ = std::move(tamper); }
  // Drops every later put of `rank`.
  void silence(int rank);
  // Every other rank learns that `rank` is gone.
  void kill(int rank);

 private:
  class Member;
  friend class Member;
  struct Put;
  struct Fragment {
    std::shared_ptr<Put> put;
    size_t begin = 0;
    size_t end = 0;
  };

  void send(std::shared_ptr<Put> put);
  void deliver();

  FakeOptions options_;
  Tamper tamper_;
  std::vector<Member*> members_;  // by rank; under mutex_
  std::vector<std::atomic<bool>> silent_;
  std::mutex mutex_;
  std::condition_variable pending_;
  std::vector<Fragment> fragments_;
  std::mt19937_64 random_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace sluice::exchange::test

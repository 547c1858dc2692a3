// How an operation's pieces are spread over the rank's threads. Work too small to repay waking a thread runs
// on the caller.
#pragma once

#include <cstdint>
#include <functional>

#include "base/thread_pool.h"

namespace sluice::compute::cpu {

class Workers {
 public:
  explicit Workers(int threads) : pool_(threads) {}

  int threads() const { return pool_.threads(); }

  // Calls piece(i) for i in [0, pieces). `work`: about how many multiply-adds, or elements touched, in all.
  void run(int64_t pieces, int64_t work, const std::function<void(int64_t)>& piece) {
    if (work < kWorthWaking) {
      for (int64_t i = 0; i < pieces; ++i) piece(i);
    } else {
      pool_.run(pieces, piece);
    }
  }

 private:
  static constexpr int64_t kWorthWaking = 1 << 19;

  ThreadPool pool_;
};

}  // namespace sluice::compute::cpu

// Hundreds of ranks in one process over mapped memory, driven by turns from a pool of a few threads: the same
// bits as the reference, and what it takes in memory.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "cluster.h"
#include "turns.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;  // shadow memory takes several times as much
#else
constexpr bool kSanitized = false;
#endif

namespace sluice::exchange::test {
namespace {

// Opening is collective, so each rank opens on a thread of its own; these end before anything is exchanged.
std::vector<std::unique_ptr<Exchange>> open_all(const Shape& shape, const Placement& placement) {
  const Plan needs = plan(shape, placement).value();
  fabric::InProcessHub hub(shape.ranks);
  std::vector<std::unique_ptr<Exchange>> exchanges(static_cast<size_t>(shape.ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      fabric::Options options;
      options.provider = "local";
      options.rank = rank;
      options.ranks = shape.ranks;
      options.epoch = 1;
      options.slab_bytes = {needs.dispatch_slab_bytes, needs.combine_slab_bytes};
      options.connect_timeout = seconds(120);
      const auto bootstrap = hub.join(rank);
      auto fabric = fabric::Fabric::open(options, *bootstrap);
      ASSERT_TRUE(fabric.ok()) << fabric.status().message();
      exchanges[static_cast<size_t>(rank)] =
          Exchange::open(shape, placement, rank, 1, std::move(fabric).value()).value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return exchanges;
}

// Gives each rank a turn again and again, on `threads` threads, until all are done.
class Pool {
 public:
  explicit Pool(std::vector<std::unique_ptr<Turns>>& ranks) : ranks_(ranks), left_(ranks.size()) {
    for (size_t rank = 0; rank < ranks.size(); ++rank) queue_.push_back(rank);
  }

  void run(int threads) {
    std::vector<std::thread> pool;
    for (int i = 0; i < threads; ++i) pool.emplace_back([this] { work(); });
    for (std::thread& thread : pool) thread.join();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (left_ > 0) {
      if (queue_.empty()) {
        changed_.wait(lock);
        continue;
      }
      const size_t rank = queue_.front();
      queue_.pop_front();
      lock.unlock();
      Turns& turns = *ranks_[rank];
      while (turns.turn()) {
      }
      lock.lock();
      if (turns.done() || !turns.status().ok()) {
        --left_;
      } else {
        queue_.push_back(rank);
      }
      changed_.notify_all();
    }
  }

  std::vector<std::unique_ptr<Turns>>& ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<size_t> queue_;
  size_t left_;
};

void run_ranks_by_turns(const Shape& shape, int exchanges) {
  const Placement placement = Placement::contiguous(shape.experts, shape.ranks).value();
  auto opened = open_all(shape, placement);
  std::vector<std::unique_ptr<Turns>> ranks;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    ASSERT_NE(opened[static_cast<size_t>(rank)], nullptr);
    ranks.push_back(std::make_unique<Turns>(std::move(opened[static_cast<size_t>(rank)]), placement, rank,
                                            exchanges, static_cast<uint64_t>(rank) + 1));
  }
  Pool(ranks).run(4);
  for (const auto& rank : ranks) ASSERT_TRUE(rank->done()) << rank->status().message();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const size_t windows = plan(shape, placement)->window_bytes * static_cast<size_t>(shape.ranks);
  fmt::print("{} ranks, hidden {}, up to {} tokens, {}: windows {} MB, peak memory of the process {} MB\n",
             shape.ranks, shape.hidden, shape.max_tokens, shape.exact ? "exact" : "reduced", windows >> 20,
             usage.ru_maxrss >> 10);
}

TEST(ManyRanks, HundredsInOneProcess) {
  const int ranks = kSanitized ? 48 : 256;
  run_ranks_by_turns(make_shape(ranks, 256, 8, 256, 8, DType::bfloat16, false), 4);
  run_ranks_by_turns(make_shape(ranks, 300, 8, 256, 2, DType::bfloat16, true), 4);
}

TEST(ManyRanks, AThousandInOneProcess) {
  const int ranks = kSanitized ? 64 : 1024;
  run_ranks_by_turns(make_shape(ranks, ranks, 8, 64, 1, DType::bfloat16, false), 4);
}

}  // namespace
}  // namespace sluice::exchange::test

// A fixed team of threads for one rank's kernels. run() splits work into numbered pieces; the caller takes
// part. Which thread runs a piece is not fixed, so a piece's result must not depend on it: every kernel
// writes each output element from one piece only, which keeps results equal for any number of threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice {

class ThreadPool {
 public:
  // `threads` counts the caller: 1 starts no thread.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls piece(i) once for each i in [0, pieces), on all threads, and returns when all are done. One caller
  // at a time; piece must not throw.
  void run(int64_t pieces, const std::function<void(int64_t)>& piece);

 private:
  void work();
  void take_pieces(const std::function<void(int64_t)>& piece, int64_t pieces);

  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  const std::function<void(int64_t)>* piece_ = nullptr;
  int64_t pieces_ = 0;
  std::atomic<int64_t> next_{0};
  uint64_t round_ = 0;
  int busy_ = 0;
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace sluice

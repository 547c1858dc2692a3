// A few threads that take jobs from one bounded queue: the parsing, rendering and encoding of requests, which
// would otherwise hold up every open stream.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice::server {

class WorkerPool {
 public:
  using Job = std::function<void()>;

  WorkerPool(int threads, size_t max_queued);
  // Jobs that have not begun are dropped.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False when the queue is full. Jobs must not throw.
  bool post(Job job);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  size_t max_queued_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice::server

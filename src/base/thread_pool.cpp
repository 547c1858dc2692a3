#include "base/thread_pool.h"

namespace sluice {

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(int64_t pieces, const std::function<void(int64_t)>& piece) {
  if (workers_.empty() || pieces <= 1) {
    for (int64_t i = 0; i < pieces; ++i) piece(i);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    piece_ = &piece;
    pieces_ = pieces;
    next_.store(0, std::memory_order_relaxed);
    busy_ = static_cast<int>(workers_.size());
    ++round_;
  }
  start_.notify_all();
  take_pieces(piece, pieces);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_ == 0; });
}

void ThreadPool::take_pieces(const std::function<void(int64_t)>& piece, int64_t pieces) {
  while (true) {
    const int64_t i = next_.fetch_add(1, std::memory_order_relaxed);
    if (i >= pieces) return;
    piece(i);
  }
}

void ThreadPool::work() {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    start_.wait(lock, [&] { return stop_ || round_ != seen; });
    if (stop_) return;
    seen = round_;
    const auto* piece = piece_;
    const int64_t pieces = pieces_;
    lock.unlock();
    take_pieces(*piece, pieces);
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

}  // namespace sluice

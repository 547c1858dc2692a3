// Work for one thread from all others: tasks run there, in order. fd() is readable while some are waiting.
#pragma once

#include <sys/eventfd.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "base/unique_fd.h"

namespace sluice::cluster {

class Mailbox {
 public:
  Mailbox() : bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  void post(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(bell_.get(), &one, sizeof one);
  }

  // On the owner's thread. A task may post more; those run in the next call.
  void run() {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(bell_.get(), &count, sizeof count);
    std::vector<std::function<void()>> tasks;
    {
      const std::lock_guard lock(mutex_);
      tasks.swap(tasks_);
    }
    for (const auto& task : tasks) task();
  }

  int fd() const { return bell_.get(); }

 private:
  UniqueFd bell_;
  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;
};

}  // namespace sluice::cluster

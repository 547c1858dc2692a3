// Runs the built program as a user does: a child process with its output collected, and the processes below
// it.
#pragma once

#include <sys/types.h>

#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace sluice::e2e {

class Process {
 public:
  // Runs `arguments` (the first is the program); standard output and error go into output().
  explicit Process(std::vector<std::string> arguments);
  // Kills what is left of it.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  // The exit status (128 + signal when a signal ended it), or -1 when it still runs after `span`.
  int wait(Nanos span);
  std::string output();

 private:
  pid_t pid_ = -1;
  int status_ = -1;
  int pipe_ = -1;
  std::mutex mutex_;
  std::string output_;
  std::thread reader_;
};

struct ChildInfo {
  pid_t pid = 0;
  std::vector<std::string> arguments;
};
// Direct children, from /proc.
std::vector<ChildInfo> children_of(pid_t pid);
// The child of the supervisor that runs rank `rank`; 0 when there is none now.
pid_t rank_process(pid_t supervisor, int rank);
bool alive(pid_t pid);

// Runs to the end and returns exit status and output; fails the test when that takes longer than `limit`.
struct Finished {
  int status = -1;
  std::string output;
};
Finished run(std::vector<std::string> arguments, Nanos limit);

// The program under test.
std::string sluice_program();
// models/demo of the repository; and ../shared (or $SLUICE_SHARED), empty when absent.
std::string demo_model();
std::string shared_folder();

}  // namespace sluice::e2e

// One child process: started by posix_spawn (so it may be started when threads run), watched by a pidfd, its
// standard error read line by line. Never left behind: the destructor kills and reaps it.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"

namespace sluice::cluster {

struct Exit {
  bool by_signal = false;
  int value = 0;  // exit status or signal number
};
// "killed by signal 9", "exited with status 3"
std::string to_string(Exit exit);

class ChildProcess {
 public:
  // argv is `name` and then the arguments. The child inherits standard output, the environment (with these
  // "NAME=value" entries instead of ours of the same name) and the signal mask: signals that are blocked here
  // wait until it asks for them. No other descriptor.
  static Result<ChildProcess> spawn(const std::string& program, const std::string& name,
                                    const std::vector<std::string>& arguments,
                                    const std::vector<std::string>& environment = {});
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  int pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }      // readable once it has exited
  int error_fd() const { return errors_.get(); }  // -1 after its end

  // Reads what is there without waiting and passes whole lines on to our own standard error.
  void pass_errors_on();
  const std::deque<std::string>& last_lines() const { return last_lines_; }

  void signal(int number) const;
  // Its exit, once it has. It is reaped then, and the rest of its standard error has been passed on.
  std::optional<Exit> reap();

 private:
  ChildProcess(int pid, UniqueFd pidfd, UniqueFd errors);
  void pass_line_on(std::string_view line);

  int pid_ = -1;  // -1: reaped or moved from
  UniqueFd pidfd_;
  UniqueFd errors_;
  std::string partial_;  // a line whose end has not come yet
  std::deque<std::string> last_lines_;
};

}  // namespace sluice::cluster

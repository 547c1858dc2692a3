// Keeps a node's processes running: starts them, passes their logs on, says by name which one died of what
// and starts it again, and stops them in order. One thread, one poll loop. When run() returns no child is
// left.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "cluster/child_process.h"

namespace sluice::cluster {

struct ChildSpec {
  std::string name;                        // "rank 1"
  std::vector<std::string> arguments;      // after argv[0]; everyone on this machine can read them
  std::vector<std::string> environment{};  // "NAME=value", besides ours: what is nobody else's business
  // Stages are stopped in ascending order, each when the one before has gone.
  int stop_stage = 0;
  Nanos stop_patience = seconds(10);  // from SIGTERM to SIGKILL
  // Asked now and then until it says yes, of each process anew: it does what it is for.
  std::function<bool()> is_working;
};

struct SupervisorPolicy {
  // So many deaths in a row before the child ever worked, and the supervisor gives up. A child that exits
  // with kExitConfiguration before it worked is given up at once.
  int quick_deaths = 5;
  // Before the second start; doubled each time. A child that had worked is started again at once.
  Nanos first_delay = milliseconds(100);
  Nanos longest_delay = seconds(5);
  // What a child gets between SIGTERM and SIGKILL when the user asks a second time.
  Nanos hurried_patience = seconds(2);
};

struct SupervisorHooks {
  std::function<void(size_t child, int pid)> started;
  std::function<void(size_t child, int pid, const std::string& reason)> exited;
  // Asked now and then until all children work; an error gives everything up.
  std::function<Status()> hopeless;
  std::function<void()> all_working;  // once
  std::function<void()> stopping;
};

class Supervisor {
 public:
  // `program` is what every child runs.
  Supervisor(std::string program, std::vector<ChildSpec> specs, SupervisorHooks hooks,
             SupervisorPolicy policy = {});

  // Starts all children.
  Status start();
  // Until something arrives on `stop_fd` (a signalfd, or any other descriptor that does not block) and all
  // children have stopped, or a child was given up. A second arrival stops everything at once. Returns the
  // exit status: 0 after a wanted stop.
  int run(int stop_fd);

  int pid(size_t child) const;  // -1: not running

 private:
  struct Child {
    ChildSpec spec;
    std::optional<ChildProcess> process;
    bool working = false;
    int quick_deaths = 0;
    Nanos restart_at = 0;  // 0: not due
    Nanos kill_at = 0;     // 0: not asked to stop
  };

  Status spawn(size_t child);
  void wait(int stop_fd);
  void take_stop_requests(int stop_fd);
  void reap();
  void handle_exit(size_t child, int pid, Exit exit, const std::vector<std::string>& last_lines);
  void give_up(const std::string& why, int status, const std::vector<std::string>& last_lines);
  void restart_due();
  void probe();
  void begin_stop();
  void stop_everything_now();
  void advance_stop();
  void ask_to_stop(Child& child, Nanos patience);
  bool any_alive() const;
  Nanos next_wake() const;

  std::string program_;
  std::vector<Child> children_;
  SupervisorHooks hooks_;
  SupervisorPolicy policy_;
  bool stopping_ = false;
  bool announced_ = false;
  int status_ = 0;
};

}  // namespace sluice::cluster

#include "cluster/supervisor.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <climits>

#include "base/log.h"
#include "cluster/exit_status.h"

namespace sluice::cluster {
namespace {

constexpr Nanos kProbeInterval = milliseconds(50);

}  // namespace

Supervisor::Supervisor(std::string program, std::vector<ChildSpec> specs, SupervisorHooks hooks,
                       SupervisorPolicy policy)
    : program_(std::move(program)), hooks_(std::move(hooks)), policy_(policy) {
  for (ChildSpec& spec : specs) children_.push_back({.spec = std::move(spec), .process = {}});
}

Status Supervisor::start() {
  for (size_t child = 0; child < children_.size(); ++child) SLUICE_RETURN_IF_ERROR(spawn(child));
  return {};
}

Status Supervisor::spawn(size_t index) {
  Child& child = children_[index];
  child.restart_at = 0;
  child.working = false;
  Result<ChildProcess> process =
      ChildProcess::spawn(program_, "sluice", child.spec.arguments, child.spec.environment);
  if (!process.ok()) return process.status().with_context(child.spec.name);
  child.process.emplace(std::move(*process));
  log::debug("{} is process {}", child.spec.name, child.process->pid());
  if (hooks_.started) hooks_.started(index, child.process->pid());
  return {};
}

int Supervisor::pid(size_t child) const {
  return children_[child].process ? children_[child].process->pid() : -1;
}

int Supervisor::run(int stop_fd) {
  while (!stopping_ || any_alive()) {
    wait(stop_fd);
    take_stop_requests(stop_fd);
    reap();
    if (stopping_) {
      advance_stop();
    } else {
      restart_due();
      probe();
    }
  }
  return status_;
}

bool Supervisor::any_alive() const {
  return std::any_of(children_.begin(), children_.end(),
                     [](const Child& child) { return child.process.has_value(); });
}

Nanos Supervisor::next_wake() const {
  Nanos next = LLONG_MAX;
  for (const Child& child : children_) {
    if (child.restart_at != 0 && !stopping_) next = std::min(next, child.restart_at);
    if (child.process && child.kill_at != 0) next = std::min(next, child.kill_at);
    if (child.process && !child.working && !stopping_) next = std::min(next, now() + kProbeInterval);
  }
  return next;
}

void Supervisor::wait(int stop_fd) {
  std::vector<pollfd> fds{{stop_fd, POLLIN, 0}};
  for (const Child& child : children_) {
    if (!child.process) continue;
    fds.push_back({child.process->pidfd(), POLLIN, 0});
    if (child.process->error_fd() >= 0) fds.push_back({child.process->error_fd(), POLLIN, 0});
  }
  const Nanos wake = next_wake();
  const Nanos left = wake == LLONG_MAX ? -1 : std::max<Nanos>(wake - now(), 0);
  const timespec timeout{.tv_sec = left / seconds(1), .tv_nsec = left % seconds(1)};
  ::ppoll(fds.data(), fds.size(), left < 0 ? nullptr : &timeout, nullptr);
  for (Child& child : children_) {
    if (child.process) child.process->pass_errors_on();
  }
}

void Supervisor::take_stop_requests(int stop_fd) {
  char request[128];  // a signalfd_siginfo
  while (::read(stop_fd, request, sizeof request) > 0) {
    if (stopping_) {
      stop_everything_now();
    } else {
      log::info("stopping (ask again to stop at once)");
      begin_stop();
    }
  }
}

void Supervisor::reap() {
  for (size_t index = 0; index < children_.size(); ++index) {
    Child& child = children_[index];
    if (!child.process) continue;
    const int pid = child.process->pid();
    const std::optional<Exit> exit = child.process->reap();
    if (!exit) continue;
    const std::vector<std::string> last_lines(child.process->last_lines().begin(),
                                              child.process->last_lines().end());
    child.process.reset();
    if (hooks_.exited) hooks_.exited(index, pid, to_string(*exit));
    if (!stopping_) handle_exit(index, pid, *exit, last_lines);
  }
}

void Supervisor::handle_exit(size_t index, int pid, Exit exit, const std::vector<std::string>& last_lines) {
  Child& child = children_[index];
  child.quick_deaths = child.working ? 0 : child.quick_deaths + 1;
  const std::string who =
      fmt::format("{} (pid {}) {}{}", child.spec.name, pid, exit.by_signal ? "was " : "", to_string(exit));
  if (!child.working && !exit.by_signal && exit.value == kExitConfiguration) {
    return give_up(fmt::format("{}: it cannot run like this", who), kExitConfiguration, last_lines);
  }
  if (child.quick_deaths >= policy_.quick_deaths) {
    return give_up(
        fmt::format("{}, the {}th time in a row before it worked: giving up", who, child.quick_deaths),
        kExitFailure, last_lines);
  }
  Nanos delay = 0;
  if (child.quick_deaths > 0) {
    delay = std::min(policy_.first_delay << std::min(child.quick_deaths - 1, 20), policy_.longest_delay);
  }
  child.restart_at = now() + delay;
  log::error("{}; restarting it{}", who,
             delay == 0 ? "" : fmt::format(" in {:.3g} s", static_cast<double>(delay) / 1e9));
}

void Supervisor::give_up(const std::string& why, int status, const std::vector<std::string>& last_lines) {
  std::string text = why;
  if (!last_lines.empty()) text += ". Its last lines:";
  for (const std::string& line : last_lines) text += "\n    " + line;
  log::error("{}", text);
  status_ = status;
  begin_stop();
}

void Supervisor::restart_due() {
  for (size_t index = 0; index < children_.size(); ++index) {
    Child& child = children_[index];
    if (child.restart_at == 0 || child.restart_at > now()) continue;
    if (Status status = spawn(index); !status.ok()) {
      // Out of processes or memory, perhaps for now.
      log::error("{}; trying again in {:.3g} s", status.message(),
                 static_cast<double>(policy_.longest_delay) / 1e9);
      child.restart_at = now() + policy_.longest_delay;
    }
  }
}

void Supervisor::probe() {
  bool all = true;
  for (Child& child : children_) {
    if (child.process && !child.working) child.working = !child.spec.is_working || child.spec.is_working();
    all = all && child.working;
  }
  if (announced_) return;
  if (!all) {
    const Status status = hooks_.hopeless ? hooks_.hopeless() : Status();
    if (!status.ok()) give_up(status.message() + ": giving up", kExitFailure, {});
    return;
  }
  announced_ = true;
  if (hooks_.all_working) hooks_.all_working();
}

void Supervisor::ask_to_stop(Child& child, Nanos patience) {
  if (!child.process) return;
  if (child.kill_at == 0) child.process->signal(SIGTERM);
  const Nanos kill_at = now() + patience;
  child.kill_at = child.kill_at == 0 ? kill_at : std::min(child.kill_at, kill_at);
}

void Supervisor::begin_stop() {
  stopping_ = true;
  if (hooks_.stopping) hooks_.stopping();
  advance_stop();
}

void Supervisor::stop_everything_now() {
  for (Child& child : children_) ask_to_stop(child, policy_.hurried_patience);
}

// Asks the lowest stage that still has somebody, and ends what has been asked for too long.
void Supervisor::advance_stop() {
  int stage = INT_MAX;
  for (const Child& child : children_) {
    if (child.process) stage = std::min(stage, child.spec.stop_stage);
  }
  for (Child& child : children_) {
    if (!child.process) continue;
    if (child.spec.stop_stage == stage && child.kill_at == 0) ask_to_stop(child, child.spec.stop_patience);
    if (child.kill_at == 0 || child.kill_at > now()) continue;
    log::warning("{} (pid {}) does not stop: killing it", child.spec.name, child.process->pid());
    child.process->signal(SIGKILL);
    child.kill_at = LLONG_MAX;
  }
}

}  // namespace sluice::cluster

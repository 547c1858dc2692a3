#include "cluster/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

extern char** environ;

namespace sluice::cluster {
namespace {

constexpr size_t kLastLines = 5;
constexpr size_t kLongestLine = 16 << 10;

// glibc 2.36 declares its own without extern "C".
int pidfd_open(int pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody reads our log: nothing can be done
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// "NAME=" of "NAME=value".
std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=') + 1); }

// Our environment with `changes` in it.
std::vector<std::string> environment_with(const std::vector<std::string>& changes) {
  std::vector<std::string> all = changes;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const auto same = [&](const std::string& change) { return name_of(change) == name_of(*entry); };
    if (std::none_of(changes.begin(), changes.end(), same)) all.emplace_back(*entry);
  }
  return all;
}

// As exec wants it: valid while `strings` is.
std::vector<char*> null_terminated(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

// What the child finds at 0, 1 and 2; nothing above.
class FileActions {
 public:
  explicit FileActions(int error_fd) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions_, error_fd, STDERR_FILENO);
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1);
  }
  ~FileActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

}  // namespace

std::string to_string(Exit exit) {
  return fmt::format("{} {}", exit.by_signal ? "killed by signal" : "exited with status", exit.value);
}

Result<ChildProcess> ChildProcess::spawn(const std::string& program, const std::string& name,
                                         const std::vector<std::string>& arguments,
                                         const std::vector<std::string>& environment) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_status(Code::unavailable, "cannot make a pipe");
  UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  ::fcntl(reader.get(), F_SETFL, O_NONBLOCK);

  std::vector<std::string> arguments_with_name{name};
  arguments_with_name.insert(arguments_with_name.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = environment_with(environment);
  const std::vector<char*> argv = null_terminated(arguments_with_name);
  const std::vector<char*> envp = null_terminated(variables);
  const FileActions actions(writer.get());
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, program.c_str(), actions.get(), nullptr, argv.data(), envp.data());
  if (error != 0) {
    return unavailable(fmt::format("cannot start '{}': {}", program, std::strerror(error)));
  }
  UniqueFd pidfd(pidfd_open(pid));
  ChildProcess child(pid, std::move(pidfd), std::move(reader));
  if (!child.pidfd_) return errno_status(Code::unavailable, fmt::format("cannot watch process {}", pid));
  return child;
}

ChildProcess::ChildProcess(int pid, UniqueFd pidfd, UniqueFd errors)
    : pid_(pid), pidfd_(std::move(pidfd)), errors_(std::move(errors)) {}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::move(other.pidfd_)),
      errors_(std::move(other.errors_)),
      partial_(std::move(other.partial_)),
      last_lines_(std::move(other.last_lines_)) {}

ChildProcess::~ChildProcess() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void ChildProcess::signal(int number) const {
  if (pid_ >= 0) ::kill(pid_, number);
}

void ChildProcess::pass_line_on(std::string_view line) {
  write_all(STDERR_FILENO, fmt::format("{}\n", line));
  last_lines_.emplace_back(line);
  if (last_lines_.size() > kLastLines) last_lines_.pop_front();
}

void ChildProcess::pass_errors_on() {
  char buffer[4096];
  while (errors_) {
    const ssize_t got = ::read(errors_.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      errors_.reset();
      break;
    }
    partial_.append(buffer, static_cast<size_t>(got));
    size_t begin = 0;
    for (size_t end = 0; (end = partial_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      pass_line_on(std::string_view(partial_).substr(begin, end - begin));
    }
    partial_.erase(0, begin);
    if (partial_.size() > kLongestLine) pass_line_on(std::exchange(partial_, {}));
  }
  if (!partial_.empty()) pass_line_on(std::exchange(partial_, {}));
}

std::optional<Exit> ChildProcess::reap() {
  if (pid_ < 0) return std::nullopt;
  siginfo_t info{};
  if (::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) {
    return std::nullopt;
  }
  pid_ = -1;
  pass_errors_on();
  // A process that it started may hold the pipe open: what comes later is not its own.
  errors_.reset();
  if (!partial_.empty()) pass_line_on(std::exchange(partial_, {}));
  return Exit{.by_signal = info.si_code != CLD_EXITED, .value = info.si_status};
}

}  // namespace sluice::cluster

#include "process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

extern char** environ;

namespace sluice::e2e {

Process::Process(std::vector<std::string> arguments) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::vector<char*> raw;
  for (std::string& argument : arguments) raw.push_back(argument.data());
  raw.push_back(nullptr);
  if (posix_spawn(&pid_, raw[0], &actions, nullptr, raw.data(), environ) != 0) pid_ = -1;
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  pipe_ = ends[0];
  reader_ = std::thread([this] {
    char buffer[4096];
    ssize_t count = 0;
    while ((count = read(pipe_, buffer, sizeof buffer)) > 0) {
      std::lock_guard lock(mutex_);
      output_.append(buffer, static_cast<size_t>(count));
    }
  });
}

Process::~Process() {
  if (pid_ > 0 && status_ < 0) {
    const std::vector<ChildInfo> children = children_of(pid_);
    signal(SIGTERM);
    if (wait(seconds(15)) < 0) {
      signal(SIGKILL);
      for (const ChildInfo& child : children) kill(child.pid, SIGKILL);
      wait(seconds(5));
    }
  }
  if (reader_.joinable()) reader_.join();
  if (pipe_ >= 0) close(pipe_);
}

void Process::signal(int number) const {
  if (pid_ > 0) kill(pid_, number);
}

int Process::wait(Nanos span) {
  if (status_ >= 0) return status_;
  const Deadline deadline = Deadline::after(span);
  while (true) {
    int raw = 0;
    if (waitpid(pid_, &raw, WNOHANG) == pid_) {
      status_ = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
      return status_;
    }
    if (deadline.expired()) return -1;
    usleep(2000);
  }
}

std::string Process::output() {
  std::lock_guard lock(mutex_);
  return output_;
}

std::vector<ChildInfo> children_of(pid_t pid) {
  std::vector<ChildInfo> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream stat(entry.path() / "stat");
    std::string line;
    std::getline(stat, line);
    const size_t after_name = line.rfind(')');
    if (after_name == std::string::npos) continue;
    std::istringstream fields(line.substr(after_name + 1));
    char state = 0;
    pid_t parent = 0;
    fields >> state >> parent;
    if (parent != pid || state == 'Z') continue;
    std::ifstream command(entry.path() / "cmdline", std::ios::binary);
    ChildInfo child{static_cast<pid_t>(std::stol(name)), {}};
    std::string argument;
    while (std::getline(command, argument, '\0')) child.arguments.push_back(argument);
    found.push_back(std::move(child));
  }
  return found;
}

pid_t rank_process(pid_t supervisor, int rank) {
  for (const ChildInfo& child : children_of(supervisor)) {
    const std::vector<std::string>& arguments = child.arguments;
    if (arguments.size() < 2 || arguments[1] != "rank") continue;
    for (size_t i = 2; i + 1 < arguments.size(); ++i) {
      if (arguments[i] == "--rank" && arguments[i + 1] == std::to_string(rank)) return child.pid;
    }
  }
  return 0;
}

bool alive(pid_t pid) { return kill(pid, 0) == 0; }

Finished run(std::vector<std::string> arguments, Nanos limit) {
  Process process(std::move(arguments));
  const int status = process.wait(limit);
  if (status < 0) {
    ADD_FAILURE() << "still running after " << limit / seconds(1) << " s; so far it said:\n"
                  << process.output();
    process.signal(SIGKILL);
    process.wait(seconds(5));
  }
  // The reader sees the end of the pipe just after the process has ended.
  usleep(20'000);
  return {status, process.output()};
}

std::string sluice_program() { return SLUICE_PROGRAM; }
std::string demo_model() { return SLUICE_SOURCE_DIR "/models/demo"; }

std::string shared_folder() {
  const char* given = std::getenv("SLUICE_SHARED");
  const std::string folder = given != nullptr ? given : SLUICE_SOURCE_DIR "/../shared";
  return std::filesystem::exists(folder + "/oracle") ? folder : "";
}

}  // namespace sluice::e2e

#include "bench/team.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>

#include "base/sockets.h"

extern char** environ;

namespace sluice::bench {
namespace {

constexpr size_t kMostAnswer = 256 << 20;
constexpr Nanos kFarewell = seconds(10);

Result<int> spawn(const std::string& program, const std::vector<std::string>& arguments, bool by_path) {
  std::vector<std::string> copies{program};
  copies.insert(copies.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : copies) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  // What a rank has to say goes to the log; standard output is the command's.
  ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t pid = -1;
  const int error = by_path ? ::posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), environ)
                            : ::posix_spawnp(&pid, program.c_str(), &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    errno = error;
    return errno_status(Code::unavailable, fmt::format("cannot start {}", program));
  }
  return pid;
}

// Waits a moment for it to go by itself, then ends it.
void reap(int pid) {
  const Deadline deadline = Deadline::after(kFarewell);
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (deadline.expired()) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, &status, 0);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

Result<std::unique_ptr<ControlSocket>> ControlSocket::create() {
  std::string pattern = (std::filesystem::temp_directory_path() / "sluice-bench-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) return errno_status(Code::unavailable, "cannot make " + pattern);
  std::unique_ptr<ControlSocket> socket(new ControlSocket);
  socket->directory_ = pattern;
  SLUICE_ASSIGN_OR_RETURN(socket->listener_, listen_unix(socket->path()));
  return socket;
}

ControlSocket::~ControlSocket() {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

Team::~Team() {
  for (const UniqueFd& control : controls_) {
    if (control) (void)send_frame(control.get(), "end", Deadline::after(milliseconds(100)));
  }
  controls_.clear();  // whoever still waits for orders sees that there will be none
  for (std::thread& thread : threads_) thread.join();
  for (const int pid : processes_) {
    if (pid > 0) reap(pid);
  }
}

Status Team::start_processes(const std::string& program,
                             const std::function<std::vector<std::string>(int rank)>& arguments) {
  for (int rank = first_; rank < first_ + ranks_; ++rank) {
    SLUICE_ASSIGN_OR_RETURN(const int pid, spawn(program, arguments(rank), true));
    processes_.push_back(pid);
  }
  return {};
}

Status Team::start_launcher(const std::vector<std::string>& command) {
  SLUICE_ASSIGN_OR_RETURN(const int pid, spawn(command.front(), {command.begin() + 1, command.end()}, false));
  processes_.push_back(pid);
  return {};
}

void Team::start_threads(const std::function<void(int rank)>& body) {
  for (int rank = first_; rank < first_ + ranks_; ++rank) threads_.emplace_back([body, rank] { body(rank); });
}

// "killed by signal 9", once the process has gone; empty while it runs or where there is none.
std::string Team::how_it_went(size_t index) {
  const bool launcher = processes_.size() == 1 && ranks_ > 1;
  if (processes_.empty()) return {};
  int& pid = processes_[launcher ? 0 : index];
  int status = 0;
  const Deadline deadline = Deadline::after(seconds(1));
  while (pid > 0 && !deadline.expired()) {
    if (::waitpid(pid, &status, WNOHANG) != pid) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      continue;
    }
    pid = 0;
    if (WIFSIGNALED(status)) return fmt::format("killed by signal {}", WTERMSIG(status));
    return fmt::format("exited with status {}", WEXITSTATUS(status));
  }
  return {};
}

Status Team::fault(size_t index, const Status& status) {
  const std::string went = status.code() == Code::unavailable ? how_it_went(index) : std::string();
  return Status(status.code(), went.empty() ? status.message() : went)
      .with_context(fmt::format("rank {}{}", first_ + static_cast<int>(index),
                                side_ == "exchange" ? "" : fmt::format(" ({})", side_)));
}

Status Team::assemble(const ControlSocket& socket, const std::string& settings, Deadline deadline) {
  controls_.resize(static_cast<size_t>(ranks_));
  for (int i = 0; i < ranks_; ++i) {
    auto control = accept_connection(socket.listener(), deadline);
    for (size_t process = 0; !control.ok() && process < processes_.size(); ++process) {
      if (const std::string went = how_it_went(process); !went.empty()) {
        return unavailable(fmt::format("a process of {} {} before it was ready", side_, went));
      }
    }
    if (!control.ok())
      return control.status().with_context(fmt::format("waiting for the ranks of {}", side_));
    SLUICE_ASSIGN_OR_RETURN(const auto text, receive_frame(control->get(), 1 << 16, deadline));
    const auto hello = nlohmann::json::parse(text, nullptr, false);
    const int rank = hello.is_object() ? hello.value("rank", -1) : -1;
    if (rank < first_ || rank >= first_ + ranks_ || controls_[static_cast<size_t>(rank - first_)]) {
      return data_loss(fmt::format("an unexpected rank {} of {} came", rank, side_));
    }
    controls_[static_cast<size_t>(rank - first_)] = std::move(*control);
  }
  for (size_t i = 0; i < controls_.size(); ++i) {
    const Status sent = send_frame(controls_[i].get(), settings, deadline);
    if (!sent.ok()) return fault(i, sent);
  }
  return {};
}

std::vector<Result<nlohmann::json>> Team::collect_each(Deadline deadline) {
  std::vector<Result<nlohmann::json>> answers;
  for (size_t i = 0; i < controls_.size(); ++i) {
    const auto text = receive_frame(controls_[i].get(), kMostAnswer, deadline);
    if (!text.ok()) {
      answers.emplace_back(fault(i, text.status()));
      continue;
    }
    auto json = nlohmann::json::parse(*text, nullptr, false);
    if (!json.is_object()) {
      answers.emplace_back(fault(i, data_loss("its answer is not a JSON object")));
    } else if (json.contains("error")) {
      answers.emplace_back(fault(i, Status(Code::internal, json["error"].get<std::string>())));
    } else {
      answers.emplace_back(std::move(json));
    }
  }
  return answers;
}

Result<std::vector<nlohmann::json>> Team::collect(Deadline deadline) {
  std::vector<nlohmann::json> answers;
  // Read in the order in which they come, so that the first to fail is the one that is named.
  answers.resize(controls_.size());
  std::vector<bool> done(controls_.size());
  for (size_t left = controls_.size(); left > 0;) {
    std::vector<pollfd> entries;
    for (size_t i = 0; i < controls_.size(); ++i) {
      entries.push_back({done[i] ? -1 : controls_[i].get(), POLLIN, 0});
    }
    const Nanos patience = std::max<Nanos>(0, deadline.remaining());
    if (::poll(entries.data(), entries.size(), static_cast<int>(patience / milliseconds(1)) + 1) == 0) {
      std::string missing;
      for (size_t i = 0; i < done.size(); ++i) {
        if (!done[i])
          missing += fmt::format("{}{}", missing.empty() ? "" : ", ", first_ + static_cast<int>(i));
      }
      return Status(Code::deadline_exceeded, fmt::format("no answer from rank {} of {}", missing, side_));
    }
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].revents == 0) continue;
      const auto text = receive_frame(controls_[i].get(), kMostAnswer, deadline);
      if (!text.ok()) return fault(i, text.status());
      answers[i] = nlohmann::json::parse(*text, nullptr, false);
      if (!answers[i].is_object()) return fault(i, data_loss("its answer is not a JSON object"));
      if (answers[i].contains("error")) {
        return fault(i, Status(Code::internal, answers[i]["error"].get<std::string>()));
      }
      done[i] = true;
      --left;
    }
  }
  return answers;
}

Result<std::vector<nlohmann::json>> Team::order(const std::string& order, Deadline deadline) {
  for (size_t i = 0; i < controls_.size(); ++i) {
    const Status sent = send_frame(controls_[i].get(), order, deadline);
    if (!sent.ok()) return fault(i, sent);
  }
  return collect(deadline);
}

Result<std::vector<std::vector<Sample>>> Team::block(const std::string& contestant, int repetitions,
                                                     Deadline deadline) {
  SLUICE_ASSIGN_OR_RETURN(const auto answers,
                          order(fmt::format("block {} {}", contestant, repetitions), deadline));
  std::vector<std::vector<Sample>> samples;
  for (const nlohmann::json& answer : answers) {
    std::vector<Sample> list;
    for (const auto& sample : answer.at("samples")) {
      list.push_back({sample.at(0), sample.at(1), sample.at(2), sample.at(3)});
    }
    samples.push_back(std::move(list));
  }
  return samples;
}

}  // namespace sluice::bench

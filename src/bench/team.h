// The ranks of one case as the command sees them: started as processes (or threads), given orders, asked for
// answers, and gone when this is destroyed. A rank that dies is an error that names it and how it died.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "bench/contestant.h"

namespace sluice::bench {

// A private directory for one socket.
class ControlSocket {
 public:
  static Result<std::unique_ptr<ControlSocket>> create();
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  std::string path() const { return directory_ + "/control"; }
  const UniqueFd& listener() const { return listener_; }

 private:
  ControlSocket() = default;
  std::string directory_;
  UniqueFd listener_;
};

class Team {
 public:
  // Ranks first_rank ... first_rank + ranks - 1.
  Team(std::string side, int first_rank, int ranks)
      : side_(std::move(side)), first_(first_rank), ranks_(ranks) {}
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // One process each; `arguments(rank)` after the program's name.
  Status start_processes(const std::string& program,
                         const std::function<std::vector<std::string>(int rank)>& arguments);
  // One process that starts all ranks (mpirun); what it prints is kept for errors.
  Status start_launcher(const std::vector<std::string>& command);
  void start_threads(const std::function<void(int rank)>& body);

  // Collects the ranks at the socket, and gives each its settings.
  Status assemble(const ControlSocket& socket, const std::string& settings, Deadline deadline);

  // What each rank answers; an error of any is the first's, with its rank.
  Result<std::vector<nlohmann::json>> collect(Deadline deadline);
  Result<std::vector<nlohmann::json>> order(const std::string& order, Deadline deadline);
  // By rank, by repetition.
  Result<std::vector<std::vector<Sample>>> block(const std::string& contestant, int repetitions,
                                                 Deadline deadline);

  // The process of a rank; for tests and faults.
  int pid(int rank) const { return processes_[static_cast<size_t>(rank - first_)]; }
  // Each rank's own answer or the reason why there is none. Does not stop at the first error.
  std::vector<Result<nlohmann::json>> collect_each(Deadline deadline);

 private:
  std::string how_it_went(size_t index);
  Status fault(size_t index, const Status& status);

  const std::string side_;
  const int first_;
  const int ranks_;
  std::vector<int> processes_;  // by rank; one for a launcher
  std::vector<std::thread> threads_;
  std::vector<UniqueFd> controls_;  // by rank
};

}  // namespace sluice::bench

// The private directory (0700) in which the processes of one cluster keep their sockets.
#pragma once

#include <string>

#include "base/status.h"

namespace sluice::cluster {

class RunDirectory {
 public:
  // In $XDG_RUNTIME_DIR, else $TMPDIR, else /tmp. Refuses a place whose name is too long for a socket.
  static Result<RunDirectory> create();
  // Removes it and what is in it.
  ~RunDirectory();
  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit RunDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// gRPC addresses of the sockets in a run directory. A rank's holds its process id: a restarted rank is never
// taken for the one before.
std::string coordinator_address(const std::string& directory);
std::string rank_address(const std::string& directory, int rank, int pid);

// Removes the socket of a process that was killed.
void remove_socket(const std::string& address);

// For a process whose supervisor is gone and cannot tidy up: removes the dead coordinator's socket, the
// rank's own, and the directory when it was the last.
void abandon_run_directory(const std::string& directory, const std::string& own_address);

}  // namespace sluice::cluster

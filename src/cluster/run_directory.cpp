#include "cluster/run_directory.h"

#include <fmt/format.h>
#include <sys/un.h>

#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

namespace sluice::cluster {
namespace {

constexpr char kScheme[] = "unix:";
constexpr size_t kLongestName = sizeof("/rank-99999-4194304.sock") - 1;

std::string parent_directory() {
  for (const char* variable : {"XDG_RUNTIME_DIR", "TMPDIR"}) {
    const char* value = std::getenv(variable);
    std::error_code error;
    if (value != nullptr && *value == '/' && std::filesystem::is_directory(value, error)) return value;
  }
  return "/tmp";
}

}  // namespace

Result<RunDirectory> RunDirectory::create() {
  std::string path = parent_directory() + "/sluice-XXXXXX";
  if (path.size() + kLongestName >= sizeof(sockaddr_un::sun_path)) {
    return invalid_argument(
        fmt::format("'{}' is too long for sockets, whose names may have {} bytes: set TMPDIR "
                    "to a shorter directory",
                    path, sizeof(sockaddr_un::sun_path) - 1));
  }
  if (::mkdtemp(path.data()) == nullptr) {
    return errno_status(Code::unavailable, fmt::format("cannot make a directory for sockets '{}'", path));
  }
  return RunDirectory(std::move(path));
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}

RunDirectory::~RunDirectory() {
  std::error_code error;
  if (!path_.empty()) std::filesystem::remove_all(path_, error);
}

std::string coordinator_address(const std::string& directory) {
  return kScheme + directory + "/coordinator.sock";
}

std::string rank_address(const std::string& directory, int rank, int pid) {
  return fmt::format("{}{}/rank-{}-{}.sock", kScheme, directory, rank, pid);
}

void remove_socket(const std::string& address) {
  std::error_code error;
  std::filesystem::remove(address.substr(sizeof(kScheme) - 1), error);
}

void abandon_run_directory(const std::string& directory, const std::string& own_address) {
  remove_socket(coordinator_address(directory));
  if (!own_address.empty()) remove_socket(own_address);
  std::error_code error;
  std::filesystem::remove(directory, error);  // only an empty one
}

}  // namespace sluice::cluster

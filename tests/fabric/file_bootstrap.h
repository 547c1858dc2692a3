// Bootstrap between processes of one machine for tests: a folder with one file for each (call, rank).
#pragma once

#include <fmt/core.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "fabric/bootstrap.h"

namespace sluice::fabric {

class FileBootstrap final : public Bootstrap {
 public:
  FileBootstrap(std::filesystem::path folder, int rank, int ranks)
      : folder_(std::move(folder)), rank_(rank), ranks_(ranks) {}

  Result<std::vector<std::string>> all_gather(std::string_view name, std::string mine,
                                              Deadline deadline) override {
    const int call = calls_++;
    const auto file = [&](int rank) { return folder_ / fmt::format("{}.{}", call, rank); };
    const auto temporary = folder_ / fmt::format("writing.{}", rank_);
    std::ofstream(temporary, std::ios::binary) << mine;
    std::filesystem::rename(temporary, file(rank_));
    std::vector<std::string> values;
    for (int rank = 0; rank < ranks_; ++rank) {
      while (!std::filesystem::exists(file(rank))) {
        if (deadline.expired()) {
          return Status(Code::deadline_exceeded, fmt::format("rank {} is missing from '{}'", rank, name));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      std::ostringstream text;
      text << std::ifstream(file(rank), std::ios::binary).rdbuf();
      values.push_back(text.str());
    }
    return values;
  }

 private:
  std::filesystem::path folder_;
  int rank_;
  int ranks_;
  int calls_ = 0;
};

}  // namespace sluice::fabric

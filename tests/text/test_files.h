// Where the tests of this folder find their data, and a folder to write to.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace sluice::text {

inline std::string data_path(const std::string& name) {
  return std::string(SLUICE_SOURCE_DIR) + "/tests/data/text/" + name;
}

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// One JSON value a line.
inline std::vector<nlohmann::ordered_json> read_lines(const std::string& path) {
  std::vector<nlohmann::ordered_json> values;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) values.push_back(nlohmann::ordered_json::parse(line));
  return values;
}

// The demo model's folder: in the repository, else beside it.
inline std::optional<std::string> demo_model() {
  std::vector<std::string> places = {std::string(SLUICE_SOURCE_DIR) + "/models/demo"};
  if (const char* shared = std::getenv("SLUICE_SHARED"))
    places.push_back(std::string(shared) + "/demo-model");
  places.push_back(std::string(SLUICE_SOURCE_DIR) + "/../shared/demo-model");
  for (const std::string& place : places) {
    if (std::filesystem::exists(place + "/tokenizer.json")) return place;
  }
  return std::nullopt;
}

// A folder that is removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "sluice-text-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << text;
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

}  // namespace sluice::text

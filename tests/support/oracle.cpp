#include "support/oracle.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace sluice::test {

std::optional<std::string> oracle_directory(const std::string& name) {
  const std::string source = SLUICE_SOURCE_DIR;
  const char* shared = std::getenv("SLUICE_SHARED");
  for (const std::string& root :
       {source + "/tests/data", shared != nullptr ? std::string(shared) : "", source + "/../shared"}) {
    std::string directory = root + "/oracle/" + name;
    if (!root.empty() && std::filesystem::exists(directory + "/reference.json")) return directory;
  }
  return std::nullopt;
}

std::string demo_directory() { return std::string(SLUICE_SOURCE_DIR) + "/models/demo"; }

std::vector<OracleCase> read_oracle(const std::string& directory) {
  std::ifstream file(directory + "/reference.json");
  if (!file) throw std::runtime_error("cannot read " + directory + "/reference.json");
  std::vector<OracleCase> cases;
  for (const nlohmann::json& entry : nlohmann::json::parse(file)) {
    OracleCase made;
    made.input_ids = entry.at("input_ids").get<std::vector<int32_t>>();
    made.greedy = entry.at("greedy").get<std::vector<int32_t>>();
    if (entry.contains("last_logits")) made.last_logits = entry["last_logits"].get<std::vector<float>>();
    if (entry.contains("last_top20"))
      made.top = entry["last_top20"].get<std::vector<std::pair<int32_t, float>>>();
    if (entry.contains("greedy_margin")) made.margins = entry["greedy_margin"].get<std::vector<float>>();
    cases.push_back(std::move(made));
  }
  return cases;
}

double relative_error(std::span<const float> logits, const OracleCase& expected) {
  double difference = 0;
  double size = 0;
  const auto count = [&](float found, float wanted) {
    difference += (double{found} - wanted) * (double{found} - wanted);
    size += double{wanted} * wanted;
  };
  for (size_t i = 0; i < expected.last_logits.size(); ++i) count(logits[i], expected.last_logits[i]);
  for (const auto& [token, logit] : expected.top) count(logits[static_cast<size_t>(token)], logit);
  return std::sqrt(difference / size);
}

}  // namespace sluice::test

// What Hugging Face transformers computed for a checkpoint, in float32: reference.json beside it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sluice::test {

struct OracleCase {
  std::vector<int32_t> input_ids;
  std::vector<int32_t> greedy;                 // the continuation
  std::vector<float> last_logits;              // (vocab) of the last prompt position, or empty
  std::vector<std::pair<int32_t, float>> top;  // the largest of them, where the file holds only those
  std::vector<float> margins;  // of each greedy token over the second best; empty where unknown
};

// The checkpoint's directory: in the repository, or in $SLUICE_SHARED, or in ../shared. Nullopt when nowhere.
std::optional<std::string> oracle_directory(const std::string& name);
// The demo model's, which the repository holds.
std::string demo_directory();

// Ends the program when the file cannot be read: a test's data is the test's.
std::vector<OracleCase> read_oracle(const std::string& directory);

// |found - expected| / |expected|, l2, over what the case holds.
double relative_error(std::span<const float> logits, const OracleCase& expected);

}  // namespace sluice::test

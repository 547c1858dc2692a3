#include "engine/fingerprint.h"

#include <fmt/core.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "base/mapping.h"

namespace sluice::engine {
namespace {

constexpr size_t kSamples = 64;
constexpr size_t kSampleBytes = 1024;
constexpr size_t kLengthBytes = 8;  // of a safetensors header's length

class Hash {
 public:
  Hash() { XXH3_64bits_reset(state_.get()); }
  void add(const void* data, size_t bytes) { XXH3_64bits_update(state_.get(), data, bytes); }
  void add(std::string_view text) { add(text.data(), text.size()); }
  void add(uint64_t value) { add(&value, sizeof(value)); }
  uint64_t digest() const { return XXH3_64bits_digest(state_.get()); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_{XXH3_createState()};
};

// The header whole, then samples spread over the data: two trainings of one shape differ in every tensor.
void add_tensors(Hash& hash, const Mapping& file) {
  uint64_t header = 0;
  if (file.size() >= kLengthBytes) std::memcpy(&header, file.data(), kLengthBytes);
  const size_t head = kLengthBytes + std::min<uint64_t>(header, file.size());
  hash.add(file.data(), std::min(head, file.size()));
  for (size_t i = 0; i < kSamples; ++i) {
    const size_t at = file.size() / kSamples * i;
    hash.add(file.data() + at, std::min(kSampleBytes, file.size() - at));
  }
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

Result<std::string> checkpoint_digest(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  if (error) return not_found(fmt::format("{}: {}", directory, error.message()));
  std::sort(files.begin(), files.end());
  Hash hash;
  SLUICE_ASSIGN_OR_RETURN(const Mapping config,
                          Mapping::read_file((fs::path(directory) / "config.json").string()));
  hash.add(config.data(), config.size());
  size_t bytes = 0;
  for (const fs::path& path : files) {
    SLUICE_ASSIGN_OR_RETURN(const Mapping file, Mapping::read_file(path.string()));
    hash.add(path.filename().string());
    hash.add(file.size());
    add_tensors(hash, file);
    bytes += file.size();
  }
  return fmt::format("{} bytes in {} {}, {:016x}", bytes, files.size(), files.size() == 1 ? "file" : "files",
                     hash.digest());
}

Status compare_fingerprints(std::span<const std::string> by_rank) {
  const auto expected = lines_of(by_rank[0]);
  for (size_t rank = 1; rank < by_rank.size(); ++rank) {
    const auto found = lines_of(by_rank[rank]);
    for (size_t i = 0; i < std::max(expected.size(), found.size()); ++i) {
      const std::string_view a = i < expected.size() ? expected[i] : "nothing";
      const std::string_view b = i < found.size() ? found[i] : "nothing";
      if (a == b) continue;
      return invalid_argument(fmt::format(
          "ranks 0 and {} differ: rank 0 has '{}', rank {} has '{}'; all ranks of a group must be equal here",
          rank, a, rank, b));
    }
  }
  return {};
}

}  // namespace sluice::engine

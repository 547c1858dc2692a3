// The header of one safetensors file: which tensors it holds, of what type and shape, and where. Every
// length, offset and size is checked against the file before it is used, so what comes out can be read
// blindly. The format (safetensors README): 8-byte little-endian header length, JSON header, data; offsets
// count from the start of the data; tensors do not overlap and leave no hole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::checkpoint {

struct StoredTensor {
  std::string dtype;  // as the format spells it: "BF16". One of the format's types, not always one of ours
  std::vector<int64_t> shape;
  size_t begin = 0;  // in the file
  size_t bytes = 0;
};

using StoredTensors = std::map<std::string, StoredTensor, std::less<>>;

// `file`: the whole file. `name` says in errors which file it was.
Result<StoredTensors> parse_safetensors(std::span<const std::byte> file, std::string_view name);

// "[128, 64]"; "[]" is a scalar's.
std::string shape_text(std::span<const int64_t> shape);

}  // namespace sluice::checkpoint

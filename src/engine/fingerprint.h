// What must agree between the ranks of an EP group, as lines of "field: value", so that a difference can be
// named.
#pragma once

#include <span>
#include <string>

#include "base/status.h"

namespace sluice::engine {

// A hash of a checkpoint that costs a few pages: config.json, and of each .safetensors file its name, its
// size, its header and samples of its data. "17.7 MiB in 1 file, 0123456789abcdef".
Result<std::string> checkpoint_digest(const std::string& directory);

// Ok when all are equal; otherwise the first difference, naming both ranks and both values.
Status compare_fingerprints(std::span<const std::string> by_rank);

}  // namespace sluice::engine

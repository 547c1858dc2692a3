#include "engine/block_pool.h"

namespace sluice::engine {

BlockPool::BlockPool(int blocks, int block_size) : total_(blocks), block_size_(block_size) {
  free_.reserve(static_cast<size_t>(blocks));
  for (int32_t block = blocks - 1; block >= 0; --block) free_.push_back(block);
}

bool BlockPool::extend(std::vector<int32_t>& holder, int64_t positions) {
  const int64_t missing = blocks_for(positions) - static_cast<int64_t>(holder.size());
  if (missing > static_cast<int64_t>(free_.size())) return false;
  for (int64_t i = 0; i < missing; ++i) {
    holder.push_back(free_.back());
    free_.pop_back();
  }
  return true;
}

void BlockPool::release(std::vector<int32_t>& holder) {
  while (!holder.empty()) {
    free_.push_back(holder.back());
    holder.pop_back();
  }
}

}  // namespace sluice::engine

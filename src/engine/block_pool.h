// Who holds which block of the paged KV cache. The last block of the cache belongs to the canary for ever and
// is neither given out nor counted.
//
// Threads: the engine's only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::engine {

class BlockPool {
 public:
  // `blocks` for requests, of block_size positions each; the cache must have one more.
  BlockPool(int blocks, int block_size);

  // Gives `holder` blocks until it can hold `positions`; all of them or, when too few are free, none: false.
  bool extend(std::vector<int32_t>& holder, int64_t positions);
  // Takes all of the holder's blocks back.
  void release(std::vector<int32_t>& holder);

  int64_t blocks_for(int64_t positions) const { return (positions + block_size_ - 1) / block_size_; }
  int total() const { return total_; }
  int free() const { return static_cast<int>(free_.size()); }
  int32_t canary_block() const { return total_; }
  int block_size() const { return block_size_; }

 private:
  int total_;
  int block_size_;
  std::vector<int32_t> free_;  // a stack: what was freed last is still in the processor's caches
};

}  // namespace sluice::engine

// Which tokens of which requests go into a step. Decodes come first, then prefill in chunks, both oldest
// first, within the step's token budget. A request is admitted when blocks for its whole context and its next
// token are free, and holds the context's blocks from then on; each decode takes one more block when it
// crosses into it. When none is free the youngest running request gives all of its blocks up and waits again
// (its output stays; it will prefill prompt and output anew). So the oldest request always goes on, and every
// request ends.
//
// plan() reserves; only commit() moves a request forward. A plan that is never committed can be planned anew.
//
// Threads: the engine's only.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/block_pool.h"
#include "engine/request_state.h"

namespace sluice::engine {

// One request's part of a step: its next `queries` tokens.
struct Part {
  RequestState* request = nullptr;
  int64_t queries = 0;
  bool completes = false;  // the step reaches its last token, so the next one is sampled
};

class Scheduler {
 public:
  Scheduler(int max_num_seqs, BlockPool& blocks) : max_num_seqs_(max_num_seqs), blocks_(blocks) {}

  void add(std::unique_ptr<RequestState> request) { waiting_.push_back(std::move(request)); }
  // At most `budget` tokens. Empty when there is nothing to do.
  std::vector<Part> plan(int budget);
  // The keys and values of the parts are stored.
  static void commit(const std::vector<Part>& parts);
  // Takes a request out and frees its blocks; null for an id that is not here.
  std::unique_ptr<RequestState> remove(uint64_t id);
  std::vector<std::unique_ptr<RequestState>> remove_all();

  bool empty() const { return running_.empty() && waiting_.empty(); }
  // Whether there will be tokens after the step `parts`, unless requests end that need not.
  bool work_after(const std::vector<Part>& parts) const;
  int running() const { return static_cast<int>(running_.size()); }
  int waiting() const { return static_cast<int>(waiting_.size()); }

 private:
  bool reserve_decode(size_t index);
  void preempt_youngest();
  void admit();

  int max_num_seqs_;
  BlockPool& blocks_;
  std::vector<std::unique_ptr<RequestState>> running_;  // oldest first
  std::deque<std::unique_ptr<RequestState>> waiting_;   // oldest first, and all younger than the running
};

}  // namespace sluice::engine

// Where one rank's tokens go: for each destination the rows (tokens, once each) and the pairs (row, local
// expert) of its message. A pure function of the chosen experts and the placement, in token order, without
// atomics: the same routing gives the same slots.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exchange/exchange.h"
#include "exchange/message.h"

namespace sluice::exchange {

class Routing {
 public:
  // `placement` must outlive this.
  Routing(const Shape& shape, const Placement& placement);

  // experts: (tokens x top_k). Refuses an expert that does not exist or that a token names twice; the routing
  // is then as before.
  Status build(std::span<const int32_t> experts, int tokens);

  int tokens() const { return tokens_; }
  // The tokens that `rank` gets, ascending: row i of the message is token rows(rank)[i].
  std::span<const int32_t> rows(int rank) const;
  std::span<const PairEntry> pairs(int rank) const;
  // pairs(rank)[i] is choice choices(rank)[i] of all (tokens x top_k).
  std::span<const int32_t> choices(int rank) const;

  // Where choice `token * top_k + k` went.
  struct Slot {
    int32_t rank;
    int32_t row;   // index into rows(rank)
    int32_t pair;  // index into pairs(rank)
  };
  const Slot& slot(int64_t choice) const { return slots_[static_cast<size_t>(choice)]; }

 private:
  Status check(std::span<const int32_t> experts, int tokens) const;
  void count();

  const Placement& placement_;
  int ranks_;
  int top_k_;
  int tokens_ = 0;
  std::vector<Slot> slots_;           // (tokens x top_k)
  std::vector<int32_t> row_offsets_;  // (ranks + 1)
  std::vector<int32_t> pair_offsets_;
  std::vector<int32_t> last_token_;  // (ranks): the token that opened the rank's newest row
  std::vector<int32_t> rows_;
  std::vector<PairEntry> pairs_;
  std::vector<int32_t> choices_;
};

}  // namespace sluice::exchange

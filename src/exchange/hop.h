// Dispatch and combine within one group of ranks, on its fabric: all that a one-level exchange needs, and
// each of the two levels of a two-level one. Here lie the halves: what up to two exchanges under way work
// with.
//
// The four steps of an exchange (send rows, receive rows, send results, receive results) each go through the
// exchanges in order, so four counters say all that is under way:
//   finished <= answered <= received <= sent <= finished + 2.
// exchange.h proves that two halves are enough for that.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "exchange/exchange.h"
#include "exchange/inbound.h"
#include "exchange/peers.h"
#include "exchange/routing.h"

namespace sluice::exchange {

struct AlignedDelete {
  void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{kRowAlignment}); }
};
using AlignedBytes = std::unique_ptr<std::byte, AlignedDelete>;
// Null when there is no memory.
AlignedBytes allocate_aligned(size_t bytes);

// The rows of a dispatch: a matrix whose rows are brought to the wire type on the way, or rows that are in it
// already, padding included (forwarded ones).
struct RowSource {
  ConstMatrix matrix;
  std::span<const std::byte* const> wire;  // used unless empty
};

// What this rank answers: its experts' rows, or what the level behind it gives.
class Results {
 public:
  virtual ~Results() = default;
  // Exact mode: the float32 row of the source's pair.
  virtual const std::byte* pair_row(int source, size_t pair) const = 0;
  // Otherwise: writes what this rank adds to the source's row, in the returned type.
  virtual void sum_row(int source, int row, std::byte* to) const = 0;
};

class Hop {
 public:
  // `fabric` is null exactly when shape.ranks is 1.
  static Result<std::unique_ptr<Hop>> open(const Shape& shape, const Placement& placement, int rank,
                                           uint64_t epoch, std::unique_ptr<fabric::Fabric> fabric);

  // experts: (tokens x top_k). May wait for the provider to let go of older bytes.
  Status send_rows(int layer, const RowSource& rows, std::span<const int32_t> experts,
                   std::span<const float> weights, StepFlags flags, Deadline deadline);
  // Returns the OR of all ranks' flags.
  Result<StepFlags> receive_rows(Deadline deadline);
  Status send_results(const Results& results, Deadline deadline);
  Status receive_results(Deadline deadline);
  // Between receive_results() and finish(): what the group adds to a token, from the others' answers and
  // `own`. Exact mode has it choice by choice too, unreduced.
  void sum(int64_t token, const Results& own, void* out, DType out_type) const;
  const std::byte* choice_row(int64_t choice, const Results& own) const;
  // Done with the answers; their half is free.
  void finish() { ++finished_; }

  // One exchange under way.
  struct Passage {
    Passage(const Shape& shape, const Placement& placement, int rank, AlignedBytes own);

    int layer = -1;
    StepFlags flags;
    Routing routing;             // of what this rank sends
    std::vector<float> weights;  // (tokens x top_k)
    AlignedBytes own_rows;       // (round_tokens) in the wire type: what this rank sends to itself
    Inbound inbound;
    std::vector<const std::byte*> answers;  // by rank: the rows of its combine message
  };
  const Passage& passage(uint64_t seq) const { return passages_[seq % passages_.size()]; }

  uint64_t sent() const { return sent_; }
  uint64_t received() const { return received_; }
  uint64_t answered() const { return answered_; }
  uint64_t finished() const { return finished_; }
  bool full() const { return sent_ == finished_ + passages_.size(); }
  // Whether the next receive of this phase would find every rank's message.
  bool all_arrived(Phase phase);

  Peers& peers() { return peers_; }
  const Peers& peers() const { return peers_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return rank_; }

 private:
  Hop(const Shape& shape, const Placement& placement, int rank, uint64_t epoch,
      std::unique_ptr<fabric::Fabric> fabric, std::array<AlignedBytes, fabric::kHalves> own_rows,
      AlignedBytes own_sum);

  Passage& half(uint64_t seq) { return passages_[seq % passages_.size()]; }
  // In the order in which to send: each rank starts behind itself, so that not all send to the same one.
  int peer(int i) const { return (rank_ + i) % shape_.ranks; }

  Status send_rows_to(int peer, const Passage& passage, const RowSource& rows, Deadline deadline);
  DispatchHeader header_for(int peer, const Passage& passage) const;
  void write_rows(std::byte* to, std::span<const int32_t> tokens, const RowSource& rows) const;
  Status send_results_to(int peer, const Passage& passage, const Results& results, Deadline deadline);
  void pad_row(std::byte* row, DType type, size_t stride) const;
  size_t returned_rows(size_t rows, size_t pairs) const { return shape_.exact ? pairs : rows; }

  void sum_exact(int64_t token, const Results& own, void* out, DType out_type) const;
  void sum_reduced(int64_t token, const Results& own, void* out, DType out_type) const;

  const Shape shape_;
  const Placement placement_;
  const int rank_;
  const size_t stride_;           // of dispatched rows
  const size_t returned_stride_;  // of combined ones
  Peers peers_;
  std::array<Passage, fabric::kHalves> passages_;  // exchange seq is in passages_[seq & 1]
  AlignedBytes own_sum_;                           // one row
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
  uint64_t answered_ = 0;
  uint64_t finished_ = 0;
  // How many ranks' messages all_arrived() has seen of (phase)'s exchange.
  struct Seen {
    uint64_t seq = 0;
    int ranks = 0;
  };
  std::array<Seen, 2> seen_;
};

}  // namespace sluice::exchange

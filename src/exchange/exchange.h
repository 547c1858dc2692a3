// Expert-parallel dispatch and combine for one rank and one epoch.
//
// A dispatch sends every token row once to each rank that holds one of its chosen experts and returns what
// arrived here, grouped by local expert; a combine brings the experts' results back and sums them. Each
// exchange is one contiguous put per peer and direction, so decode is one network trip each way. Every rank
// sends to every rank in every exchange, if only an empty header.
//
// Both are split into sending and receiving, and two exchanges may be under way: the dispatch of exchange k+1
// may be sent before the combine of k has come back. Each of the four calls goes through the exchanges in
// order, and within one exchange they come in the order in which they are declared. exchange k+2 may be sent
// when combine_receive() of k has returned.
//
// Two halves are enough. Rank A overwrites its slab of dispatch seq-2 at B when it sends dispatch seq: A has
// returned from combine_receive seq-2 and so has received B's combine seq-2, which B sent after it had
// received A's dispatch seq-2 and had done with its rows. A overwrites its slab of combine seq-2 at B when it
// answers combine seq: A has received B's dispatch seq, which B sent after it had returned from
// combine_receive seq-2. No message is needed that is not already sent. Three under way would need three
// halves: dispatch seq sent before combine seq-2 came back may overwrite what B still reads. (spec/ checks
// it.)
//
// Slots come from prefix sums over the routing, in token order: the same routing gives the same bytes.
// Sums are float32 in fixed order. In exact mode every expert's row travels back unreduced, in float32, the
// source sums in top-k order, and dispatched rows are rounded to the wire type even between a rank and
// itself, so results are bit-equal for any placement. Otherwise a rank sums what its experts add to a row, in
// top-k order, and the source sums in rank order.
//
// Threads: one caller thread (the engine's), or several that take turns. end_epoch() from any.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/matrix.h"
#include "base/status.h"
#include "exchange/placement.h"
#include "fabric/fabric.h"

namespace sluice::exchange {

struct Shape {
  int ranks = 1;
  int experts = 0;
  int top_k = 0;                // 1 to 16
  int hidden = 0;               // elements of a row
  int max_tokens = 0;           // of one rank in one exchange; rounds.h does more
  DType wire = DType::float32;  // float32 or bfloat16; both ways, unless exact: then float32 back
  bool exact = false;
};

// The memory that a shape fixes, per rank.
struct Plan {
  size_t dispatch_slab_bytes = 0;  // payload of one source and half
  size_t combine_slab_bytes = 0;
  size_t window_bytes = 0;   // ranks x halves x both slabs; 0 for one rank
  size_t staging_bytes = 0;  // the same again where peers are on the network
  size_t own_bytes = 0;      // the rank's rows to itself
  std::string formula;       // with the numbers filled in, for people
};
// Refuses impossible shapes, naming field, value and what would be right.
Result<Plan> plan(const Shape& shape, const Placement& placement);

enum class Phase { dispatch, combine };
std::string_view phase_name(Phase phase);

// Who kept this rank waiting, and where.
struct Blame {
  int rank = -1;
  int layer = -1;
  Phase phase = Phase::dispatch;
  int parts_missing = 0;
  std::string reason;  // "late: nothing arrived within 5000 ms", "connection lost"
};

// What a rank tells all others in every dispatch header.
struct StepFlags {
  bool has_work = false;     // it will have tokens after this step
  bool wants_epoch = false;  // it asks for a change of epoch
  bool more = false;         // it has tokens for a further round of this layer (rounds.h)
};

// What arrived: one pair for each (row, local expert) that a row chose. Valid until the matching
// combine_send() begins.
struct Received {
  std::span<const int32_t> expert_offsets;  // (local experts + 1): pairs of local expert e are [e, e+1)
  std::span<const std::byte* const> rows;   // (pairs): the hidden row of each pair, in the wire type
  StepFlags any;                            // the OR over all ranks, this one included
  int64_t pairs() const { return static_cast<int64_t>(rows.size()); }
};

class Exchange {
 public:
  // `fabric` must have been opened with plan()'s slab sizes; null exactly when shape.ranks is 1.
  static Result<std::unique_ptr<Exchange>> open(const Shape& shape, const Placement& placement, int rank,
                                                uint64_t epoch, std::unique_ptr<fabric::Fabric> fabric);
  virtual ~Exchange() = default;

  // On error (deadline_exceeded, aborted, unavailable, data_loss) of any of the four the epoch is over for
  // this rank and blame() says who and where; an invalid_argument changes nothing.

  // x: (tokens, hidden), float32 or bfloat16; experts, weights: (tokens x top_k), an expert at most once a
  // token. Nothing of them is read after the return. `layer` is for blame only. Waits for no peer, except
  // that a network fabric may have to let go of an earlier exchange's bytes.
  virtual Status dispatch_send(int layer, ConstMatrix x, std::span<const int32_t> experts,
                               std::span<const float> weights, StepFlags flags, Deadline deadline) = 0;
  // Waits for every rank's dispatch of the oldest exchange that was sent and not yet received.
  virtual Result<Received> dispatch_receive(Deadline deadline) = 0;
  // pair_rows: (pairs, hidden) float32, one row for each pair of the oldest Received that is not yet
  // answered, unweighted. Read until the matching combine_receive() returns.
  virtual Status combine_send(ConstMatrix pair_rows, Deadline deadline) = 0;
  // Waits for every rank's combine. out: (tokens, hidden) float32, overwritten with the weighted sums.
  virtual Status combine_receive(Matrix out, Deadline deadline) = 0;
  // Whether dispatch_receive() or combine_receive() would return without waiting for a peer, by success or by
  // an error. Does what work can be done without waiting, so a scheduler polls this and blocks nowhere.
  virtual bool receivable(Phase phase) = 0;

  Result<Received> dispatch(int layer, ConstMatrix x, std::span<const int32_t> experts,
                            std::span<const float> weights, StepFlags flags, Deadline deadline) {
    SLUICE_RETURN_IF_ERROR(dispatch_send(layer, x, experts, weights, flags, deadline));
    return dispatch_receive(deadline);
  }
  Status combine(ConstMatrix pair_rows, Matrix out, Deadline deadline) {
    SLUICE_RETURN_IF_ERROR(combine_send(pair_rows, deadline));
    return combine_receive(out, deadline);
  }

  // Tells all peers that this rank enters `step` (counted from 1 within the epoch).
  virtual Status wake(uint64_t step) = 0;
  // With nothing under way: sleeps until some rank has woken for `step` or later, or has already dispatched
  // the next exchange: true.
  // False when the deadline passed or nudge() was called first. Error when the epoch ended.
  virtual Result<bool> wait_for_step(uint64_t step, Deadline deadline) = 0;
  // Ends a wait_for_step() early. From any thread.
  virtual void nudge() = 0;
  virtual void end_epoch() = 0;

  // As given to open(); but the wire type of a rank alone, if not exact, is float32: nothing travels.
  virtual const Shape& shape() const = 0;
  virtual uint64_t epoch() const = 0;
  virtual std::optional<Blame> blame() const = 0;
  // Empty peers when ranks is 1. From any thread.
  virtual fabric::Report report() const = 0;
};

}  // namespace sluice::exchange

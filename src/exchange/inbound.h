// What arrived in one exchange: checks every source's dispatch message before a byte of it is used, and
// groups the pairs by local expert. Indices are copied out of the message while they are checked, so a peer
// that rewrites its slab afterwards can change values but never an address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "exchange/exchange.h"
#include "exchange/message.h"
#include "exchange/routing.h"

namespace sluice::exchange {

class Inbound {
 public:
  // `shape` must outlive this.
  Inbound(const Shape& shape, int rank, int local_experts);

  void begin();
  // Sources in rank order. An error names the field, its value and its bound.
  Status add(int source, std::span<const std::byte> message, StepFlags& any);
  // The rank's own rows, which need no checks: row i lies at rows + i x row stride.
  void add_own(const Routing& routing, std::span<const float> weights, const std::byte* rows);
  // After the last source: fixes the order of pairs, by expert, then source, then the source's order.
  void group();

  std::span<const int32_t> expert_offsets() const { return offsets_; }
  std::span<const std::byte* const> rows() const { return grouped_; }

  struct Pair {
    int32_t row = 0;       // of its source
    int32_t expert = 0;    // local
    int32_t position = 0;  // among the grouped pairs
    float weight = 0.0F;   // not in exact mode
  };
  // In the order in which the source listed them.
  std::span<const Pair> pairs(int source) const;
  // Those of one of its rows.
  std::span<const Pair> pairs(int source, int row) const;
  int row_count(int source) const { return sources_[static_cast<size_t>(source)].row_count; }

 private:
  struct Source {
    int row_count = 0;
    size_t first_pair = 0;
    size_t pair_count = 0;
    size_t first_row = 0;  // among all sources' rows
    const std::byte* rows = nullptr;
  };

  Status check_header(const DispatchHeader& header, size_t bytes) const;
  Status read_pairs(const Source& from, const DispatchHeader& header, const std::byte* message);
  Status check_pair(const Source& from, const PairEntry& entry, int rows_before) const;
  void add_pair(const Source& from, const Pair& pair);
  Status check_counts(const std::byte* counts);

  const Shape& shape_;
  int own_;
  int local_experts_;
  size_t stride_;
  std::vector<Source> sources_;
  std::vector<Pair> pairs_;
  std::vector<size_t> row_ends_;  // by row of all sources: the end of its pairs
  std::vector<uint32_t> counts_;  // of the source being read, by local expert
  std::vector<int32_t> offsets_;
  std::vector<int32_t> cursors_;
  std::vector<const std::byte*> grouped_;
};

// The rows of a combine message, which must be exactly `expected`.
Result<const std::byte*> read_combine(const Shape& shape, std::span<const std::byte> message,
                                      size_t expected);

}  // namespace sluice::exchange

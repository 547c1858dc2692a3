#include "compute/cpu/experts.h"

#include <fmt/format.h>

#include <algorithm>

#include "compute/cpu/elementwise.h"
#include "compute/cpu/gemm.h"

namespace sluice::compute::cpu {
namespace {

Status check_shapes(std::span<const ExpertSource> sources, size_t index) {
  const ExpertSource& first = sources[0];
  const ExpertSource& expert = sources[index];
  const int64_t inter = first.gate.out;
  const int64_t hidden = first.gate.in;
  const auto check = [&](const WeightSource& source, const char* name, int64_t out, int64_t in) -> Status {
    if (source.out == out && source.in == in) return {};
    return invalid_argument(fmt::format("{} of local expert {} has shape ({}, {}); it must be ({}, {})", name,
                                        index, source.out, source.in, out, in));
  };
  SLUICE_RETURN_IF_ERROR(check(expert.gate, "gate", inter, hidden));
  SLUICE_RETURN_IF_ERROR(check(expert.up, "up", inter, hidden));
  return check(expert.down, "down", hidden, inter);
}

Result<PackedMatrix> pack_named(const WeightSource& source, const char* name, size_t index,
                                Workers& workers) {
  Result<PackedMatrix> packed = PackedMatrix::pack(source, workers);
  if (!packed.ok()) return packed.status().with_context(fmt::format("{} of local expert {}", name, index));
  return packed;
}

// A run of rows of one expert, and where its tiles begin among all pieces.
struct Group {
  int64_t expert;
  int64_t first;
  int64_t rows;
};

std::vector<Group> group_rows(std::span<const int32_t> offsets) {
  std::vector<Group> groups;
  for (size_t e = 0; e + 1 < offsets.size(); ++e) {
    const int64_t rows = offsets[e + 1] - offsets[e];
    if (rows > 0) groups.push_back({static_cast<int64_t>(e), offsets[e], rows});
  }
  // Long ones first, so that no thread is left alone with one at the end.
  std::stable_sort(groups.begin(), groups.end(),
                   [](const Group& a, const Group& b) { return a.rows > b.rows; });
  return groups;
}

// inner (rows, inter) = silu(x gate^T) * (x up^T), columns of one tile.
void gate_up_tile(const PackedExpert& expert, int64_t tile, const float* x, int64_t rows, DType inner_type,
                  float* inner) {
  alignas(kAlignment) float gate[kRowChunk * kTileOut];
  alignas(kAlignment) float up[kRowChunk * kTileOut];
  const int64_t x_stride = padded_stride(expert.gate.padded_in());
  const int64_t inner_stride = padded_stride(expert.down.padded_in());
  const int64_t column = tile * kTileOut;
  // Beyond `inter` gate and up are zero, and so is their product: it is down's padding.
  const int64_t columns = std::min(kTileOut, expert.down.padded_in() - column);
  for (int64_t row = 0; row < rows; row += kRowChunk) {
    const int64_t count = std::min(kRowChunk, rows - row);
    gemm_tile(expert.gate, tile, x + row * x_stride, x_stride, count, gate);
    gemm_tile(expert.up, tile, x + row * x_stride, x_stride, count, up);
    for (int64_t r = 0; r < count; ++r) {
      float* to = inner + (row + r) * inner_stride + column;
      silu_mul_row(gate + r * kTileOut, up + r * kTileOut, columns, to);
      round_row(to, columns, inner_type);
    }
  }
}

// out (rows, hidden) = inner down^T, columns of one tile.
void down_tile(const PackedExpert& expert, int64_t tile, const float* inner, int64_t first, int64_t rows,
               Matrix out) {
  alignas(kAlignment) float sums[kRowChunk * kTileOut];
  const int64_t stride = padded_stride(expert.down.padded_in());
  const int64_t column = tile * kTileOut;
  const int64_t columns = std::min(kTileOut, expert.down.out() - column);
  for (int64_t row = 0; row < rows; row += kRowChunk) {
    const int64_t count = std::min(kRowChunk, rows - row);
    gemm_tile(expert.down, tile, inner + row * stride, stride, count, sums);
    for (int64_t r = 0; r < count; ++r) {
      const float* from = sums + r * kTileOut;
      std::copy(from, from + columns, out.row<float>(first + row + r) + column);
    }
  }
}

}  // namespace

Result<std::unique_ptr<CpuExperts>> CpuExperts::prepare(std::span<const ExpertSource> sources,
                                                        Workers& workers) {
  auto experts = std::make_unique<CpuExperts>();
  experts->experts_.reserve(sources.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(check_shapes(sources, i));
    PackedExpert expert;
    SLUICE_ASSIGN_OR_RETURN(expert.gate, pack_named(sources[i].gate, "gate", i, workers));
    SLUICE_ASSIGN_OR_RETURN(expert.up, pack_named(sources[i].up, "up", i, workers));
    SLUICE_ASSIGN_OR_RETURN(expert.down, pack_named(sources[i].down, "down", i, workers));
    experts->experts_.push_back(std::move(expert));
  }
  return experts;
}

size_t CpuExperts::bytes() const {
  size_t total = 0;
  for (const PackedExpert& expert : experts_)
    total += expert.gate.bytes() + expert.up.bytes() + expert.down.bytes();
  return total;
}

void run_experts(const CpuExperts& experts, std::span<const int32_t> offsets,
                 std::span<const std::byte* const> rows, DType row_type, DType inner_type, Matrix out,
                 Workers& workers, ExpertScratch& scratch) {
  const std::vector<Group> groups = group_rows(offsets);
  if (groups.empty()) return;
  const auto pairs = static_cast<int64_t>(rows.size());
  const PackedExpert& first = experts.at(0);
  const int64_t x_stride = padded_stride(first.gate.padded_in());
  const int64_t inner_stride = padded_stride(first.down.padded_in());
  float* inputs = scratch.inputs.get(static_cast<size_t>(pairs * x_stride));
  float* inner = scratch.inner.get(static_cast<size_t>(pairs * inner_stride));

  workers.run(pairs, pairs * experts.hidden(), [&](int64_t p) {
    load_row(rows[static_cast<size_t>(p)], row_type, first.gate.in(), first.gate.padded_in(),
             inputs + p * x_stride);
  });

  const auto active = static_cast<int64_t>(groups.size());
  const int64_t work = pairs * experts.hidden() * experts.inter();
  const int64_t inter_tiles = first.gate.tiles();
  workers.run(active * inter_tiles, 2 * work, [&](int64_t piece) {
    const Group& group = groups[static_cast<size_t>(piece / inter_tiles)];
    gate_up_tile(experts.at(group.expert), piece % inter_tiles, inputs + group.first * x_stride, group.rows,
                 inner_type, inner + group.first * inner_stride);
  });

  const int64_t hidden_tiles = first.down.tiles();
  workers.run(active * hidden_tiles, work, [&](int64_t piece) {
    const Group& group = groups[static_cast<size_t>(piece / hidden_tiles)];
    down_tile(experts.at(group.expert), piece % hidden_tiles, inner + group.first * inner_stride, group.first,
              group.rows, out);
  });
}

}  // namespace sluice::compute::cpu

#include "exchange/inbound.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace sluice::exchange {
namespace {

template <class Found, class Right>
Status refuse(std::string_view field, Found found, Right right) {
  return data_loss(fmt::format("it sent {} {}; right is {}", field, found, right));
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

}  // namespace

Inbound::Inbound(const Shape& shape, int rank, int local_experts)
    : shape_(shape),
      own_(rank),
      local_experts_(local_experts),
      stride_(row_stride(shape)),
      sources_(static_cast<size_t>(shape.ranks)),
      counts_(static_cast<size_t>(local_experts)),
      offsets_(static_cast<size_t>(local_experts) + 1),
      cursors_(static_cast<size_t>(local_experts)) {}

std::span<const Inbound::Pair> Inbound::pairs(int source) const {
  const Source& from = sources_[static_cast<size_t>(source)];
  return std::span(pairs_).subspan(from.first_pair, from.pair_count);
}

std::span<const Inbound::Pair> Inbound::pairs(int source, int row) const {
  const Source& from = sources_[static_cast<size_t>(source)];
  const size_t at = from.first_row + static_cast<size_t>(row);
  const size_t begin = row == 0 ? from.first_pair : row_ends_[at - 1];
  return std::span(pairs_).subspan(begin, row_ends_[at] - begin);
}

void Inbound::begin() {
  std::fill(sources_.begin(), sources_.end(), Source{});
  pairs_.clear();
  row_ends_.clear();
  grouped_.clear();
}

Status Inbound::check_header(const DispatchHeader& header, size_t bytes) const {
  if (header.version != kMessageVersion) {
    return refuse("dispatch header: version", header.version, kMessageVersion);
  }
  const uint32_t step_flags = header.flags & kStepFlags;
  if ((header.flags ^ step_flags) != shape_flags(shape_)) {
    return refuse("dispatch header: mode flags", fmt::format("{:#x}", header.flags),
                  fmt::format("{:#x} ({}, {})", shape_flags(shape_) | step_flags, dtype_name(shape_.wire),
                              shape_.exact ? "exact" : "reduced"));
  }
  if (header.hidden != static_cast<uint32_t>(shape_.hidden)) {
    return refuse("dispatch header: hidden", header.hidden, shape_.hidden);
  }
  if (header.experts != static_cast<uint32_t>(local_experts_)) {
    return refuse("dispatch header: experts", header.experts, local_experts_);
  }
  if (header.rows > static_cast<uint32_t>(shape_.max_tokens)) {
    return refuse("dispatch header: rows", header.rows, fmt::format("at most {}", shape_.max_tokens));
  }
  const size_t pairs_a_row = static_cast<size_t>(std::min(shape_.top_k, local_experts_));
  if (header.pairs < header.rows || header.pairs > header.rows * pairs_a_row) {
    return refuse("dispatch header: pairs", header.pairs,
                  fmt::format("{} to {} for {} rows", header.rows, header.rows * pairs_a_row, header.rows));
  }
  const size_t expected = dispatch_layout(shape_, header.experts, header.rows, header.pairs).end;
  if (bytes != expected) {
    return refuse("dispatch message: bytes", bytes,
                  fmt::format("{} for {} rows and {} pairs", expected, header.rows, header.pairs));
  }
  return {};
}

Status Inbound::add(int source, std::span<const std::byte> message, StepFlags& any) {
  if (message.size() < sizeof(DispatchHeader)) {
    return refuse("dispatch message: bytes", message.size(),
                  fmt::format("at least {}", sizeof(DispatchHeader)));
  }
  const auto header = load<DispatchHeader>(message.data());
  SLUICE_RETURN_IF_ERROR(check_header(header, message.size()));
  const DispatchLayout at = dispatch_layout(shape_, header.experts, header.rows, header.pairs);

  Source& from = sources_[static_cast<size_t>(source)];
  from.row_count = static_cast<int>(header.rows);
  from.first_pair = pairs_.size();
  from.pair_count = header.pairs;
  from.first_row = row_ends_.size();
  from.rows = message.data() + at.rows;
  SLUICE_RETURN_IF_ERROR(read_pairs(from, header, message.data()));
  SLUICE_RETURN_IF_ERROR(check_counts(message.data() + at.counts));
  any.has_work |= (header.flags & kHasWork) != 0;
  any.wants_epoch |= (header.flags & kWantsEpoch) != 0;
  any.more |= (header.flags & kMore) != 0;
  return {};
}

// Rows are numbered in the order of their first pair, each has a pair, and names an expert once.
Status Inbound::check_pair(const Source& from, const PairEntry& entry, int rows_before) const {
  const size_t index = pairs_.size() - from.first_pair;
  const auto field = [&](std::string_view name) { return fmt::format("dispatch pair {}: {}", index, name); };
  if (entry.expert >= static_cast<uint32_t>(local_experts_)) {
    return refuse(field("expert"), entry.expert, fmt::format("below {}", local_experts_));
  }
  const auto next = static_cast<uint32_t>(rows_before);
  const bool opens = entry.row == next;
  const bool continues = rows_before > 0 && entry.row == next - 1;
  if (entry.row >= static_cast<uint32_t>(from.row_count) || !(opens || continues)) {
    return refuse(field("row"), entry.row, fmt::format("{} or one less, and below {}", next, from.row_count));
  }
  for (size_t i = pairs_.size(); continues && i > from.first_pair; --i) {
    const Pair& earlier = pairs_[i - 1];
    if (earlier.row != static_cast<int32_t>(entry.row)) break;
    if (earlier.expert == static_cast<int32_t>(entry.expert)) {
      return refuse(field("expert"), entry.expert, fmt::format("named once by row {}", entry.row));
    }
  }
  return {};
}

// Rows are opened in order, so a pair belongs to the newest row or opens the next.
void Inbound::add_pair(const Source& from, const Pair& pair) {
  pairs_.push_back(pair);
  row_ends_.resize(from.first_row + static_cast<size_t>(pair.row) + 1);
  row_ends_.back() = pairs_.size();
}

Status Inbound::read_pairs(const Source& from, const DispatchHeader& header, const std::byte* message) {
  const DispatchLayout at = dispatch_layout(shape_, header.experts, header.rows, header.pairs);
  std::fill(counts_.begin(), counts_.end(), 0);
  int rows = 0;
  for (size_t i = 0; i < header.pairs; ++i) {
    const auto entry = load<PairEntry>(message + at.pairs + i * sizeof(PairEntry));
    SLUICE_RETURN_IF_ERROR(check_pair(from, entry, rows));
    rows = static_cast<int>(entry.row) + 1;
    ++counts_[entry.expert];
    const float weight = shape_.exact ? 0.0F : load<float>(message + at.weights + i * sizeof(float));
    add_pair(from, {static_cast<int32_t>(entry.row), static_cast<int32_t>(entry.expert), 0, weight});
  }
  if (rows != from.row_count) {
    return refuse("dispatch header: rows", from.row_count,
                  fmt::format("{}, as many as its pairs name", rows));
  }
  return {};
}

Status Inbound::check_counts(const std::byte* counts) {
  for (size_t expert = 0; expert < counts_.size(); ++expert) {
    const auto count = load<uint32_t>(counts + expert * sizeof(uint32_t));
    if (count != counts_[expert]) {
      return refuse(fmt::format("dispatch count of local expert {}:", expert), count,
                    fmt::format("{}, as many as its pairs name", counts_[expert]));
    }
  }
  return {};
}

void Inbound::add_own(const Routing& routing, std::span<const float> weights, const std::byte* rows) {
  const auto entries = routing.pairs(own_);
  const auto choices = routing.choices(own_);
  sources_[static_cast<size_t>(own_)] = {static_cast<int>(routing.rows(own_).size()), pairs_.size(),
                                         entries.size(), row_ends_.size(), rows};
  const Source& from = sources_[static_cast<size_t>(own_)];
  for (size_t i = 0; i < entries.size(); ++i) {
    add_pair(from, {static_cast<int32_t>(entries[i].row), static_cast<int32_t>(entries[i].expert), 0,
                    weights[static_cast<size_t>(choices[i])]});
  }
}

void Inbound::group() {
  std::fill(offsets_.begin(), offsets_.end(), 0);
  for (const Pair& pair : pairs_) ++offsets_[static_cast<size_t>(pair.expert) + 1];
  for (size_t expert = 0; expert < cursors_.size(); ++expert) {
    cursors_[expert] = offsets_[expert];
    offsets_[expert + 1] += offsets_[expert];
  }
  grouped_.resize(pairs_.size());
  for (const Source& from : sources_) {
    for (Pair& pair : std::span(pairs_).subspan(from.first_pair, from.pair_count)) {
      pair.position = cursors_[static_cast<size_t>(pair.expert)]++;
      grouped_[static_cast<size_t>(pair.position)] = from.rows + static_cast<size_t>(pair.row) * stride_;
    }
  }
}

Result<const std::byte*> read_combine(const Shape& shape, std::span<const std::byte> message,
                                      size_t expected) {
  const size_t bytes = combine_bytes(shape, expected);
  if (message.size() < sizeof(CombineHeader)) {
    return refuse("combine message: bytes", message.size(), bytes);
  }
  const auto header = load<CombineHeader>(message.data());
  if (header.version != kMessageVersion) {
    return refuse("combine header: version", header.version, kMessageVersion);
  }
  if (header.rows != expected) return refuse("combine header: rows", header.rows, expected);
  if (message.size() != bytes) {
    return refuse("combine message: bytes", message.size(), fmt::format("{} for {} rows", bytes, expected));
  }
  return message.data() + sizeof(CombineHeader);
}

}  // namespace sluice::exchange

#include "bench/workload.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

namespace sluice::bench {
namespace {

constexpr uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// A number from -4 to 4, not 0, that bfloat16 holds.
uint16_t bfloat16_element(uint64_t key, int64_t index) {
  const uint64_t bits = mix(key + static_cast<uint64_t>(index) / 8) >> (index % 8 * 8);
  const auto magnitude = static_cast<float>((bits & 127) + 1) * 0x1p-5F;
  return float_to_bfloat16((bits & 128) != 0 ? -magnitude : magnitude);
}

// The same with a longer mantissa.
float float_element(uint64_t key, int64_t index) {
  const uint64_t bits = mix(key + static_cast<uint64_t>(index));
  const auto magnitude = static_cast<float>((bits & 0xfffff) + 1) * 0x1p-18F;
  return (bits >> 63) != 0 ? -magnitude : magnitude;
}

class Draw {
 public:
  Draw(int experts, Load load) : order_(static_cast<size_t>(experts)), load_(load) {
    std::iota(order_.begin(), order_.end(), 0);
  }

  // The first `top_k` of order() are the token's experts.
  const std::vector<int32_t>& operator()(uint64_t key, int top_k) {
    const size_t experts = order_.size();
    if (load_ == Load::one_expert) {
      std::iota(order_.begin(), order_.end(), 0);
      return order_;
    }
    const size_t favoured = std::max<size_t>(static_cast<size_t>(top_k), experts / 4);
    const bool narrow = load_ == Load::skewed && key % 4 != 0;
    if (load_ == Load::skewed) std::iota(order_.begin(), order_.end(), 0);
    const size_t among = narrow ? favoured : experts;
    for (size_t k = 0; k < static_cast<size_t>(top_k); ++k) {
      std::swap(order_[k], order_[k + mix(key + k) % (among - k)]);
    }
    return order_;
  }

 private:
  std::vector<int32_t> order_;
  Load load_;
};

float load_element(const std::byte* row, DType type, int i) {
  if (type == DType::float32) {
    float value;
    std::memcpy(&value, row + static_cast<size_t>(i) * sizeof(float), sizeof(float));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, row + static_cast<size_t>(i) * sizeof(bits), sizeof(bits));
  return bfloat16_to_float(bits);
}

float round_to(DType type, float value) {
  return type == DType::bfloat16 ? bfloat16_to_float(float_to_bfloat16(value)) : value;
}

// The wire type in which rows really travel: a rank alone rounds nothing unless it is to be exact.
DType wire_of(const exchange::Shape& shape) {
  return shape.ranks == 1 && !shape.exact ? DType::float32 : shape.wire;
}

// One token's sum in the order that exchange.h promises.
class TokenSum {
 public:
  TokenSum(const exchange::Shape& shape, const exchange::Placement& placement, const Tokens& tokens)
      : shape_(shape), placement_(placement), tokens_(tokens) {}

  float operator()(int token, int i) const {
    const auto row = tokens_.matrix().row_bytes(token);
    const float x = round_to(wire_of(shape_), load_element(row, tokens_.dtype, i));
    return shape_.exact ? in_choice_order(token, x) : in_rank_order(token, x);
  }

 private:
  float product(int token, int k, float x) const {
    const auto choice = static_cast<size_t>(token * shape_.top_k + k);
    const float y = expert_scale(tokens_.experts[choice]) * x;
    return tokens_.weights[choice] * y;
  }

  float in_choice_order(int token, float x) const {
    float total = product(token, 0, x);
    for (int k = 1; k < shape_.top_k; ++k) total += product(token, k, x);
    return total;
  }

  float in_rank_order(int token, float x) const {
    std::optional<float> total;
    for (int rank = 0; rank < shape_.ranks; ++rank) {
      std::optional<float> partial;
      for (int k = 0; k < shape_.top_k; ++k) {
        const int expert = tokens_.experts[static_cast<size_t>(token * shape_.top_k + k)];
        if (placement_.owner(expert) != rank) continue;
        const float value = product(token, k, x);
        partial = partial ? *partial + value : value;
      }
      if (!partial) continue;
      const float rounded = round_to(wire_of(shape_), *partial);
      total = total ? *total + rounded : rounded;
    }
    return total.value_or(0.0F);
  }

  const exchange::Shape& shape_;
  const exchange::Placement& placement_;
  const Tokens& tokens_;
};

}  // namespace

std::string_view load_name(Load load) {
  switch (load) {
    case Load::uniform:
      return "uniform";
    case Load::skewed:
      return "skewed";
    case Load::one_expert:
      return "one-expert";
  }
  return "unknown";
}

std::optional<Load> parse_load(std::string_view name) {
  for (const Load load : {Load::uniform, Load::skewed, Load::one_expert}) {
    if (load_name(load) == name) return load;
  }
  return std::nullopt;
}

Tokens make_tokens(const exchange::Shape& shape, int rank, int count, Load load, uint64_t seed) {
  Tokens tokens;
  tokens.count = count;
  tokens.hidden = shape.hidden;
  tokens.dtype = shape.wire == DType::bfloat16 ? DType::bfloat16 : DType::float32;
  tokens.x.resize(static_cast<size_t>(count) * static_cast<size_t>(shape.hidden) * dtype_bytes(tokens.dtype));
  const uint64_t key = mix(seed * 4099 + static_cast<uint64_t>(rank));
  const int64_t elements = static_cast<int64_t>(count) * shape.hidden;
  for (int64_t i = 0; i < elements; ++i) {
    if (tokens.dtype == DType::bfloat16) {
      reinterpret_cast<uint16_t*>(tokens.x.data())[i] = bfloat16_element(key, i);
    } else {
      reinterpret_cast<float*>(tokens.x.data())[i] = float_element(key, i);
    }
  }
  Draw draw(shape.experts, load);
  for (int token = 0; token < count; ++token) {
    const uint64_t token_key = mix(key ^ (static_cast<uint64_t>(token) << 32));
    const std::vector<int32_t>& order = draw(token_key, shape.top_k);
    for (int k = 0; k < shape.top_k; ++k) {
      tokens.experts.push_back(order[static_cast<size_t>(k)]);
      const uint64_t bits = mix(token_key + 1000 + static_cast<uint64_t>(k));
      tokens.weights.push_back(static_cast<float>(1 + bits % 1023) * 0x1p-10F);
    }
  }
  return tokens;
}

float expert_scale(int expert) {
  const int odd = 1 + 2 * (expert % 8);
  return std::ldexp(static_cast<float>(odd), expert / 8 % 8 - 4);
}

void apply_experts(const exchange::Received& received, DType wire, int hidden,
                   const std::vector<int>& experts, float* pair_rows) {
  for (size_t local = 0; local < experts.size(); ++local) {
    const float scale = expert_scale(experts[local]);
    for (int32_t pair = received.expert_offsets[local]; pair < received.expert_offsets[local + 1]; ++pair) {
      const std::byte* row = received.rows[static_cast<size_t>(pair)];
      float* out = pair_rows + static_cast<int64_t>(pair) * hidden;
      if (wire == DType::bfloat16) {
        const auto* x = reinterpret_cast<const uint16_t*>(row);
        for (int i = 0; i < hidden; ++i) out[i] = scale * bfloat16_to_float(x[i]);
      } else {
        const auto* x = reinterpret_cast<const float*>(row);
        for (int i = 0; i < hidden; ++i) out[i] = scale * x[i];
      }
    }
  }
}

Status check_received(const exchange::Shape& shape, const exchange::Placement& placement, int rank,
                      const std::vector<Tokens>& all, const exchange::Received& received) {
  const auto experts = placement.experts_of(rank);
  std::vector<std::vector<std::pair<int, int>>> expected(experts.size());  // (source, token)
  for (int source = 0; source < shape.ranks; ++source) {
    const Tokens& tokens = all[static_cast<size_t>(source)];
    for (size_t choice = 0; choice < tokens.experts.size(); ++choice) {
      const int expert = tokens.experts[choice];
      if (placement.owner(expert) != rank) continue;
      expected[static_cast<size_t>(placement.local_index(expert))].emplace_back(
          source, static_cast<int>(choice) / shape.top_k);
    }
  }
  int32_t pair = 0;
  for (size_t local = 0; local < experts.size(); ++local) {
    const int32_t count = received.expert_offsets[local + 1] - received.expert_offsets[local];
    if (received.expert_offsets[local] != pair || count != static_cast<int32_t>(expected[local].size())) {
      return data_loss(
          fmt::format("expert {} got {} rows, expected {}", experts[local], count, expected[local].size()));
    }
    for (const auto& [source, token] : expected[local]) {
      const Tokens& tokens = all[static_cast<size_t>(source)];
      const std::byte* found = received.rows[static_cast<size_t>(pair++)];
      const size_t bytes = static_cast<size_t>(shape.hidden) * dtype_bytes(tokens.dtype);
      if (std::memcmp(found, tokens.matrix().row_bytes(token), bytes) == 0) continue;
      size_t at = 0;
      while (found[at] == tokens.matrix().row_bytes(token)[at]) ++at;
      return data_loss(
          fmt::format("byte {} of token {} of rank {} for expert {} is {:#04x}, expected {:#04x}", at, token,
                      source, experts[local], static_cast<unsigned>(found[at]),
                      static_cast<unsigned>(tokens.matrix().row_bytes(token)[at])));
    }
  }
  return {};
}

Status check_combined(const exchange::Shape& shape, const exchange::Placement& placement,
                      const Tokens& tokens, const float* out) {
  const TokenSum sum(shape, placement, tokens);
  for (int token = 0; token < tokens.count; ++token) {
    for (int i = 0; i < shape.hidden; ++i) {
      const float expected = sum(token, i);
      const float found = out[static_cast<int64_t>(token) * shape.hidden + i];
      if (std::bit_cast<uint32_t>(found) == std::bit_cast<uint32_t>(expected)) continue;
      return data_loss(fmt::format(
          "element {} of token {} came back as {:.9g} ({:#010x}), expected {:.9g} ({:#010x})", i, token,
          found, std::bit_cast<uint32_t>(found), expected, std::bit_cast<uint32_t>(expected)));
    }
  }
  return {};
}

}  // namespace sluice::bench

#include "reference.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace sluice::exchange::test {

Tokens draw_tokens(std::mt19937_64& random, const Shape& shape, int count, Load load) {
  Tokens tokens;
  tokens.count = count;
  std::normal_distribution<float> normal(0.0F, 2.0F);
  std::uniform_real_distribution<float> weight(0.01F, 1.0F);
  for (int i = 0; i < count * shape.hidden; ++i) tokens.x.push_back(normal(random));
  std::vector<int32_t> order(static_cast<size_t>(shape.experts));
  for (int token = 0; token < count; ++token) {
    std::iota(order.begin(), order.end(), 0);
    if (load == Load::uniform) std::shuffle(order.begin(), order.end(), random);
    if (load == Load::skewed) {
      const auto half = order.begin() + (shape.top_k + shape.experts) / 2;
      std::shuffle(order.begin(), half, random);
    }
    for (int k = 0; k < shape.top_k; ++k) {
      tokens.experts.push_back(order[static_cast<size_t>(k)]);
      tokens.weights.push_back(weight(random));
    }
  }
  return tokens;
}

float round_to(DType type, float value) {
  return type == DType::bfloat16 ? bfloat16_to_float(float_to_bfloat16(value)) : value;
}

void apply_expert(int expert, const float* x, float* y, int hidden) {
  const float scale = 0.5F + 0.03125F * static_cast<float>(expert);
  const float shift = 0.1F * static_cast<float>(expert + 1);
  for (int i = 0; i < hidden; ++i) {
    const float neighbour = 0.25F * x[(i + expert + 1) % hidden];
    y[i] = x[i] * scale + neighbour + shift;
  }
}

std::vector<float> expected_result(const Shape& shape, const Placement& placement, const Tokens& tokens) {
  const auto hidden = static_cast<size_t>(shape.hidden);
  const auto top_k = static_cast<size_t>(shape.top_k);
  // Nothing is rounded for a wire that is not there, unless exactness asks for it.
  const DType wire = shape.ranks == 1 && !shape.exact ? DType::float32 : shape.wire;
  std::vector<float> out(static_cast<size_t>(tokens.count) * hidden);
  for (size_t token = 0; token < static_cast<size_t>(tokens.count); ++token) {
    std::vector<float> x(tokens.x.begin() + static_cast<std::ptrdiff_t>(token * hidden),
                         tokens.x.begin() + static_cast<std::ptrdiff_t>((token + 1) * hidden));
    for (float& value : x) value = round_to(wire, value);
    std::vector<std::vector<float>> y(top_k, std::vector<float>(hidden));
    for (size_t k = 0; k < top_k; ++k) {
      apply_expert(tokens.experts[token * top_k + k], x.data(), y[k].data(), shape.hidden);
    }
    for (size_t i = 0; i < hidden; ++i) {
      float total = 0.0F;
      bool first = true;
      const auto add = [&](float value) {
        total = first ? value : total + value;
        first = false;
      };
      if (shape.exact) {
        for (size_t k = 0; k < top_k; ++k) {
          const float product = tokens.weights[token * top_k + k] * y[k][i];
          add(product);
        }
      } else {
        for (int rank = 0; rank < placement.ranks(); ++rank) {
          float partial = 0.0F;
          bool none = true;
          for (size_t k = 0; k < top_k; ++k) {
            if (placement.owner(tokens.experts[token * top_k + k]) != rank) continue;
            const float product = tokens.weights[token * top_k + k] * y[k][i];
            partial = none ? product : partial + product;
            none = false;
          }
          if (!none) add(round_to(wire, partial));
        }
      }
      out[token * hidden + i] = total;
    }
  }
  return out;
}

std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

}  // namespace sluice::exchange::test

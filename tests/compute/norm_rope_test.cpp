// RMS normalisation and rotary embeddings against double precision.
#include <gtest/gtest.h>

#include <cmath>

#include "compute/cpu/kv_cache.h"
#include "support.h"

namespace sluice::compute {
namespace {

std::unique_ptr<Buffer> prepare_vector(Backend& backend, const HostMatrix& row) {
  auto buffer = backend.prepare_vector(row.bytes.data(), row.dtype, row.cols);
  EXPECT_TRUE(buffer.ok()) << buffer.status().message();
  return std::move(buffer).value();
}

std::vector<double> norm_by_hand(const HostMatrix& x, int64_t row, int64_t first, int64_t length,
                                 const HostMatrix& weight, double eps) {
  double squares = 0;
  for (int64_t i = 0; i < length; ++i) squares += std::pow(static_cast<double>(x.at(row, first + i)), 2);
  const double scale = 1 / std::sqrt(squares / static_cast<double>(length) + eps);
  std::vector<double> out;
  for (int64_t i = 0; i < length; ++i) {
    out.push_back(static_cast<double>(x.at(row, first + i)) * scale * static_cast<double>(weight.at(0, i)));
  }
  return out;
}

TEST(RmsNorm, MatchesDoublePrecisionAndItsBitsAreTheSameEverywhere) {
  Random random(1);
  for (const DType type : {DType::float32, DType::bfloat16}) {
    for (const int64_t cols : {1, 15, 16, 64, 100, 8192}) {
      const HostMatrix x = random_matrix(random, DType::float32, 3, cols, 5.0F);
      const HostMatrix weight = random_matrix(random, DType::bfloat16, 1, cols);
      std::vector<std::byte> first;
      for_each_instruction_set([&](const std::string& name) {
        const auto backend = make_backend(type, true, 2);
        HostMatrix out(type, 3, cols);
        backend->rms_norm(x.view(), *prepare_vector(*backend, weight), 1e-6F, out.view());
        for (int64_t r = 0; r < 3; ++r) {
          const auto exact = norm_by_hand(x, r, 0, cols, weight, 1e-6);
          for (int64_t c = 0; c < cols; ++c) {
            const double value = exact[static_cast<size_t>(c)];
            const double tolerance = type == DType::float32 ? 1e-6 : 4e-3;
            ASSERT_NEAR(static_cast<double>(out.at(r, c)), value, tolerance * std::abs(value));
          }
        }
        if (!has_fused_multiply_add(name)) return;
        if (first.empty()) first = out.bytes;
        EXPECT_EQ(out.bytes, first);
      });
    }
  }
}

TEST(RmsNorm, WorksInPlaceAndOnNoRows) {
  Random random(2);
  const auto backend = make_backend(DType::float32, false);
  const HostMatrix x = random_matrix(random, DType::float32, 2, 100);
  const auto weight = prepare_vector(*backend, random_matrix(random, DType::float32, 1, 100));
  HostMatrix out(DType::float32, 2, 100);
  backend->rms_norm(x.view(), *weight, 1e-6F, out.view());
  HostMatrix in_place = x;
  backend->rms_norm(in_place.view(), *weight, 1e-6F, in_place.view());
  EXPECT_EQ(in_place.bytes, out.bytes);
  HostMatrix none(DType::float32, 0, 100);
  backend->rms_norm(none.view(), *weight, 1e-6F, none.view());
}

// One head of x at `position`, as transformers rotates it: halves against each other, angles in float32.
std::vector<double> rope_by_hand(const std::vector<double>& x, int64_t position, double theta) {
  const size_t half = x.size() / 2;
  std::vector<double> out(x.size());
  for (size_t i = 0; i < half; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(x.size());
    const auto frequency = static_cast<float>(1 / std::pow(theta, exponent));
    const auto angle = static_cast<double>(static_cast<float>(position) * frequency);
    out[i] = x[i] * std::cos(angle) - x[half + i] * std::sin(angle);
    out[half + i] = x[half + i] * std::cos(angle) + x[i] * std::sin(angle);
  }
  return out;
}

TEST(Rope, NormalisesRotatesAndStoresEachHead) {
  Random random(3);
  struct Case {
    AttentionShape shape;
    double theta;
    bool norm;
  };
  for (const Case& c :
       {Case{{4, 2, 64}, 1e6, true}, Case{{3, 1, 96}, 1e4, false}, Case{{2, 2, 36}, 1e4, true}}) {
    const int head_dim = c.shape.head_dim;
    const auto backend = make_backend(DType::float32, true, 2);
    auto made = backend->make_kv_cache({2, 80, 16, c.shape.kv_heads, head_dim, DType::float32});
    ASSERT_TRUE(made.ok());
    auto& cache = static_cast<cpu::CpuKvCache&>(**made);
    const HostMatrix q_weight = random_matrix(random, DType::float32, 1, head_dim);
    const HostMatrix k_weight = random_matrix(random, DType::float32, 1, head_dim);
    const auto q_norm = prepare_vector(*backend, q_weight);
    const auto k_norm = prepare_vector(*backend, k_weight);
    const HostMatrix q = random_matrix(random, DType::float32, 5, c.shape.query_heads * head_dim);
    const HostMatrix k = random_matrix(random, DType::float32, 5, c.shape.kv_heads * head_dim);
    const HostMatrix v = random_matrix(random, DType::float32, 5, c.shape.kv_heads * head_dim);
    HostMatrix q_out = q;
    HostMatrix k_out = k;
    // Two sequences, one far into its context.
    std::vector<int32_t> near = {70};
    std::vector<int32_t> far(65);
    for (size_t i = 0; i < far.size(); ++i) far[i] = static_cast<int32_t>(64 - i);
    const std::vector<Sequence> sequences = {{0, 2, 0, near}, {2, 3, 1022, far}};
    const int64_t positions[] = {0, 1, 1022, 1023, 1024};
    backend->rope_and_store(c.shape, {c.theta}, c.norm ? q_norm.get() : nullptr,
                            c.norm ? k_norm.get() : nullptr, 1e-6F, q_out.view(), k_out.view(), v.view(),
                            sequences, 1, cache);
    for (int64_t row = 0; row < 5; ++row) {
      const Sequence& sequence = sequences[row < 2 ? 0 : 1];
      const auto head_of = [&](const HostMatrix& x, const HostMatrix& weight, int h) {
        if (c.norm) return norm_by_hand(x, row, h * head_dim, head_dim, weight, 1e-6);
        std::vector<double> head;
        for (int d = 0; d < head_dim; ++d) head.push_back(static_cast<double>(x.at(row, h * head_dim + d)));
        return head;
      };
      for (int h = 0; h < c.shape.query_heads; ++h) {
        const auto exact = rope_by_hand(head_of(q, q_weight, h), positions[row], c.theta);
        for (int d = 0; d < head_dim; ++d) {
          ASSERT_NEAR(static_cast<double>(q_out.at(row, h * head_dim + d)), exact[static_cast<size_t>(d)],
                      2e-5);
        }
      }
      for (int h = 0; h < c.shape.kv_heads; ++h) {
        const auto exact = rope_by_hand(head_of(k, k_weight, h), positions[row], c.theta);
        const float* keys = cache.keys<float>() + cache.key_offset(1, sequence.blocks, h, positions[row]) +
                            positions[row] % cpu::kKeyLanes;
        const float* values =
            cache.values<float>() + cache.value_offset(1, sequence.blocks, h, positions[row]);
        for (int d = 0; d < head_dim; ++d) {
          ASSERT_NEAR(static_cast<double>(keys[d * cpu::kKeyLanes]), exact[static_cast<size_t>(d)], 2e-5);
          ASSERT_EQ(values[d], v.at(row, h * head_dim + d));
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::compute

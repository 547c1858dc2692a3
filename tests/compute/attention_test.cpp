// Paged attention against double precision, and its bits however a prompt is cut into steps.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "compute/cpu/kv_cache.h"
#include "support.h"

namespace sluice::compute {
namespace {

// A prompt's queries, keys and values, (positions, heads x head_dim) float32.
struct Prompt {
  HostMatrix q, k, v;
};

Prompt random_prompt(Random& random, const AttentionShape& shape, int64_t positions) {
  return {random_matrix(random, DType::float32, positions, shape.query_heads * shape.head_dim),
          random_matrix(random, DType::float32, positions, shape.kv_heads * shape.head_dim),
          random_matrix(random, DType::float32, positions, shape.kv_heads * shape.head_dim)};
}

HostMatrix rows_of(const HostMatrix& matrix, int64_t first, int64_t rows) {
  HostMatrix part(matrix.dtype, rows, matrix.cols);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < matrix.cols; ++c) part.set(r, c, matrix.at(first + r, c));
  }
  return part;
}

std::unique_ptr<KvCache> make_cache(Backend& backend, const AttentionShape& shape, int blocks, int block_size,
                                    DType type = DType::float32) {
  auto cache = backend.make_kv_cache({2, blocks, block_size, shape.kv_heads, shape.head_dim, type});
  EXPECT_TRUE(cache.ok()) << cache.status().message();
  return std::move(cache).value();
}

// Stores and attends `prompt` in steps of the given lengths. Queries and keys come back as they were rotated,
// for the oracle.
struct Ran {
  HostMatrix out;
  HostMatrix q;
  HostMatrix k;
};

Ran run(Backend& backend, const AttentionShape& shape, const Prompt& prompt,
        const std::vector<int64_t>& steps, KvCache& cache, std::span<const int32_t> blocks) {
  const int64_t positions = prompt.q.rows;
  Ran ran{HostMatrix(backend.options().activations, positions, prompt.q.cols), prompt.q, prompt.k};
  int64_t start = 0;
  for (const int64_t step : steps) {
    HostMatrix q = rows_of(prompt.q, start, step);
    HostMatrix k = rows_of(prompt.k, start, step);
    const HostMatrix v = rows_of(prompt.v, start, step);
    HostMatrix out(backend.options().activations, step, prompt.q.cols);
    const std::vector<Sequence> sequences = {{0, step, start, blocks}};
    backend.rope_and_store(shape, {}, nullptr, nullptr, 0, q.view(), k.view(), v.view(), sequences, 1, cache);
    backend.attention(shape, q.view(), sequences, 1, cache, out.view());
    EXPECT_TRUE(backend.synchronize().ok());
    for (int64_t r = 0; r < step; ++r) {
      for (int64_t c = 0; c < q.cols; ++c) ran.q.set(start + r, c, q.at(r, c));
      for (int64_t c = 0; c < k.cols; ++c) ran.k.set(start + r, c, k.at(r, c));
      for (int64_t c = 0; c < q.cols; ++c) ran.out.set(start + r, c, out.at(r, c));
    }
    start += step;
  }
  EXPECT_EQ(start, positions);
  return ran;
}

double stored(float value, DType type) {
  return static_cast<double>(type == DType::bfloat16 ? bfloat16_to_float(float_to_bfloat16(value)) : value);
}

void expect_attention(const AttentionShape& shape, const Ran& ran, const HostMatrix& v, DType cache_type,
                      double tolerance) {
  const int group = shape.query_heads / shape.kv_heads;
  const double scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
  for (int64_t position = 0; position < ran.q.rows; ++position) {
    for (int h = 0; h < shape.query_heads; ++h) {
      std::vector<double> weights;
      double total = 0;
      for (int64_t j = 0; j <= position; ++j) {
        double dot = 0;
        for (int d = 0; d < shape.head_dim; ++d) {
          dot += static_cast<double>(ran.q.at(position, h * shape.head_dim + d)) *
                 stored(ran.k.at(j, h / group * shape.head_dim + d), cache_type);
        }
        weights.push_back(std::exp(dot * scale));
        total += weights.back();
      }
      for (int d = 0; d < shape.head_dim; ++d) {
        double sum = 0;
        double absolute = 0;
        for (int64_t j = 0; j <= position; ++j) {
          const double term =
              weights[static_cast<size_t>(j)] * stored(v.at(j, h / group * shape.head_dim + d), cache_type);
          sum += term;
          absolute += std::abs(term);
        }
        ASSERT_NEAR(static_cast<double>(ran.out.at(position, h * shape.head_dim + d)), sum / total,
                    tolerance * absolute / total)
            << "position " << position << ", head " << h << ", element " << d;
      }
    }
  }
}

TEST(Attention, MatchesDoublePrecisionForAllShapes) {
  Random random(1);
  struct Case {
    AttentionShape shape;
    int block_size;
    int64_t positions;
  };
  const Case cases[] = {{{4, 2, 64}, 16, 150}, {{8, 1, 32}, 16, 70},   {{1, 1, 128}, 64, 65},
                        {{3, 3, 96}, 32, 40},  {{16, 2, 256}, 16, 33}, {{2, 1, 80}, 48, 100},
                        {{4, 4, 36}, 8, 90},   {{40, 1, 32}, 1, 20},   {{6, 2, 50}, 4, 66},
                        {{4, 2, 64}, 128, 200}};
  for (const Case& c : cases) {
    for (const DType type : {DType::float32, DType::bfloat16}) {
      SCOPED_TRACE(testing::Message()
                   << c.shape.query_heads << "/" << c.shape.kv_heads << " heads of " << c.shape.head_dim
                   << ", block " << c.block_size << ", " << dtype_name(type));
      const auto backend = make_backend(type, true, 2);
      const auto count = static_cast<int>((c.positions + c.block_size - 1) / c.block_size);
      const auto cache = make_cache(*backend, c.shape, count + 3, c.block_size, type);
      // Blocks out of order, and not the first ones.
      std::vector<int32_t> blocks(static_cast<size_t>(count));
      std::iota(blocks.rbegin(), blocks.rend(), 3);
      const Prompt prompt = random_prompt(random, c.shape, c.positions);
      const Ran ran = run(*backend, c.shape, prompt, {c.positions - 3, 1, 2}, *cache, blocks);
      expect_attention(c.shape, ran, prompt.v, type, type == DType::float32 ? 2e-5 : 5e-3);
    }
  }
}

TEST(Attention, IsTheSameUnderEveryInstructionSet) {
  Random random(2);
  const AttentionShape shape{4, 2, 48};
  const Prompt prompt = random_prompt(random, shape, 130);
  std::vector<int32_t> blocks(9);
  std::iota(blocks.begin(), blocks.end(), 0);
  for (const DType type : {DType::float32, DType::bfloat16}) {
    std::vector<std::byte> fused;
    for_each_instruction_set([&](const std::string& name) {
      for (const int threads : {1, 2, 3}) {
        const auto backend = make_backend(type, true, threads);
        const auto cache = make_cache(*backend, shape, 9, 16, type);
        const Ran ran = run(*backend, shape, prompt, {130}, *cache, blocks);
        expect_attention(shape, ran, prompt.v, type, type == DType::float32 ? 2e-5 : 5e-3);
        if (!has_fused_multiply_add(name)) continue;
        if (fused.empty()) fused = ran.out.bytes;
        ASSERT_EQ(ran.out.bytes, fused) << threads << " threads";
      }
    });
  }
}

TEST(Attention, BitsDoNotDependOnHowThePromptIsCut) {
  Random random(3);
  const AttentionShape shape{6, 2, 64};
  constexpr int64_t kPositions = 200;
  const Prompt prompt = random_prompt(random, shape, kPositions);
  for (const DType type : {DType::float32, DType::bfloat16}) {
    std::vector<std::byte> whole;
    std::vector<std::vector<int64_t>> cuts = {{kPositions}};
    for (const int64_t chunk : {1, 2, 3, 16, 17, 63, 64, 65, 128}) {
      cuts.emplace_back(static_cast<size_t>(kPositions / chunk), chunk);
      if (kPositions % chunk != 0) cuts.back().push_back(kPositions % chunk);
    }
    for (const int block_size : {1, 8, 16, 64}) {
      const auto count = static_cast<int32_t>((kPositions + block_size - 1) / block_size);
      std::vector<int32_t> blocks(static_cast<size_t>(count));
      std::iota(blocks.begin(), blocks.end(), 5);
      const auto backend = make_backend(type, true, 2);
      for (const auto& cut : cuts) {
        const auto cache = make_cache(*backend, shape, count + 5, block_size, type);
        const Ran ran = run(*backend, shape, prompt, cut, *cache, blocks);
        if (whole.empty()) whole = ran.out.bytes;
        ASSERT_EQ(ran.out.bytes, whole) << "blocks of " << block_size << ", steps of " << cut[0];
      }
    }
  }
}

// Sequences of one step do not see one another: a mixed step gives each the bits that it has alone.
TEST(Attention, BitsDoNotDependOnTheOtherSequences) {
  Random random(4);
  const AttentionShape shape{4, 1, 32};
  const auto backend = make_backend(DType::float32, true, 2);
  const std::vector<int64_t> lengths = {1, 90, 17, 64, 33};
  std::vector<Prompt> prompts;
  std::vector<Ran> alone;
  std::vector<std::vector<int32_t>> tables;
  int32_t next = 0;
  for (const int64_t length : lengths) {
    prompts.push_back(random_prompt(random, shape, length));
    tables.emplace_back(static_cast<size_t>((length + 15) / 16));
    for (int32_t& block : tables.back()) block = next++;
    const auto cache = make_cache(*backend, shape, 64, 16);
    alone.push_back(run(*backend, shape, prompts.back(), {length}, *cache, tables.back()));
  }
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  HostMatrix q(DType::float32, total, 128);
  HostMatrix k(DType::float32, total, 32);
  HostMatrix v(DType::float32, total, 32);
  HostMatrix out(DType::float32, total, 128);
  std::vector<Sequence> sequences;
  int64_t row = 0;
  for (size_t s = 0; s < prompts.size(); ++s) {
    sequences.push_back({row, lengths[s], 0, tables[s]});
    for (int64_t r = 0; r < lengths[s]; ++r, ++row) {
      for (int64_t c = 0; c < 128; ++c) q.set(row, c, prompts[s].q.at(r, c));
      for (int64_t c = 0; c < 32; ++c) k.set(row, c, prompts[s].k.at(r, c));
      for (int64_t c = 0; c < 32; ++c) v.set(row, c, prompts[s].v.at(r, c));
    }
  }
  const auto cache = make_cache(*backend, shape, 64, 16);
  backend->rope_and_store(shape, {}, nullptr, nullptr, 0, q.view(), k.view(), v.view(), sequences, 0, *cache);
  backend->attention(shape, q.view(), sequences, 0, *cache, out.view());
  for (size_t s = 0; s < prompts.size(); ++s) {
    for (int64_t r = 0; r < lengths[s]; ++r) {
      ASSERT_EQ(out.row_bits(sequences[s].first_row + r), alone[s].out.row_bits(r)) << "sequence " << s;
    }
  }
}

// Whatever lies in a block behind the sequence's end is nobody's business, infinities and NaNs included.
TEST(Attention, IgnoresWhatLiesBehindTheEnd) {
  Random random(5);
  const AttentionShape shape{2, 1, 32};
  const auto backend = make_backend(DType::float32, true);
  const Prompt prompt = random_prompt(random, shape, 20);
  const std::vector<int32_t> blocks = {0, 1, 2, 3};
  const auto clean = make_cache(*backend, shape, 4, 16);
  const Ran expected = run(*backend, shape, prompt, {20}, *clean, blocks);
  const auto dirty = make_cache(*backend, shape, 4, 16);
  auto& cache = static_cast<cpu::CpuKvCache&>(*dirty);
  const float poison = std::numeric_limits<float>::quiet_NaN();
  for (int64_t i = 0; i < static_cast<int64_t>(2 * 4 * 16 * 32); ++i) {
    cache.keys<float>()[i] = poison;
    cache.values<float>()[i] = poison;
  }
  const Ran ran = run(*backend, shape, prompt, {7, 13}, *dirty, blocks);
  EXPECT_EQ(ran.out.bytes, expected.out.bytes);
}

TEST(Attention, NoSequencesIsNoWork) {
  const AttentionShape shape{2, 1, 32};
  const auto backend = make_backend(DType::float32, false);
  const auto cache = make_cache(*backend, shape, 1, 16);
  HostMatrix q(DType::float32, 0, 64);
  HostMatrix k(DType::float32, 0, 32);
  backend->rope_and_store(shape, {}, nullptr, nullptr, 0, q.view(), k.view(), k.view(), {}, 0, *cache);
  backend->attention(shape, q.view(), {}, 0, *cache, q.view());
}

}  // namespace
}  // namespace sluice::compute

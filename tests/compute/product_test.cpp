// Products with weights of every type against double precision, and their bits under everything that must not
// change them.
#include <gtest/gtest.h>

#include <cmath>

#include "compute/cpu/gemm.h"
#include "support.h"

namespace sluice::compute {
namespace {

constexpr DType kWeightTypes[] = {DType::float32, DType::bfloat16, DType::float8_e4m3};
constexpr DType kActivationTypes[] = {DType::float32, DType::bfloat16};

// A chain of `in` float32 multiply-adds errs by at most in x 2^-24 of the sum of absolute products.
void expect_product(const HostMatrix& x, const HostWeight& w, const HostMatrix& out) {
  const double unit = std::ldexp(static_cast<double>(w.in) + 4, -24);
  const double rounding = out.dtype == DType::bfloat16 ? std::ldexp(1.0, -8) : 0;
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t n = 0; n < w.out; ++n) {
      double sum = 0;
      double absolute = 0;
      for (int64_t k = 0; k < w.in; ++k) {
        const double term = static_cast<double>(x.at(r, k)) * w.at(n, k);
        sum += term;
        absolute += std::abs(term);
      }
      ASSERT_NEAR(static_cast<double>(out.at(r, n)), sum, absolute * unit + std::abs(sum) * rounding)
          << "row " << r << ", output " << n;
    }
  }
}

HostMatrix multiply(Backend& backend, const HostMatrix& x, const Weight& w, DType out_type) {
  HostMatrix out(out_type, x.rows, w.out());
  backend.product(x.view(), w, out.view());
  EXPECT_TRUE(backend.synchronize().ok());
  return out;
}

std::unique_ptr<Weight> prepare(Backend& backend, const HostWeight& w) {
  auto prepared = backend.prepare(w.source());
  EXPECT_TRUE(prepared.ok()) << prepared.status().message();
  return std::move(prepared).value();
}

TEST(Product, MatchesDoublePrecisionForAllTypesAndRaggedShapes) {
  Random random(1);
  struct Shape {
    int64_t rows, out, in;
  };
  const Shape shapes[] = {{1, 1, 1},      {1, 64, 128}, {3, 65, 129}, {7, 63, 31},
                          {13, 200, 260}, {97, 70, 65}, {2, 384, 4},  {30, 128, 300}};
  for (const DType activations : kActivationTypes) {
    for (const bool deterministic : {false, true}) {
      const auto backend = make_backend(activations, deterministic, 2);
      for (const DType type : kWeightTypes) {
        for (const Shape& shape : shapes) {
          SCOPED_TRACE(testing::Message() << dtype_name(activations) << " x " << dtype_name(type) << " "
                                          << shape.rows << " x " << shape.in << " -> " << shape.out);
          const HostWeight w = random_weight(random, type, shape.out, shape.in);
          const HostMatrix x = random_matrix(random, activations, shape.rows, shape.in);
          const auto prepared = prepare(*backend, w);
          for (const DType out_type : {DType::float32, activations}) {
            expect_product(x, w, multiply(*backend, x, *prepared, out_type));
          }
        }
      }
    }
  }
}

TEST(Product, MatchesDoublePrecisionUnderEveryInstructionSet) {
  Random random(2);
  for_each_instruction_set([&](const std::string&) {
    const auto backend = make_backend(DType::bfloat16, true);
    for (const DType type : kWeightTypes) {
      const HostWeight w = random_weight(random, type, 100, 200);
      for (const int64_t rows : {1, 2, 5, 6, 7, 20}) {
        const HostMatrix x = random_matrix(random, DType::bfloat16, rows, 200);
        expect_product(x, w, multiply(*backend, x, *prepare(*backend, w), DType::float32));
      }
    }
  });
}

TEST(Product, ReadsAndWritesStridedRows) {
  Random random(3);
  for (const bool deterministic : {false, true}) {
    const auto backend = make_backend(DType::float32, deterministic);
    const HostWeight w = random_weight(random, DType::float32, 70, 40);
    HostMatrix x(DType::float32, 9, 40, 53);
    for (int64_t r = 0; r < 9; ++r) {
      for (int64_t c = 0; c < 40; ++c) x.set(r, c, static_cast<float>(r - c) / 7);
    }
    HostMatrix out(DType::float32, 9, 70, 75);
    for (int64_t r = 0; r < 9; ++r) {
      for (int64_t c = 70; c < 75; ++c) out.set(r, c, 3.0F);
    }
    backend->product(x.view(), *prepare(*backend, w), out.view());
    expect_product(x, w, out);
    for (int64_t r = 0; r < 9; ++r) {
      for (int64_t c = 70; c < 75; ++c) ASSERT_EQ(out.at(r, c), 3.0F);
    }
  }
}

TEST(Product, NoRowsIsNoWork) {
  Random random(4);
  const auto backend = make_backend(DType::float32, false);
  const HostWeight w = random_weight(random, DType::float32, 10, 10);
  const HostMatrix x(DType::float32, 0, 10);
  multiply(*backend, x, *prepare(*backend, w), DType::float32);
}

// x = 1 at one input, 0 elsewhere, reads one column of the weight back: each of the 254 finite codes must
// come out exactly, whether decoded in registers (one row) or by way of the cache (many rows).
TEST(Product, DecodesEveryFp8CodeExactly) {
  HostWeight w;
  w.dtype = DType::float8_e4m3;
  w.out = 256;
  w.in = 4;
  w.scales = {0.5F, 2.0F};
  w.bytes.resize(256 * 4);
  for (size_t code = 0; code < 256; ++code) {
    for (size_t i = 0; i < 4; ++i)
      w.bytes[code * 4 + i] = static_cast<std::byte>((code & 0x7f) == 0x7f ? 0 : code);
  }
  for_each_instruction_set([&](const std::string&) {
    const auto backend = make_backend(DType::float32, true);
    const auto prepared = prepare(*backend, w);
    for (const int64_t rows : {4, 40}) {
      HostMatrix x(DType::float32, rows, 4);
      for (int64_t r = 0; r < rows; ++r) x.set(r, r % 4, 1.0F);
      const HostMatrix out = multiply(*backend, x, *prepared, DType::float32);
      for (int64_t code = 0; code < 256; ++code) {
        if ((code & 0x7f) == 0x7f) continue;
        const float exact = float8_e4m3_to_float(static_cast<uint8_t>(code)) * (code < 128 ? 0.5F : 2.0F);
        for (int64_t r = 0; r < rows; ++r) ASSERT_EQ(out.at(r, code), exact) << "code " << code;
      }
    }
  });
}

// The order that the header of gemm.h promises, spelt out with scalar fused multiply-adds.
float chain_by_hand(const HostMatrix& x, int64_t row, const HostWeight& w, int64_t output) {
  float sum = 0;
  if (w.dtype != DType::float8_e4m3) {
    for (int64_t k = 0; k < w.in; ++k) sum = std::fma(x.at(row, k), static_cast<float>(w.at(output, k)), sum);
    return sum;
  }
  const int64_t blocks_in = (w.in + w.block - 1) / w.block;
  for (int64_t b = 0; b < blocks_in; ++b) {
    float block = 0;
    for (int64_t k = b * w.block; k < std::min<int64_t>(w.in, (b + 1) * w.block); ++k) {
      const auto code = static_cast<uint8_t>(w.bytes[static_cast<size_t>(output * w.in + k)]);
      block = std::fma(x.at(row, k), float8_e4m3_to_float(code), block);
    }
    sum = std::fma(block, w.scales[static_cast<size_t>(output / w.block * blocks_in + b)], sum);
  }
  return sum;
}

TEST(DeterministicProduct, IsTheChainThatTheHeaderPromises) {
  Random random(5);
  for_each_instruction_set([&](const std::string& name) {
    if (!has_fused_multiply_add(name)) return;
    const auto backend = make_backend(DType::float32, true, 2);
    for (const DType type : kWeightTypes) {
      const HostWeight w = random_weight(random, type, 130, 333);
      const HostMatrix x = random_matrix(random, DType::float32, 9, 333);
      const HostMatrix out = multiply(*backend, x, *prepare(*backend, w), DType::float32);
      for (int64_t r = 0; r < x.rows; ++r) {
        for (int64_t n = 0; n < w.out; ++n) ASSERT_EQ(out.at(r, n), chain_by_hand(x, r, w, n));
      }
    }
  });
}

// Rows at shifting places of batches of 1 to 70 rows, on 1 to 3 threads, on each instruction set with fused
// multiply-adds: always the bits that the row has alone.
TEST(DeterministicProduct, BitsDependOnNothingButTheRow) {
  Random random(6);
  constexpr int64_t kRows = 70;
  for (const DType activations : kActivationTypes) {
    for (const DType type : kWeightTypes) {
      const HostWeight w = random_weight(random, type, 150, 280);
      const HostMatrix x = random_matrix(random, activations, kRows, 280);
      std::vector<std::vector<std::byte>> alone;
      for_each_instruction_set([&](const std::string& name) {
        if (!has_fused_multiply_add(name)) return;
        for (const int threads : {1, 2, 3}) {
          const auto backend = make_backend(activations, true, threads);
          const auto prepared = prepare(*backend, w);
          for (int64_t rows = 1; rows <= kRows; rows += rows < 16 ? 1 : 9) {
            HostMatrix batch(activations, rows, 280);
            for (int64_t r = 0; r < rows; ++r) {
              for (int64_t c = 0; c < 280; ++c) batch.set(r, c, x.at((r * 3 + rows) % kRows, c));
            }
            const HostMatrix out = multiply(*backend, batch, *prepared, DType::float32);
            if (alone.empty()) {
              for (int64_t r = 0; r < kRows; ++r) {
                HostMatrix one(activations, 1, 280);
                for (int64_t c = 0; c < 280; ++c) one.set(0, c, x.at(r, c));
                alone.push_back(multiply(*backend, one, *prepared, DType::float32).row_bits(0));
              }
            }
            for (int64_t r = 0; r < rows; ++r) {
              ASSERT_EQ(out.row_bits(r), alone[static_cast<size_t>((r * 3 + rows) % kRows)])
                  << name << ", " << threads << " threads, row " << r << " of " << rows;
            }
          }
        }
      });
    }
  }
}

TEST(Embed, ReadsRowsBackExactlyFromTheTableThatTheHeadMultipliesWith) {
  Random random(7);
  for (const DType type : kWeightTypes) {
    const auto backend = make_backend(DType::float32, false, 2);
    const HostWeight table = random_weight(random, type, 131, 77);
    const auto prepared = prepare(*backend, table);
    const std::vector<int32_t> tokens = {0, 130, 63, 64, 5, 5};
    HostMatrix out(DType::float32, static_cast<int64_t>(tokens.size()), 77);
    backend->embed(tokens, *prepared, out.view());
    for (size_t t = 0; t < tokens.size(); ++t) {
      for (int64_t c = 0; c < 77; ++c) {
        ASSERT_EQ(out.at(static_cast<int64_t>(t), c), static_cast<float>(table.at(tokens[t], c)));
      }
    }
    const HostMatrix x = random_matrix(random, DType::float32, 2, 77);
    expect_product(x, table, multiply(*backend, x, *prepared, DType::float32));
    backend->embed({}, *prepared, HostMatrix(DType::float32, 0, 77).view());
  }
}

}  // namespace
}  // namespace sluice::compute

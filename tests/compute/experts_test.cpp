// The experts of a layer against double precision, and their bits in any company.
#include <gtest/gtest.h>

#include <cmath>

#include "support.h"

namespace sluice::compute {
namespace {

constexpr DType kWeightTypes[] = {DType::float32, DType::bfloat16, DType::float8_e4m3};

struct HostExpert {
  HostWeight gate, up, down;
};

std::vector<HostExpert> random_experts(Random& random, DType type, int count, int64_t hidden, int64_t inter) {
  std::vector<HostExpert> experts;
  const float scale = 1.0F / std::sqrt(static_cast<float>(hidden));
  for (int e = 0; e < count; ++e) {
    experts.push_back({random_weight(random, type, inter, hidden, scale),
                       random_weight(random, type, inter, hidden, scale),
                       random_weight(random, type, hidden, inter, scale)});
  }
  return experts;
}

std::unique_ptr<Experts> prepare(Backend& backend, const std::vector<HostExpert>& experts) {
  std::vector<ExpertSource> sources;
  for (const HostExpert& e : experts) sources.push_back({e.gate.source(), e.up.source(), e.down.source()});
  auto prepared = backend.prepare_experts(sources);
  EXPECT_TRUE(prepared.ok()) << prepared.status().message();
  return std::move(prepared).value();
}

// Rows of x assigned to experts: offsets[e] .. offsets[e + 1] of `row_of`.
struct Assignment {
  std::vector<int32_t> offsets;
  std::vector<int64_t> row_of;
};

HostMatrix run(Backend& backend, const Experts& experts, const Assignment& assignment, const HostMatrix& x) {
  std::vector<const std::byte*> rows;
  for (const int64_t row : assignment.row_of) rows.push_back(x.view().row_bytes(row));
  HostMatrix out(DType::float32, static_cast<int64_t>(rows.size()), x.cols);
  backend.experts(experts, assignment.offsets, rows, x.dtype, out.view());
  EXPECT_TRUE(backend.synchronize().ok());
  return out;
}

std::vector<double> expert_by_hand(const HostExpert& expert, const HostMatrix& x, int64_t row) {
  const int64_t hidden = x.cols;
  const int64_t inter = expert.gate.out;
  std::vector<double> inner;
  for (int64_t i = 0; i < inter; ++i) {
    double gate = 0;
    double up = 0;
    for (int64_t k = 0; k < hidden; ++k) {
      gate += static_cast<double>(x.at(row, k)) * expert.gate.at(i, k);
      up += static_cast<double>(x.at(row, k)) * expert.up.at(i, k);
    }
    inner.push_back(gate / (1 + std::exp(-gate)) * up);
  }
  std::vector<double> out;
  for (int64_t n = 0; n < hidden; ++n) {
    double sum = 0;
    for (int64_t i = 0; i < inter; ++i) sum += inner[static_cast<size_t>(i)] * expert.down.at(n, i);
    out.push_back(sum);
  }
  return out;
}

// Relative error of a row, l2.
double row_error(const HostMatrix& out, int64_t row, const std::vector<double>& exact) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    difference += std::pow(static_cast<double>(out.at(row, static_cast<int64_t>(i))) - exact[i], 2);
    norm += exact[i] * exact[i];
  }
  return std::sqrt(difference / norm);
}

TEST(Experts, MatchDoublePrecisionForAllTypesAndRaggedShapes) {
  Random random(1);
  struct Shape {
    int64_t hidden, inter;
  };
  for (const Shape shape : {Shape{128, 64}, Shape{96, 100}, Shape{200, 30}, Shape{64, 192}}) {
    for (const DType activations : {DType::float32, DType::bfloat16}) {
      const auto backend = make_backend(activations, false, 2);
      for (const DType type : kWeightTypes) {
        SCOPED_TRACE(testing::Message() << dtype_name(activations) << " x " << dtype_name(type) << " "
                                        << shape.hidden << " / " << shape.inter);
        const auto experts = random_experts(random, type, 4, shape.hidden, shape.inter);
        const auto prepared = prepare(*backend, experts);
        const HostMatrix x = random_matrix(random, activations, 20, shape.hidden);
        // Expert 0 has one row, 1 none, 2 eight, 3 many; some rows go to several experts.
        Assignment assignment{{0, 1, 1, 9, 29}, {3, 0, 1, 2, 3, 4, 5, 6, 7}};
        for (int64_t r = 0; r < 20; ++r) assignment.row_of.push_back(r);
        const HostMatrix out = run(*backend, *prepared, assignment, x);
        const double tolerance = activations == DType::float32 ? 5e-6 : 5e-3;
        for (size_t e = 0; e < 4; ++e) {
          for (int32_t p = assignment.offsets[e]; p < assignment.offsets[e + 1]; ++p) {
            const auto exact = expert_by_hand(experts[e], x, assignment.row_of[static_cast<size_t>(p)]);
            ASSERT_LT(row_error(out, p, exact), tolerance) << "pair " << p;
          }
        }
      }
    }
  }
}

TEST(Experts, MayBeNoneAndMayHaveNoRows) {
  Random random(2);
  const auto backend = make_backend(DType::float32, false);
  const auto none = prepare(*backend, {});
  EXPECT_EQ(none->count(), 0);
  const HostMatrix x = random_matrix(random, DType::float32, 2, 32);
  EXPECT_EQ(run(*backend, *none, {{0}, {}}, x).rows, 0);
  const auto two = prepare(*backend, random_experts(random, DType::float32, 2, 32, 32));
  EXPECT_EQ(two->count(), 2);
  EXPECT_EQ(run(*backend, *two, {{0, 0, 0}, {}}, x).rows, 0);
}

TEST(Experts, KeepFp8WeightsAtOneByteEach) {
  Random random(3);
  const auto backend = make_backend(DType::bfloat16, false);
  const auto experts = prepare(*backend, random_experts(random, DType::float8_e4m3, 2, 256, 128));
  const size_t weights = 2 * 3 * 256 * 128;
  EXPECT_GE(experts->bytes(), weights);
  EXPECT_LE(experts->bytes(), weights + weights / 100);
}

// A pair's bits: whatever other rows its expert has, on any number of threads and any instruction set with
// fused multiply-adds. Both modes use the same kernels.
TEST(Experts, BitsDependOnNothingButTheRow) {
  Random random(4);
  constexpr int64_t kHidden = 160;
  for (const DType activations : {DType::float32, DType::bfloat16}) {
    for (const DType type : kWeightTypes) {
      const auto experts = random_experts(random, type, 3, kHidden, 100);
      const HostMatrix x = random_matrix(random, activations, 70, kHidden);
      std::vector<std::vector<std::byte>> alone;
      for_each_instruction_set([&](const std::string& name) {
        if (!has_fused_multiply_add(name)) return;
        for (const int threads : {1, 2, 3}) {
          const auto backend = make_backend(activations, true, threads);
          const auto prepared = prepare(*backend, experts);
          if (alone.empty()) {
            for (int64_t r = 0; r < 70; ++r) {
              alone.push_back(run(*backend, *prepared, {{0, 0, 1, 1}, {r}}, x).row_bits(0));
            }
          }
          for (const int32_t rows : {2, 5, 6, 7, 13, 70}) {
            // Expert 1 has `rows` rows; its neighbours have others.
            Assignment assignment{{0, 3, 3 + rows, 5 + rows}, {1, 2, 3}};
            for (int32_t r = 0; r < rows; ++r) assignment.row_of.push_back((r * 7 + rows) % 70);
            assignment.row_of.push_back(8);
            assignment.row_of.push_back(9);
            const HostMatrix out = run(*backend, *prepared, assignment, x);
            for (int32_t r = 0; r < rows; ++r) {
              ASSERT_EQ(out.row_bits(3 + r), alone[static_cast<size_t>((r * 7 + rows) % 70)])
                  << name << ", " << threads << " threads, row " << r << " of " << rows;
            }
          }
        }
      });
    }
  }
}

TEST(Experts, RefuseShapesThatDisagree) {
  Random random(5);
  const auto backend = make_backend(DType::float32, false);
  auto experts = random_experts(random, DType::float32, 2, 32, 48);
  experts[1].down = random_weight(random, DType::float32, 32, 40);
  std::vector<ExpertSource> sources;
  for (const HostExpert& e : experts) sources.push_back({e.gate.source(), e.up.source(), e.down.source()});
  const auto refused = backend->prepare_experts(sources);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().message(), "down of local expert 1 has shape (32, 40); it must be (32, 48)");
}

}  // namespace
}  // namespace sluice::compute

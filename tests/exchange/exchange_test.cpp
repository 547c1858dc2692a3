// Dispatch and combine against the plain reference, bit for bit, over a network that delivers in any order
// and over the real providers.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "cluster.h"

namespace sluice::exchange::test {
namespace {

// What each rank brings to one exchange; the reference works on the same.
std::vector<Tokens> draw_all(uint64_t seed, const Shape& shape, Load load, const std::vector<int>& counts) {
  std::mt19937_64 random(seed);
  std::vector<Tokens> all;
  for (const int count : counts) all.push_back(draw_tokens(random, shape, count, load));
  return all;
}

struct Mode {
  DType wire;
  bool exact;
  Carrier carrier;
};

std::vector<Mode> modes(const std::vector<Carrier>& carriers) {
  std::vector<Mode> all;
  for (const Carrier carrier : carriers) {
    for (const DType wire : {DType::float32, DType::bfloat16}) {
      for (const bool exact : {true, false}) all.push_back({wire, exact, carrier});
    }
  }
  return all;
}

std::string mode_name(const testing::TestParamInfo<Mode>& info) {
  return fmt::format("{}_{}_{}", carrier_name(info.param.carrier), dtype_name(info.param.wire),
                     info.param.exact ? "exact" : "reduced");
}

void expect_reference(const Shape& shape, Carrier carrier, uint64_t seed, Load load,
                      const std::vector<int>& counts) {
  SCOPED_TRACE(fmt::format("{}, {}, seed {}", describe(shape), carrier_name(carrier), seed));
  Cluster cluster(shape, seed, carrier);
  const auto all = draw_all(seed, shape, load, counts);
  std::vector<Outcome> outcomes(counts.size());
  cluster.run([&](int rank, Exchange& exchange) {
    const auto at = static_cast<size_t>(rank);
    outcomes[at] = exchange_once(exchange, cluster.placement(), rank, all[at]);
  });
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    ASSERT_TRUE(outcomes[rank].status.ok()) << outcomes[rank].status.message();
    ASSERT_EQ(bits_of(outcomes[rank].out), bits_of(expected_result(shape, cluster.placement(), all[rank])))
        << "rank " << rank;
  }
}

// Exchanges with routing, loads and counts that change from one to the next.
void run_sequence(Cluster& cluster, int exchanges) {
  const Shape& shape = cluster.shape();
  cluster.run([&](int rank, Exchange& exchange) {
    std::mt19937_64 random(static_cast<uint64_t>(rank) + 1);
    for (int seq = 0; seq < exchanges; ++seq) {
      const int count = static_cast<int>(random() % static_cast<uint64_t>(shape.max_tokens + 1));
      const auto load = static_cast<Load>(seq % 3);
      const auto tokens = draw_tokens(random, shape, count, load);
      const auto outcome = exchange_once(exchange, cluster.placement(), rank, tokens);
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
      ASSERT_EQ(bits_of(outcome.out), bits_of(expected_result(shape, cluster.placement(), tokens)))
          << describe(shape) << ", rank " << rank << ", exchange " << seq;
    }
  });
}

class ExchangeTest : public testing::TestWithParam<Mode> {
 protected:
  Shape shape(int ranks, int experts, int top_k, int hidden, int max_tokens) const {
    return make_shape(ranks, experts, top_k, hidden, max_tokens, GetParam().wire, GetParam().exact);
  }
  void expect_reference(const Shape& shape, uint64_t seed, Load load, const std::vector<int>& counts) const {
    test::expect_reference(shape, GetParam().carrier, seed, load, counts);
  }
  Cluster cluster(const Shape& shape, uint64_t seed) const {
    return Cluster(shape, seed, GetParam().carrier);
  }
};

// Connecting over tcp takes a while, so there one sequence stands for all.
class TcpTest : public ExchangeTest {};

// What depends on the arithmetic and the routing more than on what carries the puts.
class ArithmeticTest : public ExchangeTest {};

INSTANTIATE_TEST_SUITE_P(Modes, ExchangeTest, testing::ValuesIn(modes({Carrier::scrambled, Carrier::local})),
                         mode_name);
INSTANTIATE_TEST_SUITE_P(Modes, TcpTest, testing::ValuesIn(modes({Carrier::tcp})), mode_name);
INSTANTIATE_TEST_SUITE_P(Modes, ArithmeticTest, testing::ValuesIn(modes({Carrier::scrambled})), mode_name);

TEST_P(ArithmeticTest, EqualsReferenceForAnyHiddenSize) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const int hidden : {1, 7, 100, 2048}) {
      const std::vector<int> counts(static_cast<size_t>(ranks), 5);
      expect_reference(shape(ranks, 9, 3, hidden, 5), 10, Load::uniform, counts);
    }
  }
}

TEST_P(ArithmeticTest, EqualsReferenceForAnyTopK) {
  for (const int top_k : {1, 2, 8, 15, 16}) {
    expect_reference(shape(3, 17, top_k, 33, 6), 20, Load::uniform, {6, 3, 4});
    expect_reference(shape(1, 17, top_k, 33, 6), 20, Load::uniform, {6});
  }
}

TEST_P(ExchangeTest, EqualsReferenceUnderUnevenLoads) {
  // All tokens to the first experts, so to one rank alone.
  expect_reference(shape(4, 16, 4, 40, 12), 30, Load::one_expert_first, {12, 12, 12, 12});
  expect_reference(shape(4, 6, 1, 40, 12), 31, Load::one_expert_first, {12, 12, 12, 12});
  expect_reference(shape(3, 7, 3, 40, 12), 32, Load::skewed, {12, 1, 7});
  // One rank, several or all without tokens.
  expect_reference(shape(4, 16, 4, 40, 12), 33, Load::uniform, {12, 0, 5, 12});
  expect_reference(shape(4, 16, 4, 40, 12), 34, Load::uniform, {0, 0, 3, 0});
  expect_reference(shape(4, 16, 4, 40, 12), 35, Load::uniform, {0, 0, 0, 0});
  expect_reference(shape(1, 16, 4, 40, 12), 36, Load::uniform, {0});
  // One expert a rank, and every expert chosen.
  expect_reference(shape(4, 4, 4, 40, 12), 37, Load::uniform, {12, 12, 12, 12});
}

TEST_P(ExchangeTest, HalvesAreReusedOverHundredsOfExchanges) {
  for (int ranks = 2; ranks <= 4; ++ranks) {
    Cluster cluster = this->cluster(shape(ranks, 11, 3, 24, 6), 40 + static_cast<uint64_t>(ranks));
    run_sequence(cluster, 100);
  }
}

TEST_P(TcpTest, EqualsReferenceOverManyExchanges) {
  Cluster cluster = this->cluster(shape(4, 11, 3, 300, 6), 45);
  run_sequence(cluster, 40);
}

TEST_P(ArithmeticTest, TakesBfloat16Rows) {
  const Shape shape = this->shape(2, 8, 2, 100, 6);
  Cluster cluster = this->cluster(shape, 50);
  cluster.run([&](int rank, Exchange& exchange) {
    std::mt19937_64 random(static_cast<uint64_t>(rank) + 1);
    Tokens tokens = draw_tokens(random, shape, 6, Load::uniform);
    for (float& value : tokens.x) value = round_to(DType::bfloat16, value);
    const auto outcome = exchange_once(exchange, cluster.placement(), rank, tokens, DType::bfloat16);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_EQ(bits_of(outcome.out), bits_of(expected_result(shape, cluster.placement(), tokens)));
  });
}

TEST_P(ExchangeTest, FlagsAreTheOrOfAllRanks) {
  const Shape shape = this->shape(3, 6, 2, 8, 2);
  Cluster cluster = this->cluster(shape, 60);
  cluster.run([&](int rank, Exchange& exchange) {
    const auto any = [&](StepFlags flags) {
      const auto outcome =
          exchange_once(exchange, cluster.placement(), rank, Tokens{}, DType::float32, 0, flags);
      EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
      return std::pair(outcome.any.has_work, outcome.any.wants_epoch);
    };
    EXPECT_EQ(any({}), std::pair(false, false));
    for (int chosen = 0; chosen < 3; ++chosen) {
      EXPECT_EQ(any({.has_work = rank == chosen}), std::pair(true, false));
      EXPECT_EQ(any({.wants_epoch = rank == chosen}), std::pair(false, true));
      EXPECT_EQ(any({.has_work = rank == chosen, .wants_epoch = rank != chosen}), std::pair(true, true));
    }
    EXPECT_EQ(any({}), std::pair(false, false));
  });
}

// The results of the same tokens, however many ranks share the experts.
TEST(ExactExchange, BitsDoNotDependOnTheNumberOfRanks) {
  for (const DType wire : {DType::float32, DType::bfloat16}) {
    constexpr int kTokens = 12;
    const Shape whole = make_shape(1, 13, 4, 70, kTokens, wire, true);
    std::mt19937_64 random(70);
    const Tokens all = draw_tokens(random, whole, kTokens, Load::uniform);
    std::optional<std::vector<uint32_t>> first;
    for (int ranks = 1; ranks <= 4; ++ranks) {
      Shape shape = whole;
      shape.ranks = ranks;
      Cluster cluster(shape, static_cast<uint64_t>(ranks));
      std::vector<float> joined(all.x.size());
      cluster.run([&](int rank, Exchange& exchange) {
        const int share = kTokens / ranks;
        const auto cut = [&](const auto& from, int width) {
          return std::vector(from.begin() + rank * share * width, from.begin() + (rank + 1) * share * width);
        };
        const Tokens mine{share, cut(all.x, whole.hidden), cut(all.experts, whole.top_k),
                          cut(all.weights, whole.top_k)};
        const auto outcome = exchange_once(exchange, cluster.placement(), rank, mine);
        ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
        std::copy(outcome.out.begin(), outcome.out.end(), joined.begin() + rank * share * whole.hidden);
      });
      if (!first) first = bits_of(joined);
      EXPECT_EQ(bits_of(joined), *first) << ranks << " ranks, " << dtype_name(wire);
    }
  }
}

TEST(Received, IsGroupedByExpertThenSourceThenTheSourcesOrder) {
  const Shape shape = make_shape(2, 4, 2, 1, 3, DType::float32, true);
  Cluster cluster(shape, 80);
  cluster.run([&](int rank, Exchange& exchange) {
    // Row values name (source, token). Rank 0 holds experts 0 and 1.
    const float base = static_cast<float>(10 * (rank + 1));
    const std::vector<float> x{base, base + 1, base + 2};
    const std::vector<int32_t> experts{1, 0, /**/ 3, 1, /**/ 0, 2};
    const std::vector<float> weights(6, 1.0F);
    const auto received = exchange.dispatch(0, ConstMatrix(x.data(), DType::float32, 3, 1, 1), experts,
                                            weights, {}, Deadline::after(seconds(60)));
    ASSERT_TRUE(received.ok()) << received.status().message();
    std::vector<float> rows;
    for (const std::byte* row : received->rows) rows.push_back(*reinterpret_cast<const float*>(row));
    if (rank == 0) {
      EXPECT_THAT(received->expert_offsets, testing::ElementsAre(0, 4, 8));
      EXPECT_THAT(rows, testing::ElementsAre(10, 12, 20, 22, 10, 11, 20, 21));
    } else {
      EXPECT_THAT(received->expert_offsets, testing::ElementsAre(0, 2, 4));
      EXPECT_THAT(rows, testing::ElementsAre(12, 22, 11, 21));
    }
    for (const std::byte* row : received->rows) EXPECT_EQ(reinterpret_cast<uintptr_t>(row) % 64, 0u);
    std::vector<float> out(3);
    const auto done =
        exchange.combine(ConstMatrix(rows.data(), DType::float32, received->pairs(), 1, 1),
                         Matrix{out.data(), DType::float32, 3, 1, 1}, Deadline::after(seconds(60)));
    ASSERT_TRUE(done.ok()) << done.message();
    EXPECT_THAT(out, testing::ElementsAre(2 * base, 2 * base + 2, 2 * base + 4));
  });
}

// Every byte that rank 0 sends in one exchange.
std::vector<std::byte> sent_by_rank_0(const Shape& shape, std::byte unwritten) {
  const auto placement = Placement::contiguous(shape.experts, shape.ranks).value();
  const auto needs = plan(shape, placement).value();
  FakeNetwork network({.ranks = 2,
                       .slab_bytes = {needs.dispatch_slab_bytes, needs.combine_slab_bytes},
                       .unwritten = unwritten});
  std::vector<std::byte> sent;  // by rank 0's thread alone
  network.tamper([&](int source, int, fabric::Kind, uint64_t, std::vector<std::byte>& bytes) {
    if (source == 0) sent.insert(sent.end(), bytes.begin(), bytes.end());
  });
  std::vector<std::unique_ptr<Exchange>> exchanges;  // all have joined before any sends
  for (int rank = 0; rank < 2; ++rank) {
    exchanges.push_back(Exchange::open(shape, placement, rank, 1, network.join(rank)).value());
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      std::mt19937_64 random(90);
      const auto outcome = exchange_once(*exchanges[static_cast<size_t>(rank)], placement, rank,
                                         draw_tokens(random, shape, 5, Load::uniform));
      EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return sent;
}

TEST_P(ArithmeticTest, EqualRoutingGivesEqualBytes) {
  const Shape shape = this->shape(2, 7, 3, 7, 5);
  const auto sent = sent_by_rank_0(shape, std::byte{0});
  EXPECT_GT(sent.size(), 128u);
  EXPECT_EQ(sent, sent_by_rank_0(shape, std::byte{0xff}));
}

TEST(Exchange, StridedRowsInAndOut) {
  const Shape shape = make_shape(1, 2, 1, 3, 2, DType::float32, false);
  auto exchange = Cluster(shape).open(0);
  const std::vector<float> x{1, 2, 3, -9, 4, 5, 6, -9};
  const std::vector<int32_t> experts{1, 0};
  const std::vector<float> weights{2, 3};
  const auto received = exchange->dispatch(0, ConstMatrix(x.data(), DType::float32, 2, 3, 4), experts,
                                           weights, {}, Deadline::after(seconds(1)));
  ASSERT_TRUE(received.ok());
  // Pair 0 is token 1's (expert 0), pair 1 token 0's.
  const std::vector<float> rows{40, 50, 60, -9, -9, 10, 20, 30, -9, -9};
  std::vector<float> out(10, 7);
  ASSERT_TRUE(exchange
                  ->combine(ConstMatrix(rows.data(), DType::float32, 2, 3, 5),
                            Matrix{out.data(), DType::float32, 2, 3, 5}, Deadline::after(seconds(1)))
                  .ok());
  EXPECT_THAT(out, testing::ElementsAre(20, 40, 60, 7, 7, 120, 150, 180, 7, 7));
}

}  // namespace
}  // namespace sluice::exchange::test

// A peer that sends nonsense: every count, index and length is refused by name, and nothing outside is
// touched.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <random>

#include "cluster.h"
#include "exchange/inbound.h"
#include "exchange/message.h"

namespace sluice::exchange::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

using Bytes = std::vector<std::byte>;

// Two ranks with two experts each; rank 1 sends rank 0 three rows and four pairs:
// (row, expert): (0, 0) (1, 1) (2, 1) (2, 0).
constexpr size_t kExperts = 2;
constexpr size_t kRows = 3;
constexpr size_t kPairs = 4;
Shape two_ranks(bool exact) { return make_shape(2, 4, 2, 4, 3, DType::float32, exact); }
const std::vector<int32_t> kChosen{0, 2, /**/ 1, 3, /**/ 1, 0};

struct Fault {
  const char* name;
  std::function<void(Bytes&, const DispatchLayout&)> spoil;
  const char* complaint;
};

void set(Bytes& bytes, size_t at, uint32_t value) { std::memcpy(bytes.data() + at, &value, sizeof(value)); }
void set_pair(Bytes& bytes, const DispatchLayout& at, size_t pair, uint32_t row, uint32_t expert) {
  set(bytes, at.pairs + pair * sizeof(PairEntry), row);
  set(bytes, at.pairs + pair * sizeof(PairEntry) + sizeof(uint32_t), expert);
}
auto header_field(size_t offset, uint32_t value) {
  return [=](Bytes& bytes, const DispatchLayout&) { set(bytes, offset, value); };
}
auto pair(size_t index, uint32_t row, uint32_t expert) {
  return [=](Bytes& bytes, const DispatchLayout& at) { set_pair(bytes, at, index, row, expert); };
}
auto size(size_t bytes_kept) {
  return [=](Bytes& bytes, const DispatchLayout&) { bytes.resize(bytes_kept); };
}

std::vector<Fault> dispatch_faults() {
  return {
      {"version", header_field(offsetof(DispatchHeader, version), 3), "version 3; right is 2"},
      {"unknown flag", header_field(offsetof(DispatchHeader, flags), 0x24), "mode flags 0x24; right is 0x4"},
      {"other mode", header_field(offsetof(DispatchHeader, flags), 0), "(float32, exact)"},
      {"other wire type", header_field(offsetof(DispatchHeader, flags), 0xc), "mode flags 0xc"},
      {"hidden", header_field(offsetof(DispatchHeader, hidden), 5), "hidden 5; right is 4"},
      {"experts", header_field(offsetof(DispatchHeader, experts), 3), "experts 3; right is 2"},
      {"too many rows", header_field(offsetof(DispatchHeader, rows), 4), "rows 4; right is at most 3"},
      {"absurd rows", header_field(offsetof(DispatchHeader, rows), ~0u), "rows 4294967295"},
      {"fewer rows", header_field(offsetof(DispatchHeader, rows), 2), "bytes"},
      {"too few pairs", header_field(offsetof(DispatchHeader, pairs), 2),
       "pairs 2; right is 3 to 6 for 3 rows"},
      {"too many pairs", header_field(offsetof(DispatchHeader, pairs), 7), "pairs 7"},
      {"absurd pairs", header_field(offsetof(DispatchHeader, pairs), ~0u), "pairs 4294967295"},
      {"pairs that padding fills", header_field(offsetof(DispatchHeader, pairs), 6), "pair 4: row 0"},
      {"nothing", size(0), "bytes 0; right is at least 64"},
      {"half a header", size(40), "bytes 40"},
      {"header only", size(64), "bytes 64; right is"},
      {"too long", size(384), "bytes 384; right is 320"},
      {"wrong count", [](Bytes& b, const DispatchLayout& at) { set(b, at.counts, 3); },
       "count of local expert 0: 3; right is 2"},
      {"absurd count", [](Bytes& b, const DispatchLayout& at) { set(b, at.counts + 4, ~0u); },
       "count of local expert 1: 4294967295"},
      {"expert of another rank", pair(0, 0, 2), "pair 0: expert 2; right is below 2"},
      {"absurd expert", pair(3, 2, ~0u), "pair 3: expert 4294967295"},
      {"row beyond", pair(3, 3, 0), "pair 3: row 3"},
      {"absurd row", pair(3, ~0u, 0), "pair 3: row 4294967295"},
      {"first row missing", pair(0, 1, 0), "pair 0: row 1"},
      {"row skipped", pair(1, 2, 1), "pair 1: row 2"},
      {"row taken up again", pair(3, 1, 0), "pair 3: row 1"},
      {"expert twice", pair(3, 2, 1), "pair 3: expert 1; right is named once by row 2"},
      {"row without a pair",
       [](Bytes& b, const DispatchLayout& at) {
         set_pair(b, at, 1, 0, 1);
         set_pair(b, at, 2, 1, 1);
         set_pair(b, at, 3, 1, 0);
       },
       "rows 3; right is 2, as many as its pairs name"},
  };
}

Tokens three_tokens() {
  Tokens tokens;
  tokens.count = 3;
  tokens.x.assign(12, 1.0F);
  tokens.experts = kChosen;
  tokens.weights.assign(6, 0.5F);
  return tokens;
}

TEST(BadPeer, DispatchIsRefusedByName) {
  const Shape shape = two_ranks(true);
  const DispatchLayout at = dispatch_layout(shape, kExperts, kRows, kPairs);
  for (const Fault& fault : dispatch_faults()) {
    SCOPED_TRACE(fault.name);
    Cluster cluster(shape);
    cluster.network().tamper([&](int source, int, fabric::Kind, uint64_t, Bytes& bytes) {
      if (source == 1) fault.spoil(bytes, at);
    });
    cluster.run([&](int rank, Exchange& exchange) {
      const Tokens tokens = three_tokens();
      const auto received =
          exchange.dispatch(5, ConstMatrix(tokens.x.data(), DType::float32, 3, 4, 4), tokens.experts,
                            tokens.weights, {}, Deadline::after(seconds(60)));
      if (rank == 1) {
        EXPECT_TRUE(received.ok()) << received.status().message();
        return;
      }
      EXPECT_EQ(received.status().code(), Code::data_loss);
      EXPECT_THAT(received.status().message(), HasSubstr(fault.complaint));
      EXPECT_THAT(received.status().message(),
                  StartsWith("rank 1, dispatch of layer 5 (exchange 0 of epoch 1): it sent dispatch "));
      ASSERT_TRUE(exchange.blame().has_value());
      EXPECT_EQ(exchange.blame()->rank, 1);
      EXPECT_EQ(exchange.blame()->layer, 5);
      EXPECT_EQ(exchange.blame()->parts_missing, 0);
    });
  }
}

TEST(BadPeer, CombineIsRefusedByName) {
  struct CombineFault {
    std::function<void(Bytes&)> spoil;
    const char* complaint;
  };
  const std::vector<CombineFault> faults{
      {[](Bytes& b) { set(b, offsetof(CombineHeader, version), 0); }, "version 0; right is 2"},
      {[](Bytes& b) { set(b, offsetof(CombineHeader, rows), 1); }, "rows 1; right is 2"},
      {[](Bytes& b) { set(b, offsetof(CombineHeader, rows), ~0u); }, "rows 4294967295"},
      {[](Bytes& b) { b.resize(64); }, "bytes 64; right is 192 for 2 rows"},
      {[](Bytes& b) { b.resize(256); }, "bytes 256"},
      {[](Bytes& b) { b.clear(); }, "bytes 0"},
  };
  for (const auto& fault : faults) {
    SCOPED_TRACE(fault.complaint);
    const Shape shape = two_ranks(true);
    Cluster cluster(shape);
    cluster.network().tamper([&](int source, int, fabric::Kind kind, uint64_t, Bytes& bytes) {
      if (source == 1 && kind == fabric::Kind::combine) fault.spoil(bytes);
    });
    cluster.run([&](int rank, Exchange& exchange) {
      const auto outcome = exchange_once(exchange, cluster.placement(), rank, three_tokens());
      if (rank == 1) {
        EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
        return;
      }
      EXPECT_EQ(outcome.status.code(), Code::data_loss);
      EXPECT_THAT(outcome.status.message(), HasSubstr(fault.complaint));
      ASSERT_TRUE(exchange.blame().has_value());
      EXPECT_EQ(exchange.blame()->rank, 1);
      EXPECT_EQ(exchange.blame()->phase, Phase::combine);
    });
  }
}

// A valid message of 0 to max_tokens rows for rank 0.
Bytes valid_message(const Shape& shape, const Placement& placement, std::mt19937_64& random) {
  const auto tokens = draw_tokens(random, shape, static_cast<int>(random() % 8), Load::uniform);
  Routing routing(shape, placement);
  EXPECT_TRUE(routing.build(tokens.experts, tokens.count).ok());
  const auto pairs = routing.pairs(0);
  const size_t experts = placement.experts_of(0).size();
  const DispatchLayout at = dispatch_layout(shape, experts, routing.rows(0).size(), pairs.size());
  Bytes bytes(at.end);
  DispatchHeader header{};
  header.version = kMessageVersion;
  header.flags = shape_flags(shape);
  header.hidden = static_cast<uint32_t>(shape.hidden);
  header.experts = static_cast<uint32_t>(experts);
  header.rows = static_cast<uint32_t>(routing.rows(0).size());
  header.pairs = static_cast<uint32_t>(pairs.size());
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::vector<uint32_t> counts(experts);
  for (const PairEntry& entry : pairs) ++counts[entry.expert];
  std::memcpy(bytes.data() + at.counts, counts.data(), experts * sizeof(uint32_t));
  if (!pairs.empty()) std::memcpy(bytes.data() + at.pairs, pairs.data(), pairs.size_bytes());
  return bytes;
}

// Whatever is accepted points into the message: every row is read to its end (under ASan a fault would show).
TEST(BadPeer, RandomDamageNeverPointsOutside) {
  for (const bool exact : {true, false}) {
    const Shape shape = make_shape(2, 7, 3, 5, 7, DType::float32, exact);
    const auto placement = Placement::contiguous(shape.experts, shape.ranks).value();
    Inbound inbound(shape, 1, static_cast<int>(placement.experts_of(0).size()));
    std::mt19937_64 random(99);
    int accepted = 0;
    int refused = 0;
    for (int round = 0; round < 20'000; ++round) {
      Bytes bytes = valid_message(shape, placement, random);
      const bool damage = round % 4 != 0;
      for (size_t i = 0; damage && i < 1 + random() % 3; ++i) {
        bytes[random() % bytes.size()] = static_cast<std::byte>(random() % 4 == 0 ? random() : random() % 9);
      }
      if (damage && random() % 8 == 0) bytes.resize(random() % (bytes.size() + 64));
      inbound.begin();
      StepFlags any;
      const Status added = inbound.add(0, bytes, any);
      ASSERT_TRUE(added.ok() || damage) << added.message();
      added.ok() ? ++accepted : ++refused;
      if (!added.ok()) continue;
      inbound.group();
      ASSERT_EQ(static_cast<size_t>(inbound.expert_offsets().back()), inbound.rows().size());
      for (const std::byte* row : inbound.rows()) {
        ASSERT_GE(row, bytes.data() + sizeof(DispatchHeader));
        ASSERT_LE(row + row_stride(shape), bytes.data() + bytes.size());
      }
    }
    EXPECT_GT(accepted, 5'000);
    EXPECT_GT(refused, 5'000);
  }
}

}  // namespace
}  // namespace sluice::exchange::test

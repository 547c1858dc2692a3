// The sending half of the proxy on a rail that refuses, completes in any order and fails at will.
#include "fabric/libfabric/sender.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace sluice::fabric::ofi {
namespace {

class WildRail final : public Rail {
 public:
  ssize_t write(const Write& write) override {
    ++attempts;
    if (broken.contains(write.peer)) return -ENOTCONN;
    if (random() % 100 < refuse_percent) return -EAGAIN;
    taken.push_back(write);
    under_way.push_back(write);
    const auto now = std::count_if(under_way.begin(), under_way.end(),
                                   [&](const Write& other) { return other.peer == write.peer; });
    most_under_way = std::max(most_under_way, static_cast<uint32_t>(now));
    return 0;
  }
  ssize_t poll(std::span<fi_cq_data_entry>) override { return 0; }
  bool read_error(fi_cq_err_entry&) override { return false; }
  // One of the writes under way, any.
  Write take_any() {
    const size_t i = random() % under_way.size();
    std::swap(under_way[i], under_way.back());
    const Write write = under_way.back();
    under_way.pop_back();
    return write;
  }

  std::mt19937 random{11};
  unsigned refuse_percent = 0;
  uint64_t attempts = 0;
  std::set<uint64_t> broken;
  std::vector<Write> taken;
  std::vector<Write> under_way;
  uint32_t most_under_way = 0;
};

class SenderTest : public testing::Test {
 protected:
  explicit SenderTest(size_t stripe_bytes = 1024) {
    options_.ranks = 4;
    options_.rank = 0;
    options_.epoch = 3;
    options_.slab_bytes = {20'000, 9'000};
    options_.stripe_bytes = stripe_bytes;
    layout_ = *WindowLayout::make(4, options_.slab_bytes, false);
    staging_ = std::make_unique<Staging>(Staging::create(layout_).value());
    std::vector<Target> targets;
    for (uint64_t peer = 0; peer < 4; ++peer) {
      targets.push_back({.peer = 100 + peer, .key = 7 + peer, .base = peer << 32});
    }
    sender_ =
        std::make_unique<Sender>(rail_, options_, *staging_, nullptr, targets, [this](int peer, int error) {
          failures_.push_back({peer, error});
        });
  }

  std::atomic<uint32_t>& busy(int peer, Kind kind, int half) {
    return staging_->slots(peer).busy[static_cast<size_t>(kind)][half];
  }
  void put(int peer, Kind kind, int half, uint64_t bytes) {
    busy(peer, kind, half) = 1;
    sender_->accept({.op = Order::put,
                     .kind = kind,
                     .half = half,
                     .peer = peer,
                     .offset = staging_->offset(staging_->slab(peer, kind, half)),
                     .bytes = bytes});
  }
  void finish() {
    while (!sender_->idle()) {
      sender_->post();
      if (!rail_.under_way.empty()) sender_->completed(rail_.take_any().context);
    }
  }

  Options options_;
  WindowLayout layout_;
  std::unique_ptr<Staging> staging_;
  WildRail rail_;
  std::vector<std::pair<int, int>> failures_;
  std::unique_ptr<Sender> sender_;
};

TEST_F(SenderTest, EveryByteIsWrittenExactlyOnceUnderRefusalsAndAnyCompletionOrder) {
  rail_.refuse_percent = 60;
  uint64_t rounds[4] = {};
  for (int round = 0; round < 300; ++round) {
    rail_.taken.clear();
    std::map<int, std::vector<std::tuple<Kind, int, uint64_t>>> puts;
    for (int peer = 1; peer < 4; ++peer) {
      for (Kind kind : {Kind::dispatch, Kind::combine}) {
        const uint64_t room = options_.slab_bytes[static_cast<size_t>(kind)];
        const uint64_t bytes = sizeof(SlabHeader) + rail_.random() % (room + 1);
        put(peer, kind, round & 1, bytes);
        puts[peer].push_back({kind, round & 1, bytes});
      }
    }
    finish();
    for (auto& [peer, orders] : puts) {
      for (auto [kind, half, bytes] : orders) {
        EXPECT_EQ(busy(peer, kind, half), 0u);
        std::vector<bool> sent(bytes, false);
        std::set<uint32_t> stripes;
        for (const Write& write : rail_.taken) {
          const auto it = decode_immediate(write.immediate);
          ASSERT_TRUE(it.has_value());
          if (write.peer != 100u + static_cast<uint64_t>(peer) || it->kind != static_cast<FragmentKind>(kind))
            continue;
          EXPECT_EQ(it->generation, 3u);
          EXPECT_EQ(it->half, static_cast<uint32_t>(half));
          EXPECT_EQ(it->part, static_cast<uint32_t>(round / 2 % 64));
          EXPECT_EQ(write.key, 7u + static_cast<uint64_t>(peer));
          EXPECT_TRUE(stripes.insert(it->stripe).second) << "a stripe was sent twice";
          const uint64_t at = static_cast<uint64_t>(
              write.source - reinterpret_cast<std::byte*>(staging_->slab(peer, kind, half)));
          EXPECT_EQ(write.address,
                    (static_cast<uint64_t>(peer) << 32) + layout_.slab_in_block(kind, half) + at);
          ASSERT_LE(at + write.length, bytes);
          for (size_t i = at; i < at + write.length; ++i) {
            ASSERT_FALSE(sent[i]);
            sent[i] = true;
          }
        }
        EXPECT_TRUE(std::all_of(sent.begin(), sent.end(), [](bool it) { return it; }));
      }
      ++rounds[peer];
    }
  }
  EXPECT_EQ(rounds[1], 300u);
  EXPECT_LE(rail_.most_under_way, Sender::kCredits);
  EXPECT_TRUE(failures_.empty());
}

TEST_F(SenderTest, ARefusalEndsThePeersTurn) {
  rail_.refuse_percent = 100;
  for (int peer = 1; peer < 4; ++peer) put(peer, Kind::dispatch, 0, 20'000);
  for (int pass = 1; pass <= 50; ++pass) {
    EXPECT_FALSE(sender_->post());
    EXPECT_TRUE(sender_->refused());
    EXPECT_EQ(rail_.attempts, 3u * static_cast<uint64_t>(pass)) << "one attempt a peer and pass";
  }
  rail_.refuse_percent = 0;
  finish();
  EXPECT_EQ(busy(2, Kind::dispatch, 0), 0u);
}

TEST_F(SenderTest, CreditsBoundWhatIsUnderWayToAPeerThatDoesNotComplete) {
  for (int half = 0; half < kHalves; ++half) {
    put(1, Kind::dispatch, half, 20'064);
    put(1, Kind::combine, half, 9'064);
  }
  for (int pass = 0; pass < 10; ++pass) sender_->post();
  EXPECT_GT(rail_.under_way.size(), 20u);
  EXPECT_LE(rail_.under_way.size(), Sender::kCredits);
  finish();
  for (int half = 0; half < kHalves; ++half) {
    EXPECT_EQ(busy(1, Kind::dispatch, half), 0u);
    EXPECT_EQ(busy(1, Kind::combine, half), 0u);
  }
}

TEST_F(SenderTest, ASlabIsGivenBackOnlyWithItsLastStripe) {
  put(1, Kind::dispatch, 0, 8'000);
  sender_->post();
  ASSERT_EQ(rail_.under_way.size(), 8u);
  while (rail_.under_way.size() > 1) {
    sender_->completed(rail_.take_any().context);
    EXPECT_EQ(busy(1, Kind::dispatch, 0), 1u);
    EXPECT_FALSE(sender_->take_released());
  }
  sender_->completed(rail_.take_any().context);
  EXPECT_EQ(busy(1, Kind::dispatch, 0), 0u);
  EXPECT_TRUE(sender_->take_released());
}

TEST_F(SenderTest, AFailedPeerGetsNothingMoreAndTheOthersGoOn) {
  put(1, Kind::dispatch, 0, 8'000);
  put(2, Kind::dispatch, 0, 8'000);
  sender_->post();
  auto at = std::find_if(rail_.under_way.begin(), rail_.under_way.end(),
                         [](const Write& it) { return it.peer == 101; });
  const Write failing = *at;
  rail_.under_way.erase(at);
  sender_->failed(failing.context, ECONNABORTED);
  ASSERT_EQ(failures_.size(), 1u);
  EXPECT_EQ(failures_[0], std::pair(1, ECONNABORTED));
  EXPECT_EQ(staging_->slots(1).error, ECONNABORTED);
  const size_t before = rail_.taken.size();
  put(1, Kind::combine, 0, 500);
  sender_->accept({.op = Order::wake, .peer = 1, .value = 5});
  finish();
  EXPECT_EQ(rail_.taken.size(), before) << "something was sent, or sent again, to a failed peer";
  EXPECT_EQ(busy(2, Kind::dispatch, 0), 0u);
  rail_.broken.insert(103);
  put(3, Kind::dispatch, 0, 100);
  sender_->post();
  ASSERT_EQ(failures_.size(), 2u);
  EXPECT_EQ(failures_[1], std::pair(3, ENOTCONN));
  EXPECT_TRUE(sender_->idle());
}

TEST_F(SenderTest, OneWakeIsUnreadAtATimeAndTheHighestIsNeverLost) {
  const auto wake = [&](uint64_t step) { sender_->accept({.op = Order::wake, .peer = 2, .value = step}); };
  wake(3);
  sender_->post();
  wake(9);
  wake(5);
  sender_->post();
  ASSERT_EQ(rail_.taken.size(), 1u);
  EXPECT_EQ(staging_->mailbox(2)->step, 3u);
  // The provider lets go: still unread.
  sender_->completed(rail_.take_any().context);
  sender_->post();
  EXPECT_EQ(rail_.taken.size(), 1u);
  const auto first = decode_immediate(rail_.taken[0].immediate);
  sender_->wake_acknowledged(2, (first->part + 1) % 64);  // of some other wake
  sender_->post();
  EXPECT_EQ(rail_.taken.size(), 1u);
  sender_->wake_acknowledged(2, first->part);
  sender_->post();
  ASSERT_EQ(rail_.taken.size(), 2u);
  EXPECT_EQ(staging_->mailbox(2)->step, 9u);
  EXPECT_EQ(staging_->mailbox(2)->check, ~uint64_t{9});
  const auto second = decode_immediate(rail_.taken[1].immediate);
  EXPECT_NE(second->part, first->part);
  // Read, but the provider still holds the staging bytes: they are not overwritten.
  sender_->wake_acknowledged(2, second->part);
  wake(12);
  sender_->post();
  EXPECT_EQ(rail_.taken.size(), 2u);
  EXPECT_EQ(staging_->mailbox(2)->step, 9u);
  finish();
  EXPECT_EQ(rail_.taken.size(), 3u);
  EXPECT_EQ(staging_->mailbox(2)->step, 12u);
}

TEST_F(SenderTest, AcknowledgementsAreEmptyWrites) {
  sender_->acknowledge_wake(3, 17);
  sender_->post();
  ASSERT_EQ(rail_.taken.size(), 1u);
  EXPECT_EQ(rail_.taken[0].length, 0u);
  const auto it = decode_immediate(rail_.taken[0].immediate);
  EXPECT_EQ(it->kind, FragmentKind::control);
  EXPECT_EQ(it->half, 1u);
  EXPECT_EQ(it->part, 17u);
}

TEST(Order, ComesBackFromItsWordsOrIsRefused) {
  const Order order{.op = Order::wake,
                    .kind = Kind::combine,
                    .half = 1,
                    .peer = 4095,
                    .offset = 1ull << 45,
                    .bytes = 1ull << 41,
                    .value = 1ull << 57};
  const auto words = encode_order(order);
  const auto back = decode_order(words);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(encode_order(*back), words);
  EXPECT_EQ(back->peer, 4095);
  EXPECT_FALSE(decode_order({0, 0, 0, 0}));
  EXPECT_FALSE(decode_order({1 | 2 << 4, 0, 0, 0}));
  EXPECT_FALSE(decode_order({1 | 1ull << 40, 0, 0, 0}));
}

}  // namespace
}  // namespace sluice::fabric::ofi

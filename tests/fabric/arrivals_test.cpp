// The receiving side with immediates made by hand: what a provider may deliver in the worst case.
#include "fabric/arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "fabric/slab.h"
#include "fabric/wire.h"

namespace sluice::fabric {
namespace {

class ArrivalsTest : public testing::Test {
 protected:
  ArrivalsTest() {
    options_.provider = "tcp";
    options_.ranks = 3;
    options_.rank = 1;
    options_.epoch = 13;  // generation 5
    options_.slab_bytes = {1000, 2000};
    auto layout = WindowLayout::make(3, options_.slab_bytes, false);
    window_ = Window::create(options_, *layout).value();
    arrivals_ = std::make_unique<Arrivals>(*window_, options_);
  }

  void place(int source, Kind kind, uint64_t seq, size_t bytes) {
    *window_->slab(source, kind, half_of(seq)) = slab_header(source, options_.epoch, seq, bytes);
  }
  Arrivals::Event deliver(Immediate it) { return arrivals_->deliver(*encode_immediate(it)); }
  bool arrived(int source, Kind kind, uint64_t seq) const {
    return has_arrived(window_->words(source).arrival[static_cast<size_t>(kind)][half_of(seq)], seq);
  }
  void expect_nothing_arrived() const {
    for (int source = 0; source < 3; ++source) {
      for (size_t kind = 0; kind < kKinds; ++kind) {
        for (size_t half = 0; half < kHalves; ++half)
          EXPECT_EQ(window_->words(source).arrival[kind][half], 0u);
      }
    }
  }

  Options options_;
  std::shared_ptr<Window> window_;
  std::unique_ptr<Arrivals> arrivals_;
};

TEST_F(ArrivalsTest, PublishesOnlyWhenEveryStripeIsHere) {
  std::mt19937 random(3);
  for (uint64_t seq = 0; seq < 400; ++seq) {
    std::vector<uint32_t> stripes(random() % 16 + 1);
    const auto count = static_cast<uint32_t>(stripes.size());
    for (uint32_t i = 0; i < count; ++i) stripes[i] = i;
    std::shuffle(stripes.begin(), stripes.end(), random);
    for (uint32_t i = 0; i < count; ++i) {
      EXPECT_FALSE(arrived(2, Kind::combine, seq));
      // The header is trusted only now: until the last stripe it may hold anything.
      if (i + 1 == count) place(2, Kind::combine, seq, 700);
      const Immediate it{.kind = FragmentKind::combine,
                         .generation = 5,
                         .source = 2,
                         .half = static_cast<uint32_t>(seq & 1),
                         .part = static_cast<uint32_t>(seq / 2 % 64),
                         .stripe = stripes[i],
                         .stripes = count};
      EXPECT_EQ(deliver(it).what, i + 1 == count ? Arrivals::Event::published : Arrivals::Event::nothing);
      EXPECT_EQ(deliver(it).what, Arrivals::Event::nothing);
    }
    EXPECT_TRUE(arrived(2, Kind::combine, seq));
    EXPECT_FALSE(arrived(2, Kind::combine, seq + 2));
  }
  EXPECT_EQ(window_->words(2).puts, 400u);
  EXPECT_EQ(window_->words(2).bytes, 400u * 764);
  EXPECT_EQ(arrivals_->malformed(), 0u);
}

TEST_F(ArrivalsTest, AFragmentRepeatedOneExchangeLaterChangesNothing) {
  const Immediate first{.generation = 5, .source = 0, .stripe = 1, .stripes = 2};
  Immediate other = first;
  other.stripe = 0;
  place(0, Kind::dispatch, 0, 8);
  deliver(first);
  EXPECT_EQ(deliver(other).what, Arrivals::Event::published);
  // Exchange 2 uses the same half. An old stripe 1 comes again, then the new stripe 0: it is not whole.
  deliver(first);
  place(0, Kind::dispatch, 2, 8);
  other.part = 1;
  EXPECT_EQ(deliver(other).what, Arrivals::Event::nothing);
  EXPECT_FALSE(arrived(0, Kind::dispatch, 2));
  EXPECT_EQ(arrivals_->duplicates(), 1u);
}

TEST_F(ArrivalsTest, StaleGenerationsAreDroppedAndCounted) {
  place(0, Kind::dispatch, 0, 8);
  for (uint32_t generation : {0u, 4u, 6u, 7u}) {
    EXPECT_EQ(deliver({.generation = generation, .source = 0}).what, Arrivals::Event::nothing);
    EXPECT_EQ(deliver({.kind = FragmentKind::control, .generation = generation, .source = 0}).what,
              Arrivals::Event::nothing);
  }
  expect_nothing_arrived();
  EXPECT_EQ(arrivals_->stale(), 8u);
  EXPECT_EQ(deliver({.generation = 5, .source = 0}).what, Arrivals::Event::published);
  EXPECT_EQ(arrivals_->stale(), 8u);
}

TEST_F(ArrivalsTest, ImpossibleImmediatesAreDroppedAndCounted) {
  deliver({.generation = 5, .source = 3});  // no such rank
  deliver({.generation = 5, .source = 1});  // this rank itself
  deliver({.kind = FragmentKind::fenced, .generation = 5, .source = 0});
  arrivals_->deliver(*encode_immediate({.generation = 5, .source = 0}) | 1u << 4);  // stripe 1 of 1
  expect_nothing_arrived();
  EXPECT_EQ(arrivals_->malformed(), 4u);
}

// Its reader gets an error that names the values, rather than nothing for ever.
TEST_F(ArrivalsTest, AnUnbelievableHeaderIsPublishedAsTheExpectedExchange) {
  place(0, Kind::dispatch, 0, 1001);
  deliver({.generation = 5, .source = 0});
  EXPECT_TRUE(arrived(0, Kind::dispatch, 0));
  EXPECT_EQ(window_->words(0).bytes, 1064u);
  const Status status =
      check_slab_header(*window_->slab(0, Kind::dispatch, 0), 0, Kind::dispatch, 13, 0, 1000);
  EXPECT_EQ(status.code(), Code::data_loss);
  EXPECT_THAT(status.message(),
              testing::HasSubstr("header of dispatch 0 from rank 0: bytes is 1001, expected at most 1000"));
  window_->slab(0, Kind::dispatch, 0)->magic = 7;
  deliver({.generation = 5, .source = 0, .part = 1});
  EXPECT_TRUE(arrived(0, Kind::dispatch, 2));
}

TEST_F(ArrivalsTest, WakesKeepTheHighestAndIgnoreTornMail) {
  Immediate it{.kind = FragmentKind::control, .generation = 5, .source = 2, .part = 9};
  *window_->mailbox(2) = {.step = 40, .check = ~uint64_t{40}};
  const auto event = deliver(it);
  EXPECT_EQ(event.what, Arrivals::Event::woken);
  EXPECT_EQ(event.source, 2);
  EXPECT_EQ(event.number, 9u);
  EXPECT_EQ(window_->words(2).wake, 40u);
  *window_->mailbox(2) = {.step = 39, .check = ~uint64_t{39}};
  deliver(it);
  EXPECT_EQ(window_->words(2).wake, 40u);
  *window_->mailbox(2) = {.step = 41, .check = ~uint64_t{40}};
  EXPECT_EQ(deliver(it).what, Arrivals::Event::nothing);
  EXPECT_EQ(window_->words(2).wake, 40u);
  it.half = 1;
  EXPECT_EQ(deliver(it).what, Arrivals::Event::wake_acked);
}

struct BadHeader {
  const char* what;
  void (*spoil)(SlabHeader&);
};

TEST(SlabHeader, EveryFieldIsCheckedWithBothValues) {
  const BadHeader cases[] = {
      {"magic is 1, expected", [](SlabHeader& h) { h.magic = 1; }},
      {"source is 9, expected 2", [](SlabHeader& h) { h.source = 9; }},
      {"epoch is 6, expected 7", [](SlabHeader& h) { h.epoch = 6; }},
      {"seq is 12, expected 10", [](SlabHeader& h) { h.seq = 12; }},
      {"parts is 2, expected 1", [](SlabHeader& h) { h.parts = 2; }},
      {"bytes is 101, expected at most 100", [](SlabHeader& h) { h.bytes = 101; }},
  };
  EXPECT_TRUE(check_slab_header(slab_header(2, 7, 10, 100), 2, Kind::combine, 7, 10, 100).ok());
  for (const BadHeader& bad : cases) {
    SlabHeader header = slab_header(2, 7, 10, 100);
    bad.spoil(header);
    const Status status = check_slab_header(header, 2, Kind::combine, 7, 10, 100);
    EXPECT_EQ(status.code(), Code::data_loss);
    EXPECT_THAT(status.message(),
                testing::HasSubstr(std::string("header of combine 10 from rank 2: ") + bad.what));
  }
}

}  // namespace
}  // namespace sluice::fabric

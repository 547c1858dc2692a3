// Exchanges over the simulated network, one seed after the other: every shape, type and mode, and bit for bit
// the reference's result. SLUICE_CHAOS_SEED=N replays one seed, SLUICE_CHAOS_SEEDS=N runs so many.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "cluster.h"
#include "fabric/immediate.h"
#include "simulated_network.h"
#include "turns.h"

namespace sluice::exchange::test {
namespace {

using fabric::chaos::SimulatedNetwork;
using fabric::chaos::Weather;
using testing::HasSubstr;

// All that a seed decides.
struct Trial {
  Shape shape;
  size_t stripe_bytes = 0;
  bool guard_pages = false;
  int exchanges = 6;
  Weather weather;

  static Trial drawn(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto between = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<uint64_t>(high - low + 1));
    };
    Trial trial;
    const int ranks = between(2, 6);
    const int experts = between(ranks, 40);
    const DType wire = random() % 2 == 0 ? DType::bfloat16 : DType::float32;
    trial.shape = make_shape(ranks, experts, between(1, std::min(experts, 16)), between(1, 70), between(1, 6),
                             wire, random() % 2 == 0);
    if (random() % 3 != 0) trial.stripe_bytes = static_cast<size_t>(between(64, 1500));
    trial.guard_pages = random() % 32 == 0;
    trial.weather = Weather::drawn(seed);
    return trial;
  }

  std::string text() const {
    return fmt::format("{}, stripes of {} bytes; {}", describe(shape), stripe_bytes, weather.text());
  }
};

// The ranks of a trial, driven by turns.
class Sea {
 public:
  explicit Sea(const Trial& trial)
      : placement_(Placement::contiguous(trial.shape.experts, trial.shape.ranks).value()),
        network_(options(trial, placement_), trial.weather) {
    std::vector<std::unique_ptr<fabric::Fabric>> fabrics;
    for (int rank = 0; rank < trial.shape.ranks; ++rank) {
      fabrics.push_back(network_.join(rank));
      fabrics_.push_back(fabrics.back().get());
    }
    for (int rank = 0; rank < trial.shape.ranks; ++rank) {
      auto exchange =
          Exchange::open(trial.shape, placement_, rank, 1, std::move(fabrics[static_cast<size_t>(rank)]));
      ranks_.push_back(std::make_unique<Turns>(std::move(exchange).value(), placement_, rank, trial.exchanges,
                                               trial.weather.seed * 100 + static_cast<uint64_t>(rank)));
    }
  }

  // Until all ranks are done, one has failed, or nothing more happens.
  void sail() {
    while (!done() && failure().ok()) {
      const size_t some = network_.random()() % ranks_.size();
      if (!is_out(some) && ranks_[some]->turn()) continue;
      if (network_.step()) continue;
      bool moved = false;
      for (size_t rank = 0; rank < ranks_.size(); ++rank) moved |= !is_out(rank) && ranks_[rank]->turn();
      if (!moved) return;
    }
  }

  // A rank whose caller stands still too.
  void take_out(int rank) { out_.push_back(static_cast<size_t>(rank)); }
  void bring_back(int rank) { std::erase(out_, static_cast<size_t>(rank)); }

  bool done() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->done(); });
  }
  Status failure() const {
    for (const auto& rank : ranks_) {
      if (!rank->status().ok()) return rank->status();
    }
    return {};
  }
  std::string progress() const {
    std::string text;
    for (const auto& rank : ranks_) text += fmt::format(" {}", rank->collected());
    return text;
  }
  SimulatedNetwork& network() { return network_; }
  Turns& rank(int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  fabric::Report report(int rank) const { return fabrics_[static_cast<size_t>(rank)]->report(); }

 private:
  static fabric::Options options(const Trial& trial, const Placement& placement) {
    const auto planned = plan(trial.shape, placement).value();
    fabric::Options options;
    options.ranks = trial.shape.ranks;
    options.epoch = 1;
    options.slab_bytes = {planned.dispatch_slab_bytes, planned.combine_slab_bytes};
    options.stripe_bytes = trial.stripe_bytes;
    options.guard_pages = trial.guard_pages;
    return options;
  }
  bool is_out(size_t rank) const { return std::find(out_.begin(), out_.end(), rank) != out_.end(); }

  Placement placement_;
  SimulatedNetwork network_;
  std::vector<fabric::Fabric*> fabrics_;
  std::vector<std::unique_ptr<Turns>> ranks_;
  std::vector<size_t> out_;
};

uint64_t number_of(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

testing::AssertionResult passes(uint64_t seed) {
  const Trial trial = Trial::drawn(seed);
  Sea sea(trial);
  sea.sail();
  if (sea.done()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "SLUICE_CHAOS_SEED=" << seed << " (" << trial.text() << "): "
                                     << (sea.failure().ok() ? "stands still" : sea.failure().message())
                                     << "; exchanges done by rank:" << sea.progress();
}

TEST(Chaos, EverySeedGivesTheReferencesBits) {
  if (const uint64_t one = number_of("SLUICE_CHAOS_SEED", 0); one != 0) {
    EXPECT_TRUE(passes(one));
    return;
  }
  const uint64_t seeds = number_of("SLUICE_CHAOS_SEEDS", 1000);
  for (uint64_t seed = 1; seed <= seeds; ++seed) ASSERT_TRUE(passes(seed));
}

// The same seed takes the same way, or a failure could not be replayed.
TEST(Chaos, ASeedReplays) {
  const auto trace = [] {
    Trial trial = Trial::drawn(77);
    trial.weather.duplicates = 300;
    Sea sea(trial);
    sea.sail();
    EXPECT_TRUE(sea.done());
    return std::pair(sea.network().random()(), sea.report(0).duplicate_fragments);
  };
  EXPECT_EQ(trace(), trace());
}

Trial calm(uint64_t seed) {
  Trial trial;
  trial.shape = make_shape(4, 8, 2, 16, 4, DType::bfloat16, false);
  trial.stripe_bytes = 256;
  trial.weather.seed = seed;
  return trial;
}

// What no protocol can mend must end in an error that names the right rank, never in silence or wrong bits.
TEST(Chaos, ALostAnnouncementMakesTheReceiverLate) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Trial trial = calm(seed);
    trial.exchanges = 40;
    trial.weather.lost = 10;
    Sea sea(trial);
    sea.sail();
    if (sea.done()) continue;
    ASSERT_TRUE(sea.failure().ok()) << sea.failure().message();
    // Somebody waits for one whose put is not whole; asked with a deadline, it says so.
    int late = 0;
    for (int rank = 0; rank < 4; ++rank) {
      Exchange& exchange = sea.rank(rank).exchange();
      if (sea.rank(rank).done()) continue;
      const bool in_dispatch = !exchange.receivable(Phase::dispatch);
      const bool in_combine = !exchange.receivable(Phase::combine);
      if (!in_dispatch && !in_combine) continue;
      const Status status =
          in_dispatch ? exchange.dispatch_receive(Deadline::after(0)).status()
                      : exchange.combine_receive(Matrix{nullptr, DType::float32, 0, 16, 16}, Deadline::after(0));
      if (status.code() == Code::deadline_exceeded && exchange.blame()) ++late;
    }
    EXPECT_GT(late, 0) << trial.text();
  }
}

TEST(Chaos, AFailedWriteNamesThePeer) {
  int failed = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Trial trial = calm(seed);
    trial.exchanges = 40;
    trial.weather.errors = 10;
    Sea sea(trial);
    sea.sail();
    if (sea.done()) continue;
    ASSERT_FALSE(sea.failure().ok()) << trial.text();
    EXPECT_EQ(sea.failure().code(), Code::unavailable) << sea.failure().message();
    ++failed;
  }
  EXPECT_GT(failed, 25);
}

TEST(Chaos, AWriteThatIsNeverReportedKeepsItsBytes) {
  int late = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Trial trial = calm(seed);
    trial.exchanges = 60;
    trial.weather.unreported = 10;
    Sea sea(trial);
    sea.sail();
    if (sea.done()) continue;
    ASSERT_FALSE(sea.failure().ok()) << trial.text();
    EXPECT_THAT(sea.failure().message(), HasSubstr("the network still holds the bytes of"));
    ++late;
  }
  EXPECT_GT(late, 5);
}

TEST(Chaos, ADeadPeerIsNamedByEverybody) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Trial trial = calm(seed);
    trial.exchanges = 1000;
    Sea sea(trial);
    for (int i = 0; i < 500; ++i) sea.network().step();
    sea.network().kill(2);
    sea.take_out(2);
    sea.sail();
    ASSERT_FALSE(sea.done());
    ASSERT_TRUE(sea.failure().ok()) << sea.failure().message();
    for (const int rank : {0, 1, 3}) {
      Exchange& exchange = sea.rank(rank).exchange();
      const Phase phase = exchange.receivable(Phase::dispatch) ? Phase::combine : Phase::dispatch;
      ASSERT_FALSE(exchange.receivable(phase)) << trial.text();
      const Status status =
          phase == Phase::dispatch
              ? exchange.dispatch_receive(Deadline::after(0)).status()
              : exchange.combine_receive(Matrix{nullptr, DType::float32, 0, 16, 16}, Deadline::after(0));
      EXPECT_EQ(status.code(), Code::deadline_exceeded) << status.message();
    }
  }
}

// A rank that stands still in mid-exchange costs time, no result.
TEST(Chaos, APausedRankGoesOnWhereItWas) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Trial trial = Trial::drawn(seed);
    trial.exchanges = 12;
    Sea sea(trial);
    const int paused = static_cast<int>(seed) % trial.shape.ranks;
    for (int i = 0; i < 200; ++i) {
      for (int rank = 0; rank < trial.shape.ranks; ++rank) sea.rank(rank).turn();
      sea.network().step();
    }
    sea.network().pause(paused);
    sea.take_out(paused);
    sea.sail();
    sea.network().resume(paused);
    sea.bring_back(paused);
    sea.sail();
    EXPECT_TRUE(sea.done()) << trial.text() << ": " << sea.failure().message();
  }
}

// Immediates of an earlier epoch's generation, as a rank that was paused through the change would send them.
TEST(Chaos, AStaleGenerationIsNeitherAppliedNorCounted) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Trial trial = calm(seed);
    trial.exchanges = 20;
    Sea sea(trial);
    std::mt19937_64 random(seed);
    const auto zombie = [&] {
      const fabric::Immediate it{.kind = static_cast<fabric::FragmentKind>(random() % 2),
                                 .generation = 0,
                                 .source = 3,
                                 .half = static_cast<uint32_t>(random() % 2),
                                 .part = static_cast<uint32_t>(random() % 64)};
      sea.network().announce(0, *fabric::encode_immediate(it));
    };
    for (int i = 0; i < 200; ++i) {
      if (i % 4 == 0) zombie();
      for (int rank = 0; rank < 4; ++rank) sea.rank(rank).turn();
      sea.network().step();
    }
    sea.sail();
    ASSERT_TRUE(sea.done()) << trial.text() << ": " << sea.failure().message();
    EXPECT_EQ(sea.report(0).stale_fragments, 50u);
    EXPECT_EQ(sea.report(0).malformed_fragments, 0u);
  }
}

}  // namespace
}  // namespace sluice::exchange::test

// What the caller of a Fabric relies on, the same on every provider.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "ranks.h"

namespace sluice::fabric {
namespace {

using testing::HasSubstr;

struct Setup {
  std::string provider;
  bool as_processes = false;  // local only: map windows by handle
  size_t stripe_bytes = 0;
};

std::string setup_name(const testing::TestParamInfo<Setup>& info) {
  return info.param.provider + (info.param.as_processes ? "_mapped" : "") +
         (info.param.stripe_bytes != 0 ? "_striped" : "");
}

class FabricTest : public testing::TestWithParam<Setup> {
 protected:
  Options options(int rank, int ranks, std::array<size_t, kKinds> slab_bytes = {4096 - 64, 8192 - 64}) const {
    Options options;
    options.provider = GetParam().provider;
    options.rank = rank;
    options.ranks = ranks;
    options.epoch = 5;
    options.slab_bytes = slab_bytes;
    options.connect_timeout = seconds(60);
    options.proof_bytes = 16 << 10;
    options.stripe_bytes = GetParam().stripe_bytes;
    options.guard_pages = true;
    return options;
  }

  // Opens one fabric a rank and runs `body` on each rank's thread.
  void with_fabrics(int ranks, std::array<size_t, kKinds> slab_bytes,
                    const std::function<void(Fabric&, Bootstrap&)>& body) const {
    run_ranks(ranks, [&](int rank, Bootstrap& hub) {
      AsProcesses processes(hub);
      Bootstrap& bootstrap = GetParam().as_processes ? static_cast<Bootstrap&>(processes) : hub;
      auto fabric = Fabric::open(options(rank, ranks, slab_bytes), bootstrap);
      ASSERT_TRUE(fabric.ok()) << "rank " << rank << ": " << fabric.status().message();
      body(**fabric, bootstrap);
      // As the exchange does: nobody leaves while another still waits for its bytes.
      ASSERT_TRUE(bootstrap.all_gather("done", "", soon()).ok());
    });
  }
  void with_fabrics(int ranks, const std::function<void(Fabric&, Bootstrap&)>& body) const {
    with_fabrics(ranks, {4096 - 64, 8192 - 64}, body);
  }
};

// Puts a payload of pseudo-random length to every rank (itself too), and checks every byte of what came, as
// soon as it is said to have come.
void exchange_once(Fabric& fabric, Kind kind, uint64_t seq, const std::array<size_t, kKinds>& slab_bytes) {
  const auto length = [&](int source, int target) {
    const uint64_t key = put_key(source, target, kind, seq);
    const size_t room = slab_bytes[static_cast<size_t>(kind)];
    return key % 5 == 0 ? size_t{0} : key % 5 == 1 ? room : mix(key) % (room + 1);
  };
  for (int i = 0; i < fabric.ranks(); ++i) {
    const int peer = (fabric.rank() + i) % fabric.ranks();
    auto outbox = fabric.outbox(peer, kind, seq, soon());
    ASSERT_TRUE(outbox.ok()) << outbox.status().message();
    const size_t bytes = length(fabric.rank(), peer);
    fill(outbox->first(bytes), put_key(fabric.rank(), peer, kind, seq));
    const Status put = fabric.put(peer, kind, seq, bytes);
    ASSERT_TRUE(put.ok()) << put.message();
  }
  std::vector<bool> seen(static_cast<size_t>(fabric.ranks()));
  int missing = fabric.ranks();
  const auto look = [&] {
    for (int source = 0; source < fabric.ranks(); ++source) {
      if (seen[static_cast<size_t>(source)] || !fabric.arrived(source, kind, seq)) continue;
      seen[static_cast<size_t>(source)] = true;
      --missing;
      auto inbox = fabric.inbox(source, kind, seq);
      ASSERT_TRUE(inbox.ok()) << inbox.status().message();
      EXPECT_EQ(inbox->size(), length(source, fabric.rank()));
      EXPECT_EQ(first_wrong(*inbox, put_key(source, fabric.rank(), kind, seq)), -1) << "seq " << seq;
    }
  };
  const Wait waited = fabric.wait(
      [&] {
        look();
        return missing == 0;
      },
      soon());
  ASSERT_EQ(waited, Wait::ready) << "rank " << fabric.rank() << " seq " << seq << ", missing " << missing;
}

TEST_P(FabricTest, EveryByteOfEveryPutArrives) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    const std::array<size_t, kKinds> slab_bytes = {12 * 1024 - 64, 4096 - 64};
    with_fabrics(ranks, slab_bytes, [&](Fabric& fabric, Bootstrap&) {
      for (uint64_t seq = 0; seq < 80; ++seq) {
        exchange_once(fabric, Kind::dispatch, seq, slab_bytes);
        exchange_once(fabric, Kind::combine, seq, slab_bytes);
        if (testing::Test::HasFatalFailure()) return;
      }
    });
  }
}

TEST_P(FabricTest, NothingHasArrivedBeforeTheFirstPut) {
  with_fabrics(2, [&](Fabric& fabric, Bootstrap&) {
    for (int source = 0; source < 2; ++source) {
      for (uint64_t seq = 0; seq < 300; ++seq) {
        EXPECT_FALSE(fabric.arrived(source, Kind::dispatch, seq));
        EXPECT_FALSE(fabric.arrived(source, Kind::combine, seq));
      }
      EXPECT_EQ(fabric.woken(source), 0u);
      EXPECT_EQ(fabric.inbox(source, Kind::dispatch, 0).status().code(), Code::data_loss);
    }
  });
}

TEST_P(FabricTest, WakeKeepsTheHighestStep) {
  with_fabrics(2, [&](Fabric& fabric, Bootstrap& bootstrap) {
    const int peer = 1 - fabric.rank();
    for (uint64_t step : {3, 9, 4, 12, 1}) ASSERT_TRUE(fabric.wake(peer, step).ok());
    EXPECT_EQ(fabric.wait([&] { return fabric.woken(peer) == 12; }, soon()), Wait::ready);
    ASSERT_TRUE(bootstrap.all_gather("woken", "", soon()).ok());
    for (uint64_t step = 13; step < 500; ++step) ASSERT_TRUE(fabric.wake(peer, step).ok());
    EXPECT_EQ(fabric.wait([&] { return fabric.woken(peer) >= 499; }, soon()), Wait::ready);
    EXPECT_EQ(fabric.woken(peer), 499u);
    EXPECT_EQ(fabric.woken(fabric.rank()), 0u);
  });
}

TEST_P(FabricTest, LateWhenNothingComes) {
  with_fabrics(2, [&](Fabric& fabric, Bootstrap&) {
    EXPECT_EQ(fabric.wait([&] { return fabric.arrived(1 - fabric.rank(), Kind::dispatch, 0); },
                          Deadline::after(milliseconds(30))),
              Wait::late);
  });
}

TEST_P(FabricTest, EndEpochEndsEveryWaitFromAnyThread) {
  with_fabrics(2, [&](Fabric& fabric, Bootstrap&) {
    std::thread ender([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      fabric.end_epoch();
      fabric.end_epoch();
    });
    EXPECT_EQ(fabric.wait([] { return false; }, soon()), Wait::ended);
    ender.join();
    EXPECT_TRUE(fabric.ended());
    EXPECT_EQ(fabric.wait([] { return false; }, soon()), Wait::ended);
  });
}

TEST_P(FabricTest, NudgeMakesTheWaiterLookAgain) {
  with_fabrics(1, [&](Fabric& fabric, Bootstrap&) {
    std::atomic<bool> work{false};
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      work = true;
      fabric.nudge();
    });
    EXPECT_EQ(fabric.wait([&] { return work.load(); }, soon()), Wait::ready);
    other.join();
  });
}

TEST_P(FabricTest, RefusesImpossibleArguments) {
  with_fabrics(2, [&](Fabric& fabric, Bootstrap&) {
    EXPECT_THAT(fabric.outbox(2, Kind::dispatch, 0, soon()).status().message(),
                HasSubstr("rank 2 does not exist"));
    EXPECT_THAT(fabric.put(-1, Kind::dispatch, 0, 0).message(), HasSubstr("rank -1 does not exist"));
    EXPECT_THAT(fabric.put(1, Kind::combine, 0, 8193 - 64).message(),
                HasSubstr("a put of 8129 bytes to rank 1; a combine slab holds 8128"));
    EXPECT_THAT(fabric.wake(7, 1).message(), HasSubstr("rank 7 does not exist"));
  });
}

TEST_P(FabricTest, ReportCountsPutsAndBytesOnBothSides) {
  const std::array<size_t, kKinds> slab_bytes = {4096 - 64, 4096 - 64};
  std::array<Report, 3> before;
  std::array<Report, 3> after;
  with_fabrics(3, slab_bytes, [&](Fabric& fabric, Bootstrap& bootstrap) {
    const auto rank = static_cast<size_t>(fabric.rank());
    before[rank] = fabric.report();
    for (uint64_t seq = 0; seq < 20; ++seq) exchange_once(fabric, Kind::dispatch, seq, slab_bytes);
    ASSERT_TRUE(bootstrap.all_gather("exchanged", "", soon()).ok());
    after[rank] = fabric.report();
  });
  for (size_t a = 0; a < 3; ++a) {
    EXPECT_EQ(after[a].provider, GetParam().provider);
    EXPECT_EQ(after[a].attestation(), after[0].attestation());
    ASSERT_EQ(after[a].peers.size(), 3u);
    for (size_t b = 0; b < 3; ++b) {
      EXPECT_EQ(after[a].peers[b].puts_sent - before[a].peers[b].puts_sent, 20u);
      EXPECT_EQ(after[a].peers[b].puts_sent, after[b].peers[a].puts_received) << a << " to " << b;
      EXPECT_EQ(after[a].peers[b].bytes_sent, after[b].peers[a].bytes_received) << a << " to " << b;
    }
  }
}

// A rank that has put its last bytes may close at once; they still arrive.
TEST_P(FabricTest, ClosingSendsWhatWasPut) {
  constexpr size_t kBytes = (1 << 20) - 64;
  for (int round = 0; round < 2; ++round) {
    run_ranks(2, [&](int rank, Bootstrap& bootstrap) {
      auto fabric = Fabric::open(options(rank, 2, {kBytes, 4032}), bootstrap);
      ASSERT_TRUE(fabric.ok()) << fabric.status().message();
      if (rank == 0) {
        auto outbox = (*fabric)->outbox(1, Kind::dispatch, 0, soon());
        ASSERT_TRUE(outbox.ok());
        fill(*outbox, 77);
        ASSERT_TRUE((*fabric)->put(1, Kind::dispatch, 0, kBytes).ok());
        fabric->reset();
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ASSERT_EQ((*fabric)->wait([&] { return (*fabric)->arrived(0, Kind::dispatch, 0); }, soon()),
                Wait::ready);
      auto inbox = (*fabric)->inbox(0, Kind::dispatch, 0);
      ASSERT_TRUE(inbox.ok());
      ASSERT_EQ(inbox->size(), kBytes);
      EXPECT_EQ(first_wrong(*inbox, 77), -1);
    });
  }
}

// Opens two ranks whose options differ; both must refuse, with both values.
void expect_refused(Options a, Options b, std::string_view what, std::string_view one,
                    std::string_view other) {
  run_ranks(2, [&](int rank, Bootstrap& bootstrap) {
    auto fabric = Fabric::open(rank == 0 ? a : b, bootstrap);
    ASSERT_FALSE(fabric.ok());
    const std::string& message = fabric.status().message();
    EXPECT_THAT(message, HasSubstr(std::string(what)));
    EXPECT_THAT(message, HasSubstr(std::string(one)));
    EXPECT_THAT(message, HasSubstr(std::string(other)));
    EXPECT_THAT(message, HasSubstr("rank 0"));
    EXPECT_THAT(message, HasSubstr("rank 1"));
  });
}

TEST_P(FabricTest, RefusesRanksThatDiffer) {
  Options a = options(0, 2);
  Options b = options(1, 2);
  b.slab_bytes[1] = 5000;
  expect_refused(a, b, "combine slab bytes", "5000", "8128");
  b = options(1, 3);
  expect_refused(a, b, "number of ranks", "2", "3");
  b = options(1, 2);
  b.epoch = 6;
  expect_refused(a, b, "epoch", "5", "6");
}

TEST_P(FabricTest, NamesTheRankThatNeverComes) {
  InProcessHub hub(2);
  auto bootstrap = hub.join(0);
  Options mine = options(0, 2);
  mine.connect_timeout = milliseconds(50);
  auto fabric = Fabric::open(mine, *bootstrap);
  ASSERT_FALSE(fabric.ok());
  EXPECT_THAT(fabric.status().message(), HasSubstr("rank 1 is missing"));
}

INSTANTIATE_TEST_SUITE_P(Providers, FabricTest,
                         testing::Values(Setup{"local"}, Setup{"local", true}, Setup{"tcp"},
                                         Setup{"tcp", false, 512}),
                         setup_name);

TEST(FabricOpen, RefusesAnUnknownProviderWithTheList) {
  InProcessHub hub(1);
  auto bootstrap = hub.join(0);
  Options options;
  options.provider = "infiniband";
  auto fabric = Fabric::open(options, *bootstrap);
  ASSERT_FALSE(fabric.ok());
  EXPECT_EQ(fabric.status().code(), Code::invalid_argument);
  EXPECT_THAT(fabric.status().message(),
              HasSubstr("there is no fabric 'infiniband'; choose one of local, tcp, efa, efa-direct"));
}

TEST(FabricOpen, RefusesImpossibleRanks) {
  InProcessHub hub(1);
  auto bootstrap = hub.join(0);
  Options options;
  options.provider = "local";
  options.ranks = 4097;
  EXPECT_THAT(Fabric::open(options, *bootstrap).status().message(),
              HasSubstr("4097 ranks; a fabric has 1 to 4096"));
  options.ranks = 2;
  options.rank = 2;
  EXPECT_THAT(Fabric::open(options, *bootstrap).status().message(), HasSubstr("rank 2 of 2"));
}

}  // namespace
}  // namespace sluice::fabric

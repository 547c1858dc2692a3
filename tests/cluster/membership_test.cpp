// Membership under chosen and under random orders of events.
#include "cluster/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <set>

namespace sluice::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Introduction rank(int number, int pid = 100, std::string fingerprint = "same") {
  return {.rank = number,
          .pid = pid + number,
          .address = "unix:/x",
          .fingerprint = std::move(fingerprint),
          .highest_epoch = {}};
}

Breakage because(std::string reason) {
  return {.blamed_rank = -1, .layer = -1, .phase = {}, .reason = std::move(reason)};
}

std::vector<std::string> told(Membership& membership) {
  std::vector<std::string> lines;
  for (const Directive& directive : membership.take_directives()) {
    lines.push_back(std::to_string(directive.session) +
                    (directive.kind == Directive::Kind::begin ? " begin " : " end ") +
                    to_string(directive.epoch));
  }
  return lines;
}

// Two ranks, sessions 1 and 2, ready in epoch 1.1.
Membership ready_pair() {
  Membership membership({.ranks = 2});
  EXPECT_TRUE(membership.hello(1, rank(0), 0).ok());
  EXPECT_TRUE(membership.hello(2, rank(1), 0).ok());
  membership.take_directives();
  membership.ready(1, {1, 1}, {});
  membership.ready(2, {1, 1}, {});
  return membership;
}

TEST(Membership, EpochBeginsWhenAllHaveJoinedAndIsReadyWhenAllSaySo) {
  Membership membership({.ranks = 2});
  ASSERT_TRUE(membership.hello(1, rank(1), 0).ok());
  EXPECT_THAT(told(membership), ElementsAre());
  EXPECT_EQ(membership.view().health.message, "rank 0: starting; rank 1: joined");
  ASSERT_TRUE(membership.hello(2, rank(0), 0).ok());
  EXPECT_THAT(told(membership), ElementsAre("2 begin 1.1", "1 begin 1.1"));
  membership.ready(1, {1, 1}, {});
  EXPECT_FALSE(membership.ready());
  EXPECT_EQ(membership.view().health.message, "rank 0: joining");
  membership.ready(2, {1, 1}, {});
  EXPECT_TRUE(membership.ready());
  EXPECT_EQ(membership.view().health.message, "ready: 2 of 2 ranks in epoch 1.1");
}

TEST(Membership, DeathEndsTheEpochAtOnceAndTheNextBeginsWhenTheRankIsBack) {
  Membership membership = ready_pair();
  membership.process_exited(1, 101, "killed by signal 9", 5);
  EXPECT_FALSE(membership.ready());
  EXPECT_THAT(told(membership), ElementsAre("1 end 1.1"));
  EXPECT_EQ(membership.view().health.message, "rank 0: joined; rank 1: dead: killed by signal 9");
  EXPECT_EQ(membership.why_ended(), "rank 1 (pid 101) was lost: killed by signal 9");
  membership.leave(2, "its connection closed",
                   6);  // the stream breaks after the supervisor has seen the exit
  EXPECT_EQ(membership.view().health.ranks[1].state, "dead: killed by signal 9");
  membership.process_started(1, 777);
  EXPECT_EQ(membership.view().health.ranks[1].state, "loading");
  Introduction again = rank(1);
  again.pid = 777;
  ASSERT_TRUE(membership.hello(3, again, 7).ok());
  EXPECT_THAT(told(membership), ElementsAre("1 begin 1.2", "3 begin 1.2"));
  EXPECT_FALSE(membership.ready());
}

TEST(Membership, ExitAfterTheBrokenStreamSaysWhy) {
  Membership membership = ready_pair();
  membership.leave(2, "its connection closed", 5);
  EXPECT_EQ(membership.view().health.ranks[1].state, "dead: its connection closed");
  membership.process_exited(1, 101, "killed by signal 11", 6);
  EXPECT_EQ(membership.view().health.ranks[1].state, "dead: killed by signal 11");
}

TEST(Membership, ExitOfAnEarlierProcessDoesNotTouchItsSuccessor) {
  Membership membership = ready_pair();
  membership.process_exited(1, 99, "killed by signal 9", 5);
  EXPECT_TRUE(membership.ready());
}

TEST(Membership, BrokenEpochIsFollowedByAnotherAtOnceAfterAReadyOne) {
  Membership membership = ready_pair();
  membership.broken(1, {1, 1}, {.blamed_rank = 1, .layer = 3, .phase = "dispatch", .reason = "late"}, 5);
  EXPECT_THAT(told(membership), ElementsAre("1 end 1.1", "2 end 1.1", "1 begin 1.2", "2 begin 1.2"));
  EXPECT_EQ(membership.why_ended(), "rank 0 cannot go on: late (blames rank 1, layer 3, dispatch)");
}

TEST(Membership, EpochsThatNeverBecomeReadyAreRetriedMoreAndMoreSlowly) {
  Membership membership({.ranks = 1,
                         .term = 1,
                         .first_retry = 100,
                         .longest_retry = 350,
                         .settled_after = 1000,
                         .first_attempts = 9});
  ASSERT_TRUE(membership.hello(1, rank(0), 0).ok());
  Nanos time = 0;
  uint64_t number = 1;
  for (const Nanos delay : {100, 200, 350, 350}) {
    EXPECT_EQ(told(membership).size(), 1u);
    membership.broken(1, {1, number}, because("no route"), time);
    EXPECT_EQ(membership.next_tick(), time + delay);
    EXPECT_THAT(membership.view().health.message, HasSubstr("no route"));
    membership.take_directives();
    membership.tick(time + delay - 1);
    EXPECT_THAT(told(membership), ElementsAre());
    time += delay;
    membership.tick(time);
    ++number;
  }
  membership.ready(1, {1, number}, {});
  membership.take_directives();
  membership.broken(1, {1, number}, because("late"), time);
  EXPECT_FALSE(membership.running()) << "it had not lasted either";
  EXPECT_EQ(membership.next_tick(), time + 350);
}

TEST(Membership, ReadyEpochsThatDoNotLastAreRetriedMoreAndMoreSlowlyToo) {
  Membership membership({.ranks = 1,
                         .term = 1,
                         .first_retry = 100,
                         .longest_retry = 350,
                         .settled_after = 1000,
                         .first_attempts = 9});
  ASSERT_TRUE(membership.hello(1, rank(0), 0).ok());
  Nanos time = 0;
  uint64_t number = 1;
  const auto lasts = [&](Nanos life) {
    membership.ready(1, {1, number++}, {});
    time += life;
    membership.broken(1, {1, number - 1}, because("a request that no rank survives"), time);
    const Nanos delay = membership.next_tick().value_or(time) - time;
    time += delay;
    membership.tick(time);
    return delay;
  };
  EXPECT_EQ(lasts(10), 0);
  EXPECT_EQ(lasts(10), 100);
  EXPECT_EQ(lasts(10), 200);
  EXPECT_EQ(lasts(10), 350);
  EXPECT_EQ(lasts(1000), 0) << "it had settled";
  EXPECT_EQ(lasts(10), 100);
}

TEST(Membership, ReportsOfOtherEpochsAndSessionsChangeNothing) {
  Membership membership = ready_pair();
  membership.broken(2, {1, 1}, because("late"), 5);
  membership.take_directives();
  membership.ready(1, {1, 1}, {});
  membership.ready(2, {1, 1}, {});
  membership.ready(1, {1, 3}, {});
  membership.ready(9, {1, 2}, {});
  EXPECT_FALSE(membership.ready());
  membership.ready(1, {1, 2}, {});
  membership.ready(2, {1, 2}, {});
  EXPECT_TRUE(membership.ready());
  membership.broken(1, {1, 1}, because("late"), 6);
  membership.broken(7, {1, 2}, because("late"), 6);
  membership.leave(7, "gone", 6);
  EXPECT_TRUE(membership.ready());
}

TEST(Membership, DifferentFingerprintIsRefusedWithBothValues) {
  Membership membership({.ranks = 2});
  ASSERT_TRUE(membership.hello(1, rank(0, 100, "qwen3 bf16"), 0).ok());
  const Status status = membership.hello(2, rank(1, 100, "qwen3 f32"), 0);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("'qwen3 bf16'"));
  EXPECT_THAT(status.message(), HasSubstr("'qwen3 f32'"));
  EXPECT_THAT(told(membership), ElementsAre());
  EXPECT_THAT(membership.view().health.ranks[1].state, HasSubstr("refused"));
}

TEST(Membership, RefusalQuotesTheLineThatDiffers) {
  Membership membership({.ranks = 2});
  ASSERT_TRUE(membership.hello(1, rank(0, 100, "version: 1\ndtype: bfloat16\nranks: 2\n"), 0).ok());
  const Status status = membership.hello(2, rank(1, 100, "version: 1\ndtype: float32\nranks: 2\n"), 0);
  EXPECT_THAT(status.message(), HasSubstr("it has 'dtype: float32', rank 0 has 'dtype: bfloat16'"));
  EXPECT_THAT(membership.hello(3, rank(1, 100, "version: 1\n"), 0).message(),
              HasSubstr("it has '', rank 0 has 'dtype: bfloat16'"));
}

TEST(Membership, IsHopelessWhenTheFirstEpochsAllBreak) {
  Membership membership(
      {.ranks = 1, .term = 1, .first_retry = 0, .longest_retry = 0, .settled_after = 0, .first_attempts = 3});
  ASSERT_TRUE(membership.hello(1, rank(0), 0).ok());
  for (uint64_t number = 1; number <= 3; ++number) {
    EXPECT_TRUE(membership.hopeless().ok());
    membership.broken(1, {1, number}, because("there is no EFA device"), 0);
  }
  EXPECT_THAT(membership.hopeless().message(), HasSubstr("there is no EFA device"));
  membership.ready(1, {1, 4}, {});
  for (uint64_t number = 4; number <= 12; ++number) membership.broken(1, {1, number}, because("late"), 0);
  EXPECT_TRUE(membership.hopeless().ok()) << "what has worked once is tried for ever";
}

TEST(Membership, AllRanksMayComeBackDifferent) {
  Membership membership = ready_pair();
  membership.leave(1, "gone", 1);
  membership.leave(2, "gone", 1);
  EXPECT_TRUE(membership.hello(3, rank(0, 100, "new"), 2).ok());
  EXPECT_TRUE(membership.hello(4, rank(1, 100, "new"), 2).ok());
}

TEST(Membership, RankOutOfRangeAndDuplicateAreRefused) {
  Membership membership = ready_pair();
  EXPECT_THAT(membership.hello(3, rank(2), 1).message(), HasSubstr("ranks 0 to 1"));
  EXPECT_THAT(membership.hello(3, rank(-1), 1).message(), HasSubstr("ranks 0 to 1"));
  const Status status = membership.hello(3, rank(1, 500), 1);
  EXPECT_THAT(status.message(), HasSubstr("501"));
  EXPECT_THAT(status.message(), HasSubstr("101"));
  EXPECT_TRUE(membership.ready()) << "a refused rank must not disturb the others";
}

TEST(Membership, SameProcessMayJoinAgain) {
  Membership membership = ready_pair();
  ASSERT_TRUE(membership.hello(3, rank(1), 1).ok());
  EXPECT_FALSE(membership.ready());
  EXPECT_THAT(told(membership), ElementsAre("1 end 1.1", "1 begin 1.2", "3 begin 1.2"));
  membership.leave(2, "its connection closed", 2);
  EXPECT_TRUE(membership.running()) << "the session before has no say any more";
}

TEST(Membership, EpochIsAboveAllThatRanksHaveSeen) {
  Membership membership({.ranks = 1});
  Introduction who = rank(0);
  who.highest_epoch = {4, 17};
  ASSERT_TRUE(membership.hello(1, who, 0).ok());
  EXPECT_THAT(told(membership), ElementsAre("1 begin 5.18"));
}

TEST(Membership, MessageNamesEightRanksAndCountsTheOthers) {
  Membership membership({.ranks = 12});
  EXPECT_THAT(membership.view().health.message, HasSubstr("rank 7: starting; and 4 more ranks"));
}

// Ranks, wires and an oracle of what the membership may say, stepped in random order.
class Simulation {
 public:
  Simulation(int ranks, uint64_t seed)
      : random_(seed), membership_({.ranks = ranks}), ranks_(static_cast<size_t>(ranks)) {}

  void run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      step(/*faults=*/true);
      check();
    }
    // Without more faults the cluster must get ready, whatever state it was left in.
    for (int i = 0; i < 2000 && !membership_.ready() && !::testing::Test::HasFailure(); ++i) {
      time_ += milliseconds(50);
      step(/*faults=*/false);
      check();
    }
    EXPECT_TRUE(membership_.ready()) << membership_.view().health.message;
  }

  int epochs() const { return static_cast<int>(begun_.number); }
  int times_ready() const { return times_ready_; }

 private:
  struct Event {
    enum class Kind { ready, broken, stream_ends } kind;
    EpochId epoch;
  };
  struct Rank {
    bool alive = false;
    int pid = 0;
    Session session = 0;
    std::deque<Directive> inbox;
    std::deque<Event> outbox;  // on the wire to the coordinator
    EpochId in;                // the epoch it opens or runs
    bool reported = false;
    // What the supervisor has yet to say.
    bool exit_unreported = false;
    int exited_pid = 0;
  };
  struct Zombie {
    Session session = 0;
    std::deque<Event> wire;
  };
  struct Told {
    bool in_epoch = false;
    EpochId last;
  };

  bool chance(int percent) { return static_cast<int>(random_() % 100) < percent; }

  void step(bool faults) {
    const size_t index = random_() % ranks_.size();
    Rank& rank = ranks_[index];
    if (rank.exit_unreported && chance(50)) return report_exit(static_cast<int>(index), rank);
    if (!rank.alive && !rank.exit_unreported && chance(50)) return start(static_cast<int>(index), rank);
    if (!zombies_.empty() && chance(20)) return deliver_late();
    switch (random_() % 6) {
      case 0:
        if (!rank.outbox.empty()) deliver(rank.session, rank.outbox);
        break;
      case 1:
        if (rank.alive && !rank.inbox.empty()) obey(rank);
        break;
      case 2:
        if (rank.alive && rank.in.number != 0 && !rank.reported) {
          rank.reported = true;
          const bool breaks = faults && chance(30);
          rank.outbox.push_back({breaks ? Event::Kind::broken : Event::Kind::ready, rank.in});
        } else if (rank.alive && rank.in.number != 0 && faults && chance(10)) {
          rank.outbox.push_back({Event::Kind::broken, rank.in});
        }
        break;
      case 3:
        if (faults && rank.alive && chance(15)) die(rank);
        break;
      default:
        time_ += milliseconds(static_cast<int64_t>(random_() % 80));
        membership_.tick(time_);
    }
    collect();
  }

  void start(int index, Rank& rank) {
    if (!rank.outbox.empty()) zombies_.push_back({rank.session, std::move(rank.outbox)});
    const int pid = next_pid_++;
    membership_.process_started(index, pid);
    rank = {};
    rank.alive = true;
    rank.pid = pid;
    rank.session = next_session_++;
    ASSERT_TRUE(
        membership_
            .hello(rank.session,
                   {.rank = index, .pid = pid, .address = "a", .fingerprint = "f", .highest_epoch = {}},
                   time_)
            .ok());
    owner_[rank.session] = index;
    current_.insert(rank.session);
    collect();
  }

  void die(Rank& rank) {
    rank.alive = false;
    rank.inbox.clear();
    while (!rank.outbox.empty() && chance(50)) rank.outbox.pop_back();  // never made it
    rank.outbox.push_back({Event::Kind::stream_ends, {}});
    rank.exit_unreported = true;
    rank.exited_pid = rank.pid;
  }

  void report_exit(int index, Rank& rank) {
    rank.exit_unreported = false;
    lose(rank.session);
    membership_.process_exited(index, rank.exited_pid, "killed by signal 9", time_);
    collect();
  }

  void deliver(Session session, std::deque<Event>& wire) {
    const Event event = wire.front();
    wire.pop_front();
    const bool counts = current_.count(session) != 0 && open_ && event.epoch == begun_;
    switch (event.kind) {
      case Event::Kind::ready:
        if (counts) ready_.insert(owner_[session]);
        membership_.ready(session, event.epoch, {});
        break;
      case Event::Kind::broken:
        if (counts) open_ = false;
        membership_.broken(session, event.epoch, because("late"), time_);
        break;
      case Event::Kind::stream_ends:
        lose(session);
        membership_.leave(session, "its connection closed", time_);
        break;
    }
    collect();
  }

  // What a dead process sent arrives after its successor has started.
  void deliver_late() {
    deliver(zombies_.front().session, zombies_.front().wire);
    if (zombies_.front().wire.empty()) zombies_.pop_front();
  }

  void obey(Rank& rank) {
    const Directive directive = rank.inbox.front();
    rank.inbox.pop_front();
    rank.in = directive.kind == Directive::Kind::begin ? directive.epoch : EpochId{};
    rank.reported = false;
  }

  void lose(Session session) {
    if (current_.erase(session) != 0) open_ = false;
  }

  // What the membership tells the ranks, checked against the protocol, put on the wires.
  void collect() {
    std::set<int> begun_ranks;
    for (const Directive& directive : membership_.take_directives()) {
      Told& told = told_[directive.session];
      ASSERT_TRUE(owner_.count(directive.session) != 0);
      if (directive.kind == Directive::Kind::begin) {
        if (begun_ranks.empty()) {
          ASSERT_TRUE(begun_.number < directive.epoch.number) << "two epochs with one number";
          ASSERT_FALSE(open_) << "an epoch begins while another runs";
          begun_ = directive.epoch;
          open_ = true;
          ready_.clear();
        }
        ASSERT_TRUE(directive.epoch == begun_);
        ASSERT_TRUE(current_.count(directive.session) != 0) << "begins with a rank that has left";
        ASSERT_TRUE(begun_ranks.insert(owner_[directive.session]).second);
        ASSERT_FALSE(told.in_epoch) << "begin without an end before";
        told = {true, directive.epoch};
      } else {
        ASSERT_TRUE(told.in_epoch && told.last == directive.epoch) << "end of another epoch";
        told.in_epoch = false;
      }
      for (Rank& rank : ranks_) {
        if (rank.alive && rank.session == directive.session) rank.inbox.push_back(directive);
      }
    }
    if (!begun_ranks.empty()) {
      ASSERT_EQ(begun_ranks.size(), ranks_.size());
    }
  }

  void check() {
    const bool expected = open_ && ready_.size() == ranks_.size();
    ASSERT_EQ(membership_.ready(), expected) << membership_.view().health.message;
    if (expected && !was_ready_) ++times_ready_;
    was_ready_ = expected;
    for (const RankHealth& health : membership_.view().health.ranks) {
      ASSERT_EQ(health.ready, open_ && ready_.count(health.rank) != 0) << health.rank << " " << health.state;
    }
  }

  std::mt19937_64 random_;
  Membership membership_;
  std::vector<Rank> ranks_;
  std::deque<Zombie> zombies_;
  Nanos time_ = 0;
  int next_pid_ = 1000;
  Session next_session_ = 1;
  // The oracle.
  std::map<Session, int> owner_;
  std::set<Session> current_;
  std::map<Session, Told> told_;
  EpochId begun_;
  bool open_ = false;
  std::set<int> ready_;
  bool was_ready_ = false;
  int times_ready_ = 0;
};

TEST(Membership, AnyOrderOfEventsKeepsTheInvariants) {
  int epochs = 0;
  int times_ready = 0;
  for (uint64_t seed = 1; seed <= 300 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(1 + static_cast<int>(seed % 4), seed);
    simulation.run(1500);
    epochs += simulation.epochs();
    times_ready += simulation.times_ready();
  }
  EXPECT_GT(epochs, 1000) << "the simulation must reach what it is for";
  EXPECT_GT(times_ready, 300);
}

}  // namespace
}  // namespace sluice::cluster

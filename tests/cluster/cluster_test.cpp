// Coordinator, rank processes and engine client speaking gRPC to each other over sockets, with fake engines:
// as threads of this process, and as processes that are killed.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <filesystem>
#include <future>

#include "cluster/coordinator.h"
#include "cluster/coordinator_link.h"
#include "cluster/exit_status.h"
#include "cluster/grpc_engine_client.h"
#include "cluster/mailbox.h"
#include "cluster/rank_process.h"
#include "cluster/run_directory.h"
#include "cluster/supervisor.h"
#include "fake_rank.h"

namespace sluice::cluster {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// True when the condition became so; patient, because machines are slow under sanitizers.
bool eventually(const std::function<bool()>& condition) {
  const Deadline deadline = Deadline::after(seconds(60));
  while (!condition()) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// A rank process as a thread.
class RankThread {
 public:
  RankThread(int rank, const std::string& directory, FakeRank::Options options = {},
             Nanos orphan_timeout = seconds(60)) {
    // The process id is the same for all threads, so a counter keeps the addresses apart.
    static int incarnation = 0;
    const RankProcessOptions process{.rank = rank,
                                     .coordinator = coordinator_address(directory),
                                     .address = rank_address(directory, rank, ++incarnation),
                                     .orphan_timeout = orphan_timeout};
    auto load = [this, rank, options](engine::Callbacks callbacks) -> Result<std::unique_ptr<engine::Rank>> {
      auto made = std::make_unique<FakeRank>(rank, std::move(callbacks), options);
      rank_ = made.get();
      return std::unique_ptr<engine::Rank>(std::move(made));
    };
    status_ = std::async(std::launch::async,
                         [this, process, load] { return run_rank(process, load, stop_.get()); });
  }
  ~RankThread() { stop(); }

  int stop() {
    const uint64_t one = 1;
    EXPECT_EQ(::write(stop_.get(), &one, sizeof one), 8);
    return wait();
  }
  int wait() { return status_.valid() ? status_.get() : -1; }
  FakeEngine& engine() { return rank_.load()->engine(); }

 private:
  UniqueFd stop_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::atomic<FakeRank*> rank_{nullptr};
  std::future<int> status_;
};

// What a sink has been given.
class Stream {
 public:
  engine::Sink sink() {
    return [state = state_](const engine::Output& output) {
      const std::lock_guard lock(state->mutex);
      EXPECT_EQ(state->end.finish, engine::Finish::none) << "an output after the last";
      if (output.token >= 0) state->tokens.push_back(output.token);
      if (output.finish != engine::Finish::none) state->end = output;
    };
  }
  bool ended() const {
    const std::lock_guard lock(state_->mutex);
    return state_->end.finish != engine::Finish::none;
  }
  std::vector<int32_t> tokens() const {
    const std::lock_guard lock(state_->mutex);
    return state_->tokens;
  }
  engine::Output end() const {
    const std::lock_guard lock(state_->mutex);
    return state_->end;
  }

 private:
  struct State {
    std::mutex mutex;
    std::vector<int32_t> tokens;
    engine::Output end;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

engine::Request request(int32_t first, int tokens) {
  engine::Request request;
  request.prompt = {first};
  request.max_tokens = tokens;
  return request;
}

class ClusterTest : public ::testing::Test {
 protected:
  ClusterTest() {
    auto directory = RunDirectory::create();
    EXPECT_TRUE(directory.ok()) << directory.status().message();
    directory_.emplace(std::move(*directory));
  }

  void start_coordinator(int ranks) {
    auto started = Coordinator::start(coordinator_address(directory_->path()), {.ranks = ranks});
    ASSERT_TRUE(started.ok()) << started.status().message();
    coordinator_ = std::move(*started);
  }
  void start_client(GrpcEngineClient::Options options = {}) {
    options.coordinator = coordinator_address(directory_->path());
    client_ = GrpcEngineClient::start(std::move(options));
  }
  void start_all(int ranks) {
    start_coordinator(ranks);
    for (int rank = 0; rank < ranks; ++rank) start_rank(rank);
    start_client();
    ASSERT_TRUE(eventually([&] { return client_->health().ready; })) << client_->health().message;
  }
  void start_rank(int rank, FakeRank::Options options = {}) {
    ranks_.push_back(std::make_unique<RankThread>(rank, directory_->path(), std::move(options)));
  }

  std::optional<RunDirectory> directory_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<std::unique_ptr<RankThread>> ranks_;
  std::unique_ptr<EngineClient> client_;
};

TEST_F(ClusterTest, GetsReadyAndSaysSo) {
  start_all(3);
  const Health health = client_->health();
  EXPECT_EQ(health.message, "ready: 3 of 3 ranks in epoch 1.1");
  EXPECT_EQ(health.epoch.number, 1u);
  ASSERT_EQ(health.ranks.size(), 3u);
  EXPECT_EQ(health.ranks[2].pid, ::getpid());
  EXPECT_EQ(health.ranks[2].fabric.provider, "fake");
  ASSERT_EQ(health.ranks[2].fabric.peers.size(), 1u);
  EXPECT_EQ(health.ranks[2].fabric.peers[0].bytes_received, 6u);
}

TEST_F(ClusterTest, IsNotReadyWhileARankIsMissing) {
  start_coordinator(2);
  start_client();
  start_rank(0);
  ASSERT_TRUE(eventually([&] { return client_->health().message == "rank 0: joined; rank 1: starting"; }));
  const auto refused = client_->submit(request(1, 1), Stream().sink());
  EXPECT_EQ(refused.status().code(), Code::unavailable);
  EXPECT_THAT(refused.status().message(), HasSubstr("rank 1: starting"));
}

TEST_F(ClusterTest, StreamsTokensInOrder) {
  start_all(2);
  Stream stream;
  ASSERT_TRUE(client_->submit(request(100, 5), stream.sink()).ok());
  ASSERT_TRUE(eventually([&] { return stream.ended(); }));
  EXPECT_THAT(stream.tokens(), ElementsAre(100, 101, 102, 103, 104));
  EXPECT_EQ(stream.end().finish, engine::Finish::length);
  EXPECT_EQ(stream.end().index, 4);
  EXPECT_FLOAT_EQ(stream.end().logprob, -0.5F);
}

TEST_F(ClusterTest, RefusalOfTheEngineArrivesWithItsCode) {
  start_all(1);
  Stream stream;
  ASSERT_TRUE(client_->submit(engine::Request(), stream.sink()).ok());
  ASSERT_TRUE(eventually([&] { return stream.ended(); }));
  EXPECT_EQ(stream.end().finish, engine::Finish::error);
  EXPECT_EQ(stream.end().error.code(), Code::invalid_argument);
  EXPECT_THAT(stream.end().error.message(), HasSubstr("prompt is empty"));
}

TEST_F(ClusterTest, CancelledRequestLeavesTheEngine) {
  start_all(1);
  Stream stream;
  const auto id = client_->submit(request(1, 1 << 30), stream.sink());
  ASSERT_TRUE(id.ok());
  ASSERT_TRUE(eventually([&] { return stream.tokens().size() > 3; }));
  client_->cancel(*id);
  client_->cancel(*id + 1000);
  ASSERT_TRUE(eventually([&] { return stream.ended(); }));
  EXPECT_EQ(stream.end().finish, engine::Finish::cancelled);
  EXPECT_TRUE(eventually([&] { return ranks_[0]->engine().stats().running == 0; }));
}

TEST_F(ClusterTest, RequestsGoToTheRankWithTheFewest) {
  start_all(2);
  std::vector<Stream> streams(8);
  std::vector<uint64_t> ids;
  for (Stream& stream : streams) ids.push_back(*client_->submit(request(1, 1 << 30), stream.sink()));
  const auto running = [&](size_t rank) { return ranks_[rank]->engine().stats().running; };
  EXPECT_TRUE(eventually([&] { return running(0) == 4 && running(1) == 4; }));
  int cancelled = 0;
  for (size_t i = 0; i < ids.size(); i += 2, ++cancelled) client_->cancel(ids[i]);
  ASSERT_TRUE(eventually([&] { return running(0) + running(1) == 8 - cancelled; }));
  std::vector<Stream> more(4);
  for (int i = 0; i < cancelled; ++i) {
    ASSERT_TRUE(client_->submit(request(1, 1 << 30), more[static_cast<size_t>(i)].sink()).ok());
  }
  EXPECT_TRUE(eventually([&] { return running(0) == 4 && running(1) == 4; }));
}

TEST_F(ClusterTest, ManyStreamsAtOnceAllEndRightly) {
  start_all(2);
  std::vector<Stream> streams(200);
  for (size_t i = 0; i < streams.size(); ++i) {
    ASSERT_TRUE(client_->submit(request(static_cast<int32_t>(i), 20), streams[i].sink()).ok());
  }
  for (size_t i = 0; i < streams.size(); ++i) {
    ASSERT_TRUE(eventually([&] { return streams[i].ended(); }));
    const auto tokens = streams[i].tokens();
    ASSERT_EQ(tokens.size(), 20u) << streams[i].end().error.message();
    EXPECT_EQ(tokens.back(), static_cast<int32_t>(i) + 19);
  }
}

TEST_F(ClusterTest, ClientThatGoesCancelsItsRequests) {
  start_all(1);
  Stream stream;
  ASSERT_TRUE(client_->submit(request(1, 1 << 30), stream.sink()).ok());
  ASSERT_TRUE(eventually([&] { return !stream.tokens().empty(); }));
  client_.reset();
  EXPECT_TRUE(stream.ended());
  EXPECT_TRUE(eventually([&] { return ranks_[0]->engine().stats().running == 0; }));
}

TEST_F(ClusterTest, BrokenEpochIsFollowedByTheNextAndRequestsGoOn) {
  start_all(2);
  Stream stream;
  ASSERT_TRUE(client_->submit(request(100, 400), stream.sink()).ok());
  ranks_[0]->engine().break_epoch({.rank = 1, .layer = 2, .phase = {}, .parts_missing = 0, .reason = "late"});
  ASSERT_TRUE(eventually([&] { return client_->health().ready && client_->health().epoch.number == 2; }));
  ASSERT_TRUE(eventually([&] { return stream.ended(); }));
  EXPECT_EQ(stream.tokens().size(), 400u);
}

TEST_F(ClusterTest, StoppedRankIsLostAndItsSuccessorCompletesTheNextEpoch) {
  start_all(2);
  EXPECT_EQ(ranks_[1]->stop(), kExitOk);
  ASSERT_TRUE(eventually([&] { return !client_->health().ready; }));
  Stream waits;
  ASSERT_TRUE(client_->submit(request(7, 3), waits.sink()).ok())
      << "the other rank keeps it until it can go on";
  start_rank(1);
  ASSERT_TRUE(eventually([&] { return client_->health().ready; }));
  EXPECT_EQ(client_->health().epoch.number, 2u);
  ASSERT_TRUE(eventually([&] { return waits.ended(); }));
  EXPECT_THAT(waits.tokens(), ElementsAre(7, 8, 9));
}

TEST_F(ClusterTest, DifferentRankIsRefusedAndExitsForGood) {
  start_coordinator(2);
  start_rank(0, {.fingerprint = "float32", .patience = seconds(10), .open_fails = {}});
  ASSERT_TRUE(eventually([&] { return coordinator_->view().health.ranks[0].state == "joined"; }));
  start_rank(1, {.fingerprint = "bfloat16", .patience = seconds(10), .open_fails = {}});
  EXPECT_EQ(ranks_[1]->wait(), kExitConfiguration);
  EXPECT_THAT(coordinator_->view().health.ranks[1].state,
              AllOf(HasSubstr("'float32'"), HasSubstr("'bfloat16'")));
}

TEST_F(ClusterTest, EpochThatCannotBeOpenedIsTriedAgain) {
  start_coordinator(1);
  start_rank(0,
             {.fingerprint = {}, .patience = seconds(10), .open_fails = unavailable("no route to rank 1")});
  EXPECT_TRUE(eventually([&] { return coordinator_->view().health.epoch.number >= 3; }));
  EXPECT_TRUE(eventually(
      [&] { return coordinator_->view().health.message.find("no route to rank 1") != std::string::npos; }));
  EXPECT_EQ(ranks_[0]->stop(), kExitOk);
}

TEST_F(ClusterTest, EpochThatCanNeverBeOpenedEndsTheRank) {
  start_coordinator(1);
  start_rank(0,
             {.fingerprint = {}, .patience = seconds(10), .open_fails = invalid_argument("no fabric 'efa'")});
  EXPECT_EQ(ranks_[0]->wait(), kExitConfiguration);
}

TEST_F(ClusterTest, RankWithoutCoordinatorExits) {
  start_coordinator(1);
  RankThread rank(0, directory_->path(), {}, milliseconds(300));
  ASSERT_TRUE(eventually([&] { return coordinator_->view().health.ready; }));
  coordinator_.reset();
  EXPECT_EQ(rank.wait(), kExitOrphaned);
  RankThread never(0, directory_->path(), {}, milliseconds(300));
  EXPECT_EQ(never.wait(), kExitOrphaned);
}

TEST_F(ClusterTest, RanksAndFrontsFindACoordinatorThatComesBack) {
  start_all(2);
  coordinator_.reset();
  ASSERT_TRUE(eventually([&] { return client_->health().message == "the coordinator cannot be reached"; }));
  EXPECT_FALSE(client_->health().ready);
  start_coordinator(2);
  ASSERT_TRUE(eventually([&] { return client_->health().ready; }));
  EXPECT_EQ(client_->health().epoch.number, 2u) << "above what the ranks had seen";
}

TEST_F(ClusterTest, FrontWithoutCoordinatorIsTold) {
  std::promise<void> orphaned;
  start_client(
      {.coordinator = {}, .orphan_timeout = milliseconds(200), .on_orphaned = [&] { orphaned.set_value(); }});
  orphaned.get_future().wait();
  EXPECT_FALSE(client_->health().ready);
}

class LinkTest : public ClusterTest {
 protected:
  struct Rank {
    std::unique_ptr<CoordinatorLink> link;
    std::promise<Directive> begun;
  };
  void join(int number) {
    Rank& rank = links_[number];
    rank.link = std::make_unique<CoordinatorLink>(
        coordinator_address(directory_->path()),
        Introduction{.rank = number,
                     .pid = 100 + number,
                     .address = "unix:/x",
                     .fingerprint = "f",
                     .highest_epoch = {}},
        CoordinatorLink::Events{.up = [] {},
                                .directive =
                                    [&rank](Directive directive) {
                                      if (directive.kind == Directive::Kind::begin)
                                        rank.begun.set_value(directive);
                                    },
                                .down = [](Status) {}});
    rank.link->start();
  }
  std::future<Result<std::vector<std::string>>> gather(int rank, Nanos patience) {
    return std::async(std::launch::async, [this, rank, patience] {
      return links_[rank].link->bootstrap({1, 1})->all_gather("addresses", "from " + std::to_string(rank),
                                                              Deadline::after(patience));
    });
  }
  void start_both() {
    start_coordinator(2);
    join(0);
    join(1);
    EXPECT_THAT(links_[0].begun.get_future().get().members, ElementsAre(0, 1));
    links_[1].begun.get_future().wait();
  }
  std::map<int, Rank> links_;
};

TEST_F(LinkTest, AllGatherGivesEverybodyEverything) {
  start_both();
  auto first = gather(0, seconds(60));
  auto second = gather(1, seconds(60));
  EXPECT_THAT(first.get().value(), ElementsAre("from 0", "from 1"));
  EXPECT_THAT(second.get().value(), ElementsAre("from 0", "from 1"));
}

TEST_F(LinkTest, MissingRankIsNamed) {
  start_both();
  const auto result = gather(0, milliseconds(100)).get();
  EXPECT_EQ(result.status().code(), Code::deadline_exceeded);
  EXPECT_THAT(result.status().message(), HasSubstr("rank 1 is missing from 'addresses' of epoch 1.1 after "));
}

TEST_F(LinkTest, DeathOfARankAbortsTheMeetingWithTheReason) {
  start_both();
  auto waiting = gather(0, seconds(60));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // either order must end the same
  coordinator_->process_exited(1, 101, "killed by signal 9");
  const auto result = waiting.get();
  EXPECT_EQ(result.status().code(), Code::aborted);
  EXPECT_THAT(result.status().message(), HasSubstr("rank 1 (pid 101) was lost: killed by signal 9"));
}

TEST_F(LinkTest, StopEndsAMeeting) {
  start_both();
  auto waiting = gather(0, seconds(60));
  links_[0].link->stop();
  EXPECT_FALSE(waiting.get().ok());
}

// Ranks as processes under a supervisor, as `serve` runs them.
class ProcessTest : public ClusterTest {
 protected:
  void start(int ranks) {
    std::vector<ChildSpec> specs;
    for (int rank = 0; rank < ranks; ++rank) {
      specs.push_back({.name = "rank " + std::to_string(rank),
                       .arguments = {std::to_string(rank), directory_->path(), "60000"},
                       .stop_stage = 0,
                       .stop_patience = seconds(30),
                       .is_working = [this, rank] {
                         return coordinator_->view().health.ranks[static_cast<size_t>(rank)].ready;
                       }});
    }
    SupervisorHooks hooks{
        .started = [this](size_t rank,
                          int pid) { coordinator_->process_started(static_cast<int>(rank), pid); },
        .exited =
            [this](size_t rank, int pid, const std::string& why) {
              coordinator_->process_exited(static_cast<int>(rank), pid, why);
            },
        .hopeless = {},
        .all_working = {},
        .stopping = [this] { coordinator_->expect_departures(); }};
    start_coordinator(ranks);
    supervisor_ = std::make_unique<Supervisor>(SLUICE_FAKE_RANK, specs, hooks);
    ASSERT_TRUE(supervisor_->start().ok());
    status_ = std::async(std::launch::async, [this] { return supervisor_->run(stop_.get()); });
    start_client();
    ASSERT_TRUE(eventually([&] { return client_->health().ready; })) << client_->health().message;
  }
  ~ProcessTest() override {
    const uint64_t one = 1;
    EXPECT_EQ(::write(stop_.get(), &one, sizeof one), 8);
    if (status_.valid()) {
      EXPECT_EQ(status_.get(), kExitOk);
    }
  }
  int pid(size_t rank) const { return client_->health().ranks[rank].pid; }

  UniqueFd stop_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::unique_ptr<Supervisor> supervisor_;
  std::future<int> status_;
};

TEST_F(ProcessTest, KilledRankIsRestartedAndOnlyItsRequestsAreLost) {
  start(2);
  std::vector<Stream> streams(8);
  for (Stream& stream : streams) ASSERT_TRUE(client_->submit(request(1, 800), stream.sink()).ok());
  for (Stream& stream : streams) ASSERT_TRUE(eventually([&] { return !stream.tokens().empty(); }));
  const int survivor = pid(0);
  const int victim = pid(1);
  const Nanos killed = now();
  ::kill(victim, SIGKILL);
  ASSERT_TRUE(eventually([&] { return !client_->health().ready; }));
  RecordProperty("not_ready_after_us", static_cast<int>((now() - killed) / 1000));
  ASSERT_TRUE(eventually([&] { return client_->health().ready; }));
  RecordProperty("ready_after_us", static_cast<int>((now() - killed) / 1000));
  EXPECT_EQ(pid(0), survivor);
  EXPECT_NE(pid(1), victim);
  EXPECT_EQ(client_->health().epoch.number, 2u);
  int lost = 0;
  for (Stream& stream : streams) {
    ASSERT_TRUE(eventually([&] { return stream.ended(); }));
    if (stream.end().finish == engine::Finish::length) {
      EXPECT_EQ(stream.tokens().size(), 800u);
      continue;
    }
    ++lost;
    EXPECT_EQ(stream.end().error.code(), Code::unavailable);
    EXPECT_THAT(stream.end().error.message(),
                AnyOf("rank 1 was lost: killed by signal 9", "rank 1 was lost: its connection closed"));
  }
  EXPECT_EQ(lost, 4);
}

TEST_F(ProcessTest, ManyKillsInTurn) {
  start(3);
  for (size_t round = 0; round < 6; ++round) {
    const uint64_t epoch = client_->health().epoch.number;
    ::kill(pid(round % 3), SIGKILL);
    ASSERT_TRUE(eventually([&] {
      const Health health = client_->health();
      return health.ready && health.epoch.number > epoch;
    })) << client_->health().message;
    Stream stream;
    ASSERT_TRUE(client_->submit(request(5, 2), stream.sink()).ok());
    ASSERT_TRUE(eventually([&] { return stream.ended(); }));
    EXPECT_THAT(stream.tokens(), ElementsAre(5, 6));
  }
}

TEST_F(ProcessTest, FrozenRankJoinsTheNewestEpochWhenItThaws) {
  start(2);
  const int frozen = pid(1);
  ::kill(frozen, SIGSTOP);
  // A peer notices, and again in the next epoch, until the frozen one answers.
  ::kill(pid(0), SIGKILL);
  ASSERT_TRUE(eventually([&] { return !client_->health().ready; }));
  ASSERT_TRUE(eventually([&] { return coordinator_->view().health.ranks[0].state == "joining"; }));
  EXPECT_FALSE(client_->health().ready);
  ::kill(frozen, SIGCONT);
  ASSERT_TRUE(eventually([&] { return client_->health().ready; }));
  EXPECT_EQ(pid(1), frozen);
}

TEST(RunDirectory, IsPrivateAndGoesAway) {
  std::string path;
  {
    auto directory = RunDirectory::create();
    ASSERT_TRUE(directory.ok());
    path = directory->path();
    EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms::owner_all);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(RunDirectory, RefusesAPlaceTooLongForSockets) {
  const std::string before = std::getenv("TMPDIR") != nullptr ? std::getenv("TMPDIR") : "";
  const std::string deep = ::testing::TempDir() + std::string(90, 'x');
  std::filesystem::create_directories(deep);
  ::unsetenv("XDG_RUNTIME_DIR");
  ::setenv("TMPDIR", deep.c_str(), 1);
  const auto directory = RunDirectory::create();
  ::setenv("TMPDIR", before.c_str(), 1);
  std::filesystem::remove(deep);
  ASSERT_FALSE(directory.ok());
  EXPECT_THAT(directory.status().message(), AllOf(HasSubstr("TMPDIR"), HasSubstr("107")));
}

TEST(RunDirectory, LastOrphanTidiesUp) {
  auto directory = RunDirectory::create();
  ASSERT_TRUE(directory.ok());
  const std::string path = directory->path();
  for (const char* name : {"/coordinator.sock", "/rank-0-1.sock", "/rank-1-2.sock"})
    ::close(::creat((path + name).c_str(), 0600));
  abandon_run_directory(path, rank_address(path, 0, 1));
  EXPECT_TRUE(std::filesystem::exists(path + "/rank-1-2.sock"));
  abandon_run_directory(path, rank_address(path, 1, 2));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Mailbox, RunsInOrderOnTheOwnersThread) {
  Mailbox mailbox;
  std::vector<int> seen;
  std::thread([&] {
    for (int i = 0; i < 100; ++i) mailbox.post([&seen, i] { seen.push_back(i); });
  }).join();
  mailbox.run();
  ASSERT_EQ(seen.size(), 100u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

}  // namespace
}  // namespace sluice::cluster

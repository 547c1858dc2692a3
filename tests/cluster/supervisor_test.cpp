// The supervisor with children that sleep, exit and crash.
#include "cluster/supervisor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "cluster/exit_status.h"

namespace sluice::cluster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

bool exists(int pid) { return ::kill(pid, 0) == 0; }

class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    stop_reader_.reset(ends[0]);
    stop_writer_.reset(ends[1]);
    ::unlink(counter_.c_str());
  }
  ~SupervisorTest() override {
    for (int pid : pids_) EXPECT_FALSE(exists(pid)) << "process " << pid << " was left behind";
  }

  void ask_to_stop() { EXPECT_EQ(::write(stop_writer_.get(), "x", 1), 1); }

  static ChildSpec child(std::string name, std::vector<std::string> arguments) {
    return {.name = std::move(name),
            .arguments = std::move(arguments),
            .stop_stage = 0,
            .stop_patience = seconds(20),
            .is_working = {}};
  }

  SupervisorHooks hooks() {
    return {.started =
                [this](size_t index, int pid) {
                  pids_.push_back(pid);
                  events_.push_back("started " + std::to_string(index));
                  if (on_started_) on_started_(index, pid);
                },
            .exited =
                [this](size_t index, int /*pid*/, const std::string& reason) {
                  events_.push_back(std::to_string(index) + " " + reason);
                  if (on_exited_) on_exited_(index);
                },
            .hopeless = {},
            .all_working =
                [this] {
                  events_.push_back("all working");
                  if (on_all_working_) on_all_working_();
                },
            .stopping = [this] { events_.push_back("stopping"); }};
  }

  // Runs to the end; what was written to standard error is in log_.
  int run(std::vector<ChildSpec> specs, SupervisorPolicy policy = {.quick_deaths = 5,
                                                                   .first_delay = milliseconds(1),
                                                                   .longest_delay = milliseconds(5),
                                                                   .hurried_patience = milliseconds(100)}) {
    Supervisor supervisor(SLUICE_TEST_CHILD, std::move(specs), hooks(), policy);
    ::testing::internal::CaptureStderr();
    const Status started = supervisor.start();
    EXPECT_TRUE(started.ok()) << started.message();
    const int status = supervisor.run(stop_reader_.get());
    log_ = ::testing::internal::GetCapturedStderr();
    return status;
  }

  int count() const {
    std::ifstream file(counter_);
    int lines = 0;
    for (std::string line; std::getline(file, line);) ++lines;
    return lines;
  }

  UniqueFd stop_reader_;
  UniqueFd stop_writer_;
  std::string counter_ = ::testing::TempDir() + "sluice-supervisor-" + std::to_string(::getpid());
  std::vector<int> pids_;
  std::vector<std::string> events_;
  std::function<void(size_t, int)> on_started_;
  std::function<void(size_t)> on_exited_;
  std::function<void()> on_all_working_;
  std::string log_;
};

TEST_F(SupervisorTest, StopsAllChildrenWhenAsked) {
  on_all_working_ = [this] { ask_to_stop(); };
  EXPECT_EQ(run({child("rank 0", {"sleep", "60000"}), child("front", {"sleep", "60000"})}), kExitOk);
  EXPECT_THAT(events_, UnorderedElementsAre("started 0", "started 1", "all working", "stopping",
                                            "0 killed by signal 15", "1 killed by signal 15"));
}

TEST_F(SupervisorTest, StagesAreStoppedOneAfterTheOther) {
  std::vector<ChildSpec> specs{child("rank 0", {"sleep", "60000"}),
                               child("front", {"stubborn", "count", counter_, "sleep", "60000"})};
  specs[0].stop_stage = 1;  // would be the first to go, were it asked at once
  specs[1].stop_patience = milliseconds(100);
  specs[1].is_working = [this] { return count() == 1; };
  on_all_working_ = [this] { ask_to_stop(); };
  EXPECT_EQ(run(specs), kExitOk);
  EXPECT_THAT(events_, ElementsAre("started 0", "started 1", "all working", "stopping",
                                   "1 killed by signal 9", "0 killed by signal 15"));
}

TEST_F(SupervisorTest, KillsWhatDoesNotStop) {
  std::vector<ChildSpec> specs{
      child("front", {"stubborn", "say", "here", "count", counter_, "sleep", "60000"})};
  specs[0].stop_patience = milliseconds(50);
  specs[0].is_working = [this] { return count() == 1; };
  on_all_working_ = [this] { ask_to_stop(); };
  EXPECT_EQ(run(specs), kExitOk);
  EXPECT_EQ(events_.back(), "0 killed by signal 9");
  EXPECT_THAT(log_, HasSubstr("front (pid " + std::to_string(pids_[0]) + ") does not stop: killing it"));
}

TEST_F(SupervisorTest, SecondRequestStopsEverythingAtOnce) {
  std::vector<ChildSpec> specs{child("rank 0", {"sleep", "60000"}),
                               child("front", {"stubborn", "count", counter_, "sleep", "60000"})};
  specs[0].stop_stage = 1;
  specs[1].is_working = [this] { return count() == 1; };
  specs[1].stop_patience = seconds(600);  // the rank would wait that long for its stage
  on_all_working_ = [this] { ask_to_stop(); };
  std::thread second;
  auto events = hooks();
  events.stopping = [&] {
    events_.push_back("stopping");
    second = std::thread([this] { ask_to_stop(); });
  };
  Supervisor supervisor(SLUICE_TEST_CHILD, specs, events, {.hurried_patience = milliseconds(100)});
  ASSERT_TRUE(supervisor.start().ok());
  EXPECT_EQ(supervisor.run(stop_reader_.get()), kExitOk);
  second.join();
  EXPECT_THAT(events_, ElementsAre("started 0", "started 1", "all working", "stopping",
                                   "0 killed by signal 15", "1 killed by signal 9"));
}

TEST_F(SupervisorTest, DeadChildIsNamedAndStartedAgain) {
  on_all_working_ = [this] { ::kill(pids_[1], SIGKILL); };
  on_started_ = [this](size_t, int) {
    if (pids_.size() == 3) ask_to_stop();
  };
  EXPECT_EQ(run({child("rank 0", {"sleep", "60000"}), child("rank 1", {"sleep", "60000"})}), kExitOk);
  EXPECT_THAT(events_, UnorderedElementsAre("started 0", "started 1", "all working", "1 killed by signal 9",
                                            "started 1", "stopping", "0 killed by signal 15",
                                            "1 killed by signal 15"));
  EXPECT_THAT(log_, HasSubstr("rank 1 (pid " + std::to_string(pids_[1]) +
                              ") was killed by signal 9; restarting it\n"));
}

TEST_F(SupervisorTest, GivesUpAfterFiveQuickDeathsWithTheLastLines) {
  std::vector<ChildSpec> specs{
      child("rank 0", {"sleep", "60000"}),
      child("rank 1", {"count", counter_, "say", "first line", "say", "no such tensor", "exit", "3"})};
  specs[1].is_working = [] { return false; };
  EXPECT_EQ(run(specs), kExitFailure);
  EXPECT_EQ(count(), 5);
  EXPECT_THAT(log_,
              AllOf(HasSubstr("rank 1 (pid " + std::to_string(pids_.back()) +
                              ") exited with status 3, the 5th "
                              "time in a row before it worked: giving up. Its last lines:\n    first line\n"
                              "    no such tensor\n"),
                    HasSubstr("restarting it in 0.001 s"), HasSubstr("restarting it in 0.004 s")));
}

TEST_F(SupervisorTest, DeathsOfAChildThatHadWorkedAreNotCounted) {
  std::vector<ChildSpec> specs{child("rank 0", {"count", counter_, "sleep", "60000"})};
  specs[0].is_working = [this] {
    const bool works = static_cast<size_t>(count()) == pids_.size();
    if (works && pids_.size() < 8) ::kill(pids_.back(), SIGKILL);
    if (works && pids_.size() == 8) ask_to_stop();
    return works;
  };
  EXPECT_EQ(run(specs), kExitOk);
  EXPECT_EQ(count(), 8);
  EXPECT_THAT(log_, Not(HasSubstr("giving up")));
}

TEST_F(SupervisorTest, ConfigurationErrorIsGivenUpAtOnce) {
  std::vector<ChildSpec> specs{
      child("rank 0", {"count", counter_, "say", "more ranks than experts", "exit", "2"})};
  specs[0].is_working = [] { return false; };
  EXPECT_EQ(run(specs), kExitConfiguration);
  EXPECT_EQ(count(), 1);
  EXPECT_THAT(log_, HasSubstr("it cannot run like this. Its last lines:\n    more ranks than experts"));
}

TEST_F(SupervisorTest, HopelessnessEndsEverything) {
  std::vector<ChildSpec> specs{child("rank 0", {"sleep", "60000"})};
  specs[0].is_working = [] { return false; };
  auto all_hooks = hooks();
  int asked = 0;
  all_hooks.hopeless = [&asked] { return ++asked < 3 ? Status() : unavailable("there is no EFA device"); };
  Supervisor supervisor(SLUICE_TEST_CHILD, specs, all_hooks);
  ASSERT_TRUE(supervisor.start().ok());
  EXPECT_EQ(supervisor.run(stop_reader_.get()), kExitFailure);
  EXPECT_EQ(events_.back(), "0 killed by signal 15");
}

TEST_F(SupervisorTest, UnfinishedLastLineIsPassedOnToo) {
  on_exited_ = [this](size_t) { ask_to_stop(); };
  std::vector<ChildSpec> specs{child("rank 0", {"say", "one\ntwo", "crash", "6"})};
  EXPECT_EQ(run(specs), kExitOk);
  EXPECT_THAT(log_, HasSubstr("one\ntwo\n"));
}

TEST_F(SupervisorTest, DestructorLeavesNothingBehind) {
  Supervisor supervisor(SLUICE_TEST_CHILD, {child("rank 0", {"stubborn", "sleep", "60000"})}, hooks());
  ASSERT_TRUE(supervisor.start().ok());
}

TEST_F(SupervisorTest, MissingProgramIsAnError) {
  Supervisor supervisor("/no/such/program", {child("rank 0", {})}, hooks());
  const Status status = supervisor.start();
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("rank 0"), HasSubstr("/no/such/program"), HasSubstr("No such file")));
}

TEST(ChildProcess, ChildGetsOurEnvironmentWithChanges) {
  ::setenv("SUPERVISOR_TEST_KEPT", "kept", 1);
  ::setenv("SUPERVISOR_TEST", "ours", 1);
  auto child = ChildProcess::spawn("/bin/sh", "sh", {"-c", "echo $SUPERVISOR_TEST_KEPT $SUPERVISOR_TEST >&2"},
                                   {"SUPERVISOR_TEST=the child's"});
  ASSERT_TRUE(child.ok());
  ::testing::internal::CaptureStderr();
  while (!child->reap()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "kept the child's\n");
  EXPECT_STREQ(::getenv("SUPERVISOR_TEST"), "ours");
}

TEST(ChildProcess, ChildGetsNoDescriptorOfOurs) {
  const int fd = ::open("/dev/null", O_RDONLY);  // without O_CLOEXEC
  auto child = ChildProcess::spawn("/bin/sh", "sh", {"-c", "ls /proc/self/fd >&2"});
  ASSERT_TRUE(child.ok());
  std::optional<Exit> exit;
  ::testing::internal::CaptureStderr();
  while (!(exit = child->reap())) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // 3 is ls's own, on the directory that it lists.
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "0\n1\n2\n3\n");
  ::close(fd);
}

}  // namespace
}  // namespace sluice::cluster

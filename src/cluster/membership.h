// Who is in the cluster and which epoch it is in: the coordinator's decisions as a state machine without
// clock, thread or network, so that a test can drive it through any order of events.
//
// Invariants: every epoch that begins has a number above all earlier ones; an epoch begins only when every
// rank has joined, and ends before the next begins; the cluster is ready only when every rank has reported
// ready, in its present session, for the epoch that is running; a report of another epoch or session changes
// nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "cluster/engine_client.h"

namespace sluice::cluster {

// One rank's stay in the cluster, from its Hello until its stream ends. Never reused.
using Session = uint64_t;

// What a rank says when it joins.
struct Introduction {
  int rank = 0;
  int pid = 0;
  std::string address;      // where its Engine service listens
  std::string fingerprint;  // engine::Rank::fingerprint(); equal on all ranks
  EpochId highest_epoch;    // that it has seen
};

// Why a rank cannot go on in an epoch.
struct Breakage {
  int blamed_rank = -1;  // -1: nobody in particular
  int layer = -1;
  std::string phase;
  std::string reason;
};

// What a rank is told.
struct Directive {
  enum class Kind { begin, end };
  Session session = 0;
  Kind kind = Kind::begin;
  EpochId epoch;
  std::vector<int> members;  // with begin
  std::string reason;        // with end
};

struct ClusterView {
  Health health;
  std::vector<std::string> addresses;  // of each rank's Engine service; empty while it has not joined
};

class Membership {
 public:
  struct Options {
    int ranks = 1;
    uint64_t term = 1;
    // Between an epoch that broke before it had settled and the next one; doubled each time in a row. The
    // first time after a ready one, and after a death, there is no delay.
    Nanos first_retry = milliseconds(100);
    Nanos longest_retry = seconds(5);
    Nanos settled_after = seconds(2);
    int first_attempts = 5;  // before hopeless()
  };

  explicit Membership(Options options);

  // A rank joins. An error refuses it: the session never existed.
  Status hello(Session session, const Introduction& who, Nanos time);
  // The session's stream has ended.
  void leave(Session session, const std::string& reason, Nanos time);
  void ready(Session session, EpochId epoch, fabric::Report report);
  void broken(Session session, EpochId epoch, const Breakage& why, Nanos time);

  // What the supervisor sees of the rank's process.
  void process_started(int rank, int pid);
  void process_exited(int rank, int pid, const std::string& reason, Nanos time);

  // Begins the epoch whose retry is due. Call at next_tick().
  void tick(Nanos time);
  std::optional<Nanos> next_tick() const;

  // What has been decided since the last call, in the order in which it must be sent.
  std::vector<Directive> take_directives();

  ClusterView view() const;
  bool ready() const;
  // Of the epoch that runs, or of the last one.
  EpochId epoch() const { return epoch_; }
  bool running() const { return running_; }
  const std::string& why_ended() const { return last_end_; }  // the last epoch that did
  // An error when so many epochs in a row have broken that were the first ones: nothing has ever worked.
  Status hopeless() const;

 private:
  struct Slot {
    Session session = 0;  // 0: not joined
    Introduction who;
    int pid = 0;
    std::string state = "starting";
    bool ready = false;
    fabric::Report fabric;
  };

  Slot* find(Session session);
  Status check(const Introduction& who) const;
  void drop(Slot& slot, const std::string& state, const std::string& reason, Nanos time);
  enum class End { lost, broken };
  void end_epoch(End end, const std::string& reason, Nanos time);
  void begin_if_complete(Nanos time);
  bool complete() const;
  std::string message() const;

  Options options_;
  std::vector<Slot> slots_;
  EpochId epoch_;
  EpochId highest_seen_;  // by any rank that joined
  bool running_ = false;
  bool ever_ready_ = false;
  bool was_ready_ = false;  // the epoch that runs
  Nanos begun_at_ = 0;
  int broken_in_a_row_ = 0;  // epochs that ended before they had settled
  Nanos not_before_ = 0;     // the next epoch
  std::string last_end_;     // why the last epoch ended
  std::vector<Directive> directives_;
};

bool operator==(const EpochId& left, const EpochId& right);
bool operator<(const EpochId& left, const EpochId& right);
std::string to_string(const EpochId& epoch);  // "1.3"

}  // namespace sluice::cluster

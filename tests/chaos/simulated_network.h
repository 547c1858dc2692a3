// A network inside one thread: the product's own sending, receiving and windows on rails that obey a seed.
// Time is virtual and nothing waits, so a seed takes about a millisecond and replays exactly.
//
// A write lives through four kinds of event, each at a drawn time: its bytes are captured from the source's
// memory, placed piece by piece in any order, announced to the target, and reported as sent to the source.
// Capture comes before placement and before the report, and placement of all pieces before the announcement.
// Nothing else is ordered: not two writes, not the report and the placement.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "fabric/libfabric/progress.h"
#include "fabric/window_fabric.h"

namespace sluice::fabric::chaos {

// What goes wrong. Chances are of 1000 writes.
struct Weather {
  uint64_t seed = 1;
  uint64_t longest_delay = 40;  // ticks before each event
  int pieces = 4;               // a write is placed in so many at most
  int refused = 0;              // EAGAIN
  int storms = 0;               // the rail says EAGAIN up to 60 times from here on
  int stalls = 0;               // nothing more goes from this source to this target for 2000 ticks
  int duplicates = 0;           // announced twice
  int lost = 0;                 // placed, never announced
  int unreported = 0;           // the source never hears of it
  int errors = 0;               // reported as failed, and not placed

  // Some of it all, but nothing that ends an epoch.
  static Weather drawn(uint64_t seed);
  std::string text() const;
};

class SimulatedNetwork {
 public:
  // `shape`: ranks, epoch, slab_bytes, stripe_bytes and guard_pages count.
  SimulatedNetwork(const Options& shape, const Weather& weather);
  ~SimulatedNetwork();
  SimulatedNetwork(const SimulatedNetwork&) = delete;
  SimulatedNetwork& operator=(const SimulatedNetwork&) = delete;

  // Each rank once. The network must outlive what it gives out.
  std::unique_ptr<Fabric> join(int rank);

  // One event, or one pass of some rank. False when nothing more can happen by itself.
  bool step();
  // step() until then.
  void settle();

  // The rank's process is gone: it makes no more passes, and what was written to it is reported as sent.
  void kill(int rank);
  // Its process stands still; its rail does not.
  void pause(int rank);
  void resume(int rank);
  // The rank's completion queue shows this immediate, as a stranger's write would make it.
  void announce(int target, uint32_t immediate);
  // A key of `owner` for `source` takes no more writes.
  void revoke(int owner, int source);
  uint64_t refused_writes() const { return refused_writes_; }  // by a revoked key

  std::mt19937_64& random() { return random_; }

 private:
  class Rail;
  class Member;
  struct Flight;
  struct Event {
    enum What { capture, place, announce, report };
    uint64_t at = 0;
    uint64_t tie = 0;
    What what = capture;
    Flight* flight = nullptr;
    size_t begin = 0;
    size_t end = 0;
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : tie > other.tie;  // the earliest first
    }
  };

  bool chance(int of_a_thousand) { return random_() % 1000 < static_cast<uint64_t>(of_a_thousand); }
  uint64_t delay() { return random_() % (weather_.longest_delay + 1); }
  void schedule(uint64_t at, Event::What what, Flight* flight, size_t begin = 0, size_t end = 0);
  ssize_t accept(int source, const ofi::Write& write);
  void launch(Flight* flight);
  void happen(const Event& event);
  void place(const Event& event);

  Options shape_;
  Weather weather_;
  std::mt19937_64 random_;
  uint64_t now_ = 0;
  std::vector<std::unique_ptr<Rail>> rails_;
  std::vector<Member*> members_;
  std::vector<bool> paused_;
  std::vector<bool> dead_;
  std::vector<std::vector<bool>> revoked_;  // [owner][source]
  std::vector<std::vector<uint64_t>> open_at_;  // [source][target]: a stalled path's end
  std::deque<Flight> flights_;
  std::priority_queue<Event> events_;
  uint64_t refused_writes_ = 0;
};

}  // namespace sluice::fabric::chaos

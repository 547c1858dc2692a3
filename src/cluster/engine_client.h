// The engines of a cluster as a front sees them: one place to submit to and one verdict on their health.
// The real one speaks gRPC to the ranks and watches the coordinator; tests of the server use a fake.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "fabric/report.h"

namespace sluice::cluster {

// An epoch's name: the leader's term and a number within it.
struct EpochId {
  uint64_t term = 0;
  uint64_t number = 0;
};

struct RankHealth {
  int rank = 0;
  int pid = 0;
  std::string state;      // "starting", "loading", "joining", "ready", "dead: killed by signal 9"
  bool ready = false;     // a real token went through it in this epoch
  fabric::Report fabric;  // of this epoch
};

struct Health {
  bool ready = false;  // every rank is
  std::string
      message;  // "ready: 2 of 2 ranks in epoch 1.3", or what is missing: "rank 1: dead: killed by signal 9"
  EpochId epoch;
  std::vector<RankHealth> ranks;
};

class EngineClient {
 public:
  virtual ~EngineClient() = default;

  // Cheap; from any thread.
  virtual Health health() const = 0;

  // Chooses a rank and submits. The sink is called in order, from one of the client's threads, and must not
  // block; its last call has a finish other than none. While an epoch is down the request waits in its
  // engine. Errors here: unavailable before the cluster was ready for the first time, or when no rank can be
  // reached. What the rank's Engine::submit refuses comes through the sink as Finish::error with its code
  // (invalid_argument, resource_exhausted); a lost rank as unavailable: "rank 1 was lost: killed by signal
  // 9".
  virtual Result<uint64_t> submit(engine::Request request, engine::Sink sink) = 0;
  virtual void cancel(uint64_t request) = 0;
};

}  // namespace sluice::cluster

// The engine behind engine.h: one thread that goes from epoch to epoch and, within one, from step to step.
//
// Two sorts of state. What the mutex guards is shared with callers: arrivals, cancellations, the exchange's
// pointer, the statistics. The scheduler, the blocks and the KV cache belong to the engine thread alone, so
// nothing is locked while a step runs.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/block_pool.h"
#include "engine/request_check.h"
#include "engine/request_state.h"
#include "engine/scheduler.h"
#include "engine/step_batch.h"

namespace sluice::engine {

class StepLoop final : public Engine {
 public:
  StepLoop(model::Model& model, std::unique_ptr<compute::KvCache> cache, Options options, Callbacks callbacks,
           const RequestLimits& limits);
  ~StepLoop() override;

  Result<uint64_t> submit(Request request, Sink sink) override;
  void cancel(uint64_t request) override;
  void enter_epoch(std::unique_ptr<exchange::Exchange> exchange) override;
  void leave_epoch() override;
  Stats stats() const override;
  fabric::Report report() const override;

 private:
  // What a sink is to be told once everything has taken effect.
  struct Delivery {
    RequestState* request = nullptr;
    std::unique_ptr<RequestState> ended;  // the same, when this is its last
    Output output;
  };

  void run();
  exchange::Exchange* await_epoch();
  // Steps until the epoch ends, and says why it did.
  Status run_epoch(exchange::Exchange& exchange);
  void finish_epoch(const Status& why);
  // Returns when `step` is to be entered: there is work here, or a peer has woken this rank.
  Status await_step(exchange::Exchange& exchange, uint64_t step);
  // One step, committed whole or not at all. Its result: does any rank have work for another?
  Result<bool> run_step(exchange::Exchange& exchange, uint64_t step);
  // The part of the commit that concerns the requests: appends tokens, ends requests.
  std::vector<Delivery> commit(const std::vector<Part>& parts, int64_t first_logit_row);
  Output take_token(RequestState& request, std::span<const float> logits);

  // Moves arrivals and cancellations from the callers to the scheduler.
  void absorb();
  void publish_counts();
  std::span<const float> logits_row(int64_t row) const;

  model::Model& model_;
  const std::unique_ptr<compute::KvCache> cache_;
  const Options options_;
  const Callbacks callbacks_;
  const RequestLimits limits_;

  // The engine thread's.
  BlockPool blocks_;
  Scheduler scheduler_;
  std::vector<float> logits_;  // (max_num_seqs + canary, vocab)

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<exchange::Exchange> exchange_;  // set by enter_epoch(), let go of by the engine thread
  std::deque<std::unique_ptr<RequestState>> arrivals_;
  std::vector<uint64_t> cancellations_;
  uint64_t next_id_ = 1;
  bool sleeping_ = false;  // in wait_for_step(): a new request must nudge it
  bool leaving_ = false;   // leave_epoch() waits
  bool closing_ = false;   // the engine thread is letting go of an exchange
  bool stopping_ = false;
  Stats stats_;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace sluice::engine

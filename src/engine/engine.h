// One rank's engine: takes requests, steps the model over batches of them, gives tokens back.
//
// The engine thread runs steps in lockstep with the other ranks of its EP group (DESIGN §6): it enters step
// n+1 when the last expert layer of step n said that some rank has work, otherwise it sleeps until it gets a
// request (then it wakes its peers) or a peer wakes it. What a step produces takes effect together, after its
// last combine: tokens, KV positions, freed blocks. A step that the end of an epoch interrupts leaves no
// trace; its requests wait and go on in the next epoch.
//
// Every epoch's first step is mandatory and carries one canary token per rank, in a slot and block of its
// own, outside queue and statistics: when it commits, a real token has gone through every rank, and on_ready
// is called.
//
// Threads: all public functions are safe from any thread. Sinks and callbacks run on the engine thread and
// must not block; they may call submit() and cancel().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "compute/ops.h"
#include "exchange/exchange.h"
#include "model/model.h"

namespace sluice::engine {

struct SamplingParameters {
  float temperature = 1.0F;  // 0: greedy, ties to the lowest id
  int top_k = 0;             // 0: all
  float top_p = 1.0F;        // in (0, 1]
  uint64_t seed = 0;         // drawn by the front where the client gave none
};

struct Request {
  std::vector<int32_t> prompt;
  // Tokens already given for this request by a rank that died: they count as output, and are not given again.
  std::vector<int32_t> resumed;
  SamplingParameters sampling;
  int max_tokens = 16;                  // output, `resumed` included
  std::vector<int32_t> stop_token_ids;  // besides the model's EOS ids
  bool ignore_eos = false;
  bool want_logits = false;  // Output::logits is filled
};

enum class Finish { none, stop, length, cancelled, error };
std::string_view finish_name(Finish finish);

struct Output {
  uint64_t request = 0;
  int index = 0;       // of the token within the output, from 0
  int32_t token = -1;  // -1 when there is none (cancelled, error)
  float logprob = 0;   // natural logarithm, before temperature
  Finish finish = Finish::none;
  Status error;               // with Finish::error
  std::vector<float> logits;  // (vocab) with want_logits
  int32_t stop_token = -1;    // with Finish::stop: the id that stopped it; it is `token` too
};
using Sink = std::function<void(const Output&)>;

struct Options {
  int max_num_seqs = 64;
  int max_num_batched_tokens = 512;  // of one step: decodes first, then prefill in chunks
  int max_model_len = 0;             // prompt + output; 0: the model's
  int block_size = 16;
  int kv_blocks = 0;  // without the canary's block
  int max_queued = 1024;
  Nanos step_deadline = seconds(30);  // after which a peer counts as late
  std::vector<int32_t> eos_token_ids;
  int32_t canary_token = 0;
  std::string rank_name = "rank 0";  // in logs
};

struct Stats {
  uint64_t epoch = 0;
  bool ready = false;  // the canary of this epoch has committed
  uint64_t steps = 0;
  uint64_t tokens_generated = 0;
  uint64_t prompt_tokens = 0;
  uint64_t requests_finished = 0;
  int running = 0;
  int waiting = 0;
  int kv_blocks_total = 0;
  int kv_blocks_free = 0;
};

struct Callbacks {
  // The first step of `epoch` has committed.
  std::function<void(uint64_t epoch)> on_ready;
  // The epoch cannot go on: a late or lost peer. Not called when leave_epoch() ended it.
  std::function<void(uint64_t epoch, exchange::Blame blame, Status why)> on_broken;
};

class Engine {
 public:
  // model and backend must outlive the engine. Allocates the KV cache.
  static Result<std::unique_ptr<Engine>> start(model::Model& model, compute::Backend& backend,
                                               Options options, Callbacks callbacks);
  // Ends the epoch, fails what is open with `cancelled`, joins the thread.
  virtual ~Engine() = default;

  // The id for cancel() and in Outputs. Refused here, before any work: empty prompt, ids outside the
  // vocabulary, prompt + 1 over max_model_len or over the whole KV cache, sampling parameters out of range
  // (each invalid_argument with field, value and range), a full queue (resource_exhausted). max_tokens is cut
  // to what max_model_len leaves.
  virtual Result<uint64_t> submit(Request request, Sink sink) = 0;
  // Frees its blocks within one step; the sink gets a last Output with Finish::cancelled. Unknown ids are
  // ignored.
  virtual void cancel(uint64_t request) = 0;

  // Goes on in a new epoch. An earlier epoch must have ended (leave_epoch or on_broken); requests kept go on.
  virtual void enter_epoch(std::unique_ptr<exchange::Exchange> exchange) = 0;
  // Ends the current epoch and returns when its exchange has been let go of.
  virtual void leave_epoch() = 0;

  virtual Stats stats() const = 0;
  // Of the current epoch's exchange; empty without one.
  virtual fabric::Report report() const = 0;
};

// A pure function of its arguments: the token that (seed, position) draws from the logits.
// `position` is the absolute position of the token being chosen.
int32_t sample(std::span<const float> logits, const SamplingParameters& sampling, int64_t position);

}  // namespace sluice::engine

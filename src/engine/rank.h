// Everything one rank is made of, put together from its settings: checkpoint, back end, placement, model,
// engine; and the collective opening of an epoch's exchange. Used by the rank process and by commands that
// run ranks as threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/dtype.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/config.h"
#include "compute/ops.h"
#include "engine/engine.h"
#include "exchange/exchange.h"
#include "fabric/bootstrap.h"
#include "model/model.h"

namespace sluice::engine {

struct RankSettings {
  std::string model_directory;
  int rank = 0;
  int ranks = 1;
  std::string fabric = "local";
  DType dtype = DType::bfloat16;  // activations, wire and KV
  bool deterministic = false;
  int threads = 0;        // 0: this host's cores shared among its ranks, at least 1
  int ranks_on_host = 1;  // for that share
  int kv_blocks = 0;      // 0: enough for max_num_seqs sequences of max_model_len, within kv_memory_bytes
  size_t kv_memory_bytes = size_t{4} << 30;
  Options engine;  // eos ids, canary token, kv_blocks and max_model_len are filled in from the checkpoint
};

class Rank {
 public:
  // Refuses what cannot work before weights are read: an unknown architecture or type, more ranks than
  // experts, a shape whose plan does not fit; each with the field, its value and what would be right.
  static Result<std::unique_ptr<Rank>> load(const RankSettings& settings, Callbacks callbacks);
  virtual ~Rank() = default;

  virtual Engine& engine() = 0;
  virtual const checkpoint::ModelConfig& config() const = 0;
  virtual const checkpoint::GenerationConfig& generation_config() const = 0;
  virtual const RankSettings& settings() const = 0;  // with the automatic values filled in
  // For logs: "8 of 16 experts, weights 14.2 MB, KV 64 x 1024 tokens 33.6 MB, cpu AVX-512, 1 thread".
  virtual std::string description() const = 0;
  // What must agree between ranks of an EP group: checkpoint, shapes, types, versions, instruction set.
  // Compared at the start of each epoch, so that a difference is refused by name and not found as wrong
  // tokens.
  virtual std::string fingerprint() const = 0;

  // Collective over the ranks of the epoch: opens fabric and exchange. With one rank, no fabric.
  virtual Result<std::unique_ptr<exchange::Exchange>> open_exchange(uint64_t epoch,
                                                                    fabric::Bootstrap& bootstrap) = 0;
};

}  // namespace sluice::engine

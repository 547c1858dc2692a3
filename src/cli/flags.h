// The options that several commands share, spelled as in vLLM where the concept is vLLM's, and what they
// amount to.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "engine/rank.h"

namespace CLI {
class App;
}

namespace sluice::cli {

struct EngineFlags {
  std::string model;           // a checkpoint's directory
  std::string dtype = "auto";  // auto (the checkpoint's), bfloat16, float32
  int data_parallel_size = 1;
  std::string fabric;  // empty: local, which one host allows
  std::string device = "cpu";
  bool deterministic = false;
  int max_model_len = 0;
  int max_num_seqs = 64;
  int max_num_batched_tokens = 512;
  int block_size = 16;
  int kv_blocks = 0;
  int threads = 0;
  int step_deadline_ms = 30'000;
};

void add_engine_flags(CLI::App& command, EngineFlags& flags);
// The same as arguments for a child process: {"--dtype", "bfloat16", ...}, the model first.
std::vector<std::string> to_arguments(const EngineFlags& flags);
// Checks every value; an error names the option, its value and what would be right.
Result<engine::RankSettings> to_rank_settings(const EngineFlags& flags, int rank);

}  // namespace sluice::cli

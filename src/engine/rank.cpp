#include "engine/rank.h"

#include <fmt/core.h>

#include <algorithm>
#include <thread>

#include "base/log.h"
#include "engine/fingerprint.h"
#include "exchange/placement.h"
#include "fabric/fabric.h"

namespace sluice::engine {
namespace {

constexpr Nanos kBootstrapPatience = seconds(60);
// Of one rank in one exchange. A longer prefill goes in rounds, so windows do not grow with it.
constexpr int kRoundTokens = 512;

exchange::Shape exchange_shape(const checkpoint::ModelConfig& config, const RankSettings& settings) {
  return {.ranks = settings.ranks,
          .experts = config.experts,
          .top_k = config.top_k,
          .hidden = config.hidden_size,
          .max_tokens = std::min(settings.engine.max_num_batched_tokens, kRoundTokens),
          .wire = settings.dtype,
          .exact = settings.deterministic};
}

// Keys and values of one block, in all layers.
size_t kv_block_bytes(const checkpoint::ModelConfig& config, int block_size) {
  const compute::KvShape block = model::Model::kv_shape_for(config, 1, block_size);
  return size_t{2} * static_cast<size_t>(block.layers) * static_cast<size_t>(block.block_size) *
         static_cast<size_t>(block.kv_heads) * static_cast<size_t>(block.head_dim) * dtype_bytes(block.dtype);
}

// The instruction set of a back end's description ("cpu, AVX-512 BF16, 2 threads"): all but the threads.
std::string instruction_set(const std::string& description) {
  const size_t comma = description.rfind(", ");
  const bool threads = comma != std::string::npos && description.find("thread", comma) != std::string::npos;
  return threads ? description.substr(0, comma) : description;
}

std::string megabytes(size_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6); }

Status fill_lengths(RankSettings& settings, const checkpoint::ModelConfig& config) {
  Options& options = settings.engine;
  if (options.max_model_len > config.max_position_embeddings) {
    return invalid_argument(
        fmt::format("max_model_len is {}; the model's positions end at {} "
                    "(max_position_embeddings in config.json)",
                    options.max_model_len, config.max_position_embeddings));
  }
  if (options.max_model_len == 0) options.max_model_len = config.max_position_embeddings;
  if (options.block_size < 1) {
    return invalid_argument(fmt::format("block_size is {}; it must be at least 1", options.block_size));
  }
  return {};
}

// The KV cache's size: as asked for, or enough for all sequences at full length within the memory. It must
// hold one such sequence.
Status fill_kv_blocks(RankSettings& settings, const checkpoint::ModelConfig& config) {
  const Options& options = settings.engine;
  const auto per_sequence = (int64_t{options.max_model_len} + options.block_size - 1) / options.block_size;
  const size_t block_bytes = kv_block_bytes(config, options.block_size);
  const auto most = static_cast<int64_t>(settings.kv_memory_bytes / block_bytes);
  int64_t blocks = settings.kv_blocks;
  if (blocks == 0) blocks = std::min(most, per_sequence * std::max(options.max_num_seqs, 1));
  if (blocks < per_sequence) {
    return Status(
        Code::resource_exhausted,
        fmt::format("the KV cache would have {} blocks of {} tokens ({}), and one sequence of max_model_len "
                    "{} takes {} "
                    "({}); lower max_model_len to {} or give the cache more",
                    blocks, options.block_size, megabytes(static_cast<size_t>(blocks) * block_bytes),
                    options.max_model_len, per_sequence,
                    megabytes(static_cast<size_t>(per_sequence) * block_bytes), blocks * options.block_size));
  }
  settings.kv_blocks = static_cast<int>(std::min<int64_t>(blocks, INT32_MAX - 1));
  settings.engine.kv_blocks = settings.kv_blocks;
  return {};
}

Status check_rank(const RankSettings& settings, const checkpoint::ModelConfig& config) {
  if (settings.ranks < 1 || settings.rank < 0 || settings.rank >= settings.ranks) {
    return invalid_argument(fmt::format("rank {} of {}; ranks count from 0 and there is at least one",
                                        settings.rank, settings.ranks));
  }
  if (settings.dtype != DType::float32 && settings.dtype != DType::bfloat16) {
    return invalid_argument(
        fmt::format("dtype is {}; it must be float32 or bfloat16", dtype_name(settings.dtype)));
  }
  if (config.moe_layers() == 0 && settings.ranks > 1) {
    return unimplemented(fmt::format(
        "{} ranks for a model without expert layers: it has nothing to spread; run one", settings.ranks));
  }
  return {};
}

class LoadedRank final : public Rank {
 public:
  LoadedRank(RankSettings settings, checkpoint::ModelConfig config, checkpoint::GenerationConfig generation,
             exchange::Placement placement, std::unique_ptr<compute::Backend> backend)
      : settings_(std::move(settings)),
        config_(std::move(config)),
        generation_(std::move(generation)),
        placement_(std::move(placement)),
        backend_(std::move(backend)) {}

  Status load_model(Callbacks callbacks);

  Engine& engine() override { return *engine_; }
  const checkpoint::ModelConfig& config() const override { return config_; }
  const checkpoint::GenerationConfig& generation_config() const override { return generation_; }
  const RankSettings& settings() const override { return settings_; }
  std::string description() const override;
  std::string fingerprint() const override;
  Result<std::unique_ptr<exchange::Exchange>> open_exchange(uint64_t epoch,
                                                            fabric::Bootstrap& bootstrap) override;

 private:
  const RankSettings settings_;
  const checkpoint::ModelConfig config_;
  const checkpoint::GenerationConfig generation_;
  const exchange::Placement placement_;
  std::string digest_;
  // In the order in which they depend on each other: the last goes first.
  const std::unique_ptr<compute::Backend> backend_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<Engine> engine_;
};

Status LoadedRank::load_model(Callbacks callbacks) {
  SLUICE_ASSIGN_OR_RETURN(digest_, checkpoint_digest(settings_.model_directory));
  SLUICE_ASSIGN_OR_RETURN(const auto checkpoint, checkpoint::Checkpoint::open(settings_.model_directory));
  const model::Placed placed{.placement = placement_,
                             .rank = settings_.rank,
                             .max_tokens = settings_.engine.max_num_batched_tokens,
                             .round_tokens = exchange_shape(config_, settings_).max_tokens};
  SLUICE_ASSIGN_OR_RETURN(model_, model::Model::load(checkpoint, config_, placed, *backend_));
  SLUICE_ASSIGN_OR_RETURN(engine_, Engine::start(*model_, *backend_, settings_.engine, std::move(callbacks)));
  return {};
}

std::string LoadedRank::description() const {
  const int64_t positions = int64_t{settings_.kv_blocks} * settings_.engine.block_size;
  const size_t kv_bytes =
      static_cast<size_t>(settings_.kv_blocks) * kv_block_bytes(config_, settings_.engine.block_size);
  return fmt::format("{} of {} experts, weights {}, KV {} tokens {}, {}{}",
                     placement_.experts_of(settings_.rank).size(), config_.experts,
                     megabytes(model_->weight_bytes()), positions, megabytes(kv_bytes),
                     backend_->description(), settings_.deterministic ? ", deterministic" : "");
}

std::string LoadedRank::fingerprint() const {
  const exchange::Shape shape = exchange_shape(config_, settings_);
  return fmt::format(
      "version: {}\nmodel: {}\ncheckpoint: {}\nshape: {} layers, hidden {}, {} experts, top {}\n"
      "ranks: {}\nmax_num_batched_tokens: {}\ndtype: {}\ndeterministic: {}\nfabric: {}\nmachine: {}\n",
      SLUICE_VERSION, checkpoint::architecture_name(config_.architecture), digest_, config_.layers,
      shape.hidden, shape.experts, shape.top_k, shape.ranks, settings_.engine.max_num_batched_tokens, dtype_name(shape.wire),
      shape.exact, settings_.fabric, instruction_set(backend_->description()));
}

Result<std::unique_ptr<exchange::Exchange>> LoadedRank::open_exchange(uint64_t epoch,
                                                                      fabric::Bootstrap& bootstrap) {
  const exchange::Shape shape = exchange_shape(config_, settings_);
  if (shape.ranks == 1) return exchange::Exchange::open(shape, placement_, settings_.rank, epoch, nullptr);
  SLUICE_ASSIGN_OR_RETURN(
      const std::vector<std::string> fingerprints,
      bootstrap.all_gather("fingerprints", fingerprint(), Deadline::after(kBootstrapPatience)));
  SLUICE_RETURN_IF_ERROR(compare_fingerprints(fingerprints));
  SLUICE_ASSIGN_OR_RETURN(const exchange::Plan plan, exchange::plan(shape, placement_));
  fabric::Options options;
  options.provider = settings_.fabric;
  options.rank = settings_.rank;
  options.ranks = shape.ranks;
  options.epoch = epoch;
  options.slab_bytes = {plan.dispatch_slab_bytes, plan.combine_slab_bytes};
  SLUICE_ASSIGN_OR_RETURN(auto fabric, fabric::Fabric::open(options, bootstrap));
  return exchange::Exchange::open(shape, placement_, settings_.rank, epoch, std::move(fabric));
}

}  // namespace

Result<std::unique_ptr<Rank>> Rank::load(const RankSettings& wanted, Callbacks callbacks) {
  RankSettings settings = wanted;
  SLUICE_ASSIGN_OR_RETURN(auto config, checkpoint::read_model_config(settings.model_directory));
  SLUICE_ASSIGN_OR_RETURN(auto generation, checkpoint::read_generation_config(settings.model_directory));
  SLUICE_RETURN_IF_ERROR(check_rank(settings, config));
  SLUICE_RETURN_IF_ERROR(fill_lengths(settings, config));
  SLUICE_RETURN_IF_ERROR(fill_kv_blocks(settings, config));
  SLUICE_ASSIGN_OR_RETURN(auto placement, exchange::Placement::contiguous(config.experts, settings.ranks));
  SLUICE_RETURN_IF_ERROR(exchange::plan(exchange_shape(config, settings), placement).status());

  settings.engine.eos_token_ids = generation.eos_token_ids;
  const int32_t bos = generation.bos_token_id.value_or(0);
  settings.engine.canary_token = bos >= 0 && bos < config.vocab_size ? bos : 0;
  settings.engine.rank_name = fmt::format("rank {}", settings.rank);
  if (settings.threads == 0) {
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    settings.threads = std::max(1, cores / std::max(1, settings.ranks_on_host));
  }
  SLUICE_ASSIGN_OR_RETURN(auto backend, compute::make_cpu_backend({.activations = settings.dtype,
                                                                   .deterministic = settings.deterministic,
                                                                   .threads = settings.threads}));
  auto rank = std::make_unique<LoadedRank>(std::move(settings), std::move(config), std::move(generation),
                                           std::move(placement), std::move(backend));
  SLUICE_RETURN_IF_ERROR(rank->load_model(std::move(callbacks)));
  return std::unique_ptr<Rank>(std::move(rank));
}

}  // namespace sluice::engine

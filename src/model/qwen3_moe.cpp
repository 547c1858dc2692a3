#include "model/qwen3_moe.h"

#include <fmt/format.h>

#include "exchange/rounds.h"
#include "model/loader.h"
#include "model/step_check.h"

namespace sluice::model {
namespace {

Matrix slice(const Matrix& m, int64_t first_row, int64_t rows) {
  return {.data = m.row_bytes(first_row), .dtype = m.dtype, .rows = rows, .cols = m.cols, .stride = m.stride};
}

}  // namespace

Result<std::unique_ptr<Model>> Qwen3Moe::load(const checkpoint::Checkpoint& checkpoint,
                                              const checkpoint::ModelConfig& config, const Placed& placed,
                                              compute::Backend& backend) {
  std::unique_ptr<Qwen3Moe> model(new Qwen3Moe(config, backend));
  Loader loader(checkpoint, config, backend);
  const int64_t vocab = config.vocab_size;
  const int64_t hidden = config.hidden_size;
  SLUICE_ASSIGN_OR_RETURN(model->embedding_, loader.matrix("model.embed_tokens", vocab, hidden));
  for (int i = 0; i < config.layers; ++i) {
    SLUICE_ASSIGN_OR_RETURN(Layer layer, model->load_layer(loader, i, placed));
    model->layers_.push_back(std::move(layer));
  }
  SLUICE_ASSIGN_OR_RETURN(model->final_norm_, loader.vector("model.norm", hidden));
  if (!config.tie_word_embeddings) {
    SLUICE_ASSIGN_OR_RETURN(model->head_, loader.matrix("lm_head", vocab, hidden));
  }
  SLUICE_ASSIGN_OR_RETURN(model->scratch_, Scratch::allocate(config, placed, backend));
  model->weight_bytes_ = loader.bytes();
  return std::unique_ptr<Model>(std::move(model));
}

Result<Qwen3Moe::Layer> Qwen3Moe::load_layer(Loader& loader, int index, const Placed& placed) const {
  const std::string prefix = fmt::format("model.layers.{}", index);
  const std::string attention = prefix + ".self_attn";
  const std::string mlp = prefix + ".mlp";
  const int64_t hidden = config_.hidden_size;
  const int64_t inter = config_.intermediate_size;
  const int64_t query_width = int64_t{config_.query_heads} * config_.head_dim;
  const int64_t kv_width = int64_t{config_.kv_heads} * config_.head_dim;
  Layer layer;
  SLUICE_ASSIGN_OR_RETURN(layer.attention_norm, loader.vector(prefix + ".input_layernorm", hidden));
  SLUICE_ASSIGN_OR_RETURN(layer.q, loader.matrix(attention + ".q_proj", query_width, hidden));
  SLUICE_ASSIGN_OR_RETURN(layer.k, loader.matrix(attention + ".k_proj", kv_width, hidden));
  SLUICE_ASSIGN_OR_RETURN(layer.v, loader.matrix(attention + ".v_proj", kv_width, hidden));
  SLUICE_ASSIGN_OR_RETURN(layer.o, loader.matrix(attention + ".o_proj", hidden, query_width));
  SLUICE_ASSIGN_OR_RETURN(layer.q_norm, loader.vector(attention + ".q_norm", config_.head_dim));
  SLUICE_ASSIGN_OR_RETURN(layer.k_norm, loader.vector(attention + ".k_norm", config_.head_dim));
  SLUICE_ASSIGN_OR_RETURN(layer.mlp_norm, loader.vector(prefix + ".post_attention_layernorm", hidden));
  if (config_.is_moe_layer(index)) {
    const std::span<const int> mine = placed.placement.experts_of(placed.rank);
    SLUICE_ASSIGN_OR_RETURN(layer.router, loader.matrix(mlp + ".gate", config_.experts, hidden));
    SLUICE_ASSIGN_OR_RETURN(layer.experts, loader.experts(mlp + ".experts", mine));
  } else {
    SLUICE_ASSIGN_OR_RETURN(layer.gate, loader.matrix(mlp + ".gate_proj", inter, hidden));
    SLUICE_ASSIGN_OR_RETURN(layer.up, loader.matrix(mlp + ".up_proj", inter, hidden));
    SLUICE_ASSIGN_OR_RETURN(layer.down, loader.matrix(mlp + ".down_proj", hidden, inter));
  }
  return layer;
}

Result<ConstMatrix> Qwen3Moe::apply_experts(int index, const exchange::Received& received, DType wire) {
  if (received.pairs() > scratch_.pair_rows.rows) {
    return internal_error(fmt::format("layer {}: {} rows arrived; there is room for {}", index,
                                      received.pairs(), scratch_.pair_rows.rows));
  }
  const Matrix pair_rows = scratch_.pair_rows.top(received.pairs());
  if (received.pairs() > 0) {
    const compute::Experts& experts = *layers_[static_cast<size_t>(index)].experts;
    backend_.experts(experts, received.expert_offsets, received.rows, wire, pair_rows);
  }
  SLUICE_RETURN_IF_ERROR(backend_.synchronize());
  return ConstMatrix(pair_rows);
}

Result<Outcome> Qwen3Moe::forward(const Batch& batch, compute::KvCache& cache, exchange::Exchange& exchange,
                                  Matrix logits, Deadline deadline) {
  SLUICE_RETURN_IF_ERROR(check_step(config_, scratch_.hidden.rows, scratch_.round_tokens, batch, cache, exchange, logits));
  const auto tokens = static_cast<int64_t>(batch.tokens.size());
  const bool busy = tokens > 0;  // without tokens the rank serves its experts to the others, and no more
  const float eps = config_.rms_norm_eps;
  const compute::AttentionShape heads{config_.query_heads, config_.kv_heads, config_.head_dim};
  const compute::RopeParameters rope{config_.rope_theta};
  const Matrix hidden = scratch_.hidden.top(tokens);
  const Matrix normed = scratch_.normed.top(tokens);
  const Matrix q = scratch_.q.top(tokens);
  const Matrix k = scratch_.k.top(tokens);
  const Matrix v = scratch_.v.top(tokens);
  const Matrix attended = scratch_.attended.top(tokens);
  const Matrix delta = scratch_.delta.top(tokens);
  const size_t choices = batch.tokens.size() * static_cast<size_t>(config_.top_k);
  Outcome outcome{.any = batch.flags};

  // Each token's embedding starts its row of the residual stream.
  if (busy) backend_.embed(batch.tokens, *embedding_, hidden);

  for (int index = 0; index < config_.layers; ++index) {
    const Layer& layer = layers_[static_cast<size_t>(index)];
    if (busy) {
      // Attention: query, key and value heads of the normalised row; keys and values go to the cache.
      backend_.rms_norm(hidden, *layer.attention_norm, eps, normed);
      backend_.product(normed, *layer.q, q);
      backend_.product(normed, *layer.k, k);
      backend_.product(normed, *layer.v, v);
      backend_.rope_and_store(heads, rope, layer.q_norm.get(), layer.k_norm.get(), eps, q, k, v,
                              batch.sequences, index, cache);
      // Every query sees its sequence's positions up to its own; the heads' outputs are mixed and added.
      backend_.attention(heads, q, batch.sequences, index, cache, attended);
      backend_.product(attended, *layer.o, delta);
      backend_.add(hidden, delta);
      backend_.rms_norm(hidden, *layer.mlp_norm, eps, normed);
    }
    if (layer.experts != nullptr) {
      // The router chooses each token's experts and their weights.
      const std::span chosen = std::span(scratch_.chosen).first(choices);
      const std::span weights = std::span(scratch_.weights).first(choices);
      if (busy) {
        const Matrix router_logits = scratch_.router_logits.top(tokens);
        backend_.product(normed, *layer.router, router_logits);
        backend_.route(router_logits, config_.top_k, config_.norm_topk_prob, chosen, weights);
      }
      // Rows travel to the ranks that hold their experts; those of all ranks that chose experts here arrive;
      // this rank's experts work on them, and each row's results return to its source as one weighted sum.
      SLUICE_RETURN_IF_ERROR(backend_.synchronize());
      const auto apply = [&](const exchange::Received& received) {
        return apply_experts(index, received, exchange.shape().wire);
      };
      SLUICE_ASSIGN_OR_RETURN(outcome.any, exchange::exchange_layer(exchange,
                                                                    {.layer = index,
                                                                     .x = normed,
                                                                     .experts = chosen,
                                                                     .weights = weights,
                                                                     .flags = batch.flags},
                                                                    apply, delta, deadline));
    } else if (busy) {
      // A dense MLP: down(silu(gate(x)) * up(x)).
      const Matrix gate = scratch_.gate.top(tokens);
      const Matrix up = scratch_.up.top(tokens);
      const Matrix inner = scratch_.inner.top(tokens);
      backend_.product(normed, *layer.gate, gate);
      backend_.product(normed, *layer.up, up);
      backend_.silu_mul(gate, up, inner);
      backend_.product(inner, *layer.down, delta);
    }
    if (busy) backend_.add(hidden, delta);
  }

  // The rows whose logits are wanted, gathered run by run, go through the final norm and the head.
  const auto wanted = static_cast<int64_t>(batch.logit_rows.size());
  for (int64_t first = 0, run = 0; first < wanted; first += run) {
    const std::span rows = batch.logit_rows.subspan(static_cast<size_t>(first));
    run = 1;
    while (first + run < wanted && rows[static_cast<size_t>(run)] == rows[0] + run) ++run;
    backend_.rms_norm(slice(hidden, rows[0], run), *final_norm_, eps, slice(normed, first, run));
  }
  if (wanted > 0) backend_.product(normed.top(wanted), head(), logits);
  SLUICE_RETURN_IF_ERROR(backend_.synchronize());
  return outcome;
}

}  // namespace sluice::model

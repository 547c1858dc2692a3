#include "toy_model.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace sluice::engine {
namespace {

uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

class ToyKvCache final : public compute::KvCache {
 public:
  explicit ToyKvCache(const compute::KvShape& shape)
      : shape_(shape), tokens_(static_cast<size_t>(shape.blocks * shape.block_size), -1) {}
  const compute::KvShape& shape() const override { return shape_; }
  size_t bytes() const override { return tokens_.size() * sizeof(int32_t); }

  int32_t& at(std::span<const int32_t> blocks, int64_t position) {
    const int32_t block = blocks[static_cast<size_t>(position / shape_.block_size)];
    return tokens_.at(static_cast<size_t>(int64_t{block} * shape_.block_size + position % shape_.block_size));
  }

 private:
  compute::KvShape shape_;
  std::vector<int32_t> tokens_;
};

class ToyBackend final : public compute::Backend {
 public:
  std::string description() const override { return "toy"; }
  const compute::Options& options() const override { return options_; }
  Result<std::unique_ptr<compute::KvCache>> make_kv_cache(const compute::KvShape& shape) override {
    return std::unique_ptr<compute::KvCache>(std::make_unique<ToyKvCache>(shape));
  }

  Result<std::unique_ptr<compute::Buffer>> allocate(size_t) override { return absent(); }
  Result<std::unique_ptr<compute::Weight>> prepare(const compute::WeightSource&) override { return absent(); }
  Result<std::unique_ptr<compute::Experts>> prepare_experts(std::span<const compute::ExpertSource>) override {
    return absent();
  }
  Result<std::unique_ptr<compute::Buffer>> prepare_vector(const void*, DType, int64_t) override {
    return absent();
  }
  void embed(std::span<const int32_t>, const compute::Weight&, Matrix) override {}
  void rms_norm(ConstMatrix, const compute::Buffer&, float, Matrix) override {}
  void product(ConstMatrix, const compute::Weight&, Matrix) override {}
  void add(Matrix, ConstMatrix) override {}
  void silu_mul(ConstMatrix, ConstMatrix, Matrix) override {}
  void rope_and_store(const compute::AttentionShape&, const compute::RopeParameters&, const compute::Buffer*,
                      const compute::Buffer*, float, Matrix, Matrix, ConstMatrix,
                      std::span<const compute::Sequence>, int, compute::KvCache&) override {}
  void attention(const compute::AttentionShape&, ConstMatrix, std::span<const compute::Sequence>, int,
                 const compute::KvCache&, Matrix) override {}
  void route(ConstMatrix, int, bool, std::span<int32_t>, std::span<float>) override {}
  void experts(const compute::Experts&, std::span<const int32_t>, std::span<const std::byte* const>, DType,
               Matrix) override {}
  Status synchronize() override { return {}; }

 private:
  static Status absent() { return unimplemented("the toy back end has KV only"); }
  compute::Options options_;
};

exchange::Placement toy_placement(int ranks) {
  return std::move(exchange::Placement::contiguous(kToyExperts, ranks)).value();
}

int toy_expert(int32_t token, int layer, int choice) { return (token + layer + choice * 3) % kToyExperts; }

}  // namespace

exchange::Shape toy_shape(int ranks, int max_tokens) {
  return {.ranks = ranks,
          .experts = kToyExperts,
          .top_k = kToyTopK,
          .hidden = kToyHidden,
          .max_tokens = max_tokens,
          .wire = DType::float32,
          .exact = true};
}

std::vector<float> toy_logits(std::span<const int32_t> context) {
  uint64_t hash = 1;
  for (const int32_t token : context) hash = mix(hash + static_cast<uint64_t>(token) + 0x9e3779b97f4a7c15ULL);
  std::vector<float> logits(kToyVocab);
  for (size_t id = 0; id < logits.size(); ++id) {
    logits[id] = static_cast<float>(mix(hash + id) >> 40) * 0x1p-21F;  // 0 to 8
  }
  return logits;
}

std::vector<int32_t> toy_text(std::vector<int32_t> context, int tokens) {
  std::vector<int32_t> text;
  for (int i = 0; i < tokens; ++i) {
    text.push_back(sample(toy_logits(context), {.temperature = 0}, static_cast<int64_t>(context.size())));
    context.push_back(text.back());
  }
  return text;
}

std::unique_ptr<compute::Backend> make_toy_backend() { return std::make_unique<ToyBackend>(); }

ToyModel::ToyModel(int rank, int ranks) : placement_(toy_placement(ranks)), rank_(rank) {
  config_.vocab_size = kToyVocab;
  config_.max_position_embeddings = 256;
  config_.hidden_size = kToyHidden;
  config_.layers = kToyLayers;
}

compute::KvShape ToyModel::kv_shape(int blocks, int block_size) const {
  return {.layers = kToyLayers, .blocks = blocks, .block_size = block_size, .kv_heads = 1, .head_dim = 1};
}

Result<model::Outcome> ToyModel::forward(const model::Batch& batch, compute::KvCache& cache,
                                         exchange::Exchange& exchange, Matrix logits, Deadline deadline) {
  if (on_forward) on_forward(batch);
  largest_batch = std::max(largest_batch.load(), static_cast<int>(batch.tokens.size()));
  auto& kv = static_cast<ToyKvCache&>(cache);
  std::set<int32_t> blocks;
  for (const compute::Sequence& sequence : batch.sequences) {
    for (const int32_t block : sequence.blocks) {
      if (!blocks.insert(block).second) return internal_error("two sequences share a block");
    }
    for (int64_t i = 0; i < sequence.queries; ++i) {
      kv.at(sequence.blocks, sequence.start + i) = batch.tokens[static_cast<size_t>(sequence.first_row + i)];
    }
  }
  exchange::StepFlags any = batch.flags;
  for (int layer = 0; layer < kToyLayers; ++layer) {
    SLUICE_RETURN_IF_ERROR(run_experts(layer, batch, exchange, deadline, any));
  }
  int64_t out = 0;
  for (const compute::Sequence& sequence : batch.sequences) {
    const int64_t last_row = sequence.first_row + sequence.queries - 1;
    const bool wanted =
        std::find(batch.logit_rows.begin(), batch.logit_rows.end(), last_row) != batch.logit_rows.end();
    if (!wanted) continue;
    std::vector<int32_t> context;
    for (int64_t p = 0; p < sequence.start + sequence.queries; ++p)
      context.push_back(kv.at(sequence.blocks, p));
    std::vector<float> row = toy_logits(context);
    if (edit_logits) edit_logits(context, row);
    std::memcpy(logits.row_bytes(out++), row.data(), row.size() * sizeof(float));
  }
  return model::Outcome{.any = any};
}

// Expert e multiplies a row by e + 1, so a token's result is its row times 0.5 (e0 + 1) + 0.25 (e1 + 1).
Status ToyModel::run_experts(int layer, const model::Batch& batch, exchange::Exchange& exchange,
                             Deadline deadline, exchange::StepFlags& any) {
  const size_t tokens = batch.tokens.size();
  std::vector<float> x(tokens * kToyHidden);
  std::vector<int32_t> experts;
  std::vector<float> weights;
  for (size_t t = 0; t < tokens; ++t) {
    for (int h = 0; h < kToyHidden; ++h)
      x[t * kToyHidden + static_cast<size_t>(h)] = static_cast<float>(batch.tokens[t] + h);
    for (int k = 0; k < kToyTopK; ++k) {
      experts.push_back(toy_expert(batch.tokens[t], layer, k));
      weights.push_back(k == 0 ? 0.5F : 0.25F);
    }
  }
  const auto rows = static_cast<int64_t>(tokens);
  SLUICE_ASSIGN_OR_RETURN(const exchange::Received received,
                          exchange.dispatch(layer, {x.data(), DType::float32, rows, kToyHidden, kToyHidden},
                                            experts, weights, batch.flags, deadline));
  any = received.any;
  const auto pairs = static_cast<size_t>(received.pairs());
  std::vector<float> results(pairs * kToyHidden);
  const std::span<const int> mine = placement_.experts_of(rank_);
  for (size_t e = 0; e + 1 < received.expert_offsets.size(); ++e) {
    for (auto p = static_cast<size_t>(received.expert_offsets[e]);
         p < static_cast<size_t>(received.expert_offsets[e + 1]); ++p) {
      const auto* row = reinterpret_cast<const float*>(received.rows[p]);
      for (size_t h = 0; h < kToyHidden; ++h)
        results[p * kToyHidden + h] = row[h] * static_cast<float>(mine[e] + 1);
    }
  }
  std::vector<float> out(tokens * kToyHidden);
  SLUICE_RETURN_IF_ERROR(
      exchange.combine({results.data(), DType::float32, received.pairs(), kToyHidden, kToyHidden},
                       {out.data(), DType::float32, rows, kToyHidden, kToyHidden}, deadline));
  if (exchange.shape().max_tokens == 0) return {};  // a fake one, which moves no rows
  for (size_t i = 0; i < out.size(); ++i) {
    const int32_t token = batch.tokens[i / kToyHidden];
    const float factor = 0.5F * static_cast<float>(toy_expert(token, layer, 0) + 1) +
                         0.25F * static_cast<float>(toy_expert(token, layer, 1) + 1);
    if (out[i] != x[i] * factor) return internal_error("the exchange brought back a wrong sum");
  }
  return {};
}

}  // namespace sluice::engine

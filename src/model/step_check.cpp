#include "model/step_check.h"

#include <fmt/format.h>

#include <string_view>

namespace sluice::model {
namespace {

Status equal(std::string_view what, int64_t found, int64_t expected) {
  if (found == expected) return {};
  return invalid_argument(fmt::format("forward: {} is {}; this model needs {}", what, found, expected));
}

Status check_tokens(const checkpoint::ModelConfig& config, int64_t max_tokens, const Batch& batch) {
  const auto tokens = static_cast<int64_t>(batch.tokens.size());
  if (tokens > max_tokens) {
    return invalid_argument(
        fmt::format("forward: {} tokens; this model was loaded for {} a step", tokens, max_tokens));
  }
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    if (batch.tokens[i] < 0 || batch.tokens[i] >= config.vocab_size) {
      return invalid_argument(fmt::format("forward: token {} in row {}; the vocabulary has ids 0 to {}",
                                          batch.tokens[i], i, config.vocab_size - 1));
    }
  }
  int64_t previous = -1;
  for (const int64_t row : batch.logit_rows) {
    if (row <= previous || row >= tokens) {
      return invalid_argument(fmt::format("forward: logits of row {} after row {}; they ascend, below {}",
                                          row, previous, tokens));
    }
    previous = row;
  }
  return {};
}

Status check_sequences(const Batch& batch, const compute::KvShape& cache) {
  int64_t next_row = 0;
  for (const compute::Sequence& sequence : batch.sequences) {
    if (sequence.first_row != next_row || sequence.queries < 1 || sequence.start < 0) {
      return invalid_argument(fmt::format(
          "forward: a sequence of {} queries at row {}, position {}; it must have at least one, at "
          "row {}, from position 0 on",
          sequence.queries, sequence.first_row, sequence.start, next_row));
    }
    const int64_t room = static_cast<int64_t>(sequence.blocks.size()) * cache.block_size;
    if (sequence.queries > room - sequence.start) {
      return invalid_argument(
          fmt::format("forward: a sequence of {} queries at position {}, but its {} blocks hold {} positions",
                      sequence.queries, sequence.start, sequence.blocks.size(), room));
    }
    next_row += sequence.queries;
    for (const int32_t block : sequence.blocks) {
      if (block < 0 || block >= cache.blocks) {
        return invalid_argument(fmt::format("forward: block {}; the cache has {}", block, cache.blocks));
      }
    }
  }
  return equal("the number of rows that sequences cover", next_row,
               static_cast<int64_t>(batch.tokens.size()));
}

Status check_exchange(const checkpoint::ModelConfig& config, int64_t round_tokens,
                      const exchange::Shape& shape) {
  SLUICE_RETURN_IF_ERROR(equal("the exchange's number of experts", shape.experts, config.experts));
  SLUICE_RETURN_IF_ERROR(equal("the exchange's top_k", shape.top_k, config.top_k));
  SLUICE_RETURN_IF_ERROR(equal("the exchange's row width", shape.hidden, config.hidden_size));
  return equal("the exchange's max_tokens", shape.max_tokens, round_tokens);
}

}  // namespace

Status check_step(const checkpoint::ModelConfig& config, int64_t max_tokens, int64_t round_tokens,
                  const Batch& batch, const compute::KvCache& cache, const exchange::Exchange& exchange,
                  const Matrix& logits) {
  const compute::KvShape& kv = cache.shape();
  SLUICE_RETURN_IF_ERROR(check_tokens(config, max_tokens, batch));
  SLUICE_RETURN_IF_ERROR(check_sequences(batch, kv));
  SLUICE_RETURN_IF_ERROR(check_exchange(config, round_tokens, exchange.shape()));
  SLUICE_RETURN_IF_ERROR(equal("the cache's number of layers", kv.layers, config.layers));
  SLUICE_RETURN_IF_ERROR(equal("the cache's number of heads", kv.kv_heads, config.kv_heads));
  SLUICE_RETURN_IF_ERROR(equal("the cache's head size", kv.head_dim, config.head_dim));
  SLUICE_RETURN_IF_ERROR(
      equal("the number of logit rows", logits.rows, static_cast<int64_t>(batch.logit_rows.size())));
  if (logits.rows == 0) return {};
  return equal("the width of a logit row", logits.cols, config.vocab_size);
}

}  // namespace sluice::model

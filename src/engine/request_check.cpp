#include "engine/request_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <span>

namespace sluice::engine {
namespace {

Status check_ids(std::string_view field, std::span<const int32_t> ids, int vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab_size) continue;
    return invalid_argument(
        fmt::format("{}[{}] is {}; the vocabulary has ids 0 to {}", field, i, ids[i], vocab_size - 1));
  }
  return {};
}

Status check_sampling(const SamplingParameters& sampling) {
  if (!std::isfinite(sampling.temperature) || sampling.temperature < 0) {
    return invalid_argument(fmt::format("temperature is {}; it must be a finite number from 0 (greedy) up",
                                        sampling.temperature));
  }
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) {
    return invalid_argument(fmt::format("top_p is {}; it must be above 0 and at most 1", sampling.top_p));
  }
  if (sampling.top_k < 0) {
    return invalid_argument(fmt::format("top_k is {}; it must be 0 (all tokens) or more", sampling.top_k));
  }
  return {};
}

Status check_length(const Request& request, const RequestLimits& limits) {
  const auto length = static_cast<int64_t>(request.prompt.size() + request.resumed.size());
  const std::string_view what = request.resumed.empty() ? "prompt has" : "prompt and resumed output have";
  if (length + 1 > limits.max_model_len) {
    return invalid_argument(
        fmt::format("{} {} tokens; max_model_len is {}, so at most {} leave room for one of output", what,
                    length, limits.max_model_len, limits.max_model_len - 1));
  }
  if (length + 1 > limits.kv_positions) {
    return invalid_argument(
        fmt::format("{} {} tokens; the whole KV cache holds {}, so at most {} leave room for one of output",
                    what, length, limits.kv_positions, limits.kv_positions - 1));
  }
  return {};
}

Status at_least_one(std::string_view option, int value) {
  if (value >= 1) return {};
  return invalid_argument(fmt::format("{} is {}; it must be at least 1", option, value));
}

}  // namespace

Status check_request(Request& request, const RequestLimits& limits) {
  if (request.prompt.empty()) return invalid_argument("prompt is empty; it must hold at least one token");
  SLUICE_RETURN_IF_ERROR(check_ids("prompt", request.prompt, limits.vocab_size));
  SLUICE_RETURN_IF_ERROR(check_ids("resumed", request.resumed, limits.vocab_size));
  SLUICE_RETURN_IF_ERROR(check_ids("stop_token_ids", request.stop_token_ids, limits.vocab_size));
  SLUICE_RETURN_IF_ERROR(check_sampling(request.sampling));
  SLUICE_RETURN_IF_ERROR(at_least_one("max_tokens", request.max_tokens));
  SLUICE_RETURN_IF_ERROR(check_length(request, limits));
  const int64_t room = std::min<int64_t>(limits.max_model_len, limits.kv_positions) -
                       static_cast<int64_t>(request.prompt.size());
  request.max_tokens = static_cast<int>(std::min<int64_t>(request.max_tokens, room));
  if (static_cast<int64_t>(request.resumed.size()) >= request.max_tokens) {
    return invalid_argument(
        fmt::format("resumed has {} tokens; max_tokens is {}, so nothing is left to generate",
                    request.resumed.size(), request.max_tokens));
  }
  return {};
}

Status check_options(const Options& options, int vocab_size) {
  SLUICE_RETURN_IF_ERROR(at_least_one("max_num_seqs", options.max_num_seqs));
  SLUICE_RETURN_IF_ERROR(at_least_one("max_num_batched_tokens", options.max_num_batched_tokens));
  SLUICE_RETURN_IF_ERROR(at_least_one("block_size", options.block_size));
  SLUICE_RETURN_IF_ERROR(at_least_one("kv_blocks", options.kv_blocks));
  SLUICE_RETURN_IF_ERROR(at_least_one("max_queued", options.max_queued));
  if (options.max_model_len < 0 || options.max_model_len == 1) {
    return invalid_argument(
        fmt::format("max_model_len is {}; it must be at least 2, one of prompt and one of "
                    "output, or 0 for the model's",
                    options.max_model_len));
  }
  if (options.step_deadline <= 0) {
    return invalid_argument(
        fmt::format("step_deadline is {} ns; it must be positive", options.step_deadline));
  }
  SLUICE_RETURN_IF_ERROR(check_ids("canary_token", {&options.canary_token, 1}, vocab_size));
  return check_ids("eos_token_ids", options.eos_token_ids, vocab_size);
}

}  // namespace sluice::engine

#include "server/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/json_text.h"

namespace sluice::server {
namespace {

constexpr int kDefaultCompletionTokens = 16;  // as OpenAI

std::vector<int32_t> encode(std::string_view text, bool add_special_tokens,
                            const text::Tokenizer& tokenizer) {
  if (!add_special_tokens) return tokenizer.encode(text);
  const auto prefix = tokenizer.prefix_ids();
  const auto suffix = tokenizer.suffix_ids();
  std::vector<int32_t> ids(prefix.begin(), prefix.end());
  const std::vector<int32_t> body = tokenizer.encode(text);
  ids.insert(ids.end(), body.begin(), body.end());
  ids.insert(ids.end(), suffix.begin(), suffix.end());
  return ids;
}

ApiResult<std::vector<int32_t>> encode_chat(const ParsedRequest& parsed, const ModelContext& model) {
  if (model.tokenizer == nullptr) {
    return ApiError{.message = "this model has no tokenizer: use /v1/completions with token ids",
                    .code = "no_tokenizer"};
  }
  if (model.chat_template == nullptr) {
    return ApiError{.message = "this model has no chat template: use /v1/completions",
                    .code = "no_chat_template"};
  }
  auto text = model.chat_template->render(*parsed.template_context);
  if (!text.ok()) {
    return bad_field("messages",
                     fmt::format("the chat template refuses these messages: {}", text.status().message()));
  }
  return encode(*text, parsed.add_special_tokens, *model.tokenizer);
}

ApiResult<std::vector<int32_t>> encode_prompt(Prompt& prompt, bool add_special_tokens,
                                              const ModelContext& model) {
  if (auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) return std::move(*ids);
  if (model.tokenizer == nullptr) {
    return bad_field("prompt", "this model has no tokenizer: give the prompt as token ids", "no_tokenizer");
  }
  return encode(std::get<std::string>(prompt), add_special_tokens, *model.tokenizer);
}

// What the prompt leaves of the context; an error where that is nothing, or less than was asked for.
ApiResult<int> output_budget(size_t prompt_tokens, const ParsedRequest& parsed, const ModelContext& model) {
  const std::string field = parsed.kind == ApiKind::chat ? "messages" : "prompt";
  if (prompt_tokens == 0) return bad_field(field, fmt::format("'{}' gives no tokens", field), "empty_prompt");
  const auto context = static_cast<size_t>(model.max_model_len);
  if (prompt_tokens >= context) {
    return bad_field(
        field,
        fmt::format("the prompt has {} tokens, but the model's context is {} tokens for prompt and "
                    "output together: shorten the prompt",
                    prompt_tokens, context),
        "context_length_exceeded");
  }
  const int left = static_cast<int>(context - prompt_tokens);
  if (parsed.max_tokens && *parsed.max_tokens > left) {
    return bad_field(
        "max_tokens",
        fmt::format("the prompt has {} tokens and {} more are asked for, but the model's context is {} "
                    "tokens for both together: ask for at most {}",
                    prompt_tokens, *parsed.max_tokens, context, left),
        "context_length_exceeded");
  }
  if (parsed.max_tokens) return *parsed.max_tokens;
  return parsed.kind == ApiKind::chat ? left : std::min(left, kDefaultCompletionTokens);
}

engine::SamplingParameters sampling_of(const ParsedRequest& parsed, const ModelContext& model) {
  engine::SamplingParameters sampling;
  sampling.temperature = static_cast<float>(parsed.temperature.value_or(model.temperature.value_or(1.0)));
  sampling.top_p = static_cast<float>(parsed.top_p.value_or(model.top_p.value_or(1.0)));
  sampling.top_k = std::max(parsed.top_k.value_or(model.top_k.value_or(0)), 0);
  if (sampling.top_p <= 0) {
    // The smallest set of tokens whose probability is at least 0: the best one.
    sampling.top_p = 1;
    sampling.top_k = 1;
  }
  return sampling;
}

}  // namespace

engine::Request PreparedRequest::engine_request(int choice, uint64_t drawn_seed) const {
  const auto prompt = static_cast<size_t>(choice / parsed.n);
  engine::Request request;
  request.prompt = prompts[prompt];
  request.sampling = sampling;
  request.sampling.seed = parsed.seed ? *parsed.seed + static_cast<uint64_t>(choice % parsed.n) : drawn_seed;
  request.max_tokens = max_tokens[prompt];
  request.stop_token_ids = parsed.stop_token_ids;
  request.ignore_eos = parsed.ignore_eos;
  return request;
}

ApiResult<PreparedRequest> prepare_request(ApiKind kind, std::string_view body, const ModelContext& model) {
  auto json = parse_body(body);
  if (!json.ok()) return ApiError{.message = json.status().message(), .code = "invalid_json"};
  const RequestLimits limits{.vocab_size = model.vocab_size};
  auto parsed =
      kind == ApiKind::chat ? parse_chat_request(*json, limits) : parse_completion_request(*json, limits);
  if (!parsed.ok()) return parsed.error();
  if (!model.has_name(parsed->model)) {
    return ApiError{.status = 404,
                    .message = fmt::format("the model '{}' does not exist here, '{}' does", parsed->model,
                                           model.served_name),
                    .param = "model",
                    .code = "model_not_found"};
  }
  PreparedRequest prepared;
  prepared.parsed = *std::move(parsed);
  prepared.sampling = sampling_of(prepared.parsed, model);
  const size_t count = kind == ApiKind::chat ? 1 : prepared.parsed.prompts.size();
  for (size_t i = 0; i < count; ++i) {
    auto ids = kind == ApiKind::chat
                   ? encode_chat(prepared.parsed, model)
                   : encode_prompt(prepared.parsed.prompts[i], prepared.parsed.add_special_tokens, model);
    if (!ids.ok()) return ids.error();
    auto budget = output_budget(ids->size(), prepared.parsed, model);
    if (!budget.ok()) return budget.error();
    prepared.prompts.push_back(*std::move(ids));
    prepared.max_tokens.push_back(*budget);
  }
  return prepared;
}

}  // namespace sluice::server

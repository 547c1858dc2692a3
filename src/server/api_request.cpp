#include "server/api_request.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>

#include "server/chat_messages.h"
#include "server/fields.h"

namespace sluice::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxStops = 4;  // as OpenAI
constexpr size_t kMaxStopBytes = 1024;
constexpr int kMaxStopTokenIds = 128;
constexpr int kMaxN = 128;  // as OpenAI
constexpr size_t kMaxPrompts = 1024;

// Fields whose effect is not there: only the value that asks for nothing is taken. `neutral` is JSON; null is
// always neutral.
struct UnsupportedField {
  std::string_view name;
  std::string_view neutral;
};

constexpr UnsupportedField kUnsupported[] = {
    // OpenAI's
    {"frequency_penalty", "0"},
    {"presence_penalty", "0"},
    {"logit_bias", "{}"},
    {"response_format", R"({"type":"text"})"},
    // vLLM's
    {"min_p", "0"},
    {"repetition_penalty", "1"},
    {"length_penalty", "1"},
    {"use_beam_search", "false"},
    {"min_tokens", "0"},
    {"truncate_prompt_tokens", "null"},
    {"prompt_logprobs", "null"},
    {"logprob_token_ids", "[]"},
    {"allowed_token_ids", "null"},
    {"bad_words", "[]"},
    {"thinking_token_budget", "null"},
    {"watermarking", "false"},
    {"structured_outputs", "null"},
    {"guided_json", "null"},
    {"guided_regex", "null"},
    {"guided_choice", "null"},
    {"guided_grammar", "null"},
    {"cache_salt", "null"},
    {"kv_transfer_params", "null"},
    {"vllm_xargs", "{}"},
    {"repetition_detection", "null"},
    {"prompt_embeds", "null"},
    {"return_tokens_as_token_ids", "false"},
};

constexpr UnsupportedField kUnsupportedInChat[] = {
    {"logprobs", "false"},
    {"top_logprobs", "0"},
    {"audio", "null"},
    {"modalities", R"(["text"])"},
    {"web_search_options", "null"},
    {"functions", "[]"},
    {"function_call", R"("none")"},
    {"verbosity", R"("medium")"},
    {"store", "false"},
    {"documents", "[]"},
    {"chat_template", "null"},
    {"continue_final_message", "false"},
};

constexpr UnsupportedField kUnsupportedInCompletion[] = {
    {"logprobs", "null"},
    {"echo", "false"},
    {"suffix", R"("")"},
};

// Without effect on the answer.
constexpr std::string_view kAccepted[] = {"user",
                                          "metadata",
                                          "service_tier",
                                          "parallel_tool_calls",
                                          "prompt_cache_key",
                                          "prompt_cache_retention",
                                          "priority",
                                          "prediction",
                                          "request_id",
                                          "safety_identifier",
                                          "session_id",
                                          "stream_interval",
                                          "truncation_side",
                                          "include_reasoning",
                                          "spaces_between_special_tokens"};

void refuse_unsupported(Fields& fields, std::span<const UnsupportedField> table) {
  for (const UnsupportedField& field : table) {
    const Json* value = fields.value(field.name);
    if (value == nullptr || *value == Json::parse(field.neutral)) continue;
    const std::string remedy = field.neutral == "null" ? "" : fmt::format(" or set it to {}", field.neutral);
    fields.fail(field.name,
                fmt::format("'{}' is not supported: leave it out{}, the value is {}", field.name, remedy,
                            shown(*value)),
                "unsupported_parameter");
  }
}

void read_stop(Fields& fields, ParsedRequest& request) {
  const Json* stop = fields.value("stop");
  if (stop == nullptr) return;
  const Json list = stop->is_string() ? Json::array({*stop}) : *stop;
  if (!list.is_array()) return fields.fail_type("stop", "a string or an array of strings", *stop);
  if (list.size() > kMaxStops) {
    return fields.fail("stop", fmt::format("'stop' has {} strings, the limit is {}", list.size(), kMaxStops),
                       "array_above_max_length");
  }
  for (const Json& one : list) {
    if (!one.is_string()) return fields.fail_type("stop", "a string or an array of strings", one);
    const auto& text = one.get_ref<const std::string&>();
    if (text.empty()) return fields.fail("stop", "'stop' contains an empty string", "empty_string");
    if (text.size() > kMaxStopBytes) {
      return fields.fail(
          "stop",
          fmt::format("'stop' contains a string of {} bytes, the limit is {}", text.size(), kMaxStopBytes),
          "string_above_max_length");
    }
    request.stop.push_back(text);
  }
}

bool read_token_ids(Fields& fields, std::string_view name, const Json& array, int vocab_size,
                    std::vector<int32_t>& ids) {
  ids.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    const Json& id = array[i];
    if (!id.is_number_integer()) {
      fields.fail(name, fmt::format("'{}[{}]' must be a token id, the value is {}", name, i, shown(id)),
                  "invalid_type");
      return false;
    }
    const bool in_range = id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(vocab_size);
    if (!in_range) {
      fields.fail(name,
                  fmt::format("'{}[{}]' is {}: this model has {} token ids, from 0 on", name, i, id.dump(),
                              vocab_size),
                  "invalid_token_id");
      return false;
    }
    ids.push_back(id.get<int32_t>());
  }
  return true;
}

void read_stop_token_ids(Fields& fields, const RequestLimits& limits, ParsedRequest& request) {
  const Json* ids = fields.array("stop_token_ids");
  if (ids == nullptr) return;
  if (ids->size() > kMaxStopTokenIds) {
    return fields.fail(
        "stop_token_ids",
        fmt::format("'stop_token_ids' has {} ids, the limit is {}", ids->size(), kMaxStopTokenIds),
        "array_above_max_length");
  }
  read_token_ids(fields, "stop_token_ids", *ids, limits.vocab_size, request.stop_token_ids);
}

void read_stream(Fields& fields, ParsedRequest& request) {
  request.stream = fields.boolean("stream").value_or(false);
  const Json* options = fields.object("stream_options");
  if (options == nullptr) return;
  if (!request.stream) {
    return fields.fail("stream_options", "'stream_options' is only allowed when 'stream' is true");
  }
  Fields nested(*options, "stream_options.");
  request.include_usage = nested.boolean("include_usage").value_or(false);
  request.continuous_usage = nested.boolean("continuous_usage_stats").value_or(false);
  nested.accept("include_obfuscation");
  if (auto error = nested.finish()) fields.fail(*std::move(error));
}

// What both kinds of request have in common.
void read_common(Fields& fields, const RequestLimits& limits, ParsedRequest& request) {
  request.model = fields.string("model").value_or("");
  if (fields.ok() && request.model.empty()) {
    fields.fail("model", "'model' is missing: name the model, as in /v1/models",
                "missing_required_parameter");
  }
  request.temperature = fields.number("temperature", 0, 2);
  request.top_p = fields.number("top_p", 0, 1);
  if (const auto top_k = fields.integer("top_k", -1, INT32_MAX)) {
    request.top_k = static_cast<int>(std::max<int64_t>(*top_k, 0));
  }
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX))
    request.seed = static_cast<uint64_t>(*seed);
  request.n = static_cast<int>(fields.integer("n", 1, kMaxN).value_or(1));
  if (const auto max_tokens = fields.integer("max_tokens", 1, INT32_MAX)) {
    request.max_tokens = static_cast<int>(*max_tokens);
  }
  read_stop(fields, request);
  read_stop_token_ids(fields, limits, request);
  request.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  request.include_stop = fields.boolean("include_stop_str_in_output").value_or(false);
  request.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
  request.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  request.add_special_tokens =
      fields.boolean("add_special_tokens").value_or(request.kind == ApiKind::completion);
  read_stream(fields, request);
  refuse_unsupported(fields, kUnsupported);
  for (const std::string_view name : kAccepted) fields.accept(name);
}

// A list of tools is taken only where the model is told not to use it; it is then not shown to the model
// either.
void read_tools(Fields& fields) {
  const Json* tools = fields.array("tools");
  const Json* choice = fields.value("tool_choice");
  const bool none = choice != nullptr && *choice == "none";
  if (tools != nullptr && !tools->empty() && !none) {
    return fields.fail("tools",
                       "'tools' is not supported yet: leave it out, or set 'tool_choice' to \"none\"",
                       "unsupported_parameter");
  }
  if (choice != nullptr && !none && *choice != "auto") {
    fields.fail("tool_choice",
                fmt::format("'tool_choice' is not supported yet: leave it out or set it to \"none\", "
                            "the value is {}",
                            shown(*choice)),
                "unsupported_parameter");
  }
}

void read_template_context(Fields& fields, ParsedRequest& request) {
  const Json* messages = fields.array("messages");
  const bool add_generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
  const auto reasoning_effort = fields.string("reasoning_effort");
  const Json* arguments = fields.object("chat_template_kwargs");
  if (!fields.ok()) return;
  if (messages == nullptr) {
    return fields.fail("messages", "'messages' is missing", "missing_required_parameter");
  }
  auto normalised = normalise_messages(*messages);
  if (!normalised.ok()) return fields.fail(normalised.error());
  auto context = std::make_shared<Json>(Json::object());
  if (arguments != nullptr) context->update(*arguments);
  if (reasoning_effort) (*context)["reasoning_effort"] = *reasoning_effort;
  (*context)["messages"] = *std::move(normalised);
  (*context)["add_generation_prompt"] = add_generation_prompt;
  request.template_context = std::move(context);
}

// prompt: "text", ["text", ...], [1, 2, ...] or [[1, 2, ...], ...].
void read_prompts(Fields& fields, const RequestLimits& limits, ParsedRequest& request) {
  const Json* prompt = fields.value("prompt");
  if (!fields.ok()) return;
  if (prompt == nullptr) return fields.fail("prompt", "'prompt' is missing", "missing_required_parameter");
  if (prompt->is_string()) {
    request.prompts.emplace_back(prompt->get<std::string>());
    return;
  }
  constexpr std::string_view kExpected =
      "a string, an array of strings, an array of token ids, or an array of those";
  if (!prompt->is_array()) return fields.fail_type("prompt", kExpected, *prompt);
  if (prompt->empty()) return fields.fail("prompt", "'prompt' is an empty array", "empty_array");
  const Json& first = prompt->front();
  if (first.is_number()) {
    std::vector<int32_t> ids;
    if (read_token_ids(fields, "prompt", *prompt, limits.vocab_size, ids)) request.prompts.emplace_back(ids);
    return;
  }
  if (prompt->size() > kMaxPrompts) {
    return fields.fail("prompt",
                       fmt::format("'prompt' has {} prompts, the limit is {}", prompt->size(), kMaxPrompts),
                       "array_above_max_length");
  }
  for (size_t i = 0; i < prompt->size(); ++i) {
    const Json& one = (*prompt)[i];
    const std::string name = fmt::format("prompt[{}]", i);
    if (one.is_string() && first.is_string()) {
      request.prompts.emplace_back(one.get<std::string>());
    } else if (one.is_array() && first.is_array()) {
      std::vector<int32_t> ids;
      if (!read_token_ids(fields, name, one, limits.vocab_size, ids)) return;
      request.prompts.emplace_back(std::move(ids));
    } else {
      return fields.fail_type(name,
                              first.is_string()  ? "a string, as the first is"
                              : first.is_array() ? "an array of token ids, as the first is"
                                                 : "a string or an array of token ids",
                              one);
    }
  }
}

ApiResult<ParsedRequest> finish(Fields& fields, const RequestLimits& limits, ParsedRequest request) {
  if (auto error = fields.finish()) return *std::move(error);
  const size_t choices = std::max<size_t>(request.prompts.size(), 1) * static_cast<size_t>(request.n);
  if (choices > static_cast<size_t>(limits.max_choices)) {
    return bad_field(
        "n",
        fmt::format("the prompts times 'n' make {} choices, the limit is {}", choices, limits.max_choices),
        "integer_above_max_value");
  }
  return request;
}

ApiError not_an_object(const Json& body) {
  return {.message = fmt::format("the body must be a JSON object, it is {}", shown(body)),
          .code = "invalid_type"};
}

}  // namespace

ApiResult<ParsedRequest> parse_chat_request(const Json& body, const RequestLimits& limits) {
  if (!body.is_object()) return not_an_object(body);
  ParsedRequest request;
  request.kind = ApiKind::chat;
  Fields fields(body);
  read_common(fields, limits, request);
  // The newer name goes first.
  if (const auto max_tokens = fields.integer("max_completion_tokens", 1, INT32_MAX)) {
    request.max_tokens = static_cast<int>(*max_tokens);
  }
  read_tools(fields);
  refuse_unsupported(fields, kUnsupportedInChat);
  read_template_context(fields, request);
  return finish(fields, limits, std::move(request));
}

ApiResult<ParsedRequest> parse_completion_request(const Json& body, const RequestLimits& limits) {
  if (!body.is_object()) return not_an_object(body);
  ParsedRequest request;
  request.kind = ApiKind::completion;
  Fields fields(body);
  read_common(fields, limits, request);
  if (const auto best_of = fields.integer("best_of", 1, kMaxN); best_of && *best_of != request.n) {
    fields.fail("best_of",
                fmt::format("'best_of' is not supported: leave it out or set it to n ({}), the value is {}",
                            request.n, *best_of),
                "unsupported_parameter");
  }
  refuse_unsupported(fields, kUnsupportedInCompletion);
  read_prompts(fields, limits, request);
  return finish(fields, limits, std::move(request));
}

}  // namespace sluice::server

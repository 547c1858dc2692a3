#include "server/reply_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "server/json_text.h"

namespace sluice::server {
namespace {

std::string ids_json(const std::vector<int32_t>& ids) { return fmt::format("[{}]", fmt::join(ids, ",")); }

std::string text_or_null(std::string_view text) { return text.empty() ? "null" : json_string(text); }

}  // namespace

ReplyWriter::ReplyWriter(const PreparedRequest& request, ReplyIdentity identity,
                         const text::Tokenizer* tokenizer)
    : request_(request),
      identity_(std::move(identity)),
      show_ids_(request.parsed.return_token_ids || tokenizer == nullptr),
      unfinished_(request.choices()) {
  const auto choices = static_cast<size_t>(request.choices());
  completions_.reserve(choices);
  for (size_t i = 0; i < choices; ++i) completions_.emplace_back(tokenizer, request.parsed);
  begun_.resize(choices);
  texts_.resize(choices);
  ids_.resize(choices);
  head_ = fmt::format(R"({{"id":{},"object":"{}","created":{},"model":{},"system_fingerprint":{},)",
                      json_string(identity_.id), is_chat() ? "chat.completion.chunk" : "text_completion",
                      identity_.created, json_string(identity_.model), json_string(identity_.fingerprint));
}

std::string ReplyWriter::feed(int index, const engine::Output& output) {
  const auto i = static_cast<size_t>(index);
  Completion& completion = completions_[i];
  if (completion.finished() || error_) return {};
  Completion::Delta delta = completion.feed(output);
  if (completion.error()) {
    error_ = completion.error();
    return {};
  }
  if (completion.finished()) --unfinished_;
  if (!request_.parsed.stream) {
    texts_[i] += delta.text;
    if (show_ids_) ids_[i].insert(ids_[i].end(), delta.ids.begin(), delta.ids.end());
    return {};
  }
  std::string events;
  const std::vector<int32_t>* ids = show_ids_ && !delta.ids.empty() ? &delta.ids : nullptr;
  const bool first = !begun_[i];
  begun_[i] = true;
  if (first && is_chat()) events += event(choice_json(index, "", nullptr, true, ""), show_ids_);
  if (!delta.text.empty() || ids != nullptr) {
    events += event(choice_json(index, delta.text, ids, first && !is_chat(), ""), false);
  }
  if (completion.finished())
    events += event(choice_json(index, "", nullptr, false, completion.finish_reason()), false);
  return events;
}

// One element of an event's choices. A chat's first carries the role, and its last an empty delta.
std::string ReplyWriter::choice_json(int choice, std::string_view text, const std::vector<int32_t>* ids,
                                     bool first, std::string_view finish_reason) const {
  std::string more;
  if (ids != nullptr) more = fmt::format(R"(,"token_ids":{})", ids_json(*ids));
  if (is_chat()) {
    std::string delta;
    if (first) {
      delta = R"("role":"assistant","content":"")";
    } else if (finish_reason.empty()) {
      delta = fmt::format(R"("content":{})", json_string(text));
    }
    return fmt::format(R"({{"index":{},"delta":{{{}}},"logprobs":null,"finish_reason":{}{}}})", choice, delta,
                       text_or_null(finish_reason), more);
  }
  if (first && show_ids_) {
    const auto prompt = static_cast<size_t>(choice / request_.parsed.n);
    more += fmt::format(R"(,"prompt_token_ids":{})", ids_json(request_.prompts[prompt]));
  }
  return fmt::format(R"({{"text":{},"index":{},"logprobs":null,"finish_reason":{}{}}})", json_string(text),
                     choice, text_or_null(finish_reason), more);
}

std::string ReplyWriter::event(std::string_view choices, bool with_prompt_ids) const {
  std::string more;
  if (with_prompt_ids) more += fmt::format(R"(,"prompt_token_ids":{})", ids_json(request_.prompts.front()));
  if (request_.parsed.continuous_usage) {
    more += fmt::format(R"(,"usage":{})", usage());
  } else if (request_.parsed.include_usage) {
    more += R"(,"usage":null)";
  }
  return fmt::format("data: {}\"choices\":[{}]{}}}\n\n", head_, choices, more);
}

int ReplyWriter::prompt_tokens() const {
  size_t tokens = 0;
  for (const auto& prompt : request_.prompts) tokens += prompt.size();
  return static_cast<int>(tokens);
}

int ReplyWriter::completion_tokens() const {
  int tokens = 0;
  for (const Completion& completion : completions_) tokens += completion.tokens();
  return tokens;
}

std::string ReplyWriter::usage() const {
  return fmt::format(R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{}}})", prompt_tokens(),
                     completion_tokens(), prompt_tokens() + completion_tokens());
}

std::string ReplyWriter::finish() const {
  if (!request_.parsed.stream) return whole_body();
  std::string events;
  if (request_.parsed.include_usage) {
    events = fmt::format("data: {}\"choices\":[],\"usage\":{}}}\n\n", head_, usage());
  }
  return events + "data: [DONE]\n\n";
}

std::string ReplyWriter::whole_body() const {
  std::string choices;
  for (size_t i = 0; i < completions_.size(); ++i) {
    if (i > 0) choices += ',';
    std::string more;
    if (show_ids_) more = fmt::format(R"(,"token_ids":{})", ids_json(ids_[i]));
    if (is_chat()) {
      choices += fmt::format(
          R"({{"index":{},"message":{{"role":"assistant","content":{},"refusal":null}},"logprobs":null,)"
          R"("finish_reason":"{}"{}}})",
          i, json_string(texts_[i]), completions_[i].finish_reason(), more);
    } else {
      if (show_ids_) {
        const size_t prompt = i / static_cast<size_t>(request_.parsed.n);
        more += fmt::format(R"(,"prompt_token_ids":{})", ids_json(request_.prompts[prompt]));
      }
      choices += fmt::format(R"({{"text":{},"index":{},"logprobs":null,"finish_reason":"{}"{}}})",
                             json_string(texts_[i]), i, completions_[i].finish_reason(), more);
    }
  }
  std::string prompt_ids;
  if (show_ids_ && is_chat()) {
    prompt_ids = fmt::format(R"(,"prompt_token_ids":{})", ids_json(request_.prompts.front()));
  }
  return fmt::format(R"({{"id":{},"object":"{}","created":{},"model":{},"choices":[{}],"usage":{},)"
                     R"("system_fingerprint":{}{}}})",
                     json_string(identity_.id), is_chat() ? "chat.completion" : "text_completion",
                     identity_.created, json_string(identity_.model), choices, usage(),
                     json_string(identity_.fingerprint), prompt_ids);
}

std::string ReplyWriter::error_event(const ApiError& error) {
  return fmt::format("data: {}\n\n", error.body());
}

}  // namespace sluice::server

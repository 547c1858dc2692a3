#include "server/completion.h"

#include <fmt/format.h>

namespace sluice::server {

using engine::Finish;

Completion::Completion(const text::Tokenizer* tokenizer, const ParsedRequest& request)
    : include_stop_(request.include_stop) {
  if (tokenizer != nullptr) detokenizer_.emplace(*tokenizer, request.skip_special_tokens);
  if (!request.stop.empty()) stop_strings_.emplace(request.stop, request.include_stop);
}

Completion::Delta Completion::feed(const engine::Output& output) {
  Delta delta;
  if (finished_) return delta;
  if (output.finish == Finish::error) {
    fail(to_api_error(output.error));
    return delta;
  }
  if (output.finish == Finish::cancelled) {
    fail({.status = 503,
          .message = "the request was cancelled by the server",
          .code = "cancelled",
          .retry_after_seconds = 1});
    return delta;
  }
  if (output.token >= 0) take_token(output, delta);
  if (finished_ || output.finish == Finish::none) return delta;

  finished_ = true;
  by_length_ = output.finish == Finish::length;
  if (detokenizer_) show(detokenizer_->finish(), delta);
  if (ended_by_stop_string()) {
    by_length_ = false;
  } else if (stop_strings_) {
    delta.text += stop_strings_->finish();
  }
  return delta;
}

void Completion::take_token(const engine::Output& output, Delta& delta) {
  if (output.index < tokens_) return;
  if (output.index > tokens_) {
    fail({.status = 500,
          .message = fmt::format("the engine gave token {} where {} was next", output.index, tokens_),
          .code = "internal_error"});
    return;
  }
  ++tokens_;
  delta.ids.push_back(output.token);
  const bool is_stop_token = output.finish == Finish::stop && output.stop_token >= 0;
  if (!detokenizer_ || (is_stop_token && !include_stop_)) return;
  show(detokenizer_->feed(output.token), delta);
  if (ended_by_stop_string()) finished_ = true;
}

void Completion::show(std::string_view text, Delta& delta) {
  if (stop_strings_) {
    delta.text += stop_strings_->feed(text);
  } else {
    delta.text += text;
  }
}

void Completion::fail(ApiError error) {
  finished_ = true;
  error_ = std::move(error);
}

}  // namespace sluice::server

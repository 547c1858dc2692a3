// One choice of an answer: turns the engine's tokens into pieces of text that may be shown, and knows how it
// ended. Half characters and what may be the beginning of a stop string are held back; a stop token's text is
// left out. A token that was already given is ignored, so that a repeated stream shows nothing twice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "server/api_request.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"

namespace sluice::server {

class Completion {
 public:
  struct Delta {
    std::string text;          // may be empty
    std::vector<int32_t> ids;  // the tokens that are new, those without text included
  };

  // Without a tokenizer there is no text, only ids.
  Completion(const text::Tokenizer* tokenizer, const ParsedRequest& request);

  Delta feed(const engine::Output& output);

  bool finished() const { return finished_; }
  // The engine is still at work and should be told to stop: a stop string ended this.
  bool ended_by_stop_string() const { return stop_strings_ && stop_strings_->stopped(); }
  // "stop" or "length"; meaningful when finished without an error.
  std::string_view finish_reason() const { return by_length_ ? "length" : "stop"; }
  const std::optional<ApiError>& error() const { return error_; }
  int tokens() const { return tokens_; }  // so far, a stop token included

 private:
  void take_token(const engine::Output& output, Delta& delta);
  void show(std::string_view text, Delta& delta);
  void fail(ApiError error);

  std::optional<text::Detokenizer> detokenizer_;
  std::optional<text::StopStrings> stop_strings_;
  bool include_stop_;
  int tokens_ = 0;
  bool finished_ = false;
  bool by_length_ = false;
  std::optional<ApiError> error_;
};

}  // namespace sluice::server

// The bytes of an answer, as OpenAI sends them: the JSON of a whole answer, or the server-sent events of a
// stream. Knows nothing of HTTP; fed with the engine's outputs, it says what to send.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/completion.h"
#include "server/prepare.h"

namespace sluice::server {

struct ReplyIdentity {
  std::string id;  // "chatcmpl-..." or "cmpl-..."
  int64_t created = 0;
  std::string model;
  std::string fingerprint;
};

class ReplyWriter {
 public:
  // `request` must outlive the writer. `tokenizer` may be null.
  ReplyWriter(const PreparedRequest& request, ReplyIdentity identity, const text::Tokenizer* tokenizer);

  // Takes one output of one choice. Returns the events to send now: nothing unless the request streams.
  std::string feed(int choice, const engine::Output& output);
  const Completion& choice(int index) const { return completions_[static_cast<size_t>(index)]; }
  // All choices are, or one has an error.
  bool finished() const { return error_ || unfinished_ == 0; }
  const std::optional<ApiError>& error() const { return error_; }

  // After all choices have finished: the body, or the last events, which are the usage (when asked for) and
  // [DONE].
  std::string finish() const;
  // An error in a stream that has begun; no [DONE] follows.
  static std::string error_event(const ApiError& error);

  int prompt_tokens() const;
  int completion_tokens() const;

 private:
  bool is_chat() const { return request_.parsed.kind == ApiKind::chat; }
  std::string event(std::string_view choices, bool with_prompt_ids) const;
  std::string choice_json(int choice, std::string_view text, const std::vector<int32_t>* ids, bool first,
                          std::string_view finish_reason) const;
  std::string usage() const;
  std::string whole_body() const;

  const PreparedRequest& request_;
  ReplyIdentity identity_;
  bool show_ids_;
  std::string head_;  // of every event, up to the choices
  std::vector<Completion> completions_;
  std::vector<bool> begun_;                // streaming: the choice's first event is out
  std::vector<std::string> texts_;         // not streaming: what each choice has so far
  std::vector<std::vector<int32_t>> ids_;  // the same, when ids are shown
  int unfinished_;
  std::optional<ApiError> error_;
};

}  // namespace sluice::server

// The bodies of /v1/chat/completions and /v1/completions, checked field by field. docs/api.md lists what each
// field does: served, accepted without effect, or refused because ignoring it would change the answer's
// meaning. Pure functions: what depends on the model's tokenizer and context is prepare.h's.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/api_error.h"

namespace sluice::server {

enum class ApiKind { chat, completion };

// Text to be encoded, or token ids as they are.
using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct ParsedRequest {
  ApiKind kind = ApiKind::chat;
  std::string model;
  // Chat: what the template is rendered with (messages, add_generation_prompt, the client's
  // chat_template_kwargs). Contents are strings by now.
  std::shared_ptr<const nlohmann::ordered_json> template_context;
  std::vector<Prompt> prompts;  // of a completion

  int n = 1;  // choices a prompt
  std::optional<int> max_tokens;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int> top_k;  // 0: all
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop = false;  // in the text
  bool skip_special_tokens = true;
  bool add_special_tokens =
      false;  // the tokenizer's begin and end of sequence; a chat template writes its own

  bool stream = false;
  bool include_usage = false;     // a last chunk with the usage
  bool continuous_usage = false;  // on every chunk
  bool return_token_ids = false;
};

struct RequestLimits {
  int max_choices = 1024;  // prompts times n
  int vocab_size = 0;      // token ids are below it
};

ApiResult<ParsedRequest> parse_chat_request(const nlohmann::ordered_json& body, const RequestLimits& limits);
ApiResult<ParsedRequest> parse_completion_request(const nlohmann::ordered_json& body,
                                                  const RequestLimits& limits);

}  // namespace sluice::server

// Chat templates: the Jinja that a checkpoint's tokenizer_config.json (or chat_template.jinja) carries,
// rendered as transformers' apply_chat_template does (trim_blocks, lstrip_blocks, sandboxed, loop controls).
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace sluice::text {

class ChatTemplate {
 public:
  // Syntax errors name line and column.
  static Result<std::unique_ptr<ChatTemplate>> parse(std::string_view source);
  // From a checkpoint's directory: chat_template.jinja, else tokenizer_config.json's chat_template. not_found
  // when the checkpoint has none. bos_token, eos_token and the like are known to the template.
  static Result<std::unique_ptr<ChatTemplate>> load(const std::string& directory);
  virtual ~ChatTemplate() = default;

  // `context` is an object: messages, add_generation_prompt, tools, ... Its order of keys is kept, since
  // templates print tools as they came. Thread-safe. raise_exception(text) in the template comes out as
  // invalid_argument with that text. Work is bounded: a template that loops for ever is an error.
  virtual Result<std::string> render(const nlohmann::ordered_json& context) const = 0;
};

}  // namespace sluice::text

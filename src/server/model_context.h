// The model that a front serves, as far as text and limits go, and what of it does not depend on a request.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace sluice::server {

struct ModelContext {
  std::string served_name;
  std::vector<std::string> aliases;  // other names that a request may use
  int64_t created = 0;               // seconds since 1970: when the front began to serve it
  std::string fingerprint;           // system_fingerprint

  std::unique_ptr<text::Tokenizer> tokenizer;         // none: prompts as token ids only
  std::unique_ptr<text::ChatTemplate> chat_template;  // none: no chat
  int vocab_size = 0;                                 // the model's; token ids are below it
  int max_model_len = 0;                              // prompt and output together

  // Defaults of requests, from generation_config.json.
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int> top_k;

  bool has_name(const std::string& name) const {
    return name == served_name || std::find(aliases.begin(), aliases.end(), name) != aliases.end();
  }
};

// Reads tokenizer, template, config.json and generation_config.json. A tokenizer with more ids than the model
// has is refused. `served_name` empty: the last component of the directory; `max_model_len` 0: the model's.
Result<ModelContext> load_model_context(const std::string& directory, const std::string& served_name,
                                        int max_model_len);

}  // namespace sluice::server

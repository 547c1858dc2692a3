// One open request inside the engine: what came in, the tokens so far, and what the KV cache holds of them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine.h"

namespace sluice::engine {

struct RequestState {
  uint64_t id = 0;
  Request request;
  Sink sink;
  std::vector<int32_t> tokens;  // the prompt, then all output, `resumed` included
  int64_t computed = 0;         // how many of the tokens' keys and values committed steps have stored
  std::vector<int32_t> blocks;  // enough for `computed` positions and more
  bool counted = false;         // its prompt is in Stats::prompt_tokens

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  int64_t pending() const { return length() - computed; }
  int output_count() const { return static_cast<int>(tokens.size() - request.prompt.size()); }
  // Whether its next token is the last that max_tokens allows.
  bool ends_with_next() const { return output_count() + 1 >= request.max_tokens; }
};

}  // namespace sluice::engine

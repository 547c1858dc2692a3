// What the engine refuses before any work.
#pragma once

#include "base/status.h"
#include "engine/engine.h"

namespace sluice::engine {

struct RequestLimits {
  int vocab_size = 0;
  int max_model_len = 0;
  int64_t kv_positions = 0;  // what the KV cache holds when it holds one request alone
};

// Ok, or invalid_argument with field, value and range. Cuts request.max_tokens to what the limits leave.
Status check_request(Request& request, const RequestLimits& limits);
// Ok, or what is wrong with the engine's own options.
Status check_options(const Options& options, int vocab_size);

}  // namespace sluice::engine

// From a request's body to what the engine is asked: parsed, rendered, encoded, checked against the model's
// context. Pure, and safe on any thread: it is what the worker threads do, so that a long prompt stalls
// nobody.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "server/api_request.h"
#include "server/model_context.h"

namespace sluice::server {

struct PreparedRequest {
  ParsedRequest parsed;
  std::vector<std::vector<int32_t>> prompts;
  engine::SamplingParameters sampling;  // without the seed
  std::vector<int> max_tokens;          // of each prompt

  int choices() const { return static_cast<int>(prompts.size()) * parsed.n; }
  // Choice i belongs to prompt i / n. `drawn_seed` counts where the client gave none.
  engine::Request engine_request(int choice, uint64_t drawn_seed) const;
};

ApiResult<PreparedRequest> prepare_request(ApiKind kind, std::string_view body, const ModelContext& model);

}  // namespace sluice::server

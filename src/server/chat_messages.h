// The messages of a chat request, checked and brought into the form that chat templates expect.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "server/fields.h"

namespace sluice::server {

// `messages` as sent, with the order of keys kept, and these changes: content given as text parts is joined
// by newlines, an assistant's null content is "", "developer" is "system", and the arguments of tool calls
// become objects. Anything that is not text is refused.
ApiResult<nlohmann::ordered_json> normalise_messages(const nlohmann::ordered_json& messages);

}  // namespace sluice::server

#include "server/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "server/json_text.h"

namespace sluice::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};

// The text of one part of a content array; `where` is "messages[0].content[1]".
ApiResult<std::string> part_text(const Json& part, const std::string& where) {
  if (!part.is_object()) {
    return bad_field(where,
                     fmt::format("'{}' must be an object with a type, the value is {}", where, shown(part)),
                     "invalid_type");
  }
  Fields fields(part, where + ".");
  const std::string type = fields.string("type").value_or("");
  if (fields.ok() && type != "text" && type != "refusal") {
    fields.fail("type", fmt::format("'{}.type' is '{}': this server takes text only, as {{\"type\":\"text\","
                                    "\"text\":\"...\"}}",
                                    where, type));
  }
  const std::string_view key = type == "refusal" ? "refusal" : "text";
  const auto text = fields.string(key);
  if (fields.ok() && !text) {
    fields.fail(key,
                fmt::format("'{}.{}' is missing: a part of type {} has its text there", where, key, type),
                "missing_required_parameter");
  }
  if (auto error = fields.finish()) return *std::move(error);
  return *text;
}

ApiResult<std::string> content_text(const Json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    return bad_field(where,
                     fmt::format("'{}' must be a string or an array of text parts, the value is {}", where,
                                 shown(content)),
                     "invalid_type");
  }
  std::string joined;
  for (size_t i = 0; i < content.size(); ++i) {
    auto text = part_text(content[i], fmt::format("{}[{}]", where, i));
    if (!text.ok()) return text;
    if (i > 0) joined += '\n';
    joined += *text;
  }
  return joined;
}

// Templates write arguments with tojson, so they must be an object; clients send the object as a string.
std::optional<ApiError> open_arguments(Json& calls, const std::string& where) {
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string at = fmt::format("{}[{}].function", where, i);
    if (!calls[i].is_object() || !calls[i].contains("function") || !calls[i]["function"].is_object()) {
      return bad_field(at, fmt::format("'{}' must be an object with name and arguments", at), "invalid_type");
    }
    Json& function = calls[i]["function"];
    if (!function.contains("name") || !function["name"].is_string()) {
      return bad_field(at + ".name", fmt::format("'{}.name' must be a string", at), "invalid_type");
    }
    if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
    const auto& text = function["arguments"].get_ref<const std::string&>();
    auto arguments = text.empty() ? Result<Json>(Json::object()) : parse_body(text);
    if (!arguments.ok() || !arguments->is_object()) {
      return bad_field(at + ".arguments",
                       fmt::format("'{}.arguments' must be the text of a JSON object", at));
    }
    function["arguments"] = *std::move(arguments);
  }
  return {};
}

// `where` is "messages[0]".
ApiResult<Json> normalise_message(const Json& message, const std::string& where) {
  if (!message.is_object()) {
    return bad_field(
        where,
        fmt::format("'{}' must be an object with role and content, the value is {}", where, shown(message)),
        "invalid_type");
  }
  Json result = message;
  Fields fields(message, where + ".");
  const std::string role = fields.string("role").value_or("");
  if (fields.ok() && std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
    fields.fail("role", fmt::format("'{}.role' must be one of {}, the value is '{}'", where,
                                    fmt::join(kRoles, ", "), role));
  }
  if (role == "developer") result["role"] = "system";
  const Json* calls = fields.array("tool_calls");
  fields.string("name");
  fields.string("tool_call_id");
  fields.string("refusal");
  fields.string("reasoning");
  fields.string("reasoning_content");
  fields.accept("annotations");
  for (const std::string_view unsupported : {"audio", "function_call"}) {
    if (fields.value(unsupported) != nullptr) {
      fields.fail(unsupported, fmt::format("'{}.{}' is not supported", where, unsupported));
    }
  }
  const Json* content = fields.value("content");
  if (auto error = fields.finish()) return *std::move(error);

  if (content != nullptr) {
    auto text = content_text(*content, where + ".content");
    if (!text.ok()) return text.error();
    result["content"] = *std::move(text);
  } else if (role == "assistant") {
    result["content"] = "";
  } else {
    return bad_field(where + ".content", fmt::format("'{}.content' is missing", where),
                     "missing_required_parameter");
  }
  if (calls != nullptr) {
    if (auto error = open_arguments(result["tool_calls"], where + ".tool_calls")) return *std::move(error);
  }
  return result;
}

}  // namespace

ApiResult<Json> normalise_messages(const Json& messages) {
  if (messages.empty()) {
    return bad_field("messages", "'messages' is empty: a chat needs at least one message", "empty_array");
  }
  Json result = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    auto message = normalise_message(messages[i], fmt::format("messages[{}]", i));
    if (!message.ok()) return message;
    result.push_back(*std::move(message));
  }
  return result;
}

}  // namespace sluice::server

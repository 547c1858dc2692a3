#include "text/chat_template.h"

#include <fmt/core.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/mapping.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_parser.h"
#include "text/json_fields.h"
#include "text/unicode.h"

namespace sluice::text {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxTemplateBytes = 4u << 20;

jinja::Value to_value(const ordered_json& json, int depth) {
  using jinja::Value;
  if (depth > jinja::kMaxValueDepth) throw jinja::Error("the context is nested too deep");
  switch (json.type()) {
    case ordered_json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case ordered_json::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case ordered_json::value_t::number_unsigned: {
      const auto number = json.get<uint64_t>();
      return number <= INT64_MAX ? Value::integer(static_cast<int64_t>(number))
                                 : Value::number(static_cast<double>(number));
    }
    case ordered_json::value_t::number_float:
      return Value::number(json.get<double>());
    case ordered_json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      if (is_valid_utf8(text)) return Value::string(text);
      std::string repaired;
      append_valid_utf8(repaired, text, true);
      return Value::string(std::move(repaired));
    }
    case ordered_json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const ordered_json& item : json) items.push_back(to_value(item, depth + 1));
      return Value::list(std::move(items));
    }
    case ordered_json::value_t::object: {
      jinja::Dict dict;
      for (const auto& [key, item] : json.items()) dict.set(key, to_value(item, depth + 1));
      return Value::of(std::move(dict));
    }
    default:
      return Value::none();
  }
}

class JinjaTemplate final : public ChatTemplate {
 public:
  // `defaults` are variables that the context may replace.
  JinjaTemplate(jinja::Program program, std::vector<std::pair<std::string, std::string>> defaults)
      : program_(std::move(program)), defaults_(std::move(defaults)) {}

  Result<std::string> render(const ordered_json& context) const override {
    if (!context.is_object()) return invalid_argument("a chat template's context must be an object");
    int line = 0;
    try {
      jinja::Dict variables;
      for (const auto& [name, text] : defaults_) variables.set(name, jinja::Value::string(text));
      for (const auto& [name, value] : context.items()) variables.set(name, to_value(value, 1));
      jinja::Interpreter interpreter(program_, variables);
      try {
        return interpreter.run();
      } catch (const jinja::Error&) {
        line = interpreter.line();
        throw;
      }
    } catch (const jinja::Error& error) {
      if (error.raised) return invalid_argument(error.what());
      return invalid_argument(fmt::format("chat template, line {}: {}", line, error.what()));
    }
  }

 private:
  jinja::Program program_;
  std::vector<std::pair<std::string, std::string>> defaults_;
};

Result<std::unique_ptr<ChatTemplate>> make(std::string_view source,
                                           std::vector<std::pair<std::string, std::string>> defaults) {
  if (source.size() > kMaxTemplateBytes) {
    return invalid_argument(
        fmt::format("chat template: {} bytes; the limit is {}", source.size(), kMaxTemplateBytes));
  }
  std::string valid;
  append_valid_utf8(valid, source, true);
  try {
    return std::unique_ptr<ChatTemplate>(
        std::make_unique<JinjaTemplate>(jinja::parse(valid), std::move(defaults)));
  } catch (const jinja::Error& error) {
    return invalid_argument(fmt::format("chat template, {}", error.what()));
  }
}

// bos_token and the like: a string, or an object with its text in "content".
std::vector<std::pair<std::string, std::string>> token_variables(const nlohmann::json& config) {
  constexpr std::array kNames = {"bos_token", "eos_token", "unk_token", "pad_token",
                                 "sep_token", "cls_token", "mask_token"};
  std::vector<std::pair<std::string, std::string>> variables;
  for (const char* name : kNames) {
    const nlohmann::json& token = field_or_null(config, name);
    if (token.is_string()) {
      variables.emplace_back(name, token.get<std::string>());
    } else if (token.is_object() && field_or_null(token, "content").is_string()) {
      variables.emplace_back(name, field_or_null(token, "content").get<std::string>());
    }
  }
  return variables;
}

// The template in tokenizer_config.json: a string, or a list of {name, template} of which "default" counts.
Result<std::string> configured_template(const nlohmann::json& config, const std::string& path) {
  const nlohmann::json& value = field_or_null(config, "chat_template");
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return not_found(fmt::format("{} has no chat_template", path));
  if (!value.is_array()) {
    return invalid_argument(
        fmt::format("{}: chat_template is {}; it must be a string or a list", path, shown(value)));
  }
  for (const nlohmann::json& entry : value) {
    if (!entry.is_object() || field_or_null(entry, "name") != "default") continue;
    const nlohmann::json& text = field_or_null(entry, "template");
    if (text.is_string()) return text.get<std::string>();
  }
  return invalid_argument(fmt::format("{}: chat_template has no entry {{\"name\": \"default\"}}", path));
}

}  // namespace

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::parse(std::string_view source) {
  return make(source, {});
}

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::load(const std::string& directory) {
  const std::string config_path = directory + "/tokenizer_config.json";
  const std::string template_path = directory + "/chat_template.jinja";
  nlohmann::json config = nlohmann::json::object();
  const bool configured = std::filesystem::exists(config_path);
  if (configured) {
    SLUICE_ASSIGN_OR_RETURN(config, read_json_file(config_path));
    SLUICE_RETURN_IF_ERROR(require_object(config, config_path));
  }
  if (std::filesystem::exists(template_path)) {
    SLUICE_ASSIGN_OR_RETURN(const Mapping file, Mapping::read_file(template_path));
    auto parsed = make({reinterpret_cast<const char*>(file.data()), file.size()}, token_variables(config));
    return parsed.ok() ? std::move(parsed) : parsed.status().with_context(template_path);
  }
  if (!configured) {
    return not_found(fmt::format("{} has neither chat_template.jinja nor tokenizer_config.json", directory));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string source, configured_template(config, config_path));
  auto parsed = make(source, token_variables(config));
  return parsed.ok() ? std::move(parsed) : parsed.status().with_context(config_path);
}

}  // namespace sluice::text

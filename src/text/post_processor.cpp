#include "text/post_processor.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "text/json_fields.h"

namespace sluice::text {
namespace {

class Parser {
 public:
  explicit Parser(int32_t vocabulary) : vocabulary_(vocabulary) {}

  Status add(const nlohmann::json& spec, const std::string& where, int depth) {
    constexpr int kMaxDepth = 8;
    SLUICE_RETURN_IF_ERROR(require_object(spec, where));
    SLUICE_ASSIGN_OR_RETURN(const std::string type, required_string(spec, "type", where));
    if (type == "ByteLevel") return {};  // it only moves offsets
    if (type == "TemplateProcessing") return add_template(spec, where);
    if (type != "Sequence") {
      return unimplemented(
          fmt::format("{}.type is '{}'; Sluice has ByteLevel, TemplateProcessing and Sequence", where, type));
    }
    const nlohmann::json& items = field_or_null(spec, "processors");
    if (!items.is_array() || depth == kMaxDepth) {
      return invalid_argument(fmt::format("{}.processors is {}; it must be an array, nested at most {} deep",
                                          where, shown(items), kMaxDepth));
    }
    for (size_t i = 0; i < items.size(); ++i) {
      SLUICE_RETURN_IF_ERROR(add(items[i], item_path(where + ".processors", i), depth + 1));
    }
    return {};
  }

  PostProcessor result;

 private:
  // "single": [{"SpecialToken": {"id": "<bos>"}}, {"Sequence": {"id": "A"}}, ...]
  Status add_template(const nlohmann::json& spec, const std::string& where) {
    const std::string path = field_path(where, "single");
    const nlohmann::json& single = field_or_null(spec, "single");
    if (!single.is_array()) {
      return invalid_argument(fmt::format("{} is {}; it must be an array", path, shown(single)));
    }
    bool behind = false;
    for (size_t i = 0; i < single.size(); ++i) {
      const std::string item = item_path(path, i);
      SLUICE_RETURN_IF_ERROR(require_object(single[i], item));
      if (single[i].contains("Sequence")) {
        if (behind) return unimplemented(fmt::format("{}: the text stands in the template twice", item));
        behind = true;
        continue;
      }
      const nlohmann::json& token = field_or_null(single[i], "SpecialToken");
      SLUICE_RETURN_IF_ERROR(require_object(token, item + ".SpecialToken"));
      SLUICE_ASSIGN_OR_RETURN(const std::string name, required_string(token, "id", item + ".SpecialToken"));
      SLUICE_RETURN_IF_ERROR(append_ids(spec, where, name, behind ? result.suffix : result.prefix));
    }
    return {};
  }

  Status append_ids(const nlohmann::json& spec, const std::string& where, const std::string& name,
                    std::vector<int32_t>& out) const {
    const std::string table = field_path(where, "special_tokens");
    const nlohmann::json& tokens = field_or_null(spec, "special_tokens");
    SLUICE_RETURN_IF_ERROR(require_object(tokens, table));
    const nlohmann::json& token = field_or_null(tokens, name);
    const std::string path = fmt::format("{}['{}']", table, name);
    SLUICE_RETURN_IF_ERROR(require_object(token, path));
    const nlohmann::json& ids = field_or_null(token, "ids");
    if (!ids.is_array()) {
      return invalid_argument(fmt::format("{}.ids is {}; it must be an array", path, shown(ids)));
    }
    for (const nlohmann::json& value : ids) {
      SLUICE_ASSIGN_OR_RETURN(const int32_t id, token_id(value, path + ".ids"));
      if (id >= vocabulary_) {
        return invalid_argument(
            fmt::format("{}.ids has {}; the vocabulary ends at {}", path, id, vocabulary_ - 1));
      }
      out.push_back(id);
    }
    return {};
  }

  int32_t vocabulary_;
};

}  // namespace

Result<PostProcessor> parse_post_processor(const nlohmann::json& spec, int32_t vocabulary) {
  Parser parser(vocabulary);
  if (!spec.is_null()) SLUICE_RETURN_IF_ERROR(parser.add(spec, "post_processor", 0));
  return std::move(parser.result);
}

}  // namespace sluice::text

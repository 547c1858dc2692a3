#include "text/pre_tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "text/json_fields.h"
#include "text/recent_characters.h"

namespace sluice::text {
namespace {

// What ByteLevel splits by when use_regex is set.
constexpr std::string_view kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Part {
  Span span;
  bool matched;
};

// Matches and what lies between them, in order.
std::vector<Part> cover(std::string_view text, const std::vector<Span>& matches, bool invert) {
  std::vector<Part> parts;
  parts.reserve(2 * matches.size() + 1);
  size_t at = 0;
  for (const Span& match : matches) {
    if (match.begin > at) parts.push_back({{at, match.begin}, invert});
    parts.push_back({match, !invert});
    at = match.end;
  }
  if (at < text.size()) parts.push_back({{at, text.size()}, invert});
  return parts;
}

std::vector<Span> merge_with_previous(const std::vector<Part>& parts) {
  std::vector<Span> spans;
  bool previous_matched = false;
  for (const Part& part : parts) {
    if (part.matched && !previous_matched && !spans.empty()) {
      spans.back().end = part.span.end;
    } else {
      spans.push_back(part.span);
    }
    previous_matched = part.matched;
  }
  return spans;
}

std::vector<Span> merge_with_next(const std::vector<Part>& parts) {
  std::vector<Span> spans;
  bool next_matched = false;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (part->matched && !next_matched && !spans.empty()) {
      spans.back().begin = part->span.begin;
    } else {
      spans.push_back(part->span);
    }
    next_matched = part->matched;
  }
  std::reverse(spans.begin(), spans.end());
  return spans;
}

std::optional<SplitBehaviour> behaviour_named(std::string_view name) {
  if (name == "Removed") return SplitBehaviour::removed;
  if (name == "Isolated") return SplitBehaviour::isolated;
  if (name == "MergedWithPrevious") return SplitBehaviour::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehaviour::merged_with_next;
  if (name == "Contiguous") return SplitBehaviour::contiguous;
  return std::nullopt;
}

Result<Pattern> pattern_of(const nlohmann::json& spec, const std::string& where) {
  const nlohmann::json& pattern = field_or_null(spec, "pattern");
  const std::string path = field_path(where, "pattern");
  SLUICE_RETURN_IF_ERROR(require_object(pattern, path));
  const nlohmann::json& expression = field_or_null(pattern, "Regex");
  const nlohmann::json& literal = field_or_null(pattern, "String");
  if (expression.is_string() == literal.is_string()) {
    return invalid_argument(fmt::format("{} must have one string, \"Regex\" or \"String\"", path));
  }
  Result<Pattern> compiled = expression.is_string() ? Pattern::compile(expression.get<std::string>())
                                                    : Pattern::literal(literal.get<std::string>());
  if (!compiled.ok()) return compiled.status().with_context(path);
  return compiled;
}

}  // namespace

std::vector<Span> split_spans(std::string_view text, const std::vector<Span>& matches,
                              SplitBehaviour behaviour, bool invert) {
  const std::vector<Part> parts = cover(text, matches, invert);
  if (behaviour == SplitBehaviour::merged_with_previous) return merge_with_previous(parts);
  if (behaviour == SplitBehaviour::merged_with_next) return merge_with_next(parts);
  std::vector<Span> spans;
  spans.reserve(parts.size());
  const Part* previous = nullptr;
  for (const Part& part : parts) {
    if (behaviour == SplitBehaviour::contiguous && previous != nullptr && previous->matched == part.matched) {
      spans.back().end = part.span.end;
    } else if (behaviour != SplitBehaviour::removed || !part.matched) {
      spans.push_back(part.span);
    }
    previous = &part;
  }
  return spans;
}

Result<PreTokenizer> PreTokenizer::parse(const nlohmann::json& spec) {
  PreTokenizer result;
  if (!spec.is_null()) SLUICE_RETURN_IF_ERROR(result.add(spec, "pre_tokenizer", 0));
  if (!result.byte_level_) {
    return unimplemented(
        "pre_tokenizer has no ByteLevel step; Sluice has byte-level BPE only (GPT-2, Llama 3, Qwen, "
        "DeepSeek and the like)");
  }
  return result;
}

Status PreTokenizer::add(const nlohmann::json& spec, const std::string& where, int depth) {
  constexpr int kMaxDepth = 8;
  SLUICE_RETURN_IF_ERROR(require_object(spec, where));
  const Result<std::string> type = required_string(spec, "type", where);
  if (!type.ok()) return type.status();
  if (*type != "Sequence") return add_step(spec, *type, where);
  const nlohmann::json& items = field_or_null(spec, "pretokenizers");
  if (!items.is_array() || depth == kMaxDepth) {
    return invalid_argument(fmt::format("{}.pretokenizers is {}; it must be an array, nested at most {} deep",
                                        where, shown(items), kMaxDepth));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(add(items[i], item_path(where + ".pretokenizers", i), depth + 1));
  }
  return {};
}

Status PreTokenizer::add_step(const nlohmann::json& spec, const std::string& type, const std::string& where) {
  if (byte_level_) {
    return unimplemented(fmt::format("{}: a '{}' step after ByteLevel is not supported", where, type));
  }
  if (type == "Split") return add_split(spec, where);
  if (type == "ByteLevel") return add_byte_level(spec, where);
  if (type != "Digits") {
    return unimplemented(
        fmt::format("{}.type is '{}'; Sluice has Sequence, Split, Digits and ByteLevel", where, type));
  }
  SLUICE_ASSIGN_OR_RETURN(const bool single, optional_bool(spec, "individual_digits", false, where));
  SLUICE_ASSIGN_OR_RETURN(Pattern digit, Pattern::compile("\\p{N}"));
  steps_.push_back({std::move(digit), single ? SplitBehaviour::isolated : SplitBehaviour::contiguous, false});
  return {};
}

Status PreTokenizer::add_split(const nlohmann::json& spec, const std::string& where) {
  SLUICE_ASSIGN_OR_RETURN(const std::string name, required_string(spec, "behavior", where));
  const std::optional<SplitBehaviour> behaviour = behaviour_named(name);
  if (!behaviour) {
    return invalid_argument(
        fmt::format("{}.behavior is '{}'; it must be Removed, Isolated, MergedWithPrevious, MergedWithNext "
                    "or Contiguous",
                    where, name));
  }
  SLUICE_ASSIGN_OR_RETURN(const bool invert, optional_bool(spec, "invert", false, where));
  SLUICE_ASSIGN_OR_RETURN(Pattern pattern, pattern_of(spec, where));
  steps_.push_back({std::move(pattern), *behaviour, invert});
  return {};
}

Status PreTokenizer::add_byte_level(const nlohmann::json& spec, const std::string& where) {
  SLUICE_ASSIGN_OR_RETURN(add_prefix_space_, optional_bool(spec, "add_prefix_space", false, where));
  SLUICE_ASSIGN_OR_RETURN(const bool use_regex, optional_bool(spec, "use_regex", true, where));
  if (add_prefix_space_ && !steps_.empty()) {
    return unimplemented(
        fmt::format("{}.add_prefix_space is true behind other steps; that is not supported", where));
  }
  byte_level_ = true;
  if (use_regex) {
    SLUICE_ASSIGN_OR_RETURN(Pattern pattern, Pattern::compile(kGpt2Expression));
    steps_.push_back({std::move(pattern), SplitBehaviour::isolated, false});
  }
  return {};
}

std::vector<std::string_view> PreTokenizer::split(std::string& text) const {
  if (add_prefix_space_ && !text.empty() && text.front() != ' ') text.insert(text.begin(), ' ');
  const std::string older = with_older_characters(text);
  const std::string_view subject = older.empty() ? std::string_view(text) : older;
  std::vector<Span> words;
  if (!text.empty()) words.push_back({0, text.size()});
  for (const Step& step : steps_) {
    std::vector<Span> parts;
    parts.reserve(words.size());
    for (const Span& word : words) {
      const std::string_view inside = subject.substr(word.begin, word.end - word.begin);
      for (const Span& part :
           split_spans(inside, step.pattern.find_all(inside), step.behaviour, step.invert)) {
        parts.push_back({word.begin + part.begin, word.begin + part.end});
      }
    }
    words = std::move(parts);
  }
  std::vector<std::string_view> views;
  views.reserve(words.size());
  for (const Span& word : words)
    views.push_back(std::string_view(text).substr(word.begin, word.end - word.begin));
  return views;
}

}  // namespace sluice::text

#include "text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/core.h>
#include <pcre2.h>

#include <cstdint>

namespace sluice::text {
namespace {

// Enough for any real pattern on any text; a pattern that backtracks exponentially ends here.
constexpr uint32_t kMatchLimit = 20'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr size_t kMaxExpressionBytes = 64 * 1024;

struct MatchDataDelete {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

std::string error_text(int code) {
  PCRE2_UCHAR buffer[160];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Pattern::Code {
  pcre2_code* code = nullptr;
  pcre2_match_context* limits = nullptr;
  bool compiled_to_machine_code = false;

  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() {
    pcre2_match_context_free(limits);
    pcre2_code_free(code);
  }

  // The first match at or behind `from`: pcre2_match's result.
  int match(std::string_view text, size_t from, pcre2_match_data* data) const {
    const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int result = PCRE2_ERROR_JIT_STACKLIMIT;
    if (compiled_to_machine_code) {
      result = pcre2_jit_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data, limits);
    }
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
      result = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, limits);
    }
    return result;
  }
};

Result<Pattern> Pattern::compile(std::string_view expression) {
  if (expression.size() > kMaxExpressionBytes) {
    return invalid_argument(fmt::format("a regular expression of {} bytes; the limit is {}",
                                        expression.size(), kMaxExpressionBytes));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string translated, translate_expression(expression));
  return build(translated, expression, false);
}

Result<Pattern> Pattern::literal(std::string_view text) { return build(text, text, true); }

Result<Pattern> Pattern::build(std::string_view translated, std::string_view shown, bool literal) {
  const uint32_t options =
      PCRE2_UTF | (literal ? static_cast<uint32_t>(PCRE2_LITERAL) : PCRE2_UCP | PCRE2_MULTILINE);
  auto owner = std::make_shared<Code>();
  int error = 0;
  size_t offset = 0;
  owner->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), options,
                              &error, &offset, nullptr);
  if (owner->code == nullptr) {
    return invalid_argument(
        fmt::format("regular expression '{}': {} (near byte {})", shown, error_text(error), offset));
  }
  owner->compiled_to_machine_code = pcre2_jit_compile(owner->code, PCRE2_JIT_COMPLETE) == 0;
  owner->limits = pcre2_match_context_create(nullptr);
  if (owner->limits == nullptr) return internal_error("no memory for a regular expression");
  pcre2_set_match_limit(owner->limits, kMatchLimit);
  pcre2_set_heap_limit(owner->limits, kHeapLimitKib);
  return Pattern(std::move(owner));
}

std::vector<Span> Pattern::find_all(std::string_view valid) const {
  std::vector<Span> found;
  const std::unique_ptr<pcre2_match_data, MatchDataDelete> data(pcre2_match_data_create(1, nullptr));
  if (data == nullptr) return found;
  size_t from = 0;
  while (from < valid.size()) {
    // A result of 0 is a match too: the pattern has groups, which are not asked for.
    if (code_->match(valid, from, data.get()) < 0) break;
    const size_t* bounds = pcre2_get_ovector_pointer(data.get());
    const Span span{bounds[0], bounds[1]};
    if (span.end > span.begin && span.begin >= from) {
      found.push_back(span);
      from = span.end;
    } else {
      // An empty match: go on behind the next character.
      from = std::max(from, span.end) + 1;
      while (from < valid.size() && (static_cast<unsigned char>(valid[from]) & 0xC0) == 0x80) ++from;
    }
  }
  return found;
}

}  // namespace sluice::text

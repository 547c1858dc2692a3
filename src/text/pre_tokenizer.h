// The pre-tokenizer of a tokenizer.json: cuts text into the words inside which BPE merges. Split steps by
// regular expression or string, then ByteLevel.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/pattern.h"

namespace sluice::text {

enum class SplitBehaviour { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// The parts that a step makes of `text`, given the pattern's matches in it. `invert` swaps what matched and
// what did not.
std::vector<Span> split_spans(std::string_view text, const std::vector<Span>& matches,
                              SplitBehaviour behaviour, bool invert);

class PreTokenizer {
 public:
  // `spec` is the file's "pre_tokenizer".
  static Result<PreTokenizer> parse(const nlohmann::json& spec);

  // The words of valid text, as views of `text`; a space may be put before `text` first, which changes it.
  std::vector<std::string_view> split(std::string& text) const;

 private:
  struct Step {
    Pattern pattern;
    SplitBehaviour behaviour;
    bool invert;
  };

  Status add(const nlohmann::json& spec, const std::string& where, int depth);
  Status add_step(const nlohmann::json& spec, const std::string& type, const std::string& where);
  Status add_split(const nlohmann::json& spec, const std::string& where);
  Status add_byte_level(const nlohmann::json& spec, const std::string& where);

  std::vector<Step> steps_;
  bool byte_level_ = false;
  bool add_prefix_space_ = false;
};

}  // namespace sluice::text

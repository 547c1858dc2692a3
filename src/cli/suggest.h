// "Did you mean ...?" for names that do not exist.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace sluice::cli {

// The number of single-character insertions, deletions and replacements between two words (Levenshtein).
int edit_distance(std::string_view a, std::string_view b);

// " (did you mean NAME?)" with the known name nearest to `unknown`; empty when none is near.
std::string suggestion(std::string_view unknown, std::span<const std::string> known);

}  // namespace sluice::cli

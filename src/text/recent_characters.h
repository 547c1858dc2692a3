// Characters younger than the Unicode tables of the regular-expression engine.
#pragma once

#include <string>
#include <string_view>

namespace sluice::text {

// Valid text in which each character that Unicode 15 and 16 added is replaced by an older one of the same
// general category and the same length in UTF-8; nothing when there is none. Matches in it are at the places
// where an engine with Unicode 16 finds them in the original.
std::string with_older_characters(std::string_view valid);

}  // namespace sluice::text

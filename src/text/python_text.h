// What Python's str methods do, on valid UTF-8. Positions and lengths that Python counts in characters are
// counted in code points.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::text::python {

// str.isspace for one character: White_Space and the four separators U+001C to U+001F.
bool is_space(char32_t point);

enum class Side { left, right, both };
// Without `characters`: white space.
std::string_view strip(std::string_view text, Side side,
                       std::optional<std::string_view> characters = std::nullopt);

// At most `most` splits, -1 for all; from the right end if `from_right`. Without a separator: at runs of
// white space. An empty separator must be refused before.
std::vector<std::string> split(std::string_view text, std::optional<std::string_view> separator, int64_t most,
                               bool from_right);
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);
// At most `most` replacements, -1 for all. An empty `old` matches around every character.
std::string replace(std::string_view text, std::string_view old, std::string_view with, int64_t most);

std::string lower(std::string_view text);
std::string upper(std::string_view text);
std::string title(std::string_view text);
std::string capitalize(std::string_view text);
std::string swap_case(std::string_view text);

bool is_alphabetic(char32_t point);
bool is_numeric_digit(char32_t point);  // str.isdigit
bool is_numeric(char32_t point);        // str.isnumeric
bool is_decimal(char32_t point);        // str.isdecimal
bool is_upper(char32_t point);
bool is_lower(char32_t point);

// The bytes where code point number `index` starts; the size of the text when it has fewer.
size_t byte_of(std::string_view text, size_t index);
// The code points as strings.
std::vector<std::string> characters(std::string_view text);

}  // namespace sluice::text::python

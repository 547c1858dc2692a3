// Unicode as the tokenizers and templates need it: UTF-8 in and out, repair of invalid bytes, normal forms,
// a few character classes. Functions that take "valid" text rely on it and do not check again.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice::text {

// What stands at one place of bytes that may or may not be UTF-8. `bytes` is the length of the character; of
// the maximal subpart that one U+FFFD replaces (Unicode 3.9, as Python, Rust and browsers do); or of what is
// there of a character that the text ends in.
struct Utf8Piece {
  enum class Kind { character, invalid, unfinished };
  Kind kind;
  size_t bytes;
};
Utf8Piece utf8_piece(std::string_view bytes, size_t at);

// Appends `bytes` to `out`, invalid ones replaced. Without `last`, an unfinished character at the end is left
// alone: the return value says how many bytes were taken.
size_t append_valid_utf8(std::string& out, std::string_view bytes, bool last);
bool is_valid_utf8(std::string_view bytes);

// Of valid text: the code point at `at`, which moves behind it.
char32_t next_code_point(std::string_view valid, size_t& at);
void append_code_point(std::string& out, char32_t point);
size_t count_code_points(std::string_view valid);

enum class NormalForm { nfc, nfd, nfkc, nfkd };
// O(n log n) whatever the text, also for long runs of combining marks.
std::string normalize(std::string_view valid, NormalForm form);

// Property White_Space.
bool is_white_space(char32_t point);
// Letters, marks, decimal digits and connector punctuation: \w of Unicode's regular expressions.
bool is_word_character(char32_t point);

}  // namespace sluice::text

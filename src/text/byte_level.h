// The alphabet of byte-level BPE: GPT-2 writes each of the 256 bytes as one visible character, so that a
// vocabulary file is text. Tokens are kept here as the bytes that they stand for.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice::text {

// The character (UTF-8) that stands for a byte.
std::string_view byte_level_character(unsigned char byte);
// The bytes that a token of the vocabulary stands for; nothing when it has a character outside the alphabet.
std::optional<std::string> byte_level_bytes(std::string_view valid_token);

}  // namespace sluice::text

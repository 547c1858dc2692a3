#include "text/byte_level.h"

#include <array>
#include <cstdint>

#include "text/unicode.h"

namespace sluice::text {
namespace {

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int16_t, 512> bytes;

  // Bytes that Latin-1 shows keep their character; the others get U+0100 and up, in order.
  Alphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool visible = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const char32_t point = visible ? byte : next++;
      append_code_point(characters[byte], point);
      bytes[point] = static_cast<int16_t>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

std::string_view byte_level_character(unsigned char byte) { return alphabet().characters[byte]; }

std::optional<std::string> byte_level_bytes(std::string_view valid_token) {
  const Alphabet& letters = alphabet();
  std::string out;
  for (size_t at = 0; at < valid_token.size();) {
    const char32_t point = next_code_point(valid_token, at);
    if (point >= letters.bytes.size() || letters.bytes[point] < 0) return std::nullopt;
    out.push_back(static_cast<char>(letters.bytes[point]));
  }
  return out;
}

}  // namespace sluice::text

#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

namespace sluice::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

int combining_class(utf8proc_int32_t point) { return utf8proc_get_property(point)->combining_class; }

// Canonical order: each run of marks sorted by class, marks of one class in their old order. utf8proc's own
// sort takes quadratic time on a hostile run.
void order_marks(std::vector<utf8proc_int32_t>& points) {
  auto at = points.begin();
  while (at != points.end()) {
    at = std::find_if(at, points.end(), [](auto point) { return combining_class(point) != 0; });
    const auto end = std::find_if(at, points.end(), [](auto point) { return combining_class(point) == 0; });
    std::stable_sort(at, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    at = end;
  }
}

}  // namespace

Utf8Piece utf8_piece(std::string_view bytes, size_t at) {
  using Kind = Utf8Piece::Kind;
  const auto first = static_cast<unsigned char>(bytes[at]);
  if (first < 0x80) return {Kind::character, 1};
  size_t length = 0;
  unsigned lowest = 0x80;
  unsigned highest = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) lowest = 0xA0;
    if (first == 0xED) highest = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) lowest = 0x90;
    if (first == 0xF4) highest = 0x8F;
  } else {
    return {Kind::invalid, 1};
  }
  for (size_t i = 1; i < length; ++i) {
    if (at + i == bytes.size()) return {Kind::unfinished, i};
    const auto byte = static_cast<unsigned char>(bytes[at + i]);
    if (byte < lowest || byte > highest) return {Kind::invalid, i};
    lowest = 0x80;
    highest = 0xBF;
  }
  return {Kind::character, length};
}

size_t append_valid_utf8(std::string& out, std::string_view bytes, bool last) {
  size_t at = 0;
  size_t copied = 0;
  while (at < bytes.size()) {
    const Utf8Piece piece = utf8_piece(bytes, at);
    if (piece.kind == Utf8Piece::Kind::character) {
      at += piece.bytes;
      continue;
    }
    out.append(bytes.substr(copied, at - copied));
    copied = at;
    if (piece.kind == Utf8Piece::Kind::unfinished && !last) return at;
    out.append(kReplacement);
    at += piece.bytes;
    copied = at;
  }
  out.append(bytes.substr(copied));
  return bytes.size();
}

bool is_valid_utf8(std::string_view bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Piece piece = utf8_piece(bytes, at);
    if (piece.kind != Utf8Piece::Kind::character) return false;
    at += piece.bytes;
  }
  return true;
}

char32_t next_code_point(std::string_view valid, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(valid[i])); };
  const char32_t first = byte(at);
  if (first < 0x80) {
    at += 1;
    return first;
  }
  if (first < 0xE0) {
    at += 2;
    return (first & 0x1F) << 6 | (byte(at - 1) & 0x3F);
  }
  if (first < 0xF0) {
    at += 3;
    return (first & 0x0F) << 12 | (byte(at - 2) & 0x3F) << 6 | (byte(at - 1) & 0x3F);
  }
  at += 4;
  return (first & 0x07) << 18 | (byte(at - 3) & 0x3F) << 12 | (byte(at - 2) & 0x3F) << 6 |
         (byte(at - 1) & 0x3F);
}

void append_code_point(std::string& out, char32_t point) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6);
    put(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12);
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  } else {
    put(0xF0 | point >> 18);
    put(0x80 | (point >> 12 & 0x3F));
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  }
}

size_t count_code_points(std::string_view valid) {
  return static_cast<size_t>(std::count_if(
      valid.begin(), valid.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string normalize(std::string_view valid, NormalForm form) {
  if (is_ascii(valid)) return std::string(valid);
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const bool compose = form == NormalForm::nfc || form == NormalForm::nfkc;
  const auto decompose_options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                                (compatible ? UTF8PROC_COMPAT : 0));

  std::vector<utf8proc_int32_t> points;
  points.reserve(valid.size());
  std::array<utf8proc_int32_t, 32> parts;  // the longest decomposition has 18 code points
  for (size_t at = 0; at < valid.size();) {
    const auto point = static_cast<utf8proc_int32_t>(next_code_point(valid, at));
    int boundary_class = 0;
    const auto count =
        utf8proc_decompose_char(point, parts.data(), parts.size(), decompose_options, &boundary_class);
    if (count > 0 && static_cast<size_t>(count) <= parts.size()) {
      points.insert(points.end(), parts.begin(), parts.begin() + count);
    } else {
      points.push_back(point);
    }
  }
  order_marks(points);
  auto length = static_cast<utf8proc_ssize_t>(points.size());
  if (compose) {
    const auto compose_options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    length = utf8proc_normalize_utf32(points.data(), length, compose_options);
  }
  std::string out;
  out.reserve(valid.size());
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    append_code_point(out, static_cast<char32_t>(points[static_cast<size_t>(i)]));
  }
  return out;
}

bool is_white_space(char32_t point) {
  return (point >= 0x09 && point <= 0x0D) || point == 0x20 || point == 0x85 || point == 0xA0 ||
         point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 ||
         point == 0x202F || point == 0x205F || point == 0x3000;
}

bool is_word_character(char32_t point) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      // Circled letters are alphabetic, the joiners belong to words.
      return (point >= 0x24B6 && point <= 0x24E9) || point == 0x200C || point == 0x200D ||
             (point >= 0x1F130 && point <= 0x1F149) || (point >= 0x1F150 && point <= 0x1F169) ||
             (point >= 0x1F170 && point <= 0x1F189);
  }
}

}  // namespace sluice::text

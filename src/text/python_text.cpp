#include "text/python_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "text/unicode.h"

namespace sluice::text::python {
namespace {

// Upper-case forms of more than one letter (SpecialCasing), as far as Latin text has them.
std::string_view long_upper(char32_t point) {
  switch (point) {
    case 0xDF:
      return "SS";
    case 0x149:
      return "\xCA\xBCN";
    case 0x1F0:
      return "J\xCC\x8C";
    case 0xFB00:
      return "FF";
    case 0xFB01:
      return "FI";
    case 0xFB02:
      return "FL";
    case 0xFB03:
      return "FFI";
    case 0xFB04:
      return "FFL";
    case 0xFB05:
    case 0xFB06:
      return "ST";
    default:
      return {};
  }
}

void append_upper(std::string& out, char32_t point) {
  if (const std::string_view text = long_upper(point); !text.empty()) {
    out += text;
  } else {
    append_code_point(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(point))));
  }
}

void append_title(std::string& out, char32_t point) {
  if (const std::string_view text = long_upper(point); !text.empty()) {
    out += text.substr(0, 1);
    out += lower(text.substr(1));
  } else {
    append_code_point(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(point))));
  }
}

void append_lower(std::string& out, char32_t point) {
  if (point == 0x130) {
    out += "i\xCC\x87";
  } else {
    append_code_point(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point))));
  }
}

template <class Append>
std::string map(std::string_view text, Append&& append) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) append(out, next_code_point(text, at));
  return out;
}

bool is_line_end(char32_t point) {
  return (point >= 0x0A && point <= 0x0D) || (point >= 0x1C && point <= 0x1E) || point == 0x85 ||
         point == 0x2028 || point == 0x2029;
}

size_t previous_start(std::string_view text, size_t at) {
  do {
    --at;
  } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

std::vector<std::string> split_by(std::string_view text, std::string_view separator, int64_t most) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t found = text.find(separator, begin);
    if (found == std::string_view::npos) break;
    parts.emplace_back(text.substr(begin, found - begin));
    begin = found + separator.size();
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

std::vector<std::string> split_by_from_right(std::string_view text, std::string_view separator,
                                             int64_t most) {
  std::vector<std::string> parts;
  size_t end = text.size();
  while ((most < 0 || static_cast<int64_t>(parts.size()) < most) && end >= separator.size()) {
    const size_t found = text.rfind(separator, end - separator.size());
    if (found == std::string_view::npos) break;
    parts.emplace_back(text.substr(found + separator.size(), end - found - separator.size()));
    end = found;
  }
  parts.emplace_back(text.substr(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> split_at_space(std::string_view text, int64_t most, bool from_right) {
  std::vector<std::string> parts;
  std::string_view rest = text;
  while (true) {
    rest = strip(rest, from_right ? Side::right : Side::left);
    if (rest.empty()) break;
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.emplace_back(rest);
      break;
    }
    size_t cut = from_right ? rest.size() : 0;
    while (from_right ? cut > 0 : cut < rest.size()) {
      const size_t start = from_right ? previous_start(rest, cut) : cut;
      size_t at = start;
      if (is_space(next_code_point(rest, at))) break;
      cut = from_right ? start : at;
    }
    parts.emplace_back(from_right ? rest.substr(cut) : rest.substr(0, cut));
    rest = from_right ? rest.substr(0, cut) : rest.substr(cut);
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

bool is_cased(char32_t point) {
  return is_upper(point) || is_lower(point) ||
         utf8proc_category(static_cast<utf8proc_int32_t>(point)) == UTF8PROC_CATEGORY_LT;
}

// What is looked through for the nearest letter.
bool is_case_ignorable(char32_t point) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(point))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return point == '\'' || point == '.' || point == ':' || point == 0xB7 || point == 0x2019;
  }
}

// A capital sigma in [begin, end) that ends a word has a small form of its own.
bool is_final_sigma(std::string_view text, size_t begin, size_t end) {
  bool before = false;
  while (begin > 0) {
    begin = previous_start(text, begin);
    size_t at = begin;
    const char32_t point = next_code_point(text, at);
    if (is_case_ignorable(point)) continue;
    before = is_cased(point);
    break;
  }
  if (!before) return false;
  while (end < text.size()) {
    const char32_t point = next_code_point(text, end);
    if (!is_case_ignorable(point)) return !is_cased(point);
  }
  return true;
}

}  // namespace

bool is_space(char32_t point) { return is_white_space(point) || (point >= 0x1C && point <= 0x1F); }

std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> characters) {
  const auto dropped = [&](size_t begin, size_t end) {
    if (characters) return characters->find(text.substr(begin, end - begin)) != std::string_view::npos;
    size_t at = begin;
    return is_space(next_code_point(text, at));
  };
  size_t begin = 0;
  size_t end = text.size();
  while (side != Side::right && begin < end) {
    size_t at = begin;
    next_code_point(text, at);
    if (!dropped(begin, at)) break;
    begin = at;
  }
  while (side != Side::left && begin < end) {
    const size_t start = previous_start(text, end);
    if (!dropped(start, end)) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

std::vector<std::string> split(std::string_view text, std::optional<std::string_view> separator, int64_t most,
                               bool from_right) {
  if (!separator) return split_at_space(text, most, from_right);
  return from_right ? split_by_from_right(text, *separator, most) : split_by(text, *separator, most);
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t point = next_code_point(text, at);
    if (!is_line_end(point)) continue;
    if (point == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.emplace_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string replace(std::string_view text, std::string_view old, std::string_view with, int64_t most) {
  std::string out;
  size_t at = 0;
  int64_t done = 0;
  if (old.empty()) {
    while (most < 0 || done < most) {
      out += with;
      ++done;
      if (at == text.size()) return out;
      const size_t begin = at;
      next_code_point(text, at);
      out += text.substr(begin, at - begin);
    }
    return out.append(text.substr(at));
  }
  while (most < 0 || done < most) {
    const size_t found = text.find(old, at);
    if (found == std::string_view::npos) break;
    out += text.substr(at, found - at);
    out += with;
    at = found + old.size();
    ++done;
  }
  return out.append(text.substr(at));
}

std::string lower(std::string_view text) {
  constexpr std::string_view kSigma = "\xCE\xA3";
  if (text.find(kSigma) == std::string_view::npos) return map(text, append_lower);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t point = next_code_point(text, at);
    if (point == 0x3A3 && is_final_sigma(text, begin, at)) {
      out += "\xCF\x82";
    } else {
      append_lower(out, point);
    }
  }
  return out;
}
std::string upper(std::string_view text) { return map(text, append_upper); }

std::string title(std::string_view text) {
  bool inside = false;  // behind a cased character
  return map(text, [&](std::string& out, char32_t point) {
    if (inside) {
      append_lower(out, point);
    } else {
      append_title(out, point);
    }
    inside = is_cased(point);
  });
}

std::string capitalize(std::string_view text) {
  bool first = true;
  return map(text, [&](std::string& out, char32_t point) {
    if (std::exchange(first, false)) {
      append_title(out, point);
    } else {
      append_lower(out, point);
    }
  });
}

std::string swap_case(std::string_view text) {
  return map(text, [](std::string& out, char32_t point) {
    if (is_upper(point)) {
      append_lower(out, point);
    } else if (is_lower(point)) {
      append_upper(out, point);
    } else {
      append_code_point(out, point);
    }
  });
}

bool is_alphabetic(char32_t point) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

bool is_numeric_digit(char32_t point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(point)) == UTF8PROC_CATEGORY_ND || point == 0xB2 ||
         point == 0xB3 || point == 0xB9 || (point >= 0x2070 && point <= 0x2079) ||
         (point >= 0x2080 && point <= 0x2089);
}

bool is_numeric(char32_t point) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(point));
  return is_numeric_digit(point) || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}

bool is_decimal(char32_t point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(point)) == UTF8PROC_CATEGORY_ND;
}

bool is_upper(char32_t point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(point)) == UTF8PROC_CATEGORY_LU;
}

bool is_lower(char32_t point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(point)) == UTF8PROC_CATEGORY_LL;
}

size_t byte_of(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) next_code_point(text, at);
  return at;
}

std::vector<std::string> characters(std::string_view text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    next_code_point(text, at);
    out.emplace_back(text.substr(begin, at - begin));
  }
  return out;
}

}  // namespace sluice::text::python

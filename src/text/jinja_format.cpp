#include "text/jinja_format.h"

#include <fmt/core.h>
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/unicode.h"

namespace sluice::text::jinja {
namespace {

using Kind = Value::Kind;

// str.isprintable for one character.
bool is_printable(char32_t point) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(point))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return point == ' ';
    default:
      return true;
  }
}

void append_repr(std::string& out, const Value& value);

void append_items(std::string& out, const std::vector<Value>& items) {
  bool first = true;
  for (const Value& item : items) {
    if (!std::exchange(first, false)) out += ", ";
    append_repr(out, item);
  }
}

void append_list(std::string& out, const List& list) {
  switch (list.kind) {
    case ListKind::range:
      out += list.label;
      return;
    case ListKind::generator:
      out += "<generator object>";
      return;
    case ListKind::view:
      out += list.label + "([";
      append_items(out, list.items);
      out += "])";
      return;
    case ListKind::list:
      out += "[";
      append_items(out, list.items);
      out += "]";
      return;
    case ListKind::tuple:
    case ListKind::group:
      out += "(";
      append_items(out, list.items);
      out += list.items.size() == 1 ? ",)" : ")";
      return;
  }
}

void append_repr(std::string& out, const Value& value) {
  check_text_size(out.size());
  switch (value.kind()) {
    case Kind::undefined:
      out += "Undefined";
      return;
    case Kind::none:
      out += "None";
      return;
    case Kind::boolean:
      out += value.as_boolean() ? "True" : "False";
      return;
    case Kind::integer:
      out += std::to_string(value.as_integer());
      return;
    case Kind::number:
      out += repr_number(value.as_number());
      return;
    case Kind::string:
      out += repr_string(value.as_string());
      return;
    case Kind::list:
      append_list(out, value.as_list());
      return;
    case Kind::dict: {
      out += "{";
      bool first = true;
      for (const auto& [key, item] : value.as_dict().entries()) {
        if (!std::exchange(first, false)) out += ", ";
        append_repr(out, key);
        out += ": ";
        append_repr(out, item);
      }
      out += "}";
      return;
    }
    case Kind::object:
      out += value.as_object().repr();
      return;
  }
}

void append_json_string(std::string& out, std::string_view text, bool ensure_ascii) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t point = next_code_point(text, at);
    switch (point) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (point < 0x20 || (ensure_ascii && point > 0x7E && point < 0x10000)) {
          out += fmt::format("\\u{:04x}", static_cast<uint32_t>(point));
        } else if (ensure_ascii && point >= 0x10000) {
          const auto low = static_cast<uint32_t>(point) - 0x10000;
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (low >> 10), 0xDC00 + (low & 0x3FF));
        } else {
          out += text.substr(begin, at - begin);
        }
    }
  }
  out += '"';
}

class JsonWriter {
 public:
  JsonWriter(std::string& out, const JsonStyle& style) : out_(out), style_(style) {}

  void write(const Value& value, int level) {
    check_text_size(out_.size());
    switch (value.kind()) {
      case Kind::none:
        out_ += "null";
        return;
      case Kind::string:
        append_json_string(out_, value.as_string(), style_.ensure_ascii);
        return;
      case Kind::boolean:
      case Kind::integer:
      case Kind::number:
        out_ += scalar(value);
        return;
      case Kind::list:
        if (const ListKind kind = value.as_list().kind;
            kind == ListKind::list || kind == ListKind::tuple || kind == ListKind::group) {
          write_list(value.as_list(), level);
          return;
        }
        break;
      case Kind::dict:
        write_dict(value.as_dict(), level);
        return;
      default:
        break;
    }
    throw Error("Object of type " + value.type_name() + " is not JSON serializable");
  }

 private:
  static std::string scalar(const Value& value) {
    if (value.is(Kind::boolean)) return value.as_boolean() ? "true" : "false";
    if (value.is(Kind::integer)) return std::to_string(value.as_integer());
    const double number = value.as_number();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
    return repr_number(number);
  }

  std::string key_text(const Value& key) const {
    if (key.is_string()) return key.as_string();
    if (key.is_none()) return "null";
    if (key.is_numeric()) return scalar(key);
    throw Error("keys must be str, int, float, bool or None, not " + key.type_name());
  }

  void new_line(int level) {
    if (!style_.indented) return;
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += style_.indent;
  }

  void write_list(const List& list, int level) {
    if (list.items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    bool first = true;
    for (const Value& item : list.items) {
      if (!std::exchange(first, false)) out_ += style_.item_separator;
      new_line(level + 1);
      write(item, level + 1);
    }
    new_line(level);
    out_ += ']';
  }

  void write_dict(const Dict& dict, int level) {
    if (dict.size() == 0) {
      out_ += "{}";
      return;
    }
    std::vector<Dict::Entry> entries = dict.entries();
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [this](const auto& a, const auto& b) {
        return key_text(a.first) < key_text(b.first);
      });
    }
    out_ += '{';
    bool first = true;
    for (const auto& [key, item] : entries) {
      if (!std::exchange(first, false)) out_ += style_.item_separator;
      new_line(level + 1);
      append_json_string(out_, key_text(key), style_.ensure_ascii);
      out_ += style_.key_separator;
      write(item, level + 1);
    }
    new_line(level);
    out_ += '}';
  }

  std::string& out_;
  const JsonStyle& style_;
};

}  // namespace

void check_text_size(size_t bytes) {
  constexpr size_t kMaxTextBytes = size_t{16} << 20;
  if (bytes > kMaxTextBytes) {
    throw Error(fmt::format("a text of more than {} MiB; that is the limit", kMaxTextBytes >> 20));
  }
}

// The shortest digits that read back as the same number, in positional notation from 1e-4 to 1e16.
std::string repr_number(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto exponent_form =
      std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(exponent_form.ptr - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  const char* digits = text.data() + e + 1;
  std::from_chars(*digits == '+' ? digits + 1 : digits, text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}e{}{:02}", text.substr(0, e), exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::fixed);
  std::string plain(buffer, fixed.ptr);
  if (plain.find('.') == std::string::npos) plain += ".0";
  return plain;
}

std::string repr_string(std::string_view text) {
  const bool double_quotes =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t point = next_code_point(text, at);
    const auto number = static_cast<uint32_t>(point);
    if (point == static_cast<char32_t>(quote) || point == '\\') {
      out += '\\';
      out += static_cast<char>(point);
    } else if (point == '\n') {
      out += "\\n";
    } else if (point == '\r') {
      out += "\\r";
    } else if (point == '\t') {
      out += "\\t";
    } else if (is_printable(point)) {
      out += text.substr(begin, at - begin);
    } else if (point < 0x100) {
      out += fmt::format("\\x{:02x}", number);
    } else if (point < 0x10000) {
      out += fmt::format("\\u{:04x}", number);
    } else {
      out += fmt::format("\\U{:08x}", number);
    }
  }
  out += quote;
  return out;
}

std::string to_text(const Value& value) {
  if (value.is_string()) return value.as_string();
  if (value.is_undefined()) return {};
  return to_repr(value);
}

std::string to_repr(const Value& value) {
  std::string out;
  append_repr(out, value);
  return out;
}

std::string to_json(const Value& value, const JsonStyle& style) {
  std::string out;
  JsonWriter(out, style).write(value, 0);
  return out;
}

}  // namespace sluice::text::jinja

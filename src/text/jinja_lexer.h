// A template's source as tokens, with Jinja's white-space rules applied: trim_blocks and lstrip_blocks on,
// the signs '-' and '+' in tags, line ends made "\n", one newline at the very end dropped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::text::jinja {

struct Token {
  enum class Kind {
    data,
    variable_begin,
    variable_end,
    block_begin,
    block_end,
    name,
    string,
    integer,
    number,
    symbol,
    end,
  };
  Kind kind;
  std::string text;  // of a string: its value; of a symbol: "+", "==", ...
  int line;
  int column;
};

// Throws Error with line and column. The last token is `end`.
std::vector<Token> tokenize(std::string_view valid_source);

// "line 3, column 5: <what>"
std::string at_place(int line, int column, std::string_view what);

}  // namespace sluice::text::jinja

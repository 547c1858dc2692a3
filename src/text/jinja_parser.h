// Tokens to a Program, by Jinja's grammar.
#pragma once

#include <string_view>

#include "text/jinja_ast.h"

namespace sluice::text::jinja {

// Throws Error with line and column.
Program parse(std::string_view valid_source);

}  // namespace sluice::text::jinja

// Python's operators on values. Wrong types are Errors with Python's wording.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_value.h"

namespace sluice::text::jinja {

Value arithmetic(Interpreter& interpreter, Operator op, const Value& left, const Value& right);
Value negated(const Value& value);
Value positive(const Value& value);

bool equal(Interpreter& interpreter, const Value& left, const Value& right);
// Negative, zero or positive; `sign` is the operator for the error message. Not for NaN.
int order(Interpreter& interpreter, const Value& left, const Value& right, const char* sign);
bool compare(Interpreter& interpreter, Operator op, const Value& left, const Value& right);
bool contains(Interpreter& interpreter, const Value& container, const Value& item);

// What a for loop goes through. Uses a generator up.
std::vector<Value> iterate(Interpreter& interpreter, const Value& value);
// len(): nothing for what has none.
std::optional<int64_t> length(const Value& value);
// container[key]; nothing where Python raises TypeError or LookupError.
std::optional<Value> subscript(Interpreter& interpreter, const Value& container, const Value& key);
Value slice(Interpreter& interpreter, const Value& container, const Value& start, const Value& stop,
            const Value& step);

}  // namespace sluice::text::jinja

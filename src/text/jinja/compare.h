// Python's truth, equality, order, arithmetic and membership of Values. Walks count steps on the render's meter.
#pragma once

#include <vector>

#include "text/jinja/runtime.h"

namespace reprise::text::jinja {

bool truth(const Value& value);
bool equal(Runtime& rt, const Value& a, const Value& b);
// a < b; fails for types that Python does not order. `symbol` is for the message.
bool less(Runtime& rt, const Value& a, const Value& b, const char* symbol = "<");
// The answer of a comparison operator: == != < <= > >=.
bool compare(Runtime& rt, std::string_view op, const Value& a, const Value& b);
bool contains(Runtime& rt, const Value& container, const Value& item);

// Binary + - * / // % ** and unary + -.
Value arithmetic(Runtime& rt, std::string_view op, const Value& a, const Value& b);
Value negate(const Value& value);
Value plus(const Value& value);

// Fails outside 64 signed bits.
Value checked_integer(Int value);

// Order of indices that sorts `keys`, stable; `reverse` keeps equal ones in their order, as sorted() does.
std::vector<size_t> sorted_order(Runtime& rt, const std::vector<Value>& keys, bool reverse);

}  // namespace reprise::text::jinja

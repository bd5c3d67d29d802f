// Attributes, subscripts, slices, iteration, length and calls of Values, as jinja2's immutable sandbox allows them:
// methods that change a list or dict, and names that start with an underscore, are undefined.
#pragma once

#include <string_view>
#include <vector>

#include "text/jinja/args.h"
#include "text/jinja/runtime.h"

namespace reprise::text::jinja {

// object.name: a method or field first, then an entry of that name. Missing ones are undefined.
Value get_attribute(Runtime& rt, const Value& object, std::string_view name);
// object[key]: an entry first, then a method or field of that name.
Value get_item(Runtime& rt, const Value& object, const Value& key);
// object[start:stop:step]; None stands for an omitted bound.
Value get_slice(Runtime& rt, const Value& object, const Value& start, const Value& stop, const Value& step);

// What a loop over the value walks; a one-shot iterator is used up. Fails for what cannot be walked.
std::vector<Value> items_of(Runtime& rt, const Value& value);
bool is_iterable(const Value& value);
// len(value); fails for what has none.
size_t length_of(Runtime& rt, const Value& value);

Value call_value(Runtime& rt, const Value& callee, const CallArgs& args);

// The methods of a value ("abc".upper), as functions; undefined when there is none.
using MethodBody = Value (*)(Runtime& rt, const Value& self, const CallArgs& args);
MethodBody find_string_method(std::string_view name);
MethodBody find_container_method(Kind kind, std::string_view name);  // list, tuple, dict, range, loop
bool is_mutating_method(Kind kind, std::string_view name);

// Fails with what is missing when the value is undefined.
void require_defined(const Value& value);
// The text of a string; fails naming `what` for anything else.
const std::string& require_text(const Value& value, std::string_view what);
int64_t require_integer(const Value& value, std::string_view what);

}  // namespace reprise::text::jinja

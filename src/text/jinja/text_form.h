// How Values become text: Python's str() and repr(), and json.dumps() with the options that HF templates use.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/runtime.h"

namespace reprise::text::jinja {

// str(value): what {{ value }} prints. Undefined is empty.
std::string to_text(Runtime& rt, const Value& value);
// The same as a Value; a string is itself.
Value to_string_value(Runtime& rt, const Value& value);
std::string repr(Runtime& rt, const Value& value);
std::string float_repr(double value);

struct JsonStyle {
  bool ascii = false;
  bool pretty = false;  // one item a line
  std::string indent;   // of one level, when pretty
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
std::string to_json(Runtime& rt, const Value& value, const JsonStyle& style);

}  // namespace reprise::text::jinja

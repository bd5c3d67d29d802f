// The filters, tests and global functions a template can name. Tables are built once and read from any thread.
#pragma once

#include <string_view>
#include <vector>

#include "text/jinja/access.h"
#include "text/jinja/args.h"
#include "text/jinja/runtime.h"

namespace reprise::text::jinja {

using Filter = Value (*)(Runtime& rt, const Value& input, const CallArgs& args);
using Test = bool (*)(Runtime& rt, const Value& input, const CallArgs& args);

struct FilterEntry {
  std::string_view name;
  Filter filter;
};
// One table a file.
const std::vector<FilterEntry>& text_filters();
const std::vector<FilterEntry>& number_filters();
const std::vector<FilterEntry>& sequence_filters();

Filter find_filter(std::string_view name);  // null when there is none
Test find_test(std::string_view name);
Value apply_filter(Runtime& rt, std::string_view name, const Value& input, const CallArgs& args);
bool apply_test(Runtime& rt, std::string_view name, const Value& input, const CallArgs& args);

// range, dict, namespace, raise_exception, strftime_now, cycler, joiner; undefined for other names.
Value find_global(Runtime& rt, std::string_view name);

// Members of a cycler: `current`, and next() and reset().
Value cycler_member(Runtime& rt, const Value& self, std::string_view name, bool& found);
MethodBody find_function_method(const Value& self, std::string_view name);

// int(text, base) and float(text) as Python reads them; false when it would refuse.
bool parse_python_int(std::string_view text, int64_t base, Int& out);
bool parse_python_float(std::string_view text, double& out);

}  // namespace reprise::text::jinja

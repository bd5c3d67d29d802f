// Pieces of Python's str methods that filters share with them.
#pragma once

#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"

namespace reprise::text::jinja {

std::string_view strip_set(std::string_view s, std::string_view chars, bool left, bool right);
std::vector<std::string_view> split_lines(std::string_view s, bool keep_ends);
// Replaces at most `count` (all when negative).
Value replace_text(Runtime& rt, std::string_view s, std::string_view from, std::string_view to, int64_t count);

}  // namespace reprise::text::jinja

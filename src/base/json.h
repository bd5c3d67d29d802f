// JSON in and out: nlohmann::json behind one bounded parse function. Input depth is limited before the tree is built,
// so hostile nesting cannot exhaust the stack; errors name the source and the byte offset.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/status.h"

namespace reprise {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // keeps the order of keys

constexpr int kMaxJsonDepth = 128;

// `source` is put in front of an error ("config.json"). Text must be UTF-8.
Result<Json> parse_json(std::string_view text, std::string_view source);
Result<OrderedJson> parse_ordered_json(std::string_view text, std::string_view source);

}  // namespace reprise

// Bounded JSON: parsing whose time and memory are linear in the text for any text: a limit on members, lists
// and values, and a flag that gives it up. base/json.h parses with the limits of files; a server sets narrower ones for
// what clients send. Pure; any thread may set the flag.
#pragma once

#include <atomic>
#include <cstddef>
#include <string_view>

#include "base/json.h"

namespace reprise {

struct JsonLimits {
  size_t members = SIZE_MAX;                // of all objects together
  size_t lists = SIZE_MAX;                  // arrays and objects
  size_t values = SIZE_MAX;                 // of any kind
  const std::atomic<bool>* stop = nullptr;  // true: parsing ends with Cancelled; null: it cannot be given up
};

// Like parse_json and parse_ordered_json. Beyond a limit the error is Invalid and names the limit.
Result<Json> parse_json(std::string_view text, std::string_view source, const JsonLimits& limits);
Result<OrderedJson> parse_ordered_json(std::string_view text, std::string_view source, const JsonLimits& limits);

}  // namespace reprise

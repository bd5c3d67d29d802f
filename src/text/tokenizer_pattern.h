// TextPattern: a literal or a regular expression, as the "pattern" of a tokenizer.json component, and what is done with
// its matches. Immutable; any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>

#include "base/status.h"
#include "text/tokenizer_json.h"
#include "text/unicode_regex.h"

namespace reprise::text {

class TextPattern {
 public:
  // {"String": "..."} or {"Regex": "..."}
  static Result<TextPattern> from_json(const JsonPlace& place);
  static TextPattern literal(std::string text) { return TextPattern(std::move(text)); }
  static Result<TextPattern> regex(std::string_view pattern);

  // The literal, or nothing when this is a regular expression.
  const std::string* as_literal() const { return std::get_if<std::string>(&pattern_); }

  // Calls `on_match(begin, end)` for each match from left to right.
  Status for_each(std::string_view text, const std::function<void(size_t, size_t)>& on_match) const;
  // The text with every match replaced; an error when that takes more than `max_bytes`.
  Result<std::string> replace_all(std::string_view text, std::string_view content, size_t max_bytes) const;

 private:
  explicit TextPattern(std::variant<std::string, Regex> pattern) : pattern_(std::move(pattern)) {}

  std::variant<std::string, Regex> pattern_;
};

// How much a text of `bytes` may grow on its way through a tokenizer; hostile files could ask for any amount.
constexpr size_t max_grown_bytes(size_t bytes) { return bytes * 64 + (1 << 20); }

}  // namespace reprise::text

#include "text/tokenizer_pattern.h"

namespace reprise::text {

Result<TextPattern> TextPattern::from_json(const JsonPlace& place) {
  RETURN_IF_ERROR(place.expect_object({"String", "Regex"}));
  if (place.json().size() != 1) return place.error("must have one key, String or Regex");
  if (place.has("String")) {
    ASSIGN_OR_RETURN(std::string text, place.string("String"));
    if (text.empty()) return place.error("the string to look for is empty");
    return literal(std::move(text));
  }
  ASSIGN_OR_RETURN(const std::string pattern, place.string("Regex"));
  Result<TextPattern> compiled = regex(pattern);
  if (!compiled) return place["Regex"].at(compiled.status());
  return compiled;
}

Result<TextPattern> TextPattern::regex(std::string_view pattern) {
  ASSIGN_OR_RETURN(Regex compiled, Regex::compile(pattern));
  return TextPattern(std::move(compiled));
}

Status TextPattern::for_each(std::string_view text, const std::function<void(size_t, size_t)>& on_match) const {
  if (const std::string* wanted = as_literal()) {
    for (size_t at = text.find(*wanted); at != std::string_view::npos; at = text.find(*wanted, at + wanted->size()))
      on_match(at, at + wanted->size());
    return Status::ok();
  }
  RegexMatcher matcher(std::get<Regex>(pattern_));
  matcher.start(text);
  size_t begin = 0;
  size_t end = 0;
  while (true) {
    ASSIGN_OR_RETURN(const bool found, matcher.next(&begin, &end));
    if (!found) return Status::ok();
    on_match(begin, end);
  }
}

Result<std::string> TextPattern::replace_all(std::string_view text, std::string_view content, size_t max_bytes) const {
  std::string out;
  size_t copied = 0;
  bool too_long = false;
  RETURN_IF_ERROR(for_each(text, [&](size_t begin, size_t end) {
    if (too_long) return;
    out += text.substr(copied, begin - copied);
    out += content;
    copied = end;
    too_long = out.size() > max_bytes;
  }));
  if (too_long) return invalid("replacing made a text of more than {} bytes", max_bytes);
  out += text.substr(copied);
  return out;
}

}  // namespace reprise::text

#include "base/json.h"

namespace reprise {
namespace {

// Rejects nesting deeper than kMaxJsonDepth in one pass over the text; strings are skipped, everything else is left to
// the parser.
Status check_depth(std::string_view text, std::string_view source) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth)
        return invalid("{}: JSON nested deeper than {} levels at byte {}", source, kMaxJsonDepth, i);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return Status::ok();
}

template <typename J>
Result<J> parse(std::string_view text, std::string_view source) {
  RETURN_IF_ERROR(check_depth(text, source));
  try {
    return J::parse(text.begin(), text.end());
  } catch (const nlohmann::json::exception& e) {
    // nlohmann's text starts with "[json.exception...] "; what follows names line and column.
    std::string_view what = e.what();
    if (auto end = what.find("] "); end != std::string_view::npos) what.remove_prefix(end + 2);
    return invalid("{}: not valid JSON: {}", source, what);
  }
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view source) { return parse<Json>(text, source); }

Result<OrderedJson> parse_ordered_json(std::string_view text, std::string_view source) {
  return parse<OrderedJson>(text, source);
}

}  // namespace reprise

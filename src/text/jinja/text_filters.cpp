#include <algorithm>
#include <map>

#include "text/jinja/access.h"
#include "text/jinja/compare.h"
#include "text/jinja/library.h"
#include "text/jinja/string_methods.h"
#include "text/jinja/text_form.h"
#include "text/jinja/unicode.h"

namespace reprise::text::jinja {
namespace {

template <std::string (*Map)(std::string_view)>
Value map_filter(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("this filter", args, {});
  const std::string text = to_text(rt, input);
  rt.meter.ensure(text.size() * 3);
  rt.meter.step(1 + text.size() / 16);
  return rt.string(Map(text));
}

// Unlike str.title(), words start after spaces, dashes and opening brackets only.
std::string title_words(std::string_view s) {
  std::string out;
  size_t i = 0;
  while (i < s.size()) {
    const size_t start = i;
    const auto breaks = [](char32_t p) {
      return is_space(p) || p == '-' || p == '(' || p == '{' || p == '[' || p == '<';
    };
    const bool separator = breaks(point_or_byte_at(s, i).value);
    while (i < s.size()) {
      const auto [c, n] = point_or_byte_at(s, i);
      if (breaks(c) != separator) break;
      i += n;
    }
    const std::string_view item = s.substr(start, i - start);
    const size_t first = point_bytes(item, 0);
    out += to_upper(item.substr(0, first));
    out += to_lower(item.substr(first));
  }
  return out;
}

Value trim(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("trim", args, {"chars"});
  const std::string text = to_text(rt, input);
  if (bound.has_value(0)) return rt.string(std::string(strip_set(text, bound.text(0), true, true)));
  return rt.string(std::string(strip(text)));
}

Value replace(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("replace", args, {"old", "new", "count"}, 2);
  const int64_t count = bound.has_value(2) ? bound.integer(2, -1) : -1;
  return replace_text(rt, to_text(rt, input), to_text(rt, bound[0]), to_text(rt, bound[1]), count);
}

Value string(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("string", args, {});
  return to_string_value(rt, input);
}

Value escape(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("escape", args, {});
  Builder out(rt);
  for (const char c : to_text(rt, input)) {
    switch (c) {
      case '&': out << "&amp;"; break;
      case '<': out << "&lt;"; break;
      case '>': out << "&gt;"; break;
      case '\'': out << "&#39;"; break;
      case '"': out << "&#34;"; break;
      default: out << c;
    }
  }
  return out.value();
}

Value indent(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("indent", args, {"width", "first", "blank"});
  const std::string& text = require_text(input, "the input of indent");
  Builder pad(rt);
  if (bound.has(0) && bound[0].is_string())
    pad << bound[0].text();
  else
    pad.repeat(" ", static_cast<size_t>(std::max<int64_t>(0, bound.integer(0, 4))));
  const bool blank = bound.truth(2, false);
  Builder out(rt);
  if (bound.truth(1, false)) out << pad.text();
  // The extra line end is jinja2's: a text that ends with one keeps it.
  const std::string padded = text + "\n";
  const auto lines = split_lines(padded, false);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i) {
      out << '\n';
      if (blank || !lines[i].empty()) out << pad.text();
    }
    out << lines[i];
  }
  return out.value();
}

Value tojson(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = bound.truth(0, false);
  if (bound.has_value(1)) {
    style.pretty = true;
    style.item_separator.assign(1, ',');
    if (bound[1].is_string()) {
      style.indent = bound[1].text();
    } else {
      const int64_t width = bound.integer(1, 0);
      if (width > 1000) fail("tojson: an indent of {} is larger than 1000", width);
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(0, width)), ' ');
    }
  }
  if (bound.has_value(2)) {
    const auto parts = items_of(rt, bound[2]);
    if (parts.size() != 2) fail("tojson: separators must be a pair, got {}", parts.size());
    style.item_separator = require_text(parts[0], "a separator of tojson");
    style.key_separator = require_text(parts[1], "a separator of tojson");
  }
  style.sort_keys = bound.truth(3, false);
  return rt.string(to_json(rt, input, style));
}

}  // namespace

const std::vector<FilterEntry>& text_filters() {
  static const std::vector<FilterEntry> table = {
      {"upper", map_filter<to_upper>},
      {"lower", map_filter<to_lower>},
      {"capitalize", map_filter<to_capitalized>},
      {"title", map_filter<title_words>},
      {"trim", trim},
      {"replace", replace},
      {"string", string},
      {"safe", string},  // nothing is escaped automatically, so nothing needs marking
      {"escape", escape},
      {"e", escape},
      {"indent", indent},
      {"tojson", tojson},
  };
  return table;
}

}  // namespace reprise::text::jinja

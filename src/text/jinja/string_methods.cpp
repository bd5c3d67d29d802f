#include "text/jinja/string_methods.h"

#include <algorithm>
#include <map>

#include "text/jinja/access.h"
#include "text/jinja/compare.h"
#include "text/jinja/text_form.h"
#include "text/jinja/unicode.h"

namespace reprise::text::jinja {
namespace {

Value views(Runtime& rt, const std::vector<std::string_view>& parts) {
  std::vector<Value> out;
  out.reserve(parts.size());
  for (const std::string_view part : parts) out.push_back(rt.string(std::string(part)));
  return rt.list(std::move(out));
}

void pay_for(Runtime& rt, const Value& self) { rt.meter.step(1 + self.text().size() / 64); }

Value strip_method(Runtime& rt, const Value& self, const CallArgs& args, bool left, bool right) {
  const Bound bound("strip", args, {"chars"});
  pay_for(rt, self);
  std::string_view s = self.text();
  if (bound.has_value(0)) return rt.string(std::string(strip_set(s, bound.text(0), left, right)));
  if (left) s = strip_left(s);
  if (right) s = strip_right(s);
  return rt.string(std::string(s));
}

std::vector<std::string_view> split_spaces(std::string_view s, int64_t most, bool from_right) {
  std::vector<std::string_view> out;
  s = from_right ? strip_right(s) : strip_left(s);
  while (!s.empty() && (most < 0 || static_cast<int64_t>(out.size()) < most)) {
    // The word at this end, found character by character.
    if (!from_right) {
      size_t end = 0;
      while (end < s.size()) {
        const auto [c, n] = point_or_byte_at(s, end);
        if (is_space(c)) break;
        end += n;
      }
      out.push_back(s.substr(0, end));
      s = strip_left(s.substr(end));
    } else {
      size_t start = s.size();
      while (start > 0 && strip_right(s.substr(0, start)).size() == start) {
        --start;
        while (start > 0 && (static_cast<uint8_t>(s[start]) & 0xC0) == 0x80) --start;
      }
      out.push_back(s.substr(start));
      s = strip_right(s.substr(0, start));
    }
  }
  if (!s.empty()) out.push_back(s);
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string_view> split_text(std::string_view s, std::string_view separator, int64_t most,
                                         bool from_right) {
  std::vector<std::string_view> out;
  while (most < 0 || static_cast<int64_t>(out.size()) < most) {
    const size_t at = from_right ? s.rfind(separator) : s.find(separator);
    if (at == std::string_view::npos) break;
    if (from_right) {
      out.push_back(s.substr(at + separator.size()));
      s = s.substr(0, at);
    } else {
      out.push_back(s.substr(0, at));
      s = s.substr(at + separator.size());
    }
  }
  out.push_back(s);
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

Value split_method(Runtime& rt, const Value& self, const CallArgs& args, bool from_right) {
  const Bound bound("split", args, {"sep", "maxsplit"});
  pay_for(rt, self);
  const int64_t most = bound.integer(1, -1);
  rt.meter.ensure(self.text().size() * sizeof(std::string_view));
  if (!bound.has_value(0)) return views(rt, split_spaces(self.text(), most, from_right));
  const std::string& separator = bound.text(0);
  if (separator.empty()) fail("split() needs a separator that is not empty");
  return views(rt, split_text(self.text(), separator, most, from_right));
}

// The part [start, end) of the receiver, as find() and its kind take it; false when start is past the end.
bool window(const Value& self, const Bound& bound, std::string_view& part, size_t& start) {
  const auto n = static_cast<int64_t>(self.string().points);
  const auto clamp = [&](size_t i, int64_t otherwise) {
    int64_t at = bound.has_value(i) ? bound.integer(i, otherwise) : otherwise;
    if (at < 0) at = std::max<int64_t>(0, at + n);
    return at;
  };
  const int64_t from = clamp(1, 0);
  const int64_t to = std::min(clamp(2, n), n);
  if (from > n || from > to) return false;
  start = static_cast<size_t>(from);
  const std::string& s = self.text();
  const bool ascii = self.string().points == s.size();
  const size_t begin = ascii ? start : byte_offset(s, start);
  const size_t end = ascii ? static_cast<size_t>(to) : byte_offset(s, static_cast<size_t>(to));
  part = std::string_view(s).substr(begin, end - begin);
  return true;
}

Int find_in(Runtime& rt, const Value& self, const CallArgs& args, std::string_view name, bool from_right) {
  const Bound bound(name, args, {"sub", "start", "end"}, 1);
  pay_for(rt, self);
  std::string_view part;
  size_t start;
  const std::string& sub = bound.text(0);
  if (!window(self, bound, part, start)) return -1;
  const size_t at = from_right ? part.rfind(sub) : part.find(sub);
  if (at == std::string_view::npos) return -1;
  return static_cast<Int>(start + count_points(part.substr(0, at)));
}

Value count_method(Runtime& rt, const Value& self, const CallArgs& args) {
  const Bound bound("count", args, {"sub", "start", "end"}, 1);
  pay_for(rt, self);
  const std::string& sub = bound.text(0);
  std::string_view part;
  size_t start;
  if (!window(self, bound, part, start)) return Value::integer(0);
  if (sub.empty()) return Value::integer(static_cast<Int>(count_points(part) + 1));
  Int count = 0;
  for (size_t at = part.find(sub); at != std::string_view::npos; at = part.find(sub, at + sub.size())) ++count;
  return Value::integer(count);
}

Value affix_method(Runtime& rt, const Value& self, const CallArgs& args, bool at_end) {
  const std::string_view name = at_end ? "endswith" : "startswith";
  const Bound bound(name, args, {"affix", "start", "end"}, 1);
  rt.meter.step();
  std::string_view part;
  size_t start;
  const bool inside = window(self, bound, part, start);
  const auto matches = [&](const Value& affix) {
    const std::string& text = require_text(affix, fmt::format("the argument of {}()", name));
    return inside && (at_end ? part.ends_with(text) : part.starts_with(text));
  };
  if (!bound[0].is(Kind::Tuple)) return Value::boolean(matches(bound[0]));
  for (const Value& affix : bound[0].items())
    if (matches(affix)) return Value::boolean(true);
  return Value::boolean(false);
}

Value join_method(Runtime& rt, const Value& self, const CallArgs& args) {
  const Bound bound("join", args, {"iterable"}, 1);
  Builder out(rt);
  bool first = true;
  for (const Value& item : items_of(rt, bound[0])) {
    if (!first) out << self.text();
    first = false;
    out << require_text(item, "an item of join()");
  }
  return out.value();
}

Value split_lines_method(Runtime& rt, const Value& self, const CallArgs& args) {
  const Bound bound("splitlines", args, {"keepends"});
  pay_for(rt, self);
  return views(rt, split_lines(self.text(), bound.truth(0, false)));
}

Value replace_method(Runtime& rt, const Value& self, const CallArgs& args) {
  const Bound bound("replace", args, {"old", "new", "count"}, 2);
  return replace_text(rt, self.text(), bound.text(0), bound.text(1), bound.integer(2, -1));
}

Value remove_affix(Runtime& rt, const Value& self, const CallArgs& args, bool at_end) {
  const Bound bound(at_end ? "removesuffix" : "removeprefix", args, {"affix"}, 1);
  const std::string& affix = bound.text(0);
  const std::string& s = self.text();
  if (affix.empty() || !(at_end ? s.ends_with(affix) : s.starts_with(affix))) return self;
  return rt.string(at_end ? s.substr(0, s.size() - affix.size()) : s.substr(affix.size()));
}

template <bool (*Test)(char32_t)>
bool all_points(std::string_view s) {
  for (size_t i = 0; i < s.size();) {
    const auto [c, n] = point_or_byte_at(s, i);
    i += n;
    if (is_stray_byte(c) || !Test(c)) return false;
  }
  return !s.empty();
}

// isupper() and islower(): some letter with case, and none of the other.
bool has_only_case(std::string_view s, bool upper) {
  bool found = false;
  for (size_t i = 0; i < s.size();) {
    const auto [c, n] = point_or_byte_at(s, i);
    i += n;
    if (is_stray_byte(c)) continue;
    if (upper ? is_lower(c) || is_titlecase(c) : is_upper(c) || is_titlecase(c)) return false;
    found = found || (upper ? is_upper(c) : is_lower(c));
  }
  return found;
}

bool is_upper_text(std::string_view s) { return has_only_case(s, true); }
bool is_lower_text(std::string_view s) { return has_only_case(s, false); }
bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c); }
template <bool (*Test)(std::string_view)>
Value test_method(Runtime& rt, const Value& self, const CallArgs& args) {
  const Bound bound("this test", args, {});
  pay_for(rt, self);
  return Value::boolean(Test(self.text()));
}

template <std::string (*Map)(std::string_view)>
Value map_method(Runtime& rt, const Value& self, const CallArgs& args) {
  const Bound bound("this method", args, {});
  rt.meter.ensure(self.text().size() * 3);
  rt.meter.step(1 + self.text().size() / 16);
  return rt.string(Map(self.text()));
}

const std::map<std::string_view, MethodBody>& methods() {
  static const std::map<std::string_view, MethodBody> table = {
      {"strip", [](Runtime& rt, const Value& s, const CallArgs& a) { return strip_method(rt, s, a, true, true); }},
      {"lstrip", [](Runtime& rt, const Value& s, const CallArgs& a) { return strip_method(rt, s, a, true, false); }},
      {"rstrip", [](Runtime& rt, const Value& s, const CallArgs& a) { return strip_method(rt, s, a, false, true); }},
      {"split", [](Runtime& rt, const Value& s, const CallArgs& a) { return split_method(rt, s, a, false); }},
      {"rsplit", [](Runtime& rt, const Value& s, const CallArgs& a) { return split_method(rt, s, a, true); }},
      {"find",
       [](Runtime& rt, const Value& s, const CallArgs& a) { return Value::integer(find_in(rt, s, a, "find", false)); }},
      {"rfind",
       [](Runtime& rt, const Value& s, const CallArgs& a) { return Value::integer(find_in(rt, s, a, "rfind", true)); }},
      {"startswith", [](Runtime& rt, const Value& s, const CallArgs& a) { return affix_method(rt, s, a, false); }},
      {"endswith", [](Runtime& rt, const Value& s, const CallArgs& a) { return affix_method(rt, s, a, true); }},
      {"removeprefix", [](Runtime& rt, const Value& s, const CallArgs& a) { return remove_affix(rt, s, a, false); }},
      {"removesuffix", [](Runtime& rt, const Value& s, const CallArgs& a) { return remove_affix(rt, s, a, true); }},
      {"count", count_method},
      {"join", join_method},
      {"replace", replace_method},
      {"splitlines", split_lines_method},
      {"upper", map_method<to_upper>},
      {"lower", map_method<to_lower>},
      {"title", map_method<to_title>},
      {"capitalize", map_method<to_capitalized>},
      {"isalpha", test_method<all_points<is_alpha>>},
      {"isdigit", test_method<all_points<is_digit>>},
      {"isalnum", test_method<all_points<is_alnum>>},
      {"isspace", test_method<all_points<is_space>>},
      {"isupper", test_method<is_upper_text>},
      {"islower", test_method<is_lower_text>},
  };
  return table;
}

}  // namespace

MethodBody find_string_method(std::string_view name) {
  const auto it = methods().find(name);
  return it == methods().end() ? nullptr : it->second;
}

std::string_view strip_set(std::string_view s, std::string_view chars, bool left, bool right) {
  const auto set = split_points(chars);
  const auto in_set = [&](std::string_view point) { return std::find(set.begin(), set.end(), point) != set.end(); };
  while (left && !s.empty()) {
    const size_t n = point_bytes(s, 0);
    if (!in_set(s.substr(0, n))) break;
    s.remove_prefix(n);
  }
  while (right && !s.empty()) {
    size_t start = s.size() - 1;
    while (start > 0 && s.size() - start < 4 && (static_cast<uint8_t>(s[start]) & 0xC0) == 0x80) --start;
    if (point_bytes(s, start) != s.size() - start) start = s.size() - 1;
    if (!in_set(s.substr(start))) break;
    s = s.substr(0, start);
  }
  return s;
}

std::vector<std::string_view> split_lines(std::string_view s, bool keep_ends) {
  std::vector<std::string_view> out;
  size_t start = 0;
  for (size_t i = 0; i < s.size();) {
    auto [c, n] = point_or_byte_at(s, i);
    if (is_line_break(c)) {
      if (c == '\r' && i + 1 < s.size() && s[i + 1] == '\n') n = 2;
      out.push_back(s.substr(start, (keep_ends ? i + n : i) - start));
      start = i + n;
    }
    i += n;
  }
  if (start < s.size()) out.push_back(s.substr(start));
  return out;
}

Value replace_text(Runtime& rt, std::string_view s, std::string_view from, std::string_view to, int64_t count) {
  rt.meter.step(1 + s.size() / 64);
  Builder out(rt);
  const auto more = [&] { return count < 0 || count-- > 0; };
  if (from.empty()) {
    // Before every character and at the end.
    size_t i = 0;
    while (more()) {
      rt.meter.step();
      out << to;
      if (i == s.size()) return out.value();
      const size_t n = point_bytes(s, i);
      out << s.substr(i, n);
      i += n;
    }
    out << s.substr(i);
    return out.value();
  }
  size_t i = 0;
  while (more()) {
    const size_t at = s.find(from, i);
    if (at == std::string_view::npos) break;
    out << s.substr(i, at - i) << to;
    i = at + from.size();
  }
  out << s.substr(i);
  return out.value();
}

}  // namespace reprise::text::jinja

#include "settings/values.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/close_names.h"

namespace reprise::settings {
namespace {

std::string words(IntegerRange r) {
  if (r.low == r.high) return fmt::format("{}", r.low);
  if (r.high == INT64_MAX) return fmt::format("{} or more", r.low);
  return fmt::format("{} to {}", r.low, r.high);
}

std::string words(RealRange r) {
  const std::string low = r.low_excluded ? fmt::format("above {}", r.low) : fmt::format("{}", r.low);
  if (std::isinf(r.high)) return r.low_excluded ? low : low + " or more";
  return fmt::format("{}{} {}", low, r.low_excluded ? ", up to" : " to", r.high);
}

Status check_choice(const Setting& s, std::string_view text) {
  const std::vector<std::string_view> known(s.choices.begin(), s.choices.end());
  if (std::find(known.begin(), known.end(), text) != known.end()) return Status::ok();
  return invalid("\"{}\" is not known{}; allowed: {}", text, close_names(text, known), fmt::join(known, ", "));
}

}  // namespace

Result<int64_t> parse_integer(std::string_view text, IntegerRange range) {
  int64_t v = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (text.empty() || end != text.data() + text.size() || problem == std::errc::invalid_argument)
    return invalid("\"{}\" is not a whole number; allowed: {}", text, words(range));
  if (problem != std::errc() || v < range.low || v > range.high)
    return invalid("{} is out of range; allowed: {}", text, words(range));
  return v;
}

Result<std::vector<int64_t>> parse_integers(std::string_view text, IntegerRange range) {
  std::vector<int64_t> out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    ASSIGN_OR_RETURN(int64_t v, parse_integer(text.substr(begin, end - begin), range));
    out.push_back(v);
    begin = end + 1;
  }
  return out;
}

Result<double> parse_real(std::string_view text, RealRange range) {
  double v = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (text.empty() || problem != std::errc() || end != text.data() + text.size())
    return invalid("\"{}\" is not a number; allowed: {}", text, words(range));
  if (!(v >= range.low && v <= range.high) || std::isinf(v) || (range.low_excluded && v == range.low))
    return invalid("{} is out of range; allowed: {}", text, words(range));
  return v;
}

Result<bool> parse_switch(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return invalid("\"{}\" is not known; allowed: true, false", text);
}

Status check(const Setting& s, std::string_view text) {
  switch (s.kind) {
    case Kind::Switch: return parse_switch(text).status();
    case Kind::Choice: return check_choice(s, text);
    case Kind::Integer: return parse_integer(text, s.integers).status();
    case Kind::Integers: return parse_integers(text, s.integers).status();
    case Kind::Real: return parse_real(text, s.reals).status();
    case Kind::Text:
    case Kind::Texts:
    case Kind::Words: break;
  }
  return Status::ok();
}

std::string allowed(const Setting& s) {
  switch (s.kind) {
    case Kind::Choice: return fmt::format("{}", fmt::join(s.choices, ", "));
    case Kind::Integer:
    case Kind::Integers: return words(s.integers);
    case Kind::Real: return words(s.reals);
    case Kind::Switch:
    case Kind::Text:
    case Kind::Texts:
    case Kind::Words: break;
  }
  return {};
}

std::string_view value_word(const Setting& s) {
  if (!s.value.empty() || s.kind == Kind::Switch || s.kind == Kind::Choice) return s.value;
  return s.kind == Kind::Integer ? "N" : s.kind == Kind::Integers ? "N,N,..." : s.kind == Kind::Real ? "X" : "TEXT";
}

std::vector<std::string> flags_of(const Setting& s) {
  std::vector<std::string> out;
  const std::string names = flag_names(s);
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    if (names[begin] == '-') out.push_back(names.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

}  // namespace reprise::settings

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "text/jinja/access.h"
#include "text/jinja/compare.h"
#include "text/jinja/library.h"
#include "text/jinja/text_form.h"
#include "text/jinja/unicode.h"

namespace reprise::text::jinja {
namespace {

// int(x) of a float; false where Python raises OverflowError or ValueError.
bool truncate_to_int(double d, Int& out) {
  if (std::isnan(d) || std::isinf(d)) return false;
  if (std::fabs(d) >= 9223372036854775808.0) fail("an integer does not fit into 64 bits");
  out = static_cast<Int>(d);
  return true;
}

Value to_int(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("int", args, {"default", "base"});
  const Value otherwise = bound.has(0) ? bound[0] : Value::integer(0);
  require_defined(input);
  Int out;
  if (input.is_integral()) return Value::integer(input.int_value());
  if (input.is(Kind::Float)) {
    if (std::isinf(input.float_value()) && !bound.has(0)) return otherwise;
    return truncate_to_int(input.float_value(), out) ? Value::integer(out) : otherwise;
  }
  if (!input.is_string()) return otherwise;
  if (parse_python_int(input.text(), bound.integer(1, 10), out)) return Value::integer(out);
  double d;
  if (parse_python_float(input.text(), d) && truncate_to_int(d, out)) return Value::integer(out);
  return otherwise;
}

Value to_float(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("float", args, {"default"});
  require_defined(input);
  if (input.is_numeric()) return Value::number(input.as_double());
  double d;
  if (input.is_string() && parse_python_float(input.text(), d)) return Value::number(d);
  return bound.has(0) ? bound[0] : Value::number(0.0);
}

Value absolute(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("abs", args, {});
  require_defined(input);
  if (input.is(Kind::Float)) return Value::number(std::fabs(input.float_value()));
  if (!input.is_integral()) fail("abs needs a number, got '{}'", type_name(input));
  return checked_integer(input.int_value() < 0 ? -input.int_value() : input.int_value());
}

Value round_int(Int value, int64_t digits) {
  if (digits >= 0) return Value::integer(value);
  if (digits < -20) return Value::integer(0);
  Int unit = 1;
  for (int64_t i = 0; i < -digits; ++i) unit *= 10;
  // Halves go to the even multiple.
  Int whole = value / unit;
  Int rest = value % unit;
  if (rest < 0) {
    rest += unit;
    --whole;
  }
  if (2 * rest > unit || (2 * rest == unit && whole % 2 != 0)) ++whole;
  return checked_integer(whole * unit);
}

Value round_float(double value, int64_t digits) {
  if (std::isnan(value) || std::isinf(value) || digits > 350) return Value::number(value);
  if (digits < -310) return Value::number(std::copysign(0.0, value));
  if (digits >= 0) {
    // printf rounds the exact binary value, halves to even, as Python does.
    char buffer[1024];
    std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(digits), value);
    return Value::number(std::strtod(buffer, nullptr));
  }
  const double unit = std::pow(10.0, static_cast<double>(-digits));
  return Value::number(std::nearbyint(value / unit) * unit);
}

Value round_filter(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("round", args, {"precision", "method"});
  const std::string method = bound.has(1) ? bound.text(1) : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    fail("round: the method must be common, ceil or floor, got '{}'", method);
  require_defined(input);
  if (!input.is_numeric()) fail("round needs a number, got '{}'", type_name(input));
  if (bound.has(0) && bound[0].is_none() && method == "common") {
    Int whole;
    if (input.is_integral()) return Value::integer(input.int_value());
    if (!truncate_to_int(std::nearbyint(input.float_value()), whole)) fail("round: the number is not finite");
    return Value::integer(whole);
  }
  const int64_t digits = bound.integer(0, 0);
  if (method == "common")
    return input.is_integral() ? round_int(input.int_value(), digits) : round_float(input.float_value(), digits);
  const double unit = std::pow(10.0, static_cast<double>(digits));
  const double scaled = input.as_double() * unit;
  if (std::isnan(scaled) || std::isinf(scaled)) fail("round: the number is not finite");
  return Value::number((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

}  // namespace

bool parse_python_int(std::string_view text, int64_t base, Int& out) {
  if (base != 0 && (base < 2 || base > 36)) return false;
  std::string_view s = strip(text);
  bool negative = false;
  if (!s.empty() && (s[0] == '+' || s[0] == '-')) {
    negative = s[0] == '-';
    s.remove_prefix(1);
  }
  bool prefixed = false;
  if (s.size() > 1 && s[0] == '0') {
    const char p = static_cast<char>(s[1] | 0x20);
    const int64_t named = p == 'x' ? 16 : p == 'o' ? 8 : p == 'b' ? 2 : 0;
    if (named && (base == 0 || base == named)) {
      base = named;
      prefixed = true;
      s.remove_prefix(2);
    } else if (base == 0 && s.find_first_not_of("0_") != std::string_view::npos) {
      return false;  // 010 is no decimal literal
    }
  }
  if (base == 0) base = 10;
  if (prefixed && s.starts_with('_')) s.remove_prefix(1);
  if (s.empty() || s.front() == '_' || s.back() == '_') return false;
  Int value = 0;
  char last = 0;
  for (const char c : s) {
    if (c == '_' && last == '_') return false;
    last = c;
    if (c == '_') continue;
    const int digit = c >= '0' && c <= '9'                     ? c - '0'
                      : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10
                                                               : 99;
    if (digit >= base) return false;
    value = value * base + digit;
    if (value > std::numeric_limits<uint64_t>::max()) fail("an integer does not fit into 64 bits");
  }
  out = checked_integer(negative ? -value : value).int_value();
  return true;
}

bool parse_python_float(std::string_view text, double& out) {
  const std::string_view s = strip(text);
  std::string plain;
  for (size_t i = 0; i < s.size(); ++i) {
    const auto digit = [&](size_t at) { return at < s.size() && s[at] >= '0' && s[at] <= '9'; };
    if (s[i] == '_') {
      if (i == 0 || !digit(i - 1) || !digit(i + 1)) return false;
      continue;
    }
    plain += s[i];
  }
  std::string lower = to_lower(plain);
  const size_t sign = !lower.empty() && (lower[0] == '+' || lower[0] == '-') ? 1 : 0;
  const std::string_view word = std::string_view(lower).substr(sign);
  if (word == "inf" || word == "infinity" || word == "nan") {
    out = word == "nan" ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    if (lower[0] == '-') out = -out;
    return true;
  }
  // strtod also reads hexadecimal, which Python does not.
  if (word.empty() || word.find_first_not_of("0123456789.e+-") != std::string_view::npos) return false;
  char* end = nullptr;
  out = std::strtod(plain.c_str(), &end);
  return end == plain.c_str() + plain.size() && end != plain.c_str();
}

const std::vector<FilterEntry>& number_filters() {
  static const std::vector<FilterEntry> table = {
      {"int", to_int},
      {"float", to_float},
      {"abs", absolute},
      {"round", round_filter},
  };
  return table;
}

}  // namespace reprise::text::jinja

#include "text/jinja/format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/access.h"
#include "text/jinja/compare.h"
#include "text/jinja/text_form.h"
#include "text/jinja/unicode.h"

namespace reprise::text::jinja {
namespace {

constexpr int kMaxPrecision = 500;

struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ =
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  int64_t width = 0;
  char grouping = 0;
  int precision = -1;
  char type = 0;
};

std::string with_groups(const std::string& digits, char separator, size_t every) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i && (digits.size() - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out;
}

std::string digits_of(Int magnitude, int base, bool upper) {
  std::string out;
  do {
    const int d = static_cast<int>(magnitude % base);
    out += static_cast<char>(d < 10 ? '0' + d : (upper ? 'A' : 'a') + d - 10);
    magnitude /= base;
  } while (magnitude > 0);
  std::reverse(out.begin(), out.end());
  return out;
}

std::string float_digits(double magnitude, char type, int precision, bool alternate) {
  if (std::isnan(magnitude) || std::isinf(magnitude)) {
    const bool upper = type == 'F' || type == 'E' || type == 'G';
    return std::isnan(magnitude) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
  }
  const std::string format = std::string(alternate ? "%#.*" : "%.*") + type;
  char buffer[1024];
  const int n = std::snprintf(buffer, sizeof buffer, format.c_str(), precision, magnitude);
  return std::string(buffer, static_cast<size_t>(n));
}

// Lays out sign, prefix and body in `width` characters.
void pad(Builder& out, const Spec& spec, std::string_view sign, std::string_view body, char otherwise_align) {
  const auto size = static_cast<int64_t>(count_points(sign) + count_points(body));
  const auto gap = static_cast<size_t>(std::max<int64_t>(0, spec.width - size));
  const char align = spec.align ? spec.align : otherwise_align;
  const size_t left = align == '>' ? gap : align == '^' ? gap / 2 : 0;
  out.repeat(spec.fill, left);
  out << sign;
  if (align == '=') out.repeat(spec.fill, gap);
  out << body;
  if (align == '<' || align == '^') out.repeat(spec.fill, gap - left);
}

std::string sign_of(bool negative, char mode) {
  if (negative) return "-";
  return mode == '+' ? "+" : mode == ' ' ? " " : "";
}

void format_integer(Builder& out, Spec spec, Int value) {
  const Int magnitude = value < 0 ? -value : value;
  std::string sign = sign_of(value < 0, spec.sign);
  int base = 10;
  std::string prefix;
  switch (spec.type) {
    case 'x':
      base = 16;
      prefix = "0x";
      break;
    case 'X':
      base = 16;
      prefix = "0X";
      break;
    case 'o':
      base = 8;
      prefix = "0o";
      break;
    case 'b':
      base = 2;
      prefix = "0b";
      break;
    default: break;
  }
  std::string digits = digits_of(magnitude, base, spec.type == 'X');
  if (spec.grouping) digits = with_groups(digits, spec.grouping, base == 10 ? 3 : 4);
  if (spec.alternate) sign += prefix;
  pad(out, spec, sign, digits, '>');
}

void format_float(Builder& out, const Spec& spec, double value) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::fabs(value);
  char type = spec.type;
  std::string body;
  if (type == 0 && spec.precision < 0) {
    body = float_repr(magnitude);
  } else if (type == 0) {
    body = float_digits(magnitude, 'g', std::max(1, spec.precision), false);
    if (body.find_first_not_of("0123456789") == std::string::npos) body += ".0";
  } else {
    const bool percent = type == '%';
    if (percent) type = 'f';
    if (type == 'n') type = 'g';
    body = float_digits(percent ? magnitude * 100 : magnitude, type, spec.precision < 0 ? 6 : spec.precision,
                        spec.alternate);
    if (percent) body += '%';
  }
  if (spec.grouping) {
    const size_t whole = std::min(body.find_first_not_of("0123456789"), body.size());
    body = with_groups(body.substr(0, whole), spec.grouping, 3) + body.substr(whole);
  }
  pad(out, spec, sign_of(negative, spec.sign), body, '>');
}

void format_text(Builder& out, const Spec& spec, std::string_view text) {
  if (spec.precision >= 0) text = text.substr(0, byte_offset(text, static_cast<size_t>(spec.precision)));
  pad(out, spec, "", text, '<');
}

int64_t read_number(std::string_view s, size_t& i) {
  int64_t n = 0;
  while (i < s.size() && s[i] >= '0' && s[i] <= '9') {
    n = n * 10 + (s[i++] - '0');
    if (n > INT32_MAX) fail("a width or precision in a format is too large");
  }
  return n;
}

int checked_precision(int64_t n) {
  if (n > kMaxPrecision) fail("a precision of {} in a format is larger than {}", n, kMaxPrecision);
  return static_cast<int>(n);
}

}  // namespace

Value percent_format(Runtime& rt, const Value& format, const Value& args) {
  const std::string_view s = format.text();
  Builder out(rt);
  const bool is_tuple = args.is(Kind::Tuple);
  const bool may_be_left = args.is(Kind::Dict) || args.is(Kind::List) || args.is(Kind::Range) || args.is_undefined();
  size_t used = 0;
  const auto next = [&]() -> const Value& {
    if (is_tuple) {
      if (used >= args.items().size()) fail("not enough arguments for the format string");
      return args.items()[used++];
    }
    if (used++ > 0) fail("not enough arguments for the format string");
    return args;
  };
  for (size_t i = 0; i < s.size();) {
    const size_t percent = std::min(s.find('%', i), s.size());
    out << s.substr(i, percent - i);
    if (percent == s.size()) break;
    i = percent + 1;
    rt.meter.step();
    const Value* named = nullptr;
    if (i < s.size() && s[i] == '(') {
      const size_t close = s.find(')', i);
      if (close == std::string_view::npos) fail("incomplete format key");
      if (!args.is(Kind::Dict)) fail("the format needs a dict");
      named = args.dict().find(s.substr(i + 1, close - i - 1));
      if (!named) fail("the format names the missing key '{}'", s.substr(i + 1, close - i - 1));
      i = close + 1;
    }
    Spec spec;
    spec.align = '>';
    for (; i < s.size() && std::string_view("-+ #0").find(s[i]) != std::string_view::npos; ++i) {
      if (s[i] == '-')
        spec.align = '<';
      else if (s[i] == '+')
        spec.sign = '+';
      else if (s[i] == ' ' && spec.sign != '+')
        spec.sign = ' ';
      else if (s[i] == '#')
        spec.alternate = true;
      else if (s[i] == '0')
        spec.zero = true;
    }
    const auto amount = [&]() -> int64_t {
      if (i < s.size() && s[i] == '*') {
        ++i;
        return require_integer(next(), "'*' in a format");
      }
      return read_number(s, i);
    };
    spec.width = amount();
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -std::max<int64_t>(spec.width, -INT32_MAX);
    }
    if (i < s.size() && s[i] == '.') {
      ++i;
      spec.precision = checked_precision(std::max<int64_t>(0, amount()));
    }
    if (i < s.size() && (s[i] == 'l' || s[i] == 'h' || s[i] == 'L')) ++i;
    if (i == s.size()) fail("incomplete format");
    const char type = s[i++];
    if (type == '%') {
      out << '%';
      continue;
    }
    const Value& value = named ? *named : next();
    switch (type) {
      case 's': format_text(out, spec, to_text(rt, value)); break;
      case 'r':
      case 'a': format_text(out, spec, repr(rt, value)); break;
      case 'c':
        if (value.is_string() && value.string().points == 1) {
          format_text(out, spec, value.text());
        } else {
          const int64_t point = require_integer(value, "the argument of %c");
          if (point < 0 || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) fail("%c is out of range");
          std::string text;
          append_utf8(text, static_cast<char32_t>(point));
          format_text(out, spec, text);
        }
        break;
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o': {
        require_defined(value);
        if (!value.is_numeric() || (value.is(Kind::Float) && type != 'd' && type != 'i' && type != 'u'))
          fail("%{} needs a number, got '{}'", type, type_name(value));
        Int number = value.int_value();
        if (value.is(Kind::Float)) {
          if (!(std::fabs(value.float_value()) < 9.2e18)) fail("an integer does not fit into 64 bits");
          number = static_cast<Int>(value.float_value());
        }
        spec.type = type;
        if (spec.precision >= 0) {
          // A precision is a least number of digits.
          std::string digits = digits_of(number < 0 ? -number : number,
                                         type == 'x' || type == 'X' ? 16
                                         : type == 'o'              ? 8
                                                                    : 10,
                                         type == 'X');
          const auto least = static_cast<size_t>(spec.precision);
          if (digits.size() < least) digits.insert(0, least - digits.size(), '0');
          pad(out, spec, sign_of(number < 0, spec.sign), digits, '>');
          break;
        }
        if (spec.zero && spec.align != '<') {
          spec.fill.assign(1, '0');
          spec.align = '=';
        }
        format_integer(out, spec, number);
        break;
      }
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
        require_defined(value);
        if (!value.is_numeric()) fail("%{} needs a number, got '{}'", type, type_name(value));
        spec.type = type;
        if (spec.zero && spec.align != '<') {
          spec.fill.assign(1, '0');
          spec.align = '=';
        }
        format_float(out, spec, value.as_double());
        break;
      default: fail("unknown format character '{}'", type);
    }
  }
  if (is_tuple ? used < args.items().size() : used == 0 && !may_be_left)
    fail("not all arguments were used by the format");
  return out.value();
}

namespace {

Spec parse_spec(std::string_view s) {
  Spec spec;
  size_t i = 0;
  const auto is_align = [&](size_t at) {
    return at < s.size() && std::string_view("<>^=").find(s[at]) != std::string_view::npos;
  };
  if (!s.empty()) {
    const size_t first = point_bytes(s, 0);
    if (is_align(first)) {
      spec.fill = s.substr(0, first);
      spec.align = s[first];
      i = first + 1;
    } else if (is_align(0)) {
      spec.align = s[0];
      i = 1;
    }
  }
  if (i < s.size() && (s[i] == '+' || s[i] == '-' || s[i] == ' ')) spec.sign = s[i++];
  if (i < s.size() && s[i] == '#') {
    spec.alternate = true;
    ++i;
  }
  if (i < s.size() && s[i] == '0') {
    spec.zero = true;
    if (!spec.align) {
      spec.fill.assign(1, '0');
      spec.align = '=';
    }
    ++i;
  }
  spec.width = read_number(s, i);
  if (i < s.size() && (s[i] == ',' || s[i] == '_')) spec.grouping = s[i++];
  if (i < s.size() && s[i] == '.') {
    const size_t before = ++i;
    spec.precision = checked_precision(read_number(s, i));
    if (i == before) fail("a format lacks its precision");
  }
  if (i < s.size()) spec.type = s[i++];
  if (i != s.size()) fail("'{}' is not a valid format", s);
  return spec;
}

void format_one(Builder& out, Runtime& rt, const Value& value, std::string_view text) {
  if (text.empty()) {
    out << to_text(rt, value);
    return;
  }
  Spec spec = parse_spec(text);
  if (value.is_string()) {
    if ((spec.type != 0 && spec.type != 's') || spec.sign != '-' || spec.grouping || (spec.align == '=' && !spec.zero))
      fail("'{}' is not a valid format for a string", text);
    if (spec.align == '=') spec.align = '<';
    return format_text(out, spec, value.text());
  }
  if (value.is_integral() && std::string_view("dxXobn").find(spec.type ? spec.type : 'd') != std::string_view::npos &&
      !(value.is(Kind::Bool) && spec.type == 0)) {
    if (spec.precision >= 0) fail("an integer format has no precision");
    return format_integer(out, spec, value.int_value());
  }
  if (value.is(Kind::Bool) && spec.type == 0) return format_integer(out, spec, value.int_value());
  if (value.is_integral() && spec.type == 'c') {
    std::string point;
    if (value.int_value() < 0 || value.int_value() > 0x10FFFF) fail("'c' is out of range");
    append_utf8(point, static_cast<char32_t>(value.int_value()));
    return format_text(out, spec, point);
  }
  if (value.is_numeric() && std::string_view("eEfFgGn%").find(spec.type ? spec.type : 'g') != std::string_view::npos)
    return format_float(out, spec, value.as_double());
  fail("'{}' is not a valid format for a '{}'", text, type_name(value));
}

// "{0.name[key]}": the argument and the path into it.
class BraceFormatter {
 public:
  BraceFormatter(Runtime& rt, const CallArgs& args) : rt_(rt), args_(args), out_(rt) {}

  Value format(std::string_view s) {
    run(s, out_, 2);
    return out_.value();
  }

 private:
  void run(std::string_view s, Builder& out, int levels) {
    if (levels == 0) fail("a format nests too deep");
    for (size_t i = 0; i < s.size(); ++i) {
      if (s[i] != '{' && s[i] != '}') {
        out << s[i];
        continue;
      }
      if (i + 1 < s.size() && s[i + 1] == s[i]) {
        out << s[i++];
        continue;
      }
      if (s[i] == '}') fail("a single '}}' in a format");
      size_t depth = 1;
      size_t end = i + 1;
      for (; end < s.size(); ++end) {
        if (s[end] == '{') ++depth;
        if (s[end] == '}' && --depth == 0) break;
      }
      if (depth != 0) fail("a single '{{' in a format");
      field(s.substr(i + 1, end - i - 1), out, levels);
      i = end;
    }
  }

  void field(std::string_view s, Builder& out, int levels) {
    rt_.meter.step();
    size_t colon = 0;
    bool in_key = false;
    for (; colon < s.size(); ++colon) {
      if (s[colon] == '[') in_key = true;
      if (s[colon] == ']') in_key = false;
      if (!in_key && (s[colon] == ':' || s[colon] == '!')) break;
    }
    Value value = lookup(s.substr(0, colon));
    if (colon < s.size() && s[colon] == '!') {
      if (colon + 1 >= s.size() || (colon + 2 < s.size() && s[colon + 2] != ':')) fail("a format lacks its conversion");
      const char conversion = s[colon + 1];
      if (conversion == 'r' || conversion == 'a')
        value = rt_.string(repr(rt_, value));
      else if (conversion == 's')
        value = to_string_value(rt_, value);
      else
        fail("unknown conversion '!{}' in a format", conversion);
      colon += 2;
    }
    if (colon >= s.size()) return format_one(out, rt_, value, "");
    Builder spec(rt_);
    run(s.substr(colon + 1), spec, levels - 1);
    format_one(out, rt_, value, spec.text());
  }

  Value lookup(std::string_view path) {
    size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = argument(path.substr(0, end));
    while (end < path.size()) {
      if (path[end] == '.') {
        const size_t next = std::min(path.find_first_of(".[", end + 1), path.size());
        if (next == end + 1) fail("an empty attribute in a format");
        value = get_attribute(rt_, value, path.substr(end + 1, next - end - 1));
        end = next;
      } else if (path[end] == '[') {
        const size_t close = path.find(']', end);
        if (close == std::string_view::npos || close == end + 1) fail("a missing ']' or an empty key in a format");
        const std::string_view key = path.substr(end + 1, close - end - 1);
        size_t digits = 0;
        const int64_t index = key.size() < 10 ? read_number(key, digits) : 0;
        value = get_item(rt_, value, digits == key.size() ? Value::integer(index) : rt_.string(std::string(key)));
        end = close + 1;
      } else {
        fail("only '.' or '[' may follow ']' in a format");
      }
    }
    return value;
  }

  Value argument(std::string_view name) {
    size_t digits = 0;
    size_t index = 0;
    if (name.empty()) {
      if (automatic_ == 2) fail("a format mixes numbered and unnumbered fields");
      automatic_ = 1;
      index = next_++;
    } else {
      index = static_cast<size_t>(name.size() < 10 ? read_number(name, digits) : 0);
      if (digits != name.size()) {
        for (const auto& [key, value] : args_.named)
          if (key == name) return value;
        fail("the format names the missing key '{}'", name);
      }
      if (automatic_ == 1) fail("a format mixes numbered and unnumbered fields");
      automatic_ = 2;
    }
    if (index >= args_.positional.size())
      fail("the format needs more arguments than the {} given", args_.positional.size());
    return args_.positional[index];
  }

  Runtime& rt_;
  const CallArgs& args_;
  Builder out_;
  size_t next_ = 0;
  int automatic_ = 0;  // 1: fields without numbers, 2: with
};

}  // namespace

Value brace_format(Runtime& rt, const Value& format, const CallArgs& args) {
  return BraceFormatter(rt, args).format(format.text());
}

}  // namespace reprise::text::jinja

#include "text/jinja/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja/access.h"

namespace reprise::text::jinja {
namespace {

// long double holds every 64-bit integer, so mixed comparisons are exact.
bool equal_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.int_value() == b.int_value();
  const auto wide = [](const Value& v) {
    return v.is(Kind::Float) ? static_cast<long double>(v.float_value()) : static_cast<long double>(v.int_value());
  };
  return wide(a) == wide(b);
}
bool less_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.int_value() < b.int_value();
  const auto wide = [](const Value& v) {
    return v.is(Kind::Float) ? static_cast<long double>(v.float_value()) : static_cast<long double>(v.int_value());
  };
  return wide(a) < wide(b);
}

[[noreturn]] void fail_operands(std::string_view op, const Value& a, const Value& b) {
  fail("{} is not possible between '{}' and '{}'", op, type_name(a), type_name(b));
}

Value int_pow(const Value& a, const Value& b) {
  Int base = a.int_value();
  Int exponent = b.int_value();
  Int result = 1;
  if (base == 0 || base == 1) return Value::integer(exponent == 0 ? 1 : base);
  if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
  if (exponent > 64) fail("an integer does not fit into 64 bits");
  for (; exponent > 0; --exponent) result = checked_integer(result * base).int_value();
  return Value::integer(result);
}

Value float_pow(double a, double b) {
  if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
    fail("a negative number to a fractional power is not a real number");
  const double r = std::pow(a, b);
  if (std::isinf(r) && std::isfinite(a) && std::isfinite(b)) fail("the result of ** is too large");
  return Value::number(r);
}

double float_mod(double a, double b) {
  double r = std::fmod(a, b);
  if (r != 0) {
    if ((b < 0) != (r < 0)) r += b;
  } else {
    r = std::copysign(0.0, b);
  }
  return r;
}

double float_floor_div(double a, double b) {
  double mod = std::fmod(a, b);
  double div = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) div -= 1.0;
  if (div == 0) return std::copysign(0.0, a / b);
  double whole = std::floor(div);
  if (div - whole > 0.5) whole += 1.0;
  return whole;
}

Int floor_div(Int a, Int b) {
  const Int q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

// Conversions of int to float are exact enough for Python's rules below 2^53; above, both round to nearest.
Value numeric(std::string_view op, const Value& a, const Value& b) {
  if (op == "/") {
    if (b.as_double() == 0) fail("division by zero");
    if (a.is_integral() && b.is_integral())
      return Value::number(
          static_cast<double>(static_cast<long double>(a.int_value()) / static_cast<long double>(b.int_value())));
    return Value::number(a.as_double() / b.as_double());
  }
  if (a.is_integral() && b.is_integral()) {
    const Int x = a.int_value();
    const Int y = b.int_value();
    if (op == "+") return checked_integer(x + y);
    if (op == "-") return checked_integer(x - y);
    if (op == "*") {
      Int product;
      if (__builtin_mul_overflow(x, y, &product)) fail("an integer does not fit into 64 bits");
      return checked_integer(product);
    }
    if (op == "**") return y < 0 ? float_pow(static_cast<double>(x), static_cast<double>(y)) : int_pow(a, b);
    if (y == 0) fail("division by zero");
    if (op == "//") return checked_integer(floor_div(x, y));
    return checked_integer(x - floor_div(x, y) * y);
  }
  const double x = a.as_double();
  const double y = b.as_double();
  if (op == "+") return Value::number(x + y);
  if (op == "-") return Value::number(x - y);
  if (op == "*") return Value::number(x * y);
  if (op == "**") return float_pow(x, y);
  if (y == 0) fail("division by zero");
  if (op == "//") return Value::number(float_floor_div(x, y));
  return Value::number(float_mod(x, y));
}

Value repeat(Runtime& rt, const Value& sequence, Int times) {
  const size_t count = times <= 0 ? 0 : static_cast<size_t>(std::min<Int>(times, std::numeric_limits<uint32_t>::max()));
  if (sequence.is_string()) {
    Builder out(rt);
    out.repeat(sequence.text(), count);
    return out.value();
  }
  const auto& items = sequence.items();
  rt.meter.ensure(items.size() * count * sizeof(Value));
  std::vector<Value> out;
  out.reserve(items.size() * count);
  for (size_t i = 0; i < count; ++i) {
    if (items.empty()) break;
    out.insert(out.end(), items.begin(), items.end());
  }
  return sequence.is(Kind::List) ? rt.list(std::move(out)) : rt.tuple(std::move(out));
}

}  // namespace

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
    case Kind::None: return false;
    case Kind::Bool:
    case Kind::Int: return value.int_value() != 0;
    case Kind::Float: return value.float_value() != 0;
    case Kind::String: return !value.text().empty();
    case Kind::List:
    case Kind::Tuple: return !value.items().empty();
    case Kind::Dict: return !value.dict().entries.empty();
    case Kind::View: return truth(value.as<ViewObject>().dict);
    case Kind::Range: return value.as<RangeObject>().count != 0;
    case Kind::Iterator:
    case Kind::Namespace:
    case Kind::Loop:
    case Kind::Function: return true;
  }
  return true;
}

bool equal(Runtime& rt, const Value& a, const Value& b) {
  rt.meter.step();
  if (a.is_numeric() && b.is_numeric()) return equal_numbers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::Undefined:
    case Kind::None: return true;
    case Kind::Bool:
    case Kind::Int:
    case Kind::Float: return equal_numbers(a, b);
    case Kind::String: rt.meter.step(a.text().size() / 256); return a.text() == b.text();
    case Kind::List:
    case Kind::Tuple: {
      const auto& x = a.items();
      const auto& y = b.items();
      if (x.size() != y.size()) return false;
      DepthGuard guard(rt.meter);
      for (size_t i = 0; i < x.size(); ++i)
        if (!equal(rt, x[i], y[i])) return false;
      return true;
    }
    case Kind::Dict: {
      const DictObject& x = a.dict();
      const DictObject& y = b.dict();
      if (x.entries.size() != y.entries.size()) return false;
      DepthGuard guard(rt.meter);
      for (const auto& [key, value] : x.entries) {
        const Value* other = y.find(rt, key);
        if (!other || !equal(rt, value, *other)) return false;
      }
      return true;
    }
    case Kind::Range: {
      const auto& x = a.as<RangeObject>();
      const auto& y = b.as<RangeObject>();
      return x.count == y.count && (x.count == 0 || (x.start == y.start && (x.count == 1 || x.step == y.step)));
    }
    case Kind::View:
    case Kind::Iterator:
    case Kind::Namespace:
    case Kind::Loop:
    case Kind::Function: return a.object() == b.object();
  }
  return false;
}

bool less(Runtime& rt, const Value& a, const Value& b, const char* symbol) {
  rt.meter.step();
  require_defined(a);
  require_defined(b);
  if (a.is_numeric() && b.is_numeric()) return less_numbers(a, b);
  if (a.is_string() && b.is_string()) {
    rt.meter.step(std::min(a.text().size(), b.text().size()) / 256);
    return a.text() < b.text();  // UTF-8 sorts as its code points do
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    DepthGuard guard(rt.meter);
    const auto& x = a.items();
    const auto& y = b.items();
    for (size_t i = 0; i < x.size() && i < y.size(); ++i)
      if (!equal(rt, x[i], y[i])) return less(rt, x[i], y[i], symbol);
    return x.size() < y.size();
  }
  fail_operands(symbol, a, b);
}

bool compare(Runtime& rt, std::string_view op, const Value& a, const Value& b) {
  if (op == "==") return equal(rt, a, b);
  if (op == "!=") return !equal(rt, a, b);
  if (op == "<") return less(rt, a, b, "<");
  if (op == ">") return less(rt, b, a, ">");
  // Not simply the negation: NaN is on no side.
  if (op == "<=") return less(rt, a, b, "<=") || equal(rt, a, b);
  return less(rt, b, a, ">=") || equal(rt, a, b);
}

bool contains(Runtime& rt, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::String:
      require_defined(item);
      if (!item.is_string()) fail("'in <string>' needs a string on its left, got '{}'", type_name(item));
      rt.meter.step(1 + container.text().size() / 64);
      return container.text().find(item.text()) != std::string::npos;
    case Kind::Dict: rt.meter.step(); return container.dict().find(rt, item) != nullptr;
    case Kind::View: {
      const auto& view = container.as<ViewObject>();
      if (view.view == ViewKind::Keys) return view.dict.dict().find(rt, item) != nullptr;
      break;
    }
    case Kind::List:
    case Kind::Tuple:
      for (const Value& other : container.items())
        if (equal(rt, other, item)) return true;
      return false;
    case Kind::Iterator: {
      // Walking stops at the match, and what was walked is gone.
      auto& iterator = container.as<IteratorObject>();
      while (iterator.next < iterator.items.size())
        if (equal(rt, iterator.items[iterator.next++], item)) return true;
      return false;
    }
    default: break;
  }
  for (const Value& other : items_of(rt, container))
    if (equal(rt, other, item)) return true;
  return false;
}

Value checked_integer(Int value) {
  if (value > std::numeric_limits<int64_t>::max() || value < std::numeric_limits<int64_t>::min())
    fail("an integer does not fit into 64 bits");
  return Value::integer(value);
}

Value arithmetic(Runtime& rt, std::string_view op, const Value& a, const Value& b) {
  require_defined(a);
  if (op == "%" && a.is_string()) fail("formatting text by % is not supported; write {{ a ~ b }}");
  require_defined(b);
  if (a.is_numeric() && b.is_numeric()) return numeric(op, a, b);
  if (op == "+") {
    if (a.is_string() && b.is_string()) {
      rt.meter.ensure(a.text().size() + b.text().size());
      return rt.string(a.text() + b.text());
    }
    if (a.is_sequence() && a.kind() == b.kind()) {
      rt.meter.ensure((a.items().size() + b.items().size()) * sizeof(Value));
      std::vector<Value> out = a.items();
      out.insert(out.end(), b.items().begin(), b.items().end());
      return a.is(Kind::List) ? rt.list(std::move(out)) : rt.tuple(std::move(out));
    }
  }
  if (op == "*") {
    if ((a.is_string() || a.is_sequence()) && b.is_integral()) return repeat(rt, a, b.int_value());
    if ((b.is_string() || b.is_sequence()) && a.is_integral()) return repeat(rt, b, a.int_value());
  }
  fail_operands(op, a, b);
}

Value negate(const Value& value) {
  require_defined(value);
  if (value.is_integral()) return checked_integer(-value.int_value());
  if (value.is(Kind::Float)) return Value::number(-value.float_value());
  fail("unary - needs a number, got '{}'", type_name(value));
}

Value plus(const Value& value) {
  require_defined(value);
  if (value.is_integral()) return Value::integer(value.int_value());
  if (value.is(Kind::Float)) return value;
  fail("unary + needs a number, got '{}'", type_name(value));
}

// A merge sort of our own: the order may fail in the middle, and NaN may make it inconsistent; both are harmless here.
std::vector<size_t> sorted_order(Runtime& rt, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::vector<size_t> merged(order.size());
  const auto before = [&](size_t a, size_t b) {
    return reverse ? less(rt, keys[b], keys[a]) : less(rt, keys[a], keys[b]);
  };
  for (size_t width = 1; width < order.size(); width *= 2) {
    for (size_t start = 0; start < order.size(); start += 2 * width) {
      const size_t middle = std::min(start + width, order.size());
      const size_t end = std::min(start + 2 * width, order.size());
      size_t left = start;
      size_t right = middle;
      for (size_t i = start; i < end; ++i) {
        const bool take_right = left == middle || (right < end && before(order[right], order[left]));
        merged[i] = take_right ? order[right++] : order[left++];
      }
    }
    std::swap(order, merged);
  }
  return order;
}

}  // namespace reprise::text::jinja

#include "text/jinja/text_form.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "text/jinja/access.h"
#include "text/jinja/compare.h"
#include "text/jinja/unicode.h"

namespace reprise::text::jinja {
namespace {

void append_repr(Builder& out, Runtime& rt, const Value& value);

void append_string_repr(Builder& out, std::string_view s) {
  const bool single = s.find('\'') != std::string_view::npos;
  const char quote = single && s.find('"') == std::string_view::npos ? '"' : '\'';
  out << quote;
  for (size_t i = 0; i < s.size();) {
    const auto [c, n] = point_or_byte_at(s, i);
    if (c == static_cast<char32_t>(quote) || c == '\\')
      out << '\\' << s[i];
    else if (c == '\n')
      out << "\\n";
    else if (c == '\r')
      out << "\\r";
    else if (c == '\t')
      out << "\\t";
    else if (is_stray_byte(c))
      out << s[i];
    else if (is_printable(c))
      out << s.substr(i, n);
    else if (c < 0x100)
      out << fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    else if (c < 0x10000)
      out << fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    else
      out << fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    i += n;
  }
  out << quote;
}

void append_items(Builder& out, Runtime& rt, const std::vector<Value>& items, std::string_view open,
                  std::string_view close) {
  out << open;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i) out << ", ";
    append_repr(out, rt, items[i]);
  }
  out << close;
}

void append_entries(Builder& out, Runtime& rt, const Entries& entries) {
  out << '{';
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i) out << ", ";
    append_repr(out, rt, entries[i].first);
    out << ": ";
    append_repr(out, rt, entries[i].second);
  }
  out << '}';
}

void append_repr(Builder& out, Runtime& rt, const Value& value) {
  rt.meter.step();
  DepthGuard guard(rt.meter);
  switch (value.kind()) {
    case Kind::Undefined: out << "Undefined"; return;
    case Kind::None: out << "None"; return;
    case Kind::Bool: out << (value.int_value() ? "True" : "False"); return;
    case Kind::Int: out << fmt::format("{}", value.int_value()); return;
    case Kind::Float: out << float_repr(value.float_value()); return;
    case Kind::String: append_string_repr(out, value.text()); return;
    case Kind::List: append_items(out, rt, value.items(), "[", "]"); return;
    case Kind::Tuple: append_items(out, rt, value.items(), "(", value.items().size() == 1 ? ",)" : ")"); return;
    case Kind::Dict: append_entries(out, rt, value.dict().entries); return;
    case Kind::View: {
      constexpr std::string_view kNames[] = {"dict_keys(", "dict_values(", "dict_items("};
      out << kNames[static_cast<size_t>(value.as<ViewObject>().view)];
      append_items(out, rt, items_of(rt, value), "[", "]");
      out << ')';
      return;
    }
    case Kind::Range: {
      const auto& range = value.as<RangeObject>();
      out << fmt::format("range({}, {}", range.start, range.stop);
      if (range.step != 1) out << fmt::format(", {}", range.step);
      out << ')';
      return;
    }
    case Kind::Iterator: out << "<generator object>"; return;
    case Kind::Namespace: {
      Entries entries;
      for (const auto& [name, field] : value.as<NamespaceObject>().fields) entries.emplace_back(rt.string(name), field);
      out << "<Namespace ";
      append_entries(out, rt, entries);
      out << '>';
      return;
    }
    case Kind::Loop: {
      const auto& loop = value.as<LoopObject>();
      out << fmt::format("<LoopContext {}/{}>", loop.index0 + 1, loop.items.size());
      return;
    }
    case Kind::Function: out << fmt::format("<function {}>", value.as<FunctionObject>().name()); return;
  }
}

void append_json_string(Builder& out, std::string_view s, bool ascii) {
  out << '"';
  for (size_t i = 0; i < s.size();) {
    const auto [c, n] = point_or_byte_at(s, i);
    if (c == '"')
      out << "\\\"";
    else if (c == '\\')
      out << "\\\\";
    else if (c == '\n')
      out << "\\n";
    else if (c == '\r')
      out << "\\r";
    else if (c == '\t')
      out << "\\t";
    else if (c == '\f')
      out << "\\f";
    else if (c == '\b')
      out << "\\b";
    else if (c < 0x20 || (ascii && c >= 0x7F && c < 0x10000))
      out << fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    else if (ascii && c >= 0x10000 && !is_stray_byte(c))
      out << fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + static_cast<uint32_t>((c - 0x10000) >> 10),
                         0xDC00 + static_cast<uint32_t>((c - 0x10000) & 0x3FF));
    else
      out << s.substr(i, n);
    i += n;
  }
  out << '"';
}

std::string json_number(double d) {
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
  return float_repr(d);
}

class JsonWriter {
 public:
  JsonWriter(Runtime& rt, const JsonStyle& style) : rt_(rt), style_(style), out_(rt) {}
  std::string take() { return out_.take(); }

  void write(const Value& value, size_t level) {
    rt_.meter.step();
    DepthGuard guard(rt_.meter);
    switch (value.kind()) {
      case Kind::None: out_ << "null"; return;
      case Kind::Bool: out_ << (value.int_value() ? "true" : "false"); return;
      case Kind::Int: out_ << fmt::format("{}", value.int_value()); return;
      case Kind::Float: out_ << json_number(value.float_value()); return;
      case Kind::String: append_json_string(out_, value.text(), style_.ascii); return;
      case Kind::List:
      case Kind::Tuple: return write_list(value.items(), level);
      case Kind::Dict: return write_dict(value.dict().entries, level);
      case Kind::Undefined: require_defined(value); return;
      default: fail("tojson: a '{}' has no JSON form", type_name(value));
    }
  }

 private:
  void new_line(size_t level) {
    if (!style_.pretty) return;
    out_ << '\n';
    out_.repeat(style_.indent, level);
  }

  void write_list(const std::vector<Value>& items, size_t level) {
    if (items.empty()) {
      out_ << "[]";
      return;
    }
    out_ << '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i) out_ << style_.item_separator;
      new_line(level + 1);
      write(items[i], level + 1);
    }
    new_line(level);
    out_ << ']';
  }

  void write_key(const Value& key) {
    switch (key.kind()) {
      case Kind::String: append_json_string(out_, key.text(), style_.ascii); return;
      case Kind::Bool: out_ << (key.int_value() ? "\"true\"" : "\"false\""); return;
      case Kind::None: out_ << "\"null\""; return;
      case Kind::Int: out_ << fmt::format("\"{}\"", key.int_value()); return;
      case Kind::Float: out_ << '"' << json_number(key.float_value()) << '"'; return;
      default: fail("tojson: a '{}' cannot be a key", type_name(key));
    }
  }

  void write_dict(const Entries& entries, size_t level) {
    if (entries.empty()) {
      out_ << "{}";
      return;
    }
    std::vector<size_t> order(entries.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (style_.sort_keys) {
      std::vector<Value> keys;
      for (const auto& [key, value] : entries) keys.push_back(key);
      order = sorted_order(rt_, keys, false);
    }
    out_ << '{';
    for (size_t i = 0; i < order.size(); ++i) {
      if (i) out_ << style_.item_separator;
      new_line(level + 1);
      write_key(entries[order[i]].first);
      out_ << style_.key_separator;
      write(entries[order[i]].second, level + 1);
    }
    new_line(level);
    out_ << '}';
  }

  Runtime& rt_;
  const JsonStyle& style_;
  Builder out_;
};

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // The shortest digits that read back the same, then Python's layout.
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, std::fabs(value), std::chars_format::scientific).ptr;
  const std::string_view all(buffer, static_cast<size_t>(end - buffer));
  const size_t e = all.find('e');
  const int exponent = std::atoi(std::string(all.substr(e + 1)).c_str());
  std::string digits(1, all[0]);
  if (e > 2) digits += all.substr(2, e - 2);
  const int n = static_cast<int>(digits.size());
  const std::string_view sign = std::signbit(value) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    const std::string_view point = n > 1 ? "." : "";
    return fmt::format("{}{}{}{}e{:+03}", sign, digits[0], point, std::string_view(digits).substr(1), exponent);
  }
  if (exponent < 0) return fmt::format("{}0.{:0>{}}{}", sign, "", -exponent - 1, digits);
  if (n <= exponent + 1) return fmt::format("{}{:0<{}}.0", sign, digits, exponent + 1);
  const auto whole = static_cast<size_t>(exponent + 1);
  return fmt::format("{}{}.{}", sign, std::string_view(digits).substr(0, whole),
                     std::string_view(digits).substr(whole));
}

std::string repr(Runtime& rt, const Value& value) {
  Builder out(rt);
  append_repr(out, rt, value);
  return out.take();
}

std::string to_text(Runtime& rt, const Value& value) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return {};
  return repr(rt, value);
}

Value to_string_value(Runtime& rt, const Value& value) {
  return value.is_string() ? value : rt.string(to_text(rt, value));
}

std::string to_json(Runtime& rt, const Value& value, const JsonStyle& style) {
  JsonWriter writer(rt, style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace reprise::text::jinja

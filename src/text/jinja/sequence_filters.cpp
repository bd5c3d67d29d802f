#include <algorithm>
#include <unordered_set>

#include "text/jinja/access.h"
#include "text/jinja/compare.h"
#include "text/jinja/library.h"
#include "text/jinja/text_form.h"
#include "text/jinja/unicode.h"

namespace reprise::text::jinja {
namespace {

Value ignore_case(Runtime& rt, const Value& value, bool ignore) {
  return ignore && value.is_string() ? rt.string(to_lower(value.text())) : value;
}

// The path of an `attribute=` argument: "a.b.0" walks keys and indices.
class Path {
 public:
  Path(Runtime& rt, const Value* attribute, const Value* fallback = nullptr) : fallback_(fallback) {
    if (!attribute || attribute->is_none()) return;
    require_defined(*attribute);
    if (!attribute->is_string()) {
      parts_.push_back(*attribute);
      return;
    }
    std::string_view rest = attribute->text();
    while (true) {
      const size_t dot = std::min(rest.find('.'), rest.size());
      const std::string_view part = rest.substr(0, dot);
      const bool digits = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
      Int index;
      if (digits && parse_python_int(part, 10, index))
        parts_.push_back(Value::integer(index));
      else
        parts_.push_back(rt.string(std::string(part)));
      if (dot == rest.size()) break;
      rest = rest.substr(dot + 1);
    }
  }

  Value get(Runtime& rt, Value item) const {
    rt.meter.step();
    for (const Value& part : parts_) {
      item = get_item(rt, item, part);
      if (fallback_ && !fallback_->is_none() && item.is_undefined()) item = *fallback_;
    }
    return item;
  }

 private:
  std::vector<Value> parts_;
  const Value* fallback_;
};

const Value* optional(const Bound& bound, size_t i) { return bound.has(i) ? &bound[i] : nullptr; }

Value length(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("length", args, {});
  return Value::integer(static_cast<Int>(length_of(rt, input)));
}

Value default_filter(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("default", args, {"default_value", "boolean"});
  if (input.is_undefined() || (bound.truth(1, false) && !truth(input))) return bound.has(0) ? bound[0] : rt.string("");
  return input;
}

Value join(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("join", args, {"d", "attribute"});
  const Path path(rt, optional(bound, 1));
  const std::string between = bound.has(0) ? to_text(rt, bound[0]) : "";
  Builder out(rt);
  bool first = true;
  for (const Value& item : items_of(rt, input)) {
    if (!first) out << between;
    first = false;
    const Value value = path.get(rt, item);
    if (value.is_string())
      out << value.text();
    else
      out << to_text(rt, value);
  }
  return out.value();
}

Value first(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("first", args, {});
  if (input.is(Kind::Iterator)) {
    auto& iterator = input.as<IteratorObject>();
    if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
    return rt.undefined("No first item, sequence was empty.");
  }
  if (input.is_string()) {
    const Value found = get_item(rt, input, Value::integer(0));
    return found.is_undefined() ? rt.undefined("No first item, sequence was empty.") : found;
  }
  const auto items = items_of(rt, input);
  return items.empty() ? rt.undefined("No first item, sequence was empty.") : items.front();
}

Value last(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("last", args, {});
  if (input.is(Kind::Iterator)) fail("last needs a sequence, got '{}'", type_name(input));
  const auto items = items_of(rt, input);
  return items.empty() ? rt.undefined("No last item, sequence was empty.") : items.back();
}

Value list(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("list", args, {});
  return rt.list(items_of(rt, input));
}

Value items(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("items", args, {});
  if (input.is_undefined()) return rt.iterator({});
  if (!input.is(Kind::Dict)) fail("items needs a dict, got '{}'", type_name(input));
  return rt.iterator(items_of(rt, rt.view(input, ViewKind::Items)));
}

Value dictsort(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("dictsort", args, {"case_sensitive", "by", "reverse"});
  require_defined(input);
  if (!input.is(Kind::Dict)) fail("dictsort needs a dict, got '{}'", type_name(input));
  const std::string by = bound.has(1) ? bound.text(1) : "key";
  if (by != "key" && by != "value") fail("dictsort sorts by 'key' or 'value', not '{}'", by);
  const bool ignore = !bound.truth(0, false);
  std::vector<Value> keys;
  for (const auto& [key, value] : input.dict().entries)
    keys.push_back(ignore_case(rt, by == "key" ? key : value, ignore));
  std::vector<Value> out;
  for (const size_t i : sorted_order(rt, keys, bound.truth(2, false))) {
    const auto& [key, value] = input.dict().entries[i];
    out.push_back(rt.tuple({key, value}));
  }
  return rt.list(std::move(out));
}

Value sort(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("sort", args, {"reverse", "case_sensitive", "attribute"});
  const bool ignore = !bound.truth(1, false);
  std::vector<Path> paths;
  if (bound.has_value(2) && bound[2].is_string()) {
    // "a,b" sorts by a, then by b.
    std::string_view rest = bound[2].text();
    while (true) {
      const size_t comma = std::min(rest.find(','), rest.size());
      const Value part = rt.string(std::string(rest.substr(0, comma)));
      paths.emplace_back(rt, &part);
      if (comma == rest.size()) break;
      rest = rest.substr(comma + 1);
    }
  } else {
    paths.emplace_back(rt, optional(bound, 2));
  }
  const auto items = items_of(rt, input);
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const Path& path : paths) key.push_back(ignore_case(rt, path.get(rt, item), ignore));
    keys.push_back(rt.list(std::move(key)));
  }
  std::vector<Value> out;
  for (const size_t i : sorted_order(rt, keys, bound.truth(0, false))) out.push_back(items[i]);
  return rt.list(std::move(out));
}

Value unique(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("unique", args, {"case_sensitive", "attribute"});
  const Path path(rt, optional(bound, 1));
  std::unordered_set<std::string> seen;
  std::vector<Value> out;
  for (const Value& item : items_of(rt, input)) {
    std::string key = hash_key(rt, ignore_case(rt, path.get(rt, item), !bound.truth(0, false)));
    rt.meter.ensure(key.size());
    if (seen.insert(std::move(key)).second) out.push_back(item);
  }
  return rt.iterator(std::move(out));
}

Value extreme(Runtime& rt, const Value& input, const CallArgs& args, bool largest) {
  const Bound bound(largest ? "max" : "min", args, {"case_sensitive", "attribute"});
  const Path path(rt, optional(bound, 1));
  const auto items = items_of(rt, input);
  if (items.empty()) return rt.undefined("No aggregated item, sequence was empty.");
  const auto key_of = [&](const Value& item) { return ignore_case(rt, path.get(rt, item), !bound.truth(0, false)); };
  size_t best = 0;
  Value best_key = key_of(items[0]);
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = key_of(items[i]);
    if (largest ? less(rt, best_key, key, ">") : less(rt, key, best_key)) {
      best = i;
      best_key = std::move(key);
    }
  }
  return items[best];
}
Value min(Runtime& rt, const Value& input, const CallArgs& args) { return extreme(rt, input, args, false); }
Value max(Runtime& rt, const Value& input, const CallArgs& args) { return extreme(rt, input, args, true); }

Value sum(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("sum", args, {"attribute", "start"});
  const Path path(rt, optional(bound, 0));
  Value total = bound.has(1) ? bound[1] : Value::integer(0);
  if (total.is_string()) fail("sum cannot add strings; use join");
  for (const Value& item : items_of(rt, input)) total = arithmetic(rt, "+", total, path.get(rt, item));
  return total;
}

Value reverse(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("reverse", args, {});
  if (input.is_string()) return get_slice(rt, input, Value::none(), Value::none(), Value::integer(-1));
  const bool one_shot = !input.is(Kind::Iterator);
  auto items = items_of(rt, input);
  std::reverse(items.begin(), items.end());
  return one_shot ? rt.iterator(std::move(items)) : rt.list(std::move(items));
}

Value map(Runtime& rt, const Value& input, const CallArgs& args) {
  std::vector<Value> out;
  if (!truth(input)) return rt.iterator({});
  if (args.positional.empty() && !args.named.empty()) {
    const Bound bound("map", args, {"attribute", "default"}, 1);
    const Path path(rt, &bound[0], optional(bound, 1));
    for (const Value& item : items_of(rt, input)) out.push_back(path.get(rt, item));
    return rt.iterator(std::move(out));
  }
  if (args.positional.empty()) fail("map needs a filter or attribute=");
  const std::string& name = require_text(args.positional[0], "the filter of map");
  const CallArgs rest{{args.positional.begin() + 1, args.positional.end()}, args.named};
  for (const Value& item : items_of(rt, input)) out.push_back(apply_filter(rt, name, item, rest));
  return rt.iterator(std::move(out));
}

Value select_where(Runtime& rt, const Value& input, const CallArgs& args, bool by_attribute, bool wanted) {
  if (!truth(input)) return rt.iterator({});
  const size_t skip = by_attribute ? 1 : 0;
  if (args.positional.size() < skip) fail("selectattr and rejectattr need the name of an attribute");
  const Path path(rt, by_attribute ? &args.positional[0] : nullptr);
  CallArgs rest;
  std::string test;
  if (args.positional.size() > skip) {
    test = require_text(args.positional[skip], "the test of select");
    rest.positional.assign(args.positional.begin() + static_cast<ptrdiff_t>(skip) + 1, args.positional.end());
    rest.named = args.named;
  }
  std::vector<Value> out;
  for (const Value& item : items_of(rt, input)) {
    const Value value = path.get(rt, item);
    if ((test.empty() ? truth(value) : apply_test(rt, test, value, rest)) == wanted) out.push_back(item);
  }
  return rt.iterator(std::move(out));
}
Value select(Runtime& rt, const Value& v, const CallArgs& a) { return select_where(rt, v, a, false, true); }
Value reject(Runtime& rt, const Value& v, const CallArgs& a) { return select_where(rt, v, a, false, false); }
Value selectattr(Runtime& rt, const Value& v, const CallArgs& a) { return select_where(rt, v, a, true, true); }
Value rejectattr(Runtime& rt, const Value& v, const CallArgs& a) { return select_where(rt, v, a, true, false); }

Value attr(Runtime& rt, const Value& input, const CallArgs& args) {
  const Bound bound("attr", args, {"name"}, 1);
  // Fields and methods only, never an entry of a dict.
  const Value found = get_attribute(rt, input, bound.text(0));
  if (input.is(Kind::Dict) && !found.is(Kind::Function))
    return rt.undefined(fmt::format("'dict object' has no attribute '{}'", bound.text(0)));
  return found;
}

}  // namespace

const std::vector<FilterEntry>& sequence_filters() {
  static const std::vector<FilterEntry> table = {
      {"length", length},
      {"count", length},
      {"default", default_filter},
      {"d", default_filter},
      {"join", join},
      {"first", first},
      {"last", last},
      {"list", list},
      {"items", items},
      {"dictsort", dictsort},
      {"sort", sort},
      {"unique", unique},
      {"min", min},
      {"max", max},
      {"sum", sum},
      {"reverse", reverse},
      {"map", map},
      {"select", select},
      {"reject", reject},
      {"selectattr", selectattr},
      {"rejectattr", rejectattr},
      {"attr", attr},
  };
  return table;
}

}  // namespace reprise::text::jinja

#include "text/jinja/access.h"

#include <algorithm>
#include <limits>

#include "text/jinja/compare.h"
#include "text/jinja/library.h"
#include "text/jinja/unicode.h"

namespace reprise::text::jinja {
namespace {

struct BoundMethod : FunctionObject {
  BoundMethod(Value self, MethodBody body, std::string name, Charge charge)
      : FunctionObject(std::move(charge)), self(std::move(self)), body(body), method(std::move(name)) {
    depth = 1 + depth_of(this->self);
    if (depth > kMaxValueDepth) fail("a value nests deeper than {} levels", kMaxValueDepth);
  }
  Value call(Runtime& rt, const CallArgs& args) override { return body(rt, self, args); }
  std::string name() const override { return method; }

  const Value self;
  const MethodBody body;
  const std::string method;
};

// A field of a loop or a macro; false when it has no such field.
bool get_field(Runtime& rt, const Value& object, std::string_view name, Value& out) {
  if (object.is(Kind::Loop)) {
    const auto& loop = object.as<LoopObject>();
    const auto integer = [&](int64_t i) {
      out = Value::integer(i);
      return true;
    };
    const auto i = static_cast<int64_t>(loop.index0);
    const auto n = static_cast<int64_t>(loop.items.size());
    if (name == "index0") return integer(i);
    if (name == "index") return integer(i + 1);
    if (name == "revindex0") return integer(n - i - 1);
    if (name == "revindex") return integer(n - i);
    if (name == "length") return integer(n);
    if (name == "depth0") return integer(loop.depth0);
    if (name == "depth") return integer(loop.depth0 + 1);
    if (name == "first" || name == "last") {
      out = Value::boolean(name == "first" ? i == 0 : i + 1 >= n);
      return true;
    }
    if (name == "previtem" || name == "nextitem") {
      const bool next = name == "nextitem";
      const bool exists = next ? i + 1 < n : i > 0 && i <= n;
      out = exists ? loop.items[static_cast<size_t>(next ? i + 1 : i - 1)]
                   : rt.undefined(next ? "there is no next item" : "there is no previous item");
      return true;
    }
    return false;
  }
  if (object.is(Kind::Namespace)) {
    if (const Value* field = object.as<NamespaceObject>().find(name)) {
      out = *field;
      return true;
    }
    return false;
  }
  if (object.is(Kind::Function)) {
    bool found = false;
    out = cycler_member(rt, object, name, found);
    if (found) return true;
    if (name != "name") return false;
    out = rt.string(object.as<FunctionObject>().name());
    return true;
  }
  return false;
}

// What Python's getattr would find; `hidden` is set when the sandbox forbids it.
bool find_attribute(Runtime& rt, const Value& object, std::string_view name, Value& out, bool& hidden) {
  hidden = false;
  if (name.starts_with("__") || is_mutating_method(object.kind(), name)) {
    hidden = true;
    return !name.starts_with("__") || name == "__class__" || name == "__init__" || name == "__len__" ||
           name == "__doc__" || name == "__eq__" || name == "__dict__";
  }
  if (get_field(rt, object, name, out)) {
    hidden = name.starts_with("_");
    return true;
  }
  const MethodBody body = object.is_string()          ? find_string_method(name)
                          : object.is(Kind::Function) ? find_function_method(object, name)
                                                      : find_container_method(object.kind(), name);
  if (!body) return false;
  out = Value(Kind::Function, std::make_shared<BoundMethod>(object, body, std::string(name), rt.charge(160)));
  return true;
}

Value unsafe(Runtime& rt, const Value& object, std::string_view name) {
  return rt.undefined(fmt::format("access to '{}' of a {} is not allowed in a template", name, type_name(object)));
}

Value missing(Runtime& rt, const Value& object, const Value& key) {
  if (key.is_string())
    return rt.undefined(fmt::format("'{} object' has no attribute '{}'", type_name(object), key.text()));
  return rt.undefined(fmt::format("'{} object' has no such element", type_name(object)));
}

// object[key] proper; false for a TypeError or LookupError.
bool find_item(Runtime& rt, const Value& object, const Value& key, Value& out) {
  if (object.is(Kind::Dict)) {
    if (!is_hashable(key)) return false;
    const Value* found = object.dict().find(rt, key);
    if (found) out = *found;
    return found != nullptr;
  }
  if (!key.is_integral()) {
    if (object.is(Kind::Namespace) && key.is_string()) return get_field(rt, object, key.text(), out);
    return false;
  }
  Int index = key.int_value();
  const auto in_range = [&](size_t size) {
    if (index < 0) index += static_cast<Int>(size);
    return index >= 0 && index < static_cast<Int>(size);
  };
  switch (object.kind()) {
    case Kind::List:
    case Kind::Tuple:
      if (!in_range(object.items().size())) return false;
      out = object.items()[static_cast<size_t>(index)];
      return true;
    case Kind::String: {
      const StringObject& s = object.string();
      if (!in_range(s.points)) return false;
      const auto i = static_cast<size_t>(index);
      if (s.points == s.text.size()) {
        out = rt.string(s.text.substr(i, 1));
      } else {
        rt.meter.step(1 + i / 16);
        const size_t at = byte_offset(s.text, i);
        out = rt.string(s.text.substr(at, point_bytes(s.text, at)));
      }
      return true;
    }
    case Kind::Range: {
      const auto& range = object.as<RangeObject>();
      if (!in_range(range.count)) return false;
      out = range.at(static_cast<size_t>(index));
      return true;
    }
    default: return false;
  }
}

struct Slice {
  int64_t start, stop, step;
  size_t count;
};

Slice resolve(const Value& start, const Value& stop, const Value& step, size_t size) {
  const auto bound = [](const Value& v, std::string_view what) -> Int {
    require_defined(v);
    if (!v.is_integral()) fail("a slice needs integers or None for its {}, got '{}'", what, type_name(v));
    return v.int_value();
  };
  const Int n = static_cast<Int>(size);
  Int by = step.is_none() ? Int{1} : bound(step, "step");
  if (by == 0) fail("a slice step cannot be zero");
  by = std::clamp<Int>(by, -(n + 1), n + 1);
  const Int lowest = by > 0 ? 0 : -1;
  const Int highest = by > 0 ? n : n - 1;
  const auto clamp = [&](const Value& v, Int otherwise, std::string_view what) {
    if (v.is_none()) return otherwise;
    Int i = bound(v, what);
    if (i < 0) i += n;
    return std::clamp(i, lowest, highest);
  };
  const Int from = clamp(start, by > 0 ? lowest : highest, "start");
  const Int to = clamp(stop, by > 0 ? highest : lowest, "stop");
  Int count = 0;
  if (by > 0 && to > from) count = (to - from - 1) / by + 1;
  if (by < 0 && to < from) count = (from - to - 1) / -by + 1;
  return {static_cast<int64_t>(from), static_cast<int64_t>(to), static_cast<int64_t>(by), static_cast<size_t>(count)};
}

}  // namespace

void require_defined(const Value& value) {
  if (!value.is_undefined()) return;
  if (value.object()) fail("{}", value.as<UndefinedObject>().message);
  fail("an undefined value was used");
}

const std::string& require_text(const Value& value, std::string_view what) {
  require_defined(value);
  if (!value.is_string()) fail("{} must be a string, got '{}'", what, type_name(value));
  return value.text();
}

int64_t require_integer(const Value& value, std::string_view what) {
  require_defined(value);
  if (!value.is_integral()) fail("{} must be an integer, got '{}'", what, type_name(value));
  return static_cast<int64_t>(checked_integer(value.int_value()).int_value());
}

Value get_attribute(Runtime& rt, const Value& object, std::string_view name) {
  require_defined(object);
  Value out;
  bool hidden;
  if (find_attribute(rt, object, name, out, hidden)) return hidden ? unsafe(rt, object, name) : out;
  if (object.is(Kind::Dict)) {
    if (const Value* found = object.dict().find(name)) return *found;
  }
  return missing(rt, object, Value::constant(std::string(name)));
}

Value get_item(Runtime& rt, const Value& object, const Value& key) {
  require_defined(object);
  Value out;
  if (find_item(rt, object, key, out)) return out;
  if (key.is_string()) {
    bool hidden;
    if (find_attribute(rt, object, key.text(), out, hidden)) return hidden ? unsafe(rt, object, key.text()) : out;
  }
  return missing(rt, object, key);
}

Value get_slice(Runtime& rt, const Value& object, const Value& start, const Value& stop, const Value& step) {
  require_defined(object);
  if (object.is_sequence()) {
    const auto& items = object.items();
    const Slice s = resolve(start, stop, step, items.size());
    rt.meter.ensure(s.count * sizeof(Value));
    std::vector<Value> out;
    out.reserve(s.count);
    for (size_t i = 0; i < s.count; ++i)
      out.push_back(items[static_cast<size_t>(s.start + s.step * static_cast<int64_t>(i))]);
    return object.is(Kind::List) ? rt.list(std::move(out)) : rt.tuple(std::move(out));
  }
  if (object.is_string()) {
    const StringObject& text = object.string();
    const Slice s = resolve(start, stop, step, text.points);
    rt.meter.step(1 + text.text.size() / 64);
    if (s.count == 0) return rt.string("");
    if (s.step == 1) {
      const auto from = static_cast<size_t>(s.start);
      if (text.points == text.text.size()) return rt.string(text.text.substr(from, s.count));
      const std::string_view rest = std::string_view(text.text).substr(byte_offset(text.text, from));
      return rt.string(std::string(rest.substr(0, byte_offset(rest, s.count))));
    }
    rt.meter.ensure(text.points * sizeof(std::string_view));
    const auto points = split_points(text.text);
    std::string out;
    for (size_t i = 0; i < s.count; ++i) out += points[static_cast<size_t>(s.start + s.step * static_cast<int64_t>(i))];
    return rt.string(std::move(out));
  }
  if (object.is(Kind::Range)) {
    const auto& range = object.as<RangeObject>();
    const Slice s = resolve(start, stop, step, range.count);
    const Int by = Int{range.step} * s.step;
    const auto narrow = [](Int i) { return static_cast<int64_t>(checked_integer(i).int_value()); };
    return rt.range(narrow(range.start + Int{range.step} * s.start), narrow(range.start + Int{range.step} * s.stop),
                    narrow(by));
  }
  fail("a '{}' cannot be sliced", type_name(object));
}

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::None:
    case Kind::Bool:
    case Kind::Int:
    case Kind::Float:
    case Kind::Namespace:
    case Kind::Function: return false;
    default: return true;
  }
}

std::vector<Value> items_of(Runtime& rt, const Value& value) {
  std::vector<Value> out;
  const auto reserve = [&](size_t n) {
    rt.meter.step(1 + n / 4);
    rt.meter.ensure(n * sizeof(Value));
    out.reserve(n);
  };
  switch (value.kind()) {
    case Kind::Undefined: return out;
    case Kind::String: {
      const auto& s = value.string();
      reserve(s.points);
      for (const std::string_view point : split_points(s.text)) out.push_back(rt.string(std::string(point)));
      return out;
    }
    case Kind::List:
    case Kind::Tuple:
      reserve(value.items().size());
      out = value.items();
      return out;
    case Kind::Dict:
      reserve(value.dict().entries.size());
      for (const auto& [key, item] : value.dict().entries) out.push_back(key);
      return out;
    case Kind::View: {
      const auto& view = value.as<ViewObject>();
      const Entries& entries = view.dict.dict().entries;
      reserve(entries.size());
      for (const auto& [key, item] : entries) {
        if (view.view == ViewKind::Keys)
          out.push_back(key);
        else if (view.view == ViewKind::Values)
          out.push_back(item);
        else
          out.push_back(rt.tuple({key, item}));
      }
      return out;
    }
    case Kind::Range: {
      const auto& range = value.as<RangeObject>();
      reserve(range.count);
      for (size_t i = 0; i < range.count; ++i) out.push_back(range.at(i));
      return out;
    }
    case Kind::Iterator: {
      auto& iterator = value.as<IteratorObject>();
      reserve(iterator.items.size() - iterator.next);
      out.assign(iterator.items.begin() + static_cast<ptrdiff_t>(iterator.next), iterator.items.end());
      iterator.next = iterator.items.size();
      return out;
    }
    case Kind::Loop:
    case Kind::None:
    case Kind::Bool:
    case Kind::Int:
    case Kind::Float:
    case Kind::Namespace:
    case Kind::Function: break;
  }
  fail("a '{}' cannot be walked by a loop", type_name(value));
}

size_t length_of(Runtime& rt, const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined: return 0;
    case Kind::String: return value.string().points;
    case Kind::List:
    case Kind::Tuple: return value.items().size();
    case Kind::Dict: return value.dict().entries.size();
    case Kind::View: return length_of(rt, value.as<ViewObject>().dict);
    case Kind::Range: return value.as<RangeObject>().count;
    case Kind::Loop: return value.as<LoopObject>().items.size();
    default: fail("a '{}' has no length", type_name(value));
  }
}

Value call_value(Runtime& rt, const Value& callee, const CallArgs& args) {
  require_defined(callee);
  if (!callee.is(Kind::Function)) fail("a '{}' cannot be called", type_name(callee));
  DepthGuard guard(rt.meter);
  rt.meter.step();
  // Keeps the function alive while it runs: it may be the last reference.
  const Value keep = callee;
  return keep.as<FunctionObject>().call(rt, args);
}

}  // namespace reprise::text::jinja

#include "text/jinja/value.h"

#include <cmath>
#include <cstring>

#include "text/jinja/compare.h"
#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace reprise::text::jinja {

StringObject::StringObject(std::string s, Charge charge)
    : Object(std::move(charge)), text(std::move(s)), points(count_points(text)) {}

Value Value::constant(std::string text) {
  return Value(Kind::String, std::make_shared<StringObject>(std::move(text), Charge()));
}

const std::vector<Value>& Value::items() const { return as<ListObject>().items; }
const ListObject& Value::list() const { return as<ListObject>(); }
const DictObject& Value::dict() const { return as<DictObject>(); }

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined: return "Undefined";
    case Kind::None: return "NoneType";
    case Kind::Bool: return "bool";
    case Kind::Int: return "int";
    case Kind::Float: return "float";
    case Kind::String: return "str";
    case Kind::List: return "list";
    case Kind::Tuple: return "tuple";
    case Kind::Dict: return "dict";
    case Kind::View: return "dict view";
    case Kind::Range: return "range";
    case Kind::Iterator: return "generator";
    case Kind::Namespace: return "Namespace";
    case Kind::Loop: return "LoopContext";
    case Kind::Function: return "function";
  }
  return "object";
}

bool is_hashable(const Value& key) {
  if (key.is(Kind::List) || key.is(Kind::Dict) || key.is(Kind::View)) return false;
  if (key.is(Kind::Tuple)) {
    for (const Value& item : key.items())
      if (!is_hashable(item)) return false;
  }
  return true;
}

std::string hash_key(Runtime& rt, const Value& key) {
  rt.meter.step();
  switch (key.kind()) {
    case Kind::Undefined: return "u";
    case Kind::None: return "n";
    case Kind::Bool:
    case Kind::Int: return fmt::format("i{}", key.int_value());
    case Kind::Float: {
      const double d = key.float_value();
      if (std::fabs(d) < 1e18 && d == std::floor(d)) return fmt::format("i{}", static_cast<Int>(d));
      uint64_t bits;
      std::memcpy(&bits, &d, sizeof bits);
      return fmt::format("f{}", bits);
    }
    case Kind::String: return "s" + key.text();
    case Kind::Tuple: {
      // Lengths keep ("ab",) and ("a", "b") apart.
      Builder out(rt);
      out << 't';
      for (const Value& item : key.items()) {
        const std::string part = hash_key(rt, item);
        out << fmt::format("{}:", part.size()) << part;
      }
      return out.take();
    }
    case Kind::List:
    case Kind::Dict:
    case Kind::View: fail("unhashable type: '{}'", type_name(key));
    case Kind::Range:
    case Kind::Iterator:
    case Kind::Namespace:
    case Kind::Loop:
    case Kind::Function: return fmt::format("p{}", static_cast<const void*>(key.object()));
  }
  return {};
}

const Value* DictObject::find(std::string_view key) const {
  if (entries.size() <= kLinearEntries) {
    for (const auto& [k, v] : entries)
      if (k.is_string() && k.text() == key) return &v;
    return nullptr;
  }
  std::string hashed("s");
  hashed += key;
  const auto it = index_.find(hashed);
  return it == index_.end() ? nullptr : &entries[it->second].second;
}

const Value* DictObject::find(Runtime& rt, const Value& key) const {
  if (key.is_string()) return find(key.text());
  const std::string hashed = hash_key(rt, key);
  if (entries.size() > kLinearEntries) {
    const auto it = index_.find(hashed);
    return it == index_.end() ? nullptr : &entries[it->second].second;
  }
  for (const auto& [k, v] : entries)
    if (!k.is_string() && hash_key(rt, k) == hashed) return &v;
  return nullptr;
}

void DictObject::set(Runtime& rt, Value key, Value value) {
  depth = std::max({depth, 1 + depth_of(key), 1 + depth_of(value)});
  if (depth > kMaxValueDepth) fail("a dict nests deeper than {} levels", kMaxValueDepth);
  if (const Value* old = find(rt, key)) {
    *const_cast<Value*>(old) = std::move(value);
    return;
  }
  if (entries.size() == kLinearEntries) {
    for (size_t i = 0; i < entries.size(); ++i) index_[hash_key(rt, entries[i].first)] = static_cast<uint32_t>(i);
  }
  if (entries.size() >= kLinearEntries) index_[hash_key(rt, key)] = static_cast<uint32_t>(entries.size());
  entries.emplace_back(std::move(key), std::move(value));
}

Value* NamespaceObject::find(std::string_view name) {
  for (auto& [k, v] : fields)
    if (k == name) return &v;
  return nullptr;
}

void NamespaceObject::set(std::string_view name, Value value) {
  if (Value* old = find(name))
    *old = std::move(value);
  else
    fields.emplace_back(std::string(name), std::move(value));
}

}  // namespace reprise::text::jinja

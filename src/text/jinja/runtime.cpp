#include "text/jinja/runtime.h"

#include <algorithm>

#include "text/jinja/unicode.h"

namespace reprise::text::jinja {
namespace {

constexpr size_t kObjectBytes = 96;  // an object with its control block, roughly

}  // namespace

Runtime::~Runtime() {
  // Break circles first: fields may hold lists whose charges still need the meter.
  for (auto& ns : namespaces_) ns->fields.clear();
}

Value Runtime::string(std::string text) {
  Charge cost = charge(kObjectBytes + text.size());
  meter.step(1 + text.size() / 256);
  return Value(Kind::String, std::make_shared<StringObject>(std::move(text), std::move(cost)));
}

int depth_of(const Value& value) {
  if (value.is_sequence()) return value.list().depth;
  if (value.is(Kind::Dict)) return value.dict().depth;
  if (value.is(Kind::View)) return 1 + depth_of(value.as<ViewObject>().dict);
  if (value.is(Kind::Iterator)) return value.as<IteratorObject>().depth;
  if (value.is(Kind::Function)) return value.as<FunctionObject>().depth;
  return 0;
}

int depth_around(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, depth_of(item));
  if (++depth > kMaxValueDepth) fail("a value nests deeper than {} levels", kMaxValueDepth);
  return depth;
}

Value Runtime::sequence(Kind kind, std::vector<Value> items) {
  const int depth = depth_around(items);
  meter.step(1 + items.size() / 8);
  Charge cost = charge(kObjectBytes + items.size() * sizeof(Value));
  return Value(kind, std::make_shared<ListObject>(std::move(items), depth, std::move(cost)));
}

Value Runtime::dict(Entries entries) {
  auto object = std::make_shared<DictObject>();
  object->charge = charge(kObjectBytes + entries.size() * (2 * sizeof(Value) + 64));
  meter.step(1 + entries.size());
  object->entries.reserve(entries.size());
  for (auto& [k, v] : entries) object->set(*this, std::move(k), std::move(v));
  return Value(Kind::Dict, std::move(object));
}

Value Runtime::view(const Value& dict, ViewKind kind) {
  return Value(Kind::View, std::make_shared<ViewObject>(dict, kind, charge(kObjectBytes)));
}

Value Runtime::iterator(std::vector<Value> items) {
  Charge cost = charge(kObjectBytes + items.size() * sizeof(Value));
  const int depth = depth_around(items);
  return Value(Kind::Iterator, std::make_shared<IteratorObject>(std::move(items), depth, std::move(cost)));
}

Value Runtime::range(int64_t start, int64_t stop, int64_t step) {
  if (step == 0) fail("range() needs a step other than zero");
  const Int span = step > 0 ? Int{stop} - start : Int{start} - stop;
  const Int stride = step > 0 ? Int{step} : -Int{step};
  const Int count = span <= 0 ? 0 : (span + stride - 1) / stride;
  if (count > static_cast<Int>(kMaxRange)) fail("range() of {} numbers is longer than {}", count, kMaxRange);
  return Value(Kind::Range,
               std::make_shared<RangeObject>(start, stop, step, static_cast<size_t>(count), charge(kObjectBytes)));
}

Value Runtime::undefined(std::string message) {
  Charge cost = charge(kObjectBytes + message.size());
  return Value(Kind::Undefined, std::make_shared<UndefinedObject>(std::move(message), std::move(cost)));
}

Value Runtime::undefined_name(std::string_view name) { return undefined(fmt::format("'{}' is undefined", name)); }

Value Runtime::name_space() {
  // Owned here until the render ends; the Value only points at it.
  namespaces_.push_back(std::make_unique<NamespaceObject>(charge(2 * kObjectBytes)));
  return Value(Kind::Namespace, std::shared_ptr<Object>(std::shared_ptr<void>(), namespaces_.back().get()));
}

std::shared_ptr<LoopObject> Runtime::loop(std::vector<Value> items, int depth0) {
  auto loop = std::make_shared<LoopObject>(charge(kObjectBytes + items.size() * sizeof(Value)));
  loop->items = std::move(items);
  loop->depth0 = depth0;
  return loop;
}

Value Runtime::from_json(const OrderedJson& json) { return from_json(json, 0); }

Value Runtime::from_json(const OrderedJson& json, int depth) {
  if (depth > kMaxValueDepth) fail("the input nests deeper than {} levels", kMaxValueDepth);
  meter.step();
  switch (json.type()) {
    case OrderedJson::value_t::null: return Value::none();
    case OrderedJson::value_t::boolean: return Value::boolean(json.get<bool>());
    case OrderedJson::value_t::number_integer: return Value::integer(json.get<int64_t>());
    case OrderedJson::value_t::number_unsigned: return Value::integer(json.get<uint64_t>());
    case OrderedJson::value_t::number_float: return Value::number(json.get<double>());
    case OrderedJson::value_t::string: return string(json.get_ref<const std::string&>());
    case OrderedJson::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json(item, depth + 1));
      return list(std::move(items));
    }
    case OrderedJson::value_t::object: {
      Entries entries;
      entries.reserve(json.size());
      for (const auto& [key, value] : json.items()) entries.emplace_back(string(key), from_json(value, depth + 1));
      return dict(std::move(entries));
    }
    case OrderedJson::value_t::binary:
    case OrderedJson::value_t::discarded: break;
  }
  fail("the input holds a value that is not JSON");
}

void Builder::repeat(std::string_view s, size_t count) {
  if (s.empty() || count == 0) return;
  if (count > rt_.meter.limits().max_memory_bytes / s.size()) rt_.meter.ensure(SIZE_MAX);
  reserve_for(s.size() * count);
  rt_.meter.step(1 + s.size() * count / 256);
  for (size_t i = 0; i < count; ++i) text_.append(s);
}

void Builder::grow(size_t n) {
  // Take more from the meter than asked for, so that a check costs nothing per character.
  const size_t needed = text_.size() + n;
  const size_t target = needed + needed / 2 + 64;
  charge_.extend(target - checked_);
  checked_ = target;
  rt_.meter.step(1 + n / 256);
}

}  // namespace reprise::text::jinja

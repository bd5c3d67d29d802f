// Value: what a template computes with, after Python's model: undefined, None, bool, int, float, str, list, tuple,
// dict, dict views, range, one-shot iterators, namespaces, the loop variable and functions. A Value is a small handle;
// its heap object is shared and never changes, except namespaces, loops and iterators, which belong to one render.
// Strings and numbers inside a compiled template may be read from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/limits.h"

namespace reprise::text::jinja {

class Runtime;
class Value;
struct CallArgs;

// Wide enough that an unsigned 64-bit number from JSON passes through; arithmetic keeps to 64 signed bits.
using Int = __int128;

enum class Kind : uint8_t {
  Undefined,
  None,
  Bool,
  Int,
  Float,
  String,
  List,
  Tuple,
  Dict,
  View,
  Range,
  Iterator,
  Namespace,
  Loop,
  Function,
};

struct Object {
  Object() = default;
  explicit Object(Charge charge) : charge(std::move(charge)) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  Charge charge;
};

struct StringObject : Object {
  StringObject(std::string text, Charge charge);
  const std::string text;
  const size_t points;  // code points; equal to the bytes when all ASCII
};

struct ListObject;
struct DictObject;

class Value {
 public:
  Value() = default;  // undefined, without a name
  Value(Kind kind, std::shared_ptr<Object> object) : kind_(kind), object_(std::move(object)) {}

  static Value none() { return Value(Kind::None, nullptr); }
  static Value boolean(bool b) {
    Value v(Kind::Bool, nullptr);
    v.int_ = b;
    return v;
  }
  static Value integer(Int i) {
    Value v(Kind::Int, nullptr);
    v.int_ = i;
    return v;
  }
  static Value number(double d) {
    Value v(Kind::Float, nullptr);
    v.float_ = d;
    return v;
  }
  // A string outside any render: for constants of a template.
  static Value constant(std::string text);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::Undefined; }
  bool is_none() const { return kind_ == Kind::None; }
  bool is_string() const { return kind_ == Kind::String; }
  bool is_integral() const { return kind_ == Kind::Int || kind_ == Kind::Bool; }
  bool is_numeric() const { return is_integral() || kind_ == Kind::Float; }
  bool is_sequence() const { return kind_ == Kind::List || kind_ == Kind::Tuple; }

  Int int_value() const { return int_; }                                                          // Bool, Int
  double float_value() const { return float_; }                                                   // Float
  double as_double() const { return kind_ == Kind::Float ? float_ : static_cast<double>(int_); }  // any number
  const StringObject& string() const { return static_cast<const StringObject&>(*object_); }
  const std::string& text() const { return string().text; }
  const std::vector<Value>& items() const;  // List, Tuple
  const ListObject& list() const;           // List, Tuple
  const DictObject& dict() const;           // Dict
  Object* object() const { return object_.get(); }
  template <typename T>
  T& as() const {
    return static_cast<T&>(*object_);
  }

 private:
  Kind kind_ = Kind::Undefined;
  union {
    Int int_ = 0;
    double float_;
  };
  std::shared_ptr<Object> object_;
};

using Entries = std::vector<std::pair<Value, Value>>;

// Undefined remembers what was asked for, to say so when it is used.
struct UndefinedObject : Object {
  UndefinedObject(std::string message, Charge charge) : Object(std::move(charge)), message(std::move(message)) {}
  const std::string message;
};

struct ListObject : Object {
  ListObject(std::vector<Value> items, int depth, Charge charge)
      : Object(std::move(charge)), items(std::move(items)), depth(depth) {}
  const std::vector<Value> items;
  const int depth;  // 1 + the deepest element
};

// Keeps the order of insertion. Complete once shared: set() is for its builder alone.
struct DictObject : Object {
  const Value* find(std::string_view key) const;
  // `key` must be hashable (see hash_key).
  const Value* find(Runtime& rt, const Value& key) const;
  void set(Runtime& rt, Value key, Value value);

  Entries entries;
  int depth = 1;

 private:
  std::unordered_map<std::string, uint32_t> index_;  // only past kLinearEntries
  static constexpr size_t kLinearEntries = 8;
};

enum class ViewKind : uint8_t { Keys, Values, Items };
struct ViewObject : Object {
  ViewObject(Value dict, ViewKind view, Charge charge) : Object(std::move(charge)), dict(std::move(dict)), view(view) {}
  const Value dict;
  const ViewKind view;
};

struct RangeObject : Object {
  RangeObject(int64_t start, int64_t stop, int64_t step, size_t count, Charge charge)
      : Object(std::move(charge)), start(start), stop(stop), step(step), count(count) {}
  Value at(size_t i) const { return Value::integer(Int{start} + Int{step} * static_cast<Int>(i)); }
  const int64_t start, stop, step;
  const size_t count;
};

// What a Python generator is to a template: it can be walked once.
struct IteratorObject : Object {
  IteratorObject(std::vector<Value> items, int depth, Charge charge)
      : Object(std::move(charge)), items(std::move(items)), depth(depth) {}
  const std::vector<Value> items;
  const int depth;
  size_t next = 0;
};

struct NamespaceObject : Object {
  using Object::Object;
  Value* find(std::string_view name);
  void set(std::string_view name, Value value);
  std::vector<std::pair<std::string, Value>> fields;
};

struct LoopObject : Object {
  using Object::Object;
  std::vector<Value> items;
  size_t index0 = 0;
  int depth0 = 0;
  bool running = true;
  Value last_changed;
};

struct FunctionObject : Object {
  using Object::Object;
  virtual Value call(Runtime& rt, const CallArgs& args) = 0;
  virtual std::string name() const = 0;
  int depth = 0;  // of the values it holds
};

// "str", "int", "dict", ... as Python names the type.
std::string_view type_name(const Value& value);

// A text that is equal for equal keys (1, 1.0 and True are one key). Fails for lists and dicts.
std::string hash_key(Runtime& rt, const Value& key);
bool is_hashable(const Value& key);

}  // namespace reprise::text::jinja

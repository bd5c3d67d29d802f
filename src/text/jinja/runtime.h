// Runtime: one render's meter, clock and makers of values. It lives on the stack of the render and is used by that
// thread alone; every Value made by it must be gone before it is (the interpreter sees to that).
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/jinja/value.h"

namespace reprise::text::jinja {

class Runtime {
 public:
  Runtime(const Limits& limits, const std::tm& now) : meter(limits), now(now) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Value string(std::string text);
  Value list(std::vector<Value> items) { return sequence(Kind::List, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(Kind::Tuple, std::move(items)); }
  Value dict(Entries entries);  // later values win
  Value view(const Value& dict, ViewKind kind);
  Value iterator(std::vector<Value> items);
  Value range(int64_t start, int64_t stop, int64_t step);
  Value undefined(std::string message);
  Value undefined_name(std::string_view name);
  Value name_space();
  std::shared_ptr<LoopObject> loop(std::vector<Value> items, int depth0);
  Value from_json(const OrderedJson& json);

  Charge charge(size_t bytes) { return Charge(meter, bytes); }

  Meter meter;
  const std::tm now;
  int line = 1;  // of the template, for errors

 private:
  Value sequence(Kind kind, std::vector<Value> items);
  Value from_json(const OrderedJson& json, int depth);
  // Namespaces may refer to each other in circles, so the render owns them, not the Values.
  std::vector<std::unique_ptr<NamespaceObject>> namespaces_;
};

// A string being built, bounded by the meter while it grows.
class Builder {
 public:
  explicit Builder(Runtime& rt) : rt_(rt), charge_(rt.charge(0)) {}
  Builder& operator<<(std::string_view s) {
    reserve_for(s.size());
    text_.append(s);
    return *this;
  }
  Builder& operator<<(char c) {
    reserve_for(1);
    text_.push_back(c);
    return *this;
  }
  void repeat(std::string_view s, size_t count);
  std::string take() { return std::move(text_); }
  const std::string& text() const { return text_; }
  Value value() { return rt_.string(std::move(text_)); }

 private:
  void reserve_for(size_t n) {
    if (text_.size() + n > checked_) grow(n);
  }
  void grow(size_t n);
  Runtime& rt_;
  Charge charge_;
  std::string text_;
  size_t checked_ = 0;
};

// Nesting of a value: 0 for scalars.
int depth_of(const Value& value);
// 1 + the deepest of `items`; fails past kMaxValueDepth, so that no walk over a value can exhaust the stack.
int depth_around(const std::vector<Value>& items);

}  // namespace reprise::text::jinja

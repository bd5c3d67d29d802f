// Attrs: the named constants of an op call (epsilon, head size, ...). Order is kept, names are unique. A plain value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"

namespace reprise {

using AttrValue = std::variant<int64_t, double, std::string, std::vector<double>>;

class Attrs {
 public:
  using Entry = std::pair<std::string, AttrValue>;
  Attrs() = default;
  Attrs(std::initializer_list<Entry> entries) : entries_(entries) {}

  const AttrValue* find(std::string_view name) const {
    for (auto& [n, v] : entries_)
      if (n == name) return &v;
    return nullptr;
  }
  void set(std::string_view name, AttrValue value) {
    for (auto& [n, v] : entries_)
      if (n == name) {
        v = std::move(value);
        return;
      }
    entries_.emplace_back(std::string(name), std::move(value));
  }
  // The verifier guarantees presence and type before anyone asks.
  int64_t integer(std::string_view name) const { return get<int64_t>(name); }
  double number(std::string_view name) const { return get<double>(name); }
  const std::string& text(std::string_view name) const { return get<std::string>(name); }
  const std::vector<double>& numbers(std::string_view name) const { return get<std::vector<double>>(name); }

  const std::vector<Entry>& entries() const { return entries_; }
  std::vector<Entry>& entries() { return entries_; }
  bool operator==(const Attrs&) const = default;

 private:
  template <typename T>
  const T& get(std::string_view name) const {
    const AttrValue* v = find(name);
    CHECK(v && std::holds_alternative<T>(*v), "attribute {}", name);
    return std::get<T>(*v);
  }
  std::vector<Entry> entries_;
};

}  // namespace reprise

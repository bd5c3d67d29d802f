// CallArgs: evaluated arguments of a call, filter or test. Bound: the same matched to parameter names, with Python's
// errors for unknown, repeated and missing ones. Both live for one call.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace reprise::text::jinja {

struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Bound {
 public:
  // The first `required` of `names` must be given.
  Bound(std::string_view callee, const CallArgs& args, std::initializer_list<std::string_view> names,
        size_t required = 0);

  bool has(size_t i) const { return slots_[i] != nullptr; }
  bool has_value(size_t i) const { return slots_[i] && !slots_[i]->is_none(); }  // given and not None
  const Value& operator[](size_t i) const { return *slots_[i]; }
  // The parameter, or the default when it was not given; fails when it has the wrong type.
  int64_t integer(size_t i, int64_t otherwise) const;
  bool truth(size_t i, bool otherwise) const;
  const std::string& text(size_t i) const;

 private:
  std::string callee_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> slots_;
};

}  // namespace reprise::text::jinja

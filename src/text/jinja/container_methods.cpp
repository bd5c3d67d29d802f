// Methods of lists, tuples, dicts, ranges and the loop variable.
#include <algorithm>
#include <array>

#include "text/jinja/access.h"
#include "text/jinja/compare.h"

namespace reprise::text::jinja {
namespace {

Value list_index(Runtime& rt, const Value& self, const CallArgs& args) {
  const Bound bound("index", args, {"value", "start", "stop"}, 1);
  const auto items = items_of(rt, self);
  const auto n = static_cast<int64_t>(items.size());
  const auto at = [&](size_t i, int64_t otherwise) {
    int64_t index = bound.integer(i, otherwise);
    if (index < 0) index = std::max<int64_t>(0, index + n);
    return std::min(index, n);
  };
  for (int64_t i = at(1, 0), end = at(2, n); i < end; ++i)
    if (equal(rt, items[static_cast<size_t>(i)], bound[0])) return Value::integer(i);
  fail("index(): the value is not in the list");
}

Value list_count(Runtime& rt, const Value& self, const CallArgs& args) {
  const Bound bound("count", args, {"value"}, 1);
  Int count = 0;
  for (const Value& item : items_of(rt, self)) count += equal(rt, item, bound[0]);
  return Value::integer(count);
}

Value list_copy(Runtime& rt, const Value& self, const CallArgs& args) {
  const Bound bound("copy", args, {});
  return rt.list(items_of(rt, self));
}

Value dict_get(Runtime& rt, const Value& self, const CallArgs& args) {
  if (!args.named.empty()) fail("get() takes no keyword arguments");
  const Bound bound("get", args, {"key", "default"}, 1);
  const Value* found = self.dict().find(rt, bound[0]);
  return found ? *found : bound.has(1) ? bound[1] : Value::none();
}

template <ViewKind kKind>
Value dict_view(Runtime& rt, const Value& self, const CallArgs& args) {
  const Bound bound("this method", args, {});
  return rt.view(self, kKind);
}

Value dict_copy(Runtime& rt, const Value& self, const CallArgs& args) {
  const Bound bound("copy", args, {});
  return rt.dict(self.dict().entries);
}

Value loop_cycle(Runtime& rt, const Value& self, const CallArgs& args) {
  if (args.positional.empty()) fail("loop.cycle() needs something to cycle through");
  if (!args.named.empty()) fail("loop.cycle() takes no keyword arguments");
  return args.positional[self.as<LoopObject>().index0 % args.positional.size()];
}

Value loop_changed(Runtime& rt, const Value& self, const CallArgs& args) {
  if (!args.named.empty()) fail("loop.changed() takes no keyword arguments");
  auto& loop = self.as<LoopObject>();
  const Value now = rt.tuple(args.positional);
  if (loop.last_changed.is(Kind::Tuple) && equal(rt, loop.last_changed, now)) return Value::boolean(false);
  // Remembered only while the loop runs; the interpreter forgets it afterwards, so no circle outlives the loop.
  if (loop.running) loop.last_changed = now;
  return Value::boolean(true);
}

}  // namespace

MethodBody find_container_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::List:
      if (name == "copy") return list_copy;
      [[fallthrough]];
    case Kind::Tuple:
    case Kind::Range:
      if (name == "index") return list_index;
      if (name == "count") return list_count;
      return nullptr;
    case Kind::Dict:
      if (name == "get") return dict_get;
      if (name == "items") return dict_view<ViewKind::Items>;
      if (name == "keys") return dict_view<ViewKind::Keys>;
      if (name == "values") return dict_view<ViewKind::Values>;
      if (name == "copy") return dict_copy;
      return nullptr;
    case Kind::Loop:
      if (name == "cycle") return loop_cycle;
      if (name == "changed") return loop_changed;
      return nullptr;
    default: return nullptr;
  }
}

bool is_mutating_method(Kind kind, std::string_view name) {
  constexpr std::array<std::string_view, 8> kList = {"append", "clear", "pop",    "reverse",
                                                     "insert", "sort",  "extend", "remove"};
  constexpr std::array<std::string_view, 5> kDict = {"clear", "pop", "popitem", "setdefault", "update"};
  if (kind == Kind::List) return std::find(kList.begin(), kList.end(), name) != kList.end();
  if (kind == Kind::Dict) return std::find(kDict.begin(), kDict.end(), name) != kDict.end();
  return false;
}

}  // namespace reprise::text::jinja

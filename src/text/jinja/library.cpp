#include "text/jinja/library.h"

#include <array>
#include <cmath>
#include <ctime>
#include <unordered_map>

#include "text/jinja/access.h"
#include "text/jinja/compare.h"
#include "text/jinja/text_form.h"
#include "text/jinja/unicode.h"

namespace reprise::text::jinja {
namespace {

const Value& one(std::string_view test, const CallArgs& args) {
  if (args.positional.size() + args.named.size() != 1) fail("the test '{}' takes one argument", test);
  return args.positional.empty() ? args.named[0].second : args.positional[0];
}

void none(const CallArgs& args) {
  if (!args.positional.empty() || !args.named.empty()) fail("this test takes no arguments");
}

bool same_object(Runtime& rt, const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  if (a.is_integral() || a.is_none() || a.is_string()) return equal(rt, a, b);
  return a.object() ? a.object() == b.object() : equal(rt, a, b);
}

template <char kCompare>
bool is_compared(Runtime& rt, const Value& v, const CallArgs& args) {
  constexpr std::string_view kOps[] = {"==", "!=", "<", "<=", ">", ">="};
  const std::string_view op = kOps[static_cast<size_t>(kCompare)];
  return compare(rt, op, v, one(op, args));
}

Int remainder(Runtime& rt, const Value& v, const Value& by) {
  const Value r = arithmetic(rt, "%", v, by);
  if (r.is(Kind::Float)) return r.float_value() == 0 ? 0 : r.float_value() == 1 ? 1 : 2;
  if (!r.is_integral()) return 2;
  return r.int_value();
}

template <Kind kKind>
bool is_kind(Runtime&, const Value& v, const CallArgs& args) {
  none(args);
  return v.is(kKind);
}

const std::unordered_map<std::string_view, Test>& tests() {
  static const std::unordered_map<std::string_view, Test> table = {
      {"defined", [](Runtime&, const Value& v, const CallArgs& a) { return none(a), !v.is_undefined(); }},
      {"undefined", is_kind<Kind::Undefined>},
      {"none", is_kind<Kind::None>},
      {"boolean", is_kind<Kind::Bool>},
      {"integer", is_kind<Kind::Int>},
      {"float", is_kind<Kind::Float>},
      {"string", is_kind<Kind::String>},
      {"mapping", is_kind<Kind::Dict>},
      {"number", [](Runtime&, const Value& v, const CallArgs& a) { return none(a), v.is_numeric(); }},
      {"true",
       [](Runtime&, const Value& v, const CallArgs& a) { return none(a), v.is(Kind::Bool) && v.int_value() != 0; }},
      {"false",
       [](Runtime&, const Value& v, const CallArgs& a) { return none(a), v.is(Kind::Bool) && v.int_value() == 0; }},
      {"iterable", [](Runtime&, const Value& v, const CallArgs& a) { return none(a), is_iterable(v); }},
      {"sequence",
       [](Runtime&, const Value& v, const CallArgs& a) {
         none(a);
         return v.is_string() || v.is_sequence() || v.is(Kind::Dict) || v.is(Kind::Range) || v.is_undefined();
       }},
      {"callable",
       [](Runtime&, const Value& v, const CallArgs& a) {
         // jinja2's undefined and loop objects define a call operator, which is all that Python's callable() asks.
         return none(a), v.is(Kind::Function) || v.is_undefined() || v.is(Kind::Loop);
       }},
      {"escaped", [](Runtime&, const Value&, const CallArgs& a) { return none(a), false; }},
      {"even", [](Runtime& rt, const Value& v,
                  const CallArgs& a) { return none(a), remainder(rt, v, Value::integer(2)) == 0; }},
      {"odd", [](Runtime& rt, const Value& v,
                 const CallArgs& a) { return none(a), remainder(rt, v, Value::integer(2)) == 1; }},
      {"divisibleby",
       [](Runtime& rt, const Value& v, const CallArgs& a) { return remainder(rt, v, one("divisibleby", a)) == 0; }},
      {"lower",
       [](Runtime& rt, const Value& v, const CallArgs& a) {
         none(a);
         const Value text = to_string_value(rt, v);
         return truth(find_string_method("islower")(rt, text, {}));
       }},
      {"upper",
       [](Runtime& rt, const Value& v, const CallArgs& a) {
         none(a);
         const Value text = to_string_value(rt, v);
         return truth(find_string_method("isupper")(rt, text, {}));
       }},
      {"in", [](Runtime& rt, const Value& v, const CallArgs& a) { return contains(rt, one("in", a), v); }},
      {"sameas", [](Runtime& rt, const Value& v, const CallArgs& a) { return same_object(rt, v, one("sameas", a)); }},
      {"filter", [](Runtime&, const Value& v,
                    const CallArgs& a) { return none(a), v.is_string() && find_filter(v.text()) != nullptr; }},
      {"test", [](Runtime&, const Value& v,
                  const CallArgs& a) { return none(a), v.is_string() && find_test(v.text()) != nullptr; }},
      {"eq", is_compared<0>},
      {"equalto", is_compared<0>},
      {"==", is_compared<0>},
      {"ne", is_compared<1>},
      {"!=", is_compared<1>},
      {"lt", is_compared<2>},
      {"<", is_compared<2>},
      {"lessthan", is_compared<2>},
      {"le", is_compared<3>},
      {"<=", is_compared<3>},
      {"gt", is_compared<4>},
      {">", is_compared<4>},
      {"ge", is_compared<5>},
      {"greaterthan", is_compared<4>},
      {">=", is_compared<5>},
  };
  return table;
}

const std::unordered_map<std::string_view, Filter>& filters() {
  static const std::unordered_map<std::string_view, Filter> table = [] {
    std::unordered_map<std::string_view, Filter> all;
    for (const auto* part : {&text_filters(), &number_filters(), &sequence_filters()})
      for (const FilterEntry& entry : *part) all.emplace(entry.name, entry.filter);
    return all;
  }();
  return table;
}

using GlobalBody = Value (*)(Runtime& rt, const CallArgs& args);

struct GlobalFunction : FunctionObject {
  GlobalFunction(std::string_view name, GlobalBody body) : global(name), body(body) {}
  Value call(Runtime& rt, const CallArgs& args) override { return body(rt, args); }
  std::string name() const override { return std::string(global); }
  const std::string_view global;
  const GlobalBody body;
};

Value range(Runtime& rt, const CallArgs& args) {
  if (!args.named.empty()) fail("range() takes no keyword arguments");
  const Bound bound("range", args, {"start", "stop", "step"}, 1);
  if (!bound.has(1)) return rt.range(0, bound.integer(0, 0), 1);
  return rt.range(bound.integer(0, 0), bound.integer(1, 0), bound.integer(2, 1));
}

// dict(mapping or pairs, name=value, ...): the entries it would hold.
Entries entries_of(Runtime& rt, std::string_view callee, const CallArgs& args) {
  if (args.positional.size() > 1) fail("{}() takes at most one positional argument", callee);
  Entries entries;
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.is(Kind::Dict)) {
      entries = from.dict().entries;
    } else {
      for (const Value& pair : items_of(rt, from)) {
        const auto parts = items_of(rt, pair);
        if (parts.size() != 2) fail("{}() needs pairs, got an element of length {}", callee, parts.size());
        entries.emplace_back(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) entries.emplace_back(rt.string(name), value);
  return entries;
}

Value dict(Runtime& rt, const CallArgs& args) { return rt.dict(entries_of(rt, "dict", args)); }

Value name_space(Runtime& rt, const CallArgs& args) {
  const Value out = rt.name_space();
  for (auto& [key, value] : entries_of(rt, "namespace", args)) {
    if (!key.is_string()) continue;
    if (key.text().starts_with('_'))
      fail("a namespace cannot hold the name '{}' that starts with an underscore", key.text());
    out.as<NamespaceObject>().set(key.text(), std::move(value));
  }
  return out;
}

Value raise_exception(Runtime& rt, const CallArgs& args) {
  const Bound bound("raise_exception", args, {"message"}, 1);
  fail("{}", to_text(rt, bound[0]));
}

Value strftime_now(Runtime& rt, const CallArgs& args) {
  const Bound bound("strftime_now", args, {"format"}, 1);
  const std::string& format = bound.text(0);
  if (format.empty()) return rt.string("");
  if (format.size() > 1000) fail("strftime_now: the format is longer than 1000 bytes");
  // A mark at the end tells an empty result from one that did not fit.
  std::string out(format.size() * 64 + 64, '\0');
  const size_t n = std::strftime(out.data(), out.size(), (format + "|").c_str(), &rt.now);
  out.resize(n ? n - 1 : 0);
  return rt.string(std::move(out));
}

struct Cycler : FunctionObject {
  Cycler(std::vector<Value> items, Charge charge) : FunctionObject(std::move(charge)), items(std::move(items)) {
    depth = depth_around(this->items);
  }
  Value call(Runtime&, const CallArgs&) override { fail("a cycler cannot be called; use its next()"); }
  std::string name() const override { return "cycler"; }
  const std::vector<Value> items;
  size_t position = 0;
};

struct Joiner : FunctionObject {
  Joiner(Value text, Charge charge) : FunctionObject(std::move(charge)), text(std::move(text)) {}
  Value call(Runtime& rt, const CallArgs& args) override {
    const Bound bound("joiner", args, {});
    if (used) return text;
    used = true;
    return rt.string("");
  }
  std::string name() const override { return "joiner"; }
  const Value text;
  bool used = false;
};

Value cycler(Runtime& rt, const CallArgs& args) {
  if (args.positional.empty() || !args.named.empty()) fail("cycler() needs items");
  return Value(Kind::Function,
               std::make_shared<Cycler>(args.positional, rt.charge(96 + args.positional.size() * sizeof(Value))));
}

Value joiner(Runtime& rt, const CallArgs& args) {
  const Bound bound("joiner", args, {"sep"});
  if (bound.has(0)) require_text(bound[0], "'sep' of joiner()");
  return Value(Kind::Function, std::make_shared<Joiner>(bound.has(0) ? bound[0] : rt.string(", "), rt.charge(128)));
}

}  // namespace

Value cycler_member(Runtime& rt, const Value& self, std::string_view name, bool& found) {
  auto* cycler = dynamic_cast<Cycler*>(self.object());
  found = cycler != nullptr && (name == "current");
  return found ? cycler->items[cycler->position] : Value();
}

MethodBody find_function_method(const Value& self, std::string_view name) {
  if (!dynamic_cast<Cycler*>(self.object())) return nullptr;
  if (name == "next")
    return [](Runtime&, const Value& v, const CallArgs& args) {
      const Bound bound("next", args, {});
      auto& cycler = v.as<Cycler>();
      const Value out = cycler.items[cycler.position];
      cycler.position = (cycler.position + 1) % cycler.items.size();
      return out;
    };
  if (name == "reset")
    return [](Runtime&, const Value& v, const CallArgs& args) {
      const Bound bound("reset", args, {});
      v.as<Cycler>().position = 0;
      return Value::none();
    };
  return nullptr;
}

Filter find_filter(std::string_view name) {
  const auto it = filters().find(name);
  return it == filters().end() ? nullptr : it->second;
}

Test find_test(std::string_view name) {
  const auto it = tests().find(name);
  return it == tests().end() ? nullptr : it->second;
}

Value apply_filter(Runtime& rt, std::string_view name, const Value& input, const CallArgs& args) {
  const Filter filter = find_filter(name);
  if (!filter) fail("no filter is named '{}'", name);
  rt.meter.step();
  DepthGuard guard(rt.meter);
  return filter(rt, input, args);
}

bool apply_test(Runtime& rt, std::string_view name, const Value& input, const CallArgs& args) {
  const Test test = find_test(name);
  if (!test) fail("no test is named '{}'", name);
  rt.meter.step();
  return test(rt, input, args);
}

Value find_global(Runtime& rt, std::string_view name) {
  static const std::unordered_map<std::string_view, Value> table = [] {
    std::unordered_map<std::string_view, Value> all;
    const std::array<std::pair<std::string_view, GlobalBody>, 7> entries = {{{"range", range},
                                                                             {"dict", dict},
                                                                             {"namespace", name_space},
                                                                             {"raise_exception", raise_exception},
                                                                             {"strftime_now", strftime_now},
                                                                             {"cycler", cycler},
                                                                             {"joiner", joiner}}};
    for (const auto& [key, body] : entries)
      all.emplace(key, Value(Kind::Function, std::make_shared<GlobalFunction>(key, body)));
    return all;
  }();
  const auto it = table.find(name);
  return it == table.end() ? rt.undefined_name(name) : it->second;
}

}  // namespace reprise::text::jinja

#include <algorithm>

#include "text/jinja/access.h"
#include "text/jinja/compare.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/text_form.h"

namespace reprise::text::jinja {

Value Interpreter::evaluate(const Expr& expr, Scope& scope) {
  const DepthGuard guard(rt_.meter);
  rt_.meter.step();
  rt_.line = expr.line;
  return std::visit([&](const auto& node) { return evaluate_node(node, scope); }, expr.node);
}

Value Interpreter::lookup(NameId name, Scope& scope) {
  for (const Scope* s = &scope; s; s = s->parent)
    for (const auto& [id, value] : s->variables)
      if (id == name) return value;
  auto& global = globals_[name];
  if (!global) {
    global = context_(tree_.names[name]);
    if (!global) global = find_global(rt_, tree_.names[name]);
  }
  return *global;
}

Value Interpreter::evaluate_node(const ConstExpr& e, Scope&) { return e.value; }

Value Interpreter::evaluate_node(const NameExpr& e, Scope& scope) { return lookup(e.name, scope); }

Value Interpreter::evaluate_node(const ListExpr& e, Scope& scope) {
  std::vector<Value> items;
  items.reserve(e.items.size());
  for (const auto& item : e.items) items.push_back(evaluate(*item, scope));
  return e.tuple ? rt_.tuple(std::move(items)) : rt_.list(std::move(items));
}

Value Interpreter::evaluate_node(const DictExpr& e, Scope& scope) {
  Entries entries;
  entries.reserve(e.entries.size());
  for (const auto& [key, value] : e.entries) {
    Value k = evaluate(*key, scope);
    entries.emplace_back(std::move(k), evaluate(*value, scope));
  }
  return rt_.dict(std::move(entries));
}

Value Interpreter::evaluate_node(const NotExpr& e, Scope& scope) {
  return Value::boolean(!truth(evaluate(*e.operand, scope)));
}

Value Interpreter::evaluate_node(const SignExpr& e, Scope& scope) {
  const Value operand = evaluate(*e.operand, scope);
  return e.minus ? negate(operand) : plus(operand);
}

Value Interpreter::evaluate_node(const BinaryExpr& e, Scope& scope) {
  const Value left = evaluate(*e.left, scope);
  const Value right = evaluate(*e.right, scope);
  return arithmetic(rt_, e.op, left, right);
}

Value Interpreter::evaluate_node(const LogicExpr& e, Scope& scope) {
  Value left = evaluate(*e.left, scope);
  return truth(left) == e.is_or ? left : evaluate(*e.right, scope);
}

Value Interpreter::evaluate_node(const CompareExpr& e, Scope& scope) {
  Value left = evaluate(*e.first, scope);
  for (const auto& [op, operand] : e.rest) {
    Value right = evaluate(*operand, scope);
    const std::string_view name(op);
    bool holds;
    if (name == "in" || name == "not in")
      holds = contains(rt_, right, left) == (name == "in");
    else
      holds = compare(rt_, name, left, right);
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_node(const ConcatExpr& e, Scope& scope) {
  Builder out(rt_);
  for (const auto& part : e.parts) {
    const Value value = evaluate(*part, scope);
    if (value.is_string())
      out << value.text();
    else
      out << to_text(rt_, value);
  }
  return out.value();
}

Value Interpreter::evaluate_node(const ConditionalExpr& e, Scope& scope) {
  if (truth(evaluate(*e.test, scope))) return evaluate(*e.then, scope);
  if (e.otherwise) return evaluate(*e.otherwise, scope);
  return rt_.undefined("the inline if-expression evaluated to false and no else was given");
}

Value Interpreter::evaluate_node(const AttributeExpr& e, Scope& scope) {
  return get_attribute(rt_, evaluate(*e.object, scope), e.name);
}

Value Interpreter::evaluate_node(const SubscriptExpr& e, Scope& scope) {
  const Value object = evaluate(*e.object, scope);
  return get_item(rt_, object, evaluate(*e.key, scope));
}

Value Interpreter::evaluate_node(const SliceExpr& e, Scope& scope) {
  const Value object = evaluate(*e.object, scope);
  const auto bound = [&](const ExprPtr& expr) { return expr ? evaluate(*expr, scope) : Value::none(); };
  const Value start = bound(e.start);
  const Value stop = bound(e.stop);
  return get_slice(rt_, object, start, stop, bound(e.step));
}

Value Interpreter::evaluate_node(const CallExpr& e, Scope& scope) { return call(e, {}, scope); }

Value Interpreter::call(const CallExpr& e, CallArgs extra, Scope& scope) {
  const Value callee = evaluate(*e.callee, scope);
  CallArgs args = arguments(e.args, scope);
  for (auto& named : extra.named) args.named.push_back(std::move(named));
  if (callee.is(Kind::Loop)) {
    const DepthGuard guard(rt_.meter);
    return call_loop(callee, args);
  }
  return call_value(rt_, callee, args);
}

CallArgs Interpreter::arguments(const Arguments& args, Scope& scope) {
  CallArgs out;
  out.positional.reserve(args.positional.size());
  for (const auto& arg : args.positional) out.positional.push_back(evaluate(*arg, scope));
  for (const auto& [name, arg] : args.named) out.named.emplace_back(name, evaluate(*arg, scope));
  if (args.star) {
    const Value more = evaluate(*args.star, scope);
    for (Value& item : items_of(rt_, more)) out.positional.push_back(std::move(item));
  }
  if (args.star_star) {
    const Value more = evaluate(*args.star_star, scope);
    if (!more.is(Kind::Dict)) fail("'**' in a call needs a dict, got '{}'", type_name(more));
    for (const auto& [key, value] : more.dict().entries) {
      const std::string& name = require_text(key, "a keyword of '**'");
      for (const auto& [other, given] : out.named)
        if (other == name) fail("the argument '{}' is given twice", name);
      out.named.emplace_back(name, value);
    }
  }
  return out;
}

Value Interpreter::evaluate_node(const FilterExpr& e, Scope& scope) {
  const Value input = e.input ? evaluate(*e.input, scope) : *block_text_;
  if (!e.filter) fail("no filter is named '{}'", e.name);
  const CallArgs args = arguments(e.args, scope);
  return e.filter(rt_, input, args);
}

Value Interpreter::evaluate_node(const TestExpr& e, Scope& scope) {
  const Value input = evaluate(*e.input, scope);
  if (!e.test) fail("no test is named '{}'", e.name);
  const CallArgs args = arguments(e.args, scope);
  return Value::boolean(e.test(rt_, input, args));
}

}  // namespace reprise::text::jinja

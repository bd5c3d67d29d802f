#include "text/jinja/interpreter.h"

#include <algorithm>

#include "text/jinja/access.h"
#include "text/jinja/compare.h"
#include "text/jinja/text_form.h"

namespace reprise::text::jinja {

// A macro, or the body of a call block. The interpreter outlives every value of its render.
struct MacroFunction : FunctionObject {
  MacroFunction(Interpreter& interpreter, const MacroBody& macro, Scope& home, Charge charge)
      : FunctionObject(std::move(charge)), interpreter(interpreter), macro(macro), home(home) {}
  Value call(Runtime&, const CallArgs& args) override { return interpreter.call_macro(macro, home, args); }
  std::string name() const override { return macro.name; }

  Interpreter& interpreter;
  const MacroBody& macro;
  Scope& home;
};

namespace {

template <typename... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <typename... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

// Puts a variable back to what it was when the block ends, also by an error.
template <typename T>
class Restore {
 public:
  Restore(T& variable, T value) : variable_(variable), old_(std::exchange(variable, std::move(value))) {}
  ~Restore() { variable_ = std::move(old_); }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  T& variable_;
  T old_;
};

// The loop variable forgets its items when the loop ends: a copy kept by the template must not hold old loops alive.
class LoopEnd {
 public:
  explicit LoopEnd(std::shared_ptr<LoopObject> loop) : loop_(std::move(loop)) {}
  ~LoopEnd() {
    loop_->running = false;
    loop_->last_changed = Value();
    loop_->items.clear();
  }
  LoopEnd(const LoopEnd&) = delete;
  LoopEnd& operator=(const LoopEnd&) = delete;

 private:
  std::shared_ptr<LoopObject> loop_;
};

}  // namespace

void Scope::set(NameId name, Value value) {
  for (auto& [id, old] : variables) {
    if (id == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

Interpreter::Interpreter(Runtime& rt, const Tree& tree, Context context)
    : rt_(rt), tree_(tree), context_(std::move(context)), globals_(tree.names.size()) {
  for (NameId id = 0; id < tree.names.size(); ++id) {
    if (tree.names[id] == "loop") loop_name_ = id;
    if (tree.names[id] == "caller") caller_name_ = id;
    if (tree.names[id] == "varargs") varargs_name_ = id;
    if (tree.names[id] == "kwargs") kwargs_name_ = id;
  }
}

Interpreter::~Interpreter() = default;

std::string Interpreter::run() {
  Builder out(rt_);
  out_ = &out;
  Scope root(nullptr);
  execute(tree_.body, root);
  return out.take();
}

std::unique_ptr<Scope> Interpreter::open_scope(Scope* parent) { return std::make_unique<Scope>(parent); }

void Interpreter::close_scope(std::unique_ptr<Scope> scope) {
  if (!scope->captured) return;
  kept_charges_.push_back(rt_.charge(sizeof(Scope) + 64));
  kept_.push_back(std::move(scope));
}

template <typename Run>
auto Interpreter::in_scope(Scope* parent, Run run) {
  auto scope = open_scope(parent);
  if constexpr (std::is_void_v<decltype(run(*scope))>) {
    run(*scope);
    close_scope(std::move(scope));
  } else {
    auto result = run(*scope);
    close_scope(std::move(scope));
    return result;
  }
}

void Interpreter::write(std::string_view text) {
  if (at_top_ && out_->text().size() + text.size() > rt_.meter.limits().max_output_bytes)
    fail("the output is larger than {} bytes", rt_.meter.limits().max_output_bytes);
  *out_ << text;
}

void Interpreter::write(const Value& value) {
  if (value.is_string())
    write(value.text());
  else
    write(to_text(rt_, value));
}

Interpreter::Flow Interpreter::execute(const Body& body, Scope& scope) {
  const DepthGuard guard(rt_.meter);
  for (const auto& stmt : body) {
    const Flow flow = execute(*stmt, scope);
    if (flow != Flow::Next) return flow;
  }
  return Flow::Next;
}

Interpreter::Flow Interpreter::execute(const Stmt& stmt, Scope& scope) {
  rt_.meter.step();
  rt_.line = stmt.line;
  return std::visit(Overloaded{
                        [&](const TextStmt& s) {
                          write(s.text);
                          return Flow::Next;
                        },
                        [&](const OutputStmt& s) {
                          write(evaluate(*s.value, scope));
                          return Flow::Next;
                        },
                        [&](const IfStmt& s) { return run_if(s, scope); },
                        [&](const ForStmt& s) { return run_for(s, evaluate(*s.iterable, scope), scope, 0); },
                        [&](const SetStmt& s) {
                          assign(s.target, evaluate(*s.value, scope), scope);
                          return Flow::Next;
                        },
                        [&](const SetBlockStmt& s) {
                          assign(s.target, filtered_text(s.filter.get(), captured_output(s.body, scope), scope), scope);
                          return Flow::Next;
                        },
                        [&](const MacroStmt& s) {
                          scope.set(s.name, make_macro(s.macro, scope));
                          return Flow::Next;
                        },
                        [&](const CallBlockStmt& s) {
                          CallArgs extra;
                          extra.named.emplace_back("caller", make_macro(s.caller, scope));
                          write(call(std::get<CallExpr>(s.call->node), std::move(extra), scope));
                          return Flow::Next;
                        },
                        [&](const FilterBlockStmt& s) {
                          write(filtered_text(s.filter.get(), captured_output(s.body, scope), scope));
                          return Flow::Next;
                        },
                        [&](const WithStmt& s) {
                          return in_scope(&scope, [&](Scope& inner) {
                            // Values see the variables outside, not those of the same tag.
                            std::vector<Value> values;
                            for (const auto& [target, value] : s.assignments) values.push_back(evaluate(*value, scope));
                            for (size_t i = 0; i < values.size(); ++i) assign(s.assignments[i].first, values[i], inner);
                            return execute(s.body, inner);
                          });
                        },
                        [&](const BreakStmt&) { return Flow::Break; },
                        [&](const ContinueStmt&) { return Flow::Continue; },
                    },
                    stmt.node);
}

Interpreter::Flow Interpreter::run_if(const IfStmt& stmt, Scope& scope) {
  for (const auto& [test, body] : stmt.branches)
    if (truth(evaluate(*test, scope))) return execute(body, scope);
  return execute(stmt.otherwise, scope);
}

std::vector<Value> Interpreter::filtered(const ForStmt& stmt, std::vector<Value> items, Scope& scope) {
  std::vector<Value> kept;
  for (Value& item : items) {
    rt_.meter.step();
    const bool keep = in_scope(&scope, [&](Scope& inner) {
      assign(stmt.target, item, inner);
      return truth(evaluate(*stmt.filter, inner));
    });
    if (keep) kept.push_back(std::move(item));
  }
  return kept;
}

Interpreter::Flow Interpreter::run_for(const ForStmt& stmt, const Value& iterable, Scope& scope, int depth0) {
  const DepthGuard guard(rt_.meter);
  auto items = items_of(rt_, iterable);
  if (stmt.filter) items = filtered(stmt, std::move(items), scope);
  const auto loop = rt_.loop(std::move(items), depth0);
  const LoopEnd end(loop);
  if (stmt.recursive) loops_.push_back({loop.get(), &stmt, &scope});
  const size_t count = loop->items.size();
  Flow flow = Flow::Next;
  for (size_t i = 0; i < count && flow != Flow::Break; ++i) {
    rt_.meter.step();
    loop->index0 = i;
    // Every pass starts with variables of its own.
    flow = in_scope(&scope, [&](Scope& inner) {
      assign(stmt.target, loop->items[i], inner);
      if (loop_name_) inner.set(*loop_name_, Value(Kind::Loop, loop));
      return execute(stmt.body, inner);
    });
  }
  if (stmt.recursive) loops_.pop_back();
  if (count == 0) return in_scope(&scope, [&](Scope& inner) { return execute(stmt.otherwise, inner); });
  return Flow::Next;
}

std::string Interpreter::captured_output(const Body& body, Scope& scope) {
  Builder out(rt_);
  const Restore<Builder*> to_buffer(out_, &out);
  const Restore<bool> not_top(at_top_, false);
  in_scope(&scope, [&](Scope& inner) { execute(body, inner); });
  return out.take();
}

Value Interpreter::filtered_text(const Expr* filter, std::string text, Scope& scope) {
  const Value value = rt_.string(std::move(text));
  if (!filter) return value;
  const Restore<const Value*> input(block_text_, &value);
  return evaluate(*filter, scope);
}

void Interpreter::assign(const Target& target, const Value& value, Scope& scope) {
  if (target.parts) {
    const auto& parts = *target.parts;
    require_defined(value);
    const auto items = items_of(rt_, value);
    if (items.size() != parts.size()) fail("cannot assign {} values to {} names", items.size(), parts.size());
    for (size_t i = 0; i < parts.size(); ++i) assign(parts[i], items[i], scope);
    return;
  }
  if (target.field.empty()) {
    scope.set(target.name, value);
    return;
  }
  const Value name_space = lookup(target.name, scope);
  if (!name_space.is(Kind::Namespace))
    fail("cannot assign to a field of '{}': it is no namespace", tree_.names[target.name]);
  if (target.field.starts_with('_'))
    fail("a namespace cannot hold the name '{}' that starts with an underscore", target.field);
  name_space.as<NamespaceObject>().set(target.field, value);
}

Value Interpreter::make_macro(const MacroBody& macro, Scope& scope) {
  for (Scope* s = &scope; s && !s->captured; s = s->parent) s->captured = true;
  return Value(Kind::Function, std::make_shared<MacroFunction>(*this, macro, scope, rt_.charge(192)));
}

Value Interpreter::call_macro(const MacroBody& macro, Scope& home, const CallArgs& args) {
  const Restore<int> line(rt_.line, rt_.line);
  const auto& names = macro.parameters.names;
  const size_t first_default = names.size() - macro.parameters.defaults.size();
  return in_scope(&home, [&](Scope& scope) {
    std::vector<bool> used(args.named.size(), false);
    const auto take_named = [&](std::string_view name) -> const Value* {
      for (size_t i = 0; i < args.named.size(); ++i) {
        if (used[i] || args.named[i].first != name) continue;
        used[i] = true;
        return &args.named[i].second;
      }
      return nullptr;
    };
    bool explicit_caller = false;
    for (size_t i = 0; i < names.size(); ++i) {
      explicit_caller |= caller_name_ == names[i];
      if (i < args.positional.size()) {
        scope.set(names[i], args.positional[i]);
      } else if (const Value* value = take_named(tree_.names[names[i]])) {
        scope.set(names[i], *value);
      } else if (i >= first_default) {
        scope.set(names[i], evaluate(*macro.parameters.defaults[i - first_default], scope));
      } else {
        scope.set(names[i], rt_.undefined(fmt::format("parameter '{}' was not provided", tree_.names[names[i]])));
      }
    }
    if (macro.takes_caller && !explicit_caller) {
      const Value* caller = take_named("caller");
      scope.set(*caller_name_, caller ? *caller : rt_.undefined("No caller defined"));
    }
    Entries rest;
    for (size_t i = 0; i < args.named.size(); ++i) {
      if (used[i]) continue;
      if (!macro.takes_kwargs) fail("macro '{}' takes no keyword argument '{}'", macro.name, args.named[i].first);
      rest.emplace_back(rt_.string(args.named[i].first), args.named[i].second);
    }
    if (macro.takes_kwargs) scope.set(*kwargs_name_, rt_.dict(std::move(rest)));
    if (macro.takes_args) {
      const size_t from = std::min(names.size(), args.positional.size());
      scope.set(*varargs_name_,
                rt_.tuple({args.positional.begin() + static_cast<ptrdiff_t>(from), args.positional.end()}));
    } else if (args.positional.size() > names.size()) {
      fail("macro '{}' takes not more than {} arguments, got {}", macro.name, names.size(), args.positional.size());
    }
    return rt_.string(captured_output(macro.body, scope));
  });
}

// loop(items) inside a recursive loop runs the loop's body again on them.
Value Interpreter::call_loop(const Value& loop, const CallArgs& args) {
  const Bound bound("loop", args, {"iterable"}, 1);
  const auto it =
      std::find_if(loops_.begin(), loops_.end(), [&](const ActiveLoop& l) { return l.loop == loop.object(); });
  if (it == loops_.end()) fail("only a loop marked 'recursive' can be called");
  const ActiveLoop active = *it;
  Builder out(rt_);
  const Restore<Builder*> to_buffer(out_, &out);
  const Restore<bool> not_top(at_top_, false);
  run_for(*active.stmt, bound[0], *active.scope, active.loop->depth0 + 1);
  return out.value();
}

}  // namespace reprise::text::jinja

// Interpreter: walks the tree of a template and collects its output. One is made per render, on the render's thread;
// it owns the scopes of variables, and the Runtime must outlive it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace reprise::text::jinja {

// Variables of one block of the template. A macro sees the scopes around its definition, so those live on.
struct Scope {
  explicit Scope(Scope* parent) : parent(parent) {}
  Scope* const parent;
  std::vector<std::pair<NameId, Value>> variables;
  bool captured = false;  // some macro was defined inside

  void set(NameId name, Value value);
};

class Interpreter {
 public:
  // `context` gives the variables of the render by name, or nullopt.
  using Context = std::function<std::optional<Value>(std::string_view name)>;
  Interpreter(Runtime& rt, const Tree& tree, Context context);
  ~Interpreter();

  // Throws Failure.
  std::string run();

 private:
  friend struct MacroFunction;
  enum class Flow { Next, Break, Continue };

  // interpreter.cpp: statements
  Flow execute(const Body& body, Scope& scope);
  Flow execute(const Stmt& stmt, Scope& scope);
  Flow run_if(const IfStmt& stmt, Scope& scope);
  Flow run_for(const ForStmt& stmt, const Value& iterable, Scope& scope, int depth0);
  std::vector<Value> filtered(const ForStmt& stmt, std::vector<Value> items, Scope& scope);
  std::string captured_output(const Body& body, Scope& scope);
  Value filtered_text(const Expr* filter, std::string text, Scope& scope);
  void assign(const Target& target, const Value& value, Scope& scope);
  void write(std::string_view text);
  void write(const Value& value);
  Value make_macro(const MacroBody& macro, Scope& scope);
  Value call_macro(const MacroBody& macro, Scope& home, const CallArgs& args);
  Value call_loop(const Value& loop, const CallArgs& args);
  std::unique_ptr<Scope> open_scope(Scope* parent);
  void close_scope(std::unique_ptr<Scope> scope);
  template <typename Run>
  auto in_scope(Scope* parent, Run run);

  // interpreter_expression.cpp: expressions
  Value evaluate(const Expr& expr, Scope& scope);
  Value evaluate_node(const ConstExpr& e, Scope& scope);
  Value evaluate_node(const NameExpr& e, Scope& scope);
  Value evaluate_node(const ListExpr& e, Scope& scope);
  Value evaluate_node(const DictExpr& e, Scope& scope);
  Value evaluate_node(const NotExpr& e, Scope& scope);
  Value evaluate_node(const SignExpr& e, Scope& scope);
  Value evaluate_node(const BinaryExpr& e, Scope& scope);
  Value evaluate_node(const LogicExpr& e, Scope& scope);
  Value evaluate_node(const CompareExpr& e, Scope& scope);
  Value evaluate_node(const ConcatExpr& e, Scope& scope);
  Value evaluate_node(const ConditionalExpr& e, Scope& scope);
  Value evaluate_node(const AttributeExpr& e, Scope& scope);
  Value evaluate_node(const SubscriptExpr& e, Scope& scope);
  Value evaluate_node(const SliceExpr& e, Scope& scope);
  Value evaluate_node(const CallExpr& e, Scope& scope);
  Value evaluate_node(const FilterExpr& e, Scope& scope);
  Value evaluate_node(const TestExpr& e, Scope& scope);
  Value call(const CallExpr& e, CallArgs extra, Scope& scope);
  CallArgs arguments(const Arguments& args, Scope& scope);
  Value lookup(NameId name, Scope& scope);

  struct ActiveLoop {
    LoopObject* loop;
    const ForStmt* stmt;
    Scope* scope;
  };

  Runtime& rt_;
  const Tree& tree_;
  const Context context_;
  std::vector<std::optional<Value>> globals_;  // by NameId, once looked up
  std::vector<std::unique_ptr<Scope>> kept_;   // scopes that macros still see
  std::vector<Charge> kept_charges_;
  std::vector<ActiveLoop> loops_;  // running recursive loops
  Builder* out_ = nullptr;
  bool at_top_ = true;                 // out_ is the template's own output
  const Value* block_text_ = nullptr;  // input of the filter of a filter block
  std::optional<NameId> loop_name_, caller_name_, varargs_name_, kwargs_name_;
};

}  // namespace reprise::text::jinja

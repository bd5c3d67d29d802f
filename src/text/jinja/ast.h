// The tree of a compiled template. Built by the parser, then read-only: any thread may walk it. Variables are numbers
// into Tree::names, so that a lookup compares integers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/library.h"
#include "text/jinja/value.h"

namespace reprise::text::jinja {

using NameId = uint32_t;

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;
using Exprs = std::vector<ExprPtr>;

struct Arguments {
  Exprs positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;       // *args
  ExprPtr star_star;  // **kwargs
};

struct ConstExpr {
  Value value;
};
struct NameExpr {
  NameId name;
};
struct ListExpr {
  Exprs items;
  bool tuple;
};
struct DictExpr {
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
struct NotExpr {
  ExprPtr operand;
};
struct SignExpr {
  bool minus;
  ExprPtr operand;
};
struct BinaryExpr {
  const char* op;
  ExprPtr left, right;
};
struct LogicExpr {
  bool is_or;
  ExprPtr left, right;
};
struct CompareExpr {
  ExprPtr first;
  std::vector<std::pair<const char*, ExprPtr>> rest;  // "==", ..., "in", "not in"
};
struct ConcatExpr {
  Exprs parts;
};
struct ConditionalExpr {
  ExprPtr test, then, otherwise;
};  // otherwise may be null
struct AttributeExpr {
  ExprPtr object;
  std::string name;
};
struct SubscriptExpr {
  ExprPtr object, key;
};
struct SliceExpr {
  ExprPtr object, start, stop, step;
};  // bounds may be null
struct CallExpr {
  ExprPtr callee;
  Arguments args;
};
struct FilterExpr {
  ExprPtr input;
  std::string name;
  Filter filter;
  Arguments args;
};  // input null: a filter block's
struct TestExpr {
  ExprPtr input;
  std::string name;
  Test test;
  Arguments args;
};

struct Expr {
  int line;
  int depth;  // of the tree below, bounded by kMaxChainDepth
  std::variant<ConstExpr, NameExpr, ListExpr, DictExpr, NotExpr, SignExpr, BinaryExpr, LogicExpr, CompareExpr,
               ConcatExpr, ConditionalExpr, AttributeExpr, SubscriptExpr, SliceExpr, CallExpr, FilterExpr, TestExpr>
      node;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

// What {% set %} and {% for %} assign to: a name, a namespace's field, or a tuple of targets.
struct Target {
  NameId name = 0;
  std::string field;  // of the namespace `name`, when not empty
  std::optional<std::vector<Target>> parts;
};

struct Parameters {
  std::vector<NameId> names;
  Exprs defaults;  // of the last ones
};

struct MacroBody {
  std::string name;
  Parameters parameters;
  Body body;
  bool takes_caller = false, takes_args = false, takes_kwargs = false;  // it mentions caller, varargs, kwargs
};

struct TextStmt {
  std::string text;
};
struct OutputStmt {
  ExprPtr value;
};
struct IfStmt {
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body otherwise;
};
struct ForStmt {
  Target target;
  ExprPtr iterable, filter;  // filter may be null
  bool recursive = false;
  Body body, otherwise;
};
struct SetStmt {
  Target target;
  ExprPtr value;
};
struct SetBlockStmt {
  Target target;
  ExprPtr filter;
  Body body;
};  // filter may be null
struct MacroStmt {
  NameId name;
  MacroBody macro;
};
struct CallBlockStmt {
  ExprPtr call;
  MacroBody caller;
};
struct FilterBlockStmt {
  ExprPtr filter;
  Body body;
};
struct WithStmt {
  std::vector<std::pair<Target, ExprPtr>> assignments;
  Body body;
};
struct BreakStmt {};
struct ContinueStmt {};

struct Stmt {
  int line;
  std::variant<TextStmt, OutputStmt, IfStmt, ForStmt, SetStmt, SetBlockStmt, MacroStmt, CallBlockStmt, FilterBlockStmt,
               WithStmt, BreakStmt, ContinueStmt>
      node;
};

struct Tree {
  std::vector<std::string> names;
  Body body;
};

}  // namespace reprise::text::jinja

// From tokens to the tree: jinja2's grammar for the statements of this folder (docs in ast.h). One Parser reads one
// template on one thread and is thrown away.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace reprise::text::jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  // Throws SyntaxError.
  Tree parse();

 private:
  using Names = std::initializer_list<std::string_view>;

  // parser.cpp: statements
  Body body(Names ends, bool at_top = false);
  void statement(Body& out);
  void begin_body();  // the end of an opening tag
  Body body_until(std::string_view end);
  void for_statement(Body& out);
  void if_statement(Body& out);
  void set_statement(Body& out);
  void macro_statement(Body& out);
  void call_statement(Body& out);
  void with_statement(Body& out);
  void scope_statement(Body& out, std::string_view end);
  void macro_body(MacroBody& macro, std::string_view end);
  Parameters parameters();
  Target target(bool allow_field, std::string_view end_name = "");
  Target target_part(bool allow_field);

  // parser_expression.cpp: expressions, from the loosest binding to the tightest
  ExprPtr tuple(bool with_conditional, std::string_view end_name = "", bool in_parentheses = false);
  ExprPtr expression(bool with_conditional = true) { return with_conditional ? conditional() : logic_or(); }
  ExprPtr conditional();
  ExprPtr logic_or();
  ExprPtr logic_and();
  ExprPtr logic_not();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters = true);
  ExprPtr primary();
  ExprPtr list_literal();
  ExprPtr dict_literal();
  ExprPtr postfix(ExprPtr object);
  ExprPtr filters(ExprPtr object);
  ExprPtr subscript(ExprPtr object);
  ExprPtr filter(ExprPtr input);  // at the filter's name
  ExprPtr test(ExprPtr input);    // at `is`
  Arguments arguments();

  template <typename Node>
  ExprPtr make(int line, Node node, int deepest);
  static int deepest(const Arguments& args);

  const Token& now() const { return tokens_[pos_]; }
  const Token& ahead() const { return tokens_[std::min(pos_ + 1, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[pos_ + 1 < tokens_.size() ? pos_++ : pos_]; }
  bool skip_name(std::string_view name);
  bool skip_operator(std::string_view op);
  void expect_operator(std::string_view op);
  const Token& expect(TokenKind kind, std::string_view what);
  bool at_tuple_end(std::string_view end_name) const;
  NameId name_id(const std::string& name);
  [[noreturn]] void fail_here(std::string_view expected) const;

  struct Level;  // one level of nesting while it lives

  std::vector<Token> tokens_;
  size_t pos_ = 0;
  int depth_ = 0;
  int loops_ = 0;  // around this place, for break and continue
  std::vector<std::string> open_tags_;
  MacroBody* macro_ = nullptr;  // the innermost, which notes its use of caller, varargs and kwargs
  Tree tree_;
  std::unordered_map<std::string, NameId> ids_;
};

struct Parser::Level {
  explicit Level(Parser& parser) : parser(parser) {
    if (++parser.depth_ > kMaxParseDepth) {
      --parser.depth_;
      throw SyntaxError{parser.now().line, fmt::format("the template nests deeper than {} levels", kMaxParseDepth)};
    }
  }
  ~Level() { --parser.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  Parser& parser;
};

}  // namespace reprise::text::jinja

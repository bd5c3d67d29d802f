#include "text/jinja/parser.h"

#include <algorithm>

namespace reprise::text::jinja {
namespace {

template <typename Node>
void add(Body& out, int line, Node node) {
  out.push_back(std::make_unique<Stmt>(Stmt{line, std::move(node)}));
}

bool is_reserved(std::string_view name) {
  return name == "true" || name == "false" || name == "none" || name == "True" || name == "False" || name == "None";
}

}  // namespace

Tree Parser::parse() {
  tree_.body = body({}, true);
  return std::move(tree_);
}

void Parser::fail_here(std::string_view expected) const {
  throw SyntaxError{now().line, fmt::format("expected {}, got {}", expected, describe(now()))};
}

bool Parser::skip_name(std::string_view name) {
  if (!now().is_name(name)) return false;
  next();
  return true;
}

bool Parser::skip_operator(std::string_view op) {
  if (!now().is_operator(op)) return false;
  next();
  return true;
}

void Parser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) fail_here(fmt::format("'{}'", op));
}

const Token& Parser::expect(TokenKind kind, std::string_view what) {
  if (now().kind != kind) fail_here(what);
  return next();
}

NameId Parser::name_id(const std::string& name) {
  const auto [it, fresh] = ids_.emplace(name, static_cast<NameId>(tree_.names.size()));
  if (fresh) tree_.names.push_back(name);
  return it->second;
}

// Statements up to a tag that starts with one of `ends` (left unread), or to the end of the template at the top.
Body Parser::body(Names ends, bool at_top) {
  const Level level(*this);
  Body out;
  while (true) {
    switch (now().kind) {
      case TokenKind::Text: {
        const Token& token = next();
        add(out, token.line, TextStmt{token.text});
        break;
      }
      case TokenKind::OutputBegin: {
        const int line = next().line;
        ExprPtr value = tuple(true);
        expect(TokenKind::OutputEnd, "'}}'");
        add(out, line, OutputStmt{std::move(value)});
        break;
      }
      case TokenKind::BlockBegin:
        next();
        if (now().kind == TokenKind::Name && std::find(ends.begin(), ends.end(), now().text) != ends.end()) return out;
        statement(out);
        expect(TokenKind::BlockEnd, "'%}'");
        break;
      case TokenKind::End:
        if (at_top) return out;
        fail_here(fmt::format("'{{% {} %}}' to close '{}'", *(ends.end() - 1), open_tags_.back()));
      default: fail_here("text or a tag");
    }
  }
}

void Parser::begin_body() {
  skip_operator(":");
  expect(TokenKind::BlockEnd, "'%}'");
}

Body Parser::body_until(std::string_view end) {
  begin_body();
  Body out = body({end});
  next();
  return out;
}

void Parser::statement(Body& out) {
  if (now().kind != TokenKind::Name) fail_here("the name of a tag");
  const std::string tag = now().text;
  const int line = now().line;
  open_tags_.push_back(tag);
  if (tag == "for") {
    for_statement(out);
  } else if (tag == "if") {
    if_statement(out);
  } else if (tag == "set") {
    set_statement(out);
  } else if (tag == "macro") {
    macro_statement(out);
  } else if (tag == "call") {
    call_statement(out);
  } else if (tag == "with") {
    with_statement(out);
  } else if (tag == "generation") {
    scope_statement(out, "endgeneration");
  } else if (tag == "filter") {
    next();
    ExprPtr chain = filter(nullptr);
    while (skip_operator("|")) chain = filter(std::move(chain));
    add(out, line, FilterBlockStmt{std::move(chain), body_until("endfilter")});
  } else if (tag == "print") {
    next();
    while (now().kind != TokenKind::BlockEnd) {
      add(out, line, OutputStmt{expression()});
      if (now().kind != TokenKind::BlockEnd) expect_operator(",");
    }
  } else if (tag == "break" || tag == "continue") {
    next();
    if (loops_ == 0) throw SyntaxError{line, fmt::format("'{}' stands outside of a loop", tag)};
    if (tag == "break")
      add(out, line, BreakStmt{});
    else
      add(out, line, ContinueStmt{});
  } else if (tag == "include" || tag == "extends" || tag == "import" || tag == "from" || tag == "block" ||
             tag == "autoescape") {
    throw SyntaxError{line, fmt::format("the tag '{}' is not supported in chat templates", tag)};
  } else if (open_tags_.size() > 1) {
    throw SyntaxError{line, fmt::format("unknown tag '{}' inside '{}'", tag, open_tags_[open_tags_.size() - 2])};
  } else {
    throw SyntaxError{line,
                      fmt::format("unknown tag '{}': expected if, for, set, macro, call, filter, with, generation, "
                                  "break, continue or raw",
                                  tag)};
  }
  open_tags_.pop_back();
}

void Parser::for_statement(Body& out) {
  const int line = next().line;
  ForStmt loop;
  loop.target = target(false, "in");
  if (!skip_name("in")) fail_here("'in'");
  loop.iterable = tuple(false, "recursive");
  if (skip_name("if")) loop.filter = expression();
  loop.recursive = skip_name("recursive");
  begin_body();
  ++loops_;
  loop.body = body({"endfor", "else"});
  --loops_;
  if (next().text == "else") loop.otherwise = body_until("endfor");
  add(out, line, std::move(loop));
}

void Parser::if_statement(Body& out) {
  const int line = next().line;
  IfStmt statement;
  while (true) {
    ExprPtr test = tuple(false);
    begin_body();
    Body then = body({"elif", "else", "endif"});
    statement.branches.emplace_back(std::move(test), std::move(then));
    const std::string end = next().text;
    if (end == "elif") continue;
    if (end == "else") statement.otherwise = body_until("endif");
    break;
  }
  add(out, line, std::move(statement));
}

void Parser::set_statement(Body& out) {
  const int line = next().line;
  Target to = target(true);
  if (skip_operator("=")) {
    add(out, line, SetStmt{std::move(to), tuple(true)});
    return;
  }
  ExprPtr chain;
  while (skip_operator("|")) chain = filter(std::move(chain));
  const int loops = std::exchange(loops_, 0);
  Body inner = body_until("endset");
  loops_ = loops;
  add(out, line, SetBlockStmt{std::move(to), std::move(chain), std::move(inner)});
}

Target Parser::target_part(bool allow_field) {
  const Level level(*this);
  if (skip_operator("(")) {
    Target inner;
    std::vector<Target> parts;
    bool is_tuple = false;
    while (!now().is_operator(")")) {
      parts.push_back(target_part(allow_field));
      if (now().is_operator(")")) break;
      expect_operator(",");
      is_tuple = true;
    }
    expect_operator(")");
    if (parts.size() == 1 && !is_tuple) return std::move(parts[0]);
    inner.parts = std::move(parts);
    return inner;
  }
  const Token& token = expect(TokenKind::Name, "a name to assign to");
  if (is_reserved(token.text)) throw SyntaxError{token.line, fmt::format("'{}' cannot be assigned to", token.text)};
  Target out;
  out.name = name_id(token.text);
  if (allow_field && skip_operator(".")) out.field = expect(TokenKind::Name, "the name of a field").text;
  return out;
}

Target Parser::target(bool allow_field, std::string_view end_name) {
  Target first = target_part(allow_field);
  if (!now().is_operator(",")) return first;
  Target out;
  out.parts.emplace();
  out.parts->push_back(std::move(first));
  while (skip_operator(",")) {
    if (now().is_operator("=") || (!end_name.empty() && now().is_name(end_name)) || now().kind == TokenKind::BlockEnd)
      break;
    out.parts->push_back(target_part(allow_field));
  }
  return out;
}

Parameters Parser::parameters() {
  Parameters out;
  expect_operator("(");
  while (!now().is_operator(")")) {
    if (!out.names.empty()) expect_operator(",");
    out.names.push_back(name_id(expect(TokenKind::Name, "the name of a parameter").text));
    if (skip_operator("="))
      out.defaults.push_back(expression());
    else if (!out.defaults.empty())
      fail_here("'=', as the parameter before has a default");
  }
  expect_operator(")");
  return out;
}

void Parser::macro_body(MacroBody& macro, std::string_view end) {
  MacroBody* outer = std::exchange(macro_, &macro);
  const int loops = std::exchange(loops_, 0);
  if (now().is_operator("(")) macro.parameters = parameters();
  if (end == "endmacro") macro.body = body_until(end);
  macro_ = outer;
  loops_ = loops;
}

void Parser::macro_statement(Body& out) {
  const int line = next().line;
  MacroStmt statement;
  statement.macro.name = expect(TokenKind::Name, "the name of a macro").text;
  statement.name = name_id(statement.macro.name);
  if (!now().is_operator("(")) fail_here("'(' and the macro's parameters");
  macro_body(statement.macro, "endmacro");
  add(out, line, std::move(statement));
}

void Parser::call_statement(Body& out) {
  const int line = next().line;
  CallBlockStmt statement;
  statement.caller.name = "caller";
  macro_body(statement.caller, "");
  statement.call = expression();
  if (!std::holds_alternative<CallExpr>(statement.call->node)) throw SyntaxError{line, "expected a call after 'call'"};
  MacroBody* outer = std::exchange(macro_, &statement.caller);
  const int loops = std::exchange(loops_, 0);
  statement.caller.body = body_until("endcall");
  macro_ = outer;
  loops_ = loops;
  add(out, line, std::move(statement));
}

void Parser::with_statement(Body& out) {
  const int line = next().line;
  WithStmt statement;
  while (now().kind != TokenKind::BlockEnd && !now().is_operator(":")) {
    if (!statement.assignments.empty()) expect_operator(",");
    Target to = target_part(false);
    expect_operator("=");
    statement.assignments.emplace_back(std::move(to), expression());
  }
  statement.body = body_until("endwith");
  add(out, line, std::move(statement));
}

// A block that renders as it stands and keeps its variables to itself.
void Parser::scope_statement(Body& out, std::string_view end) {
  const int line = next().line;
  const int loops = std::exchange(loops_, 0);
  WithStmt statement;
  statement.body = body_until(end);
  loops_ = loops;
  add(out, line, std::move(statement));
}

}  // namespace reprise::text::jinja

#include <algorithm>

#include "text/jinja/parser.h"

namespace reprise::text::jinja {

template <typename Node>
ExprPtr Parser::make(int line, Node node, int deepest) {
  if (deepest >= kMaxChainDepth)
    throw SyntaxError{line, fmt::format("an expression chains more than {} operations", kMaxChainDepth)};
  return std::make_unique<Expr>(Expr{line, deepest + 1, std::move(node)});
}

int Parser::deepest(const Arguments& args) {
  int depth = 0;
  for (const auto& arg : args.positional) depth = std::max(depth, arg->depth);
  for (const auto& [name, arg] : args.named) depth = std::max(depth, arg->depth);
  for (const Expr* arg : {args.star.get(), args.star_star.get()})
    if (arg) depth = std::max(depth, arg->depth);
  return depth;
}

bool Parser::at_tuple_end(std::string_view end_name) const {
  return now().kind == TokenKind::OutputEnd || now().kind == TokenKind::BlockEnd || now().is_operator(")") ||
         (!end_name.empty() && now().is_name(end_name));
}

// One expression, or several with commas between them, which make a tuple without needing parentheses.
ExprPtr Parser::tuple(bool with_conditional, std::string_view end_name, bool in_parentheses) {
  const int line = now().line;
  ListExpr items{{}, true};
  bool is_tuple = false;
  int depth = 0;
  while (true) {
    if (!items.items.empty()) expect_operator(",");
    if (at_tuple_end(end_name)) break;
    items.items.push_back(expression(with_conditional));
    depth = std::max(depth, items.items.back()->depth);
    if (!now().is_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.items.empty()) return std::move(items.items[0]);
    if (!in_parentheses) fail_here("an expression");
  }
  return make(line, std::move(items), depth);
}

ExprPtr Parser::conditional() {
  const Level level(*this);
  const int line = now().line;
  ExprPtr value = logic_or();
  while (skip_name("if")) {
    ExprPtr test = logic_or();
    ExprPtr otherwise = skip_name("else") ? conditional() : nullptr;
    const int depth = std::max({test->depth, value->depth, otherwise ? otherwise->depth : 0});
    value = make(line, ConditionalExpr{std::move(test), std::move(value), std::move(otherwise)}, depth);
  }
  return value;
}

ExprPtr Parser::logic_or() {
  const int line = now().line;
  ExprPtr left = logic_and();
  while (skip_name("or")) {
    ExprPtr right = logic_and();
    const int depth = std::max(left->depth, right->depth);
    left = make(line, LogicExpr{true, std::move(left), std::move(right)}, depth);
  }
  return left;
}

ExprPtr Parser::logic_and() {
  const int line = now().line;
  ExprPtr left = logic_not();
  while (skip_name("and")) {
    ExprPtr right = logic_not();
    const int depth = std::max(left->depth, right->depth);
    left = make(line, LogicExpr{false, std::move(left), std::move(right)}, depth);
  }
  return left;
}

ExprPtr Parser::logic_not() {
  if (!now().is_name("not")) return comparison();
  const Level level(*this);
  const int line = next().line;
  ExprPtr operand = logic_not();
  const int depth = operand->depth;
  return make(line, NotExpr{std::move(operand)}, depth);
}

ExprPtr Parser::comparison() {
  const int line = now().line;
  CompareExpr out;
  out.first = sum();
  int depth = out.first->depth;
  while (true) {
    const char* op = nullptr;
    for (const char* candidate : {"==", "!=", "<=", ">=", "<", ">"})
      if (now().is_operator(candidate)) op = candidate;
    if (op) {
      next();
    } else if (skip_name("in")) {
      op = "in";
    } else if (now().is_name("not") && ahead().is_name("in")) {
      next();
      next();
      op = "not in";
    } else {
      break;
    }
    out.rest.emplace_back(op, sum());
    depth = std::max(depth, out.rest.back().second->depth);
  }
  if (out.rest.empty()) return std::move(out.first);
  return make(line, std::move(out), depth);
}

ExprPtr Parser::sum() {
  const int line = now().line;
  ExprPtr left = concatenation();
  while (now().is_operator("+") || now().is_operator("-")) {
    const char* op = next().text == "+" ? "+" : "-";
    ExprPtr right = concatenation();
    const int depth = std::max(left->depth, right->depth);
    left = make(line, BinaryExpr{op, std::move(left), std::move(right)}, depth);
  }
  return left;
}

ExprPtr Parser::concatenation() {
  const int line = now().line;
  ConcatExpr out;
  out.parts.push_back(product());
  int depth = out.parts[0]->depth;
  while (skip_operator("~")) {
    out.parts.push_back(product());
    depth = std::max(depth, out.parts.back()->depth);
  }
  if (out.parts.size() == 1) return std::move(out.parts[0]);
  return make(line, std::move(out), depth);
}

ExprPtr Parser::product() {
  const int line = now().line;
  ExprPtr left = power();
  while (true) {
    const char* op = nullptr;
    for (const char* candidate : {"*", "/", "//", "%"})
      if (now().is_operator(candidate)) op = candidate;
    if (!op) return left;
    next();
    ExprPtr right = power();
    const int depth = std::max(left->depth, right->depth);
    left = make(line, BinaryExpr{op, std::move(left), std::move(right)}, depth);
  }
}

// Binds to the left, unlike Python's.
ExprPtr Parser::power() {
  const int line = now().line;
  ExprPtr left = unary();
  while (skip_operator("**")) {
    ExprPtr right = unary();
    const int depth = std::max(left->depth, right->depth);
    left = make(line, BinaryExpr{"**", std::move(left), std::move(right)}, depth);
  }
  return left;
}

ExprPtr Parser::unary(bool with_filters) {
  const Level level(*this);
  const int line = now().line;
  ExprPtr out;
  if (now().is_operator("-") || now().is_operator("+")) {
    const bool minus = next().text == "-";
    out = unary(false);
    const int depth = out->depth;
    out = make(line, SignExpr{minus, std::move(out)}, depth);
  } else {
    out = primary();
  }
  out = postfix(std::move(out));
  return with_filters ? filters(std::move(out)) : std::move(out);
}

ExprPtr Parser::primary() {
  const Token& token = now();
  const int line = token.line;
  switch (token.kind) {
    case TokenKind::Name: {
      next();
      const std::string& name = token.text;
      if (name == "true" || name == "True") return make(line, ConstExpr{Value::boolean(true)}, 0);
      if (name == "false" || name == "False") return make(line, ConstExpr{Value::boolean(false)}, 0);
      if (name == "none" || name == "None") return make(line, ConstExpr{Value::none()}, 0);
      if (macro_) {
        macro_->takes_caller |= name == "caller";
        macro_->takes_args |= name == "varargs";
        macro_->takes_kwargs |= name == "kwargs";
      }
      return make(line, NameExpr{name_id(name)}, 0);
    }
    case TokenKind::String: {
      std::string text = next().text;
      while (now().kind == TokenKind::String) text += next().text;
      return make(line, ConstExpr{Value::constant(std::move(text))}, 0);
    }
    case TokenKind::Integer:
    case TokenKind::Float: return make(line, ConstExpr{next().number}, 0);
    case TokenKind::Operator:
      if (skip_operator("(")) {
        ExprPtr inner = tuple(true, "", true);
        expect_operator(")");
        return inner;
      }
      if (token.text == "[") return list_literal();
      if (token.text == "{") return dict_literal();
      [[fallthrough]];
    default: fail_here("an expression");
  }
}

ExprPtr Parser::list_literal() {
  const int line = next().line;
  ListExpr out{{}, false};
  int depth = 0;
  while (!now().is_operator("]")) {
    if (!out.items.empty()) expect_operator(",");
    if (now().is_operator("]")) break;
    out.items.push_back(expression());
    depth = std::max(depth, out.items.back()->depth);
  }
  expect_operator("]");
  return make(line, std::move(out), depth);
}

ExprPtr Parser::dict_literal() {
  const int line = next().line;
  DictExpr out;
  int depth = 0;
  while (!now().is_operator("}")) {
    if (!out.entries.empty()) expect_operator(",");
    if (now().is_operator("}")) break;
    ExprPtr key = expression();
    expect_operator(":");
    ExprPtr value = expression();
    depth = std::max({depth, key->depth, value->depth});
    out.entries.emplace_back(std::move(key), std::move(value));
  }
  expect_operator("}");
  return make(line, std::move(out), depth);
}

ExprPtr Parser::postfix(ExprPtr object) {
  while (true) {
    if (now().is_operator(".") || now().is_operator("[")) {
      object = subscript(std::move(object));
    } else if (now().is_operator("(")) {
      const int line = now().line;
      Arguments args = arguments();
      const int depth = std::max(object->depth, deepest(args));
      object = make(line, CallExpr{std::move(object), std::move(args)}, depth);
    } else {
      return object;
    }
  }
}

ExprPtr Parser::filters(ExprPtr object) {
  while (true) {
    if (skip_operator("|")) {
      object = filter(std::move(object));
    } else if (now().is_name("is")) {
      object = test(std::move(object));
    } else if (now().is_operator("(")) {
      const int line = now().line;
      Arguments args = arguments();
      const int depth = std::max(object->depth, deepest(args));
      object = make(line, CallExpr{std::move(object), std::move(args)}, depth);
    } else {
      return object;
    }
  }
}

ExprPtr Parser::subscript(ExprPtr object) {
  const int line = now().line;
  if (skip_operator(".")) {
    const int depth = object->depth;
    if (now().kind == TokenKind::Name) return make(line, AttributeExpr{std::move(object), next().text}, depth);
    if (now().kind != TokenKind::Integer) fail_here("a name or a number after '.'");
    ExprPtr key = make(line, ConstExpr{next().number}, 0);
    return make(line, SubscriptExpr{std::move(object), std::move(key)}, depth);
  }
  expect_operator("[");
  ListExpr keys{{}, true};
  int depth = object->depth;
  bool is_slice = false;
  SliceExpr slice;
  while (!now().is_operator("]")) {
    if (!keys.items.empty() || is_slice) expect_operator(",");
    ExprPtr first;
    if (!now().is_operator(":")) first = expression();
    if (first) depth = std::max(depth, first->depth);
    if (!now().is_operator(":")) {
      keys.items.push_back(std::move(first));
      continue;
    }
    if (!keys.items.empty() || is_slice) fail_here("']', as only one slice can be taken at a time");
    is_slice = true;
    next();
    const auto bound = [&]() -> ExprPtr {
      if (now().is_operator(":") || now().is_operator("]") || now().is_operator(",")) return nullptr;
      ExprPtr value = expression();
      depth = std::max(depth, value->depth);
      return value;
    };
    slice.start = std::move(first);
    slice.stop = bound();
    if (skip_operator(":")) slice.step = bound();
  }
  expect_operator("]");
  if (is_slice) {
    if (!keys.items.empty()) fail_here("']', as only one slice can be taken at a time");
    slice.object = std::move(object);
    return make(line, std::move(slice), depth);
  }
  ExprPtr key = keys.items.size() == 1 ? std::move(keys.items[0]) : make(line, std::move(keys), depth);
  depth = std::max(depth, key->depth);
  return make(line, SubscriptExpr{std::move(object), std::move(key)}, depth);
}

Arguments Parser::arguments() {
  Arguments out;
  const int line = now().line;
  const auto require = [&](bool fine) {
    if (!fine) throw SyntaxError{line, "a call needs its arguments in the order: positional, named, *list, **dict"};
  };
  expect_operator("(");
  bool comma = false;
  while (!now().is_operator(")")) {
    if (comma) {
      expect_operator(",");
      if (now().is_operator(")")) break;
    }
    comma = true;
    if (skip_operator("*")) {
      require(!out.star && !out.star_star);
      out.star = expression();
    } else if (skip_operator("**")) {
      require(!out.star_star);
      out.star_star = expression();
    } else if (now().kind == TokenKind::Name && ahead().is_operator("=")) {
      require(!out.star_star);
      std::string name = next().text;
      next();
      for (const auto& [other, value] : out.named)
        if (other == name) throw SyntaxError{line, fmt::format("the argument '{}' is given twice", name)};
      out.named.emplace_back(std::move(name), expression());
    } else {
      require(!out.star && !out.star_star && out.named.empty());
      out.positional.push_back(expression());
    }
  }
  expect_operator(")");
  return out;
}

ExprPtr Parser::filter(ExprPtr input) {
  const Token& token = expect(TokenKind::Name, "the name of a filter");
  std::string name = token.text;
  while (skip_operator(".")) name += "." + expect(TokenKind::Name, "the name of a filter").text;
  Arguments args;
  if (now().is_operator("(")) args = arguments();
  const int depth = std::max(input ? input->depth : 0, deepest(args));
  const Filter found = find_filter(name);
  return make(token.line, FilterExpr{std::move(input), std::move(name), found, std::move(args)}, depth);
}

ExprPtr Parser::test(ExprPtr input) {
  const int line = next().line;
  const bool negated = skip_name("not");
  std::string name = expect(TokenKind::Name, "the name of a test").text;
  while (skip_operator(".")) name += "." + expect(TokenKind::Name, "the name of a test").text;
  Arguments args;
  const Token& token = now();
  if (token.is_operator("(")) {
    args = arguments();
  } else if ((token.kind == TokenKind::Name && token.text != "else" && token.text != "or" && token.text != "and") ||
             token.kind == TokenKind::String || token.kind == TokenKind::Integer || token.kind == TokenKind::Float ||
             token.is_operator("[") || token.is_operator("{")) {
    // One argument may follow without parentheses.
    if (token.is_name("is")) fail_here("'and', as tests cannot be chained");
    args.positional.push_back(postfix(primary()));
  }
  const int depth = std::max(input->depth, deepest(args));
  const Test found = find_test(name);
  ExprPtr out = make(line, TestExpr{std::move(input), std::move(name), found, std::move(args)}, depth);
  if (!negated) return out;
  return make(line, NotExpr{std::move(out)}, depth + 1);
}

}  // namespace reprise::text::jinja

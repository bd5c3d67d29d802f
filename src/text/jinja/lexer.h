// From template text to tokens, with jinja2's rules for white space (trim_blocks and lstrip_blocks on, as HF sets
// them). Errors are thrown as SyntaxError with the line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace reprise::text::jinja {

struct SyntaxError {
  int line;
  std::string message;
};

enum class TokenKind : uint8_t {
  Text,
  OutputBegin,
  OutputEnd,
  BlockBegin,
  BlockEnd,
  Name,
  String,
  Integer,
  Float,
  Operator,
  End
};

struct Token {
  TokenKind kind;
  int line;
  std::string text;  // of texts, names, operators, and strings after their escapes
  Value number;      // of integers and floats

  bool is_operator(std::string_view op) const { return kind == TokenKind::Operator && text == op; }
  bool is_name(std::string_view name) const { return kind == TokenKind::Name && text == name; }
};

// The last token is End. Throws SyntaxError.
std::vector<Token> tokenize(std::string_view source);

// For messages: "'if'", "a text", "the end of the template".
std::string describe(const Token& token);

}  // namespace reprise::text::jinja

#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>

#include "text/jinja/unicode.h"

namespace reprise::text::jinja {
namespace {

template <typename... Args>
[[noreturn]] void fail_at(int line, fmt::format_string<Args...> format, Args&&... args) {
  throw SyntaxError{line, fmt::format(format, std::forward<Args>(args)...)};
}

// One kind of line end, and none at the very end.
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

constexpr std::array<std::string_view, 27> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";", ""};

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)), rest_(source_) {}

  std::vector<Token> run() {
    while (pos_ < rest_.size()) text();
    push(TokenKind::End, "");
    return std::move(tokens_);
  }

 private:
  void push(TokenKind kind, std::string text, Value number = Value()) {
    tokens_.push_back({kind, line_, std::move(text), std::move(number)});
  }
  bool at(std::string_view s) const { return rest_.substr(pos_).starts_with(s); }
  // Moves on and counts lines; remembers whether a line starts here.
  void skip(size_t n) {
    if (n == 0) return;
    const std::string_view passed = rest_.substr(pos_, n);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    line_starting_ = passed.back() == '\n';
    pos_ += n;
  }
  void skip_spaces() { skip(rest_.size() - pos_ - strip_left(rest_.substr(pos_)).size()); }
  size_t spaces_at(size_t pos) const {
    const std::string_view tail = rest_.substr(pos);
    return tail.size() - strip_left(tail).size();
  }

  // Text up to the next tag, then the tag.
  void text() {
    size_t tag = pos_;
    while (true) {
      tag = rest_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= rest_.size()) {
        const std::string_view tail = rest_.substr(pos_);
        push(TokenKind::Text, std::string(tail));
        skip(tail.size());
        return;
      }
      const char next = rest_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    const char kind = rest_[tag + 1];
    const char sign = tag + 2 < rest_.size() && (rest_[tag + 2] == '-' || rest_[tag + 2] == '+') ? rest_[tag + 2] : 0;
    emit_text(tag, sign, kind == '{');
    const int begin = line_;
    skip(sign ? 3 : 2);
    if (kind == '#')
      comment(begin);
    else if (kind == '%' && raw_follows())
      raw(begin);
    else
      code(kind == '{' ? TokenKind::OutputBegin : TokenKind::BlockBegin, begin);
  }

  // The text before a tag, as far as the tag's sign leaves it.
  void emit_text(size_t tag, char sign, bool is_output) {
    const std::string_view all = rest_.substr(pos_, tag - pos_);
    std::string_view kept = all;
    if (sign == '-') {
      kept = strip_right(all);
    } else if (sign != '+' && !is_output) {
      // White space between the start of the line and a block goes.
      const size_t newline = all.rfind('\n');
      const size_t from = newline == std::string_view::npos ? 0 : newline + 1;
      if ((from > 0 || line_starting_) && strip(all.substr(from)).empty()) kept = all.substr(0, from);
    }
    if (!kept.empty()) push(TokenKind::Text, std::string(kept));
    const bool starting = line_starting_;
    skip(all.size());
    if (all.empty()) line_starting_ = starting;
  }

  // Passes the end of a block or comment, which takes one line end with it.
  bool end_of(std::string_view close) {
    const char sign = rest_[pos_];
    const bool signed_close = (sign == '+' || sign == '-') && rest_.substr(pos_ + 1).starts_with(close);
    const size_t signed_size = close.size() + 1;
    if (signed_close) {
      skip(signed_size + (sign == '-' ? spaces_at(pos_ + signed_size) : 0));
    } else if (at(close)) {
      const size_t after = pos_ + close.size();
      skip(close.size() + (after < rest_.size() && rest_[after] == '\n' ? 1 : 0));
    } else {
      return false;
    }
    return true;
  }

  void comment(int begin) {
    while (pos_ < rest_.size()) {
      if (end_of("#}")) return;
      skip(1);
    }
    fail_at(begin, "a comment is not closed: expected '#}}'");
  }

  // {% raw %}: after the opening tag's name comes its end, nothing else.
  bool raw_follows() {
    size_t p = pos_ + spaces_at(pos_);
    if (!rest_.substr(p).starts_with("raw")) return false;
    p += 3;
    p += spaces_at(p);
    if (rest_.substr(p).starts_with("-%}")) {
      p += 3;
      p += spaces_at(p);
    } else if (rest_.substr(p).starts_with("%}")) {
      p += 2;
    } else {
      return false;
    }
    skip(p - pos_);
    return true;
  }

  void raw(int begin) {
    for (size_t tag = rest_.find("{%", pos_); tag != std::string_view::npos; tag = rest_.find("{%", tag + 1)) {
      size_t p = tag + 2;
      const char sign = p < rest_.size() && (rest_[p] == '-' || rest_[p] == '+') ? rest_[p] : 0;
      p += sign ? 1 : 0;
      p += spaces_at(p);
      if (!rest_.substr(p).starts_with("endraw")) continue;
      p += 6;
      p += spaces_at(p);
      const std::string_view tail = rest_.substr(p);
      if (!tail.starts_with("%}") && !tail.starts_with("-%}") && !tail.starts_with("+%}")) continue;
      emit_text(tag, sign, false);
      skip(p - pos_);
      end_of("%}");
      return;
    }
    fail_at(begin, "a raw block is not closed: expected '{{% endraw %}}'");
  }

  void code(TokenKind begin, int begin_line) {
    push(begin, "");
    const bool output = begin == TokenKind::OutputBegin;
    std::vector<char> open;
    while (pos_ < rest_.size()) {
      if (open.empty()) {
        if (output && (at("-}}") || at("}}"))) {
          push(TokenKind::OutputEnd, "");
          if (at("-}}"))
            skip(3 + spaces_at(pos_ + 3));
          else
            skip(2);
          return;
        }
        if (!output && (at("%}") || at("-%}") || at("+%}"))) {
          push(TokenKind::BlockEnd, "");
          end_of("%}");
          return;
        }
      }
      token(open);
    }
    if (output) fail_at(begin_line, "an output is not closed: expected '}}}}'");
    fail_at(begin_line, "a block tag is not closed: expected '%}}'");
  }

  void token(std::vector<char>& open) {
    const char32_t c = point_or_byte_at(rest_, pos_).value;
    if (is_space(c)) return skip_spaces();
    if (is_digit_char(rest_[pos_])) return number();
    if (!is_stray_byte(c) && is_word(c)) return name();
    if (c == '\'' || c == '"') return string(rest_[pos_]);
    for (const std::string_view op : kOperators) {
      if (op.empty() || !at(op)) continue;
      if (op == "(" || op == "[" || op == "{") {
        if (open.size() >= static_cast<size_t>(kMaxParseDepth))
          fail_at(line_, "brackets nest deeper than {} levels", kMaxParseDepth);
        open.push_back(op[0] == '(' ? ')' : op[0] == '[' ? ']' : '}');
      } else if (op == ")" || op == "]" || op == "}") {
        if (open.empty()) fail_at(line_, "unexpected '{}'", op);
        if (open.back() != op[0]) fail_at(line_, "unexpected '{}', expected '{}'", op, open.back());
        open.pop_back();
      }
      push(TokenKind::Operator, std::string(op));
      return skip(op.size());
    }
    fail_at(line_, "unexpected character '{}'", rest_.substr(pos_, point_bytes(rest_, pos_)));
  }

  void name() {
    size_t end = pos_;
    while (end < rest_.size()) {
      const auto [c, n] = point_or_byte_at(rest_, end);
      if (is_stray_byte(c) || !is_word(c)) break;
      end += n;
    }
    push(TokenKind::Name, std::string(rest_.substr(pos_, end - pos_)));
    skip(end - pos_);
  }

  // Digits with single underscores between them; returns where they end.
  template <typename IsDigit>
  size_t digits(size_t p, IsDigit is) const {
    if (p >= rest_.size() || !is(rest_[p])) return p;
    while (p < rest_.size()) {
      if (is(rest_[p]))
        ++p;
      else if (rest_[p] == '_' && p + 1 < rest_.size() && is(rest_[p + 1]))
        p += 2;
      else
        break;
    }
    return p;
  }

  void number() {
    const auto char_at = [&](size_t p) { return p < rest_.size() ? rest_[p] : '\0'; };
    // A float: digits, then a fraction or an exponent or both; not right after a dot (a.1.2).
    if (pos_ == 0 || rest_[pos_ - 1] != '.') {
      const size_t whole = digits(pos_, is_digit_char);
      size_t end = whole;
      if (char_at(end) == '.' && is_digit_char(char_at(end + 1))) end = digits(end + 1, is_digit_char);
      if ((char_at(end) | 0x20) == 'e') {
        size_t p = end + 1;
        if (char_at(p) == '+' || char_at(p) == '-') ++p;
        if (is_digit_char(char_at(p))) end = digits(p, is_digit_char);
      }
      if (end != whole) {
        std::string text;
        for (const char c : rest_.substr(pos_, end - pos_))
          if (c != '_') text += c;
        push(TokenKind::Float, text, Value::number(std::strtod(text.c_str(), nullptr)));
        return skip(end - pos_);
      }
    }
    int base = 10;
    size_t start = pos_;
    size_t end;
    const char marker = static_cast<char>(char_at(pos_ + 1) | 0x20);
    const auto is_hex = [](char c) { return is_digit_char(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); };
    const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
    const auto is_binary = [](char c) { return c == '0' || c == '1'; };
    const auto prefixed = [&](auto is) {
      const size_t from = char_at(pos_ + 2) == '_' ? pos_ + 3 : pos_ + 2;
      const size_t to = digits(from, is);
      if (to == from) return false;
      start = from;
      end = to;
      return true;
    };
    if (rest_[pos_] == '0' && marker == 'x' && prefixed(is_hex))
      base = 16;
    else if (rest_[pos_] == '0' && marker == 'o' && prefixed(is_octal))
      base = 8;
    else if (rest_[pos_] == '0' && marker == 'b' && prefixed(is_binary))
      base = 2;
    else
      end = rest_[pos_] == '0' ? digits(pos_, [](char c) { return c == '0'; }) : digits(pos_, is_digit_char);
    Int value = 0;
    for (const char c : rest_.substr(start, end - start)) {
      if (c == '_') continue;
      value = value * base + (is_digit_char(c) ? c - '0' : (c | 0x20) - 'a' + 10);
      if (value > std::numeric_limits<int64_t>::max()) fail_at(line_, "an integer does not fit into 64 bits");
    }
    push(TokenKind::Integer, std::string(rest_.substr(pos_, end - pos_)), Value::integer(value));
    skip(end - pos_);
  }

  void string(char quote) {
    std::string out;
    size_t p = pos_ + 1;
    for (; p < rest_.size() && rest_[p] != quote; ++p) {
      if (rest_[p] != '\\') {
        out += rest_[p];
        continue;
      }
      if (++p >= rest_.size()) break;
      p = escape(p, out);
    }
    if (p >= rest_.size()) fail_at(line_, "a string is not closed: expected {}", quote);
    push(TokenKind::String, std::move(out));
    skip(p + 1 - pos_);
  }

  // The escape whose letter is at p; returns its last byte.
  size_t escape(size_t p, std::string& out) const {
    const auto code = [&](size_t from, size_t count, int base) {
      char32_t c = 0;
      for (size_t i = from; i < from + count; ++i) {
        const char d = i < rest_.size() ? rest_[i] : '\0';
        const int digit = is_digit_char(d)                         ? d - '0'
                          : (d | 0x20) >= 'a' && (d | 0x20) <= 'f' ? (d | 0x20) - 'a' + 10
                                                                   : 99;
        if (digit >= base) fail_at(line_, "a string holds an incomplete escape: expected {} hexadecimal digits", count);
        c = c * static_cast<char32_t>(base) + static_cast<char32_t>(digit);
      }
      if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) fail_at(line_, "a string holds an escape that is no character");
      append_utf8(c, &out);
    };
    switch (rest_[p]) {
      case 'n': out += '\n'; return p;
      case 't': out += '\t'; return p;
      case 'r': out += '\r'; return p;
      case 'a': out += '\a'; return p;
      case 'b': out += '\b'; return p;
      case 'f': out += '\f'; return p;
      case 'v': out += '\v'; return p;
      case '\\':
      case '\'':
      case '"': out += rest_[p]; return p;
      case '\n': return p;  // a line that goes on
      case 'x': code(p + 1, 2, 16); return p + 2;
      case 'u': code(p + 1, 4, 16); return p + 4;
      case 'U': code(p + 1, 8, 16); return p + 8;
      case 'N': fail_at(line_, "a string names a character by \\N, which is not supported");
      default: break;
    }
    if (rest_[p] >= '0' && rest_[p] <= '7') {
      size_t n = 1;
      while (n < 3 && p + n < rest_.size() && rest_[p + n] >= '0' && rest_[p + n] <= '7') ++n;
      code(p, n, 8);
      return p + n - 1;
    }
    out += '\\';
    out += rest_[p];
    return p;
  }

  const std::string source_;
  const std::string_view rest_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(normalize(source)).run(); }

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::Text: return "text";
    case TokenKind::OutputBegin: return "'{{'";
    case TokenKind::OutputEnd: return "'}}'";
    case TokenKind::BlockBegin: return "'{%'";
    case TokenKind::BlockEnd: return "'%}'";
    case TokenKind::String: return "a string";
    case TokenKind::End: return "the end of the template";
    default: return "'" + token.text + "'";
  }
}

}  // namespace reprise::text::jinja

#include "checkpoint/name_pattern.h"

#include <re2/re2.h>

#include <optional>

namespace reprise::checkpoint {
namespace {

constexpr int64_t kProgramBytes = 1 << 20;  // bounds the size of a program and of what RE2 keeps of it
constexpr uint32_t kLastCodePoint = 0x10FFFF;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::optional<uint32_t> hex_value(std::string_view digits) {
  uint32_t v = 0;
  for (const char c : digits) {
    uint32_t d = 0;
    if (is_digit(c))
      d = static_cast<uint32_t>(c - '0');
    else if ((c | 32) >= 'a' && (c | 32) <= 'f')
      d = static_cast<uint32_t>((c | 32) - 'a') + 10;
    else
      return std::nullopt;
    v = v * 16 + d;
  }
  return v;
}

// Walks a pattern as Python's parser does. Names of modules are ASCII without newlines (any other tensor is left over,
// an error of its own), so \d, \s, \w, \b and $ need no translation.
class PatternTranslator {
 public:
  explicit PatternTranslator(std::string_view text) : text_(text) {}

  Result<std::string> run() {
    RETURN_IF_ERROR(global_flags());
    while (at_ < text_.size()) RETURN_IF_ERROR(item());
    return std::move(out_);
  }

 private:
  enum class Before : uint8_t { Nothing, Assertion, Repeated, Atom };  // what a quantifier would stand behind
  struct ClassItem {
    std::optional<uint32_t> literal;  // none: a class such as \d, in `text`
    std::string text;
  };

  Status fail(std::string_view what) const { return invalid("{} at character {}", what, start_ + 1); }
  bool has(size_t n) const { return at_ + n <= text_.size(); }
  char peek(size_t ahead = 0) const { return has(ahead + 1) ? text_[at_ + ahead] : '\0'; }
  bool take(std::string_view expected) {
    if (!text_.substr(at_).starts_with(expected)) return false;
    at_ += expected.size();
    return true;
  }

  void literal(uint32_t code) {
    if (code < 0x80 && (is_letter(static_cast<char>(code)) || is_digit(static_cast<char>(code))))
      out_ += static_cast<char>(code);
    else
      out_ += fmt::format("\\x{{{:x}}}", code);
    before_ = Before::Atom;
  }

  Result<uint32_t> code_point() {
    const auto first = static_cast<unsigned char>(text_[at_]);
    const size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (!has(length)) return fail("invalid UTF-8");
    uint32_t code = length == 1 ? first : first & (0x7Fu >> length);
    for (size_t i = 1; i < length; ++i) code = code << 6 | (static_cast<unsigned char>(text_[at_ + i]) & 0x3Fu);
    at_ += length;
    return code;
  }

  Status item() {
    start_ = at_;
    const char c = peek();
    switch (c) {
      case '\\': return escape();
      case '[': return char_class();
      case '(': return group();
      case ')': return append(1, Before::Atom);
      case '|': return append(1, Before::Nothing);
      case '.': return append(1, Before::Atom);
      case '^':
      case '$': return append(1, Before::Assertion);
      case '*':
      case '+':
      case '?': ++at_; return repeat(std::string(1, c));
      case '{': return braces();
      default: break;
    }
    ASSIGN_OR_RETURN(const uint32_t code, code_point());
    literal(code);
    return Status::ok();
  }

  Status append(size_t n, Before before) {
    out_ += text_.substr(at_, n);
    at_ += n;
    before_ = before;
    return Status::ok();
  }

  Status repeat(const std::string& quantifier) {
    if (before_ == Before::Repeated) return fail("multiple repeat");
    if (before_ != Before::Atom) return fail("nothing to repeat");
    out_ += quantifier;
    if (take("?")) out_ += '?';
    if (peek() == '+') return fail("a possessive quantifier");
    before_ = Before::Repeated;
    return Status::ok();
  }

  // {n}, {n,}, {,m} and {n,m}; anything else is a brace.
  Status braces() {
    size_t end = at_ + 1;
    const auto number = [&] {
      const size_t from = end;
      while (end < text_.size() && is_digit(text_[end])) ++end;
      return std::string(text_.substr(from, end - from));
    };
    const std::string low = number();
    const bool range = end < text_.size() && text_[end] == ',';
    if (range) ++end;
    const std::string high = range ? number() : low;
    if ((low.empty() && !range) || end >= text_.size() || text_[end] != '}') {
      ++at_;
      literal('{');
      return Status::ok();
    }
    constexpr size_t kMostDigits = 6;
    if (low.size() > kMostDigits || high.size() > kMostDigits) return fail("a repeat count that is too large");
    const int least = low.empty() ? 0 : std::stoi(low), most = high.empty() ? -1 : std::stoi(high);
    if (most >= 0 && least > most) return fail("a least repeat count above the greatest");
    at_ = end + 1;
    return repeat(most < 0 ? fmt::format("{{{},}}", least) : fmt::format("{{{},{}}}", least, most));
  }

  // "(?i)" and the like, which Python allows at the very beginning alone.
  Status global_flags() {
    while (text_.substr(at_).starts_with("(?")) {
      size_t end = at_ + 2;
      while (end < text_.size() && is_letter(text_[end])) ++end;
      if (end == at_ + 2 || end >= text_.size() || text_[end] != ')') return Status::ok();
      start_ = at_;
      ASSIGN_OR_RETURN(const std::string flags, known_flags(text_.substr(at_ + 2, end - at_ - 2), true));
      if (!flags.empty()) out_ += fmt::format("(?{})", flags);
      at_ = end + 1;
    }
    return Status::ok();
  }

  // Those that change what ASCII names match.
  Result<std::string> known_flags(std::string_view letters, bool on) const {
    std::string out;
    for (const char c : letters) {
      if (c == 'i' || c == 'm' || c == 's')
        out += c;
      else if (c == 'x' || c == 'L')
        return fail(fmt::format("the flag {}", c));
      else if (!on || (c != 'a' && c != 'u'))
        return fail(fmt::format("the unknown flag {}", c));
    }
    return out;
  }

  Status group() {
    ++at_;
    if (take("?#")) return comment();
    before_ = Before::Nothing;
    if (!take("?") || take(":")) {
      out_ += "(?:";
      return Status::ok();
    }
    if (take("P<")) return named_group();
    if (take("P=")) return fail("a reference to a group");
    for (const std::string_view look : {"=", "!", "<=", "<!"})
      if (take(look)) return fail(fmt::format("look-around (?{})", look));
    if (take(">")) return fail("an atomic group");
    if (take("(")) return fail("a condition");
    return flag_group();
  }

  Status named_group() {
    const size_t end = text_.find('>', at_);
    if (end == std::string_view::npos || end == at_ || is_digit(text_[at_])) return fail("a bad group name");
    for (size_t i = at_; i < end; ++i)
      if (!is_letter(text_[i]) && !is_digit(text_[i]) && text_[i] != '_') return fail("a bad group name");
    const std::string name(text_.substr(at_, end - at_));
    if (names_.find('<' + name + '>') != std::string::npos) return fail("a group name given twice");
    names_ += '<' + name + '>';
    at_ = end + 1;
    out_ += "(?:";
    return Status::ok();
  }

  Status comment() {
    const size_t end = text_.find(')', at_);
    if (end == std::string_view::npos) return fail("a comment without end");
    at_ = end + 1;
    return Status::ok();
  }

  // "(?i-s:"
  Status flag_group() {
    const auto letters = [&] {
      const size_t from = at_;
      while (is_letter(peek())) ++at_;
      return text_.substr(from, at_ - from);
    };
    const std::string_view on = letters();
    const bool minus = take("-");
    const std::string_view off = minus ? letters() : std::string_view();
    if (peek() == ')' && !on.empty()) return fail("flags for the whole pattern behind its beginning");
    if (!take(":") || (on.empty() && !minus) || (minus && off.empty())) return fail("an unknown extension (?");
    ASSIGN_OR_RETURN(const std::string set, known_flags(on, true));
    ASSIGN_OR_RETURN(const std::string cleared, known_flags(off, false));
    if (cleared.find_first_of(set) != std::string::npos) return fail("a flag set and cleared");
    out_ += cleared.empty() ? fmt::format("(?{}:", set) : fmt::format("(?{}-{}:", set, cleared);
    return Status::ok();
  }

  Status escape() {
    const char c = peek(1);
    switch (c) {
      case 'A':
      case 'b':
      case 'B': return append(2, Before::Assertion);
      case 'Z':
      case 'z':
        at_ += 2;
        out_ += "\\z";
        before_ = Before::Assertion;
        return Status::ok();
      case 'd':
      case 'D':
      case 's':
      case 'S':
      case 'w':
      case 'W': return append(2, Before::Atom);
      default: break;
    }
    ++at_;
    ASSIGN_OR_RETURN(const uint32_t code, escaped_literal());
    literal(code);
    return Status::ok();
  }

  // Behind the backslash; what stands for one character inside a class and outside of it.
  Result<uint32_t> escaped_literal() {
    if (!has(1)) return fail("a backslash without anything behind it");
    const char c = peek();
    constexpr std::string_view kNames = "afnrtv", kCodes = "\a\f\n\r\t\v";
    if (const size_t i = kNames.find(c); i != std::string_view::npos) {
      ++at_;
      return static_cast<uint32_t>(kCodes[i]);
    }
    if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      const auto code = has(1 + digits) ? hex_value(text_.substr(at_ + 1, digits)) : std::nullopt;
      if (!code || *code > kLastCodePoint || (*code >= 0xD800 && *code <= 0xDFFF))
        return fail(fmt::format("an incomplete escape \\{}", c));
      at_ += 1 + digits;
      return *code;
    }
    if (is_digit(c)) return fail(fmt::format("\\{}, a reference to a group or an octal number,", c));
    if (is_letter(c)) return fail(fmt::format("a bad escape \\{}", c));
    return code_point();
  }

  Result<ClassItem> class_item() {
    if (!has(1)) return fail("a character class without end");
    if (peek() != '\\') {
      ASSIGN_OR_RETURN(const uint32_t code, code_point());
      return ClassItem{code, {}};
    }
    ++at_;
    const char c = peek();
    if (has(1) && std::string_view("dDsSwW").find(c) != std::string_view::npos) {
      ++at_;
      return ClassItem{std::nullopt, fmt::format("\\{}", c)};
    }
    if (take("b")) return ClassItem{uint32_t{'\b'}, {}};
    ASSIGN_OR_RETURN(const uint32_t code, escaped_literal());
    return ClassItem{code, {}};
  }

  Status char_class() {
    ++at_;
    out_ += take("^") ? "[^" : "[";
    for (bool first = true; first || peek() != ']'; first = false) {
      ASSIGN_OR_RETURN(const ClassItem low, class_item());
      const bool range = peek() == '-' && has(2) && peek(1) != ']';
      if (!range) {
        out_ += low.literal ? fmt::format("\\x{{{:x}}}", *low.literal) : low.text;
        continue;
      }
      ++at_;
      ASSIGN_OR_RETURN(const ClassItem high, class_item());
      if (!low.literal || !high.literal || *low.literal > *high.literal) return fail("a bad character range");
      out_ += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", *low.literal, *high.literal);
    }
    ++at_;
    out_ += ']';
    before_ = Before::Atom;
    return Status::ok();
  }

  std::string_view text_;
  size_t at_ = 0, start_ = 0;  // start_: of the item that errors name
  Before before_ = Before::Nothing;
  std::string out_, names_;
};

}  // namespace

Result<std::string> re2_from_python(std::string_view python) { return PatternTranslator(python).run(); }

Result<NamePattern> NamePattern::compile(std::string_view python) {
  if (python.size() > kLongest) return invalid("it has {} bytes; allowed: up to {}", python.size(), kLongest);
  ASSIGN_OR_RETURN(const std::string translated, re2_from_python(python));
  RE2::Options options;
  options.set_log_errors(false);
  options.set_never_capture(true);
  options.set_max_mem(kProgramBytes);
  NamePattern out;
  const auto re = std::make_shared<const RE2>(translated, options);
  if (!re->ok()) return invalid("{}", re->error());
  out.re_ = re;
  return out;
}

bool NamePattern::matches(std::string_view name) const {
  return re_->Match(re2::StringPiece(name.data(), name.size()), 0, name.size(), RE2::ANCHOR_START, nullptr, 0);
}

size_t NamePattern::cost() const { return static_cast<size_t>(re_->ProgramSize()); }

}  // namespace reprise::checkpoint

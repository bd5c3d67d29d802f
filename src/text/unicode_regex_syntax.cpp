// Oniguruma (Ruby syntax) to PCRE2. The two mostly agree; what differs is rewritten (classes such as \s and \p{L}, for
// their Unicode versions; \h; (?m); {n,m}+; nested and intersected classes), and what only one of them knows is
// refused.
#include <algorithm>
#include <cctype>
#include <vector>

#include "text/unicode_additions.h"
#include "text/unicode_regex.h"
#include "text/utf8.h"

namespace reprise::text {
namespace {

constexpr int kMaxNesting = 64;

// Members of a class, without the brackets.
constexpr std::string_view kSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kHex = "0-9A-Fa-f";
constexpr std::string_view kHanSinceUnicode14 = R"(\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})";

// Ranges of the additions whose category begins with `prefix`.
std::string additions(std::string_view prefix) {
  std::string out;
  for (const UnicodeAddition& a : kUnicodeAdditions) {
    if (a.category.substr(0, prefix.size()) == prefix)
      out += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", uint32_t{a.first}, uint32_t{a.last});
  }
  return out;
}

std::string word_members() {
  return "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}" + additions("L") + additions("M") +
         additions("Nd");
}

bool is_general_category(std::string_view name) {
  constexpr std::string_view kMajor = "CLMNPSZ";
  if (name.empty() || name.size() > 2 || kMajor.find(name[0]) == std::string_view::npos) return false;
  return name.size() == 1 || (name[1] >= 'a' && name[1] <= 'z');
}

// What an escape stands for: members of a class, or something else that only makes sense outside one.
struct Escape {
  std::string members;
  bool negated = false;  // the complement of the members
  std::string plain;     // set instead of members: text to copy
  bool is_property = false;
};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    if (!is_valid_utf8(in_)) return invalid("bad pattern: not valid UTF-8");
    RETURN_IF_ERROR(sequence());
    return std::move(out_);
  }

 private:
  bool done() const { return at_ >= in_.size(); }
  char peek(size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  bool take(std::string_view text) {
    if (in_.substr(at_).substr(0, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }
  Status refuse(std::string_view what) const {
    return invalid(
        "bad pattern: {} at byte {}; Oniguruma's groups (?: (?= (?! (?> (?<= (?<! (?<name> and the options "
        "i, m, x are known",
        what, at_);
  }

  Status sequence() {
    std::vector<size_t> groups;  // where each open group began in out_
    size_t atom = 0;             // where the last atom began in out_
    while (!done()) {
      const char c = peek();
      switch (c) {
        case '\\': {
          atom = out_.size();
          ASSIGN_OR_RETURN(const Escape e, escape(false));
          append_atom(e);
          break;
        }
        case '[': {
          atom = out_.size();
          ++at_;
          ASSIGN_OR_RETURN(const std::string cls, char_class(0));
          out_ += cls;
          break;
        }
        case '(': {
          if (groups.size() >= kMaxNesting) return refuse("groups nested too deeply");
          const size_t begin = out_.size();
          bool opened = true;
          RETURN_IF_ERROR(open_group(&opened));
          if (opened) groups.push_back(begin);
          atom = begin;
          break;
        }
        case ')':
          if (groups.empty()) return refuse("unmatched )");
          atom = groups.back();
          groups.pop_back();
          out_ += ')';
          ++at_;
          break;
        case '{': RETURN_IF_ERROR(interval(&atom)); break;
        case '*':
        case '+':
        case '?':
          out_ += c;
          ++at_;
          break;
        default: {
          atom = out_.size();
          const CodePoint p = code_point_at(in_, at_);
          out_ += in_.substr(at_, p.size);
          at_ += p.size;
        }
      }
    }
    if (!groups.empty()) return refuse("missing )");
    return Status::ok();
  }

  void append_atom(const Escape& e) {
    if (!e.plain.empty()) {
      out_ += e.plain;
    } else {
      out_ += (e.negated ? "[^" : "[") + e.members + "]";
    }
  }

  // {n}, {n,}, {n,m}, {,m}; anything else is a brace. {n,m}+ repeats here, where PCRE2 would forbid backtracking.
  Status interval(size_t* atom) {
    size_t end = at_ + 1;
    while (end < in_.size() && ((in_[end] >= '0' && in_[end] <= '9') || in_[end] == ',')) ++end;
    const std::string_view body = in_.substr(at_ + 1, end - at_ - 1);
    const size_t commas = static_cast<size_t>(std::count(body.begin(), body.end(), ','));
    if (end >= in_.size() || in_[end] != '}' || body.empty() || body == "," || commas > 1) {
      *atom = out_.size();
      out_ += "\\{";
      ++at_;
      return Status::ok();
    }
    out_ += fmt::format("{{{}{}}}", body[0] == ',' ? "0" : "", body);
    at_ = end + 1;
    if (peek() == '+') {
      out_.insert(*atom, "(?:");
      out_ += ')';
    }
    return Status::ok();
  }

  Status open_group(bool* opened) {
    if (peek(1) == '*') return refuse("(*");
    if (peek(1) != '?') {
      out_ += "(?:";
      ++at_;
      return Status::ok();
    }
    if (take("(?#")) {
      const size_t end = in_.find(')', at_);
      if (end == std::string_view::npos) return refuse("missing )");
      at_ = end + 1;
      *opened = false;
      return Status::ok();
    }
    for (std::string_view known : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"}) {
      if (take(known)) {
        out_ += known;
        return Status::ok();
      }
    }
    if (peek(2) == '<') {  // a name is of no use without references
      const size_t end = in_.find('>', at_);
      if (end == std::string_view::npos) return refuse("group name without >");
      at_ = end + 1;
      out_ += "(?:";
      return Status::ok();
    }
    return options(opened);
  }

  // (?imx-imx) and (?imx-imx:...)
  Status options(bool* opened) {
    size_t i = at_ + 2;
    std::string letters;
    for (; i < in_.size() && in_[i] != ')' && in_[i] != ':'; ++i) {
      const char c = in_[i];
      if (c == 'm') {
        letters += 's';  // what others call dot-all
      } else if (c == 'i' || c == 'x' || c == '-') {
        letters += c;
      } else {
        return refuse("unknown group");
      }
    }
    if (i >= in_.size()) return refuse("missing )");
    out_ += "(?" + letters + in_[i];
    at_ = i + 1;
    *opened = in_[i] == ':';
    return Status::ok();
  }

  Result<char32_t> hex(size_t min_digits, size_t max_digits) {
    uint32_t value = 0;
    size_t digits = 0;
    for (; digits < max_digits && std::isxdigit(static_cast<unsigned char>(peek())); ++digits, ++at_) {
      const char c = peek();
      value = value * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (digits < min_digits || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return refuse("bad code point");
    return static_cast<char32_t>(value);
  }

  static Escape literal(char32_t c) {
    Escape e;
    e.plain = fmt::format("\\x{{{:x}}}", uint32_t{c});
    return e;
  }
  static Escape members(std::string m, bool negated = false) {
    Escape e;
    e.members = std::move(m);
    e.negated = negated;
    return e;
  }

  // Reads from the backslash on.
  Result<Escape> escape(bool in_class) {
    ++at_;
    if (done()) return refuse("pattern ends in a backslash");
    const char c = peek();
    const CodePoint p = code_point_at(in_, at_);
    at_ += p.size;
    if (p.value >= 0x80 || !std::isalnum(static_cast<unsigned char>(c))) return literal(p.value);
    switch (c) {
      case 's': return members(std::string(kSpace));
      case 'S': return members(std::string(kNotSpace));
      case 'd': return members("\\p{Nd}" + additions("Nd"));
      case 'D': return members("\\p{Nd}" + additions("Nd"), true);
      case 'w': return members(word_members());
      case 'W': return members(word_members(), true);
      case 'h': return members(std::string(kHex));
      case 'H': return members(std::string(kHex), true);
      case 'n': return literal('\n');
      case 'r': return literal('\r');
      case 't': return literal('\t');
      case 'f': return literal('\f');
      case 'v': return literal('\v');
      case 'a': return literal('\a');
      case 'e': return literal(0x1B);
      case 'p':
      case 'P': return property(c == 'P');
      case 'u': {
        ASSIGN_OR_RETURN(const char32_t value, hex(4, 4));
        return literal(value);
      }
      case 'x': {
        const bool braced = take("{");
        ASSIGN_OR_RETURN(const char32_t value, hex(1, braced ? 8 : 2));
        if (braced && !take("}")) return refuse("\\x{ without }");
        return literal(value);
      }
      case '0': return literal(0);
      case 'b':
        if (in_class) return literal('\b');
        return boundary(false);
      case 'B':
        if (!in_class) return boundary(true);
        break;
      case 'A':
      case 'z':
      case 'Z':
      case 'G':
      case 'R':
      case 'X':
        if (!in_class) {
          Escape e;
          e.plain = std::string("\\") + c;
          return e;
        }
        break;
      default: break;
    }
    at_ -= 2;
    return refuse(fmt::format("unknown escape \\{}", c));
  }

  static Escape boundary(bool negated) {
    const std::string w = "[" + word_members() + "]";
    Escape e;
    e.plain = negated ? fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", w)
                      : fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", w);
    return e;
  }

  Result<Escape> property(bool negated) {
    if (!take("{")) return refuse("\\p without {");
    const size_t end = in_.find('}', at_);
    if (end == std::string_view::npos) return refuse("\\p{ without }");
    std::string_view name = in_.substr(at_, end - at_);
    at_ = end + 1;
    if (!name.empty() && name[0] == '^') {
      negated = !negated;
      name.remove_prefix(1);
    }
    std::string spelled = fmt::format("\\p{{{}}}", name);
    if (is_general_category(name) && name[0] != 'C') spelled += additions(name);
    // PCRE2 takes the name of a script for all that is used with it, Oniguruma for the script alone.
    if (name == "Han") spelled = "\\p{sc:Han}" + std::string(kHanSinceUnicode14);
    Escape e = members(std::move(spelled), negated);
    e.is_property = true;
    return e;
  }

  // A union of members of one class and of whole classes.
  struct Union {
    std::string members;
    std::vector<std::string> classes;
    bool empty() const { return members.empty() && classes.empty(); }
    std::string regex() const {
      std::string own = members.empty() ? "" : "[" + members + "]";
      if (classes.empty()) return own;
      std::string all = "(?:" + own;
      for (size_t i = 0; i < classes.size(); ++i) all += (i > 0 || !own.empty() ? "|" : "") + classes[i];
      return all + ")";
    }
  };

  // Reads from behind the opening bracket to behind the closing one; the answer matches one character.
  Result<std::string> char_class(int depth) {
    if (depth > 8) return refuse("classes nested too deeply");
    const bool negated = take("^");
    std::vector<Union> parts(1);
    bool first = true;
    while (true) {
      if (done()) return refuse("missing ]");
      if (peek() == ']' && !first) {
        ++at_;
        break;
      }
      first = false;
      if (take("&&")) {
        parts.emplace_back();
        first = true;
        continue;
      }
      RETURN_IF_ERROR(class_member(&parts.back(), depth));
    }
    for (const Union& u : parts) {
      if (u.empty()) return refuse("empty class");
    }
    if (parts.size() == 1 && parts[0].classes.empty()) return (negated ? "[^" : "[") + parts[0].members + "]";
    std::string all = parts.back().regex();
    for (size_t i = parts.size() - 1; i-- > 0;) all = fmt::format("(?:(?={}){})", all, parts[i].regex());
    return negated ? fmt::format("(?:(?!{})(?s:.))", all) : all;
  }

  Status class_member(Union* into, int depth) {
    if (peek() == '[' && peek(1) == ':') return posix_class(into);
    if (take("[")) {
      ASSIGN_OR_RETURN(std::string nested, char_class(depth + 1));
      into->classes.push_back(std::move(nested));
      return Status::ok();
    }
    ASSIGN_OR_RETURN(const Escape low, class_atom());
    if (low.plain.empty()) {
      if (low.negated && low.is_property && low.members.find("\\x") == std::string::npos) {
        into->members += "\\P" + low.members.substr(2);
      } else if (low.negated) {
        into->classes.push_back("[^" + low.members + "]");
      } else {
        into->members += low.members;
      }
      return Status::ok();
    }
    into->members += low.plain;
    if (peek() == '-' && peek(1) != ']' && peek(1) != '\0') {
      ++at_;
      if (peek() == '[') return refuse("a range that ends in a class");
      ASSIGN_OR_RETURN(const Escape high, class_atom());
      if (high.plain.empty()) return refuse("a range that ends in a class");
      into->members += '-' + high.plain;
    }
    return Status::ok();
  }

  Result<Escape> class_atom() {
    if (peek() == '\\') return escape(true);
    const CodePoint p = code_point_at(in_, at_);
    at_ += p.size;
    return literal(p.value);
  }

  Status posix_class(Union* into) {
    const size_t end = in_.find(":]", at_ + 2);
    if (end == std::string_view::npos) return refuse("[: without :]");
    const std::string_view name = in_.substr(at_ + 2, end - at_ - 2);
    struct Posix {
      std::string_view name, members;
    };
    static constexpr Posix kPosix[] = {{"alpha", "\\p{Alphabetic}"},        {"digit", "\\p{Nd}"},
                                       {"alnum", "\\p{Alphabetic}\\p{Nd}"}, {"upper", "\\p{Uppercase}"},
                                       {"lower", "\\p{Lowercase}"},         {"space", kSpace},
                                       {"punct", "\\p{P}\\p{S}"},           {"xdigit", kHex}};
    for (const Posix& p : kPosix) {
      if (p.name != name) continue;
      into->members += p.members;
      at_ = end + 2;
      return Status::ok();
    }
    return refuse(fmt::format("unknown class [:{}:] (alpha, digit, alnum, upper, lower, space, punct, xdigit)", name));
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> translate_pattern(std::string_view oniguruma) { return Translator(oniguruma).run(); }

}  // namespace reprise::text

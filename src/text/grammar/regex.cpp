#include "text/grammar/regex.h"

#include <algorithm>
#include <optional>

#include "text/utf8.h"

namespace reprise::text::grammar {
namespace {

constexpr size_t kMaxGroups = 200;  // within each other
constexpr uint32_t kMaxRepeat = 100'000;

using Kind = RegexTree::Kind;

const CodePointSet kDigits{{'0', '9'}};
const CodePointSet kWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodePointSet kSpace{{'\t', '\r'}, {' ', ' '}};
const CodePointSet kLineEnd{{'\n', '\n'}};

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

class Parser {
 public:
  explicit Parser(std::string_view pattern) : text_(pattern) {}

  Result<RegexTree> parse() {
    while (true) {
      RegexTree::Alternative alternative{0, false, false};
      while (take("^")) alternative.from_start = true;
      ASSIGN_OR_RETURN(alternative.item, sequence(0));
      while (take("$")) alternative.to_end = true;
      if (at_ < text_.size() && text_[at_] != '|') {
        if (text_[at_] == ')') return fail("a ) without its (");
        return fail("nothing may follow $ but |");
      }
      tree_.alternatives.push_back(alternative);
      if (!take("|")) return std::move(tree_);
    }
  }

 private:
  Status fail(std::string_view what) const { return invalid("regex: position {}: {}", at_, what); }
  bool take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  uint32_t add(RegexTree::Item item) {
    tree_.items.push_back(std::move(item));
    return static_cast<uint32_t>(tree_.items.size() - 1);
  }
  uint32_t add_class(CodePointSet set) { return add({Kind::Class, {}, std::move(set)}); }

  // One alternative, up to "|", ")", "$" or the end.
  Result<uint32_t> sequence(size_t depth) {
    RegexTree::Item out{Kind::Sequence};
    while (at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')') {
      if (text_[at_] == '$') {
        if (depth == 0) break;
        return fail("$ is only understood at the end of the pattern or of an outermost alternative");
      }
      ASSIGN_OR_RETURN(uint32_t item, atom(depth));
      ASSIGN_OR_RETURN(item, quantified(item));
      if (tree_.items[item].kind != Kind::Nothing) out.parts.push_back(item);
    }
    if (out.parts.size() == 1) return out.parts[0];
    if (out.parts.empty()) out.kind = Kind::Nothing;
    return add(std::move(out));
  }

  Result<uint32_t> atom(size_t depth) {
    switch (text_[at_]) {
      case '(': return group(depth);
      case '[': return bracket();
      case '.': ++at_; return add_class(kLineEnd.inverted());
      case '^': return fail("^ is only understood at the start of the pattern or of an outermost alternative");
      case '*':
      case '+':
      case '?': return fail("nothing to repeat");
      case '\\': {
        ASSIGN_OR_RETURN(CodePointSet set, escape(false));
        return add_class(std::move(set));
      }
      default: break;
    }
    if (const auto repeat = braces()) return fail("nothing to repeat");
    const CodePoint c = code_point_at(text_, at_);
    at_ += c.size;
    return add_class({{c.value, c.value}});
  }

  Result<uint32_t> group(size_t depth) {
    if (depth >= kMaxGroups) return fail("groups are nested too deep; at most 200 within each other");
    const size_t begin = at_++;
    if (text_.substr(at_).starts_with("?")) {
      if (take("?:")) {
      } else if (take("?P<") ||
                 (!text_.substr(at_).starts_with("?<=") && !text_.substr(at_).starts_with("?<!") && take("?<"))) {
        const size_t close = text_.find('>', at_);
        if (close == std::string_view::npos) return fail("the name of a group does not end");
        at_ = close + 1;
      } else {
        at_ = begin;
        for (const char* look : {"(?=", "(?!", "(?<=", "(?<!"}) {
          if (text_.substr(at_).starts_with(look)) return fail("look-around cannot be used here");
        }
        return fail("of the groups that begin with (? only (?:...) and named ones can be used here");
      }
    }
    RegexTree::Item either{Kind::Either};
    bool something = false;
    do {
      ASSIGN_OR_RETURN(const uint32_t item, sequence(depth + 1));
      either.parts.push_back(item);
      something = something || tree_.items[item].kind != Kind::Nothing;
    } while (take("|"));
    if (!take(")")) {
      at_ = begin;
      return fail("a ( without its )");
    }
    if (!something) return add({Kind::Nothing});
    return either.parts.size() == 1 ? either.parts[0] : add(std::move(either));
  }

  struct Repeat {
    uint32_t min;
    uint32_t max;
    size_t end;
  };
  // A {m,n} right here. Like everywhere, braces with anything else inside are plain characters.
  std::optional<Repeat> braces() const {
    size_t at = at_;
    if (at >= text_.size() || text_[at] != '{') return std::nullopt;
    ++at;
    const auto number = [&]() -> std::optional<uint32_t> {
      const size_t begin = at;
      uint32_t value = 0;
      for (; at < text_.size() && text_[at] >= '0' && text_[at] <= '9'; ++at)
        value = std::min<uint32_t>(value * 10 + static_cast<uint32_t>(text_[at] - '0'), kMaxRepeat + 1);
      return at == begin ? std::nullopt : std::optional(value);
    };
    const std::optional<uint32_t> min = number();
    std::optional<uint32_t> max = min;
    if (at < text_.size() && text_[at] == ',') {
      ++at;
      max = number();
      if (!max) max = RegexTree::kNoLimit;
    } else if (!min) {
      return std::nullopt;
    }
    if (at >= text_.size() || text_[at] != '}') return std::nullopt;
    return Repeat{min.value_or(0), *max, at + 1};
  }

  Result<uint32_t> quantified(uint32_t item) {
    std::optional<Repeat> repeat = next_quantifier();
    if (!repeat) return item;
    const bool too_large = repeat->min > kMaxRepeat || (repeat->max > kMaxRepeat && repeat->max != RegexTree::kNoLimit);
    if (too_large) return fail("a count is too large; at most 100000");
    if (repeat->min > repeat->max) return fail("the smaller count of {m,n} comes first");
    at_ = repeat->end;
    // A whole text matches a lazy quantifier exactly when it matches a greedy one.
    if (!take("?") && text_.substr(at_).starts_with("+")) return fail("possessive quantifiers cannot be used here");
    if (next_quantifier()) return fail("a quantifier behind a quantifier; put the first into a group");
    if (tree_.items[item].kind == Kind::Nothing) return item;
    return add({Kind::Repeat, {item}, {}, repeat->min, repeat->max});
  }

  std::optional<Repeat> next_quantifier() const {
    if (at_ >= text_.size()) return std::nullopt;
    switch (text_[at_]) {
      case '*': return Repeat{0, RegexTree::kNoLimit, at_ + 1};
      case '+': return Repeat{1, RegexTree::kNoLimit, at_ + 1};
      case '?': return Repeat{0, 1, at_ + 1};
      default: return braces();
    }
  }

  Result<char32_t> hex(size_t digits) {
    char32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const int digit = at_ + i < text_.size() ? hex_value(text_[at_ + i]) : -1;
      if (digit < 0) return invalid("regex: position {}: {} hexadecimal digits must follow", at_, digits);
      value = value * 16 + static_cast<char32_t>(digit);
    }
    at_ += digits;
    return value;
  }

  Result<CodePointSet> one(size_t begin, char32_t c) {
    if (c <= CodePointSet::kLast && (c < 0xD800 || c > 0xDFFF)) return CodePointSet{{c, c}};
    at_ = begin;
    return fail("not a Unicode character");
  }

  Result<CodePointSet> escape(bool in_bracket) {
    const size_t begin = at_++;
    if (at_ >= text_.size()) return fail("the pattern ends in a backslash");
    const char c = text_[at_++];
    switch (c) {
      case 'd': return kDigits;
      case 'D': return kDigits.inverted();
      case 'w': return kWord;
      case 'W': return kWord.inverted();
      case 's': return kSpace;
      case 'S': return kSpace.inverted();
      case 'n': return one(begin, '\n');
      case 'r': return one(begin, '\r');
      case 't': return one(begin, '\t');
      case 'f': return one(begin, '\f');
      case 'v': return one(begin, '\v');
      case 'a': return one(begin, '\a');
      case 'x': {
        ASSIGN_OR_RETURN(const char32_t value, hex(2));
        return one(begin, value);
      }
      case 'U': {
        ASSIGN_OR_RETURN(const char32_t value, hex(8));
        return one(begin, value);
      }
      case 'u': {
        ASSIGN_OR_RETURN(char32_t value, hex(4));
        if (value >= 0xD800 && value < 0xDC00 && take("\\u")) {
          ASSIGN_OR_RETURN(const char32_t low, hex(4));
          value = low >= 0xDC00 && low <= 0xDFFF ? 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00) : 0xD800;
        }
        return one(begin, value);
      }
      default: break;
    }
    if (c == 'b' && in_bracket) return one(begin, '\b');
    const auto unused = static_cast<unsigned char>(c);
    if (unused < 0x80 && std::string_view("_").find(c) == std::string_view::npos && kWord.has(unused)) {
      at_ = begin;
      if (c >= '1' && c <= '9') return fail("back-references cannot be used here");
      return invalid("regex: position {}: \\{} cannot be used here", at_, c);
    }
    --at_;
    const CodePoint literal = code_point_at(text_, at_);
    at_ += literal.size;
    return one(begin, literal.value);
  }

  // One member of a class, which may be a class itself.
  Result<CodePointSet> member() {
    if (text_[at_] == '\\') return escape(true);
    const CodePoint c = code_point_at(text_, at_);
    at_ += c.size;
    return CodePointSet{{c.value, c.value}};
  }

  Result<uint32_t> bracket() {
    const size_t begin = at_++;
    const bool invert = take("^");
    CodePointSet set;
    for (bool first = true; at_ >= text_.size() || text_[at_] != ']' || first; first = false) {
      if (at_ < text_.size()) {
        ASSIGN_OR_RETURN(const CodePointSet low, member());
        const std::string_view rest = text_.substr(at_);
        if (!rest.starts_with("-") || rest.starts_with("-]") || rest.size() < 2) {
          set.add(low);
          continue;
        }
        ++at_;
        ASSIGN_OR_RETURN(const CodePointSet high, member());
        const auto single = [](const CodePointSet& s) {
          return s.ranges().size() == 1 && s.ranges()[0].first == s.ranges()[0].second;
        };
        if (!single(low) || !single(high)) return fail("a range needs a character at both ends");
        if (low.ranges()[0].first > high.ranges()[0].first) return fail("a range goes from the smaller character up");
        set.add(low.ranges()[0].first, high.ranges()[0].first);
        continue;
      }
      at_ = begin;
      return fail("a [ without its ]");
    }
    ++at_;
    return add_class(invert ? set.inverted() : std::move(set));
  }

  std::string_view text_;
  size_t at_ = 0;
  RegexTree tree_;
};

class Emitter {
 public:
  Emitter(RuleBuilder* rules, const RegexTree& tree, EmitClass emit_class)
      : rules_(*rules), tree_(tree), emit_class_(emit_class) {}

  void emit(NodeId from, uint32_t index, NodeId to) {
    const RegexTree::Item& item = tree_.items[index];
    switch (item.kind) {
      case Kind::Nothing: return rules_.jump(from, to);
      case Kind::Class: return emit_class_(&rules_, from, item.set, to);
      case Kind::Either:
        for (const uint32_t part : item.parts) emit(from, part, to);
        return;
      case Kind::Sequence:
        for (size_t i = 0; i < item.parts.size() && !rules_.full(); ++i) {
          const NodeId next = i + 1 == item.parts.size() ? to : rules_.node();
          emit(from, item.parts[i], next);
          from = next;
        }
        return;
      case Kind::Repeat: return repeat(from, item, to);
    }
  }

  void anything(NodeId from, NodeId to) {
    const NodeId loop = rules_.node();
    rules_.jump(from, loop);
    emit_class_(&rules_, loop, CodePointSet{{0, CodePointSet::kLast}}, loop);
    rules_.jump(loop, to);
  }

 private:
  void repeat(NodeId from, const RegexTree::Item& item, NodeId to) {
    const bool open = item.max == RegexTree::kNoLimit;
    const uint32_t copies = open ? item.min : item.max;
    for (uint32_t i = 0; i < copies && !rules_.full(); ++i) {
      if (i >= item.min) rules_.jump(from, to);
      const NodeId next = rules_.node();
      emit(from, item.parts[0], next);
      from = next;
    }
    if (open) {
      const NodeId loop = rules_.node();
      rules_.jump(from, loop);
      emit(loop, item.parts[0], loop);
      from = loop;
    }
    rules_.jump(from, to);
  }

  RuleBuilder& rules_;
  const RegexTree& tree_;
  EmitClass emit_class_;
};

}  // namespace

Result<RegexTree> parse_regex(std::string_view pattern, const GrammarLimits& limits) {
  if (pattern.size() > limits.max_pattern_bytes)
    return invalid("regex: the pattern has {} bytes; at most {} (GrammarLimits::max_pattern_bytes)", pattern.size(),
                   limits.max_pattern_bytes);
  if (!is_valid_utf8(pattern)) return invalid("regex: the pattern is not UTF-8");
  return Parser(pattern).parse();
}

void emit_regex(RuleBuilder* rules, NodeId from, const RegexTree& tree, RegexUse use, EmitClass emit_class, NodeId to) {
  Emitter emitter(rules, tree, emit_class);
  for (const RegexTree::Alternative& alternative : tree.alternatives) {
    NodeId begin = from;
    NodeId end = to;
    if (use == RegexUse::Search && !alternative.from_start) emitter.anything(from, begin = rules->node());
    if (use == RegexUse::Search && !alternative.to_end) emitter.anything(end = rules->node(), to);
    emitter.emit(begin, alternative.item, end);
  }
}

}  // namespace reprise::text::grammar

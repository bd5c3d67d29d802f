#include "text/grammar/json_text.h"

#include <algorithm>
#include <map>

#include "text/utf8.h"

namespace reprise::text::grammar {
namespace {

constexpr int kMaxIndent = 32;

void digit(RuleBuilder* rules, NodeId from, NodeId to) { rules->bytes(from, '0', '9', to); }

void hex_digit(RuleBuilder* rules, NodeId from, NodeId to) {
  rules->bytes(from, '0', '9', to);
  rules->bytes(from, 'A', 'F', to);
  rules->bytes(from, 'a', 'f', to);
}

void either_case(RuleBuilder* rules, NodeId from, char first, char last, NodeId to) {
  rules->bytes(from, static_cast<uint8_t>(first), static_cast<uint8_t>(last), to);
  rules->bytes(from, static_cast<uint8_t>(first | 0x20), static_cast<uint8_t>(last | 0x20), to);
}

// -?(0|[1-9][0-9]*)
void integer_part(RuleBuilder* rules, NodeId from, NodeId to) {
  const NodeId unsigned_part = rules->node();
  const NodeId more = rules->node();
  rules->jump(from, unsigned_part);
  rules->bytes(from, '-', '-', unsigned_part);
  rules->bytes(unsigned_part, '0', '0', to);
  rules->bytes(unsigned_part, '1', '9', more);
  digit(rules, more, more);
  rules->jump(more, to);
}

}  // namespace

void emit_json_character(RuleBuilder* rules, NodeId from, const CodePointSet& set, NodeId to) {
  const CodePointSet escaped = CodePointSet{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  const CodePointSet plain = set.without(escaped);
  emit_utf8(rules, from, plain, to);
  if (set.without(plain).empty()) return;
  const NodeId escape = rules->literal(from, "\\");
  constexpr std::pair<char, char> kLetters[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                                {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
  for (const auto& [c, letter] : kLetters) {
    if (set.has(static_cast<char32_t>(c)))
      rules->bytes(escape, static_cast<uint8_t>(letter), static_cast<uint8_t>(letter), to);
  }
  if (set.within(0, 0x1F).empty()) return;
  const NodeId zeros = rules->literal(escape, "u00");
  for (const char32_t high : {0u, 1u}) {
    const CodePointSet row = set.within(high * 16, high * 16 + 15);
    if (row.empty()) continue;
    const NodeId low = rules->literal(zeros, high == 0 ? "0" : "1");
    for (char32_t c = 0; c < 16; ++c) {
      if (!row.has(high * 16 + c)) continue;
      if (c < 10) {
        rules->bytes(low, static_cast<uint8_t>('0' + c), static_cast<uint8_t>('0' + c), to);
      } else {
        either_case(rules, low, static_cast<char>('A' + c - 10), static_cast<char>('A' + c - 10), to);
      }
    }
  }
}

template <typename Fill>
RuleId JsonText::once(std::optional<RuleId>* kept, const char* name, const Fill& fill) {
  if (!*kept) {
    *kept = rules_.add_rule(name);
    fill(rules_.start(**kept), rules_.end(**kept));
  }
  return **kept;
}

RuleId JsonText::value() {
  return once(&value_, "value", [&](NodeId from, NodeId to) {
    for (const char* word : {"true", "false", "null"}) rules_.literal(from, word, to);
    for (const RuleId rule : {object(), array(), string(), number()}) rules_.call(from, rule, to);
  });
}

RuleId JsonText::object() {
  return once(&object_, "object", [&](NodeId from, NodeId to) {
    const NodeId open = rules_.literal(from, "{");
    const NodeId name = rules_.node();
    const NodeId after_name = rules_.node();
    const NodeId inner = rules_.node();
    const NodeId after = rules_.node();
    const NodeId close = rules_.node();
    blank(open, name);
    rules_.call(name, string(), after_name);
    colon(after_name, inner);
    rules_.call(inner, value(), after);
    comma(after, name);
    rules_.jump(open, close);
    rules_.jump(after, close);
    const NodeId brace = rules_.node();
    blank(close, brace);
    rules_.literal(brace, "}", to);
  });
}

RuleId JsonText::array() {
  return once(&array_, "array", [&](NodeId from, NodeId to) {
    const NodeId open = rules_.literal(from, "[");
    const NodeId inner = rules_.node();
    const NodeId after = rules_.node();
    const NodeId close = rules_.node();
    blank(open, inner);
    rules_.call(inner, value(), after);
    comma(after, inner);
    rules_.jump(open, close);
    rules_.jump(after, close);
    const NodeId bracket = rules_.node();
    blank(close, bracket);
    rules_.literal(bracket, "]", to);
  });
}

RuleId JsonText::character() {
  return once(&character_, "character", [&](NodeId from, NodeId to) {
    emit_utf8(&rules_, from, CodePointSet{{0x20, '!'}, {'#', '['}, {']', CodePointSet::kLast}}, to);
    const NodeId escape = rules_.literal(from, "\\");
    for (const char c : std::string_view("\"\\/bfnrt"))
      rules_.bytes(escape, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
    // \uXXXX: no surrogate, or two that make a pair.
    const NodeId unit = rules_.literal(escape, "u");
    const NodeId three = rules_.node();
    const NodeId two = rules_.node();
    const NodeId one = rules_.node();
    rules_.bytes(unit, '0', '9', three);
    either_case(&rules_, unit, 'A', 'C', three);
    either_case(&rules_, unit, 'E', 'F', three);
    hex_digit(&rules_, three, two);
    hex_digit(&rules_, two, one);
    hex_digit(&rules_, one, to);
    const NodeId d = rules_.node();
    either_case(&rules_, unit, 'D', 'D', d);
    rules_.bytes(d, '0', '7', two);
    const NodeId high_two = rules_.node();
    const NodeId high_one = rules_.node();
    const NodeId high = rules_.node();
    rules_.bytes(d, '8', '9', high_two);
    either_case(&rules_, d, 'A', 'B', high_two);
    hex_digit(&rules_, high_two, high_one);
    hex_digit(&rules_, high_one, high);
    const NodeId second = rules_.literal(high, "\\u");
    const NodeId second_d = rules_.node();
    either_case(&rules_, second, 'D', 'D', second_d);
    either_case(&rules_, second_d, 'C', 'F', two);
  });
}

RuleId JsonText::string() {
  return once(&string_, "string", [&](NodeId from, NodeId to) {
    const NodeId inside = rules_.literal(from, "\"");
    rules_.call(inside, character(), inside);
    rules_.literal(inside, "\"", to);
  });
}

RuleId JsonText::integer() {
  return once(&integer_, "integer", [&](NodeId from, NodeId to) { integer_part(&rules_, from, to); });
}

RuleId JsonText::number() {
  return once(&number_, "number", [&](NodeId from, NodeId to) {
    const NodeId whole = rules_.node();
    integer_part(&rules_, from, whole);
    const NodeId point = rules_.literal(whole, ".");
    const NodeId fraction = rules_.node();
    digit(&rules_, point, fraction);
    digit(&rules_, fraction, fraction);
    const NodeId mantissa = rules_.node();
    rules_.jump(whole, mantissa);
    rules_.jump(fraction, mantissa);
    rules_.jump(mantissa, to);
    const NodeId e = rules_.node();
    either_case(&rules_, mantissa, 'E', 'E', e);
    const NodeId sign = rules_.node();
    rules_.jump(e, sign);
    rules_.bytes(e, '+', '+', sign);
    rules_.bytes(e, '-', '-', sign);
    const NodeId exponent = rules_.node();
    digit(&rules_, sign, exponent);
    digit(&rules_, exponent, exponent);
    rules_.jump(exponent, to);
  });
}

void JsonText::blank(NodeId from, NodeId to) {
  const RuleId rule = once(&blank_, "blank", [&](NodeId start, NodeId end) {
    rules_.literal(start, " ", end);
    NodeId at = rules_.literal(start, "\n");
    for (int i = 0; i < kMaxIndent; ++i) {
      rules_.jump(at, end);
      at = rules_.literal(at, " ");
    }
    rules_.jump(at, end);
  });
  rules_.jump(from, to);
  rules_.call(from, rule, to);
}

void JsonText::comma(NodeId from, NodeId to) { blank(rules_.literal(from, ","), to); }
void JsonText::colon(NodeId from, NodeId to) { blank(rules_.literal(from, ":"), to); }

// Along the known names, character by character; a text that leaves them is free.
void JsonText::other_name(NodeId from, std::vector<std::string> names, NodeId to) {
  const CodePointSet all{{0, CodePointSet::kLast}};
  const CodePointSet plain{{0x20, '!'}, {'#', '['}, {']', 0x7F}};
  const NodeId end = rules_.node();
  colon(end, to);
  const NodeId free = rules_.node();
  emit_json_character(&rules_, free, all, free);
  rules_.literal(free, "\"", end);
  const NodeId not_plain = rules_.node();
  emit_json_character(&rules_, not_plain, all.without(plain), free);

  struct Branch {
    NodeId node;
    bool is_name = false;
    std::map<char32_t, size_t> next = {};
  };
  std::vector<Branch> tree{{rules_.literal(from, "\"")}};
  for (const std::string& name : names) {
    size_t at = 0;
    for (size_t i = 0; i < name.size() && !rules_.full();) {
      const CodePoint c = code_point_at(name, i);
      i += c.size;
      const auto [entry, is_new] = tree[at].next.try_emplace(c.value, tree.size());
      at = entry->second;
      if (is_new) tree.push_back({rules_.node()});
    }
    tree[at].is_name = true;
  }
  for (const Branch& branch : tree) {
    if (rules_.full()) return;
    if (!branch.is_name) rules_.literal(branch.node, "\"", end);
    CodePointSet known;
    for (const auto& [c, next] : branch.next) {
      emit_json_character(&rules_, branch.node, CodePointSet{{c, c}}, tree[next].node);
      known.add(c, c);
    }
    if (known.without(plain).empty()) {
      emit_json_character(&rules_, branch.node, plain.without(known), free);
      rules_.jump(branch.node, not_plain);
    } else {
      emit_json_character(&rules_, branch.node, all.without(known), free);
    }
  }
}

}  // namespace reprise::text::grammar

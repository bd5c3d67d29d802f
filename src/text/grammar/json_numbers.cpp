#include "text/grammar/json_numbers.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace reprise::text::grammar {
namespace {

void digits(RuleBuilder* rules, NodeId from, size_t count, NodeId to) {
  if (count == 0) return rules->jump(from, to);
  for (; count > 1; --count) {
    const NodeId next = rules->node();
    rules->bytes(from, '0', '9', next);
    from = next;
  }
  rules->bytes(from, '0', '9', to);
}

// As many digits as both bounds have, between them.
void digits_between(RuleBuilder* rules, NodeId from, std::string_view low, std::string_view high, NodeId to) {
  const size_t more = low.size() - 1;
  char first = low[0];
  char last = high[0];
  const std::string_view low_rest = low.substr(1);
  const std::string_view high_rest = high.substr(1);
  const std::string zeros(more, '0');
  const std::string nines(more, '9');
  const auto then = [&](char c, std::string_view a, std::string_view b) {
    const NodeId next = rules->literal(from, std::string_view(&c, 1));
    digits_between(rules, next, a, b, to);
  };
  if (more > 0 && first == last) return then(first, low_rest, high_rest);
  if (low_rest != zeros) then(first++, low_rest, nines);
  if (high_rest != nines) then(last--, zeros, high_rest);
  if (first > last) return;
  const NodeId next = more == 0 ? to : rules->node();
  rules->bytes(from, static_cast<uint8_t>(first), static_cast<uint8_t>(last), next);
  if (more > 0) digits(rules, next, more, to);
}

void unsigned_between(RuleBuilder* rules, NodeId from, uint64_t low, std::optional<uint64_t> high, NodeId to) {
  if (high && low > *high) return;
  const std::string low_digits = std::to_string(low);
  const std::string high_digits = high ? std::to_string(*high) : std::string(low_digits.size(), '9');
  for (size_t count = low_digits.size(); count <= high_digits.size(); ++count) {
    const std::string least = "1" + std::string(count - 1, '0');
    digits_between(rules, from, count == low_digits.size() ? low_digits : least,
                   count == high_digits.size() ? high_digits : std::string(count, '9'), to);
  }
  if (high) return;
  const NodeId more = rules->node();
  const NodeId longer = rules->node();
  rules->bytes(from, '1', '9', more);
  digits(rules, more, low_digits.size(), longer);
  rules->bytes(longer, '0', '9', longer);
  rules->jump(longer, to);
}

uint64_t magnitude(int64_t value) {
  return value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
}

struct Bound {
  uint64_t value;
  bool exclusive;
};

// No sign. The whole part decides, except at the bounds themselves.
void decimal_between(RuleBuilder* rules, NodeId from, Bound low, std::optional<Bound> high, NodeId to) {
  if (high && (low.value > high->value || (low.value == high->value && (low.exclusive || high->exclusive)))) return;
  const uint64_t first = low.exclusive ? low.value + 1 : low.value;
  if (!high || first < high->value) {
    const NodeId whole = rules->node();
    unsigned_between(rules, from, first, high ? std::optional(high->value - 1) : std::nullopt, whole);
    const NodeId point = rules->literal(whole, ".");
    const NodeId fraction = rules->node();
    rules->bytes(point, '0', '9', fraction);
    rules->bytes(fraction, '0', '9', fraction);
    rules->jump(fraction, to);
    rules->jump(whole, to);
  }
  if (low.exclusive) {
    const NodeId fraction = rules->literal(from, std::to_string(low.value) + ".");
    const NodeId not_zero = rules->node();
    rules->bytes(fraction, '0', '0', fraction);
    rules->bytes(fraction, '1', '9', not_zero);
    rules->bytes(not_zero, '0', '9', not_zero);
    rules->jump(not_zero, to);
  }
  if (high && !high->exclusive) {
    const NodeId whole = rules->literal(from, std::to_string(high->value));
    rules->jump(whole, to);
    const NodeId zeros = rules->literal(whole, ".0");
    rules->bytes(zeros, '0', '0', zeros);
    rules->jump(zeros, to);
  }
}

}  // namespace

void emit_integer_between(RuleBuilder* rules, NodeId from, std::optional<int64_t> low, std::optional<int64_t> high,
                          NodeId to) {
  if (!high || *high >= 0) {
    unsigned_between(rules, from, low ? magnitude(std::max<int64_t>(*low, 0)) : 0,
                     high ? std::optional(magnitude(*high)) : std::nullopt, to);
  }
  if (!low || *low < 0) {
    const NodeId minus = rules->literal(from, "-");
    unsigned_between(rules, minus, high && *high < 0 ? magnitude(*high) : 1,
                     low ? std::optional(magnitude(*low)) : std::nullopt, to);
  }
}

void emit_number_between(RuleBuilder* rules, NodeId from, std::optional<NumberBound> low,
                         std::optional<NumberBound> high, NodeId to) {
  if (!high || high->value >= 0) {
    const bool from_low = low && low->value >= 0;
    decimal_between(rules, from, {from_low ? magnitude(low->value) : 0, from_low && low->exclusive},
                    high ? std::optional(Bound{magnitude(high->value), high->exclusive}) : std::nullopt, to);
  }
  if (!low || low->value < 0) {
    const NodeId minus = rules->literal(from, "-");
    const bool from_high = high && high->value < 0;
    decimal_between(rules, minus, {from_high ? magnitude(high->value) : 0, !from_high || high->exclusive},
                    low ? std::optional(Bound{magnitude(low->value), low->exclusive}) : std::nullopt, to);
  }
}

}  // namespace reprise::text::grammar

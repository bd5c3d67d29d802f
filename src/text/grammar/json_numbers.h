// Numbers between bounds, as byte edges: the digits decide. Whole numbers take any bounds, others bounds that are whole
// numbers; a bounded number is written without an exponent and never as -0.
#pragma once

#include <cstdint>
#include <optional>

#include "text/grammar/rules.h"

namespace reprise::text::grammar {

struct NumberBound {
  int64_t value;
  bool exclusive = false;
};

void emit_integer_between(RuleBuilder* rules, NodeId from, std::optional<int64_t> low, std::optional<int64_t> high,
                          NodeId to);
void emit_number_between(RuleBuilder* rules, NodeId from, std::optional<NumberBound> low,
                         std::optional<NumberBound> high, NodeId to);

}  // namespace reprise::text::grammar

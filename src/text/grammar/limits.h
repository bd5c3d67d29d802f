// GrammarLimits: what a pattern or schema of a stranger may cost. Everything that would need more is an error that
// names the limit. A plain value.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reprise::text::grammar {

struct GrammarLimits {
  // While compiling.
  size_t max_pattern_bytes = 16 << 10;  // of a regular expression
  size_t max_schema_values = 10'000;    // objects, lists and scalars in a schema; merging makes copies, which count
  size_t max_choice_bytes = 1 << 20;    // of a list of choices, all together
  size_t max_nodes = 200'000;           // of all rules, with {m,n} written out
  size_t max_rules = 20'000;
  // While matching.
  size_t max_depth = 128;            // of rules within rules: how deep values may be nested
  size_t max_states = 1 << 14;       // kept at a time; one mask may not need more
  size_t max_places = 1 << 20;       // in all states kept: places that texts so far may have reached
  size_t max_visits = 1 << 22;       // of places, to make the states kept
  size_t max_mask_bytes = 32 << 20;  // of masks kept
};

}  // namespace reprise::text::grammar

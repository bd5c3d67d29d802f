// Regex syntax for constrained texts: a pattern becomes a tree, and the tree becomes nodes of a RuleSet, so matching is
// linear in the text regardless of the pattern. Understood: literals, . and classes over code points, the escapes \d \w
// \s (ASCII) with their opposites, \n \r \t \f \v \a \xHH \uHHHH \UHHHHHHHH, groups, |, * + ? {m,n}, and ^ $ at the
// ends of a pattern or of one of its outermost alternatives. "." is any character but \n. What cannot be said this way
// (look-around, back-references, word borders, flags, possessive quantifiers) is an error with its position in bytes.
// A RegexTree is immutable; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/grammar/code_points.h"
#include "text/grammar/rules.h"

namespace reprise::text::grammar {

struct RegexTree {
  static constexpr uint32_t kNoLimit = UINT32_MAX;
  enum class Kind : uint8_t { Nothing, Class, Sequence, Either, Repeat };
  struct Item {
    Kind kind;
    std::vector<uint32_t> parts = {};  // items; one for Repeat
    CodePointSet set = {};
    uint32_t min = 0;
    uint32_t max = 0;
  };
  struct Alternative {
    uint32_t item;
    bool from_start;  // began with ^
    bool to_end;      // ended with $
  };
  std::vector<Item> items;
  std::vector<Alternative> alternatives;
};

Result<RegexTree> parse_regex(std::string_view pattern, const GrammarLimits& limits);

// How a character is written: as itself, or as it stands in a JSON string.
using EmitClass = void (*)(RuleBuilder* rules, NodeId from, const CodePointSet& set, NodeId to);
// The whole text between `from` and `to` is a match; or, for a search, there is one in it.
enum class RegexUse : uint8_t { Whole, Search };
void emit_regex(RuleBuilder* rules, NodeId from, const RegexTree& tree, RegexUse use, EmitClass emit_class, NodeId to);

}  // namespace reprise::text::grammar

// CodePointSet: a set of Unicode characters (surrogates never belong), and its UTF-8 as byte edges. A plain value.
#pragma once

#include <utility>
#include <vector>

#include "text/grammar/rules.h"

namespace reprise::text::grammar {

class CodePointSet {
 public:
  using Range = std::pair<char32_t, char32_t>;  // both ends belong
  static constexpr char32_t kLast = 0x10FFFF;

  CodePointSet() = default;
  CodePointSet(std::initializer_list<Range> ranges) {
    for (const Range& range : ranges) add(range.first, range.second);
  }

  void add(char32_t low, char32_t high);
  void add(const CodePointSet& other);
  CodePointSet inverted() const;
  // Those that lie in [low, high] as well.
  CodePointSet within(char32_t low, char32_t high) const;
  CodePointSet without(const CodePointSet& other) const;

  const std::vector<Range>& ranges() const { return ranges_; }
  bool has(char32_t c) const;
  bool empty() const { return ranges_.empty(); }

 private:
  std::vector<Range> ranges_;  // sorted, with gaps between them
};

// One character of the set as UTF-8, then `to`.
void emit_utf8(RuleBuilder* rules, NodeId from, const CodePointSet& set, NodeId to);

}  // namespace reprise::text::grammar

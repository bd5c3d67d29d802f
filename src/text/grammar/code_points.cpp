#include "text/grammar/code_points.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "text/utf8.h"

namespace reprise::text::grammar {
namespace {

constexpr char32_t kFirstSurrogate = 0xD800;
constexpr char32_t kLastSurrogate = 0xDFFF;

class Utf8Emitter {
 public:
  Utf8Emitter(RuleBuilder* rules, NodeId to) : rules_(*rules) { tails_[0] = to; }

  // Characters whose encodings have the same length.
  void range(NodeId from, char32_t low, char32_t high) {
    std::string first;
    std::string last;
    append_utf8(low, &first);
    append_utf8(high, &last);
    range(from, first, last);
  }

 private:
  void range(NodeId from, std::string_view first, std::string_view last) {
    const size_t more = first.size() - 1;
    uint8_t low = static_cast<uint8_t>(first[0]);
    uint8_t high = static_cast<uint8_t>(last[0]);
    if (more == 0) return rules_.bytes(from, low, high, tail(0));
    first.remove_prefix(1);
    last.remove_prefix(1);
    const std::string lowest(more, '\x80');
    const std::string highest(more, '\xBF');
    if (low == high && (first != lowest || last != highest)) return range(byte(from, low), first, last);
    if (first != lowest) range(byte(from, low++), first, highest);
    if (last != highest) range(byte(from, high--), lowest, last);
    if (low <= high) rules_.bytes(from, low, high, tail(more));
  }

  NodeId byte(NodeId from, uint8_t value) {
    const NodeId next = rules_.node();
    rules_.bytes(from, value, value, next);
    return next;
  }

  // The node from which so many arbitrary continuation bytes follow.
  NodeId tail(size_t bytes) {
    for (size_t i = 1; i <= bytes; ++i) {
      if (tails_[i]) continue;
      tails_[i] = rules_.node();
      rules_.bytes(*tails_[i], 0x80, 0xBF, *tails_[i - 1]);
    }
    return *tails_[bytes];
  }

  RuleBuilder& rules_;
  std::array<std::optional<NodeId>, 4> tails_;
};

}  // namespace

void CodePointSet::add(char32_t low, char32_t high) {
  if (low <= kLastSurrogate && high >= kFirstSurrogate) {
    if (low < kFirstSurrogate) add(low, kFirstSurrogate - 1);
    if (high > kLastSurrogate) add(kLastSurrogate + 1, high);
    return;
  }
  if (low > high) return;
  // The ranges that touch the new one become part of it.
  const auto begin = std::find_if(ranges_.begin(), ranges_.end(), [&](const Range& r) { return r.second + 1 >= low; });
  auto end = begin;
  for (; end != ranges_.end() && end->first <= high + 1; ++end) {
    low = std::min(low, end->first);
    high = std::max(high, end->second);
  }
  ranges_.insert(ranges_.erase(begin, end), {low, high});
}

void CodePointSet::add(const CodePointSet& other) {
  for (const Range& range : other.ranges_) add(range.first, range.second);
}

CodePointSet CodePointSet::inverted() const {
  CodePointSet out;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) out.add(next, range.first - 1);
    next = range.second + 1;
  }
  if (next <= kLast) out.add(next, kLast);
  return out;
}

CodePointSet CodePointSet::within(char32_t low, char32_t high) const {
  CodePointSet out;
  for (const Range& range : ranges_) out.add(std::max(low, range.first), std::min(high, range.second));
  return out;
}

CodePointSet CodePointSet::without(const CodePointSet& other) const {
  CodePointSet outside = inverted();
  outside.add(other);
  return outside.inverted();
}

bool CodePointSet::has(char32_t c) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& r) { return r.first <= c && c <= r.second; });
}

void emit_utf8(RuleBuilder* rules, NodeId from, const CodePointSet& set, NodeId to) {
  Utf8Emitter emitter(rules, to);
  constexpr std::array<CodePointSet::Range, 4> lengths{
      {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xFFFF}, {0x10000, 0x10FFFF}}};
  for (const auto& length : lengths) {
    const CodePointSet parts = set.within(length.first, length.second);
    for (const auto& part : parts.ranges()) emitter.range(from, part.first, part.second);
  }
}

}  // namespace reprise::text::grammar

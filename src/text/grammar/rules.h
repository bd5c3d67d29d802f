// RuleSet: what a grammar is made of: rules over bytes that may call each other, as one graph of nodes. From a node
// lead byte edges (one byte out of a range), jumps (nothing) and calls (a whole rule, then back); a rule's end node
// returns to its caller. Rule 0 is the text. Every node left in it can reach the end of its rule. Immutable; any
// thread.
//
// RuleBuilder makes one, on one thread. Beyond the limits it accepts everything and keeps nothing; build() then fails.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/grammar/limits.h"

namespace reprise::text::grammar {

using NodeId = uint32_t;
using RuleId = uint32_t;

struct ByteEdge {
  uint8_t low;
  uint8_t high;
  NodeId to;
};

struct Call {
  RuleId rule;
  NodeId back;
};

class RuleSet {
 public:
  static constexpr uint32_t kDead = UINT32_MAX;

  std::span<const ByteEdge> bytes(NodeId n) const { return span_of(bytes_, byte_begin_, n); }
  std::span<const NodeId> jumps(NodeId n) const { return span_of(jumps_, jump_begin_, n); }
  std::span<const Call> calls(NodeId n) const { return span_of(calls_, call_begin_, n); }
  bool is_end(NodeId n) const { return is_end_[n] != 0; }
  NodeId start(RuleId rule) const { return starts_[rule]; }
  // How many calls deep the way from here to the end of the rule must at least go.
  uint32_t height(NodeId n) const { return heights_[n]; }

  // Bytes that no edge tells apart are of one class.
  uint8_t byte_class(uint8_t byte) const { return class_of_[byte]; }
  size_t class_count() const { return class_count_; }
  size_t node_count() const { return heights_.size(); }
  size_t rule_count() const { return starts_.size(); }

 private:
  friend class RuleBuilder;
  template <typename T>
  static std::span<const T> span_of(const std::vector<T>& all, const std::vector<uint32_t>& begin, NodeId n) {
    return std::span<const T>(all).subspan(begin[n], begin[n + 1] - begin[n]);
  }

  std::vector<ByteEdge> bytes_;
  std::vector<NodeId> jumps_;
  std::vector<Call> calls_;
  std::vector<uint32_t> byte_begin_, jump_begin_, call_begin_;  // by node, and one more
  std::vector<uint8_t> is_end_;
  std::vector<uint32_t> heights_;
  std::vector<NodeId> starts_;  // by rule
  std::array<uint8_t, 256> class_of_{};
  size_t class_count_ = 0;
};

class RuleBuilder {
 public:
  explicit RuleBuilder(const GrammarLimits& limits) : limits_(limits) {}

  // `name` is for errors: the place in a schema.
  RuleId add_rule(std::string name);
  NodeId start(RuleId rule) const { return rules_[rule].start; }
  NodeId end(RuleId rule) const { return rules_[rule].end; }

  NodeId node();
  void bytes(NodeId from, uint8_t low, uint8_t high, NodeId to);
  void jump(NodeId from, NodeId to);
  void call(NodeId from, RuleId rule, NodeId to);
  // The text, then `to`.
  void literal(NodeId from, std::string_view text, NodeId to);
  // The same to a new node.
  NodeId literal(NodeId from, std::string_view text);
  // One of the texts. Common beginnings share their nodes.
  void choices(NodeId from, std::vector<std::string> texts, NodeId to);

  const GrammarLimits& limits() const { return limits_; }
  bool full() const { return full_; }
  size_t node_count() const { return nodes_; }
  Result<RuleSet> build();

 private:
  struct Rule {
    std::string name;
    NodeId start;
    NodeId end;
  };
  template <typename T>
  using From = std::vector<std::pair<NodeId, T>>;

  bool room(size_t edges);
  std::vector<uint32_t> find_heights() const;
  Status check_left_recursion(const RuleSet& set) const;

  GrammarLimits limits_;
  std::vector<Rule> rules_;
  size_t nodes_ = 0;
  bool full_ = false;
  bool too_many_rules_ = false;
  From<ByteEdge> bytes_;
  From<NodeId> jumps_;
  From<Call> calls_;
};

}  // namespace reprise::text::grammar

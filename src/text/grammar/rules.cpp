#include "text/grammar/rules.h"

#include <algorithm>
#include <queue>

namespace reprise::text::grammar {
namespace {

constexpr size_t kEdgesPerNode = 4;

// Sorts edges by the node they leave; false for those that `keep` refuses.
template <typename T, typename Keep>
void index_by_node(const std::vector<std::pair<NodeId, T>>& edges, size_t nodes, const Keep& keep,
                   std::vector<T>* sorted, std::vector<uint32_t>* begin) {
  begin->assign(nodes + 1, 0);
  for (const auto& [from, edge] : edges) (*begin)[from + 1] += keep(from, edge) ? 1 : 0;
  for (size_t i = 0; i < nodes; ++i) (*begin)[i + 1] += (*begin)[i];
  std::vector<uint32_t> next(begin->begin(), begin->end() - 1);
  sorted->resize(begin->back());
  for (const auto& [from, edge] : edges) {
    if (keep(from, edge)) (*sorted)[next[from]++] = edge;
  }
}

}  // namespace

RuleId RuleBuilder::add_rule(std::string name) {
  if (rules_.size() >= limits_.max_rules) {
    full_ = too_many_rules_ = true;
    if (!rules_.empty()) return 0;
  }
  const NodeId start = node();
  rules_.push_back({std::move(name), start, node()});
  return static_cast<RuleId>(rules_.size() - 1);
}

NodeId RuleBuilder::node() {
  if (nodes_ >= limits_.max_nodes) {
    full_ = true;
    return 0;
  }
  return static_cast<NodeId>(nodes_++);
}

bool RuleBuilder::room(size_t edges) {
  full_ = full_ || edges >= kEdgesPerNode * limits_.max_nodes;
  return !full_;
}

void RuleBuilder::bytes(NodeId from, uint8_t low, uint8_t high, NodeId to) {
  if (room(bytes_.size())) bytes_.push_back({from, {low, high, to}});
}

void RuleBuilder::jump(NodeId from, NodeId to) {
  if (room(jumps_.size())) jumps_.push_back({from, to});
}

void RuleBuilder::call(NodeId from, RuleId rule, NodeId to) {
  if (room(calls_.size())) calls_.push_back({from, {rule, to}});
}

void RuleBuilder::literal(NodeId from, std::string_view text, NodeId to) {
  if (text.empty()) return jump(from, to);
  for (size_t i = 0; i < text.size() && !full_; ++i) {
    const NodeId next = i + 1 == text.size() ? to : node();
    bytes(from, static_cast<uint8_t>(text[i]), static_cast<uint8_t>(text[i]), next);
    from = next;
  }
}

NodeId RuleBuilder::literal(NodeId from, std::string_view text) {
  const NodeId to = node();
  literal(from, text, to);
  return to;
}

void RuleBuilder::choices(NodeId from, std::vector<std::string> texts, NodeId to) {
  std::sort(texts.begin(), texts.end());
  std::vector<NodeId> path{from};  // nodes after each byte of the text before
  std::string_view before;
  for (const std::string& text : texts) {
    if (full_) return;
    const size_t common = static_cast<size_t>(
        std::mismatch(before.begin(), before.end(), text.begin(), text.end()).first - before.begin());
    path.resize(common + 1);
    for (size_t i = common; i < text.size(); ++i) {
      const NodeId next = node();
      bytes(path.back(), static_cast<uint8_t>(text[i]), static_cast<uint8_t>(text[i]), next);
      path.push_back(next);
    }
    jump(path.back(), to);
    before = text;
  }
}

// Dijkstra over the nodes from the ends of rules backwards; the length of a way is its deepest call.
std::vector<uint32_t> RuleBuilder::find_heights() const {
  From<NodeId> into;  // by target: where byte edges and jumps come from
  From<size_t> backs;
  From<size_t> starts;
  for (const auto& [from, edge] : bytes_) into.push_back({edge.to, from});
  for (const auto& [from, to] : jumps_) into.push_back({to, from});
  for (size_t i = 0; i < calls_.size(); ++i) {
    backs.push_back({calls_[i].second.back, i});
    starts.push_back({rules_[calls_[i].second.rule].start, i});
  }
  std::vector<NodeId> sources;
  std::vector<size_t> by_back, by_start;
  std::vector<uint32_t> source_begin, back_begin, start_begin;
  const auto all = [](NodeId, const auto&) { return true; };
  index_by_node(into, nodes_, all, &sources, &source_begin);
  index_by_node(backs, nodes_, all, &by_back, &back_begin);
  index_by_node(starts, nodes_, all, &by_start, &start_begin);

  std::vector<uint32_t> heights(nodes_, RuleSet::kDead);
  using Entry = std::pair<uint32_t, NodeId>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  const auto reach = [&](NodeId n, uint32_t height) {
    if (height >= heights[n]) return;
    heights[n] = height;
    open.push({height, n});
  };
  const auto reach_call = [&](size_t index) {
    const auto& [from, call] = calls_[index];
    const uint32_t inner = heights[rules_[call.rule].start];
    const uint32_t after = heights[call.back];
    if (inner != RuleSet::kDead && after != RuleSet::kDead) reach(from, std::max(inner + 1, after));
  };
  for (const Rule& rule : rules_) reach(rule.end, 0);
  while (!open.empty()) {
    const auto [height, n] = open.top();
    open.pop();
    if (height != heights[n]) continue;
    for (uint32_t i = source_begin[n]; i < source_begin[n + 1]; ++i) reach(sources[i], height);
    for (uint32_t i = back_begin[n]; i < back_begin[n + 1]; ++i) reach_call(by_back[i]);
    for (uint32_t i = start_begin[n]; i < start_begin[n + 1]; ++i) reach_call(by_start[i]);
  }
  return heights;
}

// A rule that calls itself before any byte would never begin.
Status RuleBuilder::check_left_recursion(const RuleSet& set) const {
  enum : uint8_t { New, Open, Done };
  std::vector<uint8_t> rule_state(rules_.size(), New);
  std::vector<uint32_t> seen(set.node_count(), 0);
  uint32_t stamp = 0;
  // The rules that one rule may call first.
  const auto first_calls = [&](RuleId rule) {
    std::vector<RuleId> out;
    std::vector<NodeId> todo{rules_[rule].start};
    ++stamp;
    while (!todo.empty()) {
      const NodeId n = todo.back();
      todo.pop_back();
      if (seen[n] == stamp) continue;
      seen[n] = stamp;
      for (const NodeId to : set.jumps(n)) todo.push_back(to);
      for (const Call& call : set.calls(n)) out.push_back(call.rule);
    }
    return out;
  };
  struct Frame {
    RuleId rule;
    std::vector<RuleId> calls;
    size_t next = 0;
  };
  for (RuleId root = 0; root < rules_.size(); ++root) {
    if (rule_state[root] != New) continue;
    std::vector<Frame> stack;
    stack.push_back({root, first_calls(root)});
    rule_state[root] = Open;
    while (!stack.empty()) {
      Frame& top = stack.back();
      if (top.next == top.calls.size()) {
        rule_state[top.rule] = Done;
        stack.pop_back();
        continue;
      }
      const RuleId called = top.calls[top.next++];
      if (rule_state[called] == Open)
        return invalid("{}: refers to itself with nothing in between, so no text can match it", rules_[called].name);
      if (rule_state[called] == Done) continue;
      rule_state[called] = Open;
      stack.push_back({called, first_calls(called)});
    }
  }
  return Status::ok();
}

Result<RuleSet> RuleBuilder::build() {
  if (too_many_rules_)
    return invalid("{}: needs more than {} rules (GrammarLimits::max_rules)", rules_[0].name, limits_.max_rules);
  if (full_)
    return invalid("{}: needs more than {} nodes, repetitions written out (GrammarLimits::max_nodes)", rules_[0].name,
                   limits_.max_nodes);
  RuleSet set;
  set.heights_ = find_heights();
  const auto& heights = set.heights_;
  const auto lives = [&](NodeId n) { return heights[n] != RuleSet::kDead; };
  index_by_node(
      bytes_, nodes_, [&](NodeId from, const ByteEdge& e) { return lives(from) && lives(e.to); }, &set.bytes_,
      &set.byte_begin_);
  index_by_node(
      jumps_, nodes_, [&](NodeId from, NodeId to) { return lives(from) && lives(to); }, &set.jumps_, &set.jump_begin_);
  const auto keep_call = [&](NodeId from, const Call& call) {
    return lives(from) && lives(call.back) && lives(rules_[call.rule].start);
  };
  index_by_node(calls_, nodes_, keep_call, &set.calls_, &set.call_begin_);
  set.is_end_.assign(nodes_, 0);
  for (const Rule& rule : rules_) {
    set.is_end_[rule.end] = 1;
    set.starts_.push_back(rule.start);
  }
  RETURN_IF_ERROR(check_left_recursion(set));
  const uint32_t height = heights[rules_[0].start];
  if (height == RuleSet::kDead) return invalid("{}: no text can match it", rules_[0].name);
  if (height > limits_.max_depth)
    return invalid("{}: every text that matches is nested more than {} deep (GrammarLimits::max_depth)", rules_[0].name,
                   limits_.max_depth);

  std::array<bool, 257> cut{};
  for (const ByteEdge& edge : set.bytes_) cut[edge.low] = cut[edge.high + 1] = true;
  uint8_t index = 0;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && cut[byte]) ++index;
    set.class_of_[byte] = index;
  }
  set.class_count_ = static_cast<size_t>(index) + 1;
  return set;
}

}  // namespace reprise::text::grammar

// Memory plans and waits of graphs with several streams, against every interleaving of their launches.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "compile/memory_plan.h"
#include "compile/recording.h"
#include "graph/streams.h"
#include "graph/text.h"
#include "graph/tracer.h"
#include "nn/functional.h"
#include "ops/core.h"

namespace reprise::streams_test {
namespace {

using Random = std::minstd_rand;

// Runs a plan in every order that its streams allow, with beginnings and ends of launches apart, on memory in which a
// line of 64 bytes holds the number of whoever wrote it last. A launch that does not find what it reads, or that finds
// anything of its own overwritten at its end, is a mistake of the plan.
class EveryOrder {
 public:
  EveryOrder(const Graph& graph, const MemoryPlan& plan) {
    std::unordered_map<const Value*, int> newest;
    size_t outside = plan.arena_bytes / kArenaAlignment;
    std::unordered_map<const Value*, std::pair<size_t, size_t>> place;
    const auto lines_of = [&](const Value* root) {
      if (auto it = place.find(root); it != place.end()) return it->second;
      if (auto it = plan.storage_of.find(root); it != plan.storage_of.end()) {
        const PlannedStorage& s = plan.storages[it->second];
        const size_t end = s.offset + s.bytes + kArenaAlignment - 1;
        return place[root] = {s.offset / kArenaAlignment, end / kArenaAlignment};
      }
      ++outside;  // an input
      return place[root] = {outside - 1, outside};
    };
    for (const Node* n = graph.first(); n; n = n->next) {
      if (!n->is_launched()) continue;
      Launch l;
      l.tag = static_cast<int>(launches_.size()) + 1;
      number_[n] = launches_.size();
      for (const Node* w : n->waits) l.waits.push_back(number_.at(w));
      std::set<const Value*> written;
      for (const StorageTouch& t : storage_touches(*n))
        if (t.write) written.insert(t.root);
      for (const StorageTouch& t : storage_touches(*n))
        if (!t.write) (written.contains(t.root) ? l.replaced : l.reads).push_back({lines_of(t.root), newest[t.root]});
      for (const StorageTouch& t : storage_touches(*n))
        if (t.write) {
          l.writes.push_back({lines_of(t.root), l.tag});
          newest[t.root] = l.tag;
        }
      if (auto it = plan.workspace_of.find(n); it != plan.workspace_of.end()) {
        const PlannedStorage& s = plan.storages[it->second];
        l.writes.push_back({{s.offset / kArenaAlignment, (s.offset + s.bytes) / kArenaAlignment}, -l.tag});
      }
      lane_[n->stream].push_back(launches_.size());
      launches_.push_back(std::move(l));
    }
    for (auto& o : graph.outputs()) {
      const Value* root = storage_root(o.value);
      outputs_.push_back({lines_of(root), newest[root]});
    }
    lines_ = outside;
  }

  bool all_right() { return go({std::vector<int>(lines_, 0), std::vector<bool>(launches_.size(), false), {}, {}}); }

 private:
  using Lines = std::pair<size_t, size_t>;
  struct Tagged {
    Lines lines;
    int tag;
  };
  struct Launch {
    int tag = 0;
    std::vector<Tagged> reads, replaced, writes;  // what is written in place is replaced
    std::vector<size_t> waits;
  };
  struct State {
    std::vector<int> memory;
    std::vector<bool> done;
    std::array<size_t, kMaxGraphStreams> next{};
    std::array<bool, kMaxGraphStreams> running{};
  };

  static bool holds(const State& s, Lines lines, int tag) {
    return std::all_of(s.memory.begin() + static_cast<long>(lines.first),
                       s.memory.begin() + static_cast<long>(lines.second), [&](int t) { return t == tag; });
  }
  bool go(const State& s) {
    bool ended = true;
    for (size_t lane = 0; lane < lane_.size(); ++lane) {
      if (s.next[lane] == lane_[lane].size()) continue;
      ended = false;
      const size_t at = lane_[lane][s.next[lane]];
      const Launch& l = launches_[at];
      State then = s;
      if (!s.running[lane]) {
        if (!std::all_of(l.waits.begin(), l.waits.end(), [&](size_t w) { return s.done[w]; })) continue;
        for (const auto* found : {&l.reads, &l.replaced})
          for (const Tagged& r : *found)
            if (!holds(s, r.lines, r.tag)) return false;
        for (const Tagged& w : l.writes)
          std::fill(then.memory.begin() + static_cast<long>(w.lines.first),
                    then.memory.begin() + static_cast<long>(w.lines.second), w.tag);
        then.running[lane] = true;
      } else {
        for (const Tagged& r : l.reads)
          if (!holds(s, r.lines, r.tag)) return false;
        for (const Tagged& w : l.writes)
          if (!holds(s, w.lines, w.tag)) return false;
        then.running[lane] = false;
        then.done[at] = true;
        ++then.next[lane];
      }
      if (!go(then)) return false;
    }
    if (!ended) return true;
    return std::all_of(outputs_.begin(), outputs_.end(), [&](const Tagged& r) { return holds(s, r.lines, r.tag); });
  }

  std::vector<Launch> launches_;
  std::unordered_map<const Node*, size_t> number_;
  std::array<std::vector<size_t>, kMaxGraphStreams> lane_;
  std::vector<Tagged> outputs_;
  size_t lines_ = 0;
};

struct StreamsTest : testing::Test {
  OpRegistry ops;
  StreamsTest() { register_core_ops(ops); }

  // A few launches on [4, 16] floats, views between them and a cache that some write, on streams by chance. Nothing is
  // made in vain.
  Graph random_graph(Random& random, int launches) {
    const auto below = [&](size_t n) { return random() % n; };
    Tracer t("random", ops);
    const Shape shape{Dim(4), Dim(16)};
    Tensor cache = t.input("cache", {DType::F32, {Dim(1), Dim(128), Dim(16)}});
    Tensor slots = t.input("slots", {DType::I32, {Dim(4)}});
    std::vector<Tensor> values{t.input("x", {DType::F32, shape})};
    for (int i = 0; i < launches; ++i) {
      const Tensor a = values[below(values.size())], b = values[below(values.size())];
      switch (below(5)) {
        case 0: cache = nn::row_write(cache, a, slots); break;
        case 1: values.push_back(nn::silu(a)); break;
        case 2: values.push_back(nn::flatten(nn::heads(nn::silu(a), 8))); break;
        default: values.push_back(nn::add(a, b)); break;
      }
    }
    for (size_t i = 1; i < values.size(); ++i)
      if (values[i].value()->uses.empty()) t.output("y" + std::to_string(i), values[i]);
    t.output("last", values.back());
    Graph g = std::move(*t.finish());
    for (Node* n = g.first(); n; n = n->next)
      if (n->is_launched()) n->stream = static_cast<uint8_t>(below(2));
    return g;
  }
  static std::unordered_map<const Node*, size_t> random_workspaces(const Graph& g, Random& random) {
    std::unordered_map<const Node*, size_t> out;
    for (const Node* n = g.first(); n; n = n->next)
      if (n->is_launched() && random() % 3 == 0) out[n] = kArenaAlignment;
    return out;
  }
};

TEST_F(StreamsTest, ThePlanHoldsInEveryOrderAndNoWaitIsInVain) {
  Random random(1);
  size_t waits = 0;
  for (int round = 0; round < 120; ++round) {
    Graph g = random_graph(random, 6);
    set_waits(g);
    ASSERT_TRUE(verify(g).is_ok()) << verify(g).message();
    const MemoryPlan plan = plan_memory(g, random_workspaces(g, random));
    ASSERT_TRUE(check_plan(g, plan).is_ok()) << check_plan(g, plan).message() << print(g);
    ASSERT_TRUE(EveryOrder(g, plan).all_right()) << print(g);
    for (Node* n = g.first(); n; n = n->next)
      for (size_t i = 0; i < n->waits.size(); ++i, ++waits) {
        const Node* left_out = n->waits[i];
        n->waits.erase(n->waits.begin() + static_cast<long>(i));
        EXPECT_FALSE(check_plan(g, plan).is_ok()) << print(g);
        EXPECT_FALSE(EveryOrder(g, plan).all_right()) << print(g);
        n->waits.insert(n->waits.begin() + static_cast<long>(i), left_out);
      }
  }
  EXPECT_GT(waits, 100u);
}

// Offsets and waits by chance: check_plan() says what every order says.
TEST_F(StreamsTest, TheCheckerAgreesWithEveryOrder) {
  Random random(7);
  int right = 0, wrong = 0;
  for (int round = 0; round < 400; ++round) {
    Graph g = random_graph(random, 5);
    set_waits(g);
    std::vector<Node*> launches;
    for (Node* n = g.first(); n; n = n->next) {
      if (!n->is_launched()) continue;
      if (!launches.empty() && random() % 4 == 0)
        if (Node* w = launches[random() % launches.size()]; w->stream != n->stream) n->waits.push_back(w);
      if (!n->waits.empty() && random() % 8 == 0) n->waits.pop_back();
      launches.push_back(n);
    }
    MemoryPlan plan = plan_memory(g, random_workspaces(g, random));
    for (PlannedStorage& s : plan.storages)
      if (random() % 8 == 0) s.offset = random() % (plan.arena_bytes / kArenaAlignment) * kArenaAlignment;
    for (const PlannedStorage& s : plan.storages) plan.arena_bytes = std::max(plan.arena_bytes, s.offset + s.bytes);
    const bool holds = EveryOrder(g, plan).all_right();
    const Status checked = check_plan(g, plan);
    EXPECT_EQ(checked.is_ok(), holds) << checked.message() << print(g);
    ++(holds ? right : wrong);
  }
  EXPECT_GT(right, 50);
  EXPECT_GT(wrong, 50);
}

TEST_F(StreamsTest, OneStreamWaitsForNothingAndKeepsItsArena) {
  Random random(3);
  for (int round = 0; round < 20; ++round) {
    Graph g = random_graph(random, 8);
    for (Node* n = g.first(); n; n = n->next) n->stream = kMainStream;
    const size_t before = plan_memory(g, {}).arena_bytes;
    set_waits(g);
    for (const Node* n = g.first(); n; n = n->next) EXPECT_TRUE(n->waits.empty());
    EXPECT_EQ(plan_memory(g, {}).arena_bytes, before);
  }
}

TEST_F(StreamsTest, StreamsAndWaitsArePrintedAndRead) {
  const std::string text = R"(graph "two" {
  %0: f32[4, 16] = input(name="x") from "trace"
  %1: f32[4, 16] = silu(%0) from "trace"
  %2: f32[4, 16] = add(%1, %1) @side after %1 from "trace"
  %3: f32[4, 16] = silu(%1) from "trace"
  %4: f32[4, 16] = add(%2, %3) after %2 from "trace"
  return y=%4
}
)";
  auto g = parse_graph(text, ops);
  ASSERT_TRUE(g.is_ok()) << g.status().message();
  EXPECT_EQ(print(*g), text);
  set_waits(*g);
  EXPECT_EQ(print(*g), text);
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return parse_graph(changed, ops).status().message();
  };
  EXPECT_NE(refused("@side", "@third").find("allowed: side"), std::string::npos);
  EXPECT_NE(refused("after %2", "after %3").find("of its own stream"), std::string::npos);
  EXPECT_NE(refused("after %2", "after %0").find("no launch"), std::string::npos);
  EXPECT_NE(refused("after %2", "after %4").find("not defined yet"), std::string::npos);
}

// Other ranks write the result of a collective. What the side stream reads is not read before a later collective of the
// main stream, unless that waits.
TEST_F(StreamsTest, ExchangedBytesWaitForTheSideStream) {
  const std::string text = R"(graph "ranks" {
  %0: f32[4, 16] = input(name="x") from "trace"
  %1: f32[4, 32] = all_gather(%0, first=0, of=32, even=1) from "trace"
  %2: f32[4, 32] = silu(%1) from "trace"
  %3: f32[4, 16] = slice(%1, begin=0, size=16) from "trace"
  %4: f32[4, 32] = all_gather(%3, first=0, of=32, even=1) from "trace"
  %5: f32[4, 16] = slice(%4, begin=0, size=16) from "trace"
  %6: f32[4, 32] = all_gather(%5, first=0, of=32, even=1) from "trace"
  %7: f32[4, 32] = add(%2, %6) from "trace"
  return y=%7
}
)";
  auto g = parse_graph(text, ops);
  ASSERT_TRUE(g.is_ok()) << g.status().message();
  constexpr size_t kOne = 4 * 32 * 4;
  EXPECT_EQ(plan_memory(*g, {}).exchange_bytes, 2 * kOne);
  std::vector<Node*> made;  // by value
  for (Node* n = g->first(); n; n = n->next) made.push_back(n);
  made[2]->stream = kSideStream;
  set_waits(*g);
  MemoryPlan plan = plan_memory(*g, {});
  EXPECT_EQ(plan.exchange_bytes, 3 * kOne);
  EXPECT_TRUE(check_plan(*g, plan).is_ok()) << check_plan(*g, plan).message();
  plan.storages[plan.storage_of.at(made[6]->result())].offset =
      plan.storages[plan.storage_of.at(made[1]->result())].offset;
  EXPECT_NE(check_plan(*g, plan).message().find("which other ranks may still read"), std::string::npos);
  // A collective that waits for the side stream tells the others that it has read.
  made[4]->waits = {made[2]};
  EXPECT_TRUE(check_plan(*g, plan).is_ok()) << check_plan(*g, plan).message();
  EXPECT_EQ(plan_memory(*g, {}).exchange_bytes, 2 * kOne);
}

// Launches a b | c d e f, of which b, d and e are on the side: d follows a and b, e follows c, f follows d.
struct Recorded : StreamsTest {
  Graph g = std::move(*parse_graph(R"(graph "pieces" {
  %0: f32[4, 16] = input(name="x") from "trace"
  %1: f32[4, 16] = silu(%0) from "trace"
  %2: f32[4, 16] = silu(%1) @side after %1 from "trace"
  %3: f32[4, 16] = silu(%1) from "trace"
  %4: f32[4, 16] = add(%1, %2) @side from "trace"
  %5: f32[4, 16] = silu(%3) @side after %3 from "trace"
  %6: f32[4, 16] = add(%3, %4) after %4 from "trace"
  return y=%6, z=%5
}
)",
                                   ops));

  // Launches by letters, "0>" a mark recorded on stream 0, "1<" one that stream 1 waits for.
  std::string recorded(uint32_t first, uint32_t last, RecordedStreams streams = RecordedStreams::All) const {
    std::vector<const Node*> nodes;
    for (const Node* n = g.first(); n; n = n->next) nodes.push_back(n);
    std::vector<Thunk> thunks;
    for (uint32_t i = first; i <= last; ++i) {
      Thunk t;
      t.node = i;
      thunks.push_back(t);
    }
    std::string out;
    for (const RecordingStep& s : recording_of(thunks, nodes, streams, 4)) {
      const char stream = static_cast<char>('0' + s.stream);
      if (s.kind == RecordingStep::Kind::Launch)
        out += fmt::format("{}{} ", static_cast<char>('a' + first - 1 + s.number), stream);
      else
        out += fmt::format("{}{}{} ", stream, s.kind == RecordingStep::Kind::Record ? '>' : '<', s.number);
    }
    return out;
  }
};

TEST_F(Recorded, APieceBeginsAndEndsOnTheMainStream) {
  EXPECT_EQ(recorded(1, 6), "a0 0>1 1<1 b1 c0 0>3 d1 1>4 1<3 e1 0<4 f0 1>5 0<5 ");
  EXPECT_EQ(recorded(1, 2), "a0 0>1 1<1 b1 1>2 0<2 ");  // what is waited for later is joined at the end
  EXPECT_EQ(recorded(3, 6), "0>0 1<0 c0 0>1 d1 1>2 1<1 e1 0<2 f0 1>3 0<3 ");  // what was waited for earlier is done
  EXPECT_EQ(recorded(4, 5), "d0 e0 ");                                        // beside nothing
  EXPECT_EQ(recorded(1, 6, RecordedStreams::One), "a0 b0 c0 d0 e0 f0 ");
}

TEST_F(Recorded, AHintStaysWhereALaterLaunchReadsItsWeights) {
  g = std::move(*parse_graph(R"(graph "ahead" {
  %0: f32[4, 16] = input(name="x") from "trace"
  %1: f32[4, 16] = silu(%0) from "trace"
  %2: f32[16, 16] = param(name="w") from "trace"
  prefetch(%2, first=512, bytes=512, rows=4) @prefetch after %1 from "insert_prefetch"
  %3: f32[4, 16] = silu(%1) from "trace"
  %4: f32[4, 16] = linear(%3, %2, out="same", shard="none") from "trace"
  return y=%4
}
)",
                             ops));
  EXPECT_EQ(recorded(1, 1), "a0 ");
  // Numbers of nodes, of which the parameter is no launch.
  std::vector<const Node*> nodes;
  std::vector<Thunk> thunks;
  for (const Node* n = g.first(); n; n = n->next) {
    if (n->is_launched()) {
      thunks.emplace_back();
      thunks.back().node = static_cast<uint32_t>(nodes.size());
    }
    nodes.push_back(n);
  }
  const auto all = [&](std::span<const Thunk> of, RecordedStreams streams, int64_t rows = 4) {
    std::string out;
    for (const RecordingStep& s : recording_of(of, nodes, streams, rows))
      out += fmt::format("{}{}{} ", s.stream, "lrw"[static_cast<int>(s.kind)], s.number);
    return out;
  };
  const auto both = RecordedStreams::All;
  EXPECT_EQ(all(thunks, both), "0l0 0r1 2w1 2l1 0l2 0l3 2r2 0w2 ");
  EXPECT_EQ(all(thunks, RecordedStreams::One), "0l0 0l2 0l3 ");
  EXPECT_EQ(all(thunks, RecordedStreams::NoHints), "0l0 0l2 0l3 ");
  EXPECT_EQ(all(std::span(thunks).first(3), both), "0l0 0l2 ");  // a cut before the product
  EXPECT_EQ(all(thunks, both, 5), "0l0 0l2 0l3 ");               // for four rows at most
  const MemoryPlan plan = plan_memory(g, {});
  EXPECT_TRUE(check_plan(g, plan).is_ok());
  EXPECT_EQ(plan.arena_bytes, plan_memory(g, {}, true).arena_bytes);
}

}  // namespace
}  // namespace reprise::streams_test

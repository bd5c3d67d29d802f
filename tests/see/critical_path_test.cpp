// The two paths of a profile, on profiles and graphs small enough to be read.
#include "see/critical_path.h"

#include <gtest/gtest.h>

#include "backends/null/null_device.h"
#include "compile/compiled_model.h"
#include "graph/tracer.h"
#include "nn/functional.h"
#include "ops/core.h"

namespace reprise::see::critical_path_test {

namespace {

struct CriticalPathTest : testing::Test {
  Platform platform;
  ParamStore params;
  Staging staging;
  Buffer arena;
  std::unique_ptr<CompiledModel> model;
  std::map<std::string, uint32_t> number;  // of the node that makes an output

  CriticalPathTest() {
    platform.ops = std::make_unique<OpRegistry>();
    register_core_ops(*platform.ops);
    platform.ops->add(
        "bump(Tensor(a!) x) -> Tensor(a)",
        [](const OpCall& c) -> Result<std::vector<TensorType>> { return std::vector{c.in[0]}; },
        "x, counted up in place");
    platform.kernels = std::make_unique<KernelRegistry>();
    null::register_null(*platform.kernels, *platform.ops);
    platform.device = null::make_null_device({});
  }

  void compile(Tracer& t) {
    auto graph = t.finish();
    ASSERT_TRUE(graph.is_ok()) << graph.status().message();
    auto selection = select_kernels(*graph, platform);
    ASSERT_TRUE(selection.is_ok()) << selection.status().message();
    auto store = ParamStore::create(selection->params, platform.device->pool());
    ASSERT_TRUE(store.is_ok());
    params = std::move(*store);
    MemoryPlan plan = plan_memory(*graph, selection->workspace);
    staging.declare(*graph, {});
    ASSERT_TRUE(staging.allocate(*platform.device).is_ok());
    auto room = platform.device->pool().allocate(plan.arena_bytes, "activations");
    ASSERT_TRUE(room.is_ok());
    arena = std::move(*room);
    CompileRequest request;
    request.platform = &platform;
    request.params = &params;
    request.staging = &staging;
    request.arena = arena.data();
    auto compiled = CompiledModel::compile(std::move(*graph), *selection, std::move(plan), request);
    ASSERT_TRUE(compiled.is_ok()) << compiled.status().message();
    model = std::move(*compiled);
    for (const Piece& p : model->pieces())
      for (const Thunk& thunk : p.thunks)
        for (const std::string& name : model->node(thunk.node)->result()->outputs) number[name] = thunk.node;
  }

  // Seconds by output.
  StepProfile profile(const std::map<std::string, double>& spans) const {
    StepProfile p;
    p.tracks = 2;
    for (const auto& [name, span] : spans) {
      NodeTime t;
      t.node = number.at(name);
      t.span_s = span;
      p.nodes.push_back(t);
    }
    return p;
  }
  double slack(const StepProfile& p, const CriticalPath& path, const std::string& name) const {
    for (size_t i = 0; i < p.nodes.size(); ++i)
      if (p.nodes[i].node == number.at(name)) return path.slack_s[i];
    return -1;
  }
};

// Three products of one input, of which the first two are added, then the third.
TEST_F(CriticalPathTest, TheChainIsTheLongestRowOfNeeds) {
  Tracer t("g", *platform.ops);
  const TensorType weight{DType::F32, {Dim(8), Dim(8)}};
  Tensor x = t.input("x", {DType::F32, {t.symbol("T", 9), Dim(8)}});
  Tensor q = nn::linear(x, t.param("q_w", weight)), k = nn::linear(x, t.param("k_w", weight));
  Tensor v = nn::linear(x, t.param("v_w", weight)), qk = nn::add(q, k), all = nn::add(qk, v);
  t.output("q", q), t.output("k", k), t.output("v", v), t.output("qk", qk), t.output("all", all);
  compile(t);
  const StepProfile p = profile({{"q", 3}, {"k", 2}, {"v", 1}, {"qk", 1}, {"all", 1}});
  const CriticalPath path = critical_path(p, *model);
  EXPECT_DOUBLE_EQ(path.chain_s, 5);
  EXPECT_DOUBLE_EQ(path.launches_s, 8);
  EXPECT_EQ(path.chain, (std::vector<uint32_t>{number["q"], number["qk"], number["all"]}));
  EXPECT_DOUBLE_EQ(slack(p, path, "q"), 0);
  EXPECT_DOUBLE_EQ(slack(p, path, "k"), 1);
  EXPECT_DOUBLE_EQ(slack(p, path, "v"), 3);
  EXPECT_DOUBLE_EQ(slack(p, path, "all"), 0);
}

// What writes in place comes after everything that read the old contents, and before what reads the new ones.
TEST_F(CriticalPathTest, AWriterWaitsForTheReadersOfTheOldContents) {
  Tracer t("g", *platform.ops);
  const TensorType type{DType::F32, {t.symbol("T", 9), Dim(8)}};
  Tensor x = t.input("x", type), state = t.input("state", type);
  Tensor read = nn::add(x, state), bumped = t.call("bump", {state})[0], sum = nn::add(x, bumped);
  t.output("read", read), t.output("bumped", bumped), t.output("sum", sum);
  compile(t);
  const CriticalPath path = critical_path(profile({{"read", 4}, {"bumped", 3}, {"sum", 1}}), *model);
  EXPECT_DOUBLE_EQ(path.chain_s, 8);
  EXPECT_EQ(path.chain.size(), 3u);
}

// Two threads, two launches with a barrier between them. Times are in us here.
TEST_F(CriticalPathTest, TheMeasuredPathFollowsTheThreadThatCameLast) {
  Tracer t("g", *platform.ops);
  Tensor x = t.input("x", {DType::F32, {t.symbol("T", 9), Dim(8)}});
  Tensor a = nn::linear(x, t.param("w", {DType::F32, {Dim(8), Dim(8)}})), b = nn::add(a, x);
  t.output("a", a), t.output("b", b);
  compile(t);
  StepProfile p = profile({{"a", 50e-6}, {"b", 20e-6}});
  const auto event = [&](int track, TraceEvent::Kind kind, const std::string& of, int64_t begin, int64_t end) {
    const uint32_t node = of.empty() ? TraceEvent::kNoNode : number.at(of);
    p.events.push_back({track, {kind, 0, node, 1, begin * 1000, end * 1000}});
  };
  using enum TraceEvent::Kind;
  event(0, Kernel, "a", 10, 40), event(0, Wait, "b", 40, 62), event(0, Kernel, "b", 63, 80), event(0, Wait, "", 80, 90);
  event(1, Kernel, "a", 12, 60), event(1, Wait, "b", 60, 61), event(1, Kernel, "b", 61, 85);
  p.begin_ns = 0, p.end_ns = 100'000;
  const CriticalPath path = critical_path(p, *model);
  // Back from 90: 5 until the other thread's end at 85, its `b` to 61, 1 of its own barrier, its `a` from 12 to 60.
  EXPECT_NEAR(path.kernel_s, 72e-6, 1e-12);
  EXPECT_NEAR(path.barrier_s, 6e-6, 1e-12);
  EXPECT_NEAR(path.gap_s, 0, 1e-12);
  EXPECT_NEAR(path.host_s, 22e-6, 1e-12);
  ASSERT_EQ(path.events.size(), 2u);
  EXPECT_EQ(p.events[path.events[0]].track, 1);
  EXPECT_EQ(p.events[path.events[0]].event.node, number["a"]);
  ASSERT_EQ(path.ops.size(), 2u);
  EXPECT_EQ(path.ops[0].op, "linear");
  EXPECT_NEAR(path.ops[0].seconds, 48e-6, 1e-12);
  EXPECT_NE(path_text(path).find("72.0 in kernels (linear 48.0, add 24.0), 6.0 at barriers"), std::string::npos)
      << path_text(path);
}

// Four threads, two for each of two branches that are joined. The side's products go on while a barrier of the main
// one is waited for, and are on the path only where all meet. Times are in us.
TEST_F(CriticalPathTest, ABarrierOfOneBranchWaitsForItsOwnThreads) {
  Tracer t("g", *platform.ops);
  const TensorType weight{DType::F32, {Dim(8), Dim(8)}};
  Tensor x = t.input("x", {DType::F32, {t.symbol("T", 9), Dim(8)}});
  Tensor a = nn::linear(x, t.param("a_w", weight)), b = nn::add(a, x), side = nn::linear(x, t.param("s_w", weight));
  t.output("a", a), t.output("b", b), t.output("side", side), t.output("joined", nn::add(b, side));
  compile(t);
  using enum TraceEvent::Kind;
  for (const bool side_is_last : {false, true}) {
    SCOPED_TRACE(side_is_last);
    StepProfile p = profile({{"a", 30e-6}, {"b", 30e-6}, {"side", 45e-6}, {"joined", 10e-6}});
    p.tracks = 4;
    const auto event = [&](int track, TraceEvent::Kind kind, const std::string& of, int64_t begin, int64_t end) {
      p.events.push_back({track, {kind, 0, number.at(of), 1, begin * 1000, end * 1000}});
    };
    const int64_t side_end = side_is_last ? 75 : 38;
    event(0, Kernel, "a", 0, 20), event(0, Wait, "b", 20, 40), event(0, Kernel, "b", 40, 70);
    event(1, Kernel, "a", 0, 30), event(1, Wait, "b", 30, 39), event(1, Kernel, "b", 39, 60);
    event(2, Kernel, "side", 0, 35), event(3, Kernel, "side", 0, side_end);
    for (const int track : {0, 1, 2, 3}) {
      const int64_t since = std::vector<int64_t>{70, 60, 35, side_end}[static_cast<size_t>(track)];
      event(track, Wait, "joined", since, 80), event(track, Kernel, "joined", 80, track == 2 ? 90 : 85);
    }
    p.begin_ns = 0, p.end_ns = 90'000;
    const CriticalPath path = critical_path(p, *model);
    std::vector<std::pair<int, uint32_t>> got, want{{1, number["a"]}, {0, number["b"]}, {2, number["joined"]}};
    if (side_is_last) want = {{3, number["side"]}, {2, number["joined"]}};
    for (const size_t i : path.events) got.emplace_back(p.events[i].track, p.events[i].event.node);
    EXPECT_EQ(got, want);
    // At `b` from 30, not from 38, when only the other branch ended something; at the join from 70, or from 75.
    EXPECT_NEAR(path.barrier_s, side_is_last ? 5e-6 : 20e-6, 1e-12);
    EXPECT_NEAR(path.kernel_s, side_is_last ? 85e-6 : 70e-6, 1e-12);
    EXPECT_NEAR(path.gap_s + path.host_s, 0, 1e-12);
  }
}

TEST_F(CriticalPathTest, AStepWithoutEventsIsAllHost) {
  Tracer t("g", *platform.ops);
  Tensor x = t.input("x", {DType::F32, {t.symbol("T", 9), Dim(8)}});
  t.output("y", nn::add(x, x));
  compile(t);
  StepProfile p;
  p.end_ns = 7000;
  EXPECT_NEAR(critical_path(p, *model).host_s, 7e-6, 1e-12);
  EXPECT_EQ(critical_path(p, *model).chain_s, 0);
}

}  // namespace
}  // namespace reprise::see::critical_path_test

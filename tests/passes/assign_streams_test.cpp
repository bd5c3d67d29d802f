// Which branches go on the side stream, and why others do not.
#include <gtest/gtest.h>

#include "graph/streams.h"
#include "nn/functional.h"
#include "support.h"

namespace reprise::assign_streams_test {
namespace {

struct AssignStreams : testing::Test {
  Platform platform = test::null_platform();

  PassReport assign(Graph& g, bool fuse = true) {
    PipelineOptions options;
    options.streams = 2;
    if (!fuse) options.passes.enable = {"assign_streams"};
    auto report = run_pipeline(g, options, platform);
    EXPECT_TRUE(report.is_ok()) << report.status().message();
    EXPECT_TRUE(verify(g).is_ok()) << verify(g).message();
    const Status checked = check_plan(g, plan_memory(g, {}));
    EXPECT_TRUE(checked.is_ok()) << checked.message();
    EXPECT_EQ(report->passes.back().name, "assign_streams");
    return report->passes.back();
  }
  // The launches on the side stream and those that wait, each with the ops that it waits for.
  static std::string streams_of(const Graph& g) {
    std::string out;
    for (const Node* n = g.first(); n; n = n->next) {
      if (n->stream == kMainStream && n->waits.empty()) continue;
      out += n->op->name + (n->stream == kSideStream ? " @side" : "");
      for (const Node* w : n->waits) out += " after " + w->op->name;
      out += "\n";
    }
    return out;
  }

  // Experts as nn::moe makes them, without their products, and what stands beside them.
  static Tensor routed(Tracer& t, Tensor x, Tensor slots, int layer = 0) {
    const TensorType router{DType::BF16, {Dim(6), Dim(16)}};
    Tensor logits = nn::linear_f32(x, t.param(fmt::format("router.{}", layer), router), nn::Shard::None);
    const nn::Gated chosen = nn::moe_gate(logits, slots, {}, {2, "softmax", true});
    const nn::Routed r = nn::moe_route(chosen.experts, 0, 6);
    return nn::moe_combine(nn::silu(nn::index_select(x, r.token)), chosen.weights, r.place);
  }
};

TEST_F(AssignStreams, ASharedExpertRunsBesideTheRoutedOnes) {
  Graph g = test::trace_tiny({"Qwen2MoeForCausalLM", 2}, *platform.ops);
  const PassReport p = assign(g);
  EXPECT_EQ(p.matched, 2);
  ASSERT_EQ(p.applied.size(), 2u);
  EXPECT_EQ(
      p.applied[0].reason,
      "slice sigmoid linear silu_mul linear scale_rows beside slice moe_gate moe_route grouped_linear_rows silu_mul "
      "grouped_linear moe_combine");
  // The gate, which waits for the router, does not hold up the expert's first product.
  EXPECT_EQ(streams_of(g),
            "linear @side after add_rms_norm\n"
            "silu_mul @side\n"
            "linear @side\n"
            "slice @side after linear\n"
            "sigmoid @side\n"
            "scale_rows @side\n"
            "add after scale_rows\n"
            "linear @side after add_rms_norm\n"
            "silu_mul @side\n"
            "linear @side\n"
            "slice @side after linear\n"
            "sigmoid @side\n"
            "scale_rows @side\n"
            "index_select @side\n"
            "add after index_select\n");
}

TEST_F(AssignStreams, DenseModelsHaveNothingToRunBeside) {
  for (const bool fuse : {true, false}) {
    Graph g = test::trace_tiny({"Qwen3ForCausalLM", 2}, *platform.ops);
    const PassReport p = assign(g, fuse);
    EXPECT_EQ(p.matched, 0);
    EXPECT_EQ(p.refusals, 2);
    EXPECT_EQ(p.refused[0].reason,
              fuse ? "the launch that makes the queries writes the cache as well"
                   : "the queries wait for no product that reads queries: beside it would be little");
    EXPECT_EQ(streams_of(g), "");
  }
}

TEST_F(AssignStreams, WithoutASharedExpertThereIsNoFork) {
  Graph g = test::trace_tiny({"Qwen3MoeForCausalLM", 2}, *platform.ops);
  EXPECT_EQ(assign(g).matched, 0);
  EXPECT_EQ(streams_of(g), "");
}

// Layers with nothing between them that cuts a graph, as those of a recurrent model.
TEST_F(AssignStreams, EveryLayerForksWithoutASplitOp) {
  Tracer t("layers", *platform.ops);
  Tensor x = nn::silu(t.input("x", {DType::BF16, {t.symbol("T", 8), Dim(16)}}));
  Tensor slots = t.input("slots", {DType::I32, {x.dim(0)}});
  for (int layer = 0; layer < 3; ++layer) {
    const TensorType square{DType::BF16, {Dim(16), Dim(16)}};
    x = nn::add(routed(t, x, slots, layer), nn::linear(x, t.param(fmt::format("shared.{}", layer), square)));
  }
  t.output("y", x);
  Graph g = std::move(*t.finish());
  EXPECT_EQ(assign(g, false).matched, 3);
}

TEST_F(AssignStreams, WhatMultipliesByNoWeightsIsRefused) {
  Tracer t("scaled", *platform.ops);
  Tensor x = nn::silu(t.input("x", {DType::BF16, {t.symbol("T", 8), Dim(16)}}));
  Tensor slots = t.input("slots", {DType::I32, {x.dim(0)}});
  t.output("y", nn::add(routed(t, x, slots), nn::mul(x, x)));
  Graph g = std::move(*t.finish());
  const PassReport p = assign(g, false);
  EXPECT_EQ(p.matched, 0);
  ASSERT_EQ(p.refusals, 1);
  EXPECT_EQ(p.refused[0].reason, "what could run beside the experts multiplies by no weights");
}

TEST_F(AssignStreams, OneStreamIsThePlanOfToday) {
  Graph one = test::trace_tiny({"Qwen2MoeForCausalLM", 2}, *platform.ops);
  auto report = run_pipeline(one, {}, platform);
  ASSERT_TRUE(report.is_ok());
  EXPECT_NE(report->passes.back().name, "assign_streams");
  EXPECT_EQ(streams_of(one), "");
}

}  // namespace
}  // namespace reprise::assign_streams_test

// What a node must touch: caches count by what a step reads and writes of them, whatever their size.
#include "see/node_cost.h"

#include "graph/tracer.h"
#include "models/model.h"
#include "ops/core.h"
#include "see/step_profile.h"
#include "support/tiny_models.h"

namespace reprise::see::node_cost_test {

namespace {

constexpr int64_t kBatch = 3, kContext = 40;

// By op, over the whole decode step.
std::map<std::string, NodeCost> costs(const std::string& model, DeviceKind device, int64_t pool_tokens) {
  testing_support::EngineSetup setup;
  setup.device = device;
  setup.dtype = device == DeviceKind::Ascend ? DType::BF16 : DType::F32;
  setup.total_tokens = pool_tokens;
  auto e = testing_support::open_engine(testing_support::tiny_model_path(model), setup);
  EXPECT_TRUE(e.is_ok()) << e.status().message();
  std::map<std::string, NodeCost> out;
  if (!e.is_ok()) return out;
  StepSizes s;
  s.live.value[models::kTokens] = s.live.value[models::kSequences] = s.live.value[models::kLogitRows] = kBatch;
  s.live.value[models::kCuSeqlens] = kBatch + 1;
  s.live.value[models::kPoolPages] = pool_tokens / 128 + 1;
  s.cached_tokens = s.score_pairs = kBatch * kContext;
  const Graph& graph = (*e)->runner("decode")->model().graph();
  for (const Node* n = graph.first(); n; n = n->next) {
    const NodeCost c = cost_of(*n, s);
    NodeCost& sum = out[n->op->name];
    sum.kv_bytes += c.kv_bytes;
    sum.activation_bytes += c.activation_bytes;
    sum.flops += c.flops;
  }
  return out;
}

// Qwen3-Next's four layers with states, of [3, 168] and [6, 12, 20] numbers: each is read and written once a sequence.
TEST(NodeCost, StatesCountOnceASequence) {
  const auto of = costs("qwen3_next", DeviceKind::Cpu, 1024);
  EXPECT_EQ(of.at("causal_conv").kv_bytes, 4.0 * kBatch * 2 * 3 * 168 * 4);
  EXPECT_EQ(of.at("gated_delta").kv_bytes, 4.0 * kBatch * 2 * 6 * 12 * 20 * 4);
  EXPECT_EQ(of.at("gated_delta").flops, 4.0 * kBatch * 7 * 6 * 12 * 20);
}

// Granite 4's four layers with states, of [3, 176] and [6, 20, 16] numbers.
TEST(NodeCost, StateSpacesLookForNothing) {
  const auto of = costs("granite_hybrid", DeviceKind::Cpu, 1024);
  EXPECT_EQ(of.at("causal_conv_biased").kv_bytes, 4.0 * kBatch * 2 * 3 * 176 * 4);
  EXPECT_EQ(of.at("state_space").kv_bytes, 4.0 * kBatch * 2 * 6 * 20 * 16 * 4);
  EXPECT_EQ(of.at("state_space").flops, 4.0 * kBatch * 5 * 6 * 20 * 16);
}

// A weight in blocks costs the products of its numbers, not of its bytes, in the type that the activations have there.
TEST(NodeCost, WeightsInBlocksCountTheirNumbers) {
  const Platform platform = *make_platform({DeviceKind::Cpu, "auto", 1, false});
  Tracer t("g", *platform.ops);
  const Tensor x = t.input("x", {DType::BF16, {t.symbol("T", 8), Dim(64)}});
  const Tensor weight = t.param("w", {DType::U8, {Dim(22), Dim(68)}});  // two blocks of q8_0 a row
  for (const char* activations : {"same", "int8"})
    t.output(activations, t.call("linear_blocks", {x, weight, {}},
                                 {{"format", std::string("q8_0")}, {"activations", std::string(activations)}})[0]);
  const auto graph = t.finish();
  ASSERT_TRUE(graph.is_ok()) << graph.status().message();
  StepSizes s;
  s.live.value[1] = 5;
  std::map<DType, NodeCost> by_type;
  for (const Node* n = graph->first(); n; n = n->next)
    if (const NodeCost c = cost_of(*n, s); c.flops > 0) by_type[c.dtype] = c;
  ASSERT_EQ(by_type.size(), 2u);
  for (DType dtype : {DType::BF16, DType::I8}) {
    EXPECT_EQ(by_type[dtype].flops, 2.0 * 5 * 22 * 64);
    EXPECT_EQ(by_type[dtype].param_bytes, 22 * 68);
  }
}

// A step reads the rows that its tokens name, be they floats or blocks of a GGUF file, and never the whole table.
TEST(NodeCost, TablesCountTheRowsThatAreNamed) {
  OpRegistry ops;
  register_core_ops(ops);
  Tracer t("g", ops);
  constexpr int64_t kVocabulary = 5000, kWidth = 64;
  const Dim tokens = t.symbol("T", 9);
  Tensor ids = t.input("ids", {DType::I32, {tokens}}), x = t.input("x", {DType::F32, {tokens, Dim(kWidth)}});
  Tensor floats = t.param("floats", {DType::BF16, {Dim(kVocabulary), Dim(kWidth)}});
  Tensor blocks = t.param("blocks", {DType::U8, {Dim(kVocabulary), Dim(68)}});  // two blocks of q8_0
  t.output("a", t.call("embedding", {floats, ids})[0]);
  t.output("b", t.call("embedding_blocks", {blocks, ids},
                       {{"format", std::string("q8_0")}, {"width", kWidth}, {"out", std::string("f32")}})[0]);
  t.output("c", t.call("index_select", {x, ids})[0]);
  const auto traced = t.finish();
  ASSERT_TRUE(traced.is_ok()) << traced.status().message();
  StepSizes s;
  s.live.value[models::kTokens] = 3;
  std::map<std::string, NodeCost> costs;
  for (const Node* n = traced->first(); n; n = n->next) costs[n->op->name] = cost_of(*n, s);
  EXPECT_EQ(costs.at("embedding").param_bytes, 3 * kWidth * 2);
  EXPECT_EQ(costs.at("embedding_blocks").param_bytes, 3 * 68);
  EXPECT_EQ(costs.at("index_select").param_bytes, 0);
  EXPECT_EQ(costs.at("index_select").activation_bytes, 2 * 3 * kWidth * 4 + 3 * 4) << "read, written, and the indices";
}

// What was measured beside other load is marked, and no share of it is printed.
TEST(NodeCost, SharesOfADisturbedLimitAreLeftOut) {
  StepProfile p;
  p.step_s = 1;
  p.machine.read_GBps_all = 10;
  NodeTime n;
  n.span_s = 0.5;
  n.cost.param_bytes = 1e9;
  p.nodes = {n};
  ASSERT_TRUE(p.share(n.cost, n.span_s).has_value());
  EXPECT_DOUBLE_EQ(*p.share(n.cost, n.span_s), 20);
  p.machine.other_load = 1;
  EXPECT_FALSE(p.share(n.cost, n.span_s).has_value());
  EXPECT_NE(p.warning().find("other programs kept 1.0 processors busy"), std::string::npos) << p.warning();
  // Nor when the step beat the limit, however quiet the machine says it was.
  p.machine.other_load = 0;
  p.step_s = 0.01;
  EXPECT_FALSE(p.share(n.cost, n.span_s).has_value());
  EXPECT_EQ(share_text(true, p.share(n.cost, n.span_s)), "-");
  EXPECT_EQ(share_text(false, std::nullopt), "cache");
}

// Latents of 32 and ropes of 16 elements, four heads, two layers of fp32 (config.json says which).
TEST(NodeCost, LatentCachesCountWhatAStepTouches) {
  auto e = testing_support::open_engine(testing_support::tiny_model_path("deepseek_v2_dense"), {});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  double rows = 0, layers = 0, heads = 0, latent = 0, rope = 0;
  const Graph& graph = (*e)->runner("decode")->model().graph();
  for (const Node* n = graph.first(); n; n = n->next) {
    if (n->op->name != "latent_attention") continue;
    layers += 1;
    heads = static_cast<double>(n->in[0]->type.shape[1].factor);
    latent = static_cast<double>(n->in[2]->type.shape[2].factor);
    rope = static_cast<double>(n->in[3]->type.shape[2].factor);
    rows += latent + rope;
  }
  ASSERT_GT(layers, 0);
  for (const int64_t pool : {1024, 16384}) {
    const auto c = costs("deepseek_v2_dense", DeviceKind::Cpu, pool);
    EXPECT_EQ(c.at("latent_attention").kv_bytes, kBatch * kContext * rows * 4);
    EXPECT_EQ(c.at("row_write").kv_bytes, kBatch * rows * 4);
    EXPECT_LT(c.at("row_write").activation_bytes, c.at("row_write").kv_bytes + layers * 2 * 1024) << "rows and slots";
    EXPECT_LT(c.at("latent_attention").activation_bytes, 1 << 16);
    EXPECT_EQ(c.at("latent_attention").flops, layers * kBatch * kContext * heads * (4 * latent + 2 * rope));
  }
}

// The same keys and values lie together on the CPU and apart on Ascend, where a number takes half the room.
// What a prompt's step does in either form is counted once, as expanded.
TEST(NodeCost, ExpandedPromptsCountTheirKeysAndValues) {
  testing_support::EngineSetup setup;
  setup.expanded = true;
  auto e = testing_support::open_engine(testing_support::tiny_model_path("deepseek_v2_dense"), setup);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  StepSizes s;
  s.live.value[models::kTokens] = 40;
  s.live.value[models::kSequences] = 1;
  s.cached_tokens = 40;
  s.score_pairs = 40 * 41 / 2;
  int64_t seen = 0;
  const Graph& graph = (*e)->runner("prefill")->model().graph();
  for (const Node* n = graph.first(); n; n = n->next) {
    const NodeCost c = cost_of(*n, s);
    if (n->op->name == "latent_attention" || n->op->name == "per_head_matmul_rows") {
      EXPECT_EQ(c.flops, 0);
      EXPECT_EQ(c.kv_bytes, 0);
    }
    if (n->op->name != "expanded_latent_attention") continue;
    ++seen;
    const auto size = [&](size_t i, int d) { return static_cast<double>(n->in[i]->type.shape[d].factor); };
    const double heads = size(1, 1), nope = size(1, 2), rope = size(2, 2), value = size(0, 2), latent = size(3, 2);
    EXPECT_EQ(c.flops, s.score_pairs * 2 * heads * (nope + rope + value) +
                           s.cached_tokens * 2 * heads * latent * (nope + value));
    EXPECT_EQ(c.kv_bytes, s.cached_tokens * 4 * (latent + rope));
  }
  EXPECT_EQ(seen, (*e)->config().num_hidden_layers);
}

TEST(NodeCost, CachesApartCountAsThoseTogether) {
  const auto cpu = costs("qwen3_tied", DeviceKind::Cpu, 2048), ascend = costs("qwen3_tied", DeviceKind::Ascend, 4096);
  ASSERT_TRUE(cpu.contains("paged_attention") && ascend.contains("paged_attention_rows"));
  const NodeCost &together = cpu.at("paged_attention"), &apart = ascend.at("paged_attention_rows");
  EXPECT_GT(together.kv_bytes, 0);
  EXPECT_EQ(apart.kv_bytes, together.kv_bytes / 2);
  EXPECT_EQ(apart.flops, together.flops);
  EXPECT_LT(apart.activation_bytes, 1 << 16);
}

}  // namespace
}  // namespace reprise::see::node_cost_test

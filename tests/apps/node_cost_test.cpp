// What a node must touch: caches count by what a step reads and writes of them, whatever their size.
#include "see/node_cost.h"

#include "models/model.h"
#include "run_binary.h"
#include "support/tiny_models.h"

namespace reprise::apps {
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
  s.live.value[models::kQueryBorders] = kBatch + 1;
  s.live.value[models::kPoolPages] = pool_tokens / 128 + 1;
  s.cached_tokens = s.score_pairs = kBatch * kContext;
  const Graph& graph = (*e)->decode_runner()->model().graph();
  for (const Node* n = graph.first(); n; n = n->next) {
    const NodeCost c = cost_of(*n, s);
    NodeCost& sum = out[n->op->name];
    sum.kv_bytes += c.kv_bytes;
    sum.activation_bytes += c.activation_bytes;
    sum.flops += c.flops;
  }
  return out;
}

// Latents of 32 and ropes of 16 elements, four heads, two layers of fp32 (config.json says which).
TEST(NodeCost, LatentCachesCountWhatAStepTouches) {
  auto e = testing_support::open_engine(testing_support::tiny_model_path("deepseek_v2_dense"), {});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  double rows = 0, layers = 0, heads = 0, latent = 0, rope = 0;
  const Graph& graph = (*e)->decode_runner()->model().graph();
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
  const Graph& graph = (*e)->prefill_runner()->model().graph();
  for (const Node* n = graph.first(); n; n = n->next) {
    const NodeCost c = cost_of(*n, s);
    if (n->op->name == "latent_attention" || n->op->name == "head_linear_rows") {
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
}  // namespace reprise::apps

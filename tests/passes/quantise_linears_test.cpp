// What quantise_linears makes of a model (F51, F52): which ops, which parameters by which recipes, what is shared.
#include <gtest/gtest.h>

#include "nn/functional.h"
#include "support.h"

namespace reprise::quantise_linears_test {
namespace {

using checkpoint::LinearQuant;
using checkpoint::LinearScheme;
using checkpoint::LinearStorage;
using checkpoint::QuantPlan;

struct Outcome {
  Graph graph{"none"};
  PipelineReport report;
};

Outcome run(Graph g, QuantPlan plan, const Platform& platform, PipelineOptions options = {}) {
  options.quantisation = std::make_shared<const QuantPlan>(std::move(plan));
  auto report = run_pipeline(g, options, platform);
  EXPECT_TRUE(report.is_ok()) << report.status().message();
  Outcome out;
  out.graph = std::move(g);
  if (report.is_ok()) out.report = std::move(*report);
  return out;
}

int64_t count(const Graph& g, std::string_view op) {
  int64_t n = 0;
  for (const Node* node = g.first(); node; node = node->next) n += node->op->name == op;
  return n;
}

QuantPlan at_load() {
  QuantPlan plan;
  plan.format = checkpoint::Quantization::W8A8Int8;
  plan.others = {LinearScheme::W8A8Dynamic, LinearStorage::Floats};
  return plan;
}

const DerivedParam* derived(const PipelineReport& r, std::string_view name) {
  for (const DerivedParam& p : r.derived)
    if (p.name == name) return &p;
  return nullptr;
}

TEST(QuantiseLinears, EveryFamilyFusesEveryLayer) {
  const Platform platform = test::null_platform();
  for (const char* family : {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})
    for (bool tied : {true, false}) {
      const test::TinyModel model{family, 3, 64, 1e-5, tied};
      const Outcome o = run(test::trace_tiny(model, *platform.ops), at_load(), platform);
      auto n = test::counts(o.report.passes);
      EXPECT_EQ(n["quantise_linears"], 7 * 3 + 1) << family;
      EXPECT_EQ(n["pack_parallel_linears"], 2 * 3) << family;
      EXPECT_EQ(n["add_rms_norm_quant_dynamic"], 2 * 3 - 1) << family;
      EXPECT_EQ(n["add_rms_norm"], 1) << family;
      EXPECT_EQ(n["silu_mul_quant"], 3) << family;
      EXPECT_EQ(n["split_qk_norm_rope_kv"], 3) << family;
      EXPECT_EQ(count(o.graph, "linear"), 0) << family;
      EXPECT_EQ(count(o.graph, "linear_w8a8_dynamic"), 4 * 3 + 1) << family;
      for (const Node* node = o.graph.first(); node; node = node->next)
        if (const AttrValue* a = node->attrs.find("activations"))
          EXPECT_EQ(*a, AttrValue(std::string(tied ? "same" : "int8"))) << node->op->name;
      const DerivedParam* qkv = derived(o.report, "model.layers.0.self_attn.qkv_proj.weight");
      ASSERT_TRUE(qkv);
      ASSERT_EQ(qkv->parts.size(), 3u);
      EXPECT_EQ(qkv->parts[1], (ParamPart{"model.layers.0.self_attn.k_proj.weight", 128, Recipe::QuantisedRows, 96}));
      const DerivedParam* scale = derived(o.report, "model.layers.0.self_attn.qkv_proj.weight_row_scale");
      ASSERT_TRUE(scale);
      EXPECT_EQ(scale->parts[2], (ParamPart{"model.layers.0.self_attn.v_proj.weight", 128, Recipe::RowScales, 96}));
      // Every parameter is a tensor as it stands or has its recipe; none of the parts is left.
      for (const DerivedParam& p : o.report.derived) EXPECT_TRUE(o.graph.find_param(p.name)) << p.name;
      const Node* table = o.graph.find_param("model.embed_tokens.weight");
      ASSERT_TRUE(table);
      EXPECT_EQ(table->result()->type.dtype, DType::BF16);
      const Node* head = o.graph.find_param(tied ? "model.embed_tokens.weight_i8" : "lm_head.weight");
      ASSERT_TRUE(head);
      EXPECT_EQ(head->result()->type.dtype, DType::I8);
    }
}

// F43: every norm of the residual stream has a bias, and every fusion takes it along.
TEST(NormBiases, EveryFamilyFusesEveryLayer) {
  const Platform platform = test::null_platform();
  for (const char* family : {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})
    for (bool is_static : {true, false}) {
      QuantPlan plan = at_load();
      if (is_static) plan.others = {LinearScheme::W8A8Static, LinearStorage::ModelSlim, 0.5f, 3};
      Graph traced = test::trace_tiny({family, 3}, *platform.ops);
      std::vector<std::string> biases{"model.norm.bias"};
      for (int layer = 0; layer < 3; ++layer)
        for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
          biases.push_back(fmt::format("model.layers.{}.{}.bias", layer, norm));
      plan.norm_biases.insert(biases.begin(), biases.end());
      const Outcome o = run(std::move(traced), plan, platform);
      auto n = test::counts(o.report.passes);
      EXPECT_EQ(n["add_norm_biases"], 2 * 3 + 1) << family;
      // The first norm follows no addition, the last one is an output of its own.
      EXPECT_EQ(n["add_rms_norm_quant_static"], is_static ? 2 * 3 - 1 : 0) << family;
      EXPECT_EQ(n["add_rms_norm_quant_dynamic"], is_static ? 0 : 2 * 3 - 1) << family;
      EXPECT_EQ(n["add_rms_norm"], 1) << family;
      EXPECT_EQ(n["split_qk_norm_rope_kv"], 3) << family;
      for (const std::string& name : biases) {
        const Node* bias = o.graph.find_param(name);
        ASSERT_TRUE(bias) << name;
        ASSERT_EQ(bias->result()->uses.size(), 1u);
        const Use use = bias->result()->uses[0];
        EXPECT_EQ(use.user->op->operands[use.operand].name, "bias") << use.user->op->name;
        EXPECT_EQ(bias->result()->type.dtype, DType::BF16);
      }
    }
}

TEST(NormBiases, OnlyOfTheNormsThatThePlanNames) {
  const Platform platform = test::null_platform();
  QuantPlan plan = at_load();
  plan.norm_biases = {"model.layers.1.post_attention_layernorm.bias", "model.layers.0.self_attn.q_norm.bias"};
  const Outcome o = run(test::trace_tiny({"Qwen3ForCausalLM", 2}, *platform.ops), plan, platform);
  auto n = test::counts(o.report.passes);
  EXPECT_EQ(n["add_norm_biases"], 2);
  EXPECT_EQ(n["add_rms_norm_quant_dynamic"], 2 * 2 - 1);
  EXPECT_EQ(n["split_qk_norm_rope_kv"], 1) << "the fused op has no bias for query and key norms";
  int64_t with_bias = 0;
  for (const Node* node = o.graph.first(); node; node = node->next)
    if (node->op->name == "add_rms_norm_quant_dynamic") with_bias += node->in.size() == 4;
  EXPECT_EQ(with_bias, 1);
  EXPECT_EQ(o.graph.find_param("model.norm.bias"), nullptr);
  // Required: switching the optional passes off keeps it.
  PipelineOptions none;
  none.passes.enable = {"none"};
  const Outcome plain = run(test::trace_tiny({"Qwen3ForCausalLM", 2}, *platform.ops), plan, platform, none);
  EXPECT_EQ(test::counts(plain.report.passes)["add_norm_biases"], 2);
}

TEST(QuantiseLinears, GreedyReadsTheSameHead) {
  const Platform platform = test::null_platform();
  PipelineOptions options;
  options.greedy = true;
  const Outcome o = run(test::trace_tiny({"LlamaForCausalLM", 1}, *platform.ops), at_load(), platform, options);
  EXPECT_EQ(count(o.graph, "lm_head_argmax_w8a8"), 1);
  EXPECT_TRUE(o.graph.find_param("model.embed_tokens.weight_i8"));
}

TEST(QuantiseLinears, RunsWhenNothingOptionalDoes) {
  const Platform platform = test::null_platform();
  PipelineOptions options;
  options.passes.enable = {"none"};
  const Outcome o = run(test::trace_tiny({"Qwen3ForCausalLM", 2}, *platform.ops), at_load(), platform, options);
  EXPECT_EQ(count(o.graph, "linear"), 0);
  EXPECT_EQ(count(o.graph, "linear_w8a8_dynamic"), 7 * 2 + 1);
  EXPECT_EQ(count(o.graph, "quantize_dynamic"), 4 * 2 + 1) << "one for q, k and v, one for gate and up";
}

// y = float(x) + static(x) + static(x) + dynamic(x), with a bias on the second and the last.
TEST(QuantiseLinears, OneInputMayFeedAllKindsAndEqualNumbersShareOneQuantize) {
  const Platform platform = test::null_platform();
  for (float second : {0.5f, 0.25f}) {
    Tracer t("g", *platform.ops);
    Tensor x = t.input("x", {DType::BF16, {t.symbol("T", 8), Dim(44)}});
    const auto weight = [&](const char* name) { return t.param(name, {DType::BF16, {Dim(22), Dim(44)}}); };
    const auto bias = [&](const char* name) { return t.param(name, {DType::BF16, {Dim(22)}}); };
    Tensor y = nn::linear(x, weight("float.weight"));
    y = nn::add(y, nn::linear(x, weight("a.weight"), bias("a.bias")));
    y = nn::add(y, nn::linear(x, weight("b.weight"), bias("b.bias")));
    y = nn::add(y, nn::linear(x, weight("c.weight"), bias("c.bias")));
    t.output("y", y);
    auto traced = t.finish();
    ASSERT_TRUE(traced.is_ok()) << traced.status().message();
    QuantPlan plan;
    plan.linears["float.weight"] = {};
    plan.linears["a.weight"] = {LinearScheme::W8A8Static, LinearStorage::ModelSlim, 0.5f, 3};
    plan.linears["b.weight"] = {LinearScheme::W8A8Static, LinearStorage::ModelSlim, second, 3};
    plan.linears["c.weight"] = {LinearScheme::W8A8Dynamic, LinearStorage::CompressedTensors};
    const Outcome o = run(std::move(*traced), plan, platform);
    const bool equal = second == 0.5f;
    EXPECT_EQ(count(o.graph, "linear") + count(o.graph, "linear_add"), 1);
    EXPECT_EQ(count(o.graph, "quantize_static"), equal ? 1 : 2);
    EXPECT_EQ(count(o.graph, "linear_w8a8_static"), equal ? 1 : 2);
    EXPECT_EQ(count(o.graph, "quantize_dynamic"), 1);
    EXPECT_EQ(test::counts(o.report.passes)["pack_parallel_linears"], equal ? 1 : 0);
    // A folded bias takes the float one's place; the other is added in fp32.
    EXPECT_FALSE(o.graph.find_param("a.bias"));
    const Node* c = o.graph.find_param("c.bias");
    ASSERT_TRUE(c);
    EXPECT_EQ(c->result()->type.dtype, DType::F32);
    const DerivedParam* folded = derived(o.report, equal ? "a_b.weight_folded_bias" : "a.weight_folded_bias");
    ASSERT_TRUE(folded);
    EXPECT_EQ(folded->parts[0], (ParamPart{"a.quant_bias", 22}));
    for (const PassReport& p : o.report.passes)
      if (p.name == "pack_parallel_linears" && !equal) {
        ASSERT_EQ(p.refused.size(), 1u);
        EXPECT_NE(p.refused[0].reason.find("2 different input scales"), std::string::npos) << p.refused[0].reason;
      }
  }
}

TEST(QuantiseLinears, RecipesOfCompressedTensors) {
  const Platform platform = test::null_platform();
  for (float zero_point : {0.0f, -7.0f}) {
    QuantPlan plan;
    plan.others = {LinearScheme::W8A8Static, LinearStorage::CompressedTensors, 0.5f, zero_point};
    const Outcome o = run(test::trace_tiny({"Qwen2ForCausalLM", 1}, *platform.ops), plan, platform);
    const std::string p = "model.layers.0.mlp.down_proj.";
    const DerivedParam* scale = derived(o.report, p + "weight_row_scale");
    ASSERT_TRUE(scale);
    EXPECT_EQ(scale->parts[0], (ParamPart{p + "weight_scale", 96, Recipe::ScaleProducts, 160, p + "input_scale"}));
    const DerivedParam* folded = derived(o.report, p + "weight_folded_bias");
    ASSERT_TRUE(folded);
    EXPECT_EQ(folded->parts[0],
              zero_point == 0 ? (ParamPart{"", 96, Recipe::Zeros})
                              : (ParamPart{p + "weight", 96, Recipe::ZeroPointSums, 160, p + "input_zero_point"}));
    // The bias of q, k and v is added after the scale.
    EXPECT_TRUE(o.graph.find_param("model.layers.0.self_attn.qkv_proj.bias"));
  }
}

// F55. A shared expert brings an MLP of its own, and a gate that is computed with the router: both stay float.
TEST(QuantiseLinears, ExpertsAreQuantisedAndFusedInEveryLayer) {
  const Platform platform = test::null_platform();
  constexpr int64_t kLayers = 3;
  for (const char* family : {"MixtralForCausalLM", "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM"}) {
    const Outcome o = run(test::trace_tiny({family, kLayers, 64, 1e-5, false}, *platform.ops), at_load(), platform);
    auto n = test::counts(o.report.passes);
    const int64_t shared = std::string(family) == "Qwen2MoeForCausalLM" ? kLayers : 0;
    EXPECT_EQ(n["quantise_linears"], 7 * kLayers + 3 * shared + 1) << family;
    EXPECT_EQ(n["pack_parallel_linears"], 2 * kLayers + 2 * shared) << family;
    EXPECT_EQ(n["grouped_silu_mul_quant"], kLayers) << family;
    EXPECT_EQ(n["silu_mul_quant"], shared) << family;
    EXPECT_EQ(n["add_rms_norm_quant_dynamic"], kLayers - 1) << family << ": the other norms feed routers, too";
    EXPECT_EQ(n["add_rms_norm"], kLayers + 1) << family;
    EXPECT_EQ(count(o.graph, "grouped_linear_w8a8_dynamic"), kLayers) << family << ": the way down";
    EXPECT_EQ(count(o.graph, "grouped_linear") + count(o.graph, "grouped_linear_rows"), 0) << family;
    EXPECT_EQ(count(o.graph, "linear"), kLayers) << family;
    for (const DerivedParam& p : o.report.derived) EXPECT_TRUE(o.graph.find_param(p.name)) << p.name;
    if (std::string(family) == "MixtralForCausalLM") continue;
    const std::string stack = "model.layers.1.mlp.experts.{0..5}.gate_up_proj.weight";
    const std::string expert = "model.layers.1.mlp.experts.3.";
    const DerivedParam *weight = derived(o.report, stack), *scale = derived(o.report, stack + "_row_scale");
    ASSERT_TRUE(weight && scale) << family;
    ASSERT_EQ(weight->parts.size(), 12u);
    ASSERT_EQ(scale->parts.size(), 12u);
    EXPECT_EQ(weight->parts[7], (ParamPart{expert + "up_proj.weight", 40, Recipe::QuantisedRows, 96}));
    EXPECT_EQ(scale->parts[6], (ParamPart{expert + "gate_proj.weight", 40, Recipe::RowScales, 96}));
  }
}

// A device that divides by vectors gets them from the loader: in the norm's type beside bf16, f32 and i32 beside f16.
TEST(QuantiseLinears, NormsGetTheirDivisorsFromTheLoader) {
  const Platform platform = test::null_platform();
  constexpr int64_t kLayers = 3;
  for (const DType dtype : {DType::BF16, DType::F16}) {
    QuantPlan plan;
    plan.others = {LinearScheme::W8A8Static, LinearStorage::ModelSlim, 0.5f, 3};
    const Outcome o = run(test::trace_tiny({"Qwen3ForCausalLM", kLayers}, *platform.ops, dtype), plan, platform);
    auto n = test::counts(o.report.passes);
    EXPECT_EQ(n["add_rms_norm_quant_static"], 2 * kLayers - 1);
    EXPECT_EQ(n["load_quant_divisors"], 2 * kLayers - 1);
    EXPECT_EQ(count(o.graph, "add_rms_norm_quant_divided"), 2 * kLayers - 1);
    EXPECT_EQ(count(o.graph, "add_rms_norm_quant_static"), 0);
    const std::string up = "model.layers.1.mlp.gate_proj.", scale = up + "input_scale_reciprocal_divisors",
                      offset = up + "input_offset_zeros";
    const DerivedParam *divisors = derived(o.report, scale), *zeros = derived(o.report, offset);
    ASSERT_TRUE(divisors && zeros);
    EXPECT_EQ(divisors->parts[0], (ParamPart{up + "input_scale", 96, Recipe::InputScales}));
    EXPECT_EQ(zeros->parts[0], (ParamPart{up + "input_offset", 96, Recipe::Numbers}));
    const bool bf16 = dtype == DType::BF16;
    EXPECT_EQ(o.graph.find_param(scale)->result()->type.dtype, bf16 ? DType::BF16 : DType::F32);
    EXPECT_EQ(o.graph.find_param(offset)->result()->type.dtype, bf16 ? DType::BF16 : DType::I32);
    for (const DerivedParam& p : o.report.derived) EXPECT_TRUE(o.graph.find_param(p.name)) << p.name;
  }
}

QuantPlan static_experts(int layers) {
  QuantPlan plan;
  plan.format = checkpoint::Quantization::ModelSlim;
  plan.others = {LinearScheme::W8A8Static, LinearStorage::ModelSlim, 0.5f, 3};
  for (int l = 0; l < layers; ++l) plan.linears[fmt::format("model.layers.{}.mlp.gate.weight", l)] = {};
  return plan;
}

// Static inputs: quantised before they are gathered where all experts have one scale, else by groups; gate and up of an
// expert have one scale and share that.
TEST(QuantiseLinears, ExpertsMayHaveInputScalesOfTheirOwn) {
  const Platform platform = test::null_platform();
  for (const bool equal : {true, false}) {
    QuantPlan plan = static_experts(2);
    for (const char* leaf : {"gate_proj", "up_proj", "down_proj"})
      for (int l = 0; l < 2 && !equal; ++l) {
        const std::string name = fmt::format("model.layers.{}.mlp.experts.2.{}.weight", l, leaf);
        plan.linears[name] = {LinearScheme::W8A8Static, LinearStorage::ModelSlim, 0.25f, -7};
      }
    const Outcome o = run(test::trace_tiny({"Qwen3MoeForCausalLM", 2}, *platform.ops), plan, platform);
    EXPECT_EQ(count(o.graph, "grouped_linear_w8a8_static"), 2 * 2);
    EXPECT_EQ(count(o.graph, "quantize_groups"), equal ? 0 : 2 * 2);
    auto n = test::counts(o.report.passes);
    EXPECT_EQ(n["pack_parallel_linears"], 2 * 2);
    EXPECT_EQ(n["silu_mul_quant_static"], equal ? 2 : 0);
    const std::string down = "model.layers.1.mlp.experts.{0..5}.down_proj.weight";
    const DerivedParam* folded = derived(o.report, down + "_folded_bias");
    ASSERT_TRUE(folded);
    EXPECT_EQ(folded->parts.at(4), (ParamPart{"model.layers.1.mlp.experts.4.down_proj.quant_bias", 96}));
    const DerivedParam* scales = derived(o.report, down + "_input_scale_reciprocals");
    EXPECT_EQ(scales != nullptr, !equal);
    if (scales) {
      EXPECT_EQ(scales->parts.at(2),
                (ParamPart{"model.layers.1.mlp.experts.2.down_proj.input_scale", 1, Recipe::Reciprocals}));
    }
  }
}

TEST(QuantiseLinears, ExpertsOfALayerMustBeAlike) {
  const Platform platform = test::null_platform();
  QuantPlan plan = static_experts(2);
  plan.linears["model.layers.1.mlp.experts.3.up_proj.weight"] = {LinearScheme::W8A8Dynamic, LinearStorage::ModelSlim};
  Graph g = test::trace_tiny({"Qwen3MoeForCausalLM", 2}, *platform.ops);
  PipelineOptions options;
  options.quantisation = std::make_shared<const QuantPlan>(std::move(plan));
  const auto report = run_pipeline(g, options, platform);
  ASSERT_FALSE(report.is_ok());
  for (const char* words : {"experts.0.up_proj.weight and model.layers.1.mlp.experts.3.up_proj.weight",
                            "experts of one layer must be alike"})
    EXPECT_NE(report.status().message().find(words), std::string::npos) << report.status().message();
}

TEST(KeepBlocks, EveryFamilyKeepsEveryMatrix) {
  const Platform platform = test::null_platform();
  for (const char* family : {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})
    for (bool tied : {true, false}) {
      QuantPlan plan;
      plan.int8_activations = !tied;
      plan.format = checkpoint::Quantization::Gguf;
      plan.others = {.scheme = LinearScheme::Packed, .storage = LinearStorage::Blocks, .block = BlockFormat::Q4_1};
      // Vectors are of no block type.
      Graph traced = test::trace_tiny({family, 3, 64, 1e-5, tied}, *platform.ops);
      for (const Node* n = traced.first(); n; n = n->next)
        if (n->is_param() && n->result()->type.shape.rank() == 1) plan.linears[n->attrs.text("name")] = {};
      PipelineOptions options;
      options.greedy = true;
      const Outcome o = run(std::move(traced), plan, platform, options);
      auto n = test::counts(o.report.passes);
      EXPECT_EQ(n["quantise_linears"], 7 * 3 + (tied ? 1 : 2)) << family;
      EXPECT_EQ(n["pack_parallel_linears"], 2 * 3) << family;
      EXPECT_EQ(count(o.graph, "linear"), 0) << family;
      EXPECT_EQ(count(o.graph, "embedding_blocks"), 1) << family;
      EXPECT_EQ(count(o.graph, "lm_head_argmax_blocks"), 1) << family;
      const DerivedParam* qkv = derived(o.report, "model.layers.0.self_attn.qkv_proj.weight");
      ASSERT_TRUE(qkv);
      ASSERT_EQ(qkv->parts.size(), 3u);
      EXPECT_EQ(qkv->parts[1], (ParamPart{"model.layers.0.self_attn.k_proj.weight", 128, Recipe::StoredBlocks, 96}));
      const Node* table = o.graph.find_param("model.embed_tokens.weight");
      ASSERT_TRUE(table);
      EXPECT_EQ(table->result()->type.dtype, DType::U8);
      EXPECT_EQ(table->result()->type.shape[1].factor, 60) << "three blocks of 20 bytes";
    }
}

// A parameter is one thing in memory: when anything reads it as floats, all do, and that is said.
TEST(KeepBlocks, AllReadersOrNone) {
  const Platform platform = test::null_platform();
  for (bool as_floats : {false, true}) {
    Tracer t("g", *platform.ops);
    Tensor x = t.input("x", {DType::BF16, {t.symbol("T", 8), Dim(64)}});
    Tensor a = t.param("a.weight", {DType::BF16, {Dim(22), Dim(64)}});
    Tensor b = t.param("b.weight", {DType::BF16, {Dim(22), Dim(64)}});
    t.output("y", nn::add(nn::linear(x, a), nn::linear(x, b)));
    if (as_floats) t.output("z", nn::add(a, a));
    auto traced = t.finish();
    ASSERT_TRUE(traced.is_ok()) << traced.status().message();
    QuantPlan plan;
    plan.format = checkpoint::Quantization::Gguf;
    plan.linears["a.weight"] = {
        .scheme = LinearScheme::Packed, .storage = LinearStorage::Blocks, .block = BlockFormat::Q8_0};
    plan.linears["b.weight"] = {.unpacked = "Q5_K"};
    const Outcome o = run(std::move(*traced), plan, platform);
    EXPECT_EQ(count(o.graph, "linear_blocks"), as_floats ? 0 : 1);
    std::string reasons;
    for (const PassReport& p : o.report.passes)
      if (p.name == "quantise_linears")
        for (const PassRemark& r : p.refused) reasons += r.reason + "\n";
    EXPECT_NE(reasons.find("b.weight is unpacked: there are no kernels on Q5_K blocks"), std::string::npos) << reasons;
    EXPECT_EQ(reasons.find("a.weight is unpacked") != std::string::npos, as_floats) << reasons;
    EXPECT_EQ(reasons.find("(add) reads it as floats") != std::string::npos, as_floats) << reasons;
    const DerivedParam* stored = derived(o.report, "a.weight");
    EXPECT_EQ(stored != nullptr, !as_floats);
    if (stored) {
      EXPECT_EQ(stored->parts[0], (ParamPart{"a.weight", 22, Recipe::StoredBlocks, 64}));
    }
  }
}

}  // namespace
}  // namespace reprise::quantise_linears_test

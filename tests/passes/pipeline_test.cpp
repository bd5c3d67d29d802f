// What the pipeline makes of the model families: how often each pass fits, and that the bits stay.
#include <gtest/gtest.h>

#include <functional>

#include "nn/functional.h"
#include "support.h"

namespace reprise::pipeline_test {
namespace {

using test::TinyModel;

const char* const kFamilies[] = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"};

PipelineReport run(Graph& g, const Platform& p, const PipelineOptions& options = {}) {
  auto report = run_pipeline(g, options, p);
  EXPECT_TRUE(report.is_ok()) << report.status().message();
  return report.is_ok() ? std::move(*report) : PipelineReport{};
}

TEST(Pipeline, EveryFamilyFusesEveryLayer) {
  const Platform platform = test::null_platform();
  for (const char* family : kFamilies)
    for (double eps : {1e-5, 1e-6})
      for (int64_t head : {64, 80, 128}) {
        const TinyModel model{family, 3, head, eps};
        Graph g = test::trace_tiny(model, *platform.ops);
        auto n = test::counts(run(g, platform).passes);
        const std::map<std::string, int64_t> expected{
            {"canonicalise", 0},
            {"common_subexpressions", 0},
            {"hoist_row_gather", 9},  // the last layer behind attention
            {"pack_parallel_linears", 2 * model.layers},
            {"split_qk_norm_rope_kv", model.layers},
            {"split_qk_norm_rope", 0},
            {"add_rms_norm_quant_static", 0},
            {"add_rms_norm_quant_dynamic", 0},
            {"silu_mul_quant", 0},
            {"silu_mul_quant_static", 0},
            {"lm_head_argmax_w8a8", 0},
            {"add_rms_norm", 2 * model.layers},
            {"silu_mul", model.layers},
            {"linear_add", 0},  // every residual is taken by a norm
            {"lm_head_argmax", 0},
            {"legalise", 0},
        };
        for (auto& [name, count] : expected) EXPECT_EQ(n[name], count) << family << " " << name << " head " << head;
        EXPECT_EQ(print(test::copy_of(g, *platform.ops)), print(g));
        int primitive = 0;
        for (const Node* node = g.first(); node; node = node->next)
          for (const char* left : {"slice", "heads", "rope", "kv_write", "silu", "mul", "add"})
            primitive += node->op->name == left;
        EXPECT_EQ(primitive, 0) << print(g);
      }
}

TEST(Pipeline, ExpertsAreFusedInEveryLayer) {
  const Platform platform = test::null_platform();
  constexpr int64_t kLayers = 3;
  for (const char* family : {"MixtralForCausalLM", "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM"}) {
    Graph g = test::trace_tiny({family, kLayers}, *platform.ops);
    const PipelineReport report = run(g, platform);
    auto n = test::counts(report.passes);
    // A shared expert brings a gated MLP of its own, and a gate that is computed with the router.
    const int64_t shared = std::string(family) == "Qwen2MoeForCausalLM" ? kLayers : 0;
    EXPECT_EQ(n["pack_parallel_linears"], 2 * kLayers + 2 * shared) << family;
    EXPECT_EQ(n["grouped_linear_rows"], kLayers) << family;
    EXPECT_EQ(n["silu_mul"], kLayers + shared) << family;
    EXPECT_EQ(n["split_qk_norm_rope_kv"], kLayers) << family;
    EXPECT_EQ(n["add_rms_norm"], 2 * kLayers) << family;
    // The joined stack has gate and up of one expert one after the other.
    for (const DerivedParam& p : report.derived)
      if (p.name == "model.layers.1.mlp.experts.{0..5}.gate_up_proj.weight") {
        ASSERT_EQ(p.parts.size(), 12u);
        EXPECT_EQ(p.parts[6].tensor, "model.layers.1.mlp.experts.3.gate_proj.weight");
        EXPECT_EQ(p.parts[7].tensor, "model.layers.1.mlp.experts.3.up_proj.weight");
        --n["found"];
      }
    EXPECT_EQ(n["found"], -1) << family;
  }
}

TEST(Pipeline, IsDeterministic) {
  const Platform platform = test::null_platform();
  Graph a = test::trace_tiny({"Qwen3ForCausalLM"}, *platform.ops), b = test::copy_of(a, *platform.ops);
  (void)run(a, platform);
  (void)run(b, platform);
  EXPECT_EQ(print(a), print(b));
  const std::string once = print(a);
  (void)run(a, platform);
  EXPECT_EQ(print(a), once) << "a second run finds nothing left";
}

TEST(Pipeline, PackedParametersNameTheirParts) {
  const Platform platform = test::null_platform();
  Graph g = test::trace_tiny({"Qwen2ForCausalLM", 1}, *platform.ops);
  const PipelineReport report = run(g, platform);
  const std::string p = "model.layers.0.";
  ASSERT_EQ(report.derived.size(), 3u);
  EXPECT_EQ(report.derived[0].name, p + "self_attn.qkv_proj.weight");
  EXPECT_EQ(report.derived[0].parts, (std::vector<ParamPart>{{.tensor = p + "self_attn.q_proj.weight", .rows = 256},
                                                             {.tensor = p + "self_attn.k_proj.weight", .rows = 128},
                                                             {.tensor = p + "self_attn.v_proj.weight", .rows = 128}}));
  EXPECT_EQ(report.derived[1].name, p + "self_attn.qkv_proj.bias");
  EXPECT_EQ(report.derived[2].name, p + "mlp.gate_up_proj.weight");
  for (auto& derived : report.derived) {
    ASSERT_TRUE(g.find_param(derived.name));
    for (auto& part : derived.parts) EXPECT_FALSE(g.find_param(part.tensor));
  }
}

TEST(Pipeline, GreedyTakesTheHeadAndItsArgmax) {
  const Platform platform = test::null_platform();
  for (bool tied : {true, false}) {
    Graph g = test::trace_tiny({"LlamaForCausalLM", 2, 64, 1e-5, tied}, *platform.ops);
    PipelineOptions options;
    options.greedy = true;
    auto n = test::counts(run(g, platform, options).passes);
    EXPECT_EQ(n["lm_head_argmax"], 1);
    ASSERT_EQ(g.outputs().size(), 3u);
    EXPECT_EQ(g.outputs()[0].name, "hidden");
    EXPECT_EQ(g.outputs()[1].name, "logits");
    EXPECT_EQ(g.outputs()[1].value->def->op->name, "linear");
    EXPECT_EQ(g.outputs()[2].name, "next_tokens");
    EXPECT_EQ(g.outputs()[2].value->type.dtype, DType::I32);
    EXPECT_EQ(g.outputs()[2].value->def->op->name, "lm_head_argmax");
  }
}

TEST(Pipeline, AnArgmaxThatIsNotFusedReadsTheLogits) {
  const Platform platform = test::null_platform();
  Graph g = test::trace_tiny({"LlamaForCausalLM"}, *platform.ops);
  PipelineOptions options;
  options.greedy = true;
  options.passes.disable = {"lm_head_argmax"};
  EXPECT_EQ(test::counts(run(g, platform, options).passes)["share_head"], 1);
  ASSERT_EQ(g.outputs().size(), 3u);
  EXPECT_EQ(g.outputs()[2].value->def->op->name, "argmax");
  EXPECT_EQ(g.outputs()[2].value->def->in[0], g.outputs()[1].value);
}

TEST(Pipeline, TheQuantisedHeadTakesItsArgmax) {
  const Platform platform = test::null_platform();
  Tracer t("g", *platform.ops);
  const nn::Quantized q = nn::quantize_dynamic(t.input("x", {DType::BF16, {t.symbol("T", 8), Dim(32)}}));
  Tensor logits =
      nn::linear_w8a8_dynamic(q, t.param("head", {DType::I8, {Dim(90), Dim(32)}}),
                              t.param("head.scale", {DType::F32, {Dim(90)}}), DType::F32, {}, nn::Shard::Column);
  t.output("next", nn::argmax(logits));
  Graph g = std::move(*t.finish());
  EXPECT_EQ(test::counts(run(g, platform).passes)["lm_head_argmax_w8a8"], 1);
  EXPECT_EQ(g.outputs()[0].value->def->op->name, "lm_head_argmax_w8a8");
}

TEST(Pipeline, NoneKeepsTheRequiredPasses) {
  const Platform platform = test::null_platform();
  Graph g = test::trace_tiny({"LlamaForCausalLM"}, *platform.ops);
  const std::string before = print(g);
  PipelineOptions options;
  options.passes.enable = {"none"};
  const PipelineReport report = run(g, platform, options);
  EXPECT_EQ(print(g), before);
  for (auto& p : report.passes) EXPECT_EQ(p.skipped.empty(), p.required) << p.name;
}

TEST(Pipeline, BisectLimitAppliesExactlyThatMany) {
  const Platform platform = test::null_platform();
  const Graph traced = test::trace_tiny({"Qwen3ForCausalLM", 2}, *platform.ops);
  auto changes = [&](int64_t limit, std::string* text) {
    Graph g = test::copy_of(traced, *platform.ops);
    PipelineOptions options;
    options.passes.bisect_limit = limit;
    const PipelineReport report = run(g, platform, options);
    *text = print(g);
    int64_t total = 0;
    for (auto& p : report.passes) total += p.required ? 0 : p.matched;
    return total;
  };
  std::string text, previous;
  const int64_t all = changes(-1, &text);
  EXPECT_EQ(all, 9 + 4 + 2 + 4 + 2);
  for (int64_t limit = 0; limit <= all + 1; ++limit) {
    EXPECT_EQ(changes(limit, &text), std::min(limit, all)) << limit;
    if (limit > 0 && limit <= all) {
      EXPECT_NE(text, previous) << limit;
    }
    previous = text;
  }
}

TEST(Pipeline, AFusedOpWithoutAKernelBecomesItsMeaning) {
  Platform platform = test::null_platform();
  Graph g = test::trace_tiny({"LlamaForCausalLM", 2}, *platform.ops);
  (void)run(g, platform);
  Platform bare = test::null_platform();
  OpRegistry primitive;
  register_core_ops(primitive);
  bare.kernels = std::make_unique<KernelRegistry>();
  null::register_null(*bare.kernels, primitive);
  Graph again = test::copy_of(g, *bare.ops);
  PipelineOptions options;
  options.passes.enable = {"none"};
  const PipelineReport report = run(again, bare, options);
  EXPECT_EQ(test::counts(report.passes)["legalise"], 2 + 2 * 2 + 2);
  for (const Node* n = again.first(); n; n = n->next) EXPECT_TRUE(primitive.find(n->op->name)) << n->op->name;
  for (auto& p : report.passes)
    if (p.name == "legalise") {
      ASSERT_FALSE(p.applied.empty());
      EXPECT_NE(p.applied[0].reason.find("no null kernel for"), std::string::npos) << p.applied[0].reason;
    }
}

TEST(Pipeline, WithoutKernelsNothingIsFusedAndEveryRefusalHasAReason) {
  Platform bare = test::null_platform();
  OpRegistry primitive;
  register_core_ops(primitive);
  bare.kernels = std::make_unique<KernelRegistry>();
  null::register_null(*bare.kernels, primitive);
  Graph g = test::trace_tiny({"LlamaForCausalLM", 2}, *bare.ops);
  const PipelineReport report = run(g, bare);
  for (auto& p : report.passes) {
    EXPECT_GE(p.tried, p.matched) << p.name;
    for (auto& r : p.refused) EXPECT_FALSE(r.reason.empty()) << p.name;
    if (p.name == "silu_mul") {
      EXPECT_EQ(p.refusals, 2);
      EXPECT_NE(p.refused[0].reason.find("no null kernel for silu_mul"), std::string::npos) << p.refused[0].reason;
    }
  }
}

TEST(Pipeline, LinearsWithUnequalBiasesStayApart) {
  const Platform platform = test::null_platform();
  Tracer t("g", *platform.ops);
  Tensor x = t.input("x", {DType::F32, {t.symbol("T", 8), Dim(12)}});
  auto weight = [&](const char* name) { return t.param(name, {DType::F32, {Dim(12), Dim(12)}}); };
  Tensor a = nn::linear(x, weight("a.weight"), t.param("a.bias", {DType::F32, {Dim(12)}}));
  t.output("y", nn::add(a, nn::linear(x, weight("b.weight"))));
  Graph g = std::move(*t.finish());
  const PipelineReport report = run(g, platform);
  for (auto& p : report.passes)
    if (p.name == "pack_parallel_linears") {
      EXPECT_EQ(p.matched, 0);
      ASSERT_EQ(p.refused.size(), 1u);
      EXPECT_NE(p.refused[0].reason.find("bias"), std::string::npos);
    }
}

TEST(Pipeline, AlikeLinearsAreJoinedAndTheOthersSayWhyNot) {
  const Platform platform = test::null_platform();
  Tracer t("g", *platform.ops);
  Tensor x = t.input("x", {DType::BF16, {t.symbol("T", 8), Dim(12)}});
  const auto weight = [&](const char* name) { return t.param(name, {DType::BF16, {Dim(12), Dim(12)}}); };
  const auto bytes = t.param("e.weight", {DType::U8, {Dim(12), Dim(34)}});
  Tensor wide = t.input("wide", {DType::BF16, {x.dim(0), Dim(32)}});
  t.output("a", nn::linear(x, weight("a.weight")));
  t.output("b", nn::linear_f32(x, weight("b.weight")));
  t.output("c", nn::linear(x, weight("c.weight")));
  t.output("d", nn::linear(wide, t.param("d.weight", {DType::BF16, {Dim(12), Dim(32)}})));
  t.output("e", t.call("linear_blocks", {wide, bytes}, {{"format", "q8_0"}})[0]);
  Graph g = std::move(*t.finish());
  const auto id = [&](const char* name) { return g.find_param(name)->result()->uses[0].user->result()->id; };
  const uint32_t b = id("b.weight"), e = id("e.weight");
  const PipelineReport report = run(g, platform);
  for (const PassReport& p : report.passes) {
    if (p.name != "pack_parallel_linears") continue;
    EXPECT_EQ(p.matched, 1);
    EXPECT_EQ(p.tried, 3);
    ASSERT_EQ(p.refused.size(), 2u);
    EXPECT_EQ(p.refused[0].at, b);
    EXPECT_EQ(p.refused[0].reason, "its out is \"f32\", and that of the first linear of its input \"same\"");
    EXPECT_EQ(p.refused[1].at, e);
    EXPECT_EQ(p.refused[1].reason, "it is a linear_blocks, and the first linear of its input a linear");
  }
  EXPECT_TRUE(g.find_param("a_c.weight"));
}

TEST(Pipeline, CommonSubexpressionsMeetInOne) {
  const Platform platform = test::null_platform();
  Tracer t("g", *platform.ops);
  Tensor positions = t.input("positions", {DType::I32, {t.symbol("T", 8)}});
  Tensor x = t.input("x", {DType::F32, {t.symbol("T", 8), Dim(2), Dim(4)}});
  const nn::RopeSpec spec{4, {1.0, 0.25}};
  Tensor a = nn::rope(x, nn::rope_table(positions, spec)), b = nn::rope(x, nn::rope_table(positions, spec));
  t.output("y", nn::add(a, b));
  t.output("z", nn::add(b, a));
  Graph g = std::move(*t.finish());
  EXPECT_EQ(test::counts(run(g, platform).passes)["common_subexpressions"], 3);
  EXPECT_EQ(g.outputs()[0].value, g.outputs()[1].value);
}

// What a quantised model's layers look like once linears quantise their input.
TEST(Pipeline, QuantisingFusionsTakeTheWholeChain) {
  const Platform platform = test::null_platform();
  constexpr int kLayers = 3;
  for (double eps : {1e-5, 1e-6})
    for (bool dynamic : {false, true}) {
      Tracer t("g", *platform.ops);
      const Dim tokens = t.symbol("T", 8);
      Tensor x = t.input("x", {DType::BF16, {tokens, Dim(32)}});
      for (int l = 0; l < kLayers; ++l) {
        auto param = [&](const char* name, DType dtype) {
          return t.param(fmt::format("{}.{}", l, name), {dtype, {Dim(32)}});
        };
        x = nn::add(x, t.input(fmt::format("attention.{}", l), {DType::BF16, {tokens, Dim(32)}}));
        Tensor h = nn::rms_norm(x, param("norm", DType::BF16), eps);
        if (dynamic) {
          const nn::Quantized q = nn::quantize_dynamic(h);
          t.output(fmt::format("q{}", l), q.values);
          t.output(fmt::format("s{}", l), q.scale);
        } else {
          t.output(fmt::format("q{}", l),
                   nn::quantize_static(h, param("scale", DType::F32), param("offset", DType::F32)));
        }
        Tensor gate_up = t.input(fmt::format("gate_up.{}", l), {DType::BF16, {tokens, Dim(40)}});
        Tensor act = nn::mul(nn::silu(nn::slice(gate_up, 0, 20)), nn::slice(gate_up, 20, 20));
        if (dynamic) {
          const nn::Quantized q = nn::quantize_dynamic(act);
          t.output(fmt::format("a{}", l), q.values);
          t.output(fmt::format("b{}", l), q.scale);
        } else {
          const TensorType one{DType::F32, {Dim(1)}};
          t.output(fmt::format("a{}", l), nn::quantize_static(act, t.param(fmt::format("{}.act_scale", l), one),
                                                              t.param(fmt::format("{}.act_offset", l), one)));
        }
      }
      t.output("x", x);
      Graph g = std::move(*t.finish());
      auto n = test::counts(run(g, platform).passes);
      EXPECT_EQ(n["add_rms_norm_quant_static"], dynamic ? 0 : kLayers);
      EXPECT_EQ(n["add_rms_norm_quant_dynamic"], dynamic ? kLayers : 0);
      EXPECT_EQ(n["silu_mul_quant"], dynamic ? kLayers : 0);
      EXPECT_EQ(n["silu_mul_quant_static"], dynamic ? 0 : kLayers);
      EXPECT_EQ(n["add_rms_norm"] + n["silu_mul"], 0);
    }
}

TEST(Pipeline, RowsAreNotGatheredEarlierWhenOthersReadTheTensor) {
  const Platform platform = test::null_platform();
  Tracer t("g", *platform.ops);
  Tensor x = t.input("x", {DType::F32, {t.symbol("T", 8), Dim(12)}});
  Tensor few = t.input("few", {DType::I32, {t.symbol("L", 2)}}),
         many = t.input("many", {DType::I32, {t.symbol("M", 99)}});
  Tensor shared = nn::silu(x), own = nn::mul(x, x);
  t.output("a", nn::index_select(shared, few));
  t.output("b", shared);
  t.output("c", nn::index_select(own, many));
  t.output("d", nn::index_select(nn::silu(nn::add(x, x)), few));
  Graph g = std::move(*t.finish());
  for (auto& p : run(g, platform).passes)
    if (p.name == "hoist_row_gather") {
      EXPECT_EQ(p.matched, 2);
      std::string reasons;
      for (auto& r : p.refused) reasons += r.reason + "; ";
      EXPECT_NE(reasons.find("has other readers"), std::string::npos) << reasons;
      EXPECT_NE(reasons.find("more rows may be gathered"), std::string::npos) << reasons;
      EXPECT_NE(reasons.find("(input) does not work row by row"), std::string::npos) << reasons;
    }
}

// One layer as a reader of a dump sees it.
TEST(Pipeline, WhatAFusedLayerLooksLike) {
  const Platform platform = test::null_platform();
  Graph g = test::trace_tiny({"Qwen3ForCausalLM", 1}, *platform.ops);
  (void)run(g, platform);
  std::string ops;
  for (const Node* n = g.first(); n; n = n->next)
    if (!n->is_source()) ops += fmt::format("{} from {}\n", n->op->name, n->made_by);
  EXPECT_EQ(ops, R"(embedding from trace
rope_table from trace
rms_norm from trace
linear from pack_parallel_linears
split_qk_norm_rope_kv from split_qk_norm_rope_kv
paged_attention from trace
flatten from trace
index_select from hoist_row_gather
index_select from hoist_row_gather
linear from hoist_row_gather
add_rms_norm from add_rms_norm
linear from pack_parallel_linears
silu_mul from silu_mul
linear from hoist_row_gather
add_rms_norm from add_rms_norm
linear from trace
)");
}

TEST(Pipeline, ViewPairsCopiesAndReciprocalsGo) {
  const Platform platform = test::null_platform();
  Tracer t("g", *platform.ops);
  Tensor x = t.input("x", {DType::F32, {t.symbol("T", 8), Dim(12)}});
  Tensor h = nn::heads(nn::flatten(nn::heads(x, 4)), 4);
  Tensor y = nn::reciprocal(nn::reciprocal(nn::flatten(h)));
  t.output("y", nn::silu(nn::copy(y)));
  Graph g = std::move(*t.finish());
  EXPECT_GE(test::counts(run(g, platform).passes)["canonicalise"], 4);
  EXPECT_EQ(g.size(), 2u);
}

// F44, F42: each kind by itself, with the count of its removals; what only looks alike stays.
TEST(Pipeline, NoOpsAreCountedOneByOne) {
  using Build = std::function<Tensor(Tensor)>;
  struct Case {
    const char* what;
    int64_t removed;
    size_t left;  // nodes besides the input and the silu that reads the result
    Build build;
  };
  const std::vector<Case> cases{
      {"a copy", 1, 0, [](Tensor x) { return nn::copy(x); }},
      {"copies of copies", 3, 0, [](Tensor x) { return nn::copy(nn::copy(nn::copy(x))); }},
      {"heads and back", 1, 0, [](Tensor x) { return nn::flatten(nn::heads(x, 4)); }},
      {"other heads and back", 2, 0, [](Tensor x) { return nn::flatten(nn::heads(nn::flatten(nn::heads(x, 4)), 6)); }},
      {"two reciprocals", 1, 0, [](Tensor x) { return nn::reciprocal(nn::reciprocal(x)); }},
      {"three reciprocals", 1, 1, [](Tensor x) { return nn::reciprocal(nn::reciprocal(nn::reciprocal(x))); }},
      {"one reciprocal", 0, 1, [](Tensor x) { return nn::reciprocal(x); }},
      {"heads that stay", 0, 1, [](Tensor x) { return nn::heads(x, 4); }},
  };
  const Platform platform = test::null_platform();
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Tracer t("g", *platform.ops);
    Tensor x = t.input("x", {DType::F32, {t.symbol("T", 8), Dim(12)}});
    t.output("y", nn::silu(c.build(x)));
    Graph g = std::move(*t.finish());
    EXPECT_EQ(test::counts(run(g, platform).passes)["canonicalise"], c.removed) << print(g);
    EXPECT_EQ(g.size(), 2 + c.left) << print(g);
  }
}

}  // namespace
}  // namespace reprise::pipeline_test

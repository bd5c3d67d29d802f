// W8A8 checkpoints end to end (F51-F54): logits of ModelSlim and compressed-tensors checkpoints against their formulas
// (tests/data/models_quantised/README.md), float models quantised while they are loaded, and the bits rule for both.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "backends/cpu/isa.h"
#include "base/file.h"
#include "base/json.h"
#include "support/goldens.h"
#include "support/tiny_models.h"

namespace reprise::quantised_test {
namespace {

using testing_support::all_logits;
using testing_support::same_bits;

std::string folder_of(const std::string& name) {
  return std::string(REPRISE_SOURCE_DIR) + "/tests/data/models_quantised/" + name;
}

struct Options {
  std::string isa = "auto";
  int threads = 2;
  DType dtype = DType::F32;
  checkpoint::Quantization quantization = checkpoint::Quantization::Auto;
  engine::GraphPolicy policy = engine::GraphPolicy::Auto;
  std::vector<std::string> passes{"all"};
  engine::LoadFormat load_format = engine::LoadFormat::Auto;
  std::string caches = {};                // folder of plans and packed weights
  DeviceKind device = DeviceKind::Cpu;    // Ascend: the simulator
  std::vector<std::string> without = {};  // passes
  std::vector<std::string> overrides = {};
};

Result<std::unique_ptr<engine::Engine>> open(const std::string& path, const Options& s) {
  DeviceOptions device;
  device.kind = s.device;
  device.ascend_runtime = "sim";
  device.isa = s.isa;
  device.threads = s.threads;
  device.pin_threads = false;
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  engine::EngineOptions o;
  o.model_path = path;
  o.dtype = s.dtype;
  o.quantization = s.quantization;
  o.load_format = s.load_format;
  o.chunked_prefill_size = 64;
  o.max_running_requests = 16;
  o.max_total_tokens = 2048;
  o.graph.policy = s.policy;
  if (s.device == DeviceKind::Ascend) {  // every size is a capture of its own
    o.graph.decode_sizes = {16};
    o.graph.prefill_sizes = {64};
  }
  o.overrides = s.overrides;
  o.graph.pipeline.passes.enable = s.passes;
  o.graph.pipeline.passes.disable = s.without;
  if (!s.caches.empty()) {
    o.graph.plan_cache = s.caches + "/plans";
    o.weight_cache = s.caches + "/weights";
  }
  return engine::Engine::create(o, std::move(platform));
}

struct TemporaryFolder {
  TemporaryFolder()
      : path((std::filesystem::path(testing::TempDir()) / fmt::format("reprise_quantised_{}", ::getpid())).string()) {
    std::filesystem::create_directories(path);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  std::string path;
};

// Root of the mean square, and the largest difference, over the largest number of b.
std::pair<double, double> distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0, worst = 0, largest = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const double d = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    sum += d * d;
    worst = std::max(worst, d);
    largest = std::max(largest, std::fabs(static_cast<double>(b[i])));
  }
  return {std::sqrt(sum / static_cast<double>(b.size())) / largest, worst / largest};
}

const std::vector<std::string>& checkpoints() {
  static const std::vector<std::string> names{
      "modelslim_static",    "modelslim_static_bias", "modelslim_dynamic", "modelslim_mixed_f16",
      "modelslim_norm_bias", "compressed_dynamic",    "compressed_static", "compressed_static_zero_point"};
  return names;
}

// Experts: five of two, odd widths; scales of their own for each; one that every token goes to and one that none does;
// latent attention whose kv_b_proj is int8.
const std::vector<std::string>& checkpoints_of_experts() {
  static const std::vector<std::string> names{"modelslim_moe_dynamic", "modelslim_moe_static", "modelslim_mla_mixed",
                                              "compressed_moe_dynamic", "compressed_moe_static"};
  return names;
}

struct Param {
  std::string model, isa;
};

class QuantisedGolden : public testing::TestWithParam<Param> {};

// A value on the border of two int8 numbers may fall on either side; that is one step of one input, and rare.
TEST_P(QuantisedGolden, LogitsAreThoseOfTheFormulas) {
  const std::string folder = folder_of(GetParam().model);
  auto e = open(folder, {.isa = GetParam().isa});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const bool modelslim = GetParam().model.starts_with("modelslim");
  EXPECT_EQ((*e)->options().quantization,
            modelslim ? checkpoint::Quantization::ModelSlim : checkpoint::Quantization::CompressedTensors);
  const auto goldens = testing_support::read_goldens(folder);
  ASSERT_EQ(goldens.size(), 3u);
  for (auto& [length, g] : goldens) {
    const auto logits = all_logits(**e, g.tokens, 1000);
    ASSERT_EQ(logits.size(), g.logits.size());
    const auto [rms, worst] = distance(logits, g.logits);
    EXPECT_LE(rms, 4e-4) << "length " << length;
    EXPECT_LE(worst, 2e-2) << "length " << length;
    RecordProperty(fmt::format("rms_{}", length), fmt::format("{:.2e}", rms));
  }
}

size_t occurrences(std::string_view text, std::string_view what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

class QuantisedOnAscend : public testing::TestWithParam<std::string> {};

// In bf16, so beside the CPU in bf16: not farther from the formulas than one and a half times that.
TEST_P(QuantisedOnAscend, IsAsNearToTheFormulasAsTheCpu) {
  const std::string folder = folder_of(GetParam());
  auto ascend = open(folder, {.dtype = DType::BF16, .device = DeviceKind::Ascend});
  ASSERT_TRUE(ascend.is_ok()) << ascend.status().message();
  auto cpu = open(folder, {.dtype = DType::BF16});
  ASSERT_TRUE(cpu.is_ok()) << cpu.status().message();
  for (auto& [length, g] : testing_support::read_goldens(folder)) {
    const auto [rms, worst] = distance(all_logits(**ascend, g.tokens, 1000), g.logits);
    const auto [cpu_rms, cpu_worst] = distance(all_logits(**cpu, g.tokens, 1000), g.logits);
    EXPECT_LE(rms, 1.5 * cpu_rms + 1e-3) << "length " << length << ", the CPU's " << cpu_rms;
    RecordProperty(fmt::format("rms_{}", length), fmt::format("{:.2e}, cpu {:.2e}", rms, cpu_rms));
  }
}

// Eager, in pieces (all tokens at once) and whole (one by one), on an Atlas A2 and an A3.
TEST_P(QuantisedOnAscend, EveryModeOnEveryGenerationGivesTheSameBits) {
  const std::string folder = folder_of(GetParam());
  const auto goldens = testing_support::read_goldens(folder);
  ASSERT_FALSE(goldens.empty());
  const std::vector<int32_t>& tokens = goldens.begin()->second.tokens;
  std::vector<float> at_once, one_by_one;
  for (const char* soc : {"Ascend910B3", "Ascend910_9391"}) {
    setenv("ASCEND_SIM_SOC", soc, 1);
    for (const auto policy : {engine::GraphPolicy::Off, engine::GraphPolicy::Required}) {
      auto e = open(folder, {.dtype = DType::BF16, .policy = policy, .device = DeviceKind::Ascend});
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      if (at_once.empty()) {
        at_once = all_logits(**e, tokens, 1000);
        one_by_one = all_logits(**e, tokens, 1);
        continue;
      }
      EXPECT_TRUE(same_bits(at_once, all_logits(**e, tokens, 1000))) << soc;
      EXPECT_TRUE(same_bits(one_by_one, all_logits(**e, tokens, 1))) << soc;
      EXPECT_GE((*e)->runner("decode")->stats().replays + (policy == engine::GraphPolicy::Off ? tokens.size() : 0),
                tokens.size());
    }
  }
  unsetenv("ASCEND_SIM_SOC");
}

// CANN 8.1 has the plain gating, GroupedMatmulV4 and the gated product, no more.
TEST(QuantisedExpertsOnAscend, OldRuntimesGiveTheSame) {
  for (const std::string name : {"modelslim_moe_dynamic", "modelslim_moe_static", "compressed_moe_static"}) {
    const auto goldens = testing_support::read_goldens(folder_of(name));
    ASSERT_FALSE(goldens.empty());
    const std::vector<int32_t>& tokens = goldens.begin()->second.tokens;
    std::vector<float> expected;
    for (const char* cann : {"8.5", "8.1"})
      for (const auto policy : {engine::GraphPolicy::Off, engine::GraphPolicy::Required}) {
        setenv("ASCEND_SIM_CANN", cann, 1);
        auto e = open(folder_of(name), {.dtype = DType::BF16, .policy = policy, .device = DeviceKind::Ascend});
        ASSERT_TRUE(e.is_ok()) << e.status().message();
        std::vector<float> got = all_logits(**e, tokens, 1000);
        const std::vector<float> one_by_one = all_logits(**e, tokens, 1);
        got.insert(got.end(), one_by_one.begin(), one_by_one.end());
        if (expected.empty()) expected = got;
        EXPECT_TRUE(same_bits(expected, got)) << name << " " << cann;
      }
  }
  unsetenv("ASCEND_SIM_CANN");
}

// Static experts have numbers of their own. The fused gate takes experts that fill blocks alone, which those of 21 rows
// do not (tests/backends/ascend_experts_test.cpp has some that do).
TEST(QuantisedExpertsOnAscend, AreFusedInEveryLayer) {
  for (const std::string name : {"modelslim_moe_dynamic", "modelslim_moe_static"}) {
    auto e = open(folder_of(name), {.dtype = DType::BF16, .device = DeviceKind::Ascend});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    const bool dynamic = name.ends_with("dynamic");
    const std::string text((*e)->graph_text());
    const auto layers = static_cast<size_t>((*e)->config().num_hidden_layers);
    EXPECT_EQ(occurrences(text, "= grouped_silu_mul_quant("), 0u) << text;
    EXPECT_EQ(occurrences(text, "= grouped_linear_w8a8_dynamic("), dynamic ? 2 * layers : 0) << text;
    EXPECT_EQ(occurrences(text, "= grouped_linear_w8a8_static("), dynamic ? 0 : 2 * layers) << text;
    EXPECT_EQ(occurrences(text, "= quantize_groups("), dynamic ? 0 : 2 * layers) << text;
    // Norms behind attention are read by a router as well.
    EXPECT_EQ(occurrences(text, "= add_rms_norm_quant_divided("), dynamic ? 0 : layers - 1) << text;
    EXPECT_EQ(occurrences(text, "= add_rms_norm_quant_dynamic("), dynamic ? layers - 1 : 0) << text;
  }
}

// Experts that fill blocks go through the vendor's product with the gate behind it: in every mode the same bits, beside
// its parts and the CPU, whose roundings differ. On CANN 8.1 the older entry of that operator does it.
TEST(QuantisedExpertsOnAscend, GatesOfExpertsThatFillBlocksAreFused) {
  setenv("ASCEND_SIM_RACES", "1", 0);
  const Options dummy{.dtype = DType::BF16,
                      .quantization = checkpoint::Quantization::W8A8Int8,
                      .load_format = engine::LoadFormat::Dummy,
                      .overrides = {"hidden_size=64", "moe_intermediate_size=32", "decoder_sparse_step=1"}};
  const std::string folder = testing_support::tiny_model_path("qwen3_moe_norm");
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 40; ++i) tokens.push_back((i * 37 + 5) % 263);
  auto cpu = open(folder, dummy);
  ASSERT_TRUE(cpu.is_ok()) << cpu.status().message();
  const std::vector<float> reference = all_logits(**cpu, tokens, 1000);
  Options on_npu = dummy;
  on_npu.device = DeviceKind::Ascend;
  on_npu.without = {"grouped_silu_mul_quant"};
  auto parts = open(folder, on_npu);
  ASSERT_TRUE(parts.is_ok()) << parts.status().message();
  const std::vector<float> unfused = all_logits(**parts, tokens, 1000);
  const double parts_off = distance(unfused, reference).first;
  on_npu.without = {};
  std::vector<float> expected;
  for (const char* cann : {"9.1", "8.5", "8.1"})
    for (const auto policy : {engine::GraphPolicy::Off, engine::GraphPolicy::Required}) {
      setenv("ASCEND_SIM_CANN", cann, 1);
      on_npu.policy = policy;
      auto e = open(folder, on_npu);
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      const std::string text((*e)->graph_text());
      EXPECT_EQ(occurrences(text, "= grouped_silu_mul_quant("), 3u) << cann << "\n" << text;
      const std::vector<float> got = all_logits(**e, tokens, 1000);
      EXPECT_TRUE(same_bits(got, all_logits(**e, tokens, 1)));
      if (expected.empty()) expected = got;
      EXPECT_TRUE(same_bits(expected, got)) << cann;
    }
  unsetenv("ASCEND_SIM_CANN");
  EXPECT_FALSE(same_bits(expected, unfused)) << "the fused operator rounds less";
  EXPECT_LE(distance(expected, reference).first, 1.5 * parts_off + 1e-3) << "the parts' " << parts_off;
}

// f16 takes other forms of the vendor's operators: scales of rows in products, fp32 divisors in norms.
TEST(QuantisedExpertsOnAscend, AreAsNearToTheFormulasAsTheCpuInHalf) {
  for (const std::string name : {"modelslim_moe_dynamic", "modelslim_moe_static", "compressed_moe_static"}) {
    auto ascend = open(folder_of(name), {.dtype = DType::F16, .device = DeviceKind::Ascend});
    ASSERT_TRUE(ascend.is_ok()) << ascend.status().message();
    auto cpu = open(folder_of(name), {.dtype = DType::F16});
    ASSERT_TRUE(cpu.is_ok()) << cpu.status().message();
    for (auto& [length, g] : testing_support::read_goldens(folder_of(name))) {
      const double rms = distance(all_logits(**ascend, g.tokens, 1000), g.logits).first;
      const double cpu_rms = distance(all_logits(**cpu, g.tokens, 1000), g.logits).first;
      EXPECT_LE(rms, 1.5 * cpu_rms + 1e-3) << name << ", length " << length << ", the CPU's " << cpu_rms;
    }
  }
}

// Latent attention of such sizes is refused there; experts beside latents: ascend_latent_test.cpp.
std::vector<std::string> checkpoints_on_ascend() {
  std::vector<std::string> out = checkpoints();
  for (const std::string& name : checkpoints_of_experts())
    if (name != "modelslim_mla_mixed") out.push_back(name);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Tiny, QuantisedOnAscend, testing::ValuesIn(checkpoints_on_ascend()),
                         [](const auto& info) { return info.param; });

std::vector<Param> params() {
  std::vector<Param> out;
  std::vector<std::string> models = checkpoints();
  models.insert(models.end(), checkpoints_of_experts().begin(), checkpoints_of_experts().end());
  for (auto& model : models)
    for (cpu::Isa isa : cpu::supported_isas()) out.push_back({model, std::string(cpu::isa_name(isa))});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Tiny, QuantisedGolden, testing::ValuesIn(params()),
                         [](const auto& info) { return info.param.model + "_" + info.param.isa; });

std::vector<int32_t> some_tokens(size_t n) {
  std::vector<int32_t> out;
  for (size_t i = 0; i < n; ++i) out.push_back(static_cast<int32_t>((i * 37 + 11) % 251));
  return out;
}

class QuantisedBits : public testing::TestWithParam<std::string> {};

TEST_P(QuantisedBits, AreTheSameInAllModesThreadsChunksAndPasses) {
  const bool stored = GetParam().starts_with("modelslim") || GetParam().starts_with("compressed");
  const std::string path = stored ? folder_of(GetParam()) : testing_support::tiny_model_path(GetParam());
  const auto quantization = stored ? checkpoint::Quantization::Auto : checkpoint::Quantization::W8A8Int8;
  const auto tokens = some_tokens(45);
  std::vector<cpu::Isa> isas = cpu::supported_isas();
  if (const auto tiles = cpu::parse_isa("amx-emulated")) isas.push_back(*tiles);
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (cpu::Isa isa : isas) {
      if (isa == cpu::Isa::AmxEmulated && dtype != DType::BF16) continue;
      // Products of int8 are the same whatever stands around them, and every set has fp16's other kernels in its tests.
      if (dtype == DType::F16 && isa != cpu::supported_isas().back()) continue;
      SCOPED_TRACE(fmt::format("{} {}", dtype_name(dtype), cpu::isa_name(isa)));
      Options setup{.isa = std::string(cpu::isa_name(isa)), .dtype = dtype, .quantization = quantization};
      auto e = open(path, setup);
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      std::vector<Options> others(4, setup);
      others[0].threads = 1;
      others[1].threads = 3;
      others[2].policy = engine::GraphPolicy::Off;
      others[3].passes = {"none"};
      testing_support::same_logits_everywhere(**e, tokens, others,
                                              [&](const Options& other) { return open(path, other); });
      // The greedy program has the same head.
      engine::Sequence a(tokens), b(tokens);
      ASSERT_TRUE((*e)->reserve(a, a.size()).is_ok() && (*e)->reserve(b, b.size()).is_ok());
      const engine::StepItem item_a{&a, a.size(), 1}, item_b{&b, b.size(), 1};
      auto logits = (*e)->step({&item_a, 1});
      ASSERT_TRUE(logits.is_ok());
      const auto best = std::max_element(logits->begin(), logits->end()) - logits->begin();
      auto token = (*e)->step_greedy({&item_b, 1});
      ASSERT_TRUE(token.is_ok()) << token.status().message();
      EXPECT_EQ((*token)[0], best);
      (*e)->release(a);
      (*e)->release(b);
    }
}

INSTANTIATE_TEST_SUITE_P(Tiny, QuantisedBits,
                         testing::Values("modelslim_static_bias", "modelslim_mixed_f16", "modelslim_norm_bias",
                                         "compressed_static_zero_point", "llama_gqa3_tied", "qwen2_untied",
                                         "qwen3_moe_top8", "qwen2_moe_lopsided", "mixtral_one_expert",
                                         "deepseek_v3_moe", "modelslim_moe_dynamic", "modelslim_moe_static",
                                         "modelslim_mla_mixed", "compressed_moe_static"));

int64_t matched(const engine::Engine& e, std::string_view pass) {
  for (const PassReport& p : e.passes("decode")->passes)
    if (p.name == pass) return p.matched;
  return -1;
}

// The three quantising fusions, in every layer that has what they fuse: the first norm follows no addition, the last
// one is an output of its own.
TEST(QuantisedFusions, FireInEveryLayer) {
  auto dynamic = open(testing_support::tiny_model_path("qwen3_tied"),
                      {.dtype = DType::BF16, .quantization = checkpoint::Quantization::W8A8Int8});
  ASSERT_TRUE(dynamic.is_ok()) << dynamic.status().message();
  const int64_t layers = (*dynamic)->config().num_hidden_layers;
  EXPECT_EQ(matched(**dynamic, "quantise_linears"), 7 * layers + 1);
  EXPECT_EQ(matched(**dynamic, "pack_parallel_linears"), 2 * layers);
  EXPECT_EQ(matched(**dynamic, "add_rms_norm_quant_dynamic"), 2 * layers - 1);
  EXPECT_EQ(matched(**dynamic, "silu_mul_quant"), layers);
  EXPECT_EQ(matched(**dynamic, "split_qk_norm_rope_kv"), layers);
  EXPECT_EQ(matched(**dynamic, "add_rms_norm"), 1);

  auto stat = open(folder_of("modelslim_static"), {.dtype = DType::BF16});
  ASSERT_TRUE(stat.is_ok()) << stat.status().message();
  EXPECT_EQ(matched(**stat, "quantise_linears"), 7 * layers);
  EXPECT_EQ(matched(**stat, "pack_parallel_linears"), 2 * layers);
  EXPECT_EQ(matched(**stat, "add_rms_norm_quant_static"), 2 * layers - 1);
  EXPECT_EQ(matched(**stat, "silu_mul_quant_static"), layers);
}

// The same fusions where the norms have a bias (F43): in two layers of three and at the end, beside one with zeros that
// has none in the graph. Query and key norms with a bias are left to their parts.
TEST(QuantisedFusions, TakeTheBiasOfANormAlong) {
  auto e = open(folder_of("modelslim_norm_bias"), {.dtype = DType::BF16});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  EXPECT_EQ(matched(**e, "add_norm_biases"), 2 * 4 + 1);
  EXPECT_EQ(matched(**e, "add_rms_norm_quant_static"), 1);
  EXPECT_EQ(matched(**e, "add_rms_norm_quant_dynamic"), 4);
  EXPECT_EQ(matched(**e, "add_rms_norm"), 1);
  EXPECT_EQ(matched(**e, "split_qk_norm_rope_kv"), 1);
}

// Input scales that differ keep linears apart, and that is said.
TEST(QuantisedFusions, UnequalInputScalesAreNotPackedAndSayWhy) {
  auto e = open(folder_of("modelslim_static_bias"), {});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  for (const PassReport& p : (*e)->passes("decode")->passes) {
    if (p.name != "pack_parallel_linears") continue;
    EXPECT_EQ(p.matched, 0);
    ASSERT_GE(p.refused.size(), 2u);
    EXPECT_NE(p.refused[0].reason.find("different input scales"), std::string::npos) << p.refused[0].reason;
  }
}

TEST(QuantisedAtLoad, IsCloseToTheFloatModelAndHalfOfIt) {
  const std::string path = testing_support::tiny_model_path("llama_gqa3_tied");
  auto plain = open(path, {.dtype = DType::BF16});
  auto int8 = open(path, {.dtype = DType::BF16, .quantization = checkpoint::Quantization::W8A8Int8});
  ASSERT_TRUE(plain.is_ok() && int8.is_ok()) << int8.status().message();
  const auto tokens = some_tokens(40);
  const auto [rms, worst] = distance(all_logits(**int8, tokens, 64), all_logits(**plain, tokens, 64));
  EXPECT_LE(rms, 1e-2);
  EXPECT_GE(rms, 1e-5) << "nothing was quantised";
  // The table stays bf16 and the head is a copy in int8; of the table a step reads rows only.
  const size_t table = 2 * 263 * 72;
  EXPECT_LT((*int8)->weight_bytes_per_step(), (*plain)->weight_bytes_per_step() * 6 / 10);
  EXPECT_GE((*int8)->memory().weight_bytes, (*int8)->weight_bytes_per_step() + table);
  EXPECT_EQ((*int8)->options().quantization, checkpoint::Quantization::W8A8Int8);
}

// Experts become int8 matrix by matrix; what chooses them stays as it is.
TEST(QuantisedAtLoad, ExpertsAreInt8AndTheirRouterIsNot) {
  const std::string path = testing_support::tiny_model_path("qwen2_moe_shared");
  auto plain = open(path, {.dtype = DType::BF16});
  auto int8 = open(path, {.dtype = DType::BF16, .quantization = checkpoint::Quantization::W8A8Int8});
  ASSERT_TRUE(plain.is_ok() && int8.is_ok()) << int8.status().message();
  const int64_t layers = (*int8)->config().num_hidden_layers;
  // Per layer: query, key, value, attention's output, three stacks and three matrices of the shared expert; the head.
  EXPECT_EQ(matched(**int8, "quantise_linears"), 10 * layers + 1);
  EXPECT_EQ(matched(**int8, "pack_parallel_linears"), 4 * layers) << "q, k, v; two of gate and up; router and gate";
  EXPECT_EQ(matched(**int8, "silu_mul_quant"), 2 * layers) << "over routed rows and in the shared expert";
  const std::string text((*int8)->graph_text());
  EXPECT_NE(text.find("i8[5, 42, 48] = param(name=\"model.layers.0.mlp.experts.{0..4}.gate_up_proj.weight\")"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("bf16[6, 48] = param("), std::string::npos) << "router and gate are joined, and floats\n" << text;
  const auto tokens = some_tokens(3);
  const auto [rms, worst] = distance(all_logits(**int8, tokens, 64), all_logits(**plain, tokens, 64));
  EXPECT_LE(rms, 3e-2);
  EXPECT_GE(rms, 1e-5) << "nothing was quantised";
}

// What latent attention folds into other products stays float at load, and is made float where a checkpoint has int8.
TEST(QuantisedAtLoad, WhatLatentAttentionFoldsIsFloatAndSaysWhy) {
  struct Case {
    std::string path;
    checkpoint::Quantization quantization;
    const char *words, *dtype;
  };
  const Case cases[] = {{testing_support::tiny_model_path("deepseek_v2_lite"), checkpoint::Quantization::W8A8Int8,
                         "kv_b_proj.weight@0+16/32T stays float: it is folded into other products", "i8[7, "},
                        {folder_of("modelslim_mla_mixed"), checkpoint::Quantization::Auto,
                         "kv_b_proj.weight@0+12/22T is made float while loading: it is folded", "i8[5, "}};
  for (const Case& c : cases) {
    auto e = open(c.path, {.dtype = DType::BF16, .quantization = c.quantization});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    std::string said;
    for (const PassReport& p : (*e)->passes("decode")->passes)
      if (p.name == "quantise_linears")
        for (const auto* remarks : {&p.refused, &p.applied})
          for (const PassRemark& r : *remarks) said += r.reason + "\n";
    EXPECT_NE(said.find(c.words), std::string::npos) << said;
    const std::string text((*e)->graph_text());
    EXPECT_NE(text.find(c.dtype), std::string::npos) << "its experts are int8\n" << text;
    ASSERT_NE(text.find("= linear("), std::string::npos) << text;
    EXPECT_EQ(text.find("= linear("), text.rfind("= linear(")) << "the router alone, in one layer\n" << text;
  }
}

// Neither cache takes the float model's plan or weights for the quantised one's, or the other way round.
TEST(QuantisedAtLoad, CachesKeepFloatAndInt8Apart) {
  const TemporaryFolder folder;
  const std::string path = testing_support::tiny_model_path("llama_gqa3_tied");
  const auto tokens = some_tokens(20);
  for (auto quantization : {checkpoint::Quantization::None, checkpoint::Quantization::W8A8Int8}) {
    auto fresh = open(path, {.quantization = quantization});
    ASSERT_TRUE(fresh.is_ok()) << fresh.status().message();
    const auto expected = all_logits(**fresh, tokens, 64);
    for (int start = 0; start < 2; ++start) {
      auto e = open(path, {.quantization = quantization, .caches = folder.path});
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      EXPECT_TRUE(same_bits(expected, all_logits(**e, tokens, 64))) << start;
    }
  }
}

// A description that calls a static layer dynamic does not pass: the tensors of the static one are left over.
TEST(QuantisedErrors, TensorsThatNobodyReadsAreTold) {
  const TemporaryFolder folder;
  const std::string copy = folder.path + "/model";
  std::filesystem::copy(folder_of("modelslim_static"), copy);
  const std::string file = copy + "/quant_model_description.json";
  auto text = read_file(file, 1 << 20);
  ASSERT_TRUE(text.is_ok());
  Json json = Json::parse(*text);
  json["model.layers.0.mlp.down_proj.weight"] = "W8A8_DYNAMIC";
  ASSERT_TRUE(write_file_atomically(file, json.dump()).is_ok());
  std::filesystem::remove(copy + "/golden.safetensors");
  const auto e = open(copy, {});
  ASSERT_FALSE(e.is_ok());
  for (const char* word : {"left over", "model.layers.0.mlp.down_proj.deq_scale", "down_proj.quant_bias"})
    EXPECT_NE(e.status().message().find(word), std::string::npos) << e.status().message();
}

TEST(QuantisedAtLoad, DummyWeightsRun) {
  for (const char* name : {"models/qwen2_tied", "models_quantised/modelslim_static",
                           "models_quantised/modelslim_dynamic", "models_quantised/modelslim_norm_bias"}) {
    const std::string folder = std::string(REPRISE_SOURCE_DIR) + "/tests/data/" + name;
    const bool stored = std::string_view(name).starts_with("models_quantised");
    auto e = open(folder, {.dtype = DType::BF16,
                           .quantization = stored ? checkpoint::Quantization::Auto : checkpoint::Quantization::W8A8Int8,
                           .load_format = engine::LoadFormat::Dummy});
    ASSERT_TRUE(e.is_ok()) << name << ": " << e.status().message();
    const auto logits = all_logits(**e, some_tokens(20), 64);
    double sum = 0;
    for (float v : logits) sum += static_cast<double>(v) * static_cast<double>(v);
    const double rms = std::sqrt(sum / static_cast<double>(logits.size()));
    EXPECT_GT(rms, 0.05) << name;
    EXPECT_LT(rms, 50) << name;
  }
}

}  // namespace
}  // namespace reprise::quantised_test

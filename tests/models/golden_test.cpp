// Logits of every tiny checkpoint against Hugging Face transformers in fp32 (tests/data/models/README.md): within 1e-4
// of the largest |logit| in fp32, within 2e-2 in bf16 and fp16; on every instruction set this processor has, and on the
// Ascend backend over the simulator.
#include <gtest/gtest.h>

#include <ostream>
#include <set>

#include "backends/cpu/isa.h"
#include "support/goldens.h"
#include "support/tiny_models.h"

namespace reprise::golden_test {
namespace {

using testing_support::EngineSetup;

struct Param {
  std::string model;
  DType dtype;
  std::string isa;        // "ascend": that device; "ascend_pair": with the attention operators before the fused one
  bool expanded = false;  // prompts of latent attention with keys and values made
  // GoogleTest writes a text of every parameter at each start; this one is short.
  friend void PrintTo(const Param& p, std::ostream* out) { *out << p.model; }
};

// What the Ascend device refuses to load, and a word of the reason it gives.
const std::map<std::string, std::string>& refused_by_ascend() {
  static const std::map<std::string, std::string> models{
      {"llama_rope_dynamic", "dynamic NTK"},
      {"llama_rope_dynamic_new", "dynamic NTK"},
      {"gemma2", "scores under a cap of 6"},
      {"deepseek_v2_dense", "queryRope has heads of 8; they must be 64"},
      {"deepseek_v3_dense", "queryRope has heads of 12; they must be 64"},
      {"deepseek_v2_moe", "queryRope has heads of 6; they must be 64"},
      {"deepseek_v2_lite", "queryRope has heads of 8; they must be 64"},
      {"deepseek_v3_moe", "queryRope has heads of 8; they must be 64"},
      {"deepseek_v3_kimi_k2", "queryRope has heads of 10; they must be 64"}};
  return models;
}

// The vendor's delta rule takes bf16 alone.
const std::set<std::string>& only_bf16_on_ascend() {
  static const std::set<std::string> models{
      "qwen3_next", "qwen3_5",       "qwen3_5_moe_text_of_images", "granite_hybrid", "granite_hybrid_plain",
      "nemotron_h", "nemotron_h_moe"};
  return models;
}

class GoldenTest : public testing::TestWithParam<Param> {};

TEST_P(GoldenTest, LogitsAreThoseOfTheReference) {
  const Param& p = GetParam();
  const std::string folder = testing_support::tiny_model_path(p.model);
  const auto goldens = testing_support::read_goldens(folder);
  ASSERT_FALSE(goldens.empty());
  EngineSetup setup;
  setup.dtype = p.dtype;
  if (p.isa.starts_with("ascend"))
    setup.device = DeviceKind::Ascend, setup.fia = p.isa == "ascend";
  else
    setup.isa = p.isa;
  setup.context = 0;
  setup.total_tokens = 4096;
  if ((setup.expanded = p.expanded)) setup.rows = setup.chunk;  // all of a prompt's logits in one step
  int64_t longest = 0;
  for (auto& [length, g] : goldens) longest = std::max(longest, length);
  setup.context = longest;
  auto engine = testing_support::open_engine(folder, setup);
  if (auto refused = refused_by_ascend().find(p.model); p.isa == "ascend" && refused != refused_by_ascend().end()) {
    ASSERT_FALSE(engine.is_ok());
    EXPECT_EQ(engine.status().code(), Code::Unsupported);
    EXPECT_NE(engine.status().message().find(refused->second), std::string::npos) << engine.status().message();
    return;
  }
  if (auto op = testing_support::lacking_on_ascend().find(p.model);
      p.isa.starts_with("ascend") && op != testing_support::lacking_on_ascend().end()) {
    ASSERT_FALSE(engine.is_ok());
    EXPECT_EQ(engine.status().code(), Code::Unsupported);
    EXPECT_NE(engine.status().message().find(op->second), std::string::npos) << engine.status().message();
    return;
  }
  if (p.isa.starts_with("ascend") && p.dtype != DType::BF16 && only_bf16_on_ascend().contains(p.model)) {
    ASSERT_FALSE(engine.is_ok());
    EXPECT_EQ(engine.status().code(), Code::Unsupported);
    EXPECT_TRUE(engine.status().message().ends_with("in it; allowed: auto, bfloat16")) << engine.status().message();
    return;
  }
  ASSERT_TRUE(engine.is_ok()) << engine.status().message();
  const auto vocab = static_cast<size_t>((*engine)->config().vocab_size);
  const double tolerance = p.dtype == DType::F32 ? 1e-4 : 2e-2;
  // The pair has an operator for prompts and one for single tokens; one token at a time is the second.
  const std::vector<int64_t> chunks = setup.fia ? std::vector<int64_t>{1000} : std::vector<int64_t>{1000, 1};
  size_t firsts = 0;
  for (auto& [length, g] : goldens)
    for (const int64_t chunk : chunks) {
      const std::vector<float> logits = testing_support::all_logits(**engine, g.tokens, chunk);
      ASSERT_EQ(logits.size(), g.tokens.size() * vocab);
      double largest = 0, worst = 0;
      for (float x : g.logits) largest = std::max(largest, std::fabs(static_cast<double>(x)));
      for (size_t i = 0; i < g.positions.size(); ++i) {
        const std::span<const float> want(g.logits.data() + i * vocab, vocab),
            got(logits.data() + static_cast<size_t>(g.positions[i]) * vocab, vocab);
        for (size_t v = 0; v < vocab; ++v)
          worst = std::max(worst, std::fabs(static_cast<double>(got[v]) - static_cast<double>(want[v])));
        firsts += testing_support::expect_first_token(want, got, tolerance * largest,
                                                      fmt::format("length {}, position {}", length, g.positions[i]));
      }
      EXPECT_LE(worst, tolerance * largest)
          << "length " << length << ": off by " << worst / largest << " of the largest";
      EXPECT_FALSE(std::isnan(worst));
      RecordProperty(fmt::format("relative_{}", length), fmt::format("{:.2e}", worst / largest));
    }
  EXPECT_GT(firsts, 0u);
}

// Kernels of attention have forms of their own for some sizes of heads and numbers of queries for a key.
TEST(HeadSizes, GiveTheSameBitsInChunksThreadsAndModes) {
  for (const std::string& model : testing_support::head_sizes()) {
    SCOPED_TRACE(model);
    const std::string folder = testing_support::tiny_model_path(model);
    const auto goldens = testing_support::read_goldens(folder);
    EngineSetup usual;
    usual.dtype = DType::BF16;
    auto e = testing_support::open_engine(folder, usual);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    std::vector<EngineSetup> others(2, usual);
    others[0].threads = 3, others[0].policy = engine::GraphPolicy::Off;
    others[1].prefill = GraphMode::Whole, others[1].threads = 1;
    const auto open = [&](const EngineSetup& s) { return testing_support::open_engine(folder, s); };
    EXPECT_FALSE(testing_support::same_logits_everywhere(**e, goldens.at(131).tokens, others, open).empty());
  }
}

std::vector<Param> params() {
  std::vector<Param> out;
  std::vector<std::string> models = testing_support::tiny_models();
  models.insert(models.end(), testing_support::head_sizes().begin(), testing_support::head_sizes().end());
  for (auto& model : models)
    for (DType dtype : {DType::F32, DType::BF16, DType::F16})
      for (cpu::Isa isa : cpu::supported_isas()) out.push_back({model, dtype, std::string(cpu::isa_name(isa))});
  // Products on tile registers by their emulation, in an order of their own.
  if (cpu::parse_isa("amx-emulated"))
    for (auto& model : {"llama_gqa3_tied", "qwen3_moe_norm", "deepseek_v3_moe"})
      out.push_back({model, DType::BF16, "amx-emulated"});
  // The vendor's attention has no fp32.
  for (auto& model : testing_support::tiny_models())
    for (DType dtype : {DType::BF16, DType::F16}) out.push_back({model, dtype, "ascend"});
  for (auto& model : {"llama_gqa3_tied", "qwen2_untied", "qwen3_tied"})
    for (DType dtype : {DType::BF16, DType::F16}) out.push_back({model, dtype, "ascend_pair"});
  for (auto& model : testing_support::tiny_models())
    for (DType dtype : {DType::F32, DType::BF16, DType::F16})
      for (cpu::Isa isa : cpu::supported_isas())
        if (model.starts_with("deepseek")) out.push_back({model, dtype, std::string(cpu::isa_name(isa)), true});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Tiny, GoldenTest, testing::ValuesIn(params()), [](const auto& info) {
  std::string isa = info.param.isa;
  std::replace(isa.begin(), isa.end(), '-', '_');
  return fmt::format("{}_{}_{}{}", info.param.model, dtype_name(info.param.dtype), isa,
                     info.param.expanded ? "_expanded" : "");
});

}  // namespace
}  // namespace reprise::golden_test

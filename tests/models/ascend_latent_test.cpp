// Latent attention on the Ascend backend over the simulator: Hugging Face's logits in the sizes that the vendor's
// attention takes, the same bits in every mode while lengths change, and what it refuses.
#include <gtest/gtest.h>

#include "support/ascend_engine.h"
#include "support/wide_latents.h"

namespace reprise::ascend_latent_test {
namespace {

using engine::GraphPolicy;
using testing_support::AscendOptions;
using testing_support::decode_traffic;
using testing_support::same_bits;
using testing_support::Setting;
using testing_support::WideLatents;

// Few captures: each is one of every layer, at the simulator's speed.
Result<std::unique_ptr<engine::Engine>> open(const WideLatents& wide, AscendOptions options) {
  options.context = 256;
  options.prefill_sizes = {4, 64, 128};
  return testing_support::open_ascend(wide.path(), options);
}

struct Small {
  const char* model;
  int64_t heads;
};

// Experts and YaRN; compressed queries, sigmoid experts in groups; neither.
const std::vector<Small>& small_ones() {
  static const std::vector<Small> all{{"deepseek_v2_lite", 2}, {"deepseek_v3_moe", 8}, {"deepseek_v2_dense", 4}};
  return all;
}

// The largest distance to the stored logits over the largest of them, over all stored lengths.
double distance(engine::Engine& e, const std::string& folder) {
  auto file = checkpoint::SafetensorsFile::open(folder + "/golden.safetensors");
  EXPECT_TRUE(file.is_ok()) << file.status().message();
  const auto vocab = static_cast<size_t>(e.config().vocab_size);
  double worst = 0;
  int lengths = 0;
  for (const checkpoint::StoredTensor& t : file->tensors()) {
    if (!t.name.starts_with("tokens.") || t.elements() > 131) continue;
    const std::string length = t.name.substr(7);
    auto values = [&]<typename T>(const std::string& name, T) {
      const auto bytes = file->bytes(*file->find(name));
      std::vector<T> out(bytes.size() / sizeof(T));
      std::memcpy(out.data(), bytes.data(), bytes.size());
      return out;
    };
    const auto tokens = values(t.name, int32_t{}), positions = values("positions." + length, int32_t{});
    const auto expected = values("logits." + length, float{});
    const std::vector<float> logits = testing_support::all_logits(e, tokens, 1000);
    if (logits.size() != tokens.size() * vocab) return INFINITY;
    double largest = 0, off = 0;
    for (const float x : expected) largest = std::max(largest, std::fabs(static_cast<double>(x)));
    for (size_t i = 0; i < positions.size(); ++i)
      for (size_t v = 0; v < vocab; ++v)
        off = std::max(off, std::fabs(static_cast<double>(logits[static_cast<size_t>(positions[i]) * vocab + v]) -
                                      static_cast<double>(expected[i * vocab + v])));
    worst = std::max(worst, std::isnan(off) ? INFINITY : off / largest);
    ++lengths;
  }
  EXPECT_GE(lengths, 3);
  return worst;
}

// The wide checkpoints compute what the small ones do: to the precision of fp32 on the CPU.
TEST(WideLatentsTest, TheCpuFindsTheSameLogits) {
  for (const Small& s : small_ones()) {
    const WideLatents wide(s.model, s.heads);
    auto e = testing_support::open_engine(wide.path(), {.context = 203, .total_tokens = 4096});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    EXPECT_LE(distance(**e, wide.path()), 1e-4) << s.model;
  }
}

TEST(AscendLatents, LogitsAreThoseOfTheReference) {
  for (const Small& s : small_ones()) {
    const WideLatents wide(s.model, s.heads);
    for (const DType dtype : {DType::BF16, DType::F16}) {
      auto e = open(wide, {.dtype = dtype});
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      EXPECT_LE(distance(**e, wide.path()), 2e-2) << s.model << " " << dtype_name(dtype);
    }
  }
}

// The last logits of a prompt that is fed in chunks.
std::vector<float> last_logits(engine::Engine& e, const std::vector<int32_t>& tokens, int64_t chunk) {
  engine::Sequence s(tokens);
  std::vector<float> out;
  EXPECT_TRUE(e.reserve(s, s.size()).is_ok());
  while (s.uncached() > 0) {
    const int64_t n = std::min(chunk, s.uncached());
    const engine::StepItem item{&s, n, n == s.uncached()};
    auto logits = e.step({&item, 1});
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    if (!logits.is_ok()) break;
    out.assign(logits->begin(), logits->end());
  }
  e.release(s);
  return out;
}

// The operator takes 16 rows of a sequence: longer chunks go in as pieces of it.
TEST(AscendLatents, LongPromptsInPiecesAreTheirTokens) {
  const WideLatents wide("deepseek_v2_lite", 2);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 131; ++i) tokens.push_back((i * 37 + 5) % 279);
  for (GraphMode prefill : {GraphMode::Eager, GraphMode::Piecewise, GraphMode::Whole}) {
    auto e = open(wide, {.prefill = prefill});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    const std::vector<float> one_by_one = last_logits(**e, tokens, 1);
    ASSERT_FALSE(one_by_one.empty());
    for (const int64_t chunk : {128, 50, 17, 16})
      EXPECT_TRUE(same_bits(one_by_one, last_logits(**e, tokens, chunk))) << "chunks of " << chunk;
  }
}

// CANN 8.5 takes prompts of 32, 64 or 128 heads; those of other models go row by row.
TEST(AscendLatents, PromptsThatAnOldCannRefusesGoRowByRow) {
  const WideLatents wide("deepseek_v2_lite", 2);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 131; ++i) tokens.push_back((i * 37 + 5) % 279);
  std::vector<float> expected;
  {
    auto e = open(wide, {});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    expected = last_logits(**e, tokens, 128);
  }
  const Setting old("ASCEND_SIM_CANN", "8.5");
  for (const GraphMode prefill : {GraphMode::Eager, GraphMode::Piecewise}) {
    auto e = open(wide, {.prefill = prefill});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    for (const int64_t chunk : {128, 17, 1}) EXPECT_TRUE(same_bits(expected, last_logits(**e, tokens, chunk))) << chunk;
  }
}

size_t occurrences(std::string_view text, std::string_view word) {
  size_t n = 0;
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

// What a token leaves in the caches is one operator of a layer; angles and slots are converted once a step.
TEST(AscendLatents, RowsOfTheCachesAreOneOperator) {
  const WideLatents wide("deepseek_v3_moe", 8);
  auto e = open(wide, {});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const auto layers = static_cast<size_t>((*e)->config().num_hidden_layers);
  const std::string text((*e)->graph_text());
  EXPECT_EQ(occurrences(text, "latent_rows("), layers) << text;
  EXPECT_EQ(occurrences(text, "= row_write("), 0u) << text;
  EXPECT_EQ(occurrences(text, "= rope("), layers) << "queries\n" << text;
  EXPECT_EQ(occurrences(text, "= rope_angles("), 1u) << text;
  EXPECT_EQ(occurrences(text, "= index_i64("), 1u) << text;
}

constexpr int kSteps = 20;  // past the end of a page of 128

TEST(AscendLatents, LengthsChangeEveryStepInEveryMode) {
  const WideLatents wide("deepseek_v2_lite", 2);
  std::vector<float> expected;
  {
    auto eager = open(wide, {.policy = GraphPolicy::Off});
    ASSERT_TRUE(eager.is_ok()) << eager.status().message();
    expected = decode_traffic(**eager, kSteps);
  }
  for (GraphMode prefill : {GraphMode::Piecewise, GraphMode::Whole}) {
    auto e = open(wide, {.prefill = prefill});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    const engine::StepRunner &decode = *(*e)->runner("decode"), &prompts = *(*e)->runner("prefill");
    const uint64_t captures = decode.captures();
    EXPECT_TRUE(same_bits(expected, decode_traffic(**e, kSteps)));
    EXPECT_EQ(decode.stats().replays, static_cast<uint64_t>(kSteps));
    EXPECT_TRUE(decode.stats().fallbacks.empty());
    EXPECT_EQ(decode.captures(), captures);
    EXPECT_EQ(prompts.mode(), prefill);
    EXPECT_GT(prompts.stats().replays, 0u);
  }
}

// A whole graph of a prompt of as many tokens as there may be sequences is not mistaken for one of a decode step. Here
// the operator takes more sequences than rows of one, so the two differ.
TEST(AscendLatents, PromptsOfAsManyTokensAsSequences) {
  const WideLatents wide("deepseek_v2_lite", 2);
  constexpr int64_t kSequences = 24;
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < kSequences; ++i) tokens.push_back((i * 37 + 5) % 279);
  AscendOptions options{
      .prefill = GraphMode::Whole, .decode_sizes = {1}, .prefill_sizes = {kSequences}, .context = 256};
  options.sequences = kSequences;
  auto e = testing_support::open_ascend(wide.path(), options);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const std::vector<float> one_by_one = last_logits(**e, tokens, 1);
  const engine::StepRunner& prompts = *(*e)->runner("prefill");
  for (const int64_t chunk : {kSequences, kSequences - 1, int64_t{20}})
    EXPECT_TRUE(same_bits(one_by_one, last_logits(**e, tokens, chunk))) << "chunks of " << chunk;
  EXPECT_EQ(prompts.mode(), GraphMode::Whole);
  EXPECT_GE(prompts.stats().replays, 3u);
  EXPECT_TRUE(prompts.quarantined().empty()) << prompts.quarantined().begin()->second;
}

// No operator for products per head over tokens, none for caches, no waits for memory.
TEST(AscendLatents, OldRuntimesGiveTheSame) {
  const WideLatents wide("deepseek_v2_dense", 4);
  std::vector<float> expected;
  {
    auto e = open(wide, {});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    expected = decode_traffic(**e, kSteps);
  }
  const Setting old("ASCEND_SIM_CANN", "8.1");
  auto e = open(wide, {});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  EXPECT_TRUE(same_bits(expected, decode_traffic(**e, kSteps)));
}

// Experts and projections quantised while they are loaded, beside latents: as near to the reference as the CPU, and the
// same bits in every mode on both generations.
TEST(AscendLatents, Int8ExpertsGiveTheSameBitsInEveryMode) {
  for (const Small& s : {Small{"deepseek_v2_lite", 2}, Small{"deepseek_v3_moe", 8}}) {
    const WideLatents wide(s.model, s.heads);
    auto cpu = testing_support::open_engine(wide.path(), {.dtype = DType::BF16,
                                                          .context = 203,
                                                          .total_tokens = 4096,
                                                          .quantization = checkpoint::Quantization::W8A8Int8});
    ASSERT_TRUE(cpu.is_ok()) << cpu.status().message();
    const double cpus = distance(**cpu, wide.path());
    EXPECT_GE(cpus, 1e-4) << "nothing was quantised";
    std::vector<float> expected;
    for (const char* soc : {"Ascend910B3", "Ascend910_9391"}) {
      const Setting chip("ASCEND_SIM_SOC", soc);
      for (const GraphMode mode : {GraphMode::Eager, GraphMode::Piecewise, GraphMode::Whole}) {
        SCOPED_TRACE(fmt::format("{} {} {}", s.model, soc, graph_mode_name(mode)));
        auto e = open(wide, {.policy = mode == GraphMode::Eager ? GraphPolicy::Off : GraphPolicy::Required,
                             .prefill = mode,
                             .decode = mode,
                             .quantization = checkpoint::Quantization::W8A8Int8});
        ASSERT_TRUE(e.is_ok()) << e.status().message();
        const std::vector<float> got = decode_traffic(**e, 4);
        if (expected.empty()) {
          expected = got;
          EXPECT_LE(distance(**e, wide.path()), 1.5 * cpus + 1e-3) << "the CPU's " << cpus;
        }
        EXPECT_TRUE(same_bits(expected, got));
      }
    }
  }
}

TEST(AscendLatents, WhatTheVendorRefusesIsToldInItsWords) {
  const WideLatents odd("deepseek_v2_dense", 3), wide("deepseek_v2_dense", 4);
  auto e = open(odd, {});
  ASSERT_FALSE(e.is_ok());
  EXPECT_EQ(e.status().code(), Code::Unsupported);
  EXPECT_NE(e.status().message().find("3 heads over 1: of size 512 there may be 1, 2, 4 ... 128"), std::string::npos)
      << e.status().message();
  auto pair = open(wide, {.fia = false});
  ASSERT_FALSE(pair.is_ok());
  EXPECT_NE(pair.status().message().find("ASCEND_USE_FIA=false"), std::string::npos) << pair.status().message();
}

}  // namespace
}  // namespace reprise::ascend_latent_test

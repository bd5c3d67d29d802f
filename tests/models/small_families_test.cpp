// Families that differ from Llama by small ops, each by the same tests: the bits rule over chunks, batches, threads,
// graph modes and passes, and int8 by the pass. A family costs a row of tests/support/tiny_models.h.
#include <gtest/gtest.h>

#include <cmath>

#include "support/tiny_models.h"

namespace reprise::small_families_test {
namespace {

using testing_support::all_logits;
using testing_support::same_bits;

struct Options {
  DType dtype = DType::F32;
  int threads = 2;
  bool int8 = false;
  engine::GraphPolicy policy = engine::GraphPolicy::Auto;
  GraphMode decode = GraphMode::Whole, prefill = GraphMode::Piecewise;
  std::vector<std::string> passes{"all"};
};

Result<std::unique_ptr<engine::Engine>> open(const std::string& name, const Options& s) {
  DeviceOptions device{DeviceKind::Cpu, "auto", s.threads, false};
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  engine::EngineOptions o;
  o.model_path = testing_support::tiny_model_path(name);
  o.dtype = s.dtype;
  if (s.int8) o.quantization = checkpoint::Quantization::W8A8Int8;
  o.chunked_prefill_size = 64;
  o.max_running_requests = 8;
  o.max_total_tokens = 4096;
  o.graph.policy = s.policy;
  o.graph.decode = s.decode;
  o.graph.prefill = s.prefill;
  o.graph.pipeline.passes.enable = s.passes;
  return engine::Engine::create(o, std::move(platform));
}

int64_t occurrences(std::string_view text, std::string_view what) {
  int64_t n = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

std::vector<int32_t> some_tokens(size_t n, size_t seed) {
  std::vector<int32_t> out;
  for (size_t i = 0; i < n; ++i) out.push_back(static_cast<int32_t>((i * i + 37 * i + seed) % 131));
  return out;
}

std::vector<Options> other_ways(const Options& usual) {
  std::vector<Options> out(3, usual);
  out[0].threads = 3, out[0].policy = engine::GraphPolicy::Off;
  out[1].passes = {"none"};
  out[2].decode = GraphMode::Piecewise, out[2].prefill = GraphMode::Whole, out[2].threads = 1;
  return out;
}

constexpr size_t kTokens = 35;  // beyond the smallest window

class SmallFamilies : public testing::TestWithParam<std::string> {
 protected:
  std::vector<float> logits_everywhere(const Options& usual) {
    auto e = open(GetParam(), usual);
    EXPECT_TRUE(e.is_ok()) << e.status().message();
    if (!e.is_ok()) return {};
    return testing_support::same_logits_everywhere(**e, some_tokens(kTokens, 11), other_ways(usual),
                                                   [&](const Options& other) { return open(GetParam(), other); });
  }
};

TEST_P(SmallFamilies, GiveTheSameBitsInChunksThreadsModesAndPasses) {
  EXPECT_FALSE(logits_everywhere({.dtype = DType::BF16}).empty());
}

TEST_P(SmallFamilies, GiveASequenceInABatchTheBitsItHasAlone) {
  auto e = open(GetParam(), {.dtype = DType::BF16});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const auto vocab = static_cast<size_t>((*e)->config().vocab_size);
  std::vector<engine::Sequence> together;
  std::vector<std::vector<float>> alone;
  for (const size_t n : {3u, 41u, 17u}) {
    const std::vector<int32_t> tokens = some_tokens(n, n);
    const std::vector<float> all = all_logits(**e, tokens, 1000);
    alone.emplace_back(all.end() - static_cast<ptrdiff_t>(vocab), all.end());
    together.emplace_back(tokens);
  }
  std::vector<engine::StepItem> prompts, rest;
  for (auto& s : together) {
    ASSERT_TRUE((*e)->reserve(s, s.size()).is_ok());
    prompts.push_back({&s, s.size() - 1});
    rest.push_back({&s, 1, 1});
  }
  ASSERT_TRUE((*e)->step(prompts).is_ok());
  const auto logits = (*e)->step(rest);
  ASSERT_TRUE(logits.is_ok()) << logits.status().message();
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(same_bits(alone[i], logits->subspan(i * vocab, vocab))) << i;
  for (auto& s : together) (*e)->release(s);
}

// Every linear but the router's becomes int8; the logits stay near.
TEST_P(SmallFamilies, AreInt8ByThePassWithTheSameBitsEverywhere) {
  const std::vector<float> int8 = logits_everywhere({.int8 = true});
  auto plain = open(GetParam(), {});
  ASSERT_TRUE(plain.is_ok()) << plain.status().message();
  const std::vector<float> floats = all_logits(**plain, some_tokens(kTokens, 11), 1000);
  ASSERT_EQ(int8.size(), floats.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < floats.size(); ++i) {
    error += std::pow(static_cast<double>(int8[i]) - static_cast<double>(floats[i]), 2);
    size += std::pow(static_cast<double>(floats[i]), 2);
  }
  EXPECT_GT(error, 0);
  EXPECT_LT(std::sqrt(error / size), 0.12);
  auto e = open(GetParam(), {.int8 = true});
  ASSERT_TRUE(e.is_ok());
  const std::string text((*e)->graph_text());
  EXPECT_NE(text.find("w8a8"), std::string::npos);
  // Routers and the gates of shared experts stay float.
  const int64_t gates = occurrences(text, ".gate.weight") + occurrences(text, "_gate.weight");
  EXPECT_EQ(occurrences(text, "= linear("), gates) << text;
}

// Published models of these have activations that float16 does not hold.
TEST(SmallFamiliesTold, Float16OfGemmaIsTold) {
  const auto told = [](const char* name, DType dtype) {
    auto e = open(name, {.dtype = dtype});
    EXPECT_TRUE(e.is_ok()) << e.status().message();
    if (!e.is_ok()) return false;
    const auto& notices = (*e)->config().notices;
    return std::any_of(notices.begin(), notices.end(), [](const std::string& n) {
      return n.starts_with("`dtype` float16: activations of Gemma") && n.find("bfloat16") != std::string::npos;
    });
  };
  for (const char* gemma : {"gemma2", "gemma3"}) {
    EXPECT_TRUE(told(gemma, DType::F16)) << gemma;
    EXPECT_FALSE(told(gemma, DType::BF16) || told(gemma, DType::F32)) << gemma;
  }
  EXPECT_FALSE(told("glm4", DType::F16));
}

INSTANTIATE_TEST_SUITE_P(Tiny, SmallFamilies, testing::ValuesIn(testing_support::small_families()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace reprise::small_families_test

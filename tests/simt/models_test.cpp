// Tiny checkpoints on the CUDA device: logits against Hugging Face transformers (tests/data/models/README.md), and the
// same bits in every graph mode, chunk and batch. On the SIMT executor always; on a GPU where there is one
// (REPRISE_REQUIRE_DEVICE=cuda: its absence is a failure).
#include <gtest/gtest.h>

#include <cstdlib>

#include "ops/draw_rule.h"
#include "simt/gpu.h"
#include "simt/kernels.h"
#include "support/goldens.h"
#include "support/tiny_models.h"

namespace reprise::simt::models_test {
namespace {

using testing_support::EngineSetup;

EngineSetup setup_for(DType dtype, bool gpu) {
  EngineSetup s;
  s.device = DeviceKind::Cuda;
  if (!gpu) s.cuda = &stand_in();
  s.dtype = dtype;
  return s;
}

// The cases on a GPU exist where one is; elsewhere this test says why they do not.
TEST(CudaGpu, IsHereOrItIsSaidWhyNot) {
  if (no_gpu().empty()) return;
  const char* required = std::getenv("REPRISE_REQUIRE_DEVICE");
  ASSERT_FALSE(required && std::string_view(required) == "cuda") << no_gpu();
  GTEST_SKIP() << no_gpu();
}

struct Param {
  std::string model;
  DType dtype;
  bool gpu;
};

class CudaGolden : public testing::TestWithParam<Param> {};

TEST_P(CudaGolden, LogitsAreThoseOfTheReference) {
  const Param& p = GetParam();
  const std::string folder = testing_support::tiny_model_path(p.model);
  auto goldens = testing_support::read_goldens(folder);
  ASSERT_FALSE(goldens.empty());
  // The executor is slow: there the shortest prompt, on a GPU all.
  if (!p.gpu) goldens.erase(std::next(goldens.begin()), goldens.end());
  EngineSetup setup = setup_for(p.dtype, p.gpu);
  setup.total_tokens = 4096;
  setup.context = goldens.rbegin()->first;
  if (!p.gpu) setup.policy = engine::GraphPolicy::Off;
  auto engine = testing_support::open_engine(folder, setup);
  ASSERT_TRUE(engine.is_ok()) << engine.status().message();
  const auto vocab = static_cast<size_t>((*engine)->config().vocab_size);
  const double tolerance = p.dtype == DType::F32 ? 1e-4 : 2e-2;
  for (auto& [length, g] : goldens)
    for (const int64_t chunk : p.gpu ? std::vector<int64_t>{1000, 1} : std::vector<int64_t>{1000}) {
      const std::vector<float> logits = testing_support::all_logits(**engine, g.tokens, chunk);
      ASSERT_EQ(logits.size(), g.tokens.size() * vocab);
      double largest = 0, worst = 0;
      for (float x : g.logits) largest = std::max(largest, std::fabs(static_cast<double>(x)));
      for (size_t i = 0; i < g.positions.size(); ++i)
        for (size_t v = 0; v < vocab; ++v) {
          const double d = std::fabs(static_cast<double>(logits[static_cast<size_t>(g.positions[i]) * vocab + v]) -
                                     static_cast<double>(g.logits[i * vocab + v]));
          ASSERT_FALSE(std::isnan(d));
          worst = std::max(worst, d);
        }
      EXPECT_LE(worst, tolerance * largest)
          << "length " << length << ": off by " << worst / largest << " of the largest";
    }
}

std::vector<Param> golden_params() {
  std::vector<Param> out;
  for (auto& model : testing_support::tiny_models())
    for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      if (no_gpu().empty()) out.push_back({model, dtype, true});
      if (dtype != DType::F16) out.push_back({model, dtype, false});
    }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Tiny, CudaGolden, testing::ValuesIn(golden_params()), [](const auto& info) {
  return fmt::format("{}_{}_{}", info.param.model, dtype_name(info.param.dtype), info.param.gpu ? "gpu" : "executor");
});

// Weights that the pass makes int8: all kernels are there, and the logits are near the CPU's.
TEST(CudaInt8, SmallFamiliesAreNearTheCpu) {
  for (const std::string& model : testing_support::small_families()) {
    EngineSetup setup = setup_for(DType::F32, false), host;
    for (EngineSetup* s : {&setup, &host}) {
      s->policy = engine::GraphPolicy::Off;
      s->quantization = checkpoint::Quantization::W8A8Int8;
      s->context = 16;
    }
    const std::string folder = testing_support::tiny_model_path(model);
    auto got = testing_support::open_engine(folder, setup), want = testing_support::open_engine(folder, host);
    ASSERT_TRUE(got.is_ok() && want.is_ok()) << model << ": " << (got.is_ok() ? want : got).status().message();
    const std::vector<int32_t> tokens{1, 7};
    const auto a = testing_support::all_logits(**got, tokens, 2), b = testing_support::all_logits(**want, tokens, 2);
    ASSERT_EQ(a.size(), b.size());
    float largest = 0, worst = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::fabs(b[i]));
      worst = std::max(worst, std::fabs(a[i] - b[i]));
    }
    EXPECT_LE(worst, 2e-2f * largest) << model;
  }
}

// A step with two drafts that are the text's tokens, and one that is not.
void expect_verified(engine::Engine& e, const std::vector<int32_t>& tokens, const std::vector<float>& expected) {
  const size_t vocab = expected.size() / tokens.size(), own = tokens.size() - 2;
  engine::Sequence s(std::vector<int32_t>(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(own)));
  ASSERT_TRUE(e.reserve(s, s.size() + 3).is_ok());
  while (s.uncached() > 1) {
    const engine::StepItem chunk{&s, std::min(s.uncached() - 1, e.max_step_tokens())};
    ASSERT_TRUE(e.step({&chunk, 1}).is_ok());
  }
  const std::vector<int32_t> drafts{tokens[own], tokens[own + 1], 3};
  const engine::StepItem item{&s, 4, 4, drafts};
  const auto logits = e.step({&item, 1});
  ASSERT_TRUE(logits.is_ok()) << logits.status().message();
  EXPECT_TRUE(testing_support::same_bits(logits->first(3 * vocab), std::span(expected).subspan((own - 1) * vocab)))
      << "a step with drafts";
  EXPECT_EQ(e.runner("verify")->stats().replays, 1u);
  e.release(s);
}

// Every row's logits, in every way of running a step.
class CudaModes : public CudaGolden {};

TEST_P(CudaModes, GiveTheSameBits) {
  const Param& p = GetParam();
  const std::string folder = testing_support::tiny_model_path(p.model);
  std::vector<int32_t> tokens(static_cast<size_t>(p.gpu ? 150 : 17));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(1 + i * 7 % 50);
  EngineSetup eager = setup_for(p.dtype, p.gpu);
  eager.policy = engine::GraphPolicy::Off;
  eager.context = static_cast<int64_t>(tokens.size()) + 1;
  eager.rows = p.gpu ? 16 : 2;
  EngineSetup piecewise = eager, whole = eager;
  piecewise.policy = whole.policy = engine::GraphPolicy::Required;
  piecewise.prefill = GraphMode::Piecewise;
  piecewise.chunk = whole.chunk = p.gpu ? 64 : 16;
  whole.verify = {4, false};
  whole.most_drafts = 3;  // where the model keeps states
  whole.prefill = GraphMode::Whole;
  auto first = testing_support::open_engine(folder, eager);
  ASSERT_TRUE(first.is_ok()) << first.status().message();
  const std::vector<float> expected = testing_support::all_logits(**first, tokens, 1000);
  EXPECT_TRUE(testing_support::same_bits(expected, testing_support::all_logits(**first, tokens, 7)))
      << "eager, chunks of 7";
  for (const EngineSetup& s : {piecewise, whole}) {
    auto e = testing_support::open_engine(folder, s);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    for (const int64_t chunk : p.gpu ? std::vector<int64_t>{1000, 6, 1} : std::vector<int64_t>{1000, 1})
      EXPECT_TRUE(testing_support::same_bits(expected, testing_support::all_logits(**e, tokens, chunk)))
          << (s.prefill == GraphMode::Whole ? "whole" : "piecewise") << ", chunks of " << chunk;
    EXPECT_GT((*e)->runner("decode")->stats().replays, 0u);
    EXPECT_TRUE((*e)->runner("decode")->stats().fallbacks.empty());
    if (s.prefill == GraphMode::Whole) expect_verified(**e, tokens, expected);
  }
}

std::vector<Param> mode_params() {
  std::vector<Param> out;
  for (auto& model : testing_support::tiny_models())
    for (DType dtype : {DType::F32, DType::BF16, DType::F16})
      if (no_gpu().empty()) out.push_back({model, dtype, true});
  out.push_back({"qwen3_tied", DType::BF16, false});
  out.push_back({"qwen3_5", DType::F16, false});  // with states
  out.push_back({"deepseek_v2_lite", DType::BF16, false});
  out.push_back({"mixtral_top2", DType::BF16, false});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Tiny, CudaModes, testing::ValuesIn(mode_params()), [](const auto& info) {
  return fmt::format("{}_{}_{}", info.param.model, dtype_name(info.param.dtype), info.param.gpu ? "gpu" : "executor");
});

// Of one step the logits and the tokens that were drawn from them, as they are or changed first: those of the host's
// rule, greedy, sampled, in whole graphs and without.
TEST(CudaSampledSteps, DrawWhatTheHostDraws) {
  const std::vector<TokenBias> biases{{5, 2.5f}, {9, -std::numeric_limits<float>::infinity()}};
  const std::vector<TokenCount> counts{{1, 0}, {8, 3}, {20, 1}};
  for (const engine::GraphPolicy policy : {engine::GraphPolicy::Off, engine::GraphPolicy::Required}) {
    EngineSetup setup = setup_for(DType::BF16, no_gpu().empty());
    setup.policy = policy;
    setup.rows = 12;
    setup.chunk = 16;
    setup.context = 64;
    auto opened = testing_support::open_engine(testing_support::tiny_model_path("qwen3_tied"), setup);
    ASSERT_TRUE(opened.is_ok()) << opened.status().message();
    engine::Engine& e = **opened;
    ASSERT_TRUE(e.has_sampled_steps());
    const auto vocab = static_cast<size_t>(e.vocab_size());
    const std::vector<uint64_t> allowed((vocab + 63) / 64, 0x9249249249249249u);
    std::vector<engine::Sequence> sequences;
    for (const int32_t first : {1, 4, 9}) sequences.emplace_back(std::vector<int32_t>{first, first + 1, 2, first + 7});
    std::vector<engine::StepItem> items;
    for (size_t i = 0; i < sequences.size(); ++i) {
      ASSERT_TRUE(e.reserve(sequences[i], 8).is_ok());
      engine::StepItem item{&sequences[i], 4, 4};
      item.draw = Draw{.scale = i == 1 ? 0.0f : 1.25f, .top_p = i == 2 ? 0.9f : 1, .seed = 40 + i, .position = 4};
      if (i > 0) item.edits = {.biases = biases, .counts = counts, .repetition = 1.5f, .presence = 0.5f};
      if (i == 1) item.edits.allowed = allowed;
      items.push_back(item);
    }
    const auto ticket = e.submit(items, engine::StepOutput::Sampled);
    ASSERT_TRUE(ticket.is_ok()) << ticket.status().message();
    const auto result = e.wait(*ticket);
    ASSERT_TRUE(result.is_ok()) << result.status().message();
    std::vector<draw::Candidate> scratch(vocab);
    for (size_t i = 0; i < items.size(); ++i) {
      const size_t row = 4 * i + 3;
      const std::span<float> logits = result->logits.subspan(row * vocab, vocab);
      items[i].edits.apply(logits);
      EXPECT_EQ(result->tokens[row], draw::token(logits.data(), e.vocab_size(), *items[i].draw, scratch.data())) << i;
    }
    for (auto& s : sequences) e.release(s);
  }
}

}  // namespace
}  // namespace reprise::simt::models_test

// Tokens that a device draws are those that the host draws from its logits: for the same seed, in every mode, batch and
// number of threads, beside rows that only the host can draw. On the CPU, and on a device whose memory the host cannot
// touch.
#include <gtest/gtest.h>

#include "sched/generator.h"
#include "support/answers.h"
#include "support/computing_platforms.h"
#include "support/tiny_models.h"

namespace reprise::sched::sampled_steps_test {
namespace {

using engine::Engine;
using engine::SamplingParams;
using testing_support::ComputingPlatform;

std::vector<SamplingParams> every_kind() {
  std::vector<SamplingParams> out(10);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].temperature = i == 0 ? 0 : 0.5 + 0.3 * static_cast<double>(i);
    out[i].seed = 100 + i;
    out[i].max_new_tokens = 14;
    out[i].ignore_eos = true;
  }
  out[2].top_k = 5;
  out[3].top_p = 0.8;
  out[4].min_p = 0.1;
  out[5].top_k = 40, out[5].top_p = 0.9, out[5].min_p = 0.02;
  out[6].top_k = 1;
  out[7].top_p = 1e-6;
  out[8].logprobs = 0;
  out[9].logprobs = 20, out[9].top_p = 0.95;
  return out;
}

// A bias of nothing leaves the logits as they are and the draw to the host.
SamplingParams on_host(SamplingParams p) {
  p.logit_bias = {{3, 0.0f}};
  return p;
}

class SampledSteps : public testing::TestWithParam<ComputingPlatform> {
 protected:
  Result<std::unique_ptr<Engine>> open(engine::GraphPolicy policy, GraphMode decode, int64_t rows = 10) {
    engine::EngineOptions o;
    o.model_path = testing_support::tiny_model_path("qwen3_tied");
    o.dtype = DType::F32;
    o.context_length = 256;
    o.max_running_requests = rows;
    o.chunked_prefill_size = 64;
    o.max_total_tokens = 24 * 128;
    o.graph.decode_sizes = {rows};
    o.graph.prefill_sizes = {32, 64};
    o.graph.policy = policy;
    o.graph.decode = decode;
    o.graph.choose_by_cost = false;
    ASSIGN_OR_RETURN(Platform p, testing_support::make_computing_platform(GetParam(), taken_));
    return Engine::create(o, std::move(p));
  }

  static std::vector<GenerationResult> run(Engine& e, const std::vector<SamplingParams>& sampling) {
    std::vector<GenerationRequest> requests;
    for (size_t i = 0; i < sampling.size(); ++i)
      requests.push_back({count_up(3 + static_cast<int64_t>(i) * 17 % 100, static_cast<int32_t>(i)), sampling[i]});
    Generator generator(e, {});
    auto results = generator.run(requests);
    EXPECT_TRUE(results.is_ok()) << results.status().message();
    return results.is_ok() ? std::move(*results) : std::vector<GenerationResult>();
  }

  static void expect_same(const std::vector<GenerationResult>& got, const std::vector<GenerationResult>& expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].tokens, expected[i].tokens) << i;
      ASSERT_EQ(got[i].sampled.size(), expected[i].sampled.size()) << i;
      for (size_t t = 0; t < got[i].sampled.size(); ++t) {
        const SampledToken &a = got[i].sampled[t], &b = expected[i].sampled[t];
        ASSERT_EQ(a.logprob.has_value(), b.logprob.has_value());
        if (a.logprob) EXPECT_NEAR(*a.logprob, *b.logprob, 2e-5);
        ASSERT_EQ(a.top.size(), b.top.size());
        for (size_t k = 0; k < a.top.size(); ++k) {
          EXPECT_EQ(a.top[k].token, b.top[k].token);
          EXPECT_NEAR(a.top[k].logprob, b.top[k].logprob, 2e-5);
        }
      }
    }
  }

  testing_support::Taken taken_;
};

TEST_P(SampledSteps, TheDeviceDrawsWhatTheHostDraws) {
  const std::vector<SamplingParams> kinds = every_kind();
  std::vector<SamplingParams> host, mixed = kinds;
  for (const SamplingParams& p : kinds) host.push_back(on_host(p));
  for (size_t i = 0; i < mixed.size(); i += 3) mixed[i] = host[i];
  auto eager = open(engine::GraphPolicy::Off, GraphMode::Eager, 3);
  ASSERT_TRUE(eager.is_ok()) << eager.status().message();
  ASSERT_TRUE((*eager)->has_sampled_steps());
  const std::vector<GenerationResult> expected = run(**eager, host);
  EXPECT_NE(expected[1].tokens, expected[3].tokens);
  expect_same(run(**eager, kinds), expected);
  for (const GraphMode mode : {GraphMode::Whole, GraphMode::Piecewise}) {
    SCOPED_TRACE(graph_mode_name(mode));
    auto e = open(engine::GraphPolicy::Required, mode);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    expect_same(run(**e, kinds), expected);
    expect_same(run(**e, mixed), expected);
    expect_same(run(**e, host), expected);
  }
}

// Devices whose memory the host does not see.
class SampledStepsApart : public SampledSteps {};

// A mixed batch brings tokens to the host, and of the logits nothing.
TEST_P(SampledStepsApart, LogitsStayOnTheDevice) {
  auto e = open(engine::GraphPolicy::Auto, GraphMode::Whole);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const auto copied = [&](const std::vector<SamplingParams>& sampling) {
    const uint64_t before = (*e)->stream_stats().copies_to_host;
    (void)run(**e, sampling);
    return (*e)->stream_stats().copies_to_host - before;
  };
  std::vector<SamplingParams> greedy(6), sampled(6), host(6);
  for (size_t i = 0; i < 6; ++i) {
    for (auto* p : {&greedy[i], &sampled[i], &host[i]}) p->max_new_tokens = 8, p->ignore_eos = true;
    if (i % 2 == 0) sampled[i].temperature = host[i].temperature = 1;
    if (i == 0) host[i] = on_host(host[i]);
  }
  // Of each step the hidden states, which are checked, and the tokens.
  const uint64_t tokens_alone = copied(greedy);
  EXPECT_EQ(copied(sampled), tokens_alone);
  EXPECT_GT(copied(host), tokens_alone);
}

INSTANTIATE_TEST_SUITE_P(, SampledStepsApart, testing::Values(ComputingPlatform::Remote),
                         testing_support::computing_platform_name);
INSTANTIATE_TEST_SUITE_P(, SampledSteps, testing::Values(ComputingPlatform::Cpu, ComputingPlatform::Remote),
                         testing_support::computing_platform_name);

}  // namespace
}  // namespace reprise::sched::sampled_steps_test

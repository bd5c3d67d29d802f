// F50: a prompt behind a cached prefix, through the scheduler and its prefix cache, on every device that computes: the
// CPU, a device whose memory the host cannot touch, and Ascend's simulator. Tokens and log-probabilities are those of
// the same request without a cache.
#include <gtest/gtest.h>

#include "support/computing_platforms.h"
#include "support/served.h"
#include "support/tiny_models.h"

namespace reprise::sched::prefix_hit_test {
namespace {

using testing_support::ComputingPlatform;

class PrefixHit : public testing::TestWithParam<ComputingPlatform> {
 protected:
  void SetUp() override {
    engine::EngineOptions o;
    o.model_path = testing_support::tiny_model_path("llama_gqa3_tied");
    o.dtype = testing_support::dtype_of(GetParam());
    o.context_length = 384;
    o.max_running_requests = 4;
    o.chunked_prefill_size = 128;
    o.max_total_tokens = 12 * 384;
    o.graph.decode_sizes = {1, 4};
    o.graph.prefill_sizes = {128};
    auto platform = testing_support::make_computing_platform(GetParam(), taken_);
    ASSERT_TRUE(platform.is_ok()) << platform.status().message();
    auto e = engine::Engine::create(o, std::move(*platform));
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    engine_ = std::move(*e);
  }

  testing_support::Taken taken_;
  std::unique_ptr<engine::Engine> engine_;
};

TEST_P(PrefixHit, GivesWhatThePromptAloneGives) {
  const Tokens first = count_up(300);
  constexpr int64_t kShared[] = {7, 8, 50, 127, 128, 129, 136, 200, 256, 257, 299};  // inside pages and at their ends
  std::vector<Tokens> prompts;
  for (const int64_t shared : kShared) {
    Tokens& prompt = prompts.emplace_back(first.begin(), first.begin() + shared);
    prompt.push_back(first[static_cast<size_t>(shared)] == 3 ? 4 : 3);
    for (int i = 0; i < 9; ++i) prompt.push_back(5 + i);
  }
  std::vector<Served> alone;
  {
    Scheduler without(*engine_, {.prefix_cache = false});
    for (const Tokens& prompt : prompts) alone.push_back(serve(without, prompt));
  }
  Scheduler with(*engine_, {});
  EXPECT_EQ(serve(with, first).cached, 0);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Served hit = serve(with, prompts[i]);
    // To the token, but that fewer than 8 of a page are not worth a copy of it.
    const int64_t in_page = kShared[i] % 128;
    EXPECT_EQ(hit.cached, in_page < 8 ? kShared[i] - in_page : kShared[i]);
    EXPECT_EQ(alone[i].cached, 0);
    EXPECT_EQ(hit.tokens, alone[i].tokens) << kShared[i];
    ASSERT_EQ(hit.logprobs.size(), 5u * 4);
    EXPECT_EQ(hit.logprobs, alone[i].logprobs) << kShared[i];
  }
}

// n = 4: the answers share the pages of their prompt, inside the last page and at its end, and write behind it side by
// side. The first of them may find an older prompt's pages.
TEST_P(PrefixHit, FourAnswersShareTheirPrompt) {
  const Tokens first = count_up(300);
  const auto asked = [&](int64_t length, int answer) {
    Asked a = ask({first.begin(), first.begin() + length}, 6);
    a.request.sampling.ignore_eos = true;
    a.request.sampling.temperature = 60;  // the tiny model is very sure of its tokens
    a.request.sampling.seed = static_cast<uint64_t>(17 + answer);
    a.request.several = true;
    a.request.call = 5;
    return a;
  };
  constexpr int kAnswers = 4;
  for (const int64_t length : {9, 127, 128, 129, 136, 255, 256, 257, 300}) {
    std::vector<Tokens> alone;
    for (int i = 0; i < kAnswers; ++i) {
      Scheduler without(*engine_, {.prefix_cache = false});
      Asked a = asked(length, i);
      ASSERT_TRUE(without.add(std::move(a.request)).is_ok());
      while (!without.idle()) without.step();
      alone.push_back(a.answer->tokens);
    }
    EXPECT_NE(alone[0], alone[1]) << "seeds tell the answers apart";
    for (const bool older : {false, true}) {
      Scheduler with(*engine_, {});
      if (older) (void)serve(with, {first.begin(), first.begin() + std::max<int64_t>(1, length - 1)});
      std::vector<std::shared_ptr<Answer>> answers;
      for (int i = 0; i < kAnswers; ++i) {
        Asked a = asked(length, i);
        answers.push_back(a.answer);
        ASSERT_TRUE(with.add(std::move(a.request)).is_ok());
      }
      while (!with.idle()) with.step();
      EXPECT_TRUE(with.check_integrity().is_ok());
      int64_t cached = 0;
      for (int i = 0; i < kAnswers; ++i) {
        EXPECT_EQ(answers[static_cast<size_t>(i)]->tokens, alone[static_cast<size_t>(i)])
            << length << " tokens, answer " << i << (older ? ", behind an older prompt" : "");
        cached += answers[static_cast<size_t>(i)]->result->cached_tokens;
      }
      if (length > 128) {
        EXPECT_GE(cached, 3 * 128) << length;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, PrefixHit, testing_support::kComputingPlatforms, testing_support::computing_platform_name);

}  // namespace
}  // namespace reprise::sched::prefix_hit_test

// Candidates on engines of a tiny model: what is known of the model, and that each is opened as it says. Times are
// never judged here.
#include "tuning/engine_candidates.h"

#include <gtest/gtest.h>

namespace reprise::tuning::engine_candidates_test {
namespace {

api::ModelSettings tiny() {
  api::ModelSettings s;
  s.model_path = std::string(REPRISE_SOURCE_DIR) + "/tests/data/models/llama_mha_untied";
  s.load_format = "dummy";
  s.device = "cpu";
  s.context_length = 64;
  s.max_total_tokens = 512;
  s.max_running_requests = 1;
  s.threads = 1;
  return s;
}

TEST(EngineCandidates, KnowsItsModelAndMeasuresABatchLargerThanTheSettings) {
  const EngineCandidates candidates(tiny());
  const auto bounds = candidates.bounds();
  ASSERT_TRUE(bounds.is_ok()) << bounds.status().message();
  EXPECT_EQ(bounds->context_length, 64);
  EXPECT_TRUE(bounds->threads_matter);
  EXPECT_GT(bounds->processors, 0);
  const auto speed = candidates.measure({.threads = 1, .chunk = 16}, 2, 20, 4);
  ASSERT_TRUE(speed.is_ok()) << speed.status().message();
  EXPECT_GT(speed->prefill_tok_s, 0);
  EXPECT_GT(speed->decode_tok_s, 0);
}

TEST(EngineCandidates, PromptsThatDoNotFitAreAnError) {
  const auto all = [](int64_t n) { return Spread{n, n, n}; };
  const auto t = tune_model(EngineCandidates(tiny()), {0, all(64), all(4), all(1)});
  EXPECT_EQ(t.status().message(), "prompts of 64 tokens; the context length is 64");
}

TEST(EngineCandidates, AModelThatDoesNotOpenIsAnError) {
  api::ModelSettings s = tiny();
  s.model_path = "/no/such/model";
  const EngineCandidates candidates(s);
  EXPECT_FALSE(candidates.bounds());
  EXPECT_FALSE(candidates.measure({}, 1, 8, 4));
}

}  // namespace
}  // namespace reprise::tuning::engine_candidates_test

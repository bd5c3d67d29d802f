// Traffic from a request log, and choices by what was measured.
#include "tuning/tuner.h"

#include <gtest/gtest.h>

#include "support/folder.h"

namespace reprise::tuning::tuner_test {
namespace {

using testing_support::Folder;
using testing_support::holds;

std::string line(const std::string& ts, int prompt, int answer, double ms, int n = 1) {
  const Json j = {{"ts", ts},
                  {"request_id", "r"},
                  {"route", "/v1/completions"},
                  {"prompt_tokens", prompt},
                  {"n", n},
                  {"completion_tokens", answer},
                  {"total_ms", ms}};
  return j.dump() + "\n";
}

// Three requests: the second begins while the first runs, the third alone; the second has two answers.
TEST(Tune, TrafficOfALog) {
  const Folder folder;
  folder.write("log", line("2026-01-02T03:04:05.500Z", 100, 20, 2000) +
                          line("2026-01-02T03:04:06.500Z", 40, 30, 1000, 2) +
                          R"({"ts": "2026-01-02T03:04:07Z", "route": "/health", "status": 200})"
                          "\n" +
                          line("2026-01-02T03:05:00Z", 300, 5, 4000));
  const auto t = traffic_of_log(folder / "log");
  ASSERT_TRUE(t.is_ok()) << t.status().message();
  EXPECT_EQ(t->requests, 3);
  EXPECT_EQ(t->prompt.usual, 100);
  EXPECT_EQ(t->prompt.largest, 300);
  EXPECT_EQ(t->answer.usual, 15) << "30 tokens of two answers";
  // One at a time for 1 + 4 seconds, three for one.
  EXPECT_EQ(t->running.usual, 1);
  EXPECT_EQ(t->running.large, 3);
  EXPECT_EQ(t->running.largest, 3);
}

TEST(Tune, LogsThatSayNothing) {
  const Folder folder;
  for (const auto& [content, words] : std::vector<std::pair<std::string, std::string>>{
           {"{\"route\": \"/health\"}\n", "none of its 1 lines"},
           {line("yesterday", 1, 1, 1), ":1: \"ts\""},
           {line("2026-01-02T03:04:05+01:00", 1, 1, 1), ":1: \"ts\""},
           {R"({"ts": "2026-01-02T03:04:05Z", "completion_tokens": -1, "prompt_tokens": 1, "total_ms": 1})",
            "\"completion_tokens\""},
           {"not json\n", ":1"}}) {
    folder.write("log", content);
    const auto t = traffic_of_log(folder / "log");
    ASSERT_FALSE(t.is_ok()) << content;
    EXPECT_TRUE(holds(t.status().message(), words)) << t.status().message();
  }
  EXPECT_FALSE(traffic_of_log(folder / "none").is_ok());
}

struct TuneTest : testing::Test {
  TrafficProfile traffic{0, {100, 900, 1000}, {10, 20, 30}, {2, 4, 6}};
  TuneBounds bounds{4, true, true, 1024, 128, 1 << 20};
  std::vector<std::string> asked;

  // Two threads are as good as four, and read faster in larger steps.
  Measure measure = [this](const Candidate& c, int64_t batch, int64_t input, int64_t output) -> Result<CandidateSpeed> {
    asked.push_back(fmt::format("{} {} {} {} {}", c.threads, c.chunk, batch, input, output));
    const double threads = c.threads == 1 ? 1 : c.threads == 2 ? 1.99 : 2;
    return CandidateSpeed{1000 * threads * (c.chunk == 256 ? 0.5 : c.chunk == 512 ? 0.98 : 1), 100 * threads};
  };
  OrderedJson settings() {
    Progress none("", 1, false);
    const auto t = tune(traffic, bounds, measure, none);
    EXPECT_TRUE(t.is_ok()) << t.status().message();
    return t.is_ok() ? tuning_json(*t, traffic) : OrderedJson();
  }
};

TEST_F(TuneTest, TakesTheFewestThreadsAndTheSmallestStepThatAreAboutTheBest) {
  const OrderedJson j = settings();
  EXPECT_EQ(asked, (std::vector<std::string>{"4 0 2 100 10", "2 0 2 100 10", "1 0 2 100 10", "2 256 1 900 10",
                                             "2 512 1 900 10", "2 1024 1 900 10"}));
  EXPECT_EQ(asked.size(), tune_steps(traffic, bounds));
  EXPECT_EQ(j["settings"]["threads"]["value"], 2);
  EXPECT_EQ(j["settings"]["chunked-prefill-size"]["value"], 512);
  EXPECT_EQ(j["settings"]["max-running-requests"]["value"], 6);
  // 920 tokens are eight pages of 128; six of those and a tenth, in whole pages.
  EXPECT_EQ(j["settings"]["max-total-tokens"]["value"], 53 * 128);
  EXPECT_FALSE(j["settings"].contains("graph-decode-sizes"));
  EXPECT_NEAR(j["tried"][1]["request_s"].get<double>(), 100 / 1990.0 + 10 * 2 / 199.0, 1e-9);
}

TEST_F(TuneTest, FrozenSizesFollowTheTraffic) {
  bounds.live_sizes = bounds.threads_matter = false;
  const OrderedJson j = settings();
  EXPECT_FALSE(j["settings"].contains("threads"));
  EXPECT_EQ(j["settings"]["graph-decode-sizes"]["value"], "1,2,4,6");
  // 100, 900 and 1000, powers of two from 64 on, in sixteens and no larger than a step.
  EXPECT_EQ(j["settings"]["graph-prefill-sizes"]["value"], "64,112,128,256,512");
}

TEST_F(TuneTest, WhatMemoryDoesNotHoldIsSaid) {
  bounds.most_cached_tokens = 1000;
  const OrderedJson j = settings();
  EXPECT_EQ(j["settings"]["max-total-tokens"]["value"], 7 * 128);
  EXPECT_TRUE(holds(j["notes"].dump(), "memory has room for 1000")) << j["notes"];
  measure = [](const Candidate&, int64_t, int64_t, int64_t) -> Result<CandidateSpeed> {
    return error(Code::OutOfMemory, "no memory");
  };
  Progress none("", 1, false);
  EXPECT_EQ(tune(traffic, bounds, measure, none).status().code(), Code::OutOfMemory);
}

}  // namespace
}  // namespace reprise::tuning::tuner_test

// A serving benchmark's prompts and its figures.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "measurement/serving_prompts.h"
#include "measurement/serving_report.h"
#include "support/folder.h"

namespace reprise::measurement::serving_test {
namespace {

using testing_support::Folder;

TEST(ServingReport, FiguresAreThoseOfTheDefinitions) {
  client::LoadRun run;
  run.duration_s = 2;
  run.peak_concurrency = 3;
  for (int i = 1; i <= 4; ++i) {
    client::GenerationRecord r;
    r.ok = true;
    r.ttft_s = 0.1 * i;
    r.latency_s = 0.1 * i + 0.3;
    r.itl_s = {0.1, 0.2};
    r.prompt_tokens = 10;
    r.output_tokens = i == 1 ? 1 : 4;  // one answer without a time between tokens
    r.usage_told = i != 2;
    run.records.push_back(r);
  }
  client::GenerationRecord bad;
  bad.problem = "HTTP 429: busy";
  bad.prompt_tokens = bad.output_tokens = 1000;
  bad.ttft_s = 99;
  run.records.push_back(bad);
  const OrderedJson row = serving_row(run);
  EXPECT_EQ(row["completed"], 4);
  EXPECT_EQ(row["failed"], 1);
  EXPECT_EQ(row["errors"], (OrderedJson{{"HTTP 429: busy", 1}}));
  EXPECT_EQ(row["without_usage"], 1);
  EXPECT_EQ(row["total_input_tokens"], 40);
  EXPECT_EQ(row["total_output_tokens"], 13);
  EXPECT_DOUBLE_EQ(row["request_throughput"], 2);
  EXPECT_DOUBLE_EQ(row["output_throughput"], 6.5);
  EXPECT_DOUBLE_EQ(row["total_token_throughput"], 26.5);
  EXPECT_EQ(row["max_concurrent_requests"], 3);
  EXPECT_NEAR(row["concurrency"], (0.4 + 0.5 + 0.6 + 0.7) / 2, 1e-12);
  EXPECT_NEAR(row["mean_ttft_ms"], 250, 1e-9);
  EXPECT_NEAR(row["median_ttft_ms"], 250, 1e-9);
  EXPECT_NEAR(row["p90_ttft_ms"], 370, 1e-9);  // between the third and the fourth
  EXPECT_NEAR(row["p99_ttft_ms"], 397, 1e-9);
  EXPECT_NEAR(row["median_tpot_ms"], 100, 1e-9);
  EXPECT_NEAR(row["median_itl_ms"], 150, 1e-9);
  EXPECT_NEAR(row["median_e2el_ms"], 550, 1e-9);
  EXPECT_EQ(row["median_e2el_ms"], row["median_e2e_latency_ms"]);
  const std::string table = serving_table({row});
  EXPECT_NE(table.find("1 failed: HTTP 429: busy"), std::string::npos) << table;
  EXPECT_NE(table.find("1 answers came without usage"), std::string::npos) << table;
  EXPECT_EQ(percentile({}, 0.5), 0);
  EXPECT_EQ(percentile({3}, 0.99), 3);
}

TEST(ServingPrompts, AreThoseOfTheSeedAndTheLengths) {
  PromptOptions o;
  o.count = 300;
  o.input_len = 40;
  o.output_len = 20;
  o.range_ratio = 0.5;
  o.vocab_size = 800;
  const auto a = serving_calls(o), again = serving_calls(o);
  ASSERT_TRUE(a.is_ok());
  std::set<size_t> inputs;
  std::set<int64_t> outputs;
  for (size_t i = 0; i < a->size(); ++i) {
    const auto& ids = std::get<client::PromptIds>((*a)[i].prompt);
    EXPECT_EQ(ids, std::get<client::PromptIds>((*again)[i].prompt));
    inputs.insert(ids.size());
    outputs.insert((*a)[i].max_tokens);
    for (const int32_t id : ids) {
      ASSERT_GE(id, 100);
      ASSERT_LT(id, 700);
    }
  }
  EXPECT_EQ(*inputs.begin(), 20u);
  EXPECT_EQ(*inputs.rbegin(), 40u);
  EXPECT_EQ(*outputs.begin(), 10);
  EXPECT_EQ(*outputs.rbegin(), 20);
  o.seed = 2;
  EXPECT_NE(std::get<client::PromptIds>(serving_calls(o)->front().prompt),
            std::get<client::PromptIds>(a->front().prompt));
  o.dataset = "sharegpt-like";
  o.ids = false;
  o.count = 2000;
  const auto like = serving_calls(o);
  std::vector<double> lengths, answers;
  for (const client::GenerationCall& c : *like) {
    const auto& text = std::get<std::string>(c.prompt);
    lengths.push_back(static_cast<double>(1 + std::count(text.begin(), text.end(), ' ')));
    answers.push_back(static_cast<double>(c.max_tokens));
  }
  EXPECT_NEAR(percentile(lengths, 0.5), 90, 12);
  EXPECT_NEAR(percentile(answers, 0.5), 130, 12);
  EXPECT_LE(percentile(lengths, 1), 1024);
  EXPECT_GT(percentile(lengths, 0.95), 500);
}

TEST(ServingPrompts, FilesAreReadAndTheirFaultsNamed) {
  const Folder folder;
  folder.write("a.jsonl", "{\"prompt\": \"x\", \"max_tokens\": 3}\n{\"prompt\": [5, 6]}\n");
  folder.write("b.jsonl", "{\"prompt\": \"x\"}\n{\"prompt\": [5, \"6\"]}\n");
  folder.write("c.jsonl", "{\"prompt\": \"x\", \"max_tokens\": 0}\n");
  PromptOptions o;
  o.dataset = "file";
  o.count = 3;
  o.output_len = 9;
  o.path = folder / "a.jsonl";
  const auto calls = serving_calls(o);
  ASSERT_TRUE(calls.is_ok());
  EXPECT_EQ(std::get<std::string>((*calls)[2].prompt), "x");  // from the beginning again
  EXPECT_EQ((*calls)[0].max_tokens, 3);
  EXPECT_EQ(std::get<client::PromptIds>((*calls)[1].prompt), (client::PromptIds{5, 6}));
  EXPECT_EQ((*calls)[1].max_tokens, 9);
  o.path = folder / "b.jsonl";
  EXPECT_NE(serving_calls(o).status().message().find("b.jsonl:2"), std::string::npos);
  o.path = folder / "c.jsonl";
  EXPECT_NE(serving_calls(o).status().message().find("c.jsonl:1"), std::string::npos);
}

}  // namespace
}  // namespace reprise::measurement::serving_test

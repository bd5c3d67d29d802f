// `graph verify` must find what is wrong: every kind of injected fault, and a report of a difference can be run again.
// And the tokens of a real model on real questions do not depend on the mode.
#include <gtest/gtest.h>

#include "apps/run_binary.h"
#include "apps/wrong_rewrite.h"
#include "support/smollm2.h"

namespace reprise::apps::verify_test {
namespace {

class VerifyFault : public testing::TestWithParam<const char*> {};

TEST_P(VerifyFault, IsCaught) {
  const Outcome o =
      run_binary(fmt::format("graph verify --json --largest 6 --log-level error --inject-fault {} --model-path {}",
                             GetParam(), model_folder("qwen3_tied")));
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_NE(o.err.find("checks failed, the first: "), std::string::npos) << o.err;
  auto json = parse_ordered_json(o.out, "standard output");
  ASSERT_TRUE(json.is_ok()) << o.out;
  EXPECT_GT((*json)["mismatches"], 0);
  EXPECT_FALSE((*json)["what"].empty());
}

INSTANTIATE_TEST_SUITE_P(Kinds, VerifyFault,
                         testing::Values("padding-leak@3", "stale-input@5", "wrong-length@4", "bit-flip@3", "alloc@1",
                                         "kernel-error@7"),
                         [](auto& info) {
                           std::string name = info.param;
                           return name.substr(0, name.find('-') == std::string::npos ? name.find('@') : name.find('-'));
                         });

TEST(Verify, ChangesEveryInputAndFindsNothingWrong) {
  const OrderedJson j =
      json_of(run_binary("graph verify --json --largest 9 --model-path " + model_folder("llama_gqa3_tied")));
  EXPECT_EQ(j["mismatches"], 0);
  EXPECT_EQ(j["max_abs_diff"], 0);
  EXPECT_EQ(j["modes"].size(), 8u);
  // 7 modes, batches 1 and 5: each of 6 inputs of a decode row, last_rows only where there is another row, and the
  // borders between prompts.
  EXPECT_EQ(j["inputs_changed"], 7 * (5 + 6 * 5 + 4));
}

// In bf16 a key less may not show in a row. It does not in the answer key either, which is no old value.
TEST(Verify, ChangesThatRoundingHidesAreNoMismatches) {
  const OrderedJson j = json_of(
      run_binary("graph verify --json --quick --dtype bfloat16 --model-path " + model_folder("deepseek_v2_lite")));
  EXPECT_EQ(j["mismatches"], 0) << j;
  EXPECT_GT(j["hidden_by_rounding"], 0);
  EXPECT_LT(j["hidden_by_rounding"], j["inputs_changed"]);
}

TEST(Verify, RunsTheStepOfAReportAgain) {
  const Folder folder;
  const std::string model = "--model-path " + model_folder("qwen3_tied");
  const Outcome found =
      run_binary(fmt::format("generate --prompt-ids 5,6,7,8 --max-new-tokens 9 --ignore-eos --verify-replay 1 "
                             "--inject-fault bit-flip@4 --dump-dir {} {}",
                             folder / "d", model));
  EXPECT_EQ(found.exit_code, 0) << found.err;
  EXPECT_NE(found.err.find("out of service"), std::string::npos) << found.err;
  std::string report;
  for (auto& entry : std::filesystem::recursive_directory_iterator(folder / "d"))
    if (entry.path().extension() == ".json") report = entry.path().string();
  ASSERT_FALSE(report.empty()) << found.err;
  const OrderedJson again = json_of(run_binary(fmt::format("graph verify --json --case {} {}", report, model)));
  EXPECT_EQ(again["mismatches"], 0);  // the fault was injected, so without it nothing is wrong
  EXPECT_EQ(again["sizes_checked"], 7);
  const Outcome faulty = run_binary(fmt::format("graph verify --case {} {} --inject-fault bit-flip@2", report, model));
  EXPECT_EQ(faulty.exit_code, 1);
  folder.write("bad.json", "{\"sequences\": [{\"tokens\": [1], \"cached\": 1, \"count\": 4}]}");
  const Outcome bad = run_binary(fmt::format("graph verify --case {} {}", folder / "bad.json", model));
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_NE(bad.err.find("bad.json: sequences[0].cached is 1; allowed: whole numbers from 0 to 0\n"), std::string::npos)
      << bad.err;
}

// What the reader lets through is held to the model that runs it.
TEST(Verify, RefusesCasesThatTheModelCannotRun) {
  const Folder folder;
  const std::pair<const char*, const char*> cases[] = {
      {R"({"tokens": [1], "cached": 0, "count": 1, "logits": 7})", "sequences[0].logits is 7; allowed: "},
      {R"({"tokens": [1], "cached": 18446744073709551615, "count": 1})", "cached is 18446744073709551615; allowed: "},
      {R"({"tokens": [4294967301], "cached": 0, "count": 1})", "tokens[0] is 4294967301; allowed: "},
      {R"({"tokens": [1, 70000], "cached": 1, "count": 1})", "tokens[1] is 70000; allowed: 0 to "}};
  for (const auto& [sequence, part] : cases) {
    folder.write("c.json", fmt::format("{{\"sequences\": [{}]}}", sequence));
    const Outcome o = run_binary(
        fmt::format("graph verify --case {} --model-path {}", folder / "c.json", model_folder("qwen3_tied")));
    EXPECT_EQ(o.exit_code, 1) << o.err;
    EXPECT_NE(o.err.find(part), std::string::npos) << o.err;
    EXPECT_EQ(o.out, "");
  }
}

// No flag says that steps have drafts: the case does.
TEST(Verify, ACaseWithDraftsIsRunWithThem) {
  const Folder folder;
  folder.write("c.json", R"({"sequences": [{"tokens": [5, 6, 7, 8, 9, 10, 11], "cached": 3, "count": 4,
                              "logits": "all", "drafts": 3},
                             {"tokens": [9, 8], "cached": 1, "count": 1}]})");
  const OrderedJson j = json_of(run_binary(fmt::format("graph verify --json --case {} --model-path {}",
                                                       folder / "c.json", model_folder("llama_gqa3_tied"))));
  EXPECT_EQ(j["mismatches"], 0);
  EXPECT_EQ(j["tokens_checked"], 7 * 5);
}

TEST(Verify, QuickKeepsEveryModeAndBordersOfPages) {
  const std::string model = model_folder("llama_gqa3_tied");
  // With drafts, the same decode steps come as drafts of one step, too.
  const OrderedJson j =
      json_of(run_binary("graph verify --json --quick --speculative-algorithm NGRAM --speculative-num-draft-tokens 3 "
                         "--model-path " +
                         model));
  EXPECT_EQ(j["mismatches"], 0);
  EXPECT_EQ(j["modes"].size(), 8u);
  EXPECT_FALSE(j.contains("left_out")) << j;
  // Batches 1, 3 and 13, batch 3 in four more ways, and four prompts over the border of a page in three: three steps
  // each.
  EXPECT_EQ(j["tokens_checked"], 7 * 3 * (1 + 3 + 13 + 4 * 3 + 3 * 4));
  EXPECT_EQ(j["inputs_changed"], 7 * (6 * 2 + 1));
  const OrderedJson small =
      json_of(run_binary("graph verify --json --quick --context-length 100 --model-path " + model));
  EXPECT_TRUE(small.contains("left_out")) << small;
  const Outcome both = run_binary("graph verify --quick --case x.json --model-path " + model);
  EXPECT_EQ(both.exit_code, 2) << both.err;
}

// The programs that the passes made are wrong, captured or not: the unfused ones serve from then on.
TEST(Verify, WrongFusionsAreFoundWhileGeneratingAndNoLongerUsed) {
  const Folder folder;
  folder.write("wrong.pass", wrong_rewrite("f32"));
  const std::string command =
      "generate --prompt-ids 5,6,7,8 --max-new-tokens 12 --ignore-eos --max-total-tokens 128 "
      "--model-path " +
      model_folder("llama_mha_untied");
  const std::string passes = " --pass-file " + (folder / "wrong.pass");
  const Outcome right = run_binary(command + " --passes none"), wrong = run_binary(command + passes);
  EXPECT_EQ(right.exit_code, 0) << right.err;
  EXPECT_NE(wrong.out, right.out);
  const Outcome o = run_binary(command + passes + " --summary --verify-replay 1 --dump-dir " + folder.path());
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_NE(o.err.find("fusions differed in step 1"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("unfused from now on"), std::string::npos) << o.err;
  EXPECT_EQ(o.out, right.out);
}

// With REPRISE_TEST_QUESTIONS, a file of questions in the form of GSM8K, the first 200 of it are asked (two minutes).
TEST(SmolLM2Modes, TokensOfFortyQuestionsAreEqual) {
  REPRISE_NEEDS_SMOLLM2(path);
  const char* given = std::getenv("REPRISE_TEST_QUESTIONS");
  std::ifstream questions(given ? std::string(given)
                                : std::string(REPRISE_SOURCE_DIR) + "/tests/data/tasks/gsm8k_test_head.jsonl");
  ASSERT_TRUE(questions) << given;
  const size_t all = given ? 200 : 40, some = all / 4;
  const Folder folder;
  std::string line, all_lines, some_lines;
  for (size_t i = 0; i < all && std::getline(questions, line); ++i) {
    all_lines += line + "\n";
    if (i < some) some_lines += line + "\n";
  }
  folder.write(fmt::format("{}.jsonl", all), all_lines);
  folder.write(fmt::format("{}.jsonl", some), some_lines);
  std::vector<OrderedJson> expected;
  // One thread takes twice as long, so it answers a quarter.
  for (const auto& [mode, number] : {std::pair{"--graph off --passes none", all},
                                     {"", all},
                                     {"--graph-decode piecewise --graph-prefill whole", all},
                                     {"--graph-decode-sizes 3,17 --passes none --threads 1", some}}) {
    const OrderedJson j =
        json_of(run_binary(fmt::format("generate --json --model-path {} --context-length 1024 --prompts-file {} "
                                       "--max-new-tokens 16 --temperature 0 --log-level error {}",
                                       path, folder / fmt::format("{}.jsonl", number), mode)));
    ASSERT_EQ(j["results"].size(), number);
    std::vector<OrderedJson> tokens;
    for (const auto& r : j["results"]) tokens.push_back(r["output"]["token_ids"]);
    if (expected.empty()) expected = tokens;
    EXPECT_EQ(tokens, std::vector(expected.begin(), expected.begin() + static_cast<int64_t>(number))) << mode;
  }
}

}  // namespace
}  // namespace reprise::apps::verify_test

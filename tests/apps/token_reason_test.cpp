// `reprise graph explain --why`: a token, and the step that made it, against what `generate` and the engine say.
#include "see/token_reason.h"

#include <gtest/gtest.h>

#include "run_binary.h"
#include "support/tiny_models.h"

namespace reprise::apps::token_reason_test {

using namespace see;

namespace {

const std::string kModel = std::string(REPRISE_SOURCE_DIR) + "/tests/data/models/qwen3_tied --dtype float32 ";

// Each token of an answer is the one that `generate` gives, with its log-probability.
TEST(TokenReason, TheTokenIsThatOfTheAnswer) {
  const std::string prompt = "--prompt-ids 5,9,2,7 --log-level error --model-path " + kModel;
  const OrderedJson answer =
      json_of(run_binary("generate --json --temperature 0 --max-new-tokens 4 --logprobs 2 --ignore-eos " + prompt));
  const OrderedJson& output = answer["output"];
  for (const int n : {1, 2, 4}) {
    SCOPED_TRACE(n);
    const OrderedJson j = json_of(run_binary(fmt::format("graph explain --json --why {} {}", n, prompt)));
    EXPECT_EQ(j["token"]["id"], output["token_ids"][static_cast<size_t>(n) - 1]);
    EXPECT_EQ(j["candidates"][0]["id"], j["token"]["id"]);
    EXPECT_EQ(j["position"], 3 + n);
    EXPECT_GE(j["margin"], 0);
    const OrderedJson& step = j["step"];
    EXPECT_EQ(step["phase"], n == 1 ? "prefill" : "decode");
    EXPECT_EQ(step["tokens"], n == 1 ? 4 : 1);
    EXPECT_EQ(step["cached"], n == 1 ? 0 : 2 + n);
    EXPECT_EQ(step["run"], "replayed");
    EXPECT_EQ(step["usual_us"].is_null(), n <= 2);
    EXPECT_GT(step["us"], 0);
    // Every kernel of a step that returns logits, and none of the other heads.
    const std::string ops = j["ops"].dump();
    EXPECT_TRUE(holds(ops, "summed over K in ascending order")) << ops;
    EXPECT_FALSE(holds(ops, "\"sample\"")) << ops;
    for (const auto& op : j["ops"]) {
      EXPECT_FALSE(op["computes"].get<std::string>().empty()) << op;
      EXPECT_EQ(op["adds_up"].is_null(), op["op"] == "silu_mul" || op["op"] == "embedding" ||
                                             op["op"] == "rope_table" || op["op"] == "index_select")
          << op;
    }
  }
}

TEST(TokenReason, EagerStepsSayWhy) {
  const std::string prompt = "--prompt-ids 5,9 --log-level error --graph off --model-path " + kModel;
  const OrderedJson j = json_of(run_binary("graph explain --json --why 2 " + prompt));
  EXPECT_EQ(j["step"]["run"], "launched");
  EXPECT_FALSE(j["step"]["reason"].get<std::string>().empty());
  const Outcome text = run_binary("graph explain --why 2 " + prompt);
  for (const char* words : {"token 2 of the answer: ", "log-probability",
                            "launched one by one: ", "a decode step over 1 token", "in which order it adds up",
                            "cpu.linear", "the 16 are added as a tree", "pages are merged from the first to the last"})
    EXPECT_TRUE(holds(text.out, words)) << words << "\n" << text.out;
}

// A prompt longer than a step is read in several; pages are given back whatever happens.
TEST(TokenReason, LongPromptsAndLimits) {
  testing_support::EngineSetup setup;
  setup.chunk = 8;
  setup.context = 64;
  auto e = testing_support::open_engine(testing_support::tiny_model_path("qwen3_tied"), setup);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const int64_t pages = (*e)->free_pages();
  std::vector<int32_t> prompt(20);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * 7 % 50);
  const auto r = explain_token(**e, prompt, 3, {});
  ASSERT_TRUE(r.is_ok()) << r.status().message();
  EXPECT_EQ(r->steps_before, 19 / (*e)->max_step_tokens() + 2);  // full chunks, the first token's, the second's
  EXPECT_GT(r->steps_before, 2);
  EXPECT_EQ(r->cached, 21);
  EXPECT_EQ((*e)->free_pages(), pages);
  // The first two tokens again, as the end of an answer.
  const auto first = explain_token(**e, prompt, 1, {});
  ASSERT_TRUE(first.is_ok());
  const auto ended = explain_token(**e, prompt, 3, {first->token.token});
  ASSERT_FALSE(ended.is_ok());
  EXPECT_TRUE(holds(ended.status().message(), "ended with its token 1; allowed: 1 to 1")) << ended.status().message();
  for (const auto& [tokens, number, words] : std::vector<std::tuple<std::vector<int32_t>, int64_t, std::string>>{
           {{}, 1, "the prompt is empty"}, {{1, -2}, 1, "token -2 of the prompt"}, {prompt, 45, "has room for 44"}}) {
    const auto wrong = explain_token(**e, tokens, number, {});
    ASSERT_FALSE(wrong.is_ok());
    EXPECT_TRUE(holds(wrong.status().message(), words)) << wrong.status().message();
  }
  EXPECT_EQ((*e)->free_pages(), pages);
}

TEST(TokenReason, FlagsThatMakeNoSense) {
  for (const auto& [flags, words] : std::vector<std::pair<std::string, std::string>>{
           {"--why 0", "allowed: 1 to"},
           {"--why 1", "exactly one of --prompt and --prompt-ids"},
           {"--prompt-ids 1", "a prompt needs --why N"},
           {"--why 1 --prompt-ids 1 --apply-chat-template", "cannot go with"},
           {"--why 1 --prompt-ids x", "--prompt-ids"}}) {
    const Outcome o = run_binary("graph explain " + flags + " --model-path " + kModel);
    EXPECT_EQ(o.exit_code, 2) << flags;
    EXPECT_TRUE(holds(o.err, words)) << o.err;
  }
}

}  // namespace
}  // namespace reprise::apps::token_reason_test

// The evaluation commands at work.
#include "apps/serving.h"
#include "evaluation/text_file.h"
#include "support/smollm2.h"

namespace reprise::apps::eval_test {
namespace {

using Words = std::vector<std::string>;

// A model of random weights whose tokens are single bytes.
std::string byte_model(const Folder& folder) {
  std::filesystem::copy(model_folder("llama_mha_untied") + "/config.json", folder / "config.json");
  folder.write("tokenizer.json", byte_tokenizer().dump());
  return "--model-path " + folder.path() + " --load-format dummy --override vocab_size=256 --dtype float32 ";
}

TEST(EvalPerplexity, JsonAndErrors) {
  const Folder folder;
  const std::string model = byte_model(folder);
  folder.write("text.txt", "The quick brown fox jumps over the lazy dog, twice.");
  const OrderedJson j =
      json_of(run_binary("eval perplexity --json --window 16 --text-file " + (folder / "text.txt ") + model));
  EXPECT_EQ(keys_of(j),
            (Words{"tokens", "windows", "window", "perplexity", "mean_nll", "standard_error", "latency_s", "tok_s"}));
  EXPECT_GT(j["perplexity"].get<double>(), 20);  // random weights know nothing
  const Outcome window = run_binary("eval perplexity --window 100000 --text-file " + (folder / "text.txt ") + model);
  EXPECT_EQ(window.exit_code, 1);
  EXPECT_NE(window.err.find("text.txt"), std::string::npos);
}

TEST(EvalChoice, JsonAnswersAndErrors) {
  const Folder folder;
  const std::string model = byte_model(folder);
  std::string lines;
  for (int i = 0; i < 5; ++i)
    lines +=
        Json{{"context", fmt::format("{} is", i)}, {"choices", {"one", "more", "three"}}, {"answer", i % 3}}.dump() +
        "\n";
  folder.write("c.jsonl", lines);
  const std::string command = "eval choice --json --data-path " + (folder / "c.jsonl ");
  const OrderedJson j =
      json_of(run_binary(command + "--num-questions 4 --answers-file " + (folder / "a.jsonl ") + model));
  EXPECT_EQ(keys_of(j), (Words{"questions", "accuracy", "accuracy_per_byte", "latency_s", "tok_s"}));
  EXPECT_EQ(j["questions"], 4);
  const auto answers = evaluation::read_json_lines(folder / "a.jsonl");
  ASSERT_TRUE(answers.is_ok());
  ASSERT_EQ(answers->size(), 4u);
  double right = 0;
  for (size_t i = 0; i < 4; ++i) {
    const std::vector<double> log_p = (*answers)[i].json["log_p"];
    ASSERT_EQ(log_p.size(), 3u);
    const auto best = std::max_element(log_p.begin(), log_p.end()) - log_p.begin();
    EXPECT_EQ((*answers)[i].json["choice"], best);
    right += best == static_cast<int64_t>(i % 3);
  }
  EXPECT_EQ(j["accuracy"], right / 4);
  folder.write("bad.jsonl", "{\"context\": \"a\", \"choices\": [\"b\", \"c\"]}\n");
  const Outcome bad = run_binary("eval choice --data-path " + (folder / "bad.jsonl ") + model);
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_NE(bad.err.find("bad.jsonl:1: \"answer\""), std::string::npos) << bad.err;
}

// F61 through the command, its tokenizer included: the choices are those of Hugging Face transformers on the same file.
TEST(EvalChoice, ARealModelChoosesAsTheReference) {
  REPRISE_NEEDS_SMOLLM2(path);
  const Folder folder;
  const auto golden =
      evaluation::read_json_lines(std::string(REPRISE_SOURCE_DIR) + "/tests/data/tasks/golden.json");  // one line
  ASSERT_TRUE(golden.is_ok()) << golden.status().message();
  const Json& want = (*golden)[0].json["choices"];
  const std::vector<evaluation::JsonLine> questions = evaluation::builtin_choices();
  constexpr size_t kAsked = 10;
  const OrderedJson j = json_of(run_binary(fmt::format(
      "eval choice --json --dtype float32 --num-questions {} --answers-file {}", kAsked, folder / "a.jsonl")));
  EXPECT_EQ(j["questions"], kAsked);
  const auto answers = evaluation::read_json_lines(folder / "a.jsonl");
  ASSERT_TRUE(answers.is_ok());
  ASSERT_EQ(answers->size(), kAsked);
  double right = 0, right_per_byte = 0;
  for (size_t i = 0; i < kAsked; ++i) {
    const Json& got = (*answers)[i].json;
    for (const char* key : {"choice", "choice_per_byte"}) EXPECT_EQ(got[key], want[i][key]) << key << " " << i;
    for (size_t k = 0; k < 4; ++k)
      EXPECT_NEAR(got["log_p"][k].get<double>(), want[i]["log_p"][k].get<double>(), 1e-3) << i;
    right += want[i]["choice"] == questions[i].json["answer"];
    right_per_byte += want[i]["choice_per_byte"] == questions[i].json["answer"];
  }
  EXPECT_DOUBLE_EQ(j["accuracy"].get<double>(), right / kAsked);
  EXPECT_DOUBLE_EQ(j["accuracy_per_byte"].get<double>(), right_per_byte / kAsked);
}

// A file of questions with numbers of different length, for prompts of different length.
std::string questions(const Folder& folder, int count) {
  std::string lines;
  for (int i = 0; i < count; ++i)
    lines += Json{{"question", fmt::format("{}+{}?", std::string(static_cast<size_t>(1 + i * 5 % 37), '1'), i)},
                  {"answer", fmt::format("#### {}", i)}}
                 .dump() +
             "\n";
  folder.write("q.jsonl", lines);
  return folder / "q.jsonl";
}

TEST(EvalGsm8k, AServerIsScoredAsTheEngineIs) {
  const Folder folder;
  const Model model;
  const std::string command =
      "eval gsm8k --json --num-shots 2 --max-new-tokens 24 --data-path " + questions(folder, 22) + " --answers-file ";
  const OrderedJson engine = json_of(run_binary(command + (folder / "engine.jsonl ") + model.flags()));
  Server server(model, "--api-key key");
  ASSERT_NE(server.port(), 0) << server.said();
  const std::string at = " --api-key key --base-url " + server.url();
  for (const int parallel : {1, 7, 64}) {
    const std::string file = folder / fmt::format("{}.jsonl", parallel);
    const OrderedJson asked = json_of(run_binary(command + file + at + fmt::format(" --parallel {}", parallel)));
    EXPECT_EQ(keys_of(asked), keys_of(engine));
    EXPECT_EQ(asked["questions"], 20);
    EXPECT_EQ(asked["accuracy"], engine["accuracy"]);
    EXPECT_EQ(asked["invalid"], engine["invalid"]);
    EXPECT_GT(asked["output_tok_s"], 0);
    EXPECT_EQ(content_of(file), content_of(folder / "engine.jsonl")) << parallel;
  }
  const Outcome both = run_binary(command + (folder / "x ") + at + " " + model.flags());
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_NE(both.err.find("--model-path"), std::string::npos) << both.err;
  // One question that is refused makes no score.
  const Outcome refused = run_binary(command + (folder / "x ") + "--base-url " + server.url());
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.err.find("API key"), std::string::npos) << refused.err;
  const Outcome name = run_binary(command + (folder / "x ") + at + " --server-model other");
  EXPECT_EQ(name.exit_code, 1);
  EXPECT_NE(name.err.find("was not answered: HTTP 404"), std::string::npos) << name.err;
}

// F61: in every graph mode, with and without passes, at every concurrency.
TEST(EvalGsm8k, AnswersAreTheSameInEveryModeAndAtEveryConcurrency) {
  const Folder folder;
  const Model model;
  const std::string command =
      "eval gsm8k --json --num-shots 2 --max-new-tokens 16 --data-path " + questions(folder, 34) + " --answers-file ";
  std::string first;
  for (const std::string graph :
       {"--graph off", "--graph-decode whole", "--graph-decode piecewise --graph-prefill piecewise"})
    for (const std::string passes : {"", "--passes none"}) {
      Server server(model, graph + " " + passes);
      ASSERT_NE(server.port(), 0) << server.said();
      for (const int parallel : {4, 16, 32}) {
        const std::string file = folder / "answers.jsonl";
        json_of(run_binary(command + file + " --base-url " + server.url() + fmt::format(" --parallel {}", parallel)));
        if (first.empty()) first = content_of(file);
        EXPECT_EQ(content_of(file), first) << graph << " " << passes << " " << parallel;
      }
    }
  EXPECT_GT(first.size(), 1000u);
}

}  // namespace
}  // namespace reprise::apps::eval_test

// The evaluation commands: reading texts, GSM8K's prompts and scoring, and the commands at work.
#include "eval/gsm8k.h"

#include "apps/serving.h"
#include "eval/text_file.h"

namespace reprise::apps {
namespace {

using Words = std::vector<std::string>;

TEST(Gsm8k, LastNumber) {
  const std::pair<const char*, const char*> cases[] = {{"#### 18", "18"},
                                                       {"is $1,200.50.", "1200.50"},
                                                       {"5-3", "3"},
                                                       {"(-7)", "-7"},
                                                       {"from 3 to -12 degrees", "-12"},
                                                       {"3.", "3"},
                                                       {"v1.2.3", "2.3"},
                                                       {"1,2", "12"},
                                                       {"x = 0.5", "0.5"},
                                                       {"70,000 dollars", "70000"},
                                                       {"a ,5", "5"},
                                                       {"50%", "50"}};
  for (const auto& [text, number] : cases) EXPECT_EQ(last_number(text).value_or("none"), number) << text;
  EXPECT_FALSE(last_number("none at all"));
  EXPECT_FALSE(last_number(""));
}

TEST(Gsm8k, NumbersAreComparedAsNumbers) {
  EXPECT_TRUE(same_number("18", "18.0"));
  EXPECT_TRUE(same_number("018", "18"));
  EXPECT_TRUE(same_number("-0", "0"));
  EXPECT_TRUE(same_number("0.5", ".50"));
  EXPECT_FALSE(same_number("18", "-18"));
  EXPECT_FALSE(same_number("18", "18.5"));
  EXPECT_FALSE(same_number("180", "18"));
}

TEST(Gsm8k, PromptsHoldTheSolvedQuestions) {
  const Json solved = {{"question", "1+1?"}, {"answer", "2\n#### 2"}};
  const Json asked = {{"question", "2+2?"}, {"answer", "It is\n#### 1,004"}};
  auto tasks = gsm8k_tasks({asked}, {solved});
  ASSERT_TRUE(tasks.is_ok());
  EXPECT_EQ((*tasks)[0].prompt, "Question: 1+1?\nAnswer: 2\n#### 2\n\nQuestion: 2+2?\nAnswer:");
  EXPECT_EQ((*tasks)[0].expected, "1004");
  EXPECT_NE(gsm8k_tasks({Json{{"question", "x"}}}, {}).status().message().find("question 1: \"answer\""),
            std::string::npos);
  EXPECT_NE(gsm8k_tasks({Json{{"question", "x"}, {"answer", "#### none"}}}, {}).status().message().find("no number"),
            std::string::npos);
}

TEST(EvaluationText, JsonLinesAreJoined) {
  const Folder folder;
  folder.write("a.jsonl", "{\"question\": \"q\", \"answer\": \"a\"}\n\n{\"text\": \"t\"}\n");
  folder.write("a.txt", "plain {");
  folder.write("bad.jsonl", "{\"text\": \"t\"}\n{\"other\": 1}\n");
  folder.write("broken.jsonl", "{\"text\": \"t\"}\n{\n");
  folder.write("empty.txt", "");
  EXPECT_EQ(*read_evaluation_text(folder / "a.jsonl"), "q\na\n\nt");
  EXPECT_EQ(*read_evaluation_text(folder / "a.txt"), "plain {");
  EXPECT_NE(read_evaluation_text(folder / "bad.jsonl").status().message().find("bad.jsonl:2"), std::string::npos);
  EXPECT_NE(read_evaluation_text(folder / "broken.jsonl").status().message().find("broken.jsonl:2"), std::string::npos);
  EXPECT_NE(read_evaluation_text(folder / "empty.txt").status().message().find("empty"), std::string::npos);
}

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
  const Outcome missing = run_binary("eval perplexity " + model);
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_NE(missing.err.find("--text-file"), std::string::npos);
  const Outcome window = run_binary("eval perplexity --window 100000 --text-file " + (folder / "text.txt ") + model);
  EXPECT_EQ(window.exit_code, 1);
  EXPECT_NE(window.err.find("text.txt"), std::string::npos);
}

TEST(EvalGsm8k, JsonAnswersAndErrors) {
  const Folder folder;
  const std::string model = byte_model(folder);
  std::string lines;
  for (int i = 0; i < 7; ++i)
    lines += Json{{"question", fmt::format("{}+1?", i)}, {"answer", fmt::format("#### {}", i + 1)}}.dump() + "\n";
  folder.write("q.jsonl", lines);
  const std::string command = "eval gsm8k --json --num-shots 2 --max-new-tokens 4 --data-path " + (folder / "q.jsonl");
  const OrderedJson j = json_of(run_binary(command + " --answers-file " + (folder / "a.jsonl ") + model));
  EXPECT_EQ(keys_of(j), (Words{"questions", "accuracy", "invalid", "latency_s", "output_tok_s"}));
  EXPECT_EQ(j["questions"], 5);  // two of the seven are the solved ones
  auto answers = read_json_lines(folder / "a.jsonl");
  ASSERT_TRUE(answers.is_ok());
  EXPECT_EQ(answers->size(), 5u);
  EXPECT_EQ((*answers)[0].json["expected"], "3");
  const Outcome few = run_binary("eval gsm8k --num-shots 7 --data-path " + (folder / "q.jsonl ") + model);
  EXPECT_EQ(few.exit_code, 1);
  EXPECT_NE(few.err.find("too few"), std::string::npos);
  EXPECT_EQ(run_binary("eval gsm8k " + model).exit_code, 2);
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
}  // namespace reprise::apps

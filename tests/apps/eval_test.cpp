// The evaluation commands: reading texts, GSM8K's prompts and scoring, and the commands at work.
#include "eval/gsm8k.h"

#include "apps/serving.h"
#include "eval/choice.h"
#include "eval/text_file.h"
#include "support/smollm2.h"

namespace reprise::apps::eval_test {
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

Result<std::vector<ChoiceTask>> choices_of(const Json& line) { return choice_tasks({{"f:1", line}}); }

TEST(Choice, LinesOfBothKindsAreRead) {
  const Json own = {{"context", "It is"}, {"choices", {"hot.", " cold."}}, {"answer", 1}};
  const Json hellaswag = {{"ctx", "It is"}, {"endings", {"hot.", "cold."}}, {"label", "1"}, {"ind", 4}};
  for (const Json& line : {own, hellaswag}) {
    auto tasks = choices_of(line);
    ASSERT_TRUE(tasks.is_ok()) << tasks.status().message();
    EXPECT_EQ((*tasks)[0].context, "It is");
    EXPECT_EQ((*tasks)[0].endings, (Words{" hot.", " cold."}));
    EXPECT_EQ((*tasks)[0].answer, 1u);
  }
}

TEST(Choice, BadLinesAreNamedWithWhatIsAllowed) {
  const auto problem = [](const char* member, const Json& value) {
    Json line = {{"context", "c"}, {"choices", {"a", "b"}}, {"answer", 0}};
    line[member] = value;
    auto tasks = choices_of(line);
    EXPECT_FALSE(tasks.is_ok()) << line;
    return tasks.is_ok() ? std::string() : tasks.status().message();
  };
  for (const Json& bad : {Json(""), Json(1), Json(nullptr)})
    EXPECT_NE(problem("context", bad).find("f:1: \"context\""), std::string::npos);
  for (const Json& bad : {Json::array(), Json({"one"}), Json({"a", 1}), Json({"a", ""}), Json("ab")})
    EXPECT_NE(problem("choices", bad).find("at least 2 texts"), std::string::npos);
  for (const Json& bad :
       {Json(2), Json(-1), Json("2"), Json("1x"), Json(""), Json(0.5), Json(uint64_t{1} << 63), Json()})
    EXPECT_NE(problem("answer", bad).find("allowed: 0 to 1"), std::string::npos);
}

TEST(Choice, LongEndingsWinPerByte) {
  const ChoiceTask task{"c", {" a", " abcdefgh"}, 0};
  EXPECT_EQ(choose(task, {-4, -9}).by_sum, 0u);
  EXPECT_EQ(choose(task, {-4, -9}).by_byte, 1u);
  EXPECT_EQ(choose(task, {-4, -4}).by_sum, 0u);  // the first of equal ones
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
  const auto answers = read_json_lines(folder / "a.jsonl");
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
  const auto golden = read_json_lines(std::string(REPRISE_SOURCE_DIR) + "/tests/data/tasks/golden.json");  // one line
  ASSERT_TRUE(golden.is_ok()) << golden.status().message();
  const Json& want = (*golden)[0].json["choices"];
  const std::vector<JsonLine> questions = builtin_choices();
  constexpr size_t kAsked = 10;
  const OrderedJson j = json_of(run_binary(fmt::format(
      "eval choice --json --dtype float32 --num-questions {} --answers-file {}", kAsked, folder / "a.jsonl")));
  EXPECT_EQ(j["questions"], kAsked);
  const auto answers = read_json_lines(folder / "a.jsonl");
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

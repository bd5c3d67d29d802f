// Questions to a model of this process and to a server, and the scores of what they say.
#include "evaluation/answers.h"

#include <gtest/gtest.h>

#include "evaluation/choice.h"
#include "evaluation/gsm8k.h"
#include "evaluation/mmmu.h"
#include "support/folder.h"
#include "support/scripted_server.h"
#include "support/tiny_models.h"

namespace reprise::evaluation::answers_test {
namespace {

using testing_support::Folder;
using testing_support::ScriptedServer;
using Words = std::vector<std::string>;

TEST(AskModel, AnswersComeInTheOrderOfTheQuestions) {
  auto engine = testing_support::open_engine(testing_support::tiny_model_path("llama_gqa3_tied"), {});
  ASSERT_TRUE(engine.is_ok()) << engine.status().message();
  api::TextGenerator generator(**engine, nullptr);
  size_t most = 0, made = 0;
  ModelQuestions questions{.title = "test", .count = 7, .together = 3, .max_new_tokens = 5};
  questions.request = [&](size_t i) {
    EXPECT_EQ(i, made++) << "each question once, in turn";
    most = std::max(most, i);
    sched::GenerationRequest r{{1, 2, static_cast<int32_t>(3 + i)}, {}};
    r.sampling.max_new_tokens = 5;
    r.sampling.ignore_eos = true;
    return r;
  };
  const auto said = ask_model(generator, questions);
  ASSERT_TRUE(said.is_ok()) << said.status().message();
  EXPECT_EQ(said->texts.size(), 7u);
  EXPECT_EQ(said->tokens, 35);
  EXPECT_EQ(said->cut, 7);
  EXPECT_GT(said->seconds, 0);
  EXPECT_EQ(most, 6u);
  questions.request = [](size_t i) -> Result<sched::GenerationRequest> { return invalid("question {}", i); };
  EXPECT_EQ(ask_model(generator, questions).status().message(), "question 0");
}

// Says what it was asked; of "refuse" it says nothing.
testing_support::Script echo(const std::string& path, const Json& body) {
  if (path == "/v1/models") return ScriptedServer::json(200, {{"data", {{{"id", "the-model"}}}}});
  if (!body.is_object()) return ScriptedServer::json(404, {{"error", path}});
  const auto prompt = body["prompt"].get<std::string>();
  if (prompt == "refuse") return ScriptedServer::json(429, {{"error", {{"message", "too much"}}}});
  return ScriptedServer::stream({ScriptedServer::text_event(body["model"].get<std::string>() + ":" + prompt, "length"),
                                 ScriptedServer::usage_event(1, 4), "[DONE]"});
}

TEST(AskServer, AnswersComeInTheOrderOfTheQuestions) {
  ScriptedServer server([](const std::string& path, const Json& body, int) { return echo(path, body); });
  AskedServer at{server.url(), "", "", "--server-model"};
  at.parallel = 3;
  ServerQuestions questions{.title = "test"};
  for (int i = 0; i < 8; ++i) questions.calls.push_back({fmt::format("q{}", i), 0, 4});
  questions.name = [](size_t i) { return fmt::format("number {}", i); };
  const auto said = ask_server(at, questions);
  ASSERT_TRUE(said.is_ok()) << said.status().message();
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(said->texts[i], fmt::format("the-model:q{}", i));
  EXPECT_EQ(said->tokens, 32);
  EXPECT_EQ(said->cut, 8);
  at.model = "named";
  questions.calls = {{std::string("one"), 0, 4}};
  EXPECT_EQ(ask_server(at, questions)->texts, Words{"named:one"});
  questions.calls.push_back({std::string("refuse"), 0, 4});
  const std::string problem = ask_server(at, questions).status().message();
  EXPECT_TRUE(problem.starts_with(server.url() + ": question number 1 was not answered: ")) << problem;
}

TEST(Gsm8k, ShotsAreTheFirstQuestionsOrAnotherFiles) {
  const Folder folder;
  std::string lines;
  for (int i = 0; i < 5; ++i)
    lines += Json{{"question", fmt::format("{}?", i)}, {"answer", fmt::format("#### {}", i)}}.dump() + "\n";
  folder.write("q.jsonl", lines);
  Gsm8kSource source{folder / "q.jsonl", "", 2, 2, "--num-shots"};
  const auto among = read_gsm8k(source);
  ASSERT_TRUE(among.is_ok()) << among.status().message();
  ASSERT_EQ(among->size(), 2u);
  EXPECT_EQ((*among)[0].prompt,
            "Question: 0?\nAnswer: #### 0\n\nQuestion: 1?\nAnswer: #### 1\n\nQuestion: 2?\nAnswer:");
  EXPECT_EQ((*among)[1].expected, "3");
  source.shots = folder / "q.jsonl";
  source.most_questions = 0;
  const auto apart = read_gsm8k(source);
  ASSERT_EQ(apart->size(), 5u);
  EXPECT_TRUE((*apart)[0].prompt.ends_with("Question: 0?\nAnswer:"));
  source.shots_each = 6;
  EXPECT_EQ(read_gsm8k(source).status().message(), (folder / "q.jsonl") + ": 5 lines are too few for --num-shots 6");
  source.shots_each = 5;
  EXPECT_TRUE(read_gsm8k(source).is_ok());
  source.shots = "";
  EXPECT_FALSE(read_gsm8k(source).is_ok()) << "one question is to be asked";
  source.shots_each = 0;
  EXPECT_EQ((*read_gsm8k(source))[4].prompt, "Question: 4?\nAnswer:");
}

TEST(Gsm8k, AnswersAreScored) {
  const Gsm8kScore score =
      score_gsm8k({{"", "18"}, {"", "4"}, {"", "1"}}, {"so it is 18.0.", "five: 5", "\xff no idea"});
  EXPECT_EQ(score.questions, 3u);
  EXPECT_EQ(score.right, 1u);
  EXPECT_EQ(score.without, 1u);
  EXPECT_EQ(score.answers,
            "{\"expected\":\"18\",\"got\":\"18.0\",\"right\":true,\"text\":\"so it is 18.0.\"}\n"
            "{\"expected\":\"4\",\"got\":\"5\",\"right\":false,\"text\":\"five: 5\"}\n"
            "{\"expected\":\"1\",\"got\":\"\",\"right\":false,\"text\":\"\xef\xbf\xbd no idea\"}\n");
}

TEST(Mmmu, AreReadByIdAndScoredBySubject) {
  const Folder folder;
  const auto line = [](const char* id, const char* subject) {
    const Json j = {{"id", id},           {"question", "<image 1> ?"},  {"image_1", "f.png"},
                    {"subject", subject}, {"options", {"red", "blue"}}, {"answer", "B"}};
    return j.dump() + "\n";
  };
  folder.write("questions.jsonl", line("c", "Art") + line("a", "Art") + line("b", ""));
  const auto two = read_mmmu(folder.path(), 2);
  ASSERT_TRUE(two.is_ok()) << two.status().message();
  ASSERT_EQ(two->size(), 2u);
  EXPECT_EQ((*two)[0].id, "a");
  EXPECT_EQ((*two)[1].id, "b");
  const auto all = read_mmmu(folder.path(), 0);
  const MmmuScore score = score_mmmu(*all, {"Answer: B", "Answer: B", "Answer: A"});
  EXPECT_EQ(score.all.questions, 3u);
  EXPECT_EQ(score.all.right, 2u);
  EXPECT_EQ(score.subjects.at("Art").share(), 0.5);
  EXPECT_EQ(score.subjects.at("").share(), 1);
  EXPECT_TRUE(score.answers.starts_with(
      "{\"id\":\"a\",\"expected\":[\"B\"],\"got\":\"B\",\"right\":true,\"text\":\"Answer: B\"}\n"))
      << score.answers;
  // A question whose image is not there makes no score.
  const auto said = ask_mmmu(AskedServer{"http://127.0.0.1:1", "m", "", ""}, *all, folder.path(), 4);
  EXPECT_NE(said.status().message().find("f.png"), std::string::npos) << said.status().message();
}

TEST(Choice, EndingsOfAllQuestionsAreScored) {
  EXPECT_EQ(read_choices("", 0)->size(), 40u);
  EXPECT_EQ(read_choices("", 3)->size(), 3u);
  const std::vector<ChoiceTask> tasks{{"a", {" b", " longer"}, 1}, {"a", {" x", " y", " z"}, 2}};
  const ChoiceScore score = score_choices(tasks, {{-2, 4, 1}, {-3, 9, 2}, {-3, 9, 1}, {-2, 4, 1}, {-1, 1, 1}});
  EXPECT_EQ(score.questions, 2u);
  EXPECT_EQ(score.right, 1u);
  EXPECT_EQ(score.right_by_byte, 2u);
  EXPECT_EQ(score.answers,
            "{\"answer\":1,\"choice\":0,\"choice_per_byte\":1,\"log_p\":[-2.0,-3.0]}\n"
            "{\"answer\":2,\"choice\":2,\"choice_per_byte\":2,\"log_p\":[-3.0,-2.0,-1.0]}\n");
}

}  // namespace
}  // namespace reprise::evaluation::answers_test

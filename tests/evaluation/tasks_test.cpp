// Texts, questions and choices: how they are read, asked and scored.
#include <gtest/gtest.h>

#include "evaluation/choice.h"
#include "evaluation/gsm8k.h"
#include "evaluation/text_file.h"
#include "support/folder.h"

namespace reprise::evaluation::tasks_test {
namespace {

using testing_support::Folder;

using Words = std::vector<std::string>;

Result<std::vector<ChoiceTask>> choices_of(const Json& line) { return choice_tasks({{"f:1", line}}); }

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

TEST(EvaluationText, PromptsAreThoseOfEachLine) {
  const Folder folder;
  folder.write("p.jsonl", "{\"prompt\": \"a\", \"answer\": 1}\n\n{\"question\": \"b\"}\n");
  EXPECT_EQ(*read_prompts(folder / "p.jsonl"), (Words{"a", "b"}));
  folder.write("bad.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": 5, \"question\": \"b\"}\n");
  EXPECT_EQ(read_prompts(folder / "bad.jsonl").status().message(),
            (folder / "bad.jsonl") + ":2: a text \"prompt\" or \"question\" was expected");
}

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

}  // namespace
}  // namespace reprise::evaluation::tasks_test

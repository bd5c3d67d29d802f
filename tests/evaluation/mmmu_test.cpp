// MMMU's questions and scores, against SGLang's.
#include "evaluation/mmmu.h"

#include <gtest/gtest.h>

#include <cmath>

#include "evaluation/text_file.h"
#include "support/folder.h"

namespace reprise::evaluation::mmmu_test {
namespace {

using testing_support::content_of;

const std::string kData = std::string(REPRISE_SOURCE_DIR) + "/tests/data/";

// Against the functions of SGLang (tests/data/mmmu, tools/golden/make_mmmu.py).
TEST(Mmmu, IsAskedAndScoredAsSglangDoes) {
  const Json want = Json::parse(content_of(kData + "mmmu/parsed.json"));
  const auto lines = read_json_lines(kData + "mmmu/questions.jsonl");
  ASSERT_TRUE(lines.is_ok());
  for (const JsonLine& line : *lines) {
    const auto q = mmmu_question(line.json, line.place);
    ASSERT_TRUE(q.is_ok()) << q.status().message();
    EXPECT_EQ((Json{q->before, q->behind}), want["prompts"][q->id]);
  }
  for (const Json& c : want["choices"])
    EXPECT_EQ(mmmu_choice(c["text"].get<std::string>(), want["options"]), c["choice"]) << c["text"];
  for (const Json& c : want["open"]) {
    const auto text = c["text"].get<std::string>();
    Json values = Json::array();
    for (const MmmuValue& v : mmmu_values(text)) {
      const auto* number = std::get_if<double>(&v);
      values.push_back(!number                  ? Json(std::get<std::string>(v))
                       : std::isfinite(*number) ? Json(*number)
                                                : Json(fmt::format("{}", *number)));
    }
    EXPECT_EQ(values, c["values"]) << text;
    for (size_t i = 0; i < c["right"].size(); ++i) {
      const Json line = {{"id", "i"}, {"question", "q"}, {"image_1", "f"}, {"answer", want["golds"][i]}};
      std::string got;
      EXPECT_EQ(mmmu_right(*mmmu_question(line, "here"), text, &got), c["right"][i]) << text << want["golds"][i];
    }
  }
  for (const char* wrong : {R"({"id": "a", "question": "q", "answer": "A"})",
                            R"({"id": "a", "question": "q", "image_1": "f", "answer": "A", "options": "[1, 2]"})",
                            R"({"id": "a", "question": "q", "image_1": "f", "answer": []})",
                            R"({"id": "a", "question": "q", "image_1": "f", "answer": 5})"})
    EXPECT_TRUE(mmmu_question(Json::parse(wrong), "f:1").status().message().starts_with("f:1: \"")) << wrong;
}

}  // namespace
}  // namespace reprise::evaluation::mmmu_test

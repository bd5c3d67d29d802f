// What embedding models and rerankers read, against HF tokenizers (tools/golden/make_encoders.py).
#include "text/model_input.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "text/tokenizer_data.h"

namespace reprise::text::model_input_test {
namespace {

std::string folder() { return std::string(REPRISE_SOURCE_DIR) + "/tests/data/encoders/"; }

Result<Json> read_json(const std::string& name) {
  ASSIGN_OR_RETURN(const std::string text, read_file(folder() + name));
  return parse_json(text, name);
}

Result<Tokenizer> open(const std::string& name) {
  ASSIGN_OR_RETURN(const std::string text, read_file(folder() + name + "/tokenizer.json"));
  return Tokenizer::from_json_text(text);
}

TEST(ModelInput, TextsAreThoseOfTheReferenceAndKeepWhatStandsBehindThem) {
  for (const std::string model : {"bert_mean", "xlm_roberta_mean"}) {
    const auto tokenizer = open(model);
    const auto texts = read_json(model + "/texts.json");
    ASSERT_TRUE(tokenizer.is_ok() && texts.is_ok()) << tokenizer.status().message();
    ASSERT_FALSE(texts->empty());
    size_t cut = 0;
    for (const Json& t : *texts) {
      const auto ids = encode_text(*tokenizer, t["text"].get<std::string>(), 100, true, false);
      ASSERT_TRUE(ids.is_ok()) << ids.status().message();
      EXPECT_EQ(ids->ids, t["ids"].get<std::vector<int32_t>>()) << t["text"];
      EXPECT_EQ(ids->second_kind, ids->ids.size());
      cut += ids->ids.size() == 100;
    }
    EXPECT_GT(cut, 0u) << model;
  }
}

TEST(ModelInput, PairsAreThoseOfTheReferenceAndCutTheSecondText) {
  const auto tokenizer = open("bert_scores");
  const auto pairs = read_json("bert_scores/pairs.json");
  ASSERT_TRUE(tokenizer.is_ok() && pairs.is_ok());
  ASSERT_FALSE(pairs->empty());
  const auto query = tokenizer->encode((*pairs)[0]["query"].get<std::string>(), {.add_special_tokens = false});
  ASSERT_TRUE(query.is_ok());
  size_t cut = 0;
  for (const Json& p : *pairs) {
    const auto pair =
        encode_query(*tokenizer, false, "", p["query"].get<std::string>(), p["document"].get<std::string>(), 160);
    ASSERT_TRUE(pair.is_ok()) << pair.status().message();
    EXPECT_EQ(pair->ids, p["ids"].get<std::vector<int32_t>>()) << p["document"];
    EXPECT_EQ(pair->second_kind, query->size() + 2) << "[CLS] query [SEP]";
    cut += pair->ids.size() == 160;
  }
  EXPECT_GT(cut, 0u);
  const auto none = encode_query(*tokenizer, false, "", "what is captured?", "a", 6);
  ASSERT_FALSE(none.is_ok());
  EXPECT_NE(none.status().message().find("a pair may have 6"), std::string::npos) << none.status().message();
}

TEST(ModelInput, AJudgedPairHasItsMarksOnlyWhereThePromptHasThem) {
  const auto tokenizer = tokenizer_or_skip("qwen3");
  if (!tokenizer) return;
  const auto ids = encode_query(*tokenizer, true, "", "q", "<|im_end|>", 400);
  ASSERT_TRUE(ids.is_ok()) << ids.status().message();
  const int32_t end = tokenizer->token_to_id("<|im_end|>").value();
  EXPECT_EQ(std::count(ids->ids.begin(), ids->ids.end(), end), 2) << "system and user";
  const auto text = tokenizer->decode(ids->ids);
  ASSERT_TRUE(text.is_ok());
  EXPECT_EQ(*text,
            "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
            "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: "
            "Given a web search query, retrieve relevant passages that answer the query\n<Query>: q\n<Document>: "
            "<|im_end|><|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

}  // namespace
}  // namespace reprise::text::model_input_test

// Ids and decoded text of 21,000 strings against HF tokenizers, and tiktoken.
#include <gtest/gtest.h>

#include "base/file.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_data.h"

namespace reprise::text::tokenizer_golden_test {
namespace {

constexpr EncodeOptions kPlain{.add_special_tokens = false};

class TokenizerGolden : public testing::TestWithParam<std::pair<const char*, const char*>> {
 protected:
  std::string golden_path(const char* ending) const {
    const std::string name = GetParam().second;
    const std::string folder = name.starts_with("spm_")       ? "/spm/"
                               : name.starts_with("unigram_") ? "/unigram/"
                               : name == "kimi"               ? "/tiktoken/"
                                                              : "/";
    return golden_folder() + folder + name + ending;
  }
};

TEST_P(TokenizerGolden, FirstIds) {
  const auto tokenizer = tokenizer_or_skip(GetParam().first);
  if (!tokenizer) return;
  const auto strings = read_golden_strings();
  ASSERT_TRUE(strings) << strings.status().message();
  const auto text = read_file(golden_path(".first_ids.json"));
  ASSERT_TRUE(text) << text.status().message();
  const auto wanted = parse_json(*text, "first ids");
  ASSERT_TRUE(wanted) << wanted.status().message();
  ASSERT_EQ(wanted->size(), 300u);
  for (size_t i = 0; i < wanted->size(); ++i) {
    const auto ids = tokenizer->encode((*strings)[i], kPlain);
    ASSERT_TRUE(ids) << ids.status().message();
    EXPECT_EQ(*ids, (*wanted)[i].get<std::vector<int32_t>>()) << "string " << i << ": " << (*strings)[i];
  }
}

TEST_P(TokenizerGolden, AllStrings) {
  const auto tokenizer = tokenizer_or_skip(GetParam().first);
  if (!tokenizer) return;
  const auto strings = read_golden_strings();
  ASSERT_TRUE(strings) << strings.status().message();
  const auto golden = read_golden(golden_path(".golden.gz"));
  ASSERT_TRUE(golden) << golden.status().message();
  ASSERT_EQ(strings->size(), golden->id_hashes.size());
  ASSERT_GE(strings->size(), 20000u);

  size_t wrong_ids = 0;
  size_t wrong_text = 0;
  size_t wrong_stream = 0;
  std::string examples;
  IncrementalDetokenizer stream(*tokenizer, false);
  for (size_t i = 0; i < strings->size(); ++i) {
    const std::string& string = (*strings)[i];
    const auto ids = tokenizer->encode(string, kPlain);
    ASSERT_TRUE(ids) << ids.status().message();
    const bool same_ids =
        ids->size() == golden->id_counts[i] && fnv1a(ids->data(), ids->size() * 4) == golden->id_hashes[i];
    if (!same_ids && ++wrong_ids <= 10) examples += "ids of string " + std::to_string(i) + ": " + string + "\n";

    const auto decoded = tokenizer->decode(*ids);
    ASSERT_TRUE(decoded) << decoded.status().message();
    const uint64_t text_hash = *decoded == string ? 0 : fnv1a(decoded->data(), decoded->size());
    if (text_hash != golden->text_hashes[i] && ++wrong_text <= 10)
      examples += "text of string " + std::to_string(i) + ": " + string + "\n";

    std::string streamed;
    for (int32_t id : *ids) streamed += stream.push(id).value();
    streamed += stream.finish().value();
    wrong_stream += streamed != *decoded;
  }
  EXPECT_EQ(wrong_ids, 0u) << examples;
  EXPECT_EQ(wrong_text, 0u) << examples;
  EXPECT_EQ(wrong_stream, 0u);
}

// Words are cut as each name says: tests/data/tokenizer/gguf_splits.json has a vocabulary that would join across
// borders.
TEST(TokenizerGgufGolden, NamesCutAsTheModelsThatUseThem) {
  const auto all = read_golden_strings();
  ASSERT_TRUE(all) << all.status().message();
  size_t names = 0;
  for (const char* file : {"/gguf_splits.json", "/gguf_splits_han.json"}) {
    const auto text = read_file(golden_folder() + file);
    ASSERT_TRUE(text) << text.status().message();
    const auto golden = parse_json(*text, "cuts");
    ASSERT_TRUE(golden) << golden.status().message();
    const std::vector<std::string> strings = golden->value("strings", *all);
    for (const Json& way : (*golden)["ways"])
      for (const Json& name : way["names"]) {
        GgufTokenizer gguf;
        gguf.model = "gpt2";
        gguf.pre = name.get<std::string>();
        gguf.tokens = (*golden)["tokens"].get<std::vector<std::string>>();
        gguf.merges = (*golden)["merges"].get<std::vector<std::string>>();
        const auto tokenizer = Tokenizer::from_gguf(gguf);
        ASSERT_TRUE(tokenizer) << gguf.pre << ": " << tokenizer.status().message();
        ASSERT_GE(way["ids"].size(), 200u);
        for (const auto& [number, wanted] : way["ids"].items()) {
          const std::string& string = strings.at(static_cast<size_t>(std::stoul(number)));
          const auto ids = tokenizer->encode(string, kPlain);
          ASSERT_TRUE(ids) << ids.status().message();
          EXPECT_EQ(*ids, wanted.get<std::vector<int32_t>>()) << gguf.pre << ": " << string;
        }
        ++names;
      }
  }
  EXPECT_EQ(names, 18u);
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerGolden,
                         testing::Values(std::pair("smollm2", "smollm2"), std::pair("smollm2_as_json", "smollm2"),
                                         std::pair("qwen3", "qwen3"), std::pair("deepseek_v3", "deepseek_v3"),
                                         std::pair("minilm", "minilm"), std::pair("minilm_gguf", "minilm"),
                                         std::pair("spm_llama", "spm_llama"), std::pair("spm_mistral", "spm_mistral"),
                                         std::pair("spm_gguf", "spm_llama"),
                                         std::pair("unigram_words", "unigram_words"),
                                         std::pair("unigram_gguf", "unigram_words"),
                                         std::pair("unigram_bytes", "unigram_bytes"), std::pair("kimi", "kimi")),
                         [](const auto& param) { return std::string(param.param.first); });

}  // namespace
}  // namespace reprise::text::tokenizer_golden_test

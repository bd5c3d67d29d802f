// Word pieces in the metadata of GGUF files: against the tokenizer.json that a file was converted from, and what no key
// of a file says. Texts against HF tokenizers: tokenizer_golden_test.cpp.
#include <gtest/gtest.h>

#include "text/tokenizer.h"
#include "text/tokenizer_data.h"

namespace reprise::text::tokenizer_word_pieces_test {
namespace {

using Ids = std::vector<int32_t>;

TEST(WordPiecesGguf, PairsAreThoseOfTheTokenizerTheFileCameFrom) {
  const auto published = load_tokenizer("minilm"), converted = load_tokenizer("minilm_gguf");
  ASSERT_TRUE(published && converted) << published.status().message() << converted.status().message();
  for (const auto& [first, second] : {std::pair("What is a graph?", "Captured once, replayed often: naïve CAFÉ"),
                                      std::pair("", "北京 [MASK] x"), std::pair("unaffable", "")}) {
    const auto a = published->encode_pair(first, second, 14), b = converted->encode_pair(first, second, 14);
    ASSERT_TRUE(a && b) << a.status().message() << b.status().message();
    EXPECT_EQ(a->ids, b->ids) << first;
    EXPECT_EQ(a->second_kind, b->second_kind) << first;
    EXPECT_LT(b->second_kind, b->ids.size());
  }
}

GgufTokenizer small_gguf() {
  GgufTokenizer g;
  g.model = "bert";
  g.tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "▁cafe", "▁pa", "ris", "▁,", "s"};
  g.token_types = {3, 3, 3, 3, 3, 1, 1, 1, 1, 1};
  return g;
}

Ids ids_of(const GgufTokenizer& gguf, const std::string& text) {
  const auto t = Tokenizer::from_gguf(gguf);
  if (!t) {
    ADD_FAILURE() << t.status().message();
    return {};
  }
  const auto ids = t->encode(text);
  EXPECT_TRUE(ids) << ids.status().message();
  return ids ? *ids : Ids{};
}

TEST(WordPiecesGguf, TextGoesToTheCaseOfTheVocabulary) {
  GgufTokenizer g = small_gguf();
  EXPECT_EQ(ids_of(g, "Cafés,PARIS paris"), (Ids{2, 5, 9, 8, 6, 7, 6, 7, 3})) << "no token has a capital or an accent";
  g.tokens.push_back("▁Pa");
  g.token_types.push_back(1);
  EXPECT_EQ(ids_of(g, "Paris paris Cafe"), (Ids{2, 10, 7, 6, 7, 1, 3})) << "one token has a capital";
  g.tokens.back() = "▁café";
  EXPECT_EQ(ids_of(g, "CAFÉS Cafes"), (Ids{2, 10, 9, 5, 9, 3})) << "one token has an accent";
}

TEST(WordPiecesGguf, SpecialTokensAreFoundByKeyOrName) {
  GgufTokenizer g = small_gguf();
  EXPECT_EQ(ids_of(g, "[MASK] Paris"), (Ids{2, 4, 6, 7, 3}));
  g.bos = 0, g.sep = 4, g.unk = 8;
  EXPECT_EQ(ids_of(g, "x"), (Ids{0, 8, 4}));
  g.add_bos = false, g.add_eos = false;
  EXPECT_EQ(ids_of(g, "x"), (Ids{8}));
  const auto t = Tokenizer::from_gguf(small_gguf());
  ASSERT_TRUE(t) << t.status().message();
  EXPECT_EQ(t->decode(Ids{6, 7, 8, 5, 9}).value(), "paris, cafes");
}

TEST(WordPiecesGguf, BadMetadataIsNamed) {
  const auto message = [](auto change) {
    GgufTokenizer gguf = small_gguf();
    change(gguf);
    const auto t = Tokenizer::from_gguf(gguf);
    return t ? std::string() : t.status().message();
  };
  const auto says = [](const std::string& text, const char* part) { return text.find(part) != text.npos; };
  EXPECT_EQ(message([](GgufTokenizer&) {}), "");
  const std::string marks = message([](GgufTokenizer& g) { g.tokens.resize(5), g.token_types.resize(5); });
  EXPECT_TRUE(says(marks, "tokenizer.ggml.tokens: none begins with U+2581")) << marks;
  const std::string unknown = message([](GgufTokenizer& g) { g.tokens[1] = "[other]"; });
  EXPECT_TRUE(says(unknown, "tokenizer.ggml.unknown_token_id: is missing, and no token is [UNK]")) << unknown;
  const std::string separator = message([](GgufTokenizer& g) { g.tokens[3] = "[other]"; });
  EXPECT_TRUE(says(separator, "tokenizer.ggml.seperator_token_id: is missing, and no token is [SEP]")) << separator;
  const std::string range = message([](GgufTokenizer& g) { g.sep = 10; });
  EXPECT_TRUE(says(range, "tokenizer.ggml.seperator_token_id: 10 is not the id of one of 10 tokens")) << range;
}

}  // namespace
}  // namespace reprise::text::tokenizer_word_pieces_test

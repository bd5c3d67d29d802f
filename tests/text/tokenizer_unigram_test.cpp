// Unigram models: the best way through a word against all ways there are, metadata of GGUF files against the libraries
// that models come from, and files that are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "base/base64.h"
#include "base/file.h"
#include "text/model_input.h"
#include "text/tokenizer.h"
#include "text/tokenizer_data.h"

namespace reprise::text::tokenizer_unigram_test {
namespace {

using Ids = std::vector<int32_t>;

Json file_of(Json vocab, Json normalizer = nullptr) {
  return {{"version", "1.0"},
          {"normalizer", std::move(normalizer)},
          {"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", std::move(vocab)}}}};
}

Ids encode(const Tokenizer& t, std::string_view text) {
  auto ids = t.encode(text, {.add_special_tokens = false});
  EXPECT_TRUE(ids) << ids.status().message();
  return std::move(ids).value();
}

// The sums of all ways to cut `text` into tokens; a character that is none by itself may be unknown.
void all_ways(const std::map<std::string, double>& scores, double unknown, const std::string& text, double sum,
              std::vector<double>& out) {
  if (text.empty()) return out.push_back(sum);
  for (size_t size = 1; size <= text.size(); ++size)
    if (const auto it = scores.find(text.substr(0, size)); it != scores.end())
      all_ways(scores, unknown, text.substr(size), sum + it->second, out);
  if (!scores.contains(text.substr(0, 1))) all_ways(scores, unknown, text.substr(1), sum + unknown, out);
}

TEST(Unigram, NoOtherWayHasALargerSum) {
  std::mt19937 rng(7);
  const auto below = [&](size_t n) { return static_cast<size_t>(rng() % n); };
  const auto word = [&](size_t longest) {
    std::string out;
    for (size_t n = 1 + below(longest); n-- > 0;) out += "abcd"[below(4)];
    return out;
  };
  size_t unknown_texts = 0;
  for (int round = 0; round < 200; ++round) {
    std::map<std::string, double> scores;
    for (int i = 0; i < 24; ++i) scores[word(4)] = -1 - static_cast<double>(below(64)) / 8;
    Json vocab = Json::array({Json::array({"<unk>", 0.0})});
    double worst = 0;
    for (const auto& [token, score] : scores) {
      vocab.push_back(Json::array({token, score}));
      worst = std::min(worst, score);
    }
    const auto t = Tokenizer::from_json_text(file_of(vocab).dump());
    ASSERT_TRUE(t) << t.status().message();
    const std::string text = word(9);
    std::vector<double> sums;
    all_ways(scores, worst - 10, text, 0, sums);
    double sum = 0;
    std::string joined;
    bool unknown = false;
    for (const int32_t id : encode(*t, text)) {
      const std::string token = t->id_to_token(id).value();
      unknown |= id == 0;
      joined += token;
      if (id != 0) sum += scores.at(token);
    }
    unknown_texts += unknown;
    if (unknown) continue;  // several unknown characters are one token
    EXPECT_EQ(joined, text);
    EXPECT_DOUBLE_EQ(sum, *std::max_element(sums.begin(), sums.end())) << text;
  }
  EXPECT_GT(unknown_texts, 10u);
  EXPECT_LT(unknown_texts, 190u);
}

TEST(Unigram, WhatIsUnknownIsOneTokenOrBytes) {
  Json file = file_of(Json::array({{"<unk>", 0.0}, {"a", -1.0}, {"<0xC3>", -9.0}, {"<0x9F>", -9.0}}));
  EXPECT_EQ(encode(Tokenizer::from_json(file).value(), "axßya"), (Ids{1, 0, 1}));
  file["model"]["byte_fallback"] = true;
  EXPECT_EQ(encode(Tokenizer::from_json(file).value(), "aßa"), (Ids{1, 2, 3, 1}));
  EXPECT_EQ(encode(Tokenizer::from_json(file).value(), "aßxa"), (Ids{1, 0, 1})) << "no token <0x78>";
}

// A map of one entry, "A" to "bc": the root, the unit of "A" at 'A', and its leaf beside it.
std::string small_map() {
  std::vector<uint32_t> units(256, 0);
  units[0] = 0;                              // children at 0 ^ label
  units['A'] = 'A' | 1u << 8 | 0x80u << 10;  // they lie at 'A' ^ 0x80, and one is a leaf
  units['A' ^ 0x80] = 0x80000000u | 2;       // at byte 2
  std::string bytes;
  const auto put = [&](uint32_t word) {
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(word >> (8 * i) & 255);
  };
  put(static_cast<uint32_t>(units.size() * 4));
  for (const uint32_t unit : units) put(unit);
  return bytes + std::string("x\0bc\0", 5);
}

TEST(Unigram, ClustersAreReplacedAsAWholeWhereTheyAreShort) {
  const Json map{{"type", "Precompiled"}, {"precompiled_charsmap", base64_of(small_map())}};
  const auto t =
      Tokenizer::from_json(file_of(Json::array({{"<unk>", 0.0}, {"b", -1.0}, {"c", -1.0}, {"A", -1.0}}), map));
  ASSERT_TRUE(t) << t.status().message();
  EXPECT_EQ(encode(*t, "AbA"), (Ids{1, 2, 1, 1, 2}));
  // With an accent behind it the character is a cluster of three bytes, which begins with the entry.
  EXPECT_EQ(encode(*t, "A\u0301b"), (Ids{1, 2, 1}));
  // With two accents and more it is longer, and goes code point by code point.
  EXPECT_EQ(encode(*t, "A\u0301\u0302\u0303b"), (Ids{1, 2, 0, 1}));
}

TEST(Unigram, BadFilesAreNamed) {
  const auto error = [](const Json& file) {
    const auto a = Tokenizer::from_json(file), b = Tokenizer::from_json_text(file.dump());
    EXPECT_EQ(a.status().message(), b.status().message());
    return a ? std::string() : a.status().message();
  };
  const auto says = [](const std::string& text, const char* part) { return text.find(part) != text.npos; };
  const Json good = Json::array({{"<unk>", 0.0}, {"a", -1.0}});
  EXPECT_EQ(error(file_of(good)), "");
  for (const Json& vocab : {Json(), Json::array(), Json::object()})
    EXPECT_TRUE(says(error(file_of(vocab)), "model: vocab is missing or not an array")) << error(file_of(vocab));
  for (const Json& entry : {Json("a"), Json::array({"a"}), Json::array({"a", "b"}), Json::array({1, 2.0})}) {
    Json vocab = good;
    vocab.push_back(entry);
    EXPECT_TRUE(says(error(file_of(vocab)), "model.vocab: entry 2 must be a token and its score"))
        << error(file_of(vocab));
  }
  EXPECT_TRUE(says(error(file_of(Json::array({{"a", 0.0}, {"a", 0.0}}))), "a token occurs twice"));
  Json file = file_of(good);
  for (const Json& id : {Json(), Json(2), Json(-1), Json("a")}) {
    file["model"]["unk_id"] = id;
    EXPECT_TRUE(says(error(file), "unk_id")) << error(file);
    EXPECT_TRUE(says(error(file), "between 0 and 1")) << error(file);
  }
  const auto of_map = [&](const std::string& coded) {
    return error(file_of(good, {{"type", "Precompiled"}, {"precompiled_charsmap", coded}}));
  };
  EXPECT_TRUE(says(of_map("a!"), "must be base64")) << of_map("a!");
  for (const std::string& bytes : {std::string("abc"), small_map().substr(0, 900), std::string(4, '\0')})
    EXPECT_TRUE(says(of_map(base64_of(bytes)), "precompiled_charsmap: ")) << of_map(base64_of(bytes));
  // Every map of these sizes that can be read ends, whatever its units say.
  std::mt19937 rng(3);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = small_map();
    for (int i = 0; i < 200; ++i) bytes[4 + rng() % 1024] = static_cast<char>(rng());
    const auto t =
        Tokenizer::from_json(file_of(good, {{"type", "Precompiled"}, {"precompiled_charsmap", base64_of(bytes)}}));
    ASSERT_TRUE(t) << t.status().message();
    EXPECT_TRUE(t->encode("aAbc\u0301 A\u00e9zZ").is_ok());
  }
}

Result<Json> golden_of(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  return parse_json(text, path);
}

// Files of the gguf package, against the sentencepiece package (tools/golden/make_unigram_goldens.py).
TEST(UnigramGguf, SpacesAreTreatedAsTheFileSays) {
  for (const std::string way : {"usual", "kept", "no_prefix", "kept_no_prefix"}) {
    const std::string path = golden_folder() + "/unigram/spaces_" + way;
    const auto gguf = read_gguf_metadata(path + ".gguf");
    const auto golden = golden_of(path + ".json");
    ASSERT_TRUE(gguf && golden) << gguf.status().message() << golden.status().message();
    const auto t = Tokenizer::from_gguf(*gguf);
    ASSERT_TRUE(t) << t.status().message();
    ASSERT_GE(golden->size(), 30u);
    for (const Json& g : *golden)
      EXPECT_EQ(encode(*t, g["text"].get<std::string>()), g["ids"].get<Ids>()) << way << ": " << g["text"];
  }
}

// Files of the gguf package, against HF tokenizers (tools/golden/make_gguf_encoders.py).
TEST(UnigramGguf, TextsAndPairsAreThoseOfTheReference) {
  const std::string folder = std::string(REPRISE_SOURCE_DIR) + "/tests/data/gguf/";
  for (const auto& [model, flag] : std::initializer_list<std::pair<std::string, bool>>{
           {"xlm_roberta_mean", true}, {"xlm_roberta_scores", true}, {"xlm_roberta_mean", false}}) {
    auto gguf = read_gguf_metadata(folder + model + ".gguf");
    const auto golden = golden_of(folder + model + ".json");
    ASSERT_TRUE(gguf && golden) << gguf.status().message() << golden.status().message();
    EXPECT_EQ(gguf->remove_extra_whitespaces, true);
    gguf->remove_extra_whitespaces = flag;  // of this vocabulary some converters write another setting there
    const auto t = Tokenizer::from_gguf(*gguf);
    ASSERT_TRUE(t) << t.status().message();
    ASSERT_GE(golden->size(), 6u);
    for (const Json& g : *golden) {
      const auto made = g.contains("text") ? encode_text(*t, g["text"].get<std::string>(), 140, false, false)
                                           : encode_query(*t, false, "", g["query"].get<std::string>(),
                                                          g["document"].get<std::string>(), 140);
      ASSERT_TRUE(made) << made.status().message();
      EXPECT_EQ(made->ids, g["ids"].get<Ids>()) << g;
      EXPECT_EQ(made->second_kind, made->ids.size()) << "all tokens are of one kind";
    }
  }
}

GgufTokenizer small_gguf() {
  GgufTokenizer g;
  g.model = "t5";
  g.tokens = {"<s>", "</s>", "<unk>", "▁", "a", "b", "▁ab", "[x7]", "<mask>", "<0x7A>"};
  g.token_types = {3, 3, 2, 1, 1, 1, 1, 5, 3, 6};
  g.scores = {0, 0, 0, -2, -3, -3, -4, -10000, 0, -9};
  g.bos = 0, g.eos = 1, g.unk = 2, g.mask = 8;
  g.charsmap = small_map();
  return g;
}

TEST(UnigramGguf, TokensThatTextDoesNotBecomeAreNoPieces) {
  const auto t = Tokenizer::from_gguf(small_gguf());
  ASSERT_TRUE(t) << t.status().message();
  EXPECT_EQ(encode(*t, "ab  ba"), (Ids{6, 3, 5, 4}));
  EXPECT_EQ(encode(*t, "a<s>b <mask>a"), (Ids{3, 4, 0, 3, 5, 8, 3, 4})) << "the space goes with the mask";
  EXPECT_EQ(encode(*t, "z[x7]"), (Ids{3, 2})) << "no filler, and no byte for what has none";
  const auto plain = t->encode("a</s>", {.add_special_tokens = true, .parse_special = false});
  ASSERT_TRUE(plain) << plain.status().message();
  EXPECT_EQ(*plain, (Ids{3, 4, 2, 1})) << "the end token behind it, and none of the text";
  EXPECT_EQ(t->decode(encode(*t, "ab ba")).value(), "ab ba");
}

TEST(UnigramGguf, BadMetadataIsNamed) {
  const auto message = [](auto change) {
    GgufTokenizer gguf = small_gguf();
    change(gguf);
    const auto t = Tokenizer::from_gguf(gguf);
    return t ? std::string() : t.status().message();
  };
  const auto says = [](const std::string& text, const char* part) { return text.find(part) != text.npos; };
  EXPECT_EQ(message([](GgufTokenizer&) {}), "");
  EXPECT_EQ(message([](GgufTokenizer& g) { g.unk = -1; }), "") << "a token has the type";
  const std::string none = message([](GgufTokenizer& g) { g.unk = -1, g.token_types[2] = 3; });
  EXPECT_TRUE(says(none, "tokenizer.ggml.unknown_token_id: is missing")) << none;
  const std::string map = message([](GgufTokenizer& g) { g.charsmap.reset(); });
  EXPECT_TRUE(says(map, "tokenizer.ggml.precompiled_charsmap: is missing")) << map;
  const std::string cut = message([](GgufTokenizer& g) { g.charsmap->resize(500); });
  EXPECT_TRUE(says(cut, "tokenizer.ggml.precompiled_charsmap: a trie of 1024 bytes in 500")) << cut;
  const std::string scores = message([](GgufTokenizer& g) { g.scores.pop_back(); });
  EXPECT_TRUE(says(scores, "tokenizer.ggml.scores: has 9 entries for 10 tokens")) << scores;
  const std::string types = message([](GgufTokenizer& g) { g.token_types.assign(10, 3); });
  EXPECT_TRUE(says(types, "text becomes none of 10 tokens")) << types;
  const std::string sep = message([](GgufTokenizer& g) { g.sep = 10; });
  EXPECT_TRUE(says(sep, "tokenizer.ggml.seperator_token_id: 10")) << sep;
  const std::string nan = message([](GgufTokenizer& g) { g.scores[4] = NAN; });
  EXPECT_TRUE(says(nan, "the score is not a finite number")) << nan;
}

}  // namespace
}  // namespace reprise::text::tokenizer_unigram_test

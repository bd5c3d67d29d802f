// Small hand-made tokenizers: what each part of a tokenizer.json does, and what is refused.
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "text/detokenizer.h"

namespace reprise::text::tokenizer_test {
namespace {

using Ids = std::vector<int32_t>;

// A vocabulary of single characters and a few merges.
Json base() {
  return Json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
    "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "unk_token": "<unk>",
      "vocab": {"<unk>": 0, "a": 1, "b": 2, "c": 3, " ": 4, "ab": 5, "abc": 6, "bc": 7, "▁": 8, "1": 9, "2": 10,
                "▁a": 11, "é": 12, "A": 13, "<0xC3>": 14, "<0x9F>": 15},
      "merges": ["b c", "a b", "ab c", "▁ a"]}})");
}

Tokenizer make(const Json& json) {
  const auto from_text = Tokenizer::from_json_text(json.dump());
  EXPECT_TRUE(from_text) << from_text.status().message();
  auto tokenizer = Tokenizer::from_json(json);
  EXPECT_TRUE(tokenizer) << tokenizer.status().message();
  return std::move(tokenizer).value();
}

Ids encode(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = {}) {
  auto ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids) << ids.status().message();
  return std::move(ids).value();
}

std::string error_of(const Json& json) {
  const auto tokenizer = Tokenizer::from_json(json);
  const auto from_text = Tokenizer::from_json_text(json.dump());
  EXPECT_EQ(from_text.status().message(), tokenizer.status().message());
  return tokenizer ? "" : tokenizer.status().message();
}

Json added(int id, const char* content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

TEST(Tokenizer, MergesByRank) {
  const Tokenizer t = make(base());
  EXPECT_EQ(encode(t, "abc"), (Ids{1, 7}));  // "b c" comes before "a b"
  EXPECT_EQ(encode(t, "ab"), (Ids{5}));
  EXPECT_EQ(encode(t, "aab"), (Ids{1, 5}));
  EXPECT_EQ(encode(t, ""), Ids{});
  EXPECT_EQ(t.vocab_size(), 16);
  EXPECT_EQ(t.token_to_id("abc"), 6);
  EXPECT_EQ(t.token_to_id("abcd"), std::nullopt);
  EXPECT_EQ(t.id_to_token(5), "ab");
  EXPECT_EQ(t.id_to_token(16), std::nullopt);
  EXPECT_EQ(t.id_to_token(-1), std::nullopt);
}

TEST(Tokenizer, LongWordsMergeAsShortOnes) {
  const Tokenizer t = make(base());
  std::string text;
  Ids wanted;
  for (int i = 0; i < 200; ++i) {
    text += "abca";
    wanted.insert(wanted.end(), {1, 7, 1});
  }
  EXPECT_EQ(encode(t, text), wanted);
}

TEST(Tokenizer, IgnoreMerges) {
  Json json = base();
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(encode(make(json), "abc"), (Ids{6}));
}

TEST(Tokenizer, UnknownCharacters) {
  Json json = base();
  EXPECT_EQ(encode(make(json), "axxa"), (Ids{1, 0, 0, 1}));
  json["model"]["fuse_unk"] = true;
  EXPECT_EQ(encode(make(json), "axxa"), (Ids{1, 0, 1}));
  json["model"]["byte_fallback"] = true;
  EXPECT_EQ(encode(make(json), "aßx"), (Ids{1, 14, 15, 0}));
  json["model"]["unk_token"] = nullptr;
  EXPECT_EQ(encode(make(json), "axxa"), (Ids{1, 1}));
  json["model"]["unk_token"] = "<missing>";
  const auto ids = make(json).encode("x");
  ASSERT_FALSE(ids);
  EXPECT_NE(ids.status().message().find("<missing>"), std::string::npos);
}

TEST(Tokenizer, InvalidUtf8IsRepaired) {
  Json json = base();
  json["model"]["vocab"]["\uFFFD"] = 16;
  const Tokenizer t = make(json);
  EXPECT_EQ(encode(t, "a\xFFz"), (Ids{1, 16, 0}));
  EXPECT_EQ(encode(t, "a\xF0\x9F\x99"), (Ids{1, 16}));      // one maximal part
  EXPECT_EQ(encode(t, "\xED\xA0\x80"), (Ids{16, 16, 16}));  // a surrogate
  EXPECT_EQ(encode(t, std::string_view("\0", 1)), (Ids{0}));
}

TEST(Tokenizer, SpecialTokensInText) {
  Json json = base();
  json["added_tokens"] = {added(20, "<s>"), added(21, "<s>>")};
  const Tokenizer t = make(json);
  EXPECT_EQ(encode(t, "a<s>>b<s>"), (Ids{1, 21, 2, 20}));  // the longest wins
  EXPECT_EQ(encode(t, "a<s>", {.parse_special = false}), (Ids{1, 0, 0, 0}));
  EXPECT_TRUE(t.is_special(20));
  EXPECT_FALSE(t.is_special(1));
  EXPECT_EQ(t.vocab_size(), 22);
  EXPECT_EQ(t.decode(Ids{1, 20, 2}, false).value(), "a<s>b");
  EXPECT_EQ(t.decode(Ids{1, 20, 2, 999, -5}, true).value(), "ab");
}

TEST(Tokenizer, AddedTokenFlags) {
  Json json = base();
  json["added_tokens"] = Json::array({added(20, "<x>")});
  json["added_tokens"][0]["lstrip"] = true;
  json["added_tokens"][0]["rstrip"] = true;
  EXPECT_EQ(encode(make(json), "a  <x> \nb"), (Ids{1, 20, 2}));

  json["added_tokens"] = Json::array({added(20, "cab")});
  json["added_tokens"][0]["single_word"] = true;
  EXPECT_EQ(encode(make(json), "cab"), (Ids{20}));
  EXPECT_EQ(encode(make(json), "cabc"), (Ids{3, 1, 7}));
  EXPECT_EQ(encode(make(json), "a cab"), (Ids{1, 4, 20}));

  json["added_tokens"] = Json::array({added(20, "AB")});
  json["added_tokens"][0]["normalized"] = true;
  json["normalizer"] = {{"type", "Lowercase"}};
  EXPECT_EQ(encode(make(json), "Ab"), (Ids{20}));
}

TEST(Tokenizer, Normalizers) {
  Json json = base();
  json["normalizer"] = Json::parse(R"({"type": "Sequence", "normalizers": [
      {"type": "Strip", "strip_left": true, "strip_right": true},
      {"type": "Replace", "pattern": {"Regex": "[0-9]+"}, "content": "c"},
      {"type": "Prepend", "prepend": "b"}, {"type": "Replace", "pattern": {"String": "cc"}, "content": "a"}]})");
  EXPECT_EQ(encode(make(json), "  11\t22 "), (Ids{7, 0, 3}));
  for (const char* form : {"NFC", "NFKC"}) {
    json["normalizer"] = {{"type", form}};
    EXPECT_EQ(encode(make(json), "e\u0301"), (Ids{12})) << form;
  }
  json["normalizer"] = {{"type", "NFKC"}};
  EXPECT_EQ(encode(make(json), "\uFF21"), (Ids{13}));  // full-width A
  json["normalizer"] = {{"type", "NFD"}};
  EXPECT_EQ(encode(make(json), "\u00E9"), (Ids{0, 0}));
}

TEST(Tokenizer, SplitBehaviors) {
  const auto words = [](const char* behavior, bool invert) {
    Json json = base();
    json["pre_tokenizer"] = {
        {"type", "Split"}, {"pattern", {{"String", "b"}}}, {"behavior", behavior}, {"invert", invert}};
    return encode(make(json), "abbc");
  };
  EXPECT_EQ(words("Removed", false), (Ids{1, 3}));
  EXPECT_EQ(words("Removed", true), (Ids{2, 2}));
  EXPECT_EQ(words("Isolated", false), (Ids{1, 2, 2, 3}));
  EXPECT_EQ(words("MergedWithPrevious", false), (Ids{5, 2, 3}));
  EXPECT_EQ(words("MergedWithNext", false), (Ids{1, 2, 7}));
  EXPECT_EQ(words("Contiguous", false), (Ids{1, 2, 2, 3}));
}

TEST(Tokenizer, PreTokenizers) {
  Json json = base();
  json["pre_tokenizer"] =
      Json::parse(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true})");
  json["added_tokens"] = Json::array({added(20, "<s>")});
  EXPECT_EQ(encode(make(json), "a a<s>a"), (Ids{11, 11, 20, 1}));
  json["pre_tokenizer"]["prepend_scheme"] = "always";
  EXPECT_EQ(encode(make(json), "a<s>a"), (Ids{11, 20, 11}));
  json["pre_tokenizer"]["prepend_scheme"] = "never";
  EXPECT_EQ(encode(make(json), "a a"), (Ids{1, 11}));

  json["model"]["merges"].push_back("1 2");
  json["model"]["vocab"]["12"] = 16;
  json["pre_tokenizer"] = {{"type", "Digits"}, {"individual_digits", false}};
  EXPECT_EQ(encode(make(json), "a12"), (Ids{1, 16}));
  json["pre_tokenizer"]["individual_digits"] = true;
  EXPECT_EQ(encode(make(json), "a12"), (Ids{1, 9, 10}));
  json["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  EXPECT_EQ(encode(make(json), " ab \n c"), (Ids{5, 3}));
}

TEST(Tokenizer, ByteLevel) {
  Json json = base();
  json["model"]["unk_token"] = nullptr;
  json["model"]["vocab"] = {{"Ġ", 0}, {"a", 1}, {"Ã", 2}, {"©", 3}, {"Ġa", 4}, {"Ċ", 5}, {"'", 6}, {"s", 7}, {"'s", 8}};
  json["model"]["merges"] = {"Ġ a", "' s"};
  json["pre_tokenizer"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  json["decoder"] = {{"type", "ByteLevel"}};
  const Tokenizer t = make(json);
  EXPECT_EQ(encode(t, "a's\n\u00E9"), (Ids{4, 8, 5, 2, 3}));
  EXPECT_EQ(t.decode(Ids{4, 8, 5, 2, 3}).value(), " a's\n\u00E9");
  EXPECT_EQ(t.decode(Ids{2, 1}).value(), "\uFFFDa");

  IncrementalDetokenizer stream(t);
  EXPECT_EQ(stream.push(4).value(), " a");
  EXPECT_EQ(stream.push(2).value(), "");
  EXPECT_EQ(stream.push(3).value(), "\u00E9");
  EXPECT_EQ(stream.push(2).value(), "");
  EXPECT_EQ(stream.finish().value(), "\uFFFD");
  EXPECT_EQ(stream.push(1).value(), "a");
}

TEST(Tokenizer, SentencePieceDecoding) {
  Json json = base();
  json["decoder"] = Json::parse(R"({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})");
  const Tokenizer t = make(json);
  EXPECT_EQ(t.decode(Ids{11, 11}).value(), "a a");
  EXPECT_EQ(t.decode(Ids{8, 11}).value(), " a");
  EXPECT_EQ(t.decode(Ids{1, 14, 15, 1}).value(), "aßa");
  EXPECT_EQ(t.decode(Ids{1, 14, 15, 14, 1}).value(), "a\uFFFD\uFFFD\uFFFDa");  // a run counts as a whole
  IncrementalDetokenizer stream(t);
  EXPECT_EQ(stream.push(11).value(), "a");
  EXPECT_EQ(stream.push(14).value(), "");
  EXPECT_EQ(stream.push(15).value(), "");
  EXPECT_EQ(stream.push(11).value(), "ß a");
  EXPECT_EQ(stream.finish().value(), "");
}

TEST(Tokenizer, TemplatesAndConfig) {
  Json json = base();
  json["added_tokens"] = {added(20, "<s>"), added(21, "</s>")};
  json["post_processor"] = Json::parse(R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [20], "tokens": ["<s>"]}}})");
  const Tokenizer t = make(json);
  EXPECT_EQ(encode(t, "ab"), (Ids{20, 5}));
  EXPECT_EQ(encode(t, "ab", {.add_special_tokens = false}), (Ids{5}));
  EXPECT_EQ(t.bos_id(), 20);
  EXPECT_EQ(t.eos_id(), -1);

  Json config = {{"bos_token", "<s>"},
                 {"eos_token", {{"content", "</s>"}}},
                 {"tokenizer_class", "LlamaTokenizerFast"},
                 {"add_bos_token", false},
                 {"add_eos_token", true}};
  const auto with = Tokenizer::from_json(json, &config);
  ASSERT_TRUE(with) << with.status().message();
  EXPECT_EQ(encode(*with, "ab"), (Ids{5, 21}));
  EXPECT_EQ(with->eos_id(), 21);
  config["eos_token"] = "</t>";
  const auto without = Tokenizer::from_json(json, &config);
  ASSERT_FALSE(without);
  EXPECT_NE(without.status().message().find("tokenizer_config.json.eos_token"), std::string::npos);
}

TEST(Tokenizer, BadFilesAreNamed) {
  struct Case {
    const char* pointer;
    Json value;
    const char* place;
    const char* allowed;
  };
  const std::vector<Case> cases = {
      {"/model/type", "Nope", "tokenizer.json: model.type", "Unigram"},
      {"/model/vocab/a", -1, "model.vocab", "between 0"},
      {"/model/vocab/a", 2, "model.vocab", "share id 2"},
      {"/model/vocab/a", 4000000000u, "model.vocab", "between 0"},
      {"/model/merges/0", "b", "model.merges[0]", "one space"},
      {"/model/merges/1", "b q", "model.merges[1]", "not in the vocabulary"},
      {"/model/dropout", 0.1, "model", "dropout"},
      {"/model/surprise", 1, "model", "ignore_merges"},
      {"/surprise", 1, "tokenizer.json", "pre_tokenizer"},
      {"/normalizer", {{"type", "Nmt"}}, "tokenizer.json: normalizer.type", "NFKD"},
      {"/pre_tokenizer", {{"type", "Nope"}}, "tokenizer.json: pre_tokenizer.type", "Metaspace"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}},
       "pre_tokenizer.pattern.Regex",
       "missing )"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "(?<=a*)b"}}}, {"behavior", "Isolated"}},
       "pre_tokenizer.pattern.Regex",
       "bad pattern"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Isolate"}},
       "pre_tokenizer.behavior",
       "MergedWithNext"},
      {"/pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Digits"}}, {{"type", "Digits"}, {"x", 1}}}}},
       "pre_tokenizer.pretokenizers[1]",
       "individual_digits"},
      {"/decoder", {{"type", "CTC"}}, "decoder.type", "ByteFallback"},
      {"/post_processor", {{"type", "Nope"}}, "post_processor.type", "TemplateProcessing"},
      {"/post_processor", {{"type", "BertProcessing"}}, "post_processor", "sep is missing"},
      {"/model",
       {{"type", "WordPiece"}, {"unk_token", "?"}, {"vocab", {{"a", 0}}}},
       "model",
       "\"?\" is not in the vocabulary"},
      {"/model",
       {{"type", "WordPiece"}, {"max_input_chars_per_word", 0}, {"vocab", {{"[UNK]", 0}}}},
       "max_input_chars_per_word",
       "between 1"},
      {"/added_tokens", Json::array({added(3, "<s>")}), "added_tokens[0]", "share id 3"},
      {"/added_tokens", Json::array({added(3, "a")}), "added_tokens[0]", "also known as 1"},
  };
  for (const Case& c : cases) {
    Json json = base();
    json[Json::json_pointer(c.pointer)] = c.value;
    const std::string message = error_of(json);
    EXPECT_NE(message.find(c.place), std::string::npos) << c.pointer << " gave: " << message;
    EXPECT_NE(message.find(c.allowed), std::string::npos) << c.pointer << " gave: " << message;
  }
  EXPECT_NE(error_of(Json::array()), "");
  EXPECT_NE(error_of(Json::object()), "");
}

TEST(Tokenizer, TextThatIsNotATokenizer) {
  const auto message = [](const std::string& text) {
    const auto tokenizer = Tokenizer::from_json_text(text);
    return tokenizer ? std::string() : tokenizer.status().message();
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(message(""), "not valid JSON"));
  EXPECT_TRUE(has(message(R"({"model": {"vocab": {"a": 0}, "merges": [}})"), "not valid JSON"));
  EXPECT_TRUE(has(message(std::string(100000, '[')), "nested deeper than 128"));
  EXPECT_TRUE(has(message(R"({"model": {"vocab": {"a": "0"}, "merges": []}})"), "model.vocab"));
  EXPECT_TRUE(has(message(R"({"model": {"vocab": {"a": {}}, "merges": []}})"), "model.vocab"));
  EXPECT_TRUE(has(message(R"({"model": {"vocab": {"a": 0}, "merges": [["a"]]}})"), "model.merges[0]"));
  EXPECT_TRUE(has(message(R"({"model": {"vocab": {"a": 0}, "merges": [["a", "a", "a"]]}})"), "model.merges[0]"));
  EXPECT_TRUE(has(message(R"({"model": {"vocab": {"a": 0}, "merges": [7]}})"), "model.merges[0]"));
  EXPECT_TRUE(has(message(R"({"model": {"vocab": 1, "merges": []}})"), "vocab"));
  EXPECT_TRUE(has(message(R"({"model": {"type": "BPE", "vocab": {"a": 0}}})"), "merges"));
  EXPECT_TRUE(has(message(R"({"model": {"vocab": {"a": 0, "a": 1}, "merges": []}})"), "occurs twice"));
  EXPECT_EQ(message(R"({"model": {"merges": [], "vocab": {"a": 0}}})"), "");
}

TEST(Tokenizer, HostileFilesEnd) {
  Json json = base();
  Json doubled = Json::array();
  for (int i = 0; i < 60; ++i)
    doubled.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", doubled}};
  EXPECT_FALSE(make(json).encode("a"));
  json = base();
  json["decoder"] = {{"type", "Sequence"}, {"decoders", doubled}};
  EXPECT_FALSE(make(json).decode(Ids{1}));
  json = base();
  json["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(a+)+$"}}}, {"behavior", "Isolated"}};
  const auto ids = make(json).encode(std::string(64, 'a') + "b");
  ASSERT_FALSE(ids);
  EXPECT_NE(ids.status().message().find("gave up"), std::string::npos) << ids.status().message();
}

GgufTokenizer small_gguf() {
  GgufTokenizer gguf;
  gguf.model = "gpt2";
  gguf.pre = "gpt-2";
  gguf.tokens = {"<s>", "a", "b", "ab", "Ġ", "<u>"};
  gguf.merges = {"a b"};
  gguf.token_types = {3, 1, 1, 1, 1, 4};
  return gguf;
}

TEST(TokenizerGguf, ByteLevel) {
  GgufTokenizer gguf = small_gguf();
  gguf.bos = 0;
  gguf.add_bos = true;
  const auto t = Tokenizer::from_gguf(gguf);
  ASSERT_TRUE(t) << t.status().message();
  EXPECT_EQ(encode(*t, "ab b<u>"), (Ids{0, 3, 4, 2, 5}));
  EXPECT_TRUE(t->is_special(0));
  EXPECT_FALSE(t->is_special(5));
  EXPECT_EQ(t->bos_id(), 0);
}

TEST(TokenizerGguf, Scores) {
  GgufTokenizer gguf;
  gguf.model = "llama";
  gguf.tokens = {"<unk>", "<s>", "▁", "a", "b", "ab", "▁a", "bb"};
  gguf.scores = {0, 0, -1, -2, -3, -5, -4, -5};
  gguf.token_types = {2, 3, 1, 1, 1, 1, 1, 1};
  gguf.unk = 0;
  gguf.bos = 1;
  const auto t = Tokenizer::from_gguf(gguf);
  ASSERT_TRUE(t) << t.status().message();
  EXPECT_EQ(encode(*t, "ab"), (Ids{1, 6, 4}));  // "▁a" scores more than "ab"
  EXPECT_EQ(encode(*t, "abb"), (Ids{1, 6, 7}));
  EXPECT_EQ(encode(*t, "z"), (Ids{1, 2, 0}));
  EXPECT_EQ(t->decode(encode(*t, "a ab"), true).value(), "a ab");
}

TEST(TokenizerGguf, BadMetadataIsNamed) {
  const auto message = [](auto change) {
    GgufTokenizer gguf = small_gguf();
    change(gguf);
    const auto t = Tokenizer::from_gguf(gguf);
    return t ? std::string() : t.status().message();
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_EQ(message([](GgufTokenizer&) {}), "");
  EXPECT_TRUE(has(message([](GgufTokenizer& g) { g.model = "rwkv"; }), "supported are gpt2, llama, t5, bert"));
  EXPECT_TRUE(has(message([](GgufTokenizer& g) { g.pre = "kimi"; }), "deepseek-v3"));
  EXPECT_TRUE(has(message([](GgufTokenizer& g) { g.token_types.pop_back(); }), "token_type"));
  EXPECT_TRUE(has(message([](GgufTokenizer& g) { g.token_types[1] = 9; }), "token_type[1]"));
  EXPECT_TRUE(has(message([](GgufTokenizer& g) { g.bos = 6; }), "bos_token_id"));
  EXPECT_TRUE(has(message([](GgufTokenizer& g) { g.add_bos = true; }), "add_bos_token"));
  EXPECT_TRUE(has(message([](GgufTokenizer& g) { g.merges[0] = "ab"; }), "merges[0]"));
  EXPECT_TRUE(has(message([](GgufTokenizer& g) { g.tokens[1] = "\xFF"; }), "tokens[1]"));
  EXPECT_TRUE(has(message([](GgufTokenizer& g) { g.tokens.clear(); }), "empty"));
  EXPECT_TRUE(has(message([](GgufTokenizer& g) { g.model = "llama"; }), "scores"));
}

TEST(TokenizerGguf, EveryKnownNameBuilds) {
  for (const char* pre :
       {"", "default", "gpt-2", "smollm", "llama-bpe", "llama3", "qwen2", "deepseek-llm", "deepseek-coder",
        "deepseek-v3", "tekken", "mistral", "gpt-4o", "chatglm-bpe", "starcoder", "kimi-k2"}) {
    GgufTokenizer gguf = small_gguf();
    gguf.pre = pre;
    const auto t = Tokenizer::from_gguf(gguf);
    ASSERT_TRUE(t) << pre << ": " << t.status().message();
    EXPECT_EQ(encode(*t, "ab<s>b", {.add_special_tokens = false}), (Ids{3, 0, 2})) << pre;
  }
}

TEST(TokenizerGguf, AsJsonItIsTheSame) {
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "qwen2", "deepseek-v3", "tekken"}) {
    GgufTokenizer gguf = small_gguf();
    gguf.pre = pre;
    gguf.bos = 0;
    gguf.eos = 5;
    gguf.add_bos = gguf.add_eos = true;
    gguf.tokens.push_back("a");  // a filler
    gguf.token_types.push_back(1);
    const auto json = tokenizer_json_from_gguf(gguf);
    ASSERT_TRUE(json) << json.status().message();
    const auto a = Tokenizer::from_gguf(gguf), b = Tokenizer::from_json_text(json->dump());
    ASSERT_TRUE(b) << pre << ": " << b.status().message();
    for (const char* text : {"", "ab", "a b<s>ba<u>a", "bab  a"}) EXPECT_EQ(encode(*a, text), encode(*b, text)) << pre;
    EXPECT_TRUE(b->is_special(0));
    EXPECT_FALSE(b->is_special(5));
  }
  GgufTokenizer scored = small_gguf();
  scored.model = "llama";
  EXPECT_EQ(tokenizer_json_from_gguf(scored).status().code(), Code::Unsupported);
}

TEST(Tokenizer, AnyThreadMayUseIt) {
  const Tokenizer t = make(base());
  const Ids wanted = encode(t, "abcab aab");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&t, &wanted] {
      for (int k = 0; k < 200; ++k) EXPECT_EQ(t.encode("abcab aab").value(), wanted);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace reprise::text::tokenizer_test

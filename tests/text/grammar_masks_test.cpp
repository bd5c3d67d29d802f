// Masks over a vocabulary against the meaning of a mask, byte by byte; end tokens; tables that run full.
#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <thread>

#include "text/grammar/token_masks.h"
#include "text/tokenizer_data.h"
#include "text/utf8.h"

namespace reprise::text::grammar::grammar_masks_test {
namespace {

constexpr int32_t kEnd = 0;
constexpr int32_t kOtherEnd = 1;

// End tokens, one that adds nothing, every byte, words that repeat bytes and each other's beginnings.
TokenTable::Shared small_table() {
  std::vector<std::string> tokens{"<end>", "<other end>", ""};
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* word : {"a",    "ab", "abc",      "abcabc",   "b",    "yes",  "ye",   "no",      " no", "12",
                           "123",  "é",  "éa",       "\xA9",     "\xC3", "{\"",  "\": ", "\", \"",  "\"}", "}}",
                           "[[",   "]]", "tr",       "true",     "rue",  "null", "\\u",  "\\\"",    "D8",  "\\u00",
                           "\n  ", "😀",  "\xF0\x9F", "\x98\x80", "0.",   "e+",   "-1",   "\"a\": ", "},"})
    tokens.emplace_back(word);
  auto table = TokenTable::from_bytes(std::move(tokens), std::vector<int32_t>{kEnd, kOtherEnd});
  EXPECT_TRUE(table) << table.status().message();
  return std::move(table).value();
}

Grammar::Shared regex(std::string_view pattern, const GrammarLimits& limits = {}) {
  auto grammar = Grammar::from_regex(pattern, limits);
  EXPECT_TRUE(grammar) << grammar.status().message();
  return std::move(grammar).value();
}

GrammarMatcher start(const std::shared_ptr<TokenMasks>& masks) {
  auto matcher = GrammarMatcher::create(masks);
  EXPECT_TRUE(matcher) << matcher.status().message();
  return std::move(matcher).value();
}

std::vector<int32_t> ids_of(const TokenMask& mask) {
  std::vector<int32_t> out;
  for (size_t i = 0; i < mask.size() * 64; ++i) {
    if ((mask[i / 64] >> (i % 64) & 1) != 0) out.push_back(static_cast<int32_t>(i));
  }
  return out;
}

std::vector<int32_t> allowed_ids(GrammarMatcher* matcher) {
  const auto mask = matcher->allowed();
  EXPECT_TRUE(mask) << mask.status().message();
  return mask ? ids_of(**mask) : std::vector<int32_t>();
}

// Some random ways through a grammar; at each step the mask is what accepting every token by itself says.
void check_masks(const Grammar::Shared& grammar, const TokenTable::Shared& table, uint32_t seed, int walks, int steps) {
  const auto masks = std::make_shared<TokenMasks>(grammar, table);
  std::mt19937 random(seed);
  for (int walk = 0; walk < walks; ++walk) {
    GrammarMatcher matcher = start(masks);
    std::string text;
    for (int step = 0; step < steps; ++step) {
      const std::vector<int32_t> allowed = allowed_ids(&matcher);
      std::vector<int32_t> wanted;
      for (size_t id = 0; id < table->size(); ++id) {
        GrammarMatcher copy = matcher;
        if (copy.accept(static_cast<int32_t>(id)).is_ok()) wanted.push_back(static_cast<int32_t>(id));
      }
      ASSERT_EQ(allowed, wanted) << "after " << text;
      const auto whole = grammar->matches(text);
      ASSERT_TRUE(whole) << whole.status().message();
      ASSERT_EQ(matcher.can_end(), *whole) << text;
      const int32_t next = allowed[random() % allowed.size()];
      ASSERT_TRUE(matcher.accept(next).is_ok());
      if (matcher.ended()) break;
      text += table->bytes(next);
    }
  }
}

TEST(GrammarMasks, AreWhatEveryTokenSaysByItself) {
  const auto table = small_table();
  uint32_t seed = 1;
  for (const char* pattern : {"a*", "(yes|no|maybe) ?[0-9]{2,5}", "(ab|abc|é)*", "[^a]{1,6}", ".*",
                              "\\{\"[a-z]+\": (true|null)\\}", "(a|b)*a(a|b){3}", "😀{1,2}|\\\\u[0-9A-D]{4}"})
    check_masks(regex(pattern), table, seed++, 6, 10);
}

TEST(GrammarMasks, OfSchemas) {
  const auto table = small_table();
  uint32_t seed = 100;
  for (const char* schema :
       {R"({"type": "object"})",
        R"({"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"a": {"type": "integer", "minimum": -12,
            "maximum": 1234}, "b": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}, "required": ["b"]}}})",
        R"({"type": "array", "items": {"enum": ["yes", "ye", "é", 12, null]}, "minItems": 1})",
        R"({"type": "object", "properties": {"a": {"type": "number", "exclusiveMinimum": 0}, "ab": {"pattern": "é"}},
            "additionalProperties": {"type": "string", "maxLength": 3}})"}) {
    const auto grammar = Grammar::from_json_schema(OrderedJson::parse(schema));
    ASSERT_TRUE(grammar) << grammar.status().message();
    check_masks(*grammar, table, seed++, 8, 14);
  }
}

// Where no text can come of a token any more, it is not allowed.
TEST(GrammarMasks, KeepTextsThatCanBeCompletedAndNoOthers) {
  const auto grammar = regex("(ab|cd){2}|e(f|g)[^\\s\\S]|h");
  const auto masks = std::make_shared<TokenMasks>(grammar, small_table());
  GrammarMatcher matcher = start(masks);
  const auto first = matcher.allowed();
  ASSERT_TRUE(first);
  const auto id_of = [](char c) { return 3 + static_cast<int32_t>(static_cast<uint8_t>(c)); };
  for (const char c : {'a', 'c', 'h'}) EXPECT_TRUE(mask_has(**first, id_of(c))) << c;
  EXPECT_FALSE(mask_has(**first, id_of('e')));  // leads nowhere
  EXPECT_FALSE(mask_has(**first, kEnd));
}

TEST(GrammarMasks, EndTokensComeWhereTheTextMayEnd) {
  const auto masks = std::make_shared<TokenMasks>(regex("ab?"), small_table());
  GrammarMatcher matcher = start(masks);
  EXPECT_FALSE(matcher.can_end());
  EXPECT_EQ(matcher.accept(kEnd).message(), "the text may not end here (token 0)");
  EXPECT_EQ(matcher.accept(2).message(), "token 2 adds no text and is never allowed");
  EXPECT_EQ(matcher.accept(-1).code(), Code::Invalid);
  EXPECT_EQ(matcher.accept(100'000).code(), Code::Invalid);
  ASSERT_TRUE(matcher.accept(3 + 'a').is_ok());
  EXPECT_TRUE(matcher.can_end());
  EXPECT_EQ(matcher.accept(3 + 'c').message(), "token 102 is not allowed here");
  ASSERT_TRUE(matcher.accept(3 + 'b').is_ok());
  EXPECT_EQ(allowed_ids(&matcher), (std::vector<int32_t>{kEnd, kOtherEnd}));
  ASSERT_TRUE(matcher.accept(kOtherEnd).is_ok());
  EXPECT_TRUE(matcher.ended());
  EXPECT_EQ(matcher.accept(kEnd).code(), Code::Invalid);
}

TEST(GrammarMasks, AVocabularyThatCannotGoOnIsAnError) {
  const auto table = TokenTable::from_bytes({"<end>", "a", "é"}, std::vector<int32_t>{0});
  ASSERT_TRUE(table);
  GrammarMatcher matcher = start(std::make_shared<TokenMasks>(regex("ab"), *table));
  ASSERT_TRUE(matcher.accept(1).is_ok());
  EXPECT_EQ(matcher.allowed().status().code(), Code::Unsupported);
  EXPECT_FALSE(TokenTable::from_bytes({"a"}, std::vector<int32_t>{1}));
}

// A tiny table of states is thrown away again and again under sequences that are on their way.
TEST(GrammarMasks, FullTablesBeginAnew) {
  GrammarLimits limits;
  limits.max_states = 300;
  limits.max_mask_bytes = 100;
  const auto table = small_table();
  const auto grammar = regex("((a|b)*a(a|b){5}c)*", limits);
  const auto masks = std::make_shared<TokenMasks>(grammar, table);
  const auto large = std::make_shared<TokenMasks>(regex("((a|b)*a(a|b){5}c)*"), table);
  std::vector<GrammarMatcher> small, wanted;
  for (int i = 0; i < 4; ++i) {
    small.push_back(start(masks));
    wanted.push_back(start(large));
  }
  std::mt19937 random(3);
  for (int step = 0; step < 400; ++step) {
    const size_t i = random() % small.size();
    std::vector<int32_t> ids = allowed_ids(&wanted[i]);
    ASSERT_EQ(allowed_ids(&small[i]), ids);
    ids.erase(std::remove_if(ids.begin(), ids.end(), [](int32_t id) { return id <= kOtherEnd; }), ids.end());
    const int32_t next = ids[random() % ids.size()];
    ASSERT_TRUE(small[i].accept(next).is_ok());
    ASSERT_TRUE(wanted[i].accept(next).is_ok());
    ASSERT_EQ(small[i].can_end(), wanted[i].can_end());
  }
  limits.max_states = 3;
  GrammarMatcher hopeless = start(std::make_shared<TokenMasks>(regex("((a|b)*a(a|b){5}c)*", limits), table));
  EXPECT_EQ(hopeless.allowed().status().code(), Code::Unsupported);
}

TEST(GrammarMasks, ThreadsShareThem) {
  const auto masks = std::make_shared<TokenMasks>(regex("((a|b)*a(a|b){5}c)*"), small_table());
  std::vector<std::vector<std::vector<int32_t>>> seen(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < seen.size(); ++t) {
    threads.emplace_back([&masks, &out = seen[t]] {
      GrammarMatcher matcher = start(masks);
      for (const char c : std::string_view("abbaababcaababbc")) {
        out.push_back(allowed_ids(&matcher));
        if (!matcher.accept(3 + c).is_ok()) return;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_GT(seen[0].size(), 8u);
  for (const auto& other : seen) EXPECT_EQ(other, seen[0]);
}

// The bytes of all tokens of a text, side by side, are the text.
class GrammarTokens : public testing::TestWithParam<const char*> {};

TEST_P(GrammarTokens, BytesMakeTheText) {
  const auto tokenizer = tokenizer_or_skip(GetParam());
  if (!tokenizer) return;
  const auto table = TokenTable::from_tokenizer(*tokenizer, {});
  ASSERT_TRUE(table) << table.status().message();
  const auto strings = read_golden_strings();
  ASSERT_TRUE(strings) << strings.status().message();
  const bool spm = std::string_view(GetParam()).starts_with("spm_");
  size_t checked = 0;
  for (size_t i = 0; i < strings->size(); i += 7) {
    const std::string& text = (*strings)[i];
    const auto ids = tokenizer->encode(text, {.add_special_tokens = false});
    ASSERT_TRUE(ids) << ids.status().message();
    std::string bytes;
    bool special = false;
    for (const int32_t id : *ids) {
      bytes += (*table)->bytes(id);
      special = special || tokenizer->is_special(id);
    }
    if (special) continue;
    const auto decoded = tokenizer->decode(*ids);
    ASSERT_TRUE(decoded);
    if (spm && bytes.starts_with(" ") && bytes != *decoded) bytes.erase(0, 1);  // the first space of all falls away
    // A vocabulary may lack single bytes; what is left of a character then is repaired by decoding.
    std::string repaired;
    append_repaired_utf8(bytes, true, &repaired);
    EXPECT_EQ(repaired, *decoded) << i;
    ++checked;
  }
  EXPECT_GT(checked, 1000u);
}

INSTANTIATE_TEST_SUITE_P(All, GrammarTokens,
                         testing::Values("smollm2", "qwen3", "deepseek_v3", "spm_llama", "spm_mistral", "spm_gguf"));

TEST(GrammarMasks, OfRealVocabularies) {
  for (const char* name : {"smollm2", "qwen3"}) {
    const auto tokenizer = load_tokenizer(name);
    if (!tokenizer) continue;  // BytesMakeTheText says so
    const auto table =
        TokenTable::from_tokenizer(*tokenizer, std::vector<int32_t>{*tokenizer->token_to_id("<|im_end|>")});
    ASSERT_TRUE(table) << table.status().message();
    check_masks(regex("\\{\"name\": \"[A-Z][^\"\\\\\\n]{2,20}\", \"age\": [1-9][0-9]{0,2}\\}"), *table, 9, 1, 12);
  }
}

}  // namespace
}  // namespace reprise::text::grammar::grammar_masks_test

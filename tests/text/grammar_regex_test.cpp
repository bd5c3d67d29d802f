// Regular expressions as grammars: against Python's re (tests/data/grammar), and what is refused.
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "text/grammar/grammar.h"

namespace reprise::text::grammar::grammar_regex_test {
namespace {

bool matches(const std::string& pattern, std::string_view text) {
  const auto grammar = Grammar::from_regex(pattern);
  EXPECT_TRUE(grammar) << pattern << ": " << grammar.status().message();
  if (!grammar) return false;
  const auto answer = (*grammar)->matches(text);
  EXPECT_TRUE(answer) << answer.status().message();
  return answer && *answer;
}

std::string error_of(std::string_view pattern, const GrammarLimits& limits = {}) {
  const auto grammar = Grammar::from_regex(pattern, limits);
  return grammar ? "" : grammar.status().message();
}

TEST(GrammarRegex, AgreesWithPython) {
  const auto text = read_file(std::string(REPRISE_SOURCE_DIR) + "/tests/data/grammar/regex.json");
  ASSERT_TRUE(text) << text.status().message();
  const auto cases = parse_json(*text, "regex.json");
  ASSERT_TRUE(cases) << cases.status().message();
  ASSERT_GT(cases->size(), 200u);
  for (const Json& c : *cases) {
    const auto pattern = c["pattern"].get<std::string>();
    const auto grammar = Grammar::from_regex(pattern);
    ASSERT_TRUE(grammar) << pattern << ": " << grammar.status().message();
    for (const char* answer : {"yes", "no"}) {
      for (const Json& t : c[answer]) {
        const auto found = (*grammar)->matches(t.get<std::string>());
        ASSERT_TRUE(found) << found.status().message();
        EXPECT_EQ(*found, answer == std::string_view("yes")) << pattern << " and " << t;
      }
    }
  }
}

TEST(GrammarRegex, BytesAreWholeCharacters) {
  EXPECT_TRUE(matches(".*", "\xF0\x9F\x98\x80"));
  EXPECT_FALSE(matches(".*", "\xF0\x9F\x98"));
  EXPECT_FALSE(matches(".*", "\xC0\x80"));          // too long
  EXPECT_FALSE(matches(".*", "\xED\xA0\x80"));      // a surrogate
  EXPECT_FALSE(matches(".*", "\xF4\x90\x80\x80"));  // beyond the last
  EXPECT_TRUE(matches("[^a]", "\xF4\x8F\xBF\xBF"));
  EXPECT_TRUE(matches("\\uD83D\\uDE00", "😀"));
  EXPECT_FALSE(matches("[^\\d]", "\xFF"));
}

TEST(GrammarRegex, WhatCannotBeSaidNamesItsPosition) {
  EXPECT_EQ(error_of("ab(?=c)"), "regex: position 2: look-around cannot be used here");
  EXPECT_EQ(error_of("(?<!c)"), "regex: position 0: look-around cannot be used here");
  EXPECT_EQ(error_of("(a)\\1"), "regex: position 3: back-references cannot be used here");
  EXPECT_EQ(error_of("a\\b"), "regex: position 1: \\b cannot be used here");
  EXPECT_EQ(error_of("a*+"), "regex: position 2: possessive quantifiers cannot be used here");
  EXPECT_EQ(error_of("a**"), "regex: position 2: a quantifier behind a quantifier; put the first into a group");
  EXPECT_EQ(error_of("(a"), "regex: position 0: a ( without its )");
  EXPECT_EQ(error_of("a)"), "regex: position 1: a ) without its (");
  EXPECT_EQ(error_of("[a"), "regex: position 0: a [ without its ]");
  EXPECT_EQ(error_of("[]"), "regex: position 0: a [ without its ]");
  EXPECT_EQ(error_of("*a"), "regex: position 0: nothing to repeat");
  EXPECT_EQ(error_of("a{3,2}"), "regex: position 1: the smaller count of {m,n} comes first");
  EXPECT_EQ(error_of("a{100001}"), "regex: position 1: a count is too large; at most 100000");
  EXPECT_EQ(error_of("a^b"),
            "regex: position 1: ^ is only understood at the start of the pattern or of an outermost alternative");
  EXPECT_EQ(error_of("a$b"), "regex: position 2: nothing may follow $ but |");
  EXPECT_EQ(error_of("(?i)a"),
            "regex: position 0: of the groups that begin with (? only (?:...) and named ones can be used here");
  EXPECT_EQ(error_of("[b-a]"), "regex: position 4: a range goes from the smaller character up");
  EXPECT_EQ(error_of("\\ud800"), "regex: position 0: not a Unicode character");
  EXPECT_EQ(error_of("\\xg0"), "regex: position 2: 2 hexadecimal digits must follow");
  EXPECT_EQ(error_of("a\\"), "regex: position 2: the pattern ends in a backslash");
  EXPECT_EQ(error_of("\xFF"), "regex: the pattern is not UTF-8");
  EXPECT_EQ(error_of("a[^\\s\\S]"), "regex: no text can match it");
}

TEST(GrammarRegex, HostilePatternsMeetLimits) {
  EXPECT_EQ(error_of("(a{1000}){1000}"),
            "regex: needs more than 200000 nodes, repetitions written out (GrammarLimits::max_nodes)");
  EXPECT_TRUE(matches("((((((|){1000}){1000}){1000}){1000}){1000}){1000}|(b{0}){1000}", ""));
  EXPECT_NE(error_of("(((((b{0}|c){1000}){1000}){1000}){1000}){1000}"), "");
  EXPECT_NE(error_of(std::string(1000, '(') + std::string(1000, ')')), "");
  EXPECT_EQ(error_of(std::string(16385, 'a')),
            "regex: the pattern has 16385 bytes; at most 16384 (GrammarLimits::max_pattern_bytes)");

  // Exponentially many states, and very many places in each: matching gives up within its limits.
  const std::string text = [] {
    std::string out;
    for (uint32_t i = 0, x = 1; i < 100'000; ++i, x = x * 1664525 + 1013904223) out += (x >> 16 & 1) != 0 ? 'a' : 'b';
    return out;
  }();
  const auto many_states = Grammar::from_regex("(a|b)*a(a|b){20}");
  ASSERT_TRUE(many_states);
  EXPECT_EQ((*many_states)->matches(text).status().code(), Code::Unsupported);
  const auto many_places = Grammar::from_regex("((a|b)?){20000}");
  ASSERT_TRUE(many_places);
  EXPECT_EQ((*many_places)->matches(text).status().code(), Code::Unsupported);
}

TEST(GrammarRegex, Choices) {
  const std::vector<std::string> choices{"yes", "no", "yes, but", "né"};
  const auto grammar = Grammar::from_choices(choices);
  ASSERT_TRUE(grammar);
  for (const auto& choice : choices) EXPECT_TRUE(*(*grammar)->matches(choice)) << choice;
  for (const char* other : {"", "ye", "yes,", "yesno", "n", "n\xC3"})
    EXPECT_FALSE(*(*grammar)->matches(other)) << other;
  EXPECT_FALSE(Grammar::from_choices({}));
  EXPECT_FALSE(Grammar::from_choices(std::vector<std::string>{"\xFF"}));
  EXPECT_TRUE(*(*Grammar::from_choices(std::vector<std::string>{"", "a", "a"}))->matches(""));
}

}  // namespace
}  // namespace reprise::text::grammar::grammar_regex_test

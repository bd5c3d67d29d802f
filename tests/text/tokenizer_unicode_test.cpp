// Normal forms, character classes and the translation of patterns.
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer_data.h"
#include "text/unicode.h"
#include "text/unicode_regex.h"

namespace reprise::text::tokenizer_unicode_test {
namespace {

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  auto regex = Regex::compile(pattern);
  EXPECT_TRUE(regex) << regex.status().message();
  std::vector<std::string> out;
  if (!regex) return out;
  RegexMatcher matcher(*regex);
  matcher.start(text);
  size_t begin = 0;
  size_t end = 0;
  while (matcher.next(&begin, &end).value()) out.emplace_back(text.substr(begin, end - begin));
  return out;
}

using Strings = std::vector<std::string>;

TEST(Unicode, NormalForms) {
  EXPECT_EQ(normalize("e\u0323\u0301", NormalForm::Nfc), "\u1EB9\u0301");
  EXPECT_EQ(normalize("e\u0301\u0323", NormalForm::Nfc), "\u1EB9\u0301");
  EXPECT_EQ(normalize("\u1EB9\u0301", NormalForm::Nfd), "e\u0323\u0301");
  EXPECT_EQ(normalize("\u1112\u1161\u11AB", NormalForm::Nfc), "\uD55C");
  EXPECT_EQ(normalize("\uD558\u11A7", NormalForm::Nfc), "\uD558\u11A7");
  EXPECT_EQ(normalize("\uFB01\u00BD", NormalForm::Nfkc), "fi1\u20442");
  EXPECT_EQ(normalize("\u212B", NormalForm::Nfc), "\u00C5");
  EXPECT_EQ(normalize("\U00011938", NormalForm::Nfd), "\U00011938");  // newer than Unicode 9
  EXPECT_EQ(to_lowercase("\u0130AB\u00C9"), "i\u0307ab\u00E9");
}

// The classes as they were measured in HF tokenizers, for every code point.
TEST(Unicode, ClassesAsMeasured) {
  const auto text = read_file(golden_folder() + "/unicode_classes.json");
  ASSERT_TRUE(text) << text.status().message();
  const auto classes = parse_json(*text, "unicode_classes.json");
  ASSERT_TRUE(classes) << classes.status().message();
  std::string every;
  std::vector<char32_t> points;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    points.push_back(c);
    append_utf8(c, &every);
  }
  const auto wanted = [&](const char* name) {
    std::vector<bool> is(0x110000);
    for (const Json& range : (*classes)[name]) {
      for (char32_t c = range[0].get<uint32_t>(); c <= range[1].get<uint32_t>(); ++c) is[c] = true;
    }
    return is;
  };
  struct Case {
    const char* name;
    const char* pattern;
  };
  for (const Case& c : {Case{"L", R"(\p{L})"}, Case{"M", R"([\p{M}])"}, Case{"N", R"(\p{N})"}, Case{"P", R"(\p{P})"},
                        Case{"S", R"([^\P{S}])"}, Case{"whitespace", R"(\s)"}}) {
    std::vector<bool> is(0x110000);
    for (const std::string& match : matches(c.pattern, every)) is[code_point_at(match, 0).value] = true;
    EXPECT_TRUE(is == wanted(c.name)) << c.name;
  }
  const std::vector<bool> digits = wanted("digits_pre_tokenizer");
  const std::vector<bool> spaces = wanted("whitespace");
  for (char32_t c : points) {
    ASSERT_EQ(is_numeric(c), digits[c]) << uint32_t{c};
    ASSERT_EQ(is_whitespace(c), spaces[c]) << uint32_t{c};
  }
}

TEST(Unicode, PatternsAsOnigurumaReadsThem) {
  EXPECT_EQ(matches(R"(\d{1,2}+)", "12345"), (Strings{"12345"}));  // repeated, not possessive
  EXPECT_EQ(matches(R"(a{,2}b)", "aab"), (Strings{"aab"}));
  EXPECT_EQ(matches(R"([a-z&&[^b]]+)", "abc"), (Strings{"a", "c"}));
  EXPECT_EQ(matches(R"([a[^\s]]+)", "ab c"), (Strings{"ab", "c"}));
  EXPECT_EQ(matches(R"(\h+)", "fFg9"), (Strings{"fF", "9"}));
  EXPECT_EQ(matches(R"((?m:.)+)", "a\nb"), (Strings{"a\nb"}));
  EXPECT_EQ(matches(R"(.+)", "a\nb"), (Strings{"a", "b"}));
  EXPECT_EQ(matches(R"(\s+$)", "a  \nb "), (Strings{"  ", " "}));
  EXPECT_EQ(matches(R"([^\S\n]+)", " \n\t"), (Strings{" ", "\t"}));
  EXPECT_EQ(matches(R"((?i:'s|'t))", "'S'T"), (Strings{"'S", "'T"}));
  EXPECT_EQ(matches(R"(\bab\b)", "ab abc _ab"), (Strings{"ab"}));
  EXPECT_EQ(matches(R"(\u0061\x62\x{63})", "abc"), (Strings{"abc"}));
  EXPECT_EQ(matches(R"(x*)", "axb"), (Strings{"", "x", ""}));
  EXPECT_EQ(matches(R"([[:alpha:]\]]+)", "a]1"), (Strings{"a]"}));
}

TEST(Unicode, PatternsThatAreRefused) {
  for (const char* pattern :
       {"(",     ")",          "[a",       "[]",       "(*FAIL)",         "(?R)",          "(?1)",  "(?P<n>a)", R"(\1)",
        R"(\K)", R"(\C)",      R"(\Q.\E)", R"(\k<a>)", R"(\p{Nonsense})", R"(\x{110000})", "(?C1)", "[a&&]",    "\xFF",
        R"(\)",  "[[:nope:]]", "[a-[b]]",  "(?~a)"}) {
    EXPECT_FALSE(Regex::compile(pattern)) << pattern;
  }
  EXPECT_FALSE(Regex::compile(std::string(100000, 'a')));
}

}  // namespace
}  // namespace reprise::text::tokenizer_unicode_test

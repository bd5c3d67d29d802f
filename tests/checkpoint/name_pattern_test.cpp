// Expressions of quantisation configurations against what Python's re says of them (tests/data/config/patterns.json).
#include "checkpoint/name_pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/helpers.h"

namespace reprise::checkpoint::name_pattern_test {
namespace {

Json read_cases(const std::string& name) {
  auto text = read_file(data_dir() + "/config/" + name);
  EXPECT_TRUE(text.is_ok()) << text.status().message();
  auto json = parse_json(*text, name);
  EXPECT_TRUE(json.is_ok()) << json.status().message();
  return *json;
}

// Python takes these; they look around, refer to groups, never give back, or are written with spaces.
const std::set<std::string>& refused() {
  static const std::set<std::string> patterns{"(l)\\1",  "(?P=x)",         "(?>a)",    "(?=lm)lm",      "(?!lm).*",
                                              "(?<=a)b", "(?<!a)b",        "(?x) l m", "(l)?(?(1)m|x)", "a*+",
                                              "a++b",    "\\N{DIGIT ONE}", "a{99999}"};
  return patterns;
}

TEST(NamePattern, MatchesAsPythonDoesOrIsRefused) {
  const Json data = read_cases("patterns.json");
  ASSERT_GT(data["cases"].size(), 100u);
  for (const Json& c : data["cases"]) {
    const auto text = c["pattern"].get<std::string>();
    SCOPED_TRACE(text);
    const auto pattern = NamePattern::compile(text);
    if (c.contains("error") || refused().contains(text)) {
      ASSERT_FALSE(pattern.is_ok());
      EXPECT_FALSE(pattern.status().message().empty());
      continue;
    }
    ASSERT_TRUE(pattern.is_ok()) << pattern.status().message();
    for (const Json& name : data["names"]) {
      const bool expected = std::find(c["matches"].begin(), c["matches"].end(), name) != c["matches"].end();
      EXPECT_EQ(pattern->matches(name.get<std::string>()), expected) << name;
    }
  }
}

TEST(NamePattern, TimeIsLinearInTheName) {
  const std::string name = std::string(20000, 'a') + "!";
  const auto start = std::chrono::steady_clock::now();
  for (const char* text : {"(a+)+$", "(a|aa)+$", "(a*)*b", "(.*a){20}b", "(a?){30}a{30}$", "((a+)+)+\\Z"}) {
    const auto pattern = NamePattern::compile(text);
    ASSERT_TRUE(pattern.is_ok()) << pattern.status().message();
    EXPECT_FALSE(pattern->matches(name)) << text;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(NamePattern, SizesAreBounded) {
  expect_error(NamePattern::compile(std::string(1001, 'a')).status(), {"1001 bytes", "up to 1000"});
  for (const char* text : {"((a{30}){30}){30}", "(.{1000}){10}", ".{1001}"})
    EXPECT_FALSE(NamePattern::compile(text).is_ok()) << text;
  EXPECT_FALSE(NamePattern::compile(std::string(1000, '(')).is_ok());
}

TEST(NamePattern, ErrorsSayWhatAndWhere) {
  expect_error(NamePattern::compile("lm(?!x)").status(), {"look-around (?!", "at character 3"});
  expect_error(NamePattern::compile("a**").status(), {"multiple repeat", "character 3"});
  expect_error(NamePattern::compile("(a").status(), {"missing )"});
}

}  // namespace
}  // namespace reprise::checkpoint::name_pattern_test

#include "base/bounded_json.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace reprise::json_test {
namespace {

std::string nested(int depth, char open, char close) {
  std::string text;
  for (int i = 0; i < depth; ++i) {
    text += open;
    if (open == '{' && i + 1 < depth) text += "\"k\":";
  }
  text.append(static_cast<size_t>(depth), close);
  return text;
}

TEST(Json, ParsesAndKeepsOrderOnRequest) {
  const auto plain = parse_json(R"({"b": 1, "a": [true, null, "x"]})", "t");
  ASSERT_TRUE(plain.is_ok()) << plain.status().message();
  EXPECT_EQ(plain->dump(), R"({"a":[true,null,"x"],"b":1})");
  const auto ordered = parse_ordered_json(R"({"b": 1, "a": 2})", "t");
  ASSERT_TRUE(ordered.is_ok());
  EXPECT_EQ(ordered->dump(), R"({"b":1,"a":2})");
}

TEST(Json, DepthLimitIsExact) {
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth, '[', ']'), "t").is_ok());
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth, '{', '}'), "t").is_ok());
  for (const auto& text : {nested(kMaxJsonDepth + 1, '[', ']'), nested(kMaxJsonDepth + 1, '{', '}'),
                           std::string(1000000, '['), nested(kMaxJsonDepth + 1, '[', ' ')}) {
    const auto r = parse_json(text, "deep.json");
    ASSERT_FALSE(r.is_ok());
    EXPECT_EQ(r.status().code(), Code::Invalid);
    EXPECT_EQ(r.status().message().rfind("deep.json: JSON nested deeper than 128 levels at byte ", 0), 0u)
        << r.status().message();
    EXPECT_FALSE(parse_ordered_json(text, "deep.json").is_ok());
  }
}

TEST(Json, BracketsInStringsDoNotCount) {
  const std::string brackets(1000, '[');
  const auto r = parse_json("[\"\\\"" + brackets + "\\\\\", \"" + brackets + "\"]", "t");
  ASSERT_TRUE(r.is_ok()) << r.status().message();
  EXPECT_EQ((*r)[0], "\"" + brackets + "\\");
}

TEST(Json, WideIsNotDeep) {
  std::string text = "[";
  for (int i = 0; i < 5000; ++i) text += "[1],";
  EXPECT_TRUE(parse_json(text + "0]", "t").is_ok());
}

TEST(Json, ErrorsNameTheSource) {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "nul", "\"\\x\"", "\"open", "]]]]", "1 2", "\"\xff\""}) {
    const auto r = parse_json(text, "config.json");
    ASSERT_FALSE(r.is_ok()) << text;
    EXPECT_EQ(r.status().code(), Code::Invalid);
    EXPECT_EQ(r.status().message().rfind("config.json: not valid JSON: ", 0), 0u) << r.status().message();
  }
}

TEST(Json, NumbersKeepTheirKind) {
  const auto r = parse_json("[9007199254740993, 1.0, -1, 18446744073709551615]", "t");
  ASSERT_TRUE(r.is_ok());
  EXPECT_EQ((*r)[0].get<int64_t>(), 9007199254740993);
  EXPECT_TRUE((*r)[1].is_number_float());
  EXPECT_TRUE((*r)[2].is_number_integer());
  EXPECT_EQ((*r)[3].get<uint64_t>(), 18446744073709551615u);
}

std::string many_keys(int n, const char* prefix = "k") {
  std::string text = "{";
  for (int i = 0; i < n; ++i) text += (i ? ",\"" : "\"") + (prefix + std::to_string(i)) + "\":" + std::to_string(i);
  return text + "}";
}

// nlohmann's own ordered parser looks every key up in a list: 80,000 of them took nine seconds.
TEST(Json, ManyKeysTakeLinearTime) {
  const std::string text = many_keys(100000);
  const auto begin = std::chrono::steady_clock::now();
  const auto ordered = parse_ordered_json(text, "t");
  ASSERT_TRUE(ordered.is_ok());
  EXPECT_EQ(ordered->size(), 100000u);
  EXPECT_EQ(ordered->begin().key(), "k0");
  EXPECT_TRUE(parse_json(text, "t").is_ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

// The two parsers and nlohmann's agree, also on what a key given twice means.
TEST(Json, KeysGivenTwiceKeepTheLastValueInTheFirstPlace) {
  for (const std::string& text :
       {std::string(R"({"a": 1, "b": {"c": [1, {"d": 2.5}], "c": null}, "a": [true, "x", -3]})"),
        many_keys(40).substr(0, many_keys(40).size() - 1) + R"(,"k3":"again","k39":[]})", std::string("[]"),
        std::string("\"x\""), std::string(R"([[], {}, [[{"a": {}}]], 18446744073709551615, -1, 1e3])")}) {
    const auto ordered = parse_ordered_json(text, "t");
    const auto plain = parse_json(text, "t");
    ASSERT_TRUE(ordered.is_ok() && plain.is_ok()) << text;
    EXPECT_EQ(ordered->dump(), OrderedJson::parse(text).dump());
    EXPECT_EQ(plain->dump(), Json::parse(text).dump());
  }
}

TEST(Json, LimitsAreExactAndNamed) {
  const auto problem = [](const char* text, JsonLimits limits) {
    const auto plain = parse_json(text, "body", limits);
    const auto ordered = parse_ordered_json(text, "body", limits);
    EXPECT_EQ(plain.is_ok(), ordered.is_ok());
    return plain.is_ok() ? std::string() : plain.status().message();
  };
  const char* text = R"({"a": [1, 2, {"b": 3}], "c": {}})";
  EXPECT_EQ(problem(text, {3, 4, 7}), "");
  EXPECT_EQ(problem(text, {2, 4, 7}), "body: the JSON has more than 2 members of objects");
  EXPECT_EQ(problem(text, {3, 3, 7}), "body: the JSON has more than 3 arrays and objects");
  EXPECT_EQ(problem(text, {3, 4, 6}), "body: the JSON has more than 6 values");
}

TEST(Json, ParsingCanBeGivenUp) {
  std::atomic<bool> stop{false};
  JsonLimits limits;
  limits.stop = &stop;
  const std::string text = many_keys(5000);
  EXPECT_TRUE(parse_ordered_json(text, "body", limits).is_ok());
  stop = true;
  const auto given_up = parse_ordered_json(text, "body", limits);
  ASSERT_FALSE(given_up.is_ok());
  EXPECT_EQ(given_up.status().code(), Code::Cancelled);
}

}  // namespace
}  // namespace reprise::json_test

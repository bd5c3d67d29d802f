#include "base/json.h"

#include <gtest/gtest.h>

#include <string>

namespace reprise {
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

}  // namespace
}  // namespace reprise

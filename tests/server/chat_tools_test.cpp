// Messages of a chat as templates get them.
#include "server/chat_tools.h"

#include <gtest/gtest.h>

namespace reprise::server {
namespace {

OrderedJson messages_of(const char* list) {
  const OrderedJson body = {{"messages", OrderedJson::parse(list)}};
  const Json plain = body;
  Fields f(plain);
  auto out = read_messages(f, body, ServedModel());
  EXPECT_FALSE(f.error()) << f.error()->message;
  return out ? *out : OrderedJson();
}

TEST(ReadMessages, ACallWithoutWordsHasEmptyContent) {
  const char* call =
      R"("tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}])";
  for (const std::string content : {"", R"("content": null, )", R"("content": "", )"}) {
    const OrderedJson out = messages_of((R"([{"role": "assistant", )" + content + call + "}]").c_str());
    ASSERT_EQ(out.size(), 1u);
    EXPECT_EQ(out[0]["content"], "") << content;
    // The arguments are opened, because templates write them as JSON themselves.
    EXPECT_EQ(out[0]["tool_calls"][0]["function"]["arguments"], (OrderedJson{{"a", 1}}));
  }
}

TEST(ReadMessages, PartsAreJoinedForTemplatesOfText) {
  const OrderedJson out = messages_of(
      R"([{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}])");
  EXPECT_EQ(out[0]["content"].get<std::string>().find("one"), 0u);
  EXPECT_NE(out[0]["content"].get<std::string>().find("two"), std::string::npos);
}

TEST(ReadMessages, WhatIsWrongIsNamed) {
  for (const auto& [list, param] : std::vector<std::pair<std::string, std::string>>{
           {"[]", "messages"},
           {"7", "messages"},
           {R"([{"role": "user"}])", "messages[0].content"},
           {R"([{"role": "user", "content": "a"}, {"content": "b"}])", "messages[1]"},
           {R"([{"role": "user", "content": [{"type": "image_url"}]}])", "messages[0].content"}}) {
    const OrderedJson body = {{"messages", OrderedJson::parse(list)}};
    const Json plain = body;
    Fields f(plain);
    EXPECT_FALSE(read_messages(f, body, ServedModel())) << list;
    ASSERT_TRUE(f.error()) << list;
    EXPECT_EQ(f.error()->param, param);
  }
}

}  // namespace
}  // namespace reprise::server

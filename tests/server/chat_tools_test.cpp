// Messages of a chat as templates get them.
#include "server/chat_tools.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "server/thought_marks.h"
#include "server/tool_dialects.h"
#include "settings/setting.h"

namespace reprise::server::chat_tools_test {
namespace {

OrderedJson messages_of(const char* list) {
  const OrderedJson body = {{"messages", OrderedJson::parse(list)}};
  const Json plain = body;
  Fields f(plain);
  auto out = read_messages(f, body, ServedModel(), nullptr);
  EXPECT_FALSE(f.error()) << f.error()->message;
  return out ? *out : OrderedJson();
}

// The table of settings stands below the server, and has the names of its parsers.
TEST(Parsers, AreThoseOfTheSettings) {
  std::vector<std::string> tools{"auto"}, reasoning{"auto", "none"};
  for (const std::string& name : tool_format_names()) tools.push_back(name);
  for (const ReasoningParser& p : reasoning_parsers()) reasoning.emplace_back(p.name);
  EXPECT_EQ(settings::find("tool_call_parser")->choices, tools);
  EXPECT_EQ(settings::find("reasoning_parser")->choices, reasoning);
  const auto page = read_file(std::string(REPRISE_SOURCE_DIR) + "/docs/serve.md");
  ASSERT_TRUE(page.is_ok());
  for (const auto& names : {tools, reasoning})
    for (const std::string& name : names)
      EXPECT_NE(page->find("`" + name + "`"), std::string::npos) << name << " is missing in docs/serve.md";
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
           {R"([{"role": "assistant", "tool_calls": null}])", "messages[0].content"},
           {R"([{"role": "assistant", "content": "a", "tool_calls": 5}])", "messages[0].tool_calls"},
           {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}])", "messages[0].tool_calls"},
           {R"([{"role": "user", "content": [{"type": "image_url"}]}])", "messages[0].content[0]"}}) {
    const OrderedJson body = {{"messages", OrderedJson::parse(list)}};
    const Json plain = body;
    Fields f(plain);
    EXPECT_FALSE(read_messages(f, body, ServedModel(), nullptr)) << list;
    ASSERT_TRUE(f.error()) << list;
    EXPECT_EQ(f.error()->param, param);
  }
}

TEST(ReadTools, WhatIsWrongIsNamed) {
  const OrderedJson good = OrderedJson::parse(R"({"type": "function", "function": {"name": "f"}})");
  OrderedJson parameters = good, description = good;
  parameters["function"]["parameters"] = 5;
  description["function"]["description"] = OrderedJson::array();
  for (const auto& [more, param] : std::vector<std::pair<OrderedJson, std::string>>{
           {{{"tools", {parameters}}}, "tools[0].function.parameters"},
           {{{"tools", {good, description}}}, "tools[1].function.description"},
           {{{"tools", {{{"type", "function"}}}}}, "tools[0]"},
           {{{"parallel_tool_calls", "no"}}, "parallel_tool_calls"},
           {{{"tool_choice", "required"}}, "tool_choice"},
           {{{"tools", {good}}, {"tool_choice", {{"type", "tool"}, {"function", {{"name", "f"}}}}}}, "tool_choice"},
           {{{"tools", {good}}, {"tool_choice", {{"type", "function"}, {"function", {{"name", "g"}}}}}},
            "tool_choice"}}) {
    const Json plain = more;
    Fields f(plain);
    read_tools(f, more, ServedModel());
    ASSERT_TRUE(f.error()) << more;
    EXPECT_EQ(f.error()->param, param) << f.error()->message;
  }
}

const OrderedJson kTools = OrderedJson::parse(
    R"([{"type": "function", "function": {"name": "f", "description": "adds", "parameters": {"type": "object"}}}])");

ChatTools tools_of(const OrderedJson& body, const ServedModel& model = {}) {
  const Json plain = body;
  Fields f(plain);
  ChatTools out = read_tools(f, body, model);
  EXPECT_FALSE(f.error()) << f.error()->message;
  return out;
}

TEST(ReadTools, AModelWithoutAKnownWayToCallIsToldOne) {
  const ChatTools automatic = tools_of({{"tools", kTools}});
  EXPECT_TRUE(automatic.in_system_prompt);
  EXPECT_EQ(automatic.format, ToolFormat::Hermes);
  EXPECT_FALSE(automatic.form) << "any answer is allowed";
  const ChatTools required = tools_of({{"tools", kTools}, {"tool_choice", "required"}});
  EXPECT_TRUE(required.in_system_prompt);
  EXPECT_TRUE(required.form) << "the answer is held to a call";
  EXPECT_TRUE(tools_of({{"tools", kTools}, {"tool_choice", "none"}}).list.is_null());
  ServedModel knows;
  const auto shows = text::ChatTemplate::compile("{% if tools %}<tool_call>{% endif %}", OrderedJson::object());
  ASSERT_TRUE(shows.is_ok());
  knows.chat_template = &*shows;
  knows.tool_format = ToolFormat::Hermes;
  EXPECT_FALSE(tools_of({{"tools", kTools}}, knows).in_system_prompt);
}

// As Phi-4-mini's model card has it: the functions as a text, in a member of the system message.
TEST(PlaceTools, TheSystemMessageHasTheFunctions) {
  for (const char* list : {R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}])",
                           R"([{"role": "user", "content": "hi"}])"}) {
    const OrderedJson out = place_tools(messages_of(list), kTools);
    ASSERT_EQ(out.size(), 2u);
    EXPECT_EQ(out[0]["role"], "system");
    EXPECT_EQ(out[0]["content"], list[11] == 's' ? "Be brief." : "");
    EXPECT_EQ(OrderedJson::parse(out[0]["tools"].get<std::string>()),
              OrderedJson::parse(R"([{"name": "f", "description": "adds", "parameters": {"type": "object"}}])"));
    EXPECT_EQ(out[1]["content"], "hi");
  }
}

TEST(CountCalls, OverAllMessages) {
  const std::string call = R"({"function": {"name": "f", "arguments": {}}})";
  EXPECT_EQ(count_calls(messages_of(R"([{"role": "user", "content": "hi"}])")), 0);
  EXPECT_EQ(count_calls(messages_of((R"([{"role": "assistant", "tool_calls": [)" + call + "," + call +
                                     R"(]}, {"role": "tool", "content": "1"}, {"role": "assistant", "tool_calls": [)" +
                                     call + "]}]")
                                        .c_str())),
            3);
}

TEST(TellTools, TheSystemTurnHasTheSchemaAndTheWayToCall) {
  const ChatTools tools = tools_of({{"tools", kTools}});
  OrderedJson out = tell_tools(messages_of(R"([{"role": "user", "content": "hi"}])"), tools);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0]["role"], "system");
  const auto text = out[0]["content"].get<std::string>();
  EXPECT_NE(text.find(R"({"name":"f","description":"adds","parameters":{"type":"object"}})"), std::string::npos)
      << text;
  EXPECT_NE(text.find("<tool_call>"), std::string::npos);
  out = tell_tools(messages_of(R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}])"),
                   tools);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_TRUE(out[0]["content"].get<std::string>().starts_with("Be brief.\n\nYou can call"));
  // Templates without a system turn: the user's first begins with it.
  out = without_system(out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_TRUE(out[0]["content"].get<std::string>().starts_with("Be brief."));
  EXPECT_TRUE(out[0]["content"].get<std::string>().ends_with("\n\nhi"));
}

TEST(TellTools, EarlierCallsAndResultsBecomeTurns) {
  const OrderedJson out = tell_tools(messages_of(
                                         R"([{"role": "user", "content": "add"},
              {"role": "assistant", "content": null, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}},
                {"id": "2", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 2}"}}]},
              {"role": "tool", "tool_call_id": "1", "content": "one"},
              {"role": "tool", "tool_call_id": "2", "content": "two"},
              {"role": "user", "content": "and?"}])"),
                                     tools_of({{"tools", kTools}}));
  ASSERT_EQ(out.size(), 4u) << out;
  EXPECT_EQ(out[2]["role"], "assistant");
  EXPECT_FALSE(out[2].contains("tool_calls"));
  EXPECT_EQ(out[2]["content"],
            "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}</tool_call>\n"
            "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":2}}</tool_call>");
  EXPECT_EQ(out[3]["role"], "user");
  EXPECT_EQ(out[3]["content"], "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>\nand?");
}

}  // namespace
}  // namespace reprise::server::chat_tools_test

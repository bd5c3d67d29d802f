// Answers that are of a form or calls of tools: what the grammar lets a model write in each dialect, and how that is
// taken apart. A form or a call is compared with what the published templates of the models write.
#include <gtest/gtest.h>

#include <cstring>

#include "server/dialect_fixture.h"
#include "server/tool_answers.h"

namespace reprise::server::call_grammar_test {
namespace {

class CallGrammarTest : public DialectTest {
 protected:
  // The whole text may be an answer.
  static bool allows(const GenerateCall& call, const std::string& text) {
    if (!call.grammar) return false;
    const auto constraint = make_constraint(call.grammar).value();
    for (const char c : text)
      if (!constraint->accept(static_cast<uint8_t>(c)).is_ok()) return false;
    const auto mask = constraint->allowed();
    return mask.is_ok() && ((*mask)[0] >> 1 & 1) != 0;  // the token that ends it is 1
  }
  // Taken apart byte by byte.
  static SplitText split(const GenerateCall& call, const std::string& text) {
    AnswerSplitter splitter(call.split);
    SplitText out;
    const auto add = [&](SplitText part) {
      out.content += part.content;
      for (ToolCall& c : part.calls) out.calls.push_back(std::move(c));
    };
    for (const char c : text) add(splitter.push(std::string(1, c)));
    add(splitter.finish());
    return out;
  }
};

constexpr const char* kParameters = R"({"type": "object", "required": ["city"],
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}})";
constexpr const char* kSchema = R"({"type": "object", "properties": {"answer": {"type": "string"}},
    "required": ["answer"], "additionalProperties": false})";

std::string filled(std::string body) {
  for (const auto& [name, value] : {std::pair{"PARAMETERS", kParameters}, std::pair{"SCHEMA", kSchema}})
    for (size_t at; (at = body.find(name)) != std::string::npos;) body.replace(at, std::strlen(name), value);
  return body;
}

const std::string kAnswer = R"({"answer": "<tool_call>{\"name\": \"weather\"}</tool_call>"})";
const std::string kCall = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";

const std::string kChat = filled(R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function",
    "function": {"name": "weather", "parameters": PARAMETERS}}], "response_format": {"type": "json_schema",
    "json_schema": {"name": "x", "schema": SCHEMA}}})");

TEST_F(CallGrammarTest, EveryDialectLetsTheModelChoose) {
  const std::string function = R"("tools": [{"type": "function", "function": {"name": "weather",
      "parameters": PARAMETERS}}])";
  for (const auto& [dialect, body] : std::vector<std::pair<const Dialect*, std::string>>{
           {&chat_dialect(), kChat},
           {&responses_dialect(), R"({"input": "a", "text": {"format": {"type": "json_schema", "name": "x",
                "schema": SCHEMA}}, "tools": [{"type": "function", "name": "weather", "parameters": PARAMETERS}]})"},
           {&messages_dialect(), R"({"max_tokens": 9, "messages": [{"role": "user", "content": "a"}],
                "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
                "tools": [{"name": "weather", "input_schema": PARAMETERS}]})"},
           {&ollama_chat_dialect(), R"({"model": "m", "messages": [{"role": "user", "content": "a"}],
                "format": SCHEMA, )" + function +
                                        "}"}}) {
    const GenerateCall c = call(*dialect, filled(body).c_str());
    EXPECT_TRUE(allows(c, kAnswer)) << body;
    EXPECT_TRUE(allows(c, kCall)) << body;
    EXPECT_TRUE(allows(c, kCall + "\n" + kCall)) << body;
    for (const char* no : {"words", "", "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>",
                           "<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>"})
      EXPECT_FALSE(allows(c, no)) << no;
    EXPECT_FALSE(allows(c, kCall + kAnswer));
    // A mark in an answer is a text like others.
    EXPECT_EQ(split(c, kAnswer).content, kAnswer);
    const SplitText called = split(c, kCall);
    ASSERT_EQ(called.calls.size(), 1u);
    EXPECT_EQ(called.calls[0].name, "weather");
    EXPECT_EQ(called.calls[0].arguments, R"({"city":"Paris"})");
    EXPECT_EQ(called.content, "");
  }
}

TEST_F(CallGrammarTest, OneCallWhereOneIsAskedAndNoneBesideAPattern) {
  OrderedJson body = OrderedJson::parse(kChat);
  body.erase("response_format");
  body["regex"] = "[a-z]+";
  const GenerateCall words = call(chat_dialect(), body.dump().c_str());
  EXPECT_TRUE(allows(words, "words"));
  EXPECT_FALSE(allows(words, kCall));
  body = OrderedJson::parse(kChat);
  body["parallel_tool_calls"] = false;
  const GenerateCall c = call(chat_dialect(), body.dump().c_str());
  EXPECT_TRUE(allows(c, kCall));
  EXPECT_FALSE(allows(c, kCall + kCall));
  EXPECT_TRUE(c.warnings.empty());
}

// The lines of Qwen3-Coder's chat template: a text stands as it is, other values as JSON.
TEST_F(CallGrammarTest, Qwen3CodersCalls) {
  model_.tool_format = ToolFormat::Qwen3Coder;
  const GenerateCall c = call(chat_dialect(), kChat.c_str());
  const std::string begin = "<tool_call>\n<function=weather>\n", end = "</function>\n</tool_call>";
  const auto parameter = [](const std::string& name, const std::string& value) {
    return "<parameter=" + name + ">\n" + value + "\n</parameter>\n";
  };
  for (const char* city : {"Paris", "a </p> <</parameter \xc3\xa9\n\"b\"", ""}) {
    const std::string text = begin + parameter("city", city) + parameter("days", "3") + end;
    EXPECT_TRUE(allows(c, text)) << text;
    const SplitText called = split(c, text);
    ASSERT_EQ(called.calls.size(), 1u) << text;
    EXPECT_EQ(OrderedJson::parse(called.calls[0].arguments), OrderedJson({{"city", city}, {"days", 3}}));
  }
  EXPECT_TRUE(allows(c, begin + parameter("city", "Paris") + end));
  EXPECT_TRUE(allows(c, kAnswer));
  EXPECT_FALSE(allows(c, begin + parameter("days", "3") + end)) << "the city is required";
  EXPECT_FALSE(allows(c, begin + parameter("city", "Paris") + parameter("days", "three") + end));
  EXPECT_FALSE(allows(c, begin + parameter("city", "Paris") + parameter("place", "x") + end));
  EXPECT_FALSE(allows(c, kCall));
}

// What the families' own templates write may be written, and nothing that the schemas do not allow.
TEST_F(CallGrammarTest, CallsInTheTagsOfOtherFamilies) {
  int seen = 0;
  OrderedJson body = OrderedJson::parse(kChat);
  body["tools"] = tool_answers()["tools"];
  for (const OrderedJson& answer : tool_answers()["cases"]) {
    const ToolFormat format = parse_tool_format(answer["tool_call_parser"].get<std::string>()).value();
    if (!answer.contains("template") || answer["calls"].empty() || answer["content"] != "" || !has_call_form(format) ||
        answer["template"] == "glm4_7" || answer["template"] == "hunyuan3")
      continue;
    model_.tool_format = format;
    const GenerateCall c = call(chat_dialect(), body.dump().c_str());
    // Templates put the thought in front, and Seed's and Qwen's write values as Python does.
    std::string text = answer["text"];
    text = text.substr(text.find(call_marks(format).front().begin));
    text = text.substr(0, text.find_last_not_of("\n") + 1);
    if (format == ToolFormat::SeedOss || format == ToolFormat::Qwen3Coder)
      for (const auto& [from, to] : {std::pair{">True<", ">true<"},
                                     {">False<", ">false<"},
                                     {">\nTrue\n<", ">\ntrue\n<"},
                                     {">\nFalse\n<", ">\nfalse\n<"}})
        for (size_t at; (at = text.find(from)) != std::string::npos;) text.replace(at, std::strlen(from), to);
    SCOPED_TRACE(text);
    // The grammar takes parameters in the order of the schema, which one call has not.
    if (text.find("code") == std::string::npos) {
      EXPECT_TRUE(allows(c, text));
      ++seen;
      const SplitText called = split(c, text);
      ASSERT_EQ(called.calls.size(), answer["calls"].size());
      EXPECT_EQ(called.calls[0].arguments, answer["calls"][0]["arguments"].dump());
      EXPECT_EQ(called.content, "");
    }
    EXPECT_TRUE(allows(c, kAnswer));
    const size_t city = text.find("city");
    if (city == std::string::npos) continue;
    std::string other = text;
    other.replace(city, 4, "town");
    EXPECT_FALSE(allows(c, other));
    other = text;
    other.replace(text.find("get_weather"), 11, "get_clothes");
    EXPECT_FALSE(allows(c, other));
  }
  EXPECT_GE(seen, 20);
}

// Marks that are special tokens, and calls that are the whole answer, have no form: Hermes' way is told instead.
TEST_F(CallGrammarTest, OtherModelsAreToldTheWay) {
  for (const ToolFormat format : {ToolFormat::None, ToolFormat::Llama, ToolFormat::DeepSeek, ToolFormat::Mistral,
                                  ToolFormat::Kimi, ToolFormat::Cohere, ToolFormat::Phi4, ToolFormat::Granite,
                                  ToolFormat::Olmo3, ToolFormat::Pythonic, ToolFormat::Harmony}) {
    model_.tool_format = format;
    model_.harmony = format == ToolFormat::Harmony;
    const GenerateCall c = call(chat_dialect(), kChat.c_str());
    EXPECT_TRUE(allows(c, kAnswer) && allows(c, kCall)) << static_cast<int>(format);
    EXPECT_EQ(split(c, kCall).calls.size(), 1u);
    EXPECT_NE(c.prompt_texts.at(0).find("To call one, write <tool_call>"), std::string::npos);
  }
}

// What a grammar cannot say of a tool's arguments does not refuse the request.
TEST_F(CallGrammarTest, SchemasOfToolsMayBeBeyondGrammars) {
  OrderedJson body = OrderedJson::parse(kChat);
  body["tools"][0]["function"]["parameters"] = {{"type", "object"}, {"not", {{"required", {"x"}}}}};
  const GenerateCall c = call(chat_dialect(), body.dump().c_str());
  EXPECT_TRUE(allows(c, kCall));
  EXPECT_TRUE(allows(c, R"(<tool_call>{"name": "weather", "arguments": {"x": [1]}}</tool_call>)"));
  // References lead from the tool's schema.
  body["tools"][0]["function"]["parameters"] = OrderedJson::parse(R"({"type": "object", "required": ["city"],
      "properties": {"city": {"$ref": "#/$defs/c"}}, "$defs": {"c": {"enum": ["Paris", "Rome"]}}})");
  const GenerateCall d = call(chat_dialect(), body.dump().c_str());
  EXPECT_TRUE(allows(d, kCall));
  EXPECT_FALSE(allows(d, R"(<tool_call>{"name": "weather", "arguments": {"city": "Bonn"}}</tool_call>)"));
  // The form of the answer itself is still checked.
  body["response_format"]["json_schema"]["schema"] = {{"type", "nothing"}};
  EXPECT_EQ(refused(chat_dialect(), body.dump()).param, "response_format");
}

// Clients leave out the type of a tool's arguments, or allow others besides.
TEST_F(CallGrammarTest, ArgumentsAreAnObjectWhateverTypeTheirSchemaNames) {
  OrderedJson chooses = OrderedJson::parse(kChat), must = chooses;
  must.erase("response_format");
  for (const char* parameters :
       {R"({"description": "where"})", R"({"properties": {"city": {"type": "string"}}, "minLength": 1})",
        R"({"type": ["object", "null"], "properties": {"city": {"type": "string"}}})",
        R"({"anyOf": [{"type": "string"}, {"properties": {"city": {"type": "string"}}}]})"}) {
    chooses["tools"][0]["function"]["parameters"] = OrderedJson::parse(parameters);
    must["tools"] = chooses["tools"];
    must["tool_choice"] = "required";
    const GenerateCall may = call(chat_dialect(), chooses.dump().c_str());
    const GenerateCall some = call(chat_dialect(), must.dump().c_str());
    must["tool_choice"] = {{"type", "function"}, {"function", {{"name", "weather"}}}};
    const GenerateCall named = call(chat_dialect(), must.dump().c_str());
    for (const std::string arguments : {R"({"city": "Paris"})", R"("Paris")", "null", "[1]", "3"}) {
      const bool object = arguments.front() == '{';
      const std::string written = R"({"name": "weather", "arguments": )" + arguments + "}";
      EXPECT_EQ(allows(may, "<tool_call>\n" + written + "\n</tool_call>"), object) << parameters << arguments;
      EXPECT_EQ(allows(some, "[" + written + "]"), object) << parameters << arguments;
      EXPECT_EQ(allows(named, arguments), object) << parameters << arguments;
    }
  }
}

}  // namespace
}  // namespace reprise::server::call_grammar_test

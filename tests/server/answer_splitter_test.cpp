#include "server/answer_splitter.h"

#include <gtest/gtest.h>

#include <random>

#include "server/ids.h"

namespace reprise::server::answer_splitter_test {
namespace {

struct Case {
  SplitOptions options;
  std::string text, content, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;
};

const std::vector<Case>& cases() {
  const SplitOptions none, thought{true}, begun{true, true}, hermes{true, false, ToolFormat::Hermes},
      llama{false, false, ToolFormat::Llama}, list{true, false, ToolFormat::List},
      arguments{true, true, ToolFormat::Arguments, "f"}, deepseek{true, false, ToolFormat::DeepSeek},
      mistral{false, false, ToolFormat::Mistral}, pythonic{false, false, ToolFormat::Pythonic};
  const auto tools = std::make_shared<const OrderedJson>(OrderedJson::parse(R"([{"type": "function", "function": {
      "name": "f", "parameters": {"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer"}, "deep": {"type": "object"},
      "dry": {"type": "boolean"}, "code": {"type": "string"}}}}}])"));
  const SplitOptions coder{false, false, ToolFormat::Qwen3Coder, "", tools};
  static const std::vector<Case> list_of = {
      {none, " <think>a</think> b", " <think>a</think> b", "", {}},
      {thought, "<think>\nwhy\n not\n</think>\n\nbecause <think> ", "because <think> ", "why\n not", {}},
      {thought, "\n<think></think>x", "x", "", {}},
      {thought, "no thought", "no thought", "", {}},
      {thought, "a <think>b</think>", "a <think>b</think>", "", {}},
      {thought, "<think>cut shor", "", "cut shor", {}},
      {thought, "<thin", "<thin", "", {}},
      {begun, "so\n</think>\nyes", "yes", "so", {}},
      {begun, "never ends </thin", "", "never ends </thin", {}},
      {hermes,
       "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": \"<tool_call>\"}}\n</tool_call>",
       "",
       "",
       {{"f", R"({"b":1,"a":"<tool_call>"})"}}},
      {hermes,
       "<think>hm</think>I "
       "look.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call>\n",
       "I look.\n",
       "hm",
       {{"f", "{}"}, {"g", "{}"}}},
      {hermes, "<tool_call>{\"name\": 3}</tool_call> x", "<tool_call>{\"name\": 3}</tool_call> x", "", {}},
      {hermes, "<tool_call>{\"name\":\"f\"", "<tool_call>{\"name\":\"f\"", "", {}},
      {hermes, "just < text </tool_call>", "just < text </tool_call>", "", {}},
      {llama, " {\"name\": \"f\", \"parameters\": {\"x\": \"a;b\"}}", "", "", {{"f", R"({"x":"a;b"})"}}},
      {llama,
       "{\"name\":\"f\",\"parameters\":{}}; {\"name\":\"g\",\"parameters\":{\"y\":[1]}}",
       "",
       "",
       {{"f", "{}"}, {"g", R"({"y":[1]})"}}},
      {llama, "{\"x\": 1} is an object", "{\"x\": 1} is an object", "", {}},
      {llama, "hello {\"name\":\"f\"}", "hello {\"name\":\"f\"}", "", {}},
      {list,
       R"([{"name":"f","arguments":{"a":1}},{"name":"f","arguments":{}}])",
       "",
       "",
       {{"f", R"({"a":1})"}, {"f", "{}"}}},
      {list, "[{\"name\":\"f\",", "[{\"name\":\"f\",", "", {}},
      // The forms that the models' chat templates write.
      {deepseek,
       "Sure.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": "
       "\"x\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<"
       "｜tool▁call▁end｜>"
       "<｜tool▁calls▁end｜>",
       "Sure.",
       "",
       {{"f", R"({"a":"x"})"}, {"g", "{}"}}},
      {deepseek,
       "<think>hm</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": "
       "1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "",
       "hm",
       {{"f", R"({"a":1})"}}},
      {deepseek,
       "<｜tool▁calls▁begin｜>broken<｜tool▁calls▁end｜>!",
       "<｜tool▁calls▁begin｜>broken<｜tool▁calls▁end｜>!",
       "",
       {}},
      {mistral,
       "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": [1]}}, {\"name\": \"g\", \"arguments\": {}}]",
       "",
       "",
       {{"f", R"({"a":[1]})"}, {"g", "{}"}}},
      {mistral, "So[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{}", "So", "", {{"f", R"({"a":1})"}, {"g", "{}"}}},
      {mistral, "[TOOL_CALLS] [{\"name\": ", "[TOOL_CALLS] [{\"name\": ", "", {}},
      {coder,
       "Look.\n<tool_call>\n<function=f>\n<parameter=city>\nParis\nor "
       "Rome\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=deep>\n{\"a\": [1, "
       "2]}\n</parameter>\n<parameter=dry>\nTrue\n</parameter>\n<parameter=code>\n7\n</parameter>\n</function>\n"
       "</tool_call>",
       "Look.\n",
       "",
       {{"f", R"({"city":"Paris\nor Rome","days":3,"deep":{"a":[1,2]},"dry":true,"code":"7"})"}}},
      {coder, "<tool_call>\n<function=f>\n</function>\n</tool_call>", "", "", {{"f", "{}"}}},
      {coder, "<tool_call><function=f</tool_call>", "<tool_call><function=f</tool_call>", "", {}},
      {pythonic,
       "[f(city=\"San Francisco\", metric='celsius', days=-3, share=0.5), g(on=True, off=None, all=[1, 'b'], d={'k': "
       "(1, 2)})]",
       "",
       "",
       {{"f", R"({"city":"San Francisco","metric":"celsius","days":-3,"share":0.5})"},
        {"g", R"({"on":true,"off":null,"all":[1,"b"],"d":{"k":[1,2]}})"}}},
      {pythonic, "<|python_start|>[f()]<|python_end|>", "", "", {{"f", "{}"}}},
      {pythonic, "[1, 2] is a list", "[1, 2] is a list", "", {}},
      {pythonic, "no [f()]", "no [f()]", "", {}},
      {begun, "<think>\nwhy</think>x", "x", "why", {}},
      {begun, "<think", "", "<think", {}},
      {arguments, "let me see\n</think>{\"city\": \"Paris\"}", "", "let me see", {{"f", R"({"city": "Paris"})"}}},
  };
  return list_of;
}

TEST(AnswerSplitter, PartsDoNotDependOnThePieces) {
  std::mt19937 rng(5);
  for (const Case& c : cases()) {
    for (int round = 0; round < 60; ++round) {
      AnswerSplitter splitter(c.options);
      SplitText all;
      const auto add = [&](const SplitText& part) {
        all.content += part.content;
        all.reasoning += part.reasoning;
        all.calls.insert(all.calls.end(), part.calls.begin(), part.calls.end());
      };
      for (size_t at = 0; at < c.text.size();) {
        const size_t n = round == 0 ? c.text.size() : 1 + rng() % (round % 2 ? 1 : 9);
        add(splitter.push(std::string_view(c.text).substr(at, n)));
        at += n;
      }
      add(splitter.finish());
      ASSERT_EQ(all.content, c.content) << c.text;
      ASSERT_EQ(all.reasoning, c.reasoning) << c.text;
      ASSERT_EQ(all.calls.size(), c.calls.size()) << c.text;
      for (size_t i = 0; i < all.calls.size(); ++i) {
        EXPECT_EQ(all.calls[i].name, c.calls[i].first);
        EXPECT_EQ(all.calls[i].arguments, c.calls[i].second);
        if (c.options.tools == ToolFormat::Mistral)
          EXPECT_TRUE(is_short_id(all.calls[i].id)) << all.calls[i].id;
        else
          EXPECT_TRUE(all.calls[i].id.starts_with("call_")) << all.calls[i].id;
      }
      EXPECT_EQ(splitter.called(), !c.calls.empty());
    }
  }
}

TEST(AnswerSplitter, FormatsByNameAndTemplate) {
  EXPECT_EQ(*parse_tool_format("qwen25"), ToolFormat::Hermes);
  EXPECT_EQ(*parse_tool_format("llama3"), ToolFormat::Llama);
  EXPECT_FALSE(parse_tool_format("magic").is_ok());
  EXPECT_EQ(tool_format_of_template("... <tool_call></tool_call> ..."), ToolFormat::Hermes);
  EXPECT_EQ(tool_format_of_template("{{ m }}"), ToolFormat::None);
}

}  // namespace
}  // namespace reprise::server::answer_splitter_test

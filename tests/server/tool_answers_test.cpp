// Answers as the families' own chat templates write them, and as the parsers of other engines document them, taken
// apart.
#include "server/tool_answers.h"

#include <map>
#include <random>
#include <set>

#include "server/answer_splitter.h"
#include "server/ids.h"

namespace reprise::server::tool_answers_test {
namespace {

SplitOptions options_of(const OrderedJson& c) {
  SplitOptions o;
  const std::string thoughts = c["reasoning_parser"];
  o.reasoning = thoughts != "none";
  for (const ReasoningParser& p : reasoning_parsers()) {
    if (p.name != thoughts) continue;
    o.thought = marks_of(p, c.contains("template")
                                ? test_data("chat_templates/templates/" + c["template"].get<std::string>() + ".jinja")
                                : "");
    o.begins_in_thought = p.thinks_first;
  }
  o.tools = parse_tool_format(c["tool_call_parser"].get<std::string>()).value();
  o.list = std::make_shared<const OrderedJson>(tool_answers()["tools"]);
  return o;
}

// In pieces of up to this many bytes; 0: whole.
SplitText split(const SplitOptions& options, std::string_view text, size_t most, uint32_t seed = 1) {
  std::mt19937 rng(seed);
  AnswerSplitter splitter(options);
  SplitText all;
  const auto add = [&](SplitText part) {
    all.content += part.content;
    all.reasoning += part.reasoning;
    for (ToolCall& c : part.calls) all.calls.push_back(std::move(c));
  };
  for (size_t at = 0; at < text.size();) {
    const size_t n = most == 0 ? text.size() : 1 + rng() % most;
    add(splitter.push(text.substr(at, n)));
    at += n;
  }
  add(splitter.finish());
  EXPECT_EQ(splitter.called(), !all.calls.empty());
  return all;
}

TEST(ToolAnswers, SayWhatTheTurnSaid) {
  std::set<std::string> families;
  for (const OrderedJson& c : tool_answers()["cases"]) {
    const std::string text = c["text"];
    SCOPED_TRACE(c["source"].get<std::string>() + ": " + text);
    const SplitOptions options = options_of(c);
    for (const size_t most : {0, 1, 2, 7, 7, 7, 40, 40}) {
      static uint32_t seed = 0;
      const SplitText got = split(options, text, most, ++seed);
      // What stands between words and a call belongs to neither.
      std::string_view content = got.content;
      if (!got.calls.empty()) content = without_blanks(content);
      EXPECT_EQ(content, c["calls"].empty() ? c["content"].get<std::string>()
                                            : std::string(without_blanks(c["content"].get<std::string>())));
      EXPECT_EQ(got.reasoning, c["reasoning"].get<std::string>());
      ASSERT_EQ(got.calls.size(), c["calls"].size());
      for (size_t i = 0; i < got.calls.size(); ++i) {
        const OrderedJson& want = c["calls"][i];
        EXPECT_EQ(got.calls[i].name, want["name"].get<std::string>());
        EXPECT_EQ(got.calls[i].arguments, want["arguments"].dump());
        if (want.contains("id"))
          EXPECT_EQ(got.calls[i].id, want["id"].get<std::string>());
        else if (options.tools == ToolFormat::Mistral)
          EXPECT_TRUE(is_short_id(got.calls[i].id)) << got.calls[i].id;
        else
          EXPECT_TRUE(got.calls[i].id.starts_with("call_"));
      }
    }
    families.insert(c["tool_call_parser"]);
  }
  EXPECT_GE(families.size(), 14u);
}

// An answer that ends within a call is told as it is.
TEST(ToolAnswers, ACallThatIsCutIsNotLost) {
  int cuts = 0;
  for (const OrderedJson& c : tool_answers()["cases"]) {
    const std::string text = c["text"];
    if (c["calls"].size() != 1) continue;
    const SplitOptions options = options_of(c);
    if (options.tools == ToolFormat::Llama) continue;  // has no marks
    size_t begin = std::string::npos, inside = 0, end = 0;
    for (const CallMarks& m : call_marks(options.tools))
      if (const size_t at = text.find(m.begin); at != std::string::npos) {
        begin = at;
        inside = at + m.begin.size();
        end = m.end.empty() ? text.rfind(']') : text.rfind(m.end) + m.end.size() - 1;
      }
    ASSERT_NE(begin, std::string::npos) << text;
    for (size_t at = inside; at <= end; ++at, ++cuts) {
      const SplitText got = split(options, text.substr(0, at), 5, static_cast<uint32_t>(at));
      ASSERT_TRUE(got.calls.empty()) << text.substr(0, at);
      ASSERT_TRUE(got.content.ends_with(text.substr(begin, at - begin))) << text << "\ncut: " << got.content;
    }
  }
  EXPECT_GT(cuts, 4000);
}

TEST(ToolAnswers, CallsThatAreBrokenAreWords) {
  for (const auto& [parser, text] : std::vector<std::pair<const char*, std::string>>{
           {"glm45", "<tool_call>f\n<arg_key>a</arg_key>\n</tool_call>"},
           {"glm45", "<tool_call>\n</tool_call>"},
           {"glm45", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\nand more</tool_call>"},
           {"kimi_k2", "<|tool_calls_section_begin|>f(1)<|tool_calls_section_end|>"},
           {"kimi_k2",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.f.0<|tool_call_argument_begin|>{}"
            "<|tool_call_end|><|tool_calls_section_end|>"},
           {"kimi_k2",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>[1]"
            "<|tool_call_end|><|tool_calls_section_end|>"},
           {"minimax_m2", "<minimax:tool_call><invoke name=\"f\"><parameter name=\"a\">1</invoke></minimax:tool_call>"},
           {"seed_oss", "<seed:tool_call>f()</seed:tool_call>"},
           {"cohere_command3", "<|START_ACTION|>[{\"tool\": \"f\"}]<|END_ACTION|>"},
           {"cohere_command3", "<|START_ACTION|>[]<|END_ACTION|>"},
           {"phi4_mini_json", "<|tool_call|>f<|/tool_call|>"},
           {"phi4_mini_json", "functools[1, 2]"},
           {"granite", "<|tool_call|>{\"name\": \"func\", \"arguments\": \"not a dict\"}"},
           {"mistral", "[TOOL_CALLS][CALL_ID]9Ab3dEfGh[ARGS]{}"},
           {"mistral", "[TOOL_CALLS]f[CALL_ID]9Ab3dEfGh{}"},
           {"mistral", "[TOOL_CALLS]f[ARGS]{"},
           {"hunyuan", "<tool_calls><tool_call>f</tool_call></tool_calls>"},
           {"hunyuan", "<tool_calls>[{\"name\": 1}]</tool_calls>"},
           {"nemotron_json", "<TOOLCALL>[{\"name\": 1}]</TOOLCALL>"},
           {"nemotron_json", "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}"},
           {"olmo3", "<function_calls>f(1)</function_calls>"},
           {"olmo3", "<function_calls>f(a=1</function_calls>"}}) {
    SplitOptions o;
    o.tools = parse_tool_format(parser).value();
    const SplitText got = split(o, "So: " + text, 3);
    EXPECT_EQ(got.content, "So: " + text) << parser;
    EXPECT_TRUE(got.calls.empty());
  }
}

TEST(ToolAnswers, TemplatesShowTheirParsers) {
  for (const OrderedJson& c : tool_answers()["cases"]) {
    if (!c.contains("template")) continue;
    const std::string name = c["template"];
    const std::string source = test_data("chat_templates/templates/" + name + ".jinja");
    EXPECT_EQ(tool_format_of_template(source), options_of(c).tools) << name;
    if (c["reasoning_parser"] == "none") continue;
    EXPECT_TRUE(shows_thoughts(source)) << name;
    EXPECT_EQ(thought_marks_of_template(source), options_of(c).thought) << name;
  }
  // Hunyuan's newer template makes its tags from a suffix.
  EXPECT_EQ(tool_format_of_template("{% set t = '<tool_calls{}>'.format(suffix) %}"), ToolFormat::Hunyuan);
  for (const auto& [name, format] :
       std::vector<std::pair<std::string, ToolFormat>>{{"granite3", ToolFormat::Granite},
                                                       {"cohere2", ToolFormat::None},
                                                       {"chatml", ToolFormat::None},
                                                       {"gptoss", ToolFormat::Harmony},
                                                       {"deepseek_v3", ToolFormat::DeepSeek},
                                                       {"llama3_1", ToolFormat::Llama},
                                                       {"llama4", ToolFormat::Llama}})
    EXPECT_EQ(tool_format_of_template(test_data("chat_templates/templates/" + name + ".jinja")), format) << name;
}

TEST(ToolAnswers, ThePromptMayHaveBegunThem) {
  const auto marks = [](std::string_view name) {
    for (const ReasoningParser& p : reasoning_parsers())
      if (p.name == name) return p.marks;
    ADD_FAILURE() << name;
    return ThoughtMarks();
  };
  EXPECT_TRUE(ends_in_thought("<|assistant|>\n<think>\n", marks("qwen3")));
  EXPECT_FALSE(ends_in_thought("<think>\n\n</think>\n", marks("qwen3")));
  EXPECT_FALSE(ends_in_thought("<think>", marks("seed_oss")));
  EXPECT_TRUE(ends_in_thought("<seed:bos>assistant\n<seed:think>", marks("seed_oss")));
  EXPECT_TRUE(ends_in_thought("<seed:bos>assistant\n<seed:think><seed:cot_budget_reflect>", marks("seed_oss")));
  EXPECT_TRUE(ends_in_thought("<|CHATBOT_TOKEN|><|START_THINKING|>", marks("cohere_command4")));
  EXPECT_TRUE(ends_in_answer("<|CHATBOT_TOKEN|><|START_RESPONSE|>", marks("cohere_command3")));
  EXPECT_FALSE(ends_in_answer("<|CHATBOT_TOKEN|>", marks("cohere_command3")));
  EXPECT_FALSE(ends_in_answer("", marks("qwen3")));
  SplitOptions o{true};
  o.thought = marks("cohere_command3");
  o.begins_in_answer = true;
  EXPECT_EQ(split(o, "words \n<|END_RESPONSE|>", 2).content, "words");
  o.begins_in_answer = false;
  o.begins_in_thought = true;
  const SplitText got = split(o, "why<|END_THINKING|><|START_RESPONSE|>\nwords <|END_RESP", 2);
  EXPECT_EQ(got.reasoning, "why");
  EXPECT_EQ(got.content, "words <|END_RESP");
}

// Kimi's template finds the result of a call by the name of the call, whoever wrote it.
TEST(ToolAnswers, CallsInAnotherFormHaveKimisNames) {
  SplitOptions o;
  o.tools = ToolFormat::List;
  o.earlier_calls = 3;
  const SplitText got = split(o, R"([{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}])", 4);
  ASSERT_EQ(got.calls.size(), 2u);
  EXPECT_EQ(got.calls[0].id, "functions.f:3");
  EXPECT_EQ(got.calls[1].id, "functions.g:4");
  o.tools = ToolFormat::Kimi;
  o.list =
      std::make_shared<const OrderedJson>(OrderedJson::parse(R"([{"type": "function", "function": {"name": "f"}}])"));
  const SplitText counted = split(o,
                                  "<|tool_call_section_begin|><|tool_call_begin|>0<|tool_call_argument_begin|>{}"
                                  "<|tool_call_end|><|tool_call_section_end|>",
                                  4);
  ASSERT_EQ(counted.calls.size(), 1u);
  EXPECT_EQ(counted.calls[0].name, "f");
  EXPECT_EQ(counted.calls[0].id, "0");
}

// Mistral's templates refuse any other id in the next turn, whoever wrote the call and however.
TEST(ToolAnswers, CallsOfMistralsModelsHaveShortIds) {
  SplitOptions o;
  o.tools = ToolFormat::List;
  o.short_ids = true;
  const SplitText listed = split(o, R"([{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}])", 4);
  ASSERT_EQ(listed.calls.size(), 2u);
  EXPECT_TRUE(is_short_id(listed.calls[0].id) && is_short_id(listed.calls[1].id)) << listed.calls[0].id;
  EXPECT_NE(listed.calls[0].id, listed.calls[1].id);
  o.tools = ToolFormat::Mistral;
  for (const char* text : {"[TOOL_CALLS]f[CALL_ID]call_1[ARGS]{}", "[TOOL_CALLS]f[CALL_ID][ARGS]{}",
                           R"([TOOL_CALLS][{"name": "f", "arguments": {}, "id": "1"}])"}) {
    const SplitText got = split(o, text, 4);
    ASSERT_EQ(got.calls.size(), 1u) << text;
    EXPECT_EQ(got.calls[0].name, "f");
    EXPECT_TRUE(is_short_id(got.calls[0].id)) << got.calls[0].id;
  }
}

// What stands as plain text in a call is what the tool's schema says of it.
TEST(ToolAnswers, ValuesAreOfTheSchemasTypes) {
  const auto tools = std::make_shared<const OrderedJson>(OrderedJson::parse(R"([{"type": "function", "function": {
      "name": "f", "parameters": {"properties": {"s": {"type": "string"}, "n": {"type": ["string", "integer"]},
      "o": {"type": ["string", "null"]}, "e": {"enum": [1, "1x"]}, "c": {"const": true},
      "a": {"anyOf": [{"type": "boolean"}, {"type": "string"}]}, "r": {"$ref": "#/x"}}}}}])"));
  for (const auto& [key, text, want] : std::vector<std::array<std::string, 3>>{{"s", "1", R"("1")"},
                                                                               {"s", "null", R"("null")"},
                                                                               {"n", "12", "12"},
                                                                               {"n", "1.5", R"("1.5")"},
                                                                               {"n", "[1]", R"("[1]")"},
                                                                               {"o", "null", "null"},
                                                                               {"o", "true", R"("true")"},
                                                                               {"e", "1", "1"},
                                                                               {"e", "1x", R"("1x")"},
                                                                               {"c", "True", "true"},
                                                                               {"a", "false", "false"},
                                                                               {"a", "0", R"("0")"},
                                                                               {"r", "{\"k\": 1}", R"({"k":1})"},
                                                                               {"r", "{k", R"("{k")"},
                                                                               {"unknown", "3", "3"}}) {
    SplitOptions o;
    o.tools = ToolFormat::Glm;
    o.list = tools;
    const SplitText got =
        split(o, "<tool_call>f\n<arg_key>" + key + "</arg_key>\n<arg_value>" + text + "</arg_value>\n</tool_call>", 9);
    ASSERT_EQ(got.calls.size(), 1u) << text;
    EXPECT_EQ(got.calls[0].arguments, "{\"" + key + "\":" + want + "}");
  }
}

}  // namespace
}  // namespace reprise::server::tool_answers_test

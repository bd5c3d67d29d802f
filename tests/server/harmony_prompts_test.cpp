// Prompts and Responses of gpt-oss, with OpenAI's chat template. What is expected of a prompt was rendered by the
// Python package jinja2, with thoughts as "thinking" and an empty description.
#include "server/dialect_fixture.h"

namespace reprise::server::harmony_prompts_test {
namespace {

class HarmonyPromptsTest : public DialectTest {
 protected:
  HarmonyPromptsTest() {
    const auto source =
        read_file(std::string(REPRISE_SOURCE_DIR) + "/tests/data/chat_templates/templates/gptoss.jinja");
    template_.emplace(text::ChatTemplate::compile(source.value(), OrderedJson::object()).value());
    model_.chat_template = &*template_;
    model_.tool_format = ToolFormat::Harmony;
    model_.harmony = true;
    model_.context_length = 8192;
  }

  // The turns: before them are the date and the tools.
  std::string turns(const Dialect& dialect, const std::string& body) {
    const std::string all = prompt(dialect, body.c_str());
    const size_t begin = all.find("<|start|>user");
    return begin == std::string::npos ? "no turns: " + all : all.substr(begin);
  }
  // A chat with a call that the assistant thought about, in these fields, and what comes after its result.
  std::string chat(const std::string& fields, const std::string& more = "") {
    return R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", )" + fields +
           R"(, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"n\": 1}"}}]},
             {"role": "tool", "tool_call_id": "c", "content": "5"})" +
           more + "]}";
  }

  std::optional<text::ChatTemplate> template_;
};

const std::string kThought = "<|start|>assistant<|channel|>analysis<|message|>I look.<|end|>";
const std::string kCall =
    "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{\"n\": 1}<|call|>"
    "<|start|>functions.f to=assistant<|channel|>commentary<|message|>\"5\"<|end|>";
const std::string kUser = "<|start|>user<|message|>a<|end|>", kNext = "<|start|>assistant";

TEST_F(HarmonyPromptsTest, AThoughtBeforeACallStaysUntilAFinalAnswer) {
  for (const char* fields : {R"("content": null, "reasoning_content": "I look.")", R"("reasoning": "I look.")",
                             R"("content": "", "thinking": "I look.")", R"("content": "I look.", "thinking": null)"})
    EXPECT_EQ(turns(chat_dialect(), chat(fields)), kUser + kThought + kCall + kNext) << fields;
  EXPECT_EQ(turns(chat_dialect(), chat(R"("content": null)")), kUser + kCall + kNext);
  const std::string more = R"(, {"role": "assistant", "content": "x", "reasoning_content": "so", "tool_calls": null},
                              {"role": "user", "content": "b"})";
  EXPECT_EQ(
      turns(chat_dialect(), chat(R"("reasoning_content": "I look.")", more)),
      kUser + kCall + "<|start|>assistant<|channel|>final<|message|>x<|end|><|start|>user<|message|>b<|end|>" + kNext);
}

// The template refuses both.
TEST_F(HarmonyPromptsTest, ThoughtsAndWordsBeforeACallAreOneText) {
  EXPECT_EQ(turns(chat_dialect(), chat(R"("content": "look.", "reasoning_content": "I")")),
            kUser + "<|start|>assistant<|channel|>analysis<|message|>I\nlook.<|end|>" + kCall + kNext);
}

TEST_F(HarmonyPromptsTest, EveryDialectTellsThoughts) {
  const std::string want = kUser + kThought + kCall + kNext;
  EXPECT_EQ(turns(messages_dialect(), R"({"max_tokens": 5, "messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "I look.", "signature": ""},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"n": 1}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "5"}]}]})"),
            want);
  EXPECT_EQ(turns(ollama_chat_dialect(), R"({"model": "m", "messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "", "thinking": "I look.",
       "tool_calls": [{"function": {"name": "f", "arguments": {"n": 1}}}]},
      {"role": "tool", "tool_name": "f", "content": "5"}]})"),
            want);
  EXPECT_EQ(turns(responses_dialect(), R"({"input": [{"role": "user", "content": "a"},
      {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "I look."}]},
      {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"n\": 1}"},
      {"type": "function_call_output", "call_id": "c", "output": "5"}]})"),
            want);
}

TEST_F(HarmonyPromptsTest, AToolNeedsNoDescription) {
  for (const char* description : {"", R"("description": null, )", R"("description": "", )"}) {
    const std::string body = R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function",
        "function": {"name": "f", )" +
                             std::string(description) +
                             R"("parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}}]})";
    const std::string all = prompt(chat_dialect(), body.c_str());
    EXPECT_NE(all.find("namespace functions {\n\n// \ntype f = (_: {\nn?: number,\n}) => any;\n\n} // namespace "
                       "functions<|end|>" +
                       kUser + kNext),
              std::string::npos)
        << description << all;
  }
}

TEST_F(HarmonyPromptsTest, ResponsesHaveItemsForThoughtsAndCalls) {
  const GenerateCall c =
      call(responses_dialect(), R"({"input": "a", "stream": true, "tools": [{"type": "function", "name": "f"}]})");
  const std::string text =
      "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.f "
      "<|constrain|>json<|message|>{\"city\": \"x\"}<|call|>";
  for (const size_t cut : {size_t{0}, size_t{30}, size_t{60}, text.size() - 10}) {
    const std::vector<std::string> pieces{text.substr(0, cut), text.substr(cut)};
    const auto events = named_events(stream(responses_dialect(), c, pieces));
    ASSERT_FALSE(events.empty());
    EXPECT_EQ(events.back().first, "response.completed");
    EXPECT_EQ(std::count_if(events.begin(), events.end(),
                            [](const auto& e) { return e.first == "response.function_call_arguments.done"; }),
              1);
    const Json items = events.back().second["response"]["output"];
    ASSERT_EQ(items.size(), 2u);
    EXPECT_EQ(items[0]["type"], "reasoning");
    EXPECT_EQ(items[0]["content"][0]["text"], "hm");
    EXPECT_EQ(items[1]["type"], "function_call");
    EXPECT_EQ(items[1]["name"], "f");
    EXPECT_EQ(Json::parse(items[1]["arguments"].get<std::string>()), (Json{{"city", "x"}}));
    const OrderedJson at_once = whole(responses_dialect(), c, pieces);
    EXPECT_EQ(at_once["output"].size(), 2u);
  }
}

}  // namespace
}  // namespace reprise::server::harmony_prompts_test

// Earlier calls of tools in the prompts of every published template that shows tools: a template that takes them in
// another way than most would leave them out without a word.
#include "server/chat_tools.h"
#include "server/dialect_fixture.h"
#include "server/tool_answers.h"

namespace reprise::server::past_calls_test {
namespace {

class PastCallsTest : public DialectTest {
 protected:
  void use(const OrderedJson& entry) {
    template_.emplace(
        text::ChatTemplate::compile(test_data("chat_templates/" + entry["file"].get<std::string>()),
                                    {{"bos_token", entry["bos_token"]}, {"eos_token", entry["eos_token"]}})
            .value());
    model_.chat_template = &*template_;
    model_.tool_format = tool_format_of_template(template_->source());
    model_.context_length = 1 << 20;
  }

  std::optional<text::ChatTemplate> template_;
};

const OrderedJson& templates() {
  static const OrderedJson list = OrderedJson::parse(test_data("chat_templates/templates.json"));
  return list;
}

constexpr const char* kTools =
    R"(, "tools": [{"type": "function", "function": {"name": "get_weather", "description": "d", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}])";

std::string conversation(const std::string& words, bool tools) {
  return R"({"max_tokens": 5, "messages": [{"role": "user", "content": "Q?"}, {"role": "assistant", "content": ")" +
         words +
         R"(", "tool_calls": [{"id": "call_0123456789", "type": "function", "function": {"name": "get_weather",
         "arguments": "{\"city\": \"Pxris\", \"days\": 3}"}}]}, {"role": "tool", "tool_call_id": "call_0123456789",
         "content": "rxsult"}])" +
         (tools ? kTools : "") + "}";
}

TEST_F(PastCallsTest, AreInThePromptOfEveryTemplate) {
  size_t seen = 0;
  for (const OrderedJson& entry : templates()) {
    use(entry);
    // Harmony has tests of its own; templates without tools are told of them in words.
    if (model_.tool_format == ToolFormat::None || model_.tool_format == ToolFormat::Harmony) continue;
    SCOPED_TRACE(entry["name"].get<std::string>());
    for (const bool tools : {true, false}) {
      if (!tools && entry["name"] == "falcon3") continue;  // tells of calls beside tools alone
      const std::string text = prompt(chat_dialect(), conversation("", tools).c_str());
      const size_t call = text.find("Pxris"), result = text.find("rxsult");
      EXPECT_NE(call, std::string::npos) << text;
      EXPECT_NE(result, std::string::npos) << text;
      EXPECT_LT(call, result) << text;
    }
    ++seen;
  }
  EXPECT_GE(seen, 30u);
}

TEST_F(PastCallsTest, StandAsTheModelWroteThem) {
  const auto prompt_of = [&](const char* name, const std::string& words, bool tools) {
    for (const OrderedJson& entry : templates())
      if (entry["name"] == name) use(entry);
    return prompt(chat_dialect(), conversation(words, tools).c_str());
  };
  // Its template shows no tools, joins texts, and takes no calls beside words.
  const std::string call =
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
      "{\"city\":\"Pxris\",\"days\":3}\n```<｜tool▁call▁end｜>";
  EXPECT_NE(prompt_of("deepseek_v3", "", false).find("Q?<｜Assistant｜>" + call), std::string::npos);
  EXPECT_NE(prompt_of("deepseek_v3", "One moment.", false).find("<｜Assistant｜>One moment.<｜end▁of▁sentence｜>"),
            std::string::npos);
  EXPECT_NE(prompt_of("deepseek_v3", "One moment.", false).find("<｜Assistant｜>" + call), std::string::npos);
  // Its template has no place for calls.
  EXPECT_NE(prompt_of("granite3", "Hm.", true)
                .find("<|end_of_role|>Hm.\n<|tool_call|>[{\"name\":\"get_weather\",\"arguments\":"
                      "{\"city\":\"Pxris\",\"days\":3}}]<|end_of_text|>"),
            std::string::npos);
}

}  // namespace
}  // namespace reprise::server::past_calls_test

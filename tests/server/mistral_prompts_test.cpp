// Ids of calls in conversations with Mistral's models, whose chat template refuses all but nine letters or digits.
#include <algorithm>
#include <regex>

#include "server/chat_tools.h"
#include "server/dialect_fixture.h"
#include "server/ids.h"
#include "server/tool_answers.h"

namespace reprise::server::mistral_prompts_test {
namespace {

class MistralPromptsTest : public DialectTest {
 protected:
  MistralPromptsTest()
      : template_(text::ChatTemplate::compile(test_data("chat_templates/templates/mistral_v03.jinja"),
                                              {{"bos_token", "<s>"}, {"eos_token", "</s>"}})
                      .value()) {
    model_.chat_template = &template_;
    model_.tool_format = ToolFormat::Mistral;
  }

  static SplitText split(const GenerateCall& call, const std::string& text) {
    AnswerSplitter splitter(call.split);
    SplitText out = splitter.push(text);
    SplitText end = splitter.finish();
    for (ToolCall& c : end.calls) out.calls.push_back(std::move(c));
    return out;
  }
  // Of calls ("id") and of results ("call_id") in a prompt, in order.
  static std::vector<std::string> ids(const std::string& prompt, const std::string& name) {
    std::vector<std::string> out;
    const std::regex form("\"" + name + "\": \"([^\"]*)\"");
    for (std::sregex_iterator i(prompt.begin(), prompt.end(), form), end; i != end; ++i) out.push_back((*i)[1]);
    return out;
  }

  text::ChatTemplate template_;
};

const std::string kTools = R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}])";

std::string second_turn(const std::string& id) {
  return R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [)"
         R"({"id": ")" +
         id + R"(", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
         {"role": "tool", "tool_call_id": ")" +
         id + R"(", "content": "5"}], )" + kTools + "}";
}

TEST_F(MistralPromptsTest, TheNextTurnTakesTheIdsOfTheAnswer) {
  for (const char* choice : {"auto", "required"}) {
    const std::string first = R"({"messages": [{"role": "user", "content": "a"}], "tool_choice": ")" +
                              std::string(choice) + "\", " + kTools + "}";
    const GenerateCall c = call(chat_dialect(), first.c_str());
    const bool listed = choice == std::string("required");
    const SplitText got =
        split(c, listed ? R"([{"name": "f", "arguments": {}}])" : R"([TOOL_CALLS] [{"name": "f", "arguments": {}}])");
    ASSERT_EQ(got.calls.size(), 1u) << choice;
    const std::string id = got.calls[0].id;
    EXPECT_TRUE(is_short_id(id)) << id;
    const std::string next = prompt(chat_dialect(), second_turn(id).c_str());
    EXPECT_EQ(ids(next, "id"), std::vector<std::string>{id}) << next;
    EXPECT_EQ(ids(next, "call_id"), std::vector<std::string>{id}) << next;
  }
}

TEST_F(MistralPromptsTest, IdsOfOthersBecomeShortOnesTheSameForACallAndItsResult) {
  std::vector<std::string> seen;
  for (const char* id : {"call_0123456789abcdef01234567", "functions.f:0", "1", "123456789x", "abc-defgh"}) {
    const std::string next = prompt(chat_dialect(), second_turn(id).c_str());
    const auto calls = ids(next, "id");
    ASSERT_EQ(calls.size(), 1u) << next;
    EXPECT_TRUE(is_short_id(calls[0])) << calls[0];
    EXPECT_EQ(ids(next, "call_id"), calls);
    EXPECT_EQ(prompt(chat_dialect(), second_turn(id).c_str()), next) << "the prefix of the next turn is the same";
    EXPECT_EQ(std::count(seen.begin(), seen.end(), calls[0]), 0);
    seen.push_back(calls[0]);
  }
  const std::string messages = R"({"max_tokens": 5, "messages": [{"role": "user", "content": "a"}, {"role": "assistant",
      "content": [{"type": "tool_use", "id": "toolu_01", "name": "f", "input": {}}]}, {"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "toolu_01", "content": "5"}]}]})";
  const std::string next = prompt(messages_dialect(), messages.c_str());
  ASSERT_EQ(ids(next, "id").size(), 1u) << next;
  EXPECT_EQ(ids(next, "id")[0], short_id_of("toolu_01"));
  EXPECT_EQ(ids(next, "call_id"), ids(next, "id"));
}

// Ollama's clients send no ids.
TEST_F(MistralPromptsTest, CallsAndResultsWithoutIdsArePairedInOrder) {
  const OrderedJson call = {{"function", {{"name", "f"}, {"arguments", OrderedJson::object()}}}};
  OrderedJson turns = OrderedJson::array(
      {{{"role", "assistant"}, {"tool_calls", {call, call}}}, {{"role", "tool"}}, {{"role", "tool"}}});
  turns.push_back({{"role", "assistant"}, {"tool_calls", OrderedJson::array({call})}});
  turns.push_back({{"role", "tool"}});
  const OrderedJson out = shorten_ids(turns);
  const std::string first = out[0]["tool_calls"][0]["id"], second = out[0]["tool_calls"][1]["id"],
                    third = out[3]["tool_calls"][0]["id"];
  EXPECT_TRUE(is_short_id(first) && is_short_id(second) && is_short_id(third));
  EXPECT_TRUE(first != second && second != third && first != third);
  EXPECT_EQ(out[1]["tool_call_id"], first);
  EXPECT_EQ(out[2]["tool_call_id"], second);
  EXPECT_EQ(out[4]["tool_call_id"], third);
}

}  // namespace
}  // namespace reprise::server::mistral_prompts_test

// Requests as Codex and Claude Code send them (tests/data/dialects/agents): each is read, nothing that an agent needs
// is refused, and what is left out is named.
#include <set>

#include "server/dialect_fixture.h"

namespace reprise::server::agents_test {
namespace {

using Names = std::set<std::string>;

class AgentsTest : public DialectTest {
 protected:
  GenerateCall call_of(const Dialect& dialect, const char* file) {
    return call(dialect, expected_stream((std::string("agents/") + file).c_str()).c_str());
  }
  static Names named(const GenerateCall& c) {
    Names out;
    for (const FieldWarning& w : c.warnings) EXPECT_TRUE(out.insert(w.field).second) << w.field << " is named twice";
    return out;
  }
  // In this order.
  static void expect_in(const std::string& prompt, const std::vector<std::string>& parts) {
    size_t at = 0;
    for (const std::string& part : parts) {
      const size_t found = prompt.find(part, at);
      ASSERT_NE(found, std::string::npos) << part << " is not behind byte " << at << " of\n" << prompt;
      at = found + part.size();
    }
  }
};

TEST_F(AgentsTest, CodexBegins) {
  const GenerateCall c = call_of(responses_dialect(), "codex_first.json");
  EXPECT_EQ(named(c), (Names{"tools.tool_search", "tools.web_search", "tools.image_generation", "tools.local_shell",
                             "tools.custom.format", "text.verbosity"}));
  EXPECT_TRUE(c.stream);
  EXPECT_EQ(c.grammar, nullptr);
  ASSERT_EQ(c.prompt_texts.size(), 1u);
  expect_in(c.prompt_texts[0],
            {R"("name": "exec_command")", R"("name": "write_stdin")", R"("name": "update_plan")",
             R"("name": "apply_patch")", R"("name": "mcp__docs__search")", "<system>You are a coding agent",
             "<permissions>", "<user># AGENTS.md", "<environment_context>", "<user>Why does the build fail?"});
  for (const char* not_here : {"tool_search", "web_search", "image_generation", "local_shell", "0199a213"})
    EXPECT_EQ(c.prompt_texts[0].find(not_here), std::string::npos) << not_here;
}

TEST_F(AgentsTest, CodexGoesOn) {
  const GenerateCall c = call_of(responses_dialect(), "codex_later.json");
  EXPECT_EQ(named(c), (Names{"tools.custom.format", "input.web_search_call", "input.tool_search_call",
                             "input.tool_search_output", "input.compaction", "input.agent_message.encrypted_content"}));
  EXPECT_NE(c.grammar, nullptr);
  EXPECT_TRUE(c.split.calls_alone) << "an answer of the schema, or a call";
  expect_in(c.prompt_texts[0],
            {R"("name": "exec_command")", R"("name": "mcp__docs__search")", R"("name": "view_file")",
             "<user>Fix the test.", "<think>I should look first.</think>I look at the test.",
             R"("name": "exec_command", "arguments": {"cmd": "cat test.py"})",
             R"("name": "mcp__docs__search", "arguments": {"query": "assert"})", "<tool>assert 1 == 2",
             "<tool>An assertion fails when it is false.", "<user>The helper has found the line.",
             R"("name": "apply_patch", "arguments": {"input": "*** Begin Patch)", "<tool>Done."});
}

// A tool of a namespace is called by both names, and the client is told them apart.
TEST_F(AgentsTest, CodexIsToldWhichToolIsCalled) {
  const GenerateCall c = call_of(responses_dialect(), "codex_first.json");
  const std::vector<std::string> pieces = {
      R"(<tool_call>{"name": "mcp__docs__search", "arguments": {"query": "x"}}</tool_call>)",
      R"(<tool_call>{"name": "apply_patch", "arguments": {"input": "*** Begin Patch"}}</tool_call>)",
      R"(<tool_call>{"name": "exec_command", "arguments": {"cmd": "ls"}}</tool_call>)"};
  std::vector<Json> done;
  for (const auto& [name, event] : named_events(stream(responses_dialect(), c, pieces)))
    if (name == "response.output_item.done") done.push_back(event["item"]);
  const Json items = whole(responses_dialect(), c, pieces)["output"];
  ASSERT_EQ(done.size(), 3u);
  ASSERT_EQ(items.size(), 3u);
  for (const Json& list : {Json(done), items}) {
    EXPECT_EQ(list[0]["type"], "function_call");
    EXPECT_EQ(list[0]["name"], "search");
    EXPECT_EQ(list[0]["namespace"], "mcp__docs");
    EXPECT_EQ(Json::parse(list[0]["arguments"].get<std::string>()), (Json{{"query", "x"}}));
    EXPECT_EQ(list[1]["type"], "custom_tool_call");
    EXPECT_EQ(list[1]["name"], "apply_patch");
    EXPECT_EQ(list[1]["input"], "*** Begin Patch");
    EXPECT_EQ(list[2]["name"], "exec_command");
    EXPECT_FALSE(list[2].contains("namespace"));
  }
}

TEST_F(AgentsTest, CodexIsToldWhatIsWrong) {
  const auto at = [&](const std::string& more) { return refused(responses_dialect(), "{" + more + "}").param; };
  const std::string space = R"("input": "a", "tools": [{"type": "namespace", "name": "n", )";
  EXPECT_EQ(at(space + R"("tools": 5}])"), "tools[0].tools");
  EXPECT_EQ(at(space + R"("tools": [{"name": "f"}]}])"), "tools[0].tools[0]");
  EXPECT_EQ(at(space + R"("tools": [{"type": "function"}]}])"), "tools[0].tools[0].name");
  EXPECT_EQ(at(R"("input": "a", "tools": [{"type": "namespace", "tools": []}])"), "tools[0].name");
  EXPECT_EQ(at(R"("input": [{"type": "additional_tools", "tools": 5}, {"role": "user", "content": "a"}])"),
            "input[0].tools");
  EXPECT_EQ(at(R"("input": [{"type": "item_reference", "id": "x"}])"), "input[0]");
  EXPECT_EQ(at(R"("input": [{"type": "agent_message", "content": [{"type": "input_image"}]}])"), "input[0].content[0]");
  EXPECT_EQ(at(R"("input": [{"type": "function_call", "call_id": "c", "name": "f", "namespace": {},
                  "arguments": "{}"}])"),
            "input[0].namespace");
  // Hosted tools and namespaces count, too.
  std::string many;
  for (int i = 0; i < 128; ++i) many += R"({"type": "web_search"},)";
  many.pop_back();
  EXPECT_EQ(at(space + R"("tools": [)" + many + "]}]"), "tools");
  EXPECT_TRUE(std::holds_alternative<GenerateCall>(
      responses_dialect().parse(OrderedJson::parse(R"({"input": "a", "tools": [)" + many + "]}"), model_, limits_)));
  limits_.strict_fields = true;
  EXPECT_EQ(at(R"("input": [{"type": "compaction"}, {"role": "user", "content": "a"}])"), "input.compaction");
}

TEST_F(AgentsTest, ClaudeCodeBegins) {
  const GenerateCall c = call_of(messages_dialect(), "claude_code_first.json");
  EXPECT_EQ(named(c), (Names{"system", "tools.web_search_20250305", "context_management"}));
  EXPECT_TRUE(c.stream);
  EXPECT_EQ(c.sampling.max_new_tokens, 32000);
  expect_in(
      c.prompt_texts[0],
      {R"("name": "Bash")", R"("name": "Read")", R"("name": "mcp__docs__search")",
       "<system>You are Claude Code, Anthropic's official CLI for Claude.\nYou help with the work in a repository.",
       "<user><system-reminder>", "Why does the build fail?"});
  for (const char* not_here : {"billing-header", "web_search", "device_id"})
    EXPECT_EQ(c.prompt_texts[0].find(not_here), std::string::npos) << not_here;
  // Every request of a conversation begins as the one before it did.
  const std::string body = expected_stream("agents/claude_code_first.json");
  std::string next = body;
  next.replace(next.find("cch=fa690"), 9, "cch=77777");
  EXPECT_EQ(call(messages_dialect(), next.c_str()).prompts, c.prompts);
}

TEST_F(AgentsTest, ClaudeCodeGoesOn) {
  const GenerateCall c = call_of(messages_dialect(), "claude_code_later.json");
  EXPECT_EQ(named(c), Names{"thinking.budget_tokens"});
  expect_in(c.prompt_texts[0],
            {"<system>You are Claude Code, Anthropic's official CLI for Claude.\nThe user has changed the mode.",
             "<user>Fix the test.", "<think>I should look first.</think>I look at the test.",
             R"("name": "Bash", "arguments": {"command": "cat test.py"})",
             R"("name": "Read", "arguments": {"file_path": "/src/a"})", "<tool>assert 1 == 2",
             "<tool>Error: There is no such file.", "<user>[Request interrupted by user]", "<user>Go on."});
}

TEST_F(AgentsTest, ClaudeCodeAsksForATitle) {
  const GenerateCall c = call_of(messages_dialect(), "claude_code_title.json");
  EXPECT_EQ(named(c), Names{"system"});
  EXPECT_NE(c.grammar, nullptr);
  EXPECT_EQ(c.sampling.max_new_tokens, 512);
}

}  // namespace
}  // namespace reprise::server::agents_test

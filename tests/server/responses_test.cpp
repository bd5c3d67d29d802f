// OpenAI's Responses: what a body becomes, what is written, and the route.
#include <regex>

#include "server/dialect_fixture.h"

namespace reprise::server::responses_test {
namespace {

class ResponsesTest : public DialectTest {};
class ResponsesServerTest : public DialectServerTest {};

const Dialect& kDialect = responses_dialect();

TEST_F(ResponsesTest, ABodyIsTheConversationThatItSays) {
  for (const auto& [ours, openai] : std::vector<std::pair<const char*, const char*>>{
           {R"({"input": "Hi"})", R"({"messages": [{"role": "user", "content": "Hi"}]})"},
           {R"({"instructions": "Be brief.", "input": [
                {"role": "developer", "content": "Say it in French."},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"},
                                                                {"type": "input_text", "text": "b"}]}]})",
            R"({"messages": [{"role": "system", "content": "Be brief.\nSay it in French."},
                             {"role": "user", "content": "a\nb"}]})"},
           {R"({"input": [
                {"role": "user", "content": "look"},
                {"type": "reasoning", "id": "rs_1", "summary": [],
                 "content": [{"type": "reasoning_text", "text": "hm"}]},
                {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                 "content": [{"type": "output_text", "text": "So.", "annotations": []}]},
                {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{\"a\": 1}"},
                {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "free text"},
                {"type": "function_call_output", "call_id": "c1", "output": "3"},
                {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "4"}]},
                {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "x"},
                {"role": "assistant", "content": "Done."},
                {"role": "user", "content": "and?"}],
                "tools": [{"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}},
                          {"type": "web_search"}, {"type": "custom", "name": "g"}]})",
            R"({"messages": [
                {"role": "user", "content": "look"},
                {"role": "assistant", "content": "So.", "reasoning_content": "hm", "tool_calls": [
                  {"function": {"name": "f", "arguments": {"a": 1}}},
                  {"function": {"name": "g", "arguments": {"input": "free text"}}}]},
                {"role": "tool", "content": "3"}, {"role": "tool", "content": "4"},
                {"role": "assistant", "content": "Done."}, {"role": "user", "content": "and?"}],
                "tools": [{"type": "function", "function": {"name": "f", "description": "d",
                           "parameters": {"type": "object"}}},
                          {"type": "function", "function": {"name": "g", "parameters": {"type": "object",
                           "properties": {"input": {"type": "string"}}, "required": ["input"],
                           "additionalProperties": false}}}]})"},
           {R"({"input": "a", "reasoning": {"effort": "none"}})",
            R"({"messages": [{"role": "user", "content": "a"}], "reasoning_effort": "none"})"},
           {R"({"input": "a", "chat_template_kwargs": {"enable_thinking": false}})",
            R"({"messages": [{"role": "user", "content": "a"}],
                "chat_template_kwargs": {"enable_thinking": false}})"}}) {
    const GenerateCall got = call(kDialect, ours), want = call(chat_dialect(), openai);
    EXPECT_EQ(got.prompt_texts, want.prompt_texts);
    EXPECT_EQ(got.prompts, want.prompts);
    EXPECT_EQ(got.split.tools, want.split.tools);
  }
}

TEST_F(ResponsesTest, FieldsOfTheCall) {
  const GenerateCall c = call(kDialect, R"({"model": "m", "input": "a", "max_output_tokens": 7, "temperature": 0.5,
      "top_p": 0.25, "top_k": 3, "min_p": 0.125, "repetition_penalty": 1.5, "seed": 9, "stop": "x", "stream": true,
      "cache_salt": "s", "top_logprobs": 2, "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
      "store": true, "user": "me", "metadata": {"a": "b"}, "truncation": "disabled",
      "tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "function", "name": "f"}})");
  EXPECT_EQ(c.sampling.max_new_tokens, 7);
  EXPECT_EQ(c.sampling.temperature, 0.5);
  EXPECT_EQ(c.sampling.top_p, 0.25);
  EXPECT_EQ(c.sampling.top_k, 3);
  EXPECT_EQ(c.sampling.min_p, 0.125);
  EXPECT_EQ(c.sampling.repetition_penalty, 1.5);
  EXPECT_EQ(c.sampling.seed, 9u);
  EXPECT_EQ(c.sampling.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(c.sampling.logprobs, 2);
  EXPECT_EQ(c.cache_salt, "s");
  EXPECT_TRUE(c.stream);
  EXPECT_EQ(c.split.tool, "f");
  EXPECT_NE(c.grammar, nullptr);
  EXPECT_TRUE(c.warnings.empty());
  for (const char* format : {R"({"type": "json_object"})",
                             R"({"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true})"})
    EXPECT_NE(call(kDialect, (R"({"input": "a", "text": {"format": )" + std::string(format) + "}}").c_str()).grammar,
              nullptr);
  std::vector<std::string> named;
  for (const FieldWarning& w : call(kDialect, R"({"input": "a", "truncation": "auto", "tools": [{"type": "mcp"}],
      "include": ["file_search_call.results"], "text": {"verbosity": "low"}, "something": 1})")
                                   .warnings)
    named.push_back(w.field);
  EXPECT_EQ(named, (std::vector<std::string>{"truncation", "something", "include.file_search_call.results", "tools.mcp",
                                             "text.verbosity"}));
}

TEST_F(ResponsesTest, WhatIsWrongIsNamed) {
  for (const auto& [body, param] : std::vector<std::pair<std::string, std::string>>{
           {R"({})", "input"},
           {R"({"input": []})", "input"},
           {R"({"input": 5})", "input"},
           {R"({"input": "a", "previous_response_id": "resp_1"})", "previous_response_id"},
           {R"({"input": "a", "conversation": "c"})", "conversation"},
           {R"({"input": "a", "background": true})", "background"},
           {R"({"input": "a", "max_output_tokens": 0})", "max_output_tokens"},
           {R"({"input": "a", "temperature": 3})", "temperature"},
           {R"({"input": "a", "include": "x"})", "include"},
           {R"({"input": "a", "metadata": []})", "metadata"},
           {R"({"input": "a", "text": {"format": {"type": "xml"}}})", "text.format"},
           {R"({"input": "a", "reasoning": {"effort": "some"}})", "reasoning.effort"},
           {R"({"input": "a", "tools": [{"type": "function"}]})", "tools[0].name"},
           {R"({"input": "a", "tools": [{"type": "function", "name": "f", "parameters": 5}]})", "tools[0].parameters"},
           {R"({"input": "a", "tool_choice": {"type": "web_search"}})", "tool_choice"},
           {R"({"input": "a", "tool_choice": "required"})", "tool_choice"},
           {R"({"input": [5]})", "input[0]"},
           {R"({"input": [{"type": "item_reference", "id": "x"}]})", "input[0]"},
           {R"({"input": [{"role": "robot", "content": "a"}]})", "input[0].role"},
           {R"({"input": [{"role": "user"}]})", "input[0].content"},
           {R"({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]})",
            "input[0].content[0].image_url"},
           {R"({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]})", "input[0].arguments"},
           {R"({"input": [{"type": "function_call_output", "output": "a"}]})", "input[0].call_id"}})
    EXPECT_EQ(refused(kDialect, body).param, param) << body;
}

TEST_F(ResponsesTest, EventsByteForByte) {
  GenerateCall c = call(kDialect, R"({"input": "a", "stream": true, "tools": [{"type": "function", "name": "look"}]})");
  c.id = "resp_1";
  const std::string got = stream(kDialect, c,
                                 {"<think>Let ", "me.</think>", "I look.", "<tool_call>",
                                  R"({"name": "look", "arguments": {"at": "x"}})", "</tool_call>"});
  // The response at both ends is long, and is looked at below.
  const std::regex response(R"re("response":\{.*\}\}\n)re");
  EXPECT_EQ(std::regex_replace(got, response, "\"response\":R}\n"), expected_stream("responses_events.txt"));
  const auto events = named_events(got);
  const Json begun = events.front().second["response"], done = events.back().second["response"];
  EXPECT_EQ(begun["status"], "in_progress");
  EXPECT_EQ(begun["output"], Json::array());
  EXPECT_EQ(begun["usage"], nullptr);
  EXPECT_EQ(done["status"], "completed");
  EXPECT_EQ(done["id"], "resp_1");
  EXPECT_EQ(done["output"].size(), 3u);
  EXPECT_EQ(done["tools"], (Json::array({{{"type", "function"}, {"name", "look"}}})));
  EXPECT_EQ(done["usage"], (Json{{"input_tokens", 20},
                                 {"input_tokens_details", {{"cached_tokens", 8}, {"cache_write_tokens", 0}}},
                                 {"output_tokens", 5},
                                 {"output_tokens_details", {{"reasoning_tokens", 0}}},
                                 {"total_tokens", 25}}));
}

TEST_F(ResponsesTest, EveryCutOfTheTextGivesTheWholeResponse) {
  GenerateCall c = call(kDialect, R"({"input": "a", "tools": [{"type": "function", "name": "look"}]})");
  c.id = "resp_1";
  Json want = whole(kDialect, c, {kFullAnswer});
  ASSERT_EQ(want["output"].size(), 3u);
  EXPECT_EQ(want["output"][0]["content"][0]["text"], "Let me see.");
  EXPECT_EQ(want["output"][1]["content"][0]["text"], "I look it up.");
  EXPECT_EQ(want["output"][2]["arguments"], R"({"at":"x"})");
  for (size_t cut = 0; cut <= kFullAnswer.size(); ++cut) {
    const auto events = named_events(stream(kDialect, c, {kFullAnswer.substr(0, cut), kFullAnswer.substr(cut)}));
    std::map<std::string, std::string> texts;
    for (size_t i = 0; i < events.size(); ++i) {
      const auto& [name, data] = events[i];
      EXPECT_EQ(data["sequence_number"], i);
      if (name.ends_with(".delta")) texts[data["item_id"]] += data["delta"].get<std::string>();
    }
    EXPECT_EQ(events.back().second["response"]["output"], want["output"]) << cut;
    EXPECT_EQ(texts, (std::map<std::string, std::string>{
                         {"rs_1_0", "Let me see."}, {"msg_1_1", "I look it up."}, {"fc_1_2", R"({"at":"x"})"}}))
        << cut;
  }
}

TEST_F(ResponsesTest, ACustomToolTakesText) {
  const GenerateCall c = call(kDialect, R"({"input": "a", "tools": [{"type": "custom", "name": "patch"}]})");
  const std::string answer = R"(<tool_call>{"name": "patch", "arguments": {"input": "a\nb"}}</tool_call>)";
  const Json item = whole(kDialect, c, {answer})["output"][0];
  EXPECT_EQ(item["type"], "custom_tool_call");
  EXPECT_EQ(item["input"], "a\nb");
  std::vector<std::string> names;
  for (const auto& [name, data] : named_events(stream(kDialect, c, {answer})))
    if (name.find("custom_tool") != std::string::npos) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"response.custom_tool_call_input.delta",
                                             "response.custom_tool_call_input.done"}));
}

TEST_F(ResponsesTest, EndsOfAnswers) {
  const GenerateCall c = call(kDialect, R"({"input": "a", "max_output_tokens": 5})");
  End end;
  end.finish = sched::FinishReason::Length;
  EXPECT_EQ(whole(kDialect, c, {"x"}, end)["incomplete_details"], (OrderedJson{{"reason", "max_output_tokens"}}));
  EXPECT_EQ(named_events(stream(kDialect, c, {"x"}, end)).back().first, "response.incomplete");
  end.finish = sched::FinishReason::Cancelled;
  end.status = error(Code::Cancelled, "it was aborted");
  const auto failed = named_events(stream(kDialect, c, {"x"}, end)).back();
  EXPECT_EQ(failed.first, "response.failed");
  EXPECT_EQ(failed.second["response"]["error"], (Json{{"code", "server_error"}, {"message", "it was aborted"}}));
  const auto writer = kDialect.writer(model_, c);
  const auto late = named_events(writer->admitted(0, 0) + writer->error(ApiError::late("too late"))).back();
  EXPECT_EQ(late.first, "response.failed");
  EXPECT_EQ(late.second["response"]["error"]["code"], "deadline_exceeded");
}

TEST_F(ResponsesServerTest, SaysWhatTheModelSays) {
  start_with_letters();
  const std::string want = greedy("lets look my friend ", 12);
  Json body = {{"model", "fake"},
               {"max_output_tokens", 12},
               {"temperature", 0},
               {"instructions", "lets look"},
               {"input", "my friend"}};
  const Json whole = post("/v1/responses", body);
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], want);
  EXPECT_EQ(whole["usage"]["input_tokens"], 20);
  EXPECT_EQ(whole["store"], false);
  body["stream"] = true;
  HttpClient c(http_->port());
  std::string text;
  const auto events = named_events(c.post("/v1/responses", body.dump()).body);
  for (const auto& [name, data] : events)
    if (name == "response.output_text.delta") text += data["delta"].get<std::string>();
  EXPECT_EQ(text, want);
  EXPECT_EQ(events.back().second["response"]["status"], whole["status"]);
  EXPECT_EQ(c.get("/v1/responses/resp_1").status, 404);
  EXPECT_EQ(post("/v1/responses", {{"input", "a"}, {"previous_response_id", "resp_1"}}, 400)["error"]["param"],
            "previous_response_id");
  EXPECT_EQ(Json::parse(c.get("/requests").body)["recent"][0]["route"], "/v1/responses");
}

}  // namespace
}  // namespace reprise::server::responses_test

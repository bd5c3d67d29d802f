// Anthropic's Messages: what a body becomes, what is written, and the routes.
#include <thread>

#include "server/dialect_fixture.h"

namespace reprise::server::messages_test {
namespace {

using Case = std::pair<const char*, const char*>;

class MessagesTest : public DialectTest {};
class MessagesServerTest : public DialectServerTest {};

const Dialect& kDialect = messages_dialect();

// The same conversation in OpenAI's form gives the same prompt.
TEST_F(MessagesTest, ABodyIsTheConversationThatItSays) {
  for (const auto& [ours, openai] : std::vector<Case>{
           {R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]})",
            R"({"messages": [{"role": "user", "content": "Hi"}]})"},
           {R"({"max_tokens": 9, "system": "Be brief.", "messages": [
                {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]})",
            R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a\nb"}]})"},
           {R"({"max_tokens": 9, "system": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}],
                "messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "Three."}]})",
            R"({"messages": [{"role": "system", "content": "One.\nTwo.\nThree."}, {"role": "user", "content": "a"}]})"},
           {R"({"max_tokens": 9, "messages": [
                {"role": "user", "content": "look"},
                {"role": "assistant", "content": [
                  {"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "So."},
                  {"type": "redacted_thinking", "data": "x"},
                  {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": [1, null]}}]},
                {"role": "user", "content": [
                  {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "3"}]},
                  {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no", "is_error": true},
                  {"type": "tool_result", "tool_use_id": "toolu_3"},
                  {"type": "text", "text": "and?"}]}],
                "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}},
                          {"type": "web_search_20250305", "name": "web_search"}]})",
            R"({"messages": [
                {"role": "user", "content": "look"},
                {"role": "assistant", "content": "So.", "reasoning_content": "hm", "tool_calls": [
                  {"id": "toolu_1", "type": "function", "function": {"name": "f", "arguments": {"a": [1, null]}}}]},
                {"role": "tool", "content": "3"}, {"role": "tool", "content": "Error: no"},
                {"role": "tool", "content": ""}, {"role": "user", "content": "and?"}],
                "tools": [{"type": "function", "function": {"name": "f", "description": "d",
                           "parameters": {"type": "object"}}}]})"},
           {R"({"max_tokens": 9, "thinking": {"type": "disabled"}, "messages": [{"role": "user", "content": "a"}]})",
            R"({"messages": [{"role": "user", "content": "a"}], "reasoning_effort": "none"})"}}) {
    const GenerateCall got = call(kDialect, ours), want = call(chat_dialect(), openai);
    EXPECT_EQ(got.prompt_texts, want.prompt_texts);
    EXPECT_EQ(got.prompts, want.prompts);
    EXPECT_EQ(got.split.tools, want.split.tools);
    EXPECT_EQ(got.split.reasoning, want.split.reasoning);
  }
}

TEST_F(MessagesTest, FieldsOfTheCall) {
  const GenerateCall c =
      call(kDialect, R"({"model": "m", "max_tokens": 7, "temperature": 0.5, "top_p": 0.25, "top_k": 3,
      "stop_sequences": ["x", "y"], "stream": true, "metadata": {"user_id": "me"},
      "messages": [{"role": "user", "content": "a"}],
      "tools": [{"name": "f", "input_schema": {"type": "object"}}, {"name": "g", "input_schema": {"type": "object"}}],
      "tool_choice": {"type": "any", "disable_parallel_tool_use": true}})");
  EXPECT_EQ(c.sampling.max_new_tokens, 7);
  EXPECT_EQ(c.sampling.temperature, 0.5);
  EXPECT_EQ(c.sampling.top_p, 0.25);
  EXPECT_EQ(c.sampling.top_k, 3);
  EXPECT_EQ(c.sampling.stop, (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(c.stream);
  EXPECT_EQ(c.n, 1);
  EXPECT_EQ(c.split.tools, ToolFormat::List);
  EXPECT_NE(c.grammar, nullptr);
  EXPECT_TRUE(c.warnings.empty());
  EXPECT_TRUE(c.id.starts_with("msg_"));
  EXPECT_EQ(call(kDialect, R"({"max_tokens": 7, "messages": [{"role": "user", "content": "a"}],
      "tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_choice": {"type": "tool", "name": "f"}})")
                .split.tool,
            "f");
  EXPECT_NE(call(kDialect, R"({"max_tokens": 7, "messages": [{"role": "user", "content": "a"}],
      "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}})")
                .grammar,
            nullptr);
}

TEST_F(MessagesTest, WhatIsLeftOutIsNamed) {
  const auto named = [&](const char* more) {
    std::vector<std::string> out;
    const std::string body =
        R"({"max_tokens": 7, "messages": [{"role": "user", "content": "a"}], )" + std::string(more) + "}";
    for (const FieldWarning& w : call(kDialect, body.c_str()).warnings) out.push_back(w.field);
    return out;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(named(R"("tools": [{"type": "web_search_20250305", "name": "web_search"}])"),
            Names{"tools.web_search_20250305"});
  EXPECT_EQ(named(R"("thinking": {"type": "enabled", "budget_tokens": 2048})"), Names{"thinking.budget_tokens"});
  EXPECT_EQ(named(R"("mcp_servers": [{"url": "x"}])"), Names{"mcp_servers"});
  EXPECT_EQ(named(R"("cache_control": {"type": "ephemeral"}, "service_tier": "auto")"), Names{});
  EXPECT_EQ(named(R"("something": 1)"), Names{"something"});
  // It is different in every request, and would keep every prefix from being found.
  const char* billed = R"({"max_tokens": 7, "messages": [{"role": "user", "content": "a"}], "system": [
      {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=1f;"},
      {"type": "text", "text": "Hi."}]})";
  EXPECT_EQ(call(kDialect, billed).warnings.at(0).field, "system");
  EXPECT_EQ(prompt(kDialect, billed), "<system>Hi.<user>a<assistant>");
  // Text that is not in front is the user's own.
  const char* quoted = R"({"max_tokens": 7, "messages": [{"role": "user", "content": "a"}], "system": [
      {"type": "text", "text": "Hi."}, {"type": "text", "text": "x-anthropic-billing-header: x"}]})";
  EXPECT_EQ(prompt(kDialect, quoted), "<system>Hi.\nx-anthropic-billing-header: x<user>a<assistant>");
  EXPECT_TRUE(call(kDialect, quoted).warnings.empty());
  limits_.keep_attribution = true;
  EXPECT_EQ(prompt(kDialect, billed),
            "<system>x-anthropic-billing-header: cc_version=2; cch=1f;\nHi.<user>a<assistant>");
  EXPECT_TRUE(call(kDialect, billed).warnings.empty());
  limits_.keep_attribution = false;
}

TEST_F(MessagesTest, WhatIsWrongIsNamed) {
  const std::string messages = R"("messages": [{"role": "user", "content": "a"}])";
  for (const auto& [body, param] : std::vector<std::pair<std::string, std::string>>{
           {"{" + messages + "}", "max_tokens"},
           {R"({"max_tokens": 0, )" + messages + "}", "max_tokens"},
           {R"({"max_tokens": 1, "temperature": 1.5, )" + messages + "}", "temperature"},
           {R"({"max_tokens": 1, "stop_sequences": "a", )" + messages + "}", "stop_sequences"},
           {R"({"max_tokens": 1, "stop_sequences": [""], )" + messages + "}", "stop_sequences"},
           {R"({"max_tokens": 1, "model": "other", )" + messages + "}", "model"},
           {R"({"max_tokens": 1, "metadata": 5, )" + messages + "}", "metadata"},
           {R"({"max_tokens": 1, "thinking": {"type": "on"}, )" + messages + "}", "thinking.type"},
           {R"({"max_tokens": 1, "thinking": 1, )" + messages + "}", ""},
           {R"({"max_tokens": 1, "system": 5, )" + messages + "}", "system"},
           {R"({"max_tokens": 1, "system": [{"type": "image"}], )" + messages + "}", "system[0]"},
           {R"({"max_tokens": 1, "tool_choice": "auto", )" + messages + "}", "tool_choice"},
           {R"({"max_tokens": 1, "tool_choice": {"type": "any"}, )" + messages + "}", "tool_choice"},
           {R"({"max_tokens": 1, "tools": [{"name": "f"}], )" + messages + "}", "tools[0].input_schema"},
           {R"({"max_tokens": 1, "tools": [{"name": "f g", "input_schema": {}}], )" + messages + "}", "tools[0]"},
           {R"({"max_tokens": 1, "output_config": {"format": {"type": "text"}}, )" + messages + "}",
            "output_config.format"},
           {R"({"max_tokens": 1, "messages": []})", "messages"},
           {R"({"max_tokens": 1, "messages": [{"role": "robot", "content": "a"}]})", "messages[0].role"},
           {R"({"max_tokens": 1, "messages": [{"role": "user"}]})", "messages[0].content"},
           {R"({"max_tokens": 1, "messages": [{"role": "user", "content": [5]}]})", "messages[0].content[0]"},
           {R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "text"}]}]})",
            "messages[0].content[0].text"},
           {R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]})",
            "messages[0].content[0].source"},
           {R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "tool_result"}]}]})",
            "messages[0].content[0].tool_use_id"},
           {R"({"max_tokens": 1, "messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f"}]}]})",
            "messages[0].content[0].input"}}) {
    const ApiError e = refused(kDialect, body);
    EXPECT_EQ(e.param, param) << e.message << " for " << body;
    EXPECT_FALSE(e.message.empty());
  }
}

TEST_F(MessagesTest, EventsByteForByte) {
  GenerateCall c = call(kDialect, R"({"max_tokens": 50, "stream": true, "messages": [{"role": "user", "content": "a"}],
      "tools": [{"name": "look", "input_schema": {"type": "object"}}]})");
  c.id = "msg_1";
  c.prompts.front().resize(20);
  const std::string got = stream(kDialect, c,
                                 {"<think>Let ", "me see.</think>", "I ", "look.", "<tool_call>",
                                  R"({"name": "look", "arguments": {"at": "x"}})", "</tool_call>"});
  EXPECT_EQ(got, expected_stream("messages_events.txt"));
}

// The message that a client puts together from the events.
Json put_together(const std::string& body) {
  Json message;
  int open = -1;
  std::string input;
  for (const auto& [name, data] : named_events(body)) {
    if (name == "message_start") {
      EXPECT_TRUE(message.is_null());
      message = data["message"];
    } else if (name == "content_block_start") {
      EXPECT_EQ(open, -1);
      open = data["index"];
      EXPECT_EQ(open, static_cast<int>(message["content"].size()));
      message["content"].push_back(data["content_block"]);
      input.clear();
    } else if (name == "content_block_delta") {
      EXPECT_EQ(open, data["index"].get<int>());
      Json& block = message["content"][data["index"].get<size_t>()];
      const std::string type = data["delta"]["type"], of = block["type"];
      EXPECT_EQ(of, type == "text_delta" ? "text" : type == "input_json_delta" ? "tool_use" : "thinking");
      if (type == "input_json_delta")
        block["input"] = Json::parse(input += data["delta"]["partial_json"].get<std::string>());
      else if (type != "signature_delta")
        block[of] = block[of].get<std::string>() + data["delta"][of].get<std::string>();
    } else if (name == "content_block_stop") {
      EXPECT_EQ(open, data["index"].get<int>());
      open = -1;
    } else if (name == "message_delta") {
      message.update(data["delta"]);
      message["usage"].update(data["usage"]);
    }
  }
  EXPECT_EQ(open, -1);
  return message;
}

TEST_F(MessagesTest, EveryCutOfTheTextGivesTheWholeMessage) {
  const GenerateCall c = call(kDialect, R"({"max_tokens": 50, "messages": [{"role": "user", "content": "0123456789"}],
      "tools": [{"name": "look", "input_schema": {"type": "object"}}]})");
  End end;
  end.prompt = static_cast<int64_t>(c.prompts.front().size());
  const Json want = whole(kDialect, c, {kFullAnswer}, end);
  ASSERT_EQ(want["content"].size(), 3u);
  EXPECT_EQ(want["content"][0], (Json{{"type", "thinking"}, {"thinking", "Let me see."}, {"signature", ""}}));
  EXPECT_EQ(want["content"][1], (Json{{"type", "text"}, {"text", "I look it up."}}));
  EXPECT_EQ(want["content"][2],
            (Json{{"type", "tool_use"}, {"id", "toolu_1"}, {"name", "look"}, {"input", {{"at", "x"}}}}));
  EXPECT_EQ(want["stop_reason"], "tool_use");
  EXPECT_EQ(want["usage"]["input_tokens"], end.prompt - 8);
  EXPECT_EQ(want["usage"]["cache_read_input_tokens"], 8);
  for (size_t cut = 0; cut <= kFullAnswer.size(); ++cut)
    EXPECT_EQ(put_together(stream(kDialect, c, {kFullAnswer.substr(0, cut), kFullAnswer.substr(cut)}, end)), want)
        << cut;
}

TEST_F(MessagesTest, ReasonsToStop) {
  const GenerateCall c = call(kDialect, R"({"max_tokens": 5, "messages": [{"role": "user", "content": "a"}]})");
  using sched::FinishReason;
  const auto stop = [&](FinishReason finish, int64_t tokens, const std::string& string = "") {
    End end;
    end.finish = finish;
    end.tokens = tokens;
    end.stop_string = string;
    const Json w = whole(kDialect, c, {"x"}, end);
    EXPECT_EQ(put_together(stream(kDialect, c, {"x"}, end))["stop_reason"], w["stop_reason"]);
    EXPECT_EQ(w["stop_sequence"], string.empty() ? Json(nullptr) : Json(string));
    return w["stop_reason"];
  };
  EXPECT_EQ(stop(FinishReason::Stop, 3), "end_turn");
  EXPECT_EQ(stop(FinishReason::Stop, 3, "END"), "stop_sequence");
  EXPECT_EQ(stop(FinishReason::Length, 5), "max_tokens");
  EXPECT_EQ(stop(FinishReason::Length, 3), "model_context_window_exceeded");
  EXPECT_EQ(stop(FinishReason::Cancelled, 3), nullptr);
}

TEST_F(MessagesServerTest, SaysWhatTheModelSays) {
  start_with_letters();
  const std::string want = greedy("lets look my friend ", 12);
  ASSERT_GT(want.size(), 3u);
  Json body = {{"model", "fake"},
               {"max_tokens", 12},
               {"temperature", 0},
               {"system", "lets look"},
               {"messages", {{{"role", "user"}, {"content", "my friend"}}}}};
  const Json message = post("/v1/messages", body);
  EXPECT_EQ(message["content"], (Json::array({{{"type", "text"}, {"text", want}}})));
  EXPECT_EQ(message["usage"]["input_tokens"], 20);
  body["stream"] = true;
  HttpClient c(http_->port());
  const HttpAnswer a = c.post("/v1/messages?beta=true", body.dump(), "x-request-id: mine\r\n");
  EXPECT_EQ(a.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(a.headers.at("request-id"), "mine");
  Json streamed = put_together(a.body);
  EXPECT_EQ(streamed["content"], message["content"]);
  // The second time the prompt was in the cache, and the first event says so.
  EXPECT_EQ(streamed["usage"]["cache_read_input_tokens"].get<int>() + streamed["usage"]["input_tokens"].get<int>(), 20);
  EXPECT_EQ(streamed["usage"]["output_tokens"], message["usage"]["output_tokens"]);
  body.erase("stream");
  body.erase("max_tokens");
  EXPECT_EQ(post("/v1/messages/count_tokens", body), (Json{{"input_tokens", 20}}));
}

TEST_F(MessagesServerTest, CallsAToolThatItMust) {
  start_with_letters();
  const Json tool = {{"name", "find"},
                     {"input_schema",
                      {{"type", "object"},
                       {"properties", {{"age", {{"enum", {"one", "two"}}}}}},
                       {"required", {"age"}},
                       {"additionalProperties", false}}}};
  const Json message = post("/v1/messages", {{"max_tokens", 200},
                                             {"messages", {{{"role", "user"}, {"content", "go"}}}},
                                             {"tools", {tool}},
                                             {"tool_choice", {{"type", "tool"}, {"name", "find"}}}});
  ASSERT_EQ(message["content"].size(), 1u) << message;
  EXPECT_EQ(message["content"][0]["type"], "tool_use");
  EXPECT_EQ(message["content"][0]["name"], "find");
  EXPECT_TRUE(message["content"][0]["input"].contains("age"));
  EXPECT_EQ(message["stop_reason"], "tool_use");
}

TEST_F(MessagesServerTest, ErrorsHaveAnthropicsForm) {
  ApiOptions options;
  options.api_key = "secret";
  start_with_letters(options);
  const Json body = {{"max_tokens", 1}, {"messages", {{{"role", "user"}, {"content", "go"}}}}};
  // Who is refused before the body is read has the connection closed.
  const auto send = [&](const Json& json, const std::string& headers = "") {
    return HttpClient(http_->port())
        .post("/v1/messages", json.is_string() ? json.get<std::string>() : json.dump(), headers);
  };
  const auto get = [&](const char* path, const char* headers) { return HttpClient(http_->port()).get(path, headers); };
  const auto error = [&](const HttpAnswer& a, int status, const char* type) {
    EXPECT_EQ(a.status, status) << a.body;
    const Json e = Json::parse(a.body);
    EXPECT_EQ(e["type"], "error");
    EXPECT_EQ(e["error"]["type"], type);
    EXPECT_FALSE(e["error"]["message"].get<std::string>().empty());
    EXPECT_EQ(e["request_id"], a.headers.at("request-id"));
  };
  error(send(body), 401, "authentication_error");
  error(send(body, "x-api-key: wrong\r\n"), 401, "authentication_error");
  error(send(body, "x-api-key: secret\r\nauthorization: Bearer other\r\n"), 401, "authentication_error");
  EXPECT_EQ(send(body, "x-api-key: secret\r\n").status, 200);
  EXPECT_EQ(send(body, "x-api-key: secret\r\nauthorization: Bearer secret\r\n").status, 200);
  const char* key = "x-api-key: secret\r\n";
  error(send("{}", key), 400, "invalid_request_error");
  error(send("{", key), 400, "invalid_request_error");
  Json other = body;
  other["model"] = "claude";
  error(send(other, key), 404, "not_found_error");
  error(get("/v1/messages/batches", key), 404, "not_found_error");
  error(get("/v1/messages", key), 405, "invalid_request_error");
  api_->drain();
  error(send(body, key), 503, "overloaded_error");
}

TEST_F(MessagesServerTest, ModelsInAnthropicsForm) {
  start_with_letters();
  model_.created = 0;
  HttpClient c(http_->port());
  const Json list = Json::parse(c.get("/v1/models", "anthropic-version: 2023-06-01\r\n").body);
  EXPECT_EQ(list["data"][0]["type"], "model");
  EXPECT_EQ(list["data"][0]["id"], "fake");
  EXPECT_EQ(list["data"][0]["created_at"], "1970-01-01T00:00:00Z");
  EXPECT_EQ(list["first_id"], "fake");
  EXPECT_EQ(list["has_more"], false);
  EXPECT_EQ(Json::parse(c.get("/v1/models/fake", "anthropic-version: 2023-06-01\r\n").body), list["data"][0]);
  EXPECT_EQ(Json::parse(c.get("/v1/models").body)["object"], "list");
}

TEST_F(MessagesServerTest, SilenceIsBrokenByPings) {
  ApiOptions options;
  options.ping_every = std::chrono::milliseconds(2);
  start_with_letters(options);
  executor_->during_step = [] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); };
  HttpClient c(http_->port());
  const Json body = {{"max_tokens", 4}, {"stream", true}, {"messages", {{{"role", "user"}, {"content", "go"}}}}};
  const std::string text = c.post("/v1/messages", body.dump()).body;
  const auto events = named_events(text);
  EXPECT_GT(std::count_if(events.begin(), events.end(), [](const auto& e) { return e.first == "ping"; }), 1) << text;
  EXPECT_EQ(events.back().first, "message_stop");
}

}  // namespace
}  // namespace reprise::server::messages_test

// `reprise serve` as a process: starts before its model is there, answers like `generate`, ends politely.
#include <gtest/gtest.h>

#include <regex>

#include "apps/serving.h"
#include "support/http_client.h"

namespace reprise::apps::serve_test {
namespace {

using testing_support::HttpAnswer;
using testing_support::HttpClient;

TEST(Serve, AnswersLikeGenerateWhateverElseRuns) {
  const Model model;
  Server server(model, "--access-log");
  ASSERT_NE(server.port(), 0) << server.said();
  std::vector<std::unique_ptr<HttpClient>> others;
  for (int i = 0; i < 12; ++i) {
    others.push_back(std::make_unique<HttpClient>(server.port()));
    const std::string body = OrderedJson{
        {"prompt", std::string(static_cast<size_t>(20 * i + 3), 'q')},
        {"max_tokens", 60},
        {"ignore_eos", true},
        {"stream", i % 2 == 0}}.dump();
    others.back()->send(fmt::format("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{}",
                                    body.size(), body));
  }
  const std::string prompt = "once upon a time";
  const OrderedJson alone = json_of(run_binary(
      "generate " + model.flags() + " --json --temperature 0 --max-new-tokens 30 --prompt '" + prompt + "'"));
  HttpClient c(server.port());
  for (int i = 0; i < 2; ++i) {  // the second time from the prefix cache
    const HttpAnswer a = c.post(
        "/v1/completions",
        OrderedJson{{"prompt", prompt}, {"max_tokens", 30}, {"temperature", 0}, {"return_token_ids", true}}.dump());
    ASSERT_EQ(a.status, 200) << a.body;
    const OrderedJson out = OrderedJson::parse(a.body);
    EXPECT_EQ(out["choices"][0]["text"], alone["output"]["text"]);
    EXPECT_EQ(out["choices"][0]["token_ids"], alone["output"]["token_ids"]);
  }
  const HttpAnswer chat =
      c.post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5})");
  EXPECT_EQ(chat.status, 200) << chat.body;
  EXPECT_EQ(OrderedJson::parse(chat.body)["usage"]["prompt_tokens"], std::string("<user>hi<assistant>").size());
  for (auto& o : others) EXPECT_TRUE(o->read().complete);
  const std::string metrics = c.get("/metrics").body;
  EXPECT_NE(metrics.find("reprise:graph_replays_total{model_name="), std::string::npos);
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0);
  const std::regex line(
      R"(\n\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info    request request_id=req-\S+ client=127\.0\.0\.1 )"
      R"(method=POST path=/v1/chat/completions model=\S+ stream=false n=1 prompt_tokens=19 )"
      R"(cached_tokens=\d+ completion_tokens=\d+ finish=(length|stop) queued_ms=[\d.]+ )"
      R"(ttft_ms=[\d.]+ status=200 bytes=\d+ total_ms=[\d.]+\n)");
  EXPECT_TRUE(std::regex_search(server.said(), line)) << server.said();
}

// Whatever is logged, from the first line to the last, progress included.
TEST(Serve, EveryLineOfALogInJsonIsAnObject) {
  const Model model;
  Server server(model, "--access-log --log-format json --api-key secret");
  ASSERT_NE(server.port(), 0) << server.said();
  EXPECT_EQ(HttpClient(server.port()).post("/v1/completions", R"({"prompt": "my words", "max_tokens": 3})").status,
            401);
  HttpClient c(server.port());
  EXPECT_EQ(c.post("/v1/completions", R"({"prompt": "my words", "max_tokens": 3, "stream": true})",
                   "authorization: Bearer secret\r\n")
                .status,
            200);
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0);
  EXPECT_EQ(server.said().find("my words"), std::string::npos);
  EXPECT_EQ(server.said().find("secret"), std::string::npos);
  std::istringstream lines(server.said());
  std::vector<OrderedJson> requests;
  for (std::string line; std::getline(lines, line);) {
    const OrderedJson j = OrderedJson::parse(line, nullptr, false);
    ASSERT_TRUE(j.is_object() && j.contains("ts") && j.contains("level") && j.contains("msg")) << line;
    if (j["msg"] == "request") requests.push_back(j);
  }
  ASSERT_EQ(requests.size(), 2u) << server.said();
  EXPECT_EQ(requests[0]["status"], 401);
  EXPECT_EQ(requests[1]["completion_tokens"], 3);
  EXPECT_EQ(requests[1]["stream"], true);
  EXPECT_GT(requests[1]["ttft_ms"], 0.0);
}

TEST(Serve, AnswersHaveTheFormThatIsAskedFor) {
  const Model model;
  Server server(model, "");
  ASSERT_NE(server.port(), 0) << server.said();
  HttpClient c(server.port());
  const OrderedJson schema = {
      {"type", "object"},
      {"properties",
       {{"name", {{"enum", {"a b", "ü"}}}}, {"count", {{"type", "integer"}, {"minimum", 1}, {"maximum", 42}}}}},
      {"required", {"name", "count"}},
      {"additionalProperties", false}};
  const auto ask = [&](const std::string& route, OrderedJson more, int status = 200) {
    OrderedJson body = {{"max_tokens", 120}, {"temperature", 1}, {"seed", 3}, {"n", 3}};
    if (route == "/v1/completions")
      body["prompt"] = "x";
    else
      body["messages"] = {{{"role", "user"}, {"content", "x"}}};
    body.update(more);
    const HttpAnswer a = c.post(route, body.dump());
    EXPECT_EQ(a.status, status) << a.body;
    return OrderedJson::parse(a.body, nullptr, false);
  };
  // By value: a loop over a part of a temporary would outlive it.
  const auto choices = [&](const std::string& route, OrderedJson more) {
    return OrderedJson(ask(route, std::move(more))["choices"]);
  };
  const OrderedJson format = {{"type", "json_schema"}, {"json_schema", {{"name", "n"}, {"schema", schema}}}};
  for (const OrderedJson& choice : choices("/v1/chat/completions", {{"response_format", format}})) {
    const OrderedJson out = OrderedJson::parse(choice["message"]["content"].get<std::string>(), nullptr, false);
    ASSERT_TRUE(out.is_object()) << choice;
    EXPECT_TRUE(out["name"] == "a b" || out["name"] == "ü");
    EXPECT_GE(out["count"].get<int>(), 1);
    EXPECT_LE(out["count"].get<int>(), 42);
    EXPECT_EQ(choice["finish_reason"], "stop");
  }
  for (const OrderedJson& choice : choices("/v1/completions", {{"regex", "[a-f]{4}-[0-9]{2}"}}))
    EXPECT_TRUE(std::regex_match(choice["text"].get<std::string>(), std::regex("[a-f]{4}-[0-9]{2}"))) << choice;
  for (const OrderedJson& choice :
       choices("/v1/completions", {{"structured_outputs", {{"choice", {"yes", "no"}}}}, {"ignore_eos", true}})) {
    const auto text = choice["text"].get<std::string>();
    EXPECT_TRUE(text == "yes" || text == "no") << choice;
  }
  // Beside one that may say anything.
  EXPECT_EQ(ask("/v1/completions", {{"n", 1}})["choices"].size(), 1u);

  const auto wrong = [&](OrderedJson more, const std::string& param) {
    const OrderedJson out = ask("/v1/completions", std::move(more), 400);
    EXPECT_EQ(out["error"]["param"], param) << out;
  };
  wrong({{"regex", "(a"}}, "response_format");
  wrong({{"regex", "((a{1000}){1000}){1000}"}}, "response_format");
  wrong({{"regex", 3}}, "regex");
  wrong({{"regex", "a"}, {"json_schema", schema}}, "json_schema");
  wrong({{"json_schema", {{"type", "object"}, {"not", schema}}}}, "response_format");
  wrong({{"response_format", {{"type", "xml"}}}}, "response_format");
  wrong({{"structured_outputs", {{"grammar", "root ::= x"}}}}, "structured_outputs.grammar");
  wrong({{"ebnf", "root ::= x"}}, "ebnf");
}

TEST(Serve, CallsToolsThatItMustCall) {
  const Model model(2048);  // a byte is a token here, and the template shows no tools, so the system turn does
  Server server(model, "--tool-call-parser hermes --reasoning-parser qwen3");
  ASSERT_NE(server.port(), 0) << server.said();
  HttpClient c(server.port());
  const auto tool = [](const char* name, OrderedJson properties) {
    OrderedJson required = OrderedJson::array();
    for (const auto& [key, value] : properties.items()) required.push_back(key);
    return OrderedJson{{"type", "function"},
                       {"function",
                        {{"name", name},
                         {"parameters",
                          {{"type", "object"},
                           {"properties", std::move(properties)},
                           {"required", std::move(required)},
                           {"additionalProperties", false}}}}}};
  };
  const OrderedJson tools = {tool("weather", {{"city", {{"enum", {"Paris", "Rome"}}}}}),
                             tool("clock", {{"zone", {{"type", "integer"}, {"minimum", 0}, {"maximum", 9}}}})};
  const auto ask = [&](OrderedJson more, int status = 200) {
    OrderedJson body = {
        {"messages", {{{"role", "user"}, {"content", "x"}}}}, {"max_tokens", 300}, {"seed", 5}, {"tools", tools}};
    body.update(more);
    const HttpAnswer a = c.post("/v1/chat/completions", body.dump());
    EXPECT_EQ(a.status, status) << a.body;
    return a.body;
  };
  const OrderedJson named =
      OrderedJson::parse(ask({{"tool_choice", {{"type", "function"}, {"function", {{"name", "clock"}}}}}}));
  const OrderedJson& one = named["choices"][0];
  EXPECT_EQ(one["finish_reason"], "tool_calls");
  EXPECT_TRUE(one["message"]["content"].is_null());
  ASSERT_EQ(one["message"]["tool_calls"].size(), 1u) << named;
  EXPECT_EQ(one["message"]["tool_calls"][0]["function"]["name"], "clock");
  const OrderedJson arguments =
      OrderedJson::parse(one["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>());
  EXPECT_LE(arguments["zone"].get<int>(), 9);

  const OrderedJson required = OrderedJson::parse(ask({{"tool_choice", "required"}, {"parallel_tool_calls", false}}));
  ASSERT_EQ(required["choices"][0]["message"]["tool_calls"].size(), 1u) << required;
  const std::string name = required["choices"][0]["message"]["tool_calls"][0]["function"]["name"];
  EXPECT_TRUE(name == "weather" || name == "clock");

  // Streamed: the call with its index, then the reason.
  const std::string events = ask({{"tool_choice", "required"}, {"parallel_tool_calls", false}, {"stream", true}});
  EXPECT_NE(events.find("\"tool_calls\":[{\"index\":0,\"id\":\"call_"), std::string::npos) << events;
  EXPECT_NE(events.find("\"finish_reason\":\"tool_calls\""), std::string::npos) << events;

  // A conversation with a call in it, and what is wrong.
  ask({{"messages",
        {{{"role", "user"}, {"content", "x"}},
         {{"role", "assistant"},
          {"content", nullptr},
          {"tool_calls",
           {{{"id", "call_1"},
             {"type", "function"},
             {"function", {{"name", "clock"}, {"arguments", "{\"zone\": 1}"}}}}}}},
         {{"role", "tool"}, {"tool_call_id", "call_1"}, {"content", "12:00"}}}},
       {"max_tokens", 3}});
  const auto wrong = [&](OrderedJson more, const std::string& param) {
    EXPECT_EQ(OrderedJson::parse(ask(std::move(more), 400))["error"]["param"], param);
  };
  wrong({{"tools", {{{"type", "function"}}}}}, "tools[0]");
  wrong({{"tools", "all"}}, "tools");
  wrong({{"tool_choice", "must"}}, "tool_choice");
  wrong({{"tool_choice", {{"function", {{"name", "other"}}}}}}, "tool_choice");
  wrong({{"tools", nullptr}, {"tool_choice", "required"}}, "tool_choice");
  wrong({{"tool_choice", "required"}, {"regex", "a"}}, "tool_choice");
}

// The model's template shows no tools and no way to call one.
TEST(Serve, ToolsOfAnyModelAndDoorsThatAreShut) {
  const Model model(2048);
  Server server(model, "");
  ASSERT_NE(server.port(), 0) << server.said();
  HttpClient c(server.port());
  OrderedJson body = {{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"max_tokens", 100}, {"seed", 5}};
  const auto ask = [&] {
    const HttpAnswer a = c.post("/v1/chat/completions", body.dump());
    EXPECT_EQ(a.status, 200) << a.body;
    return OrderedJson::parse(a.body);
  };
  const OrderedJson plain = ask();
  EXPECT_FALSE(plain.contains("warnings"));
  body["tools"] = OrderedJson::parse(
      R"([{"type": "function", "function": {"name": "clock", "strict": true, "parameters": {"type": "object"}}}])");
  const OrderedJson told = ask();
  EXPECT_GT(told["usage"]["prompt_tokens"].get<int>(), plain["usage"]["prompt_tokens"].get<int>() + 200);
  EXPECT_NE(told["warnings"].dump().find("strict"), std::string::npos) << told;
  // Random weights call nothing by themselves: the answer is held to the marks that the model was told.
  body["regex"] = R"(<tool_call>\{"name": "clock", "arguments": \{"zone": 1\}\}</tool_call>)";
  const OrderedJson called = ask();
  ASSERT_TRUE(called["choices"][0]["message"].contains("tool_calls")) << called;
  EXPECT_EQ(called["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], "{\"zone\":1}");
  EXPECT_EQ(called["choices"][0]["finish_reason"], "tool_calls");
  // Doors.
  const auto status = [&](const std::string& headers) {
    return HttpClient(server.port()).post("/v1/completions", R"({"prompt": "a", "max_tokens": 1})", headers).status;
  };
  EXPECT_EQ(status(""), 200);
  EXPECT_EQ(status("host: 127.0.0.1:80\r\n"), 200);
  EXPECT_EQ(status("host: evil.example\r\n"), 403);
  EXPECT_EQ(status("host: localhost\r\norigin: http://evil.example\r\n"), 403);
  EXPECT_EQ(status("host: localhost\r\ncontent-type: text/plain\r\n"), 415);
  const std::string long_prompt = OrderedJson{{"prompt", std::string(100000, 'a')}}.dump();
  const HttpAnswer a = c.post("/v1/completions", long_prompt);
  EXPECT_EQ(a.status, 400);
  EXPECT_NE(a.body.find("the prompt has 100000 bytes"), std::string::npos) << a.body;
}

// Two threads read what takes long; the end does not wait for them.
TEST(Serve, TheEndDoesNotWaitForWhatIsBeingRead) {
  const Model model;
  std::string texts = "\"a\"";
  for (int i = 0; i < 200000; ++i) texts += fmt::format(",\"text number {} of many\"", i);
  const std::string body = R"({"prompt": "x", "structured_outputs": {"choice": [)" + texts + "]}}";
  for (const bool twice : {false, true}) {
    Server server(model, "");
    ASSERT_NE(server.port(), 0) << server.said();
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < 4; ++i) {
      clients.push_back(std::make_unique<HttpClient>(server.port()));
      clients.back()->send(fmt::format(
          "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{}", body.size(), body));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto begin = std::chrono::steady_clock::now();
    server.signal(SIGTERM);
    if (twice) {
      std::this_thread::sleep_for(std::chrono::milliseconds(250));
      server.signal(SIGTERM);
    }
    const int code = server.wait();
    EXPECT_TRUE(code == 0 || (twice && code == 130)) << code << server.said();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(twice ? 3 : 12)) << server.said();
  }
}

TEST(Serve, ATermSignalLetsStreamsFinishAndASecondOneEnds) {
  const Model model;
  for (const bool twice : {false, true}) {
    Server server(model, "--shutdown-timeout 20");
    ASSERT_NE(server.port(), 0) << server.said();
    HttpClient c(server.port());
    const std::string body =
        OrderedJson{{"prompt", "abc"}, {"max_tokens", 400}, {"ignore_eos", true}, {"stream", true}, {"n", 4}}.dump();
    c.send(fmt::format("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{}", body.size(),
                       body));
    ASSERT_FALSE(c.receive().empty()) << server.said();
    server.signal(SIGTERM);
    if (twice) {
      for (int i = 0; i < 1000 && server.said().find("shutting down") == std::string::npos; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      server.signal(SIGTERM);
      const int code = server.wait();
      EXPECT_TRUE(code == 130 || code == 0) << code;  // 0: it had finished by then
      continue;
    }
    std::string rest, piece;
    while (!(piece = c.receive()).empty()) rest += piece;
    EXPECT_NE(rest.find("data: [DONE]"), std::string::npos)
        << rest.substr(rest.size() - std::min<size_t>(rest.size(), 300));
    EXPECT_EQ(server.wait(), 0);
  }
}

// As SGLang's watchdog: a step that hangs ends the process.
TEST(Serve, AStepThatHangsEndsTheProcess) {
  const Model model;
  Server server(model, "--inject-fault hang@3 --soft-watchdog-timeout 0.2 --watchdog-timeout 0.6");
  ASSERT_NE(server.port(), 0) << server.said();
  HttpClient c(server.port());
  const std::string body = R"({"prompt": "abc", "max_tokens": 50, "ignore_eos": true})";
  c.send(fmt::format("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{}", body.size(),
                     body));
  EXPECT_EQ(server.wait(), 1);
  const std::string said = server.said();
  const size_t soft = said.find("(--soft-watchdog-timeout 0.2): 1 requests run, 0 wait");
  const size_t hard = said.find("(--watchdog-timeout 0.6): 1 requests run, 0 wait");
  EXPECT_NE(soft, std::string::npos) << said;
  EXPECT_NE(hard, std::string::npos) << said;
  EXPECT_LT(soft, hard);
  EXPECT_NE(said.find("  thread "), std::string::npos) << said;
  EXPECT_NE(said.find("reprise(+0x"), std::string::npos) << "no stack\n" << said;
  EXPECT_TRUE(said.ends_with("this server has to be started again: a step hangs\n")) << said;
}

TEST(Serve, AHangIsForServeAlone) {
  for (const char* command : {"generate --prompt-ids 1", "graph verify"}) {
    const Outcome o =
        run_binary(fmt::format("{} --model-path {} --inject-fault hang@1", command, model_folder("llama_mha_untied")));
    EXPECT_EQ(o.exit_code, 2) << o.err;
    EXPECT_NE(o.err.find("hang is for serve alone"), std::string::npos) << o.err;
  }
}

TEST(Serve, SaysWhatItsFlagsMean) {
  const Model model;
  Server server(model,
                "--skip-server-warmup --schedule-policy lof --max-running-requests 4096 --tool-call-parser hermes "
                "--chunked-prefill-size -1 --max-prefill-tokens 99999");
  ASSERT_NE(server.port(), 0) << server.said();
  for (const char* part : {"notice  --skip-server-warmup: ", "notice  --max-prefill-tokens 99999: ",
                           "notice  --chunked-prefill-size -1: "})
    EXPECT_NE(server.said().find(part), std::string::npos) << part << "\n" << server.said();
  HttpClient c(server.port());
  const OrderedJson info = OrderedJson::parse(c.get("/server_info").body);
  EXPECT_EQ(info["schedule_policy"], "lof");
  EXPECT_EQ(info["max_prefill_tokens"], 99999);
  EXPECT_EQ(info["mixed_prefill_tokens"], 256);
}

TEST(Serve, WhatIsWrongIsSaidAtOnce) {
  const Model model;
  const Outcome missing = run_binary("serve --model-path /nowhere --port 0");
  EXPECT_EQ(missing.exit_code, 1);
  const Outcome port = run_binary("serve " + model.flags() + " --port 99999");
  EXPECT_EQ(port.exit_code, 2);
  Server server(model, "");
  ASSERT_NE(server.port(), 0) << server.said();
  const Outcome taken = run_binary(fmt::format("serve {} --port {}", model.flags(), server.port()));
  EXPECT_EQ(taken.exit_code, 1);
  EXPECT_NE(taken.err.find("--port chooses another"), std::string::npos) << taken.err;
}

}  // namespace
}  // namespace reprise::apps::serve_test

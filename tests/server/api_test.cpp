#include "server/api.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <thread>

#include "server/api_fixture.h"

namespace reprise::server::api_test {
namespace {

TEST_F(ApiTest, CompletesIdsWholeAndStreamed) {
  start();
  const Tokens prompt = sched::count_up(150), want = sched::expected(prompt, 12, true);
  Json body = ids_call(prompt, 12);
  const Json whole = post("/v1/completions", body);
  EXPECT_EQ(whole["object"], "text_completion");
  EXPECT_EQ(whole["model"], "fake");
  EXPECT_EQ(whole["choices"][0]["token_ids"], Json(want));
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 150);
  EXPECT_EQ(whole["usage"]["completion_tokens"], 12);
  EXPECT_EQ(whole["usage"]["total_tokens"], 162);

  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  HttpClient c(http_->port());
  const HttpAnswer a = c.post("/v1/completions", body.dump());
  EXPECT_EQ(a.headers.at("content-type"), "text/event-stream; charset=utf-8");
  auto list = events(a.body);
  ASSERT_GE(list.size(), 3u);
  EXPECT_EQ(list.back(), "[DONE]");
  const Json usage = Json::parse(list[list.size() - 2]);
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["prompt_tokens_details"]["cached_tokens"], 149);
  Tokens streamed;
  for (size_t i = 0; i + 2 < list.size(); ++i) {
    const Json event = Json::parse(list[i]);
    ASSERT_EQ(event["choices"].size(), 1u);
    for (int32_t t : event["choices"][0]["token_ids"].get<Tokens>()) streamed.push_back(t);
  }
  EXPECT_EQ(streamed, want);
  EXPECT_EQ(Json::parse(list[list.size() - 3])["choices"][0]["finish_reason"], "length");
  // Without the option there is no chunk without choices.
  body.erase("stream_options");
  list = events(c.post("/v1/completions", body.dump()).body);
  for (size_t i = 0; i + 1 < list.size(); ++i) EXPECT_EQ(Json::parse(list[i])["choices"].size(), 1u);
}

TEST_F(ApiTest, SeveralPromptsWithSeveralAnswersKeepTheirPlaces) {
  start();
  Json body = ids_call({}, 5);
  body["prompt"] = {sched::count_up(10), sched::count_up(20, 4), sched::count_up(140, 9)};
  body["n"] = 2;
  const Json out = post("/v1/completions", body);
  ASSERT_EQ(out["choices"].size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    const Tokens prompt = i < 2 ? sched::count_up(10) : i < 4 ? sched::count_up(20, 4) : sched::count_up(140, 9);
    EXPECT_EQ(out["choices"][i]["index"], i);
    EXPECT_EQ(out["choices"][i]["token_ids"], Json(sched::expected(prompt, 5, true)));
  }
  EXPECT_EQ(out["usage"]["prompt_tokens"], 170);
  EXPECT_EQ(out["usage"]["completion_tokens"], 30);
}

TEST_F(ApiTest, EchoTellsHowLikelyThePromptWas) {
  start();
  const Tokens prompt = sched::count_up(9);
  const Json out = post("/v1/completions",
                        {{"prompt", {prompt}}, {"max_tokens", 1}, {"temperature", 0}, {"echo", true}, {"logprobs", 1}});
  const Json& logs = out["choices"][0]["logprobs"];
  ASSERT_EQ(logs["token_logprobs"].size(), 10u);
  EXPECT_TRUE(logs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logs["top_logprobs"][0].is_null());
  for (size_t i = 1; i < 10; ++i) {
    const auto score = engine::score_token(FakeExecutor::logits_of(std::span(prompt).first(std::min<size_t>(i, 9))),
                                           i < 9 ? prompt[i] : sched::expected(prompt, 1)[0], 1);
    EXPECT_EQ(logs["token_logprobs"][i].get<float>(), *score->logprob);
    double best = -1e9;
    for (const auto& [name, value] : logs["top_logprobs"][i].items()) best = std::max(best, value.get<double>());
    EXPECT_EQ(static_cast<float>(best), score->top[0].logprob);
  }
  // Only the prompt.
  const Json none = post("/v1/completions",
                         {{"prompt", prompt}, {"max_tokens", 0}, {"temperature", 0}, {"echo", true}, {"logprobs", 1}});
  EXPECT_EQ(none["choices"][0]["logprobs"]["tokens"].size(), 9u);
  EXPECT_EQ(none["usage"]["completion_tokens"], 0);
}

TEST_F(ApiTest, NativeFormOfSglang) {
  start();
  const Tokens prompt = sched::count_up(7), want = sched::expected(prompt, 4, true);
  Json body = {{"input_ids", prompt},
               {"rid", "mine"},
               {"return_logprob", true},
               {"sampling_params", {{"max_new_tokens", 4}, {"temperature", 0}, {"ignore_eos", true}}}};
  Json out = post("/generate", body);
  EXPECT_EQ(out["output_ids"], Json(want));
  EXPECT_EQ(out["meta_info"]["id"], "mine");
  EXPECT_EQ(out["meta_info"]["completion_tokens"], 4);
  EXPECT_EQ(out["meta_info"]["finish_reason"]["type"], "length");
  EXPECT_EQ(out["meta_info"]["output_token_logprobs"].size(), 4u);
  body["input_ids"] = {prompt, prompt};
  EXPECT_EQ(post("/generate", body).size(), 2u);
  body["sampling_params"]["temperature"] = -1;
  out = post("/generate", body, 400);
  EXPECT_EQ(out["error"]["param"], "sampling_params.temperature");
}

TEST_F(ApiTest, WrongFieldsAreNamed) {
  start();
  const auto wrong = [&](const char* field, Json value, int status = 400) {
    Json body = ids_call({2, 3}, 4);
    body[field] = std::move(value);
    const Json out = post("/v1/completions", body, status);
    EXPECT_EQ(out["error"]["param"], field) << out;
    EXPECT_FALSE(out["error"]["message"].get<std::string>().empty());
  };
  wrong("temperature", 2.5);
  wrong("temperature", "hot");
  wrong("top_p", 1.5);
  wrong("top_k", -2);
  wrong("n", 0);
  wrong("n", 1000000);
  wrong("max_tokens", -1);
  wrong("max_tokens", 1e30);
  wrong("max_tokens", true);
  wrong("presence_penalty", 3);
  wrong("logprobs", 1000);
  wrong("logit_bias", {{"99", 1}});
  wrong("logit_bias", {{"3", 101}});
  wrong("logit_bias", {{"-1", 1}});
  wrong("stop", Json::array({"a", 3}));
  wrong("stop", "");
  wrong("stop_token_ids", {29});
  wrong("best_of", 3);
  wrong("suffix", "x");
  wrong("stream_options", {{"include_usage", true}});
  wrong("prompt", nullptr);
  wrong("prompt", Json::array());
  wrong("prompt", {2, 99});
  wrong("prompt", {2, "x"});
  wrong("prompt", "text without a tokenizer");
  wrong("prompt", sched::count_up(1000));
  wrong("min_tokens", 5);
  wrong("model", "another", 404);
  HttpClient c(http_->port());
  EXPECT_EQ(c.post("/v1/completions", "{").status, 400);
  EXPECT_EQ(c.post("/v1/completions", "[]").status, 400);
  EXPECT_EQ(c.post("/v1/completions", std::string(100000, '[')).status, 400);
  EXPECT_EQ(c.post("/v1/completions", "{\"prompt\": \"\xff\xfe\"}").status, 400);
  EXPECT_EQ(c.post("/v1/chat/completions", "{\"messages\": []}").status, 400);
  // Unknown fields and nulls are no errors; what is unknown is told of.
  Json body = ids_call({2, 3}, 2);
  body["user"] = "me";
  body["something_else"] = {1, 2};
  body["stop"] = nullptr;
  post("/v1/completions", body);
}

// What says which form an answer has is refused here, for the model has no tokenizer; so 200 is for what says nothing.
TEST_F(ApiTest, NullsInsideOfFieldsCountAsAbsent) {
  start();
  const auto status = [&](const char* field, const char* value) {
    Json body = ids_call({2, 3}, 2);
    body[field] = Json::parse(value);
    HttpClient c(http_->port());
    return c.post("/v1/completions", body.dump()).status;
  };
  EXPECT_EQ(status("structured_outputs", R"({"json": null, "regex": null, "choice": null})"), 200);
  EXPECT_EQ(status("structured_outputs", R"({"grammar": null})"), 200);
  EXPECT_EQ(status("structured_outputs", R"({"json": null, "regex": "a"})"), 400);
  EXPECT_EQ(status("structured_outputs", R"({"json": true, "regex": "a"})"), 400);
  EXPECT_EQ(status("structured_outputs", R"([null])"), 400);
  EXPECT_EQ(status("response_format", R"({"type": "text", "json_schema": null, "pattern": null})"), 200);
  EXPECT_EQ(status("logit_bias", R"({"3": null, "4": 1})"), 200);
  EXPECT_EQ(status("logit_bias", R"({"3": "1"})"), 400);
  Json body = ids_call({2, 3}, 2);
  body["response_format"] = Json::parse(R"({"type": "json_schema", "json_schema": {"schema": null}})");
  EXPECT_EQ(post("/v1/completions", body, 400)["error"]["param"], "response_format.json_schema");
}

TEST_F(ApiTest, RoutesMethodsAndStates) {
  start({}, {}, {8, 64, 60, 1000}, false);
  HttpClient c(http_->port());
  EXPECT_EQ(c.get("/health").status, 503);
  HttpAnswer a = c.get("/v1/models");
  EXPECT_EQ(a.status, 503);
  EXPECT_TRUE(a.headers.contains("retry-after"));
  api_->serve({&model_, replicas_.get(), metrics_.get(), Json::object()});
  EXPECT_TRUE(soon([&] { return c.get("/ready").status == 200; }));
  EXPECT_EQ(Json::parse(c.get("/v1/models").body)["data"][0]["id"], "fake");
  EXPECT_EQ(Json::parse(c.get("/v1/models").body)["data"][0]["root"], "somewhere/fake");
  EXPECT_EQ(c.get("/v1/models/fake").status, 200);
  EXPECT_EQ(c.get("/v1/models/other").status, 404);
  EXPECT_EQ(c.get("/nothing").status, 404);
  a = c.get("/v1/completions");
  EXPECT_EQ(a.status, 405);
  EXPECT_EQ(a.headers.at("allow"), "POST");
  EXPECT_EQ(c.get("/server_info").status, 200);
  EXPECT_EQ(c.get("/model_info").status, 200);
  EXPECT_EQ(c.get("/version").status, 200);
  EXPECT_EQ(c.get("/health", "x-request-id: abc\r\n").headers.at("x-request-id"), "abc");
  EXPECT_EQ(c.post("/v1/embeddings", "{}").status, 400);
  api_->drain();
  EXPECT_EQ(c.get("/ready").status, 503);
  EXPECT_EQ(c.get("/health").status, 200);
  EXPECT_EQ(c.post("/v1/completions", ids_call({2}, 1).dump()).status, 503);
}

TEST_F(ApiTest, AFailedServerIsUnhealthyWhateverComesLater) {
  start();
  api_->fail("the device is lost: a kernel failed");
  api_->drain();
  HttpClient c(http_->port());
  for (const char* path : {"/health", "/ping", "/ready", "/health_generate", "/v1/models"}) {
    const HttpAnswer a = c.get(path);
    EXPECT_EQ(a.status, 503) << path;
    EXPECT_EQ(Json::parse(a.body)["error"]["message"], "the device is lost: a kernel failed") << path;
  }
  EXPECT_EQ(c.post("/v1/completions", ids_call({2}, 1).dump()).status, 503);
}

TEST_F(ApiTest, KeysGuardEverythingButHealth) {
  ApiOptions options;
  options.api_key = "secret";
  start(options);
  HttpClient c(http_->port());
  for (const char* path : {"/v1/models", "/metrics", "/server_info", "/version"}) {
    const HttpAnswer a = c.get(path);
    EXPECT_EQ(a.status, 401) << path;
    EXPECT_EQ(Json::parse(a.body)["error"]["code"], "invalid_api_key");
    EXPECT_EQ(c.get(path, "authorization: Bearer secre\r\n").status, 401);
    EXPECT_EQ(c.get(path, "authorization: Bearer secrets\r\n").status, 401);
    EXPECT_EQ(c.get(path, "authorization: Bearer secret\r\n").status, 200);
  }
  EXPECT_EQ(c.get("/health").status, 200);
  EXPECT_EQ(c.post("/flush_cache", "").status, 401);
  EXPECT_EQ(c.post("/flush_cache", "", "authorization: Bearer secret\r\n").status, 200);
}

TEST_F(ApiTest, AdminRoutesOnAPortOfTheirOwn) {
  ApiOptions options;
  options.admin_port = true;
  options.admin_api_key = "root";
  start(options);
  HttpClient c(http_->port()), admin(http_->admin_port());
  EXPECT_EQ(c.post("/flush_cache", "").status, 403);
  EXPECT_EQ(c.post("/flush_cache", "", "authorization: Bearer root\r\n").status, 200);
  EXPECT_EQ(admin.post("/flush_cache", "").status, 200);
}

TEST_F(ApiTest, AdminRoutesAreNotForProxiesAndOtherSites) {
  ApiOptions options;
  options.admin_api_key = "root";
  start(options);
  HttpClient c(http_->port());
  const auto flush = [&](const std::string& headers) { return c.post("/flush_cache", "", headers).status; };
  EXPECT_EQ(flush(""), 200);
  EXPECT_EQ(flush("host: localhost:7\r\norigin: http://localhost:7\r\n"), 200) << "a page of this server";
  for (const char* other :
       {"origin: http://evil.example\r\n", "host: x\r\norigin: http://x\r\n", "host: x\r\n",
        "origin: http://localhost:8\r\n", "origin: null\r\n", "x-forwarded-for: 10.0.0.1\r\n",
        "forwarded: for=10.0.0.1\r\n", "x-real-ip: 10.0.0.1\r\n", "via: 1.1 proxy\r\n",
        "cf-connecting-ip: 10.0.0.1\r\n", "true-client-ip: 10.0.0.1\r\n", "x-forwarded-host: a\r\n"}) {
    EXPECT_EQ(flush(other), 403) << other;
    EXPECT_EQ(flush(std::string(other) + "authorization: Bearer root\r\n"), 200) << other;
  }
}

TEST_F(ApiTest, AFullQueueSaysWhenToComeAgain) {
  sched::SchedulerOptions scheduling;
  scheduling.max_queued = 1;
  start({}, scheduling, {1, 64, 800, 100000});
  std::vector<std::unique_ptr<HttpClient>> held;
  Json body = ids_call(sched::count_up(5), 90000);
  body["stream"] = true;
  for (int i = 0; i < 2; ++i) {
    held.push_back(std::make_unique<HttpClient>(http_->port()));
    const std::string text = body.dump();
    held.back()->send("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: " +
                      std::to_string(text.size()) + "\r\n\r\n" + text);
    ASSERT_TRUE(soon([&] { return scheduler_->stats().requests == static_cast<uint64_t>(i + 1); }));
  }
  HttpClient c(http_->port());
  const HttpAnswer a = c.post("/v1/completions", ids_call(sched::count_up(5), 3).dump());
  EXPECT_EQ(a.status, 429);
  EXPECT_TRUE(a.headers.contains("retry-after"));
  EXPECT_EQ(Json::parse(a.body)["error"]["type"], "rate_limit_error");
}

TEST_F(ApiTest, AClientThatGoesTakesItsRequestsAlong) {
  start({}, {}, {1, 64, 800, 100000});
  {
    HttpClient c(http_->port());
    Json body = ids_call(sched::count_up(5), 90000);
    body["n"] = 3;
    body["stream"] = true;
    const std::string text = body.dump();
    c.send("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: " + std::to_string(text.size()) +
           "\r\n\r\n" + text);
    EXPECT_FALSE(c.receive().empty());
  }
  EXPECT_TRUE(soon([&] { return scheduler_->idle(); }));
  EXPECT_LT(scheduler_->stats().generated_tokens, 3 * 90000u);
  post("/flush_cache", Json::object());
  EXPECT_TRUE(soon([&] { return executor_->kv_pool().free_pages() == 800; }));
}

TEST_F(ApiTest, RequestsCanBeAborted) {
  start({}, {}, {1, 64, 800, 100000});
  std::thread aborter([&] {
    EXPECT_TRUE(soon([&] { return scheduler_->stats().generated_tokens > 0; }));
    EXPECT_EQ(post("/abort_request", {{"rid", "this one"}})["aborted"], 1);
  });
  // As SGLang answers: what there is, and the reason it ended.
  const Json out =
      post("/generate", {{"input_ids", {2, 3}},
                         {"rid", "this one"},
                         {"sampling_params", {{"max_new_tokens", 90000}, {"temperature", 0}, {"ignore_eos", true}}}});
  aborter.join();
  EXPECT_EQ(out["meta_info"]["finish_reason"]["type"], "abort");
  EXPECT_FALSE(out["output_ids"].empty());
  post("/abort_request", {{"rid", "unknown"}}, 404);
  post("/abort_request", Json::object(), 400);
}

// The bytes of a request that takes long, sent and not waited for.
std::unique_ptr<HttpClient> begin(int64_t port, const std::string& path, const Json& body) {
  auto c = std::make_unique<HttpClient>(port);
  const std::string text = body.dump();
  c->send("POST " + path + " HTTP/1.1\r\nhost: localhost\r\ncontent-length: " + std::to_string(text.size()) +
          "\r\n\r\n" + text);
  return c;
}

Json long_native(const Json& rid, const Json& ids) {
  return {{"input_ids", ids},
          {"rid", rid},
          {"sampling_params", {{"max_new_tokens", 90000}, {"temperature", 0}, {"ignore_eos", true}}}};
}

TEST_F(ApiTest, AnIdBelongsToOneRequestAtATime) {
  start({}, {}, {4, 64, 3000, 100000});
  auto first = begin(http_->port(), "/generate", long_native("mine", {2, 3}));
  ASSERT_TRUE(soon([&] { return scheduler_->stats().generated_tokens > 0; }));
  for (const Json& rid : {Json("mine"), Json::array({"mine"})}) {
    const Json ids = rid.is_array() ? Json{{2, 3}} : Json{2, 3};
    const Json out = post("/generate", long_native(rid, ids), 400);
    EXPECT_EQ(out["error"]["param"], "rid") << out;
  }
  Json open_ai = ids_call({2, 3}, 4);
  open_ai["rid"] = "mine";
  EXPECT_EQ(post("/v1/completions", open_ai, 400)["error"]["param"], "rid");
  EXPECT_EQ(post("/abort_request", {{"rid", "mine"}})["aborted"], 1);
  const HttpAnswer a = first->read();
  EXPECT_EQ(a.status, 200);
  // Now it is free.
  Json again = long_native("mine", {2, 3});
  again["sampling_params"]["max_new_tokens"] = 2;
  EXPECT_EQ(post("/generate", again)["meta_info"]["id"], "mine");
  open_ai["rid"] = "other";
  EXPECT_EQ(post("/v1/completions", open_ai)["id"], "other");
}

TEST_F(ApiTest, PromptsOfARequestHaveIdsOfTheirOwn) {
  start({}, {}, {4, 64, 3000, 100000});
  const Json two = {{2, 3}, {4, 5}};
  for (const Json& wrong :
       {Json::array({"a"}), Json::array({"a", "a"}), Json::array({"a", ""}), Json::array({"a", 1}), Json(7)})
    EXPECT_EQ(post("/generate", long_native(wrong, two), 400)["error"]["param"], "rid") << wrong;
  auto both = begin(http_->port(), "/generate", long_native(Json::array({"a", "b"}), two));
  ASSERT_TRUE(soon([&] { return scheduler_->stats().running == 2; }));
  EXPECT_EQ(post("/abort_request", {{"rid", "b"}})["aborted"], 1);
  EXPECT_TRUE(soon([&] { return scheduler_->stats().running == 1; }));
  EXPECT_EQ(post("/abort_request", {{"abort_all", true}})["aborted"], 1);
  const Json out = Json::parse(both->read().body);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0]["meta_info"]["id"], "a");
  EXPECT_EQ(out[1]["meta_info"]["id"], "b");
  EXPECT_EQ(out[1]["meta_info"]["finish_reason"]["type"], "abort");
  // One text begins the id of each, and ends all.
  both = begin(http_->port(), "/generate", long_native("batch", two));
  ASSERT_TRUE(soon([&] { return scheduler_->stats().running == 2; }));
  EXPECT_EQ(post("/abort_request", {{"rid", "batch_1"}})["aborted"], 1);
  EXPECT_EQ(post("/abort_request", {{"rid", "batch"}})["aborted"], 1);
  const Json named = Json::parse(both->read().body);
  EXPECT_EQ(named[0]["meta_info"]["id"], "batch_0");
  EXPECT_EQ(named[1]["meta_info"]["id"], "batch_1");
}

TEST_F(ApiTest, AnAbortedStreamEndsWithItsReason) {
  start({}, {}, {4, 64, 3000, 100000});
  Json body = ids_call({2, 3}, 90000);
  body["stream"] = true;
  body["rid"] = "stream";
  auto c = begin(http_->port(), "/v1/completions", body);
  ASSERT_TRUE(soon([&] { return scheduler_->stats().generated_tokens > 0; }));
  EXPECT_EQ(post("/abort_request", {{"rid", "stream"}})["aborted"], 1);
  const auto list = events(c->read().body);
  ASSERT_GE(list.size(), 2u);
  EXPECT_EQ(list.back(), "[DONE]");
  EXPECT_EQ(Json::parse(list[list.size() - 2])["choices"][0]["finish_reason"], "abort");
}

TEST_F(ApiTest, NoTokensWhereNoneAreAskedFor) {
  start();
  const Json params = {{"max_new_tokens", 0}, {"temperature", 0}};
  Json native = {{"input_ids", {2, 3, 4}}, {"sampling_params", params}, {"return_logprob", true}};
  Json out = post("/generate", native);
  EXPECT_EQ(out["output_ids"], Json::array());
  EXPECT_EQ(out["text"], "");
  EXPECT_EQ(out["meta_info"]["completion_tokens"], 0);
  EXPECT_EQ(out["meta_info"]["prompt_tokens"], 3);
  EXPECT_EQ(out["meta_info"]["finish_reason"], Json({{"type", "length"}, {"length", 0}}));
  EXPECT_EQ(out["meta_info"]["output_token_logprobs"], Json::array());
  native["stream"] = true;
  HttpClient c(http_->port());
  for (const std::string& e : events(c.post("/generate", native.dump()).body))
    EXPECT_TRUE(e == "[DONE]" || Json::parse(e)["output_ids"].empty()) << e;
  Json body = ids_call({2, 3, 4}, 0);
  out = post("/v1/completions", body);
  EXPECT_EQ(out["choices"][0]["token_ids"], Json::array());
  EXPECT_EQ(out["choices"][0]["finish_reason"], "length");
  EXPECT_FALSE(out["choices"][0].contains("stop_reason"));
  EXPECT_EQ(out["usage"]["completion_tokens"], 0);
  body["stream"] = true;
  for (const std::string& e : events(c.post("/v1/completions", body.dump()).body))
    EXPECT_TRUE(e == "[DONE]" || Json::parse(e)["choices"][0]["token_ids"].empty()) << e;
}

TEST_F(ApiTest, FieldsThatChangeTheAnswerAreToldOf) {
  start();
  Json body = ids_call({2, 3}, 2);
  HttpClient c(http_->port());
  HttpAnswer a = c.post("/v1/completions", body.dump());
  EXPECT_FALSE(Json::parse(a.body).contains("warnings"));
  EXPECT_FALSE(a.headers.contains("x-reprise-warnings"));
  body["user"] = "me";
  body["grammar"] = nullptr;
  body["mirostat"] = 0;
  EXPECT_FALSE(Json::parse(c.post("/v1/completions", body.dump()).body).contains("warnings"));
  body["grammar"] = "root ::= \"a\"";
  body["temprature"] = 0;
  body["bad\r\nname: x"] = 1;
  a = c.post("/v1/completions", body.dump());
  const Json warnings = Json::parse(a.body)["warnings"];
  ASSERT_EQ(warnings.size(), 3u) << a.body;
  const std::string all = warnings.dump();
  EXPECT_NE(all.find("grammar"), std::string::npos);
  EXPECT_NE(all.find("did you mean \\\"temperature\\\""), std::string::npos) << all;
  EXPECT_EQ(a.headers.at("x-reprise-warnings"), "bad??name: x, grammar, temprature");
  // A stream says it in the header and with its end.
  body["stream"] = true;
  a = c.post("/v1/completions", body.dump());
  EXPECT_TRUE(a.headers.contains("x-reprise-warnings"));
  const auto list = events(a.body);
  EXPECT_EQ(Json::parse(list[list.size() - 2])["warnings"], warnings);
  // SGLang's form has two objects.
  const Json native = post(
      "/generate",
      {{"input_ids", {2, 3}}, {"lora_id", "x"}, {"sampling_params", {{"max_new_tokens", 1}, {"stop_regex", "a"}}}});
  const std::string of_native = native["warnings"].dump();
  EXPECT_NE(of_native.find("lora_id"), std::string::npos) << native;
  EXPECT_NE(of_native.find("sampling_params.stop_regex"), std::string::npos);
}

TEST_F(ApiTest, StrictFieldsAreErrors) {
  ApiOptions options;
  options.limits.strict_fields = true;
  start(options);
  Json body = ids_call({2, 3}, 2);
  body["user"] = "me";
  post("/v1/completions", body);
  for (const char* name : {"temprature", "grammar", "use_beam_search", "nonsense"}) {
    Json with = body;
    with[name] = 7;
    const Json out = post("/v1/completions", with, 400);
    EXPECT_EQ(out["error"]["param"], name) << out;
  }
  const Json out = post("/generate", {{"input_ids", {2, 3}}, {"sampling_params", {{"max_tokens", 1}}}}, 400);
  EXPECT_EQ(out["error"]["param"], "sampling_params.max_tokens");
}

TEST_F(ApiTest, ManyMembersAreReadInLinearTimeOrRefused) {
  start();
  HttpClient c(http_->port());
  const auto body = [](int members) {
    std::string text = R"({"prompt": [2, 3], "max_tokens": 1)";
    for (int i = 0; i < members; ++i) text += ",\"k" + std::to_string(i) + "\":0";
    return text + "}";
  };
  // The least processor time of this process, which no other load adds to.
  const auto cost = [&](int members) {
    const std::string text = body(members);
    std::clock_t least = std::numeric_limits<std::clock_t>::max();
    for (int i = 0; i < 3; ++i) {
      const std::clock_t begin = std::clock();
      EXPECT_EQ(c.post("/v1/completions", text).status, 200);
      least = std::min(least, std::clock() - begin);
    }
    return static_cast<double>(least);
  };
  // Eight times as many members cost about eight times as much; with the square of it, sixty-four times.
  const double few = cost(7500), many = cost(60000);
  EXPECT_LT(many, 30 * few);
  const HttpAnswer a = c.post("/v1/completions", body(80000));
  EXPECT_EQ(a.status, 400);
  EXPECT_NE(a.body.find("more than 65536 members"), std::string::npos) << a.body;
  EXPECT_EQ(c.post("/v1/completions", "{\"prompt\": [" + std::string(300000, '[') + "]}").status, 400);
  std::string lists = "{\"prompt\": [[]";
  for (int i = 0; i < 140000; ++i) lists += ",[]";
  EXPECT_NE(c.post("/v1/completions", lists + "]}").body.find("arrays and objects"), std::string::npos);
}

TEST_F(ApiTest, AnswersOfAKeyAreBounded) {
  ApiOptions options;
  options.api_keys = {"one", "two"};
  options.most_answers_of_key = 4;
  start(options, {}, {8, 64, 3000, 100000});
  const std::string one = "authorization: Bearer one\r\n", two = "authorization: bearer two\r\n";
  HttpClient held(http_->port());
  Json body = ids_call({2, 3}, 90000);
  body["n"] = 3;
  const std::string text = body.dump();
  held.send("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n" + one +
            "content-length: " + std::to_string(text.size()) + "\r\n\r\n" + text);
  ASSERT_TRUE(soon([&] { return scheduler_->stats().running == 3; }));
  Json small = ids_call({2, 3}, 2);
  post("/v1/completions", small, 401);
  post("/v1/completions", small, 401, "authorization: Bearer three\r\n");
  post("/v1/completions", small, 200, one);
  small["n"] = 2;
  const Json refused = post("/v1/completions", small, 429, one);
  EXPECT_EQ(refused["error"]["code"], "too_many_answers");
  post("/v1/completions", small, 200, two);
  held.close();
  EXPECT_TRUE(soon([&] { return scheduler_->idle(); }));
  HttpClient c(http_->port());
  EXPECT_TRUE(soon([&] { return c.post("/v1/completions", small.dump(), one).status == 200; }));
}

// The key and the route count before the body: none of it is waited for.
TEST_F(ApiTest, WhoMayNotAskIsToldBeforeTheBody) {
  ApiOptions options;
  options.api_key = "secret";
  start(options);
  const auto status = [&](const std::string& head) {
    HttpClient c(http_->port(), 5);
    c.send(head + "host: localhost\r\ncontent-length: 1000000\r\nexpect: 100-continue\r\n\r\n{");
    const HttpAnswer a = c.read();
    EXPECT_EQ(c.receive(), "") << "and the connection ends";
    EXPECT_TRUE(a.headers.contains("x-request-id"));
    return a.status;
  };
  EXPECT_EQ(status("POST /v1/completions HTTP/1.1\r\n"), 401);
  EXPECT_EQ(status("POST /v1/completions HTTP/1.1\r\nauthorization: Bearer wrong\r\n"), 401);
  EXPECT_EQ(status("POST /nothing HTTP/1.1\r\n"), 404);
  EXPECT_EQ(status("POST /health HTTP/1.1\r\n"), 405);
  HttpClient two(http_->port());
  EXPECT_EQ(two.get("/v1/models", "authorization: Bearer secret\r\nauthorization: Bearer wrong\r\n").status, 400);
  EXPECT_EQ(http_->counters().held_bytes, 0);
}

TEST_F(ApiTest, PagesOfOtherSitesDoNotPost) {
  start();
  const std::string body = ids_call({2, 3}, 2).dump();
  const auto status = [&](const std::string& headers) {
    HttpClient c(http_->port());
    return c.post("/v1/completions", body, headers).status;
  };
  EXPECT_EQ(status(""), 200);
  EXPECT_EQ(status("content-type: application/json\r\n"), 200);
  EXPECT_EQ(status("content-type: application/x-www-form-urlencoded\r\n"), 200) << "curl -d";
  EXPECT_EQ(status("content-type: text/plain\r\n"), 415);
  EXPECT_EQ(status("content-type: multipart/form-data; boundary=x\r\n"), 415);
  EXPECT_EQ(status("host: localhost:7\r\norigin: http://localhost:7\r\nsec-fetch-site: same-origin\r\n"), 200);
  for (const char* page : {"origin: http://evil.example\r\n", "origin: null\r\n", "sec-fetch-site: cross-site\r\n",
                           "origin: http://localhost:8\r\ncontent-type: application/x-www-form-urlencoded\r\n"})
    EXPECT_EQ(status(page), 403) << page;
}

TEST_F(ApiTest, AKeyMakesUpForTheSender) {
  ApiOptions options;
  options.api_key = "secret";
  start(options);
  const std::string key = "authorization: Bearer secret\r\n";
  HttpClient c(http_->port());
  EXPECT_EQ(c.post("/v1/completions", ids_call({2}, 1).dump(), key + "origin: http://app.example\r\n").status, 200);
  EXPECT_EQ(HttpClient(http_->port()).post("/v1/completions", "{}", "origin: http://app.example\r\n").status, 401);
}

TEST_F(ApiTest, OtherNamesOfThisMachineAreRefused) {
  ApiOptions options;
  options.allowed_hosts = {"good.example"};
  start(options);
  const auto status = [&](const std::string& host, const std::string& path) {
    HttpClient c(http_->port());
    return c.get(path, "host: " + host + "\r\n").status;
  };
  for (const char* host : {"localhost", "localhost:1", "127.0.0.1", "[::1]:9", "Good.example:443"})
    EXPECT_EQ(status(host, "/v1/models"), 200) << host;
  for (const char* host : {"evil.example", "evil.example:30000", "127.0.0.1.evil.example", "10.0.0.1"})
    for (const char* path : {"/v1/models", "/", "/health", "/metrics"})
      EXPECT_EQ(status(host, path), 403) << host << path;
  HttpClient c(http_->port());
  EXPECT_EQ(c.get("http://evil.example/v1/models", "host: localhost\r\n").status, 403) << "the target's host counts";
}

TEST_F(ApiTest, AFailedStepIsAnErrorForTheClient) {
  start();
  executor_->fail_at = 2;
  const Json out = post("/v1/completions", ids_call(sched::count_up(5), 9), 500);
  EXPECT_NE(out["error"]["message"].get<std::string>().find("the device has failed"), std::string::npos);
  post("/v1/completions", ids_call(sched::count_up(5), 9));
}

TEST_F(ApiTest, MetricsCountWhatHappened) {
  start();
  post("/v1/completions", ids_call(sched::count_up(150), 10));
  post("/v1/completions", ids_call(sched::count_up(150), 10));
  HttpClient c(http_->port());
  // A step's numbers are there when it is over, which may be a moment after its last token.
  const std::vector<std::string> lines = {
      "vllm:generation_tokens_total{model_name=\"fake\",engine=\"0\"} 20",
      "vllm:prompt_tokens_total{model_name=\"fake\",engine=\"0\"} 300",
      "vllm:prefix_cache_hits_total{model_name=\"fake\",engine=\"0\"} 149",
      "vllm:request_success_total{model_name=\"fake\",engine=\"0\",finished_reason=\"length\"} 2",
      "vllm:time_to_first_token_seconds_count{model_name=\"fake\",engine=\"0\"} 2",
      "vllm:num_requests_running{model_name=\"fake\",engine=\"0\"} 0",
      "vllm:iteration_tokens_total_count{model_name=\"fake\",engine=\"0\"} 22",
      "sglang:cached_tokens_total{model_name=\"fake\"} 149"};
  std::string text, missing;
  EXPECT_TRUE(soon([&] {
    text = "\n" + c.get("/metrics").body;
    missing.clear();
    for (const std::string& line : lines)
      if (text.find("\n" + line + "\n") == std::string::npos) missing += line + "\n";
    return missing.empty();
  })) << missing
      << text;
  EXPECT_NE(text.find("reprise:http_responses_total{model_name=\"fake\",status=\"200\"} "), std::string::npos);
}

TEST_F(ApiTest, ManyStreamsAtOnceLoseNothing) {
  start({}, {}, {16, 256, 200, 400});
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int32_t i = 0; i < 300; ++i) {
    clients.push_back(std::make_unique<HttpClient>(http_->port()));
    Json body = ids_call(sched::count_up(3 + i % 40, i), 15);
    body["stream"] = true;
    const std::string text = body.dump();
    clients.back()->send("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: " +
                         std::to_string(text.size()) + "\r\n\r\n" + text);
  }
  for (int32_t i = 0; i < 300; ++i) {
    const HttpAnswer a = clients[static_cast<size_t>(i)]->read();
    ASSERT_TRUE(a.complete) << i;
    Tokens streamed;
    for (const std::string& e : events(a.body))
      if (e != "[DONE]")
        for (int32_t t : Json::parse(e)["choices"][0]["token_ids"].get<Tokens>()) streamed.push_back(t);
    EXPECT_EQ(streamed, sched::expected(sched::count_up(3 + i % 40, i), 15, true)) << i;
  }
}

}  // namespace
}  // namespace reprise::server::api_test

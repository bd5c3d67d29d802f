// GET /requests: what it tells of calls that run and of those that ended, and to whom.
#include <gtest/gtest.h>

#include <set>

#include "server/api_fixture.h"
#include "server/request_log.h"

namespace reprise::server::requests_test {
namespace {

class RequestsTest : public ApiTest {
 protected:
  Json list() {
    HttpClient c(http_->port());
    const HttpAnswer a = c.get("/requests");
    EXPECT_EQ(a.status, 200) << a.body;
    return Json::parse(a.body, nullptr, false);
  }
  // The last call that ended, when there are so many.
  Json last(uint64_t ended) {
    Json out;
    EXPECT_TRUE(soon([&] { return (out = list())["ended_total"] == ended; })) << out;
    return out["recent"].empty() ? Json() : out["recent"][0];
  }
  // Sent and not waited for.
  std::unique_ptr<HttpClient> begin(const std::string& path, const Json& body) {
    auto c = std::make_unique<HttpClient>(http_->port());
    const std::string text = body.dump();
    c->send("POST " + path + " HTTP/1.1\r\nhost: localhost\r\ncontent-length: " + std::to_string(text.size()) +
            "\r\n\r\n" + text);
    return c;
  }
  static Json long_call(const std::string& id) {
    Json body = ids_call({2, 3, 4}, 90000);
    body["rid"] = id;
    return body;
  }
};

TEST_F(RequestsTest, AFinishedCall) {
  start();
  const Json prompt = sched::count_up(150);
  post("/v1/completions", ids_call(prompt, 10));
  Json r = last(1);
  EXPECT_TRUE(r["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(r["route"], "/v1/completions");
  EXPECT_EQ(r["state"], "finished");
  EXPECT_EQ(r["prompt_tokens"], 150);
  EXPECT_EQ(r["cached_tokens"], 0);
  EXPECT_EQ(r["generated_tokens"], 10);
  EXPECT_EQ(r["answers"], 1);
  EXPECT_EQ(r["stream"], false);
  EXPECT_EQ(r["finish_reasons"], Json::array({"length"}));
  EXPECT_GT(r["created"], 1700000000);
  EXPECT_GT(r["time_to_first_token"], 0);
  EXPECT_GT(r["elapsed"], r["time_to_first_token"]);
  EXPECT_GT(r["tokens_per_second"], 0);
  // Two prompts with two answers each: a prompt counts once.
  Json several = ids_call({}, 4);
  several["prompt"] = {prompt, {2, 3}};
  several["n"] = 2;
  several["stream"] = true;
  several["rid"] = "mine";
  HttpClient c(http_->port());
  EXPECT_EQ(c.post("/v1/completions", several.dump()).status, 200);
  r = last(2);
  EXPECT_EQ(r["id"], "mine");
  EXPECT_EQ(r["stream"], true);
  EXPECT_EQ(r["answers"], 4);
  EXPECT_EQ(r["prompt_tokens"], 152);
  EXPECT_EQ(r["cached_tokens"], 149);
  EXPECT_EQ(r["generated_tokens"], 16);
  EXPECT_EQ(r["finish_reasons"], Json::array({"length"}));
  // Nothing is said.
  post("/generate", {{"input_ids", {2, 3}}, {"sampling_params", {{"max_new_tokens", 0}}}});
  r = last(3);
  EXPECT_EQ(r["route"], "/generate");
  EXPECT_EQ(r["generated_tokens"], 0);
  EXPECT_EQ(r["state"], "finished");
}

TEST_F(RequestsTest, CallsThatRunAndWait) {
  start({}, {}, {1, 64, 800, 100000});
  const auto running = begin("/v1/completions", long_call("first"));
  ASSERT_TRUE(soon([&] { return scheduler_->stats().generated_tokens > 2; }));
  const auto waiting = begin("/v1/completions", long_call("second"));
  Json out;
  // What a step made reaches the list a moment later.
  ASSERT_TRUE(soon([&] {
    out = list();
    return out["running_total"] == 2 && out["running"][0]["generated_tokens"] > 2;
  })) << out;
  EXPECT_EQ(out["ended_total"], 0);
  EXPECT_EQ(out["recent"], Json::array());
  const Json first = out["running"][0], second = out["running"][1];
  EXPECT_EQ(first["id"], "first");
  EXPECT_EQ(first["state"], "running");
  EXPECT_EQ(first["prompt_tokens"], 3);
  EXPECT_EQ(first["cached_tokens"], 0);
  EXPECT_GT(first["time_to_first_token"], 0);
  EXPECT_GT(first["tokens_per_second"], 0);
  EXPECT_EQ(first["finish_reasons"], Json::array());
  EXPECT_EQ(second["id"], "second");
  EXPECT_EQ(second["state"], "queued");
  EXPECT_EQ(second["cached_tokens"], nullptr);
  EXPECT_EQ(second["generated_tokens"], 0);
  EXPECT_EQ(second["time_to_first_token"], nullptr);
  EXPECT_EQ(second["tokens_per_second"], nullptr);
}

TEST_F(RequestsTest, APreemptedCallWaits) {
  sched::SchedulerOptions options;
  options.preemption_threshold = 0;
  start({}, options, {1, 64, 800, 100000});
  const auto preempted = begin("/v1/completions", long_call("first"));
  ASSERT_TRUE(soon([&] { return scheduler_->stats().generated_tokens > 2; }));
  Json urgent = long_call("urgent");
  urgent["priority"] = 1;
  const auto other = begin("/v1/completions", urgent);
  Json out;
  const auto states = [&](const char* first, const char* second) {
    out = list();
    const Json& running = out["running"];
    return running.size() == 2 && running[0]["state"] == first && running[1]["state"] == second;
  };
  EXPECT_TRUE(soon([&] { return states("preempted", "running"); })) << out;
  post("/abort_request", {{"rid", "urgent"}});
  EXPECT_TRUE(soon([&] {
    out = list();
    return out["running_total"] == 1 && out["running"][0]["state"] == "running";
  })) << out;
}

TEST_F(RequestsTest, AbortedCalls) {
  start({}, {}, {2, 64, 800, 100000});
  const auto c = begin("/v1/completions", long_call("mine"));
  ASSERT_TRUE(soon([&] { return scheduler_->stats().generated_tokens > 0; }));
  post("/abort_request", {{"rid", "mine"}});
  EXPECT_EQ(c->read().status, 200);
  Json r = last(1);
  EXPECT_EQ(r["state"], "aborted");
  EXPECT_EQ(r["finish_reasons"], Json::array({"abort"}));
  // The client goes away.
  Json streamed = long_call("other");
  streamed["stream"] = true;
  {
    const auto gone = begin("/v1/completions", streamed);
    EXPECT_FALSE(gone->receive().empty());
  }
  r = last(2);
  EXPECT_EQ(r["id"], "other");
  EXPECT_EQ(r["state"], "aborted");
  EXPECT_EQ(r["finish_reasons"], Json::array({"disconnect"}));
  EXPECT_GT(r["generated_tokens"], 0);
}

TEST_F(RequestsTest, FailedCalls) {
  start({}, {}, {2, 64, 800, 100000});
  executor_->fail_at = 2;
  post("/v1/completions", ids_call(sched::count_up(5), 9), 500);
  Json r = last(1);
  EXPECT_EQ(r["state"], "failed");
  EXPECT_EQ(r["finish_reasons"], Json::array({"error"}));
  Json late = long_call("late");
  late["timeout"] = 0.05;
  post("/v1/completions", late, 504);
  r = last(2);
  EXPECT_EQ(r["id"], "late");
  EXPECT_EQ(r["state"], "failed");
  EXPECT_EQ(r["finish_reasons"], Json::array({"timeout"}));
  // What is refused is no call that ran.
  post("/v1/completions", {{"prompt", ""}}, 400);
  EXPECT_EQ(list()["ended_total"], 2);
}

TEST_F(RequestsTest, HoldsNoText) {
  start();
  for (const char* path : {"/v1/completions", "/generate"}) {
    Json body = ids_call({2, 3, 4}, 5);
    if (path == std::string("/generate"))
      body = {{"input_ids", {2, 3, 4}}, {"sampling_params", {{"max_new_tokens", 5}, {"ignore_eos", true}}}};
    body["user"] = "somebody";
    post(path, body);
  }
  last(2);
  const std::set<std::string> known = {"id",
                                       "route",
                                       "state",
                                       "created",
                                       "stream",
                                       "answers",
                                       "prompt_tokens",
                                       "cached_tokens",
                                       "generated_tokens",
                                       "elapsed",
                                       "time_to_first_token",
                                       "tokens_per_second",
                                       "finish_reasons"};
  const Json listed = list();
  for (const Json& r : listed["recent"]) {
    std::set<std::string> names;
    for (const auto& [name, value] : r.items()) {
      names.insert(name);
      EXPECT_TRUE(!value.is_string() || name == "id" || name == "route" || name == "state") << name;
    }
    EXPECT_EQ(names, known);
  }
}

TEST_F(RequestsTest, IsForAdministratorsAlone) {
  ApiOptions options;
  options.admin_api_key = "root";
  start(options);
  HttpClient c(http_->port());
  EXPECT_EQ(c.get("/requests").status, 200);
  EXPECT_EQ(c.get("/requests", "host: localhost:7\r\norigin: http://localhost:7\r\n").status, 200);
  for (const char* other : {"origin: http://evil.example\r\n", "sec-fetch-site: cross-site\r\n", "host: x\r\n",
                            "x-forwarded-for: 10.0.0.1\r\n", "origin: null\r\n"}) {
    EXPECT_EQ(c.get("/requests", other).status, 403) << other;
    EXPECT_EQ(c.get("/requests", std::string(other) + "authorization: Bearer root\r\n").status, 200) << other;
  }
}

TEST_F(RequestsTest, AsksForTheKeyToo) {
  ApiOptions options;
  options.api_key = "secret";
  options.admin_port = true;
  start(options);
  HttpClient c(http_->port()), admin(http_->admin_port());
  const std::string key = "authorization: Bearer secret\r\n";
  EXPECT_EQ(c.get("/requests").status, 401);
  EXPECT_EQ(c.get("/requests", key).status, 403);
  EXPECT_EQ(admin.get("/requests").status, 401);
  EXPECT_EQ(admin.get("/requests", key).status, 200);
}

TEST(RequestLog, IsBounded) {
  RequestLog log;
  std::vector<RequestRecord> running(250);
  for (int i = 0; i < 250; ++i) {
    RequestRecord r;
    r.id = std::to_string(i);
    log.add(r);
    running[static_cast<size_t>(i)].elapsed_s = i;
    running[static_cast<size_t>(i)].id = "r" + std::to_string(i);
  }
  const OrderedJson out = log.json(running);
  EXPECT_EQ(out["ended_total"], 250);
  EXPECT_EQ(out["running_total"], 250);
  ASSERT_EQ(out["recent"].size(), RequestLog::kMostRecent);
  EXPECT_EQ(out["recent"].front()["id"], "249") << "the last one first";
  EXPECT_EQ(out["recent"].back()["id"], "150");
  ASSERT_EQ(out["running"].size(), RequestLog::kMostRunning);
  EXPECT_EQ(out["running"].front()["id"], "r249") << "the oldest first";
}

}  // namespace
}  // namespace reprise::server::requests_test

// Deadlines by HTTP, and when a full queue says to come again.
#include "server/api_fixture.h"

namespace reprise::server::deadline_test {
namespace {

// One row and steps of 2 ms, so a long answer outlasts every deadline here.
class DeadlineTest : public ApiTest {
 protected:
  void SetUp() override {
    sched::SchedulerOptions scheduling;
    scheduling.max_queued = 2;
    start({}, scheduling, {1, 64, 800, 100000});
    executor_->during_step = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  }
  // A stream of 90,000 tokens that is left unread; it ends with its client.
  void hold(int64_t most = 90000) {
    held_.push_back(std::make_unique<HttpClient>(http_->port()));
    Json body = ids_call(sched::count_up(5), most);
    body["stream"] = true;
    const std::string text = body.dump();
    const uint64_t before = scheduler_->stats().requests;
    held_.back()->send("POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: " + std::to_string(text.size()) +
                       "\r\n\r\n" + text);
    ASSERT_TRUE(soon([&] { return scheduler_->stats().requests == before + 1; }));
  }
  static Json call(double timeout, bool stream = false) {
    Json body = ids_call(sched::count_up(7), 90000);
    body["timeout"] = timeout;
    body["stream"] = stream;
    return body;
  }
  static void expect_late(const HttpAnswer& a) {
    EXPECT_EQ(a.status, 504) << a.body;
    ASSERT_TRUE(a.headers.contains("x-should-retry"));
    EXPECT_EQ(a.headers.at("x-should-retry"), "false");
    const Json error = Json::parse(a.body, nullptr, false)["error"];
    EXPECT_EQ(error["code"], "deadline_exceeded");
    EXPECT_NE(error["message"].get<std::string>().find("deadline"), std::string::npos);
  }
  std::vector<std::unique_ptr<HttpClient>> held_;
};

TEST_F(DeadlineTest, EndsWhatRuns) {
  HttpClient c(http_->port());
  expect_late(c.post("/v1/completions", call(0.05).dump()));
  EXPECT_TRUE(soon([&] { return scheduler_->idle(); }));
  EXPECT_GT(scheduler_->stats().generated_tokens, 0u);
  expect_late(c.post("/generate", Json{{"input_ids", {2, 3}},
                                       {"timeout", 0.05},
                                       {"sampling_params", {{"max_new_tokens", 90000}, {"ignore_eos", true}}}}
                                      .dump()));
  Json short_one = ids_call(sched::count_up(5), 3);
  short_one["timeout"] = 60;
  post("/v1/completions", short_one);
}

TEST_F(DeadlineTest, EndsWhatWaits) {
  hold();
  HttpClient c(http_->port());
  expect_late(c.post("/v1/completions", call(0.05).dump()));
  expect_late(c.post("/v1/completions", call(0.05, true).dump()));
  EXPECT_EQ(scheduler_->stats().waiting, 0);
}

TEST_F(DeadlineTest, AStreamThatHasBegunEndsWithTheError) {
  HttpClient c(http_->port());
  const HttpAnswer a = c.post("/v1/completions", call(0.2, true).dump());
  EXPECT_EQ(a.status, 200);
  EXPECT_TRUE(a.complete);
  const auto all = events(a.body);
  ASSERT_GE(all.size(), 3u);
  EXPECT_EQ(all.back(), "[DONE]");
  EXPECT_FALSE(Json::parse(all.front())["choices"][0]["token_ids"].empty());
  EXPECT_EQ(Json::parse(all[all.size() - 2])["error"]["code"], "deadline_exceeded");
}

TEST_F(DeadlineTest, TheHeaderCountsWhereItIsEarlier) {
  HttpClient c(http_->port());
  expect_late(c.post("/v1/completions", call(1000).dump(), "x-request-timeout: 0.05\r\n"));
  expect_late(c.post("/v1/completions", call(0.05).dump(), "x-request-timeout: 1000\r\n"));
  for (const char* wrong : {"soon", "0", "-1", "1e99", "5s", "nan"}) {
    const HttpAnswer a = c.post("/v1/completions", call(1).dump(), fmt::format("x-request-timeout: {}\r\n", wrong));
    EXPECT_EQ(a.status, 400) << wrong;
    EXPECT_NE(a.body.find("X-Request-Timeout"), std::string::npos);
  }
  for (const Json& wrong : {Json("5"), Json(0), Json(-3), Json(1e9)}) {
    Json body = call(1);
    body["timeout"] = wrong;
    EXPECT_EQ(post("/v1/completions", body, 400)["error"]["param"], "timeout");
  }
}

// Two milliseconds a token: what waits here takes 2, 20 and 180 s.
TEST_F(DeadlineTest, RetryAfterFollowsTheQueue) {
  post("/v1/completions", ids_call(sched::count_up(5), 40));  // something to measure
  const double rate = scheduler_->stats().tokens_per_s;
  ASSERT_GT(rate, 1);
  for (const int64_t waiting : {1000, 10000, 90000}) {
    hold();
    EXPECT_TRUE(soon([&] { return scheduler_->stats().running == 1; }));
    hold(waiting / 2);
    hold(waiting / 2);
    // The rate is measured all the time, so on a busy machine it may be another at the moment of the answer.
    double told = 0;
    EXPECT_TRUE(soon([&] {
      HttpClient c(http_->port());
      const double before = scheduler_->stats().tokens_per_s;
      const HttpAnswer a = c.post("/v1/completions", ids_call(sched::count_up(5), 3).dump());
      EXPECT_EQ(a.status, 429);
      told = std::stod(a.headers.at("retry-after"));
      const double after = scheduler_->stats().tokens_per_s;
      const double most = std::max({rate, before, after}), least = std::min({rate, before, after});
      return told >= std::min(60.0, std::floor(static_cast<double>(waiting) / most / 2)) &&
             told <= std::clamp(std::ceil(2 * static_cast<double>(waiting + 10) / least), 1.0, 60.0);
    })) << waiting
        << " waiting, told " << told;
    held_.clear();
    EXPECT_TRUE(soon([&] { return scheduler_->idle(); }));
  }
}

}  // namespace
}  // namespace reprise::server::deadline_test

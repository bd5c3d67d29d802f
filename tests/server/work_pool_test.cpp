// Requests that take long to read: they wait for workers, nobody waits for them, and more than may wait are refused.
#include "server/work_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <utility>

#include "server/api_fixture.h"

namespace reprise::server::work_pool_test {
namespace {

// Keeps a worker busy until it is opened.
class Gate {
 public:
  ~Gate() { open(); }
  void open() {
    if (!std::exchange(open_, true)) promise_.set_value();
  }
  std::function<void()> task() {
    return [opened = opened_, reached = reached_] {
      ++*reached;
      opened.wait();
    };
  }
  int reached() const { return *reached_; }

 private:
  std::promise<void> promise_;
  std::shared_future<void> opened_ = promise_.get_future().share();
  std::shared_ptr<std::atomic<int>> reached_ = std::make_shared<std::atomic<int>>(0);
  bool open_ = false;
};

TEST(WorkPool, RunsWhatItTakesAndRefusesWhatIsTooMuch) {
  std::atomic<int> done{0};
  Gate gate;
  WorkPool pool(2, 3);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(pool.add(gate.task()));
  ASSERT_TRUE(soon([&] { return gate.reached() == 2; }));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.add([&] { ++done; }));
  EXPECT_FALSE(pool.add([&] { ++done; }));
  EXPECT_EQ(done, 0);
  gate.open();
  EXPECT_TRUE(soon([&] { return done == 3; }));
  EXPECT_TRUE(pool.add([&] { ++done; }));
  EXPECT_TRUE(soon([&] { return done == 4; }));
}

TEST(WorkPool, DropsWhatWaitsWhenItEnds) {
  std::atomic<int> done{0};
  Gate gate;
  auto held = std::make_shared<int>(0);
  {
    WorkPool pool(1, 8);
    ASSERT_TRUE(pool.add([&done, task = gate.task()] {
      task();
      done += 100;
    }));
    ASSERT_TRUE(soon([&] { return gate.reached() == 1; }));
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(pool.add([&done, held] { ++done; }));
    EXPECT_EQ(held.use_count(), 6);
    pool.stop();
    EXPECT_EQ(held.use_count(), 1);
    EXPECT_FALSE(pool.add([&] { ++done; }));
    gate.open();
  }
  EXPECT_EQ(done, 100);  // what ran was finished
}

class SlowReading : public ApiTest {
 protected:
  // One worker that is busy, and room for three requests; before_ counts those that asked whether it is ready.
  void start_busy() {
    workers_ = std::make_unique<WorkPool>(1, 3);
    start();
    ASSERT_TRUE(workers_->add(gate_.task()));
    ASSERT_TRUE(soon([&] { return gate_.reached() == 1; }));
    before_ = http_->counters().requests;
  }
  std::unique_ptr<HttpClient> ask(const char* route, const std::string& body) {
    auto client = std::make_unique<HttpClient>(http_->port());
    client->send(
        fmt::format("POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{}", route, body.size(), body));
    return client;
  }
  Gate gate_;
  uint64_t before_ = 0;
};

TEST_F(SlowReading, HoldsUpNobodyElse) {
  ASSERT_NO_FATAL_FAILURE(start_busy());
  // Long, and with a form of answers; this model has no tokenizer, which the worker finds out.
  Json longer = ids_call({2, 3}, 2);
  longer["user"] = std::string(100000, 'x');
  std::vector<std::unique_ptr<HttpClient>> slow;
  slow.push_back(ask("/v1/completions", longer.dump()));
  slow.push_back(ask("/generate", R"({"input_ids": [2, 3], "sampling_params": {"regex": "a*"}})"));
  slow.push_back(ask("/v1/completions", R"({"prompt": [2, 3], "guided_\u0063hoice": ["a"]})"));
  ASSERT_TRUE(soon([&] { return http_->counters().requests == before_ + 3; }));
  HttpClient c(http_->port());
  EXPECT_EQ(c.get("/health").status, 200);
  post("/v1/completions", ids_call({2, 3}, 2));
  for (const char* route : {"/v1/completions", "/v1/chat/completions", "/generate", "/tokenize", "/detokenize"}) {
    const HttpAnswer refused = c.post(route, R"({"prompt": [2], "structured_outputs": {"regex": "a"}})");
    EXPECT_EQ(refused.status, 503) << route;
    EXPECT_EQ(refused.headers.at("retry-after"), "1");
  }
  gate_.open();
  const HttpAnswer answer = slow[0]->read();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(Json::parse(answer.body)["choices"][0]["token_ids"], Json(sched::expected({2, 3}, 2, true)));
  for (size_t i : {1, 2}) {
    const HttpAnswer wrong = slow[i]->read();
    EXPECT_EQ(wrong.status, 400);
    EXPECT_NE(wrong.body.find("no tokenizer"), std::string::npos) << wrong.body;
  }
}

TEST_F(SlowReading, ClientsThatGoMeanwhileAreForgotten) {
  ASSERT_NO_FATAL_FAILURE(start_busy());
  Json body = ids_call({2, 3}, 400);
  body["user"] = std::string(100000, 'x');
  ask("/v1/completions", body.dump());
  ask("/v1/completions", body.dump());
  ASSERT_TRUE(soon([&] { return http_->counters().requests == before_ + 2; }));
  gate_.open();
  EXPECT_TRUE(soon([&] { return scheduler_->stats().requests == 2 && scheduler_->idle(); }));
  EXPECT_TRUE(soon([&] { return http_->counters().open == 0; }));
  const sched::SchedulerStats s = scheduler_->stats();
  EXPECT_EQ(s.free_pages + s.evictable_pages, s.pages);
  EXPECT_LT(s.generated_tokens, 800u);
}

TEST_F(SlowReading, TheServerMayEndBeforeTheyAreRead) {
  ASSERT_NO_FATAL_FAILURE(start_busy());
  const auto client = ask("/v1/completions", R"({"prompt": [2, 3], "regex": "a"})");
  ASSERT_TRUE(soon([&] { return http_->counters().requests == before_ + 1; }));
}

}  // namespace
}  // namespace reprise::server::work_pool_test

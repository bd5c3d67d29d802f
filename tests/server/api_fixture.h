// ApiTest: the routes over real sockets, on a scheduler whose executor computes tokens by a formula (tests/support).
#pragma once

#include <gtest/gtest.h>

#include <thread>

#include "server/api.h"
#include "support/answers.h"
#include "support/http_client.h"
#include "support/soon.h"

namespace reprise::server {

using sched::FakeExecutor;
using sched::Tokens;
using testing_support::HttpAnswer;
using testing_support::HttpClient;
using testing_support::soon;

class ApiTest : public testing::Test {
 protected:
  void start(ApiOptions options = {}, sched::SchedulerOptions scheduling = {},
             FakeExecutor::Limits limits = {8, 64, 60, 1000}, bool serving = true) {
    HttpOptions http;
    http.port = 0;
    if (options.admin_port) http.admin_port = 0;
    api_ = std::make_unique<Api>(options);
    auto made = HttpServer::listen(
        http, [this](HttpRequest r, auto reply) { api_->handle(std::move(r), std::move(reply)); },
        [this](const HttpRequest& r, const auto& reply) { return api_->turn_away(r, reply); });
    ASSERT_TRUE(made.is_ok());
    http_ = std::move(*made);
    api_->attach(*http_);
    http_thread_ = std::thread([this] { http_->run(); });
    executor_ = std::make_unique<FakeExecutor>(limits);
    model_.name = "fake";
    model_.adapters = adapters_.get();
    model_.path = "somewhere/fake";
    model_.context_length = limits.context;
    model_.vocab_size = FakeExecutor::kVocab;
    model_.eos_tokens = scheduling.eos_tokens = {FakeExecutor::kEos};
    metrics_ = std::make_unique<Metrics>("fake", [this] { return graph_; });
    spans_ = std::make_unique<SpanTrace>([this] { return graph_; });
    profiler_ = std::make_unique<Profiler>(*spans_, profile_dir_);
    observers_ = std::make_unique<sched::Observers>(std::vector<sched::Observer*>{metrics_.get(), spans_.get()});
    scheduler_ = std::make_unique<sched::Scheduler>(*executor_, scheduling, observers_.get());
    scheduler_thread_ = std::thread([this] { scheduler_->run(); });
    replicas_ = std::make_unique<sched::Replicas>(std::vector{scheduler_.get()});
    if (!serving) return;
    api_->serve(
        {&model_, replicas_.get(), metrics_.get(), Json::object(), profiler_.get(), workers_.get(), adapters_.get()});
    HttpClient c(http_->port());
    ASSERT_TRUE(soon([&] { return c.get("/ready").status == 200; }));
  }
  void TearDown() override {
    // The scheduler outlives the HTTP thread, which cancels the requests of clients that go; its sinks do not outlive
    // the HTTP server.
    scheduler_->stop();
    scheduler_thread_.join();
    http_->stop();
    http_thread_.join();
    scheduler_.reset();
  }
  Json post(const std::string& path, const Json& body, int status = 200, const std::string& headers = "") {
    HttpClient c(http_->port());
    const HttpAnswer a = c.post(path, body.dump(), headers);
    EXPECT_EQ(a.status, status) << a.body;
    return Json::parse(a.body, nullptr, false);
  }
  // The events of a stream; the last is "[DONE]".
  static std::vector<std::string> events(const std::string& body) {
    std::vector<std::string> out;
    for (size_t at = 0; at < body.size();) {
      const size_t end = body.find("\n\n", at);
      EXPECT_EQ(body.substr(at, 6), "data: ");
      out.push_back(body.substr(at + 6, end - at - 6));
      at = end + 2;
    }
    return out;
  }

  std::unique_ptr<Api> api_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<FakeExecutor> executor_;
  std::unique_ptr<sched::AdapterTable> adapters_;  // set before start(), where a test is about adapters
  ServedModel model_;
  GraphNumbers graph_;       // set before start()
  std::string profile_dir_;  // likewise
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<SpanTrace> spans_;
  std::unique_ptr<Profiler> profiler_;
  std::unique_ptr<sched::Observers> observers_;
  std::unique_ptr<sched::Scheduler> scheduler_;
  std::unique_ptr<sched::Replicas> replicas_;
  std::thread http_thread_, scheduler_thread_;
  std::unique_ptr<WorkPool> workers_;  // likewise, by tests that are about it
};

inline Json ids_call(const Tokens& prompt, int64_t most) {
  return {
      {"prompt", prompt}, {"max_tokens", most}, {"temperature", 0}, {"ignore_eos", true}, {"return_token_ids", true}};
}

}  // namespace reprise::server

// What a running server shows of itself: its pages, its numbers.
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "server/api_fixture.h"

namespace reprise::server::sight_test {
namespace {

GraphNumbers some_graph_numbers() {
  GraphNumbers n;
  n.phases = {{"decode", "whole", {{8, 5}, {16, 2}}, {{"a \"quoted\"\nreason", 3}}, 7}};
  n.verified = 4;
  n.verify_failures = 1;
  return n;
}

std::set<std::string> all_matches(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern);
  std::set<std::string> out;
  for (std::sregex_iterator it(text.begin(), text.end(), expression), end; it != end; ++it) out.insert(it->str(1));
  return out;
}

constexpr const char* kPages[] = {"/", "/docs"};

TEST_F(ApiTest, PagesAreOpenAndHoldNothing) {
  ApiOptions options;
  options.api_key = "secret";
  start(options, {}, {8, 64, 60, 1000}, false);
  HttpClient c(http_->port());
  for (const char* page : kPages) {
    const HttpAnswer a = c.get(page);
    EXPECT_EQ(a.status, 200);
    EXPECT_EQ(a.headers.at("content-type"), "text/html; charset=utf-8");
    EXPECT_TRUE(a.body.starts_with("<!DOCTYPE html>"));
    EXPECT_EQ(a.body.find("secret"), std::string::npos);
    EXPECT_NE(a.body.find("id=\"key\""), std::string::npos) << "it asks for the key";
  }
  EXPECT_NE(c.get("/").body.find("href=\"docs\""), std::string::npos);
  // What they ask is guarded: the key first, then the state.
  for (const char* asked : {"/metrics", "/requests", "/openapi.json"}) EXPECT_EQ(c.get(asked).status, 401) << asked;
  const HttpAnswer loading = c.get("/metrics", "authorization: Bearer secret\r\n");
  EXPECT_EQ(loading.status, 503);
  EXPECT_FALSE(Json::parse(loading.body)["error"]["message"].get<std::string>().empty());
}

size_t count_of(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++n;
  return n;
}

TEST_F(ApiTest, PagesRunTheirOwnScriptsAlone) {
  start();
  HttpClient c(http_->port());
  for (const char* page : kPages) {
    const HttpAnswer a = c.get(page);
    const std::string policy = a.headers.at("content-security-policy");
    const auto allowed = all_matches(policy, "'nonce-([0-9a-f]{32})'"),
               used = all_matches(a.body, "nonce=\"([^\"]*)\"");
    ASSERT_EQ(allowed.size(), 1u) << policy;
    EXPECT_EQ(used, allowed);
    EXPECT_NE(c.get(page).headers.at("content-security-policy"), policy);
    EXPECT_TRUE(policy.starts_with("default-src 'none'; "));
    EXPECT_EQ(policy.find("unsafe"), std::string::npos);
    EXPECT_EQ(count_of(a.body, "<script"), count_of(a.body, "<script nonce=")) << page;
    // Nothing from elsewhere, no text that becomes markup, no part that is missing.
    for (const char* never :
         {"http://", "https://", "innerHTML", "outerHTML", "insertAdjacent", "document.write", "DOMParser", "eval(",
          "new Function", " style=\"", " onclick", "localStorage", "sessionStorage", "{{"})
      EXPECT_EQ(a.body.find(never), std::string::npos) << page << ": " << never;
  }
}

TEST_F(ApiTest, ThePageAsksForNumbersThatAreThere) {
  graph_ = some_graph_numbers();
  start();
  post("/v1/completions", ids_call({2, 3, 4}, 3));
  HttpClient c(http_->port());
  const std::string metrics = "\n" + c.get("/metrics").body;
  const auto names = all_matches(c.get("/").body, "\"((?:vllm|sglang|reprise):\\w+)\"");
  EXPECT_GT(names.size(), 15u);
  for (const std::string& name : names) {
    const bool histogram = name.ends_with("_seconds") && metrics.find("\n" + name + "_count{") != std::string::npos;
    EXPECT_TRUE(histogram || metrics.find("\n" + name + "{") != std::string::npos) << name;
  }
  EXPECT_NE(metrics.find("\nsglang:cuda_graph_passes_total{model_name=\"fake\",mode=\"decode_cuda_graph\"} 7\n"),
            std::string::npos);
  EXPECT_NE(metrics.find("\nsglang:http_requests_active{model_name=\"fake\"} 1\n"), std::string::npos);
  EXPECT_NE(metrics.find("\nvllm:request_params_n_sum{model_name=\"fake\",engine=\"0\"} 1\n"), std::string::npos);
  EXPECT_NE(metrics.find("phase=\"decode\",reason=\"a \\\"quoted\\\"\\nreason\"} 3\n"), std::string::npos);
}

TEST(DrawMetrics, AreCountersByReason) {
  sched::SchedulerStats a, b;
  a.device_draws = 5, b.device_draws = 2;
  a.host_draws[static_cast<size_t>(engine::HostDraw::Grammar)] = 3;
  b.host_draws[static_cast<size_t>(engine::HostDraw::Grammar)] = 4;
  b.host_draws[static_cast<size_t>(engine::HostDraw::NoRoom)] = 1;
  a.overlap_stops[static_cast<size_t>(sched::OverlapStop::Penalties)] = 6;
  const std::string text = Metrics("m", [] { return GraphNumbers(); }).text({a, b}, {}, 0);
  for (const char* line :
       {"device_draws_total{model_name=\"m\"} 7\n", "host_draws_total{model_name=\"m\",reason=\"grammar\"} 7\n",
        "host_draws_total{model_name=\"m\",reason=\"no_room\"} 1\n",
        "host_draws_total{model_name=\"m\",reason=\"no_kernel\"} 0\n",
        "overlap_stops_total{model_name=\"m\",reason=\"penalties\"} 6\n"})
    EXPECT_NE(text.find(std::string("\nreprise:") + line), std::string::npos) << line;
}

// What the device's clock tells of a step; where it tells nothing, what the host did between two steps of the engine. A
// step behind which nothing waited has no gap.
TEST(GapMetrics, CountEachStepOnceByTheDeviceOrTheHost) {
  GraphNumbers numbers;
  Metrics metrics("m", [&numbers] { return numbers; });
  sched::StepRecord step;
  for (const double gap_s : {0.0, 1.5e-6, 3e-6, 3e-6, 1.0}) {
    step.gap_s = gap_s;
    numbers.steps += 1, numbers.host_s += 7;  // no matter where the device tells
    metrics.stepped(step);
  }
  step = {};
  step.forming_s = 1e-5;
  numbers.steps += 2, numbers.host_s += 6e-5;
  metrics.stepped(step);
  metrics.stepped(step);  // the engine took no step meanwhile
  const std::string text = metrics.text({}, {}, 0);
  EXPECT_NE(text.find("# TYPE reprise:host_gap_seconds histogram\n"), std::string::npos);
  for (const char* line : {"_bucket{model_name=\"m\",le=\"1e-06\"} 1\n", "_bucket{model_name=\"m\",le=\"2e-06\"} 2\n",
                           "_bucket{model_name=\"m\",le=\"5e-06\"} 4\n", "_bucket{model_name=\"m\",le=\"2e-05\"} 4\n",
                           "_bucket{model_name=\"m\",le=\"5e-05\"} 5\n", "_bucket{model_name=\"m\",le=\"0.01\"} 5\n",
                           "_bucket{model_name=\"m\",le=\"+Inf\"} 6\n", "_count{model_name=\"m\"} 6\n"})
    EXPECT_NE(text.find(std::string("\nreprise:host_gap_seconds") + line), std::string::npos) << line << text;
}

// The scheduler hands the gaps on: of ten steps of a request all but the first, before which it had nothing to do.
TEST_F(ApiTest, GapsOfARequestsStepsAreInTheMetrics) {
  start();
  executor_->gap_us = 30;
  for (int i = 0; i < 2; ++i) post("/v1/completions", ids_call({2, 3, 4}, 10));
  HttpClient c(http_->port());
  std::string text;
  EXPECT_TRUE(soon([&] {
    text = c.get("/metrics").body;
    return text.find("\nvllm:iteration_tokens_total_count{model_name=\"fake\",engine=\"0\"} 20\n") != std::string::npos;
  })) << text;
  for (const char* line : {"_bucket{model_name=\"fake\",le=\"2e-05\"} 0\n",
                           "_bucket{model_name=\"fake\",le=\"5e-05\"} 18\n", "_count{model_name=\"fake\"} 18\n"})
    EXPECT_NE(text.find(std::string("\nreprise:host_gap_seconds") + line), std::string::npos) << line << text;
}

TEST(ExpertMetrics, AreCountersByLayerAndExpert) {
  engine::ExpertUse use;
  use.add_layer("model.layers.3.mlp", 3);
  use.add_layer("model.layers.12.mlp", 2);
  const int32_t first[] = {0, 4, 4, 9}, second[] = {0, 1, 1};
  use.add(0, first);
  use.add(0, first);
  use.add(1, second);
  const Metrics with(
      "m", [] { return GraphNumbers(); }, &use),
      without("m", [] { return GraphNumbers(); });
  const std::string text = with.text({}, {}, 0);
  EXPECT_NE(text.find("# TYPE reprise:expert_rows_total counter\n"), std::string::npos);
  for (const char* line :
       {"layer=\"3\",expert=\"0\"} 8\n", "layer=\"3\",expert=\"1\"} 0\n", "layer=\"3\",expert=\"2\"} 10\n",
        "layer=\"12\",expert=\"0\"} 1\n", "layer=\"12\",expert=\"1\"} 0\n"})
    EXPECT_NE(text.find(std::string("\nreprise:expert_rows_total{model_name=\"m\",") + line), std::string::npos)
        << line;
  EXPECT_EQ(without.text({}, {}, 0).find("expert_rows_total"), std::string::npos);
  EXPECT_EQ(text.find("ep_imbalance"), std::string::npos);
  // Rank 0 has expert 0, rank 1 the others: 8 and 10 rows, then 1 and 0.
  use.share_out(2);
  const std::string shared = with.text({}, {}, 0);
  for (const char* line : {"layer=\"3\"} 1.11111", "layer=\"12\"} 2\n"})
    EXPECT_NE(shared.find(std::string("\nreprise:ep_imbalance{model_name=\"m\",") + line), std::string::npos) << line;
}

}  // namespace
}  // namespace reprise::server::sight_test

// Where the spans of a server go, and what they say of it.
#include "service/span_post.h"

#include <gtest/gtest.h>

#include <mutex>

#include "support/scripted_server.h"
#include "support/soon.h"

namespace reprise::service::span_post_test {
namespace {

using testing_support::Script;
using testing_support::ScriptedServer;
using testing_support::soon;
using namespace std::chrono_literals;

TEST(OtlpUrl, HasAPathAndNoTls) {
  for (const auto& [given, want] : std::vector<std::pair<std::string, std::string>>{
           {"http://localhost:4318", "http://localhost:4318/v1/traces"},
           {"http://localhost:4318/", "http://localhost:4318/v1/traces"},
           {"http://[::1]:4318", "http://[::1]:4318/v1/traces"},
           {"http://collector/otlp/traces", "http://collector/otlp/traces"}}) {
    const auto url = otlp_url(given);
    ASSERT_TRUE(url.is_ok()) << url.status().message();
    EXPECT_EQ(*url, want);
  }
  for (const char* wrong :
       {"https://localhost:4318", "localhost:4318", "grpc://localhost:4317", "http://", "http://a:0"})
    EXPECT_FALSE(otlp_url(wrong).is_ok()) << wrong;
}

// A collector's answer is taken; one that is away, or does not answer, costs no more than the limit.
TEST(OtlpPost, EndsByItsLimit) {
  std::mutex mutex;
  std::vector<std::pair<std::string, Json>> got;
  ScriptedServer collector([&](const std::string& path, const Json& body, int before) {
    std::lock_guard lock(mutex);
    got.emplace_back(path, body);
    if (before == 1) return Script{{"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{"}};  // and no more
    return ScriptedServer::json(200, Json::object());
  });
  server::SpanExporter::Options options;
  options.queue = {1, 1ms, 100};
  options.limit = 300ms;
  options.first_wait = 1ms;
  server::SpanExporter exporter(span_resource(), options);
  ASSERT_TRUE(point_spans_to(exporter, collector.url()).is_ok());
  const auto span = [] {
    server::TraceSpan s;
    s.trace = std::string(32, 'a');
    s.id = std::string(16, 'b');
    s.name = "x";
    return std::vector{s};
  };
  exporter.add(span());
  ASSERT_TRUE(soon([&] { return exporter.sent() == 1; }));
  // The second sending hangs, and is done again on a new connection.
  const auto begin = std::chrono::steady_clock::now();
  exporter.add(span());
  ASSERT_TRUE(soon([&] { return exporter.sent() == 2; }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 300ms);
  EXPECT_EQ(collector.connections(), 2);
  {
    std::lock_guard lock(mutex);
    ASSERT_EQ(got.size(), 3u);
    EXPECT_EQ(got[0].first, "/v1/traces");
    EXPECT_EQ(got[1].second, got[2].second);
    EXPECT_EQ(got[0].second["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["name"], "x");
  }
  // Somewhere else from now on, where nobody listens.
  ASSERT_TRUE(point_spans_to(exporter, "http://127.0.0.1:1").is_ok());
  exporter.add(span());
  EXPECT_TRUE(soon([&] { return exporter.dropped() == 1; }));
  ASSERT_TRUE(point_spans_to(exporter, "").is_ok());
  EXPECT_FALSE(exporter.on());
}

// The header of the answer is what the exporter waits for, and not its own time.
TEST(OtlpPost, HonoursRetryAfter) {
  ScriptedServer collector([](const std::string&, const Json&, int before) {
    if (before == 0) return Script{{"HTTP/1.1 503 Busy\r\nretry-after: 0\r\ncontent-length: 2\r\n\r\n{}"}};
    return ScriptedServer::json(200, Json::object());
  });
  server::SpanExporter::Options options;
  options.queue = {1, 1ms, 100};
  options.first_wait = 3600s;
  server::SpanExporter exporter(span_resource(), options);
  ASSERT_TRUE(point_spans_to(exporter, collector.url()).is_ok());
  server::TraceSpan s;
  s.trace = std::string(32, 'a');
  s.id = std::string(16, 'b');
  exporter.add({s});
  EXPECT_TRUE(soon([&] { return exporter.sent() == 1; }));
}

// Of the environment, as OpenTelemetry's SDKs take it (specification, "Resource SDK" and "Environment Variables").
TEST(OtlpResource, IsWhatTheEnvironmentAdds) {
  const auto resource = [](const char* name, const char* more) {
    name ? ::setenv("OTEL_SERVICE_NAME", name, 1) : ::unsetenv("OTEL_SERVICE_NAME");
    more ? ::setenv("OTEL_RESOURCE_ATTRIBUTES", more, 1) : ::unsetenv("OTEL_RESOURCE_ATTRIBUTES");
    return span_resource();
  };
  const OrderedJson plain = resource(nullptr, nullptr);
  EXPECT_EQ(plain["service.name"], "reprise");
  EXPECT_FALSE(plain["service.version"].get<std::string>().empty());
  EXPECT_NE(plain["service.instance.id"], resource(nullptr, nullptr)["service.instance.id"]);
  const OrderedJson given = resource("a", "service.name=b,k8s.pod.name=p%2C1,deployment.environment.name=");
  EXPECT_EQ(given["service.name"], "a");
  EXPECT_EQ(given["k8s.pod.name"], "p,1");
  EXPECT_EQ(given["deployment.environment.name"], "");
  EXPECT_EQ(resource(nullptr, "service.name=b")["service.name"], "b");
  // All of it or nothing.
  EXPECT_FALSE(resource("", "a=b,c")["a"].is_string());
  EXPECT_EQ(resource("", "service.name=b,=c")["service.name"], "reprise");
  resource(nullptr, nullptr);
}

}  // namespace
}  // namespace reprise::service::span_post_test

// Traces: the header that a client sends, the queue and the exporter with a collector of the test's own, and the spans
// of requests. tests/clients/otlp_test.py reads the same bodies with OpenTelemetry's own decoder.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <set>

#include "server/dialect_fixture.h"
#include "server/request_log_file.h"
#include "server/span_exporter.h"
#include "server/trace_parent.h"
#include "server/trace_span.h"

namespace reprise::server::trace_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr const char* kParent = "00f067aa0ba902b7";
const std::string kHeader = fmt::format("00-{}-{}-", kTrace, kParent);

// The examples and the rules of W3C Trace Context, sections 3.2.2 and 3.2.4.
TEST(TraceParent, IsReadAsTheRecommendationSays) {
  const auto taken = parse_traceparent(kHeader + "01");
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->trace, kTrace);
  EXPECT_EQ(taken->span, kParent);
  EXPECT_TRUE(taken->sampled);
  const std::string ids = kHeader.substr(2);
  // Other bits of the flags say nothing about sampling.
  for (const auto& [header, sampled] : {std::pair{kHeader + "00", false},
                                        {kHeader + "03", true},
                                        {kHeader + "fe", false},
                                        {kHeader + "ff", true},
                                        // A later version may say more.
                                        {"01" + ids + "01", true},
                                        {"cc" + ids + "01-what-the-future-will-be-like", true},
                                        {"fe" + ids + "00-", false}}) {
    const auto one = parse_traceparent(header);
    ASSERT_TRUE(one) << header;
    EXPECT_EQ(one->sampled, sampled) << header;
    EXPECT_EQ(one->trace, kTrace);
  }
  const std::string zeros(32, '0');
  for (const std::string& header : {std::string(),
                                    std::string("00"),
                                    kHeader,
                                    kHeader + "1",
                                    kHeader + "001",
                                    kHeader + "01-more",
                                    kHeader + "0g",
                                    kHeader + "0A",
                                    "ff" + ids + "01",
                                    "0" + ids + "01",
                                    "0G" + ids + "01",
                                    "01" + ids + "01.more",
                                    "01" + ids + "01x",
                                    fmt::format("00-{}-{}-01", zeros, kParent),
                                    fmt::format("00-{}-{}-01", kTrace, zeros.substr(16)),
                                    fmt::format("00-4BF92F3577B34DA6A3CE929D0E0E4736-{}-01", kParent),
                                    fmt::format("00_{}-{}-01", kTrace, kParent),
                                    fmt::format("00-{}_{}-01", kTrace, kParent),
                                    fmt::format("00-{}-{}_01", kTrace, kParent),
                                    " " + kHeader + "01",
                                    kHeader + "01," + kHeader + "01"})
    EXPECT_FALSE(parse_traceparent(header)) << header;
}

TEST(TraceParent, NewIdsAreOfTheFormAndDiffer) {
  const std::string trace = new_trace_id(), span = new_span_id();
  const auto back = parse_traceparent(fmt::format("00-{}-{}-01", trace, span));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->trace, trace);
  EXPECT_NE(new_trace_id(), trace);
  EXPECT_NE(new_span_id(), span);
}

std::vector<TraceSpan> spans(size_t n, const std::string& name = "s") {
  std::vector<TraceSpan> out(n);
  for (TraceSpan& s : out) {
    s.trace = new_trace_id();
    s.id = new_span_id();
    s.name = name;
  }
  return out;
}

TEST(SpanQueue, GivesABatchByItsSizeOrItsAge) {
  SpanQueue q({4, seconds(5), 10});
  const SpanQueue::Clock::time_point begin{};
  EXPECT_FALSE(q.due());
  EXPECT_TRUE(q.add(spans(3, "a"), begin));
  EXPECT_EQ(q.due(), begin + seconds(5));
  EXPECT_TRUE(q.take(begin + milliseconds(4999)).empty());
  EXPECT_EQ(q.take(begin + seconds(5)).size(), 3u);
  EXPECT_FALSE(q.due());

  EXPECT_TRUE(q.add(spans(3, "a"), begin));
  EXPECT_TRUE(q.add(spans(3, "b"), begin + seconds(1)));
  EXPECT_EQ(q.due(), begin);
  const auto first = q.take(begin + seconds(1));
  ASSERT_EQ(first.size(), 4u);
  EXPECT_EQ(first[2].name, "a");
  EXPECT_EQ(first[3].name, "b");
  // What is left is as old as it is.
  EXPECT_EQ(q.due(), begin + seconds(6));
  EXPECT_TRUE(q.take(begin + seconds(2)).empty());
  EXPECT_EQ(q.take(begin + seconds(2), true).size(), 2u);
}

TEST(SpanQueue, TakesAllSpansOfATraceOrNone) {
  SpanQueue q({4, seconds(5), 10});
  EXPECT_TRUE(q.add(spans(8), {}));
  EXPECT_FALSE(q.add(spans(3), {}));
  EXPECT_EQ(q.size(), 8u);
  EXPECT_TRUE(q.add(spans(2), {}));
  EXPECT_FALSE(q.add(spans(1), {}));
}

// A collector that keeps what it got, and answers as it is told.
class Collector {
 public:
  SpanExporter::Post post() {
    return [this](const std::string& body, milliseconds limit) {
      std::unique_lock lock(mutex_);
      bodies_.push_back(Json::parse(body));
      limits_.push_back(limit);
      changed_.notify_all();
      if (blocked_) changed_.wait_for(lock, seconds(30), [this] { return !blocked_; });
      if (answers_.empty()) return SpanExporter::Answer{200, "", "{}"};
      const SpanExporter::Answer out = answers_.front();
      answers_.erase(answers_.begin());
      return out;
    };
  }
  void answer_next(std::vector<SpanExporter::Answer> answers) {
    std::lock_guard lock(mutex_);
    answers_ = std::move(answers);
  }
  void block(bool on) {
    std::lock_guard lock(mutex_);
    blocked_ = on;
    changed_.notify_all();
  }
  size_t calls() {
    std::lock_guard lock(mutex_);
    return bodies_.size();
  }
  milliseconds last_limit() {
    std::lock_guard lock(mutex_);
    return limits_.back();
  }
  std::vector<Json> spans() {
    std::lock_guard lock(mutex_);
    std::vector<Json> out;
    for (const Json& body : bodies_)
      for (const Json& s : body["resourceSpans"][0]["scopeSpans"][0]["spans"]) out.push_back(s);
    return out;
  }
  std::string text() {
    std::lock_guard lock(mutex_);
    return Json(bodies_).dump();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Json> bodies_;
  std::vector<milliseconds> limits_;
  std::vector<SpanExporter::Answer> answers_;
  bool blocked_ = false;
};

SpanExporter::Options quick(size_t batch = 4, size_t most = 10) {
  SpanExporter::Options o;
  o.queue = {batch, milliseconds(20), most};
  o.first_wait = milliseconds(1);
  return o;
}

TEST(SpanExporter, SendsBatchesFromAThreadOfItsOwn) {
  Collector collector;
  SpanExporter out({{"service.name", "x"}}, quick());
  EXPECT_FALSE(out.on());
  out.add(spans(2));  // nowhere to go
  EXPECT_EQ(out.dropped(), 2u);
  out.point_to("there", collector.post());
  EXPECT_TRUE(out.on());
  out.add(spans(3));
  EXPECT_TRUE(soon([&] { return out.sent() == 3; }));
  out.add(spans(9));
  EXPECT_TRUE(soon([&] { return out.sent() == 12; }));
  EXPECT_EQ(collector.spans().size(), 12u);
  EXPECT_EQ(collector.calls(), 4u);  // 3, then 4, 4, 1
  EXPECT_EQ(collector.last_limit(), milliseconds(2000));
  EXPECT_EQ(out.dropped(), 2u);
}

// Which statuses are worth another try: OTLP 1.x, "Failures" of OTLP/HTTP.
TEST(SpanExporter, TriesAgainWhereThatMayHelp) {
  Collector collector;
  SpanExporter out({}, quick());
  out.point_to("there", collector.post());
  collector.answer_next({{503, "", ""}, {0, "no connection", ""}, {429, "", ""}, {200, "", "{}"}});
  out.add(spans(4));
  EXPECT_TRUE(soon([&] { return out.sent() == 4; }));
  EXPECT_EQ(collector.calls(), 4u);
  collector.answer_next({{400, "", ""}});
  out.add(spans(4));
  EXPECT_TRUE(soon([&] { return out.dropped() == 4; }));
  EXPECT_EQ(collector.calls(), 5u);
  // After four tries it is enough; the next batch has its own.
  collector.answer_next({{502, "", ""}, {504, "", ""}, {503, "", ""}, {503, "", ""}});
  out.add(spans(4));
  EXPECT_TRUE(soon([&] { return out.dropped() == 8; }));
  EXPECT_EQ(collector.calls(), 9u);
  collector.answer_next({{200, "", R"({"partialSuccess": {"rejectedSpans": "3", "errorMessage": "too old"}})"}});
  out.add(spans(4));
  EXPECT_TRUE(soon([&] { return out.dropped() == 11; }));
  EXPECT_EQ(out.sent(), 5u);
}

// OTLP/HTTP, "OTLP/HTTP Throttling": the header goes before the client's own times. The dates are RFC 9110's.
TEST(SpanExporter, WaitsAsLongAsTheCollectorAsks) {
  Collector collector;
  SpanExporter::Options o = quick();
  o.first_wait = seconds(3600);
  o.longest_wait = milliseconds(60);
  SpanExporter out({}, o);
  out.point_to("there", collector.post());
  collector.answer_next({{429, "", "", milliseconds(30)}, {503, "", "", milliseconds(0)}, {503, "", "", seconds(99)}});
  const auto begin = std::chrono::steady_clock::now();
  out.add(spans(4));
  EXPECT_TRUE(soon([&] { return out.sent() == 4; }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(90));
  EXPECT_EQ(collector.calls(), 4u);

  const auto now = std::chrono::system_clock::from_time_t(946684700);  // 1999-12-31 23:58:20
  EXPECT_EQ(retry_after_of("120", now), seconds(120));
  EXPECT_EQ(retry_after_of("Fri, 31 Dec 1999 23:59:59 GMT", now), seconds(99));
  EXPECT_EQ(retry_after_of("Fri, 31 Dec 1999 23:00:00 GMT", now), seconds(0));
  EXPECT_GT(retry_after_of("Fri, 31 Dec 9999 23:59:59 GMT", now), seconds(1'000'000'000));
  for (const char* wrong : {"", "-1", "1.5", "soon", "120 s", "Fri, 31 Dec 1999 23:59:59 GMT+1"})
    EXPECT_FALSE(retry_after_of(wrong, now)) << wrong;
}

TEST(SpanExporter, DropsAndCountsWhenTheCollectorIsSlow) {
  Collector collector;
  collector.block(true);
  SpanExporter out({}, quick());
  out.point_to("there", collector.post());
  out.add(spans(4));
  EXPECT_TRUE(soon([&] { return collector.calls() == 1; }));
  out.add(spans(10));  // wait
  EXPECT_EQ(out.dropped(), 0u);
  const auto begin = std::chrono::steady_clock::now();
  out.add(spans(5));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));  // whoever adds does not wait
  EXPECT_EQ(out.dropped(), 5u);
  collector.block(false);
  EXPECT_TRUE(soon([&] { return out.sent() == 14; }));
}

TEST(SpanExporter, SendsWhatIsLeftAtTheEndWithinItsTime) {
  Collector collector;
  SpanExporter::Options o = quick(4, 100);
  o.queue.every = seconds(3600);
  {
    SpanExporter out({}, o);
    out.point_to("there", collector.post());
    out.add(spans(3));
    out.finish(seconds(10));
    EXPECT_EQ(out.sent(), 3u);
    out.add(spans(1));
    EXPECT_EQ(out.dropped(), 1u);
  }
  // One that is away is not waited for.
  o.first_wait = seconds(3600);
  SpanExporter out({}, o);
  out.point_to("there", collector.post());
  collector.answer_next({{503, "", ""}, {503, "", ""}, {503, "", ""}});
  out.add(spans(12));
  out.finish(seconds(10));
  EXPECT_EQ(out.sent() + out.dropped(), 12u);
  EXPECT_EQ(out.dropped(), 12u);
  EXPECT_LE(collector.last_limit(), seconds(2));
  // No time at all.
  SpanExporter none({}, o);
  none.point_to("there", collector.post());
  none.add(spans(2));
  const size_t before = collector.calls();
  none.finish(seconds(0));
  EXPECT_EQ(none.dropped(), 2u);
  EXPECT_EQ(collector.calls(), before);
}

class TraceTest : public DialectServerTest {
 protected:
  void start_traced(ApiOptions options = {}) {
    SpanExporter::Options o = quick(100, 1000);
    o.queue.every = milliseconds(1);
    exporter_ = std::make_unique<SpanExporter>(OrderedJson{{"service.name", "reprise"}}, o);
    exporter_->point_to("there", collector_.post());
    options.spans = exporter_.get();
    start_with_letters(std::move(options));
  }
  void TearDown() override {
    DialectServerTest::TearDown();
    if (!log_path_.empty()) ::unlink(log_path_.c_str());
  }
  HttpAnswer ask(const std::string& path, const Json& body, const std::string& headers = "") {
    return HttpClient(http_->port()).post(path, body.dump(), headers);
  }
  std::vector<Json> trace(size_t n) {
    EXPECT_TRUE(soon([&] { return collector_.spans().size() >= n; }));
    return collector_.spans();
  }
  static Json named(const std::vector<Json>& spans, const std::string& name) {
    for (const Json& s : spans)
      if (s["name"] == name) return s;
    ADD_FAILURE() << "there is no span " << name;
    return {};
  }
  static Json attribute(const Json& span, const std::string& key) {
    for (const Json& a : span["attributes"])
      if (a["key"] == key) return a["value"].front();
    return nullptr;
  }
  static int64_t begin_of(const Json& s) { return std::stoll(s["startTimeUnixNano"].get<std::string>()); }
  static int64_t end_of(const Json& s) { return std::stoll(s["endTimeUnixNano"].get<std::string>()); }

  Collector collector_;
  std::unique_ptr<SpanExporter> exporter_;
  std::string log_path_;
  std::unique_ptr<RequestLogFile> log_;  // of a server, which ends in TearDown() and writes to it until then
};

const Json kChat = {{"max_tokens", 3},
                    {"temperature", 0.5},
                    {"top_p", 0.75},
                    {"messages", {{{"role", "user"}, {"content", "dolphin"}}}}};

TEST_F(TraceTest, ARequestIsAServerSpanWithItsTimesBelow) {
  start_traced();
  EXPECT_EQ(ask("/v1/chat/completions", kChat, "traceparent: " + kHeader + "01\r\n").status, 200);
  const std::vector<Json> all = trace(4);
  ASSERT_EQ(all.size(), 4u);
  const Json server = all[0];
  EXPECT_EQ(server["name"], "chat fake");
  EXPECT_EQ(server["kind"], 2);
  EXPECT_EQ(server["traceId"], kTrace);
  EXPECT_EQ(server["parentSpanId"], kParent);
  EXPECT_EQ(server["flags"], 0x301);
  EXPECT_FALSE(server.contains("status"));
  int64_t last = begin_of(server);
  for (const char* name : {"queue", "prefill", "decode"}) {
    const Json child = named(all, name);
    EXPECT_EQ(child["kind"], 1);
    EXPECT_EQ(child["traceId"], kTrace);
    EXPECT_EQ(child["parentSpanId"], server["spanId"]);
    EXPECT_NE(child["spanId"], server["spanId"]);
    EXPECT_EQ(child["flags"], 0x101);
    EXPECT_LE(last, begin_of(child));
    EXPECT_LE(begin_of(child), end_of(child));
    last = end_of(child);
  }
  EXPECT_LE(last, end_of(server));
  const int64_t now =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_LT(std::abs(now - end_of(server)), 60'000'000'000);
  for (const auto& [key, value] : {std::pair<const char*, Json>{"gen_ai.operation.name", "chat"},
                                   {"gen_ai.provider.name", "reprise"},
                                   {"gen_ai.request.model", "fake"},
                                   {"gen_ai.request.max_tokens", "3"},
                                   {"gen_ai.request.temperature", 0.5},
                                   {"gen_ai.request.top_p", 0.75},
                                   {"gen_ai.request.stream", false},
                                   {"gen_ai.response.model", "fake"},
                                   {"gen_ai.usage.input_tokens", "8"},
                                   {"http.request.method", "POST"},
                                   {"http.route", "/v1/chat/completions"},
                                   {"http.response.status_code", "200"}})
    EXPECT_EQ(attribute(server, key), value) << key;
  EXPECT_EQ(attribute(server, "gen_ai.response.finish_reasons")["values"].size(), 1u);
  EXPECT_TRUE(attribute(server, "gen_ai.response.id").get<std::string>().starts_with("chatcmpl-"));
  const double queued = attribute(server, "gen_ai.latency.time_in_queue"),
               first = attribute(server, "gen_ai.latency.time_to_first_token"),
               whole = attribute(server, "gen_ai.latency.e2e");
  EXPECT_TRUE(0 <= queued && queued <= first && first <= whole) << queued << " " << first << " " << whole;
  EXPECT_EQ(collector_.text().find("dolphin"), std::string::npos);
}

TEST_F(TraceTest, TheClientSaysWhatIsSampled) {
  start_traced();
  EXPECT_EQ(ask("/v1/chat/completions", kChat, "traceparent: " + kHeader + "00\r\n").status, 200);
  EXPECT_EQ(ask("/v1/completions", {{"prompt", "dolphin"}}, "traceparent: nonsense\r\n").status, 200);
  const std::vector<Json> all = trace(4);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0]["name"], "text_completion fake");
  EXPECT_NE(all[0]["traceId"], kTrace);
  EXPECT_FALSE(all[0].contains("parentSpanId"));
  EXPECT_EQ(all[0]["flags"], 0x101);
}

TEST_F(TraceTest, EachApiSaysWhatItDoes) {
  start_traced();
  const Json user = {{{"role", "user"}, {"content", "dolphin"}}};
  const std::vector<std::tuple<const char*, const char*, Json>> calls = {
      {"/v1/completions", "text_completion fake", {{"prompt", "dolphin"}, {"max_tokens", 2}, {"stream", true}}},
      {"/generate", "text_completion fake", {{"text", "dolphin"}, {"sampling_params", {{"max_new_tokens", 2}}}}},
      {"/v1/responses", "chat fake", {{"input", "dolphin"}, {"max_output_tokens", 2}}},
      {"/v1/messages", "chat fake", {{"messages", user}, {"max_tokens", 2}}},
      {"/api/chat", "chat fake", {{"model", "fake"}, {"messages", user}}},
      {"/api/generate", "text_completion fake", {{"model", "fake"}, {"prompt", "dolphin"}}}};
  for (const auto& [path, name, body] : calls) {
    const size_t before = collector_.spans().size();
    EXPECT_EQ(ask(path, body).status, 200) << path;
    const std::vector<Json> all = trace(before + 4);
    ASSERT_EQ(all.size(), before + 4) << path;
    EXPECT_EQ(all[before]["name"], name) << path;
    EXPECT_EQ(attribute(all[before], "http.route"), path);
  }
  EXPECT_EQ(collector_.text().find("dolphin"), std::string::npos);
}

TEST_F(TraceTest, RequestsThatFailSaySo) {
  start_traced();
  EXPECT_EQ(ask("/v1/completions", {{"prompt", "dolphin"}, {"temperature", "dolphin"}}).status, 400);
  const Json wrong = trace(1)[0];
  EXPECT_EQ(wrong["name"], "text_completion fake");
  EXPECT_EQ(attribute(wrong, "error.type"), "400");
  EXPECT_FALSE(wrong.contains("status"));
  executor_->fail_at = executor_->steps + 1;
  EXPECT_EQ(ask("/v1/completions", {{"prompt", "dolphin"}}).status, 500);
  const std::vector<Json> all = trace(4);
  EXPECT_EQ(all[1]["status"]["code"], 2);
  EXPECT_EQ(attribute(all[1], "error.type"), "500");
  EXPECT_EQ(attribute(all[1], "gen_ai.response.finish_reasons")["values"][0]["stringValue"], "error");
  EXPECT_EQ(collector_.text().find("dolphin"), std::string::npos);
}

TEST_F(TraceTest, SeveralAnswersAreToldApartAndNotAllShown) {
  start_traced();
  EXPECT_EQ(ask("/v1/completions", {{"prompt", "dolphin"}, {"n", 20}, {"max_tokens", 2}}).status, 200);
  const size_t most = 1 + 3 * RequestSpan::kMostAnswers;
  const std::vector<Json> all = trace(most);
  ASSERT_EQ(all.size(), most);
  EXPECT_EQ(attribute(all[0], "gen_ai.request.choice.count"), "20");
  EXPECT_EQ(attribute(all[0], "gen_ai.response.finish_reasons")["values"].size(), RequestSpan::kMostAnswers);
  std::set<std::string> answers;
  for (size_t i = 1; i < all.size(); ++i) answers.insert(attribute(all[i], "reprise.answer").get<std::string>());
  EXPECT_EQ(answers.size(), RequestSpan::kMostAnswers);
}

TEST_F(TraceTest, TheRequestLogNamesTheTraceAndTheMetricsCountSpans) {
  log_path_ = testing::TempDir() + fmt::format("reprise_traces_{}", ::getpid());
  auto log = RequestLogFile::open(log_path_);
  ASSERT_TRUE(log.is_ok());
  log_ = std::move(*log);
  ApiOptions options;
  options.request_log = log_.get();
  start_traced(options);
  EXPECT_EQ(ask("/v1/completions", {{"prompt", "dolphin"}}).status, 200);
  // The trace of a client is named even where it is not sampled.
  EXPECT_EQ(ask("/v1/completions", {{"prompt", "dolphin"}}, "traceparent: " + kHeader + "00\r\n").status, 200);
  const std::string made = trace(4)[0]["traceId"];
  const auto traces = [&] {
    std::vector<std::string> out;
    std::ifstream in(log_path_);
    for (std::string line; std::getline(in, line) && !in.eof();)
      if (const Json json = Json::parse(line); json["route"] == "/v1/completions") out.push_back(json["trace_id"]);
    return out;
  };
  EXPECT_TRUE(soon([&] { return traces().size() == 2; }));
  EXPECT_EQ(traces(), (std::vector<std::string>{made, kTrace}));
  EXPECT_TRUE(soon([&] { return exporter_->sent() == 4; }));
  const std::string metrics = HttpClient(http_->port()).get("/metrics").body;
  EXPECT_NE(metrics.find("reprise:otlp_sent_total{model_name=\"fake\"} 4\n"), std::string::npos);
  EXPECT_NE(metrics.find("reprise:otlp_dropped_total{model_name=\"fake\"} 0\n"), std::string::npos);
}

}  // namespace
}  // namespace reprise::server::trace_test

// The client of servers: events in any pieces, answers that go wrong in all ways, and loads of many calls.
#include <gtest/gtest.h>

#include <cmath>

#include "client/load.h"
#include "client/server_probe.h"
#include "support/scripted_server.h"

namespace reprise::client::load_test {
namespace {

using testing_support::Script;
using testing_support::ScriptedServer;

using namespace std::chrono_literals;

std::vector<std::string> events_of(EventReader& reader) {
  std::vector<std::string> out;
  while (auto e = reader.next()) out.push_back(*e);
  return out;
}

TEST(EventReader, BordersMayLieAnywhere) {
  const std::string stream =
      ": a comment\n\ndata: {\"a\": \"ü\"}\r\n\r\nevent: x\nid: 3\ndata: one\ndata:two\n\ndata: [DONE]\n\ndata: cut";
  const std::vector<std::string> want = {"{\"a\": \"ü\"}", "one\ntwo", "[DONE]", "cut"};
  for (size_t size = 1; size <= stream.size(); ++size) {
    EventReader reader;
    std::vector<std::string> got;
    for (size_t at = 0; at < stream.size(); at += size) {
      reader.push(std::string_view(stream).substr(at, size));
      for (std::string& e : events_of(reader)) got.push_back(std::move(e));
    }
    EXPECT_EQ(got.size(), 3u);
    reader.end();
    for (std::string& e : events_of(reader)) got.push_back(std::move(e));
    EXPECT_EQ(got, want) << "in pieces of " << size;
  }
}

// What a reader makes of events that come at given milliseconds.
GenerationRecord read(Endpoint endpoint, const std::vector<std::pair<int, std::string>>& events) {
  const auto sent = GenerationReader::Clock::now();
  GenerationReader reader(endpoint, {}, sent);
  reader.began(200);
  for (const auto& e : events) reader.push("data: " + e.second + "\n\n", sent + std::chrono::milliseconds(e.first));
  return reader.end(Status::ok());
}

TEST(GenerationReader, TakesTheTimesOfTextAndNotOfOtherEvents) {
  const GenerationRecord r = read(Endpoint::Completions, {{5, ScriptedServer::text_event("")},
                                                          {100, ScriptedServer::text_event("a")},
                                                          {130, ScriptedServer::text_event("b")},
                                                          {190, ScriptedServer::text_event("c", "length")},
                                                          {250, ScriptedServer::usage_event(7, 4)},
                                                          {260, "[DONE]"}});
  EXPECT_TRUE(r.ok) << r.problem;
  EXPECT_EQ(r.text, "abc");
  EXPECT_EQ(r.finish_reason, "length");
  EXPECT_EQ(r.prompt_tokens, 7);
  EXPECT_EQ(r.output_tokens, 4);
  EXPECT_TRUE(r.usage_told);
  EXPECT_NEAR(r.ttft_s, 0.1, 1e-9);
  ASSERT_EQ(r.itl_s.size(), 2u);
  EXPECT_NEAR(r.itl_s[0], 0.03, 1e-9);
  EXPECT_NEAR(r.itl_s[1], 0.06, 1e-9);
  EXPECT_NEAR(r.latency_s, 0.19, 1e-9);
  EXPECT_NEAR(*r.tpot_s(), 0.03, 1e-9);
}

TEST(GenerationReader, ReadsChatsAndTheNativeForm) {
  const auto delta = [](Json d, Json reason = nullptr) {
    return Json{{"choices", {{{"index", 0}, {"delta", std::move(d)}, {"finish_reason", std::move(reason)}}}}}.dump();
  };
  const GenerationRecord chat = read(Endpoint::Chat, {{1, delta({{"role", "assistant"}, {"content", ""}})},
                                                      {20, delta({{"reasoning_content", "hm"}})},
                                                      {30, delta({{"content", "x"}})},
                                                      {40, delta(Json::object(), "stop")},
                                                      {41, "[DONE]"}});
  EXPECT_TRUE(chat.ok) << chat.problem;
  EXPECT_EQ(chat.text, "x");
  EXPECT_NEAR(chat.ttft_s, 0.02, 1e-9);
  EXPECT_EQ(chat.itl_s.size(), 1u);
  EXPECT_FALSE(chat.usage_told);
  EXPECT_EQ(chat.output_tokens, 2);  // by events

  const auto native = [](const char* text, int tokens, Json reason = nullptr) {
    return Json{
        {"text", text},
        {"meta_info",
         {{"completion_tokens", tokens}, {"prompt_tokens", 9}, {"cached_tokens", 8}, {"finish_reason", reason}}}}
        .dump();
  };
  const GenerationRecord n = read(
      Endpoint::Generate,
      {{10, native("a", 1)}, {40, native("abcd", 4)}, {50, native("abcde", 5, {{"type", "length"}})}, {51, "[DONE]"}});
  EXPECT_TRUE(n.ok) << n.problem;
  EXPECT_EQ(n.text, "abcde");
  EXPECT_EQ(n.finish_reason, "length");
  EXPECT_EQ(n.output_tokens, 5);
  EXPECT_EQ(n.cached_tokens, 8);
  ASSERT_EQ(n.itl_s.size(), 4u);  // three tokens came together, 30 ms after the first
  EXPECT_NEAR(n.itl_s[0], 0.01, 1e-9);
  EXPECT_NEAR(n.itl_s[3], 0.01, 1e-9);
}

GenerationCall text_call(const std::string& text = "p") { return {text, 0, 4}; }

GenerationRecord ask(const ScriptedServer& server, HttpCallOptions options = {}) {
  auto http = HttpCalls::open(server.url(), options);
  EXPECT_TRUE(http.is_ok());
  GenerationStyle style;
  style.model = "m";
  return call_once(**http, text_call(), style);
}

TEST(Client, ReadsAStreamCutAtEveryByte) {
  ScriptedServer server([](auto&, auto& body, int) {
    EXPECT_EQ(body["prompt"], "p");
    EXPECT_EQ(body["stream"], true);
    std::string all;
    for (const std::string& e : {ScriptedServer::text_event("hé"), ScriptedServer::text_event("llo", "stop"),
                                 ScriptedServer::usage_event(1, 2), std::string("[DONE]")})
      all += "data: " + e + "\n\n";
    // Chunks of seven bytes, so that lines, letters and words are cut; each in two segments.
    std::string bytes = ScriptedServer::stream_head();
    for (size_t at = 0; at < all.size(); at += 7) bytes += ScriptedServer::chunk(all.substr(at, 7));
    bytes += "0\r\n\r\n";
    Script script;
    for (size_t at = 0; at < bytes.size(); at += 5) script.pieces.push_back(bytes.substr(at, 5));
    return script;
  });
  const GenerationRecord r = ask(server);
  EXPECT_TRUE(r.ok) << r.problem;
  EXPECT_EQ(r.text, "héllo");
  EXPECT_EQ(r.output_tokens, 2);
}

TEST(Client, SaysWhyAnAnswerFailed) {
  const auto problem = [](Script script, HttpCallOptions options = {}) {
    ScriptedServer server([script](auto&, auto&, int) { return script; });
    const GenerationRecord r = ask(server, std::move(options));
    EXPECT_FALSE(r.ok);
    return r.problem;
  };
  const std::string begun = ScriptedServer::chunk("data: " + ScriptedServer::text_event("a") + "\n\n");
  EXPECT_EQ(problem(ScriptedServer::json(429, {{"error", {{"message", "too many"}}}})), "HTTP 429: too many");
  EXPECT_EQ(problem(ScriptedServer::json(503, {{"message", "loading"}})), "HTTP 503: loading");
  EXPECT_EQ(problem(ScriptedServer::stream(
                {ScriptedServer::text_event("a"), R"({"error": {"message": "a step failed"}})", "[DONE]"})),
            "error in the stream: a step failed");
  EXPECT_NE(problem({{ScriptedServer::stream_head(), begun}, true}).find("in the middle of the answer"),
            std::string::npos);
  EXPECT_NE(problem({{}, true}).find("before an answer came"), std::string::npos);
  EXPECT_NE(problem(ScriptedServer::stream({ScriptedServer::text_event("a")})).find("without [DONE]"),
            std::string::npos);
  EXPECT_EQ(problem(ScriptedServer::stream({"[DONE]"})), "the stream held no answer");
  EXPECT_NE(problem(ScriptedServer::stream({"{\"choices\": ["})).find("an event of the stream"), std::string::npos);
  HttpCallOptions impatient;
  impatient.silence = 200ms;
  EXPECT_NE(problem({{ScriptedServer::stream_head(), begun}}, impatient).find("it took too long"), std::string::npos);
  auto nobody = HttpCalls::open("http://127.0.0.1:1", {});
  ASSERT_TRUE(nobody.is_ok());
  EXPECT_NE(call_once(**nobody, text_call(), {}).problem.find("no connection"), std::string::npos);
  for (const char* url : {"https://x", "127.0.0.1:80", "http://", "http://x:0", "http://x:99999", "http://x:1y"})
    EXPECT_NE(HttpCalls::open(url, {}).status().message().find("http://HOST[:PORT]"), std::string::npos) << url;
}

TEST(Client, KeepsConnectionsAndReplacesThoseTheServerClosed) {
  ScriptedServer server([](auto&, auto&, int before) {
    Script s = ScriptedServer::stream({ScriptedServer::text_event("x", "stop"), "[DONE]"});
    s.close = before == 2;  // without a word of it in the headers
    return s;
  });
  auto http = HttpCalls::open(server.url() + "/", {});
  ASSERT_TRUE(http.is_ok());
  for (int i = 0; i < 6; ++i) {
    const GenerationRecord r = call_once(**http, text_call(), {});
    EXPECT_TRUE(r.ok) << i << ": " << r.problem;
    std::this_thread::sleep_for(20ms);  // so that the end is there before the next request
  }
  EXPECT_EQ(server.connections(), 2);
}

TEST(Load, KeepsToItsBoundAndLosesNobody) {
  std::atomic<int> now{0}, most{0};
  ScriptedServer server([&](auto&, auto& body, int) {
    const int mine = ++now;
    for (int seen = most; mine > seen && !most.compare_exchange_weak(seen, mine);) continue;
    std::this_thread::sleep_for(5ms);
    --now;
    const std::string prompt = body["prompt"];
    if (prompt.ends_with('7')) return ScriptedServer::json(500, {{"error", "seven"}});
    return ScriptedServer::stream(
        {ScriptedServer::text_event("to " + prompt, "stop"), ScriptedServer::usage_event(3, 5), "[DONE]"});
  });
  auto http = HttpCalls::open(server.url(), {});
  ASSERT_TRUE(http.is_ok());
  std::vector<GenerationCall> calls;
  for (int i = 0; i < 60; ++i) calls.push_back(text_call(std::to_string(i)));
  int ended = 0;
  const LoadRun run = run_load(**http, calls, {}, {.max_concurrency = 8}, [&](auto&) { ++ended; });
  EXPECT_EQ(ended, 60);
  EXPECT_EQ(run.peak_concurrency, 8);
  EXPECT_LE(most, 8);
  EXPECT_GE(most, 2);
  EXPECT_LE((*http)->connections(), 8 + 6);
  for (int i = 0; i < 60; ++i) {
    const GenerationRecord& r = run.records[static_cast<size_t>(i)];
    EXPECT_EQ(r.ok, i % 10 != 7) << r.problem;
    EXPECT_EQ(r.ok ? r.text : r.problem, r.ok ? fmt::format("to {}", i) : "HTTP 500: seven");
  }
}

TEST(Load, ArrivesAsAPoissonProcessOfItsRate) {
  ScriptedServer server([](auto&, auto&, int) {
    return ScriptedServer::stream({ScriptedServer::text_event("x", "stop"), "[DONE]"});
  });
  auto http = HttpCalls::open(server.url(), {});
  ASSERT_TRUE(http.is_ok());
  const std::vector<GenerationCall> calls(200, text_call());
  const LoadRun run = run_load(**http, calls, {}, {.rate = 400, .seed = 5});
  // 199 gaps of 2.5 ms in the mean; a machine that is busy may only be late.
  const double last = run.records.back().begin_s;
  EXPECT_GT(last, 0.35);
  EXPECT_EQ(run.records.front().ok, true) << run.records.front().problem;
  double previous = 0, squares = 0;
  for (const GenerationRecord& r : run.records) {
    EXPECT_GE(r.begin_s, previous);
    squares += (r.begin_s - previous) * (r.begin_s - previous);
    previous = r.begin_s;
  }
  // Exponential gaps: their mean square is twice the square of their mean, that of equal ones is it.
  EXPECT_GT(squares / 200, 1.3 * (last / 200) * (last / 200));
}

TEST(ServerProbe, KnowsTheServersItMayMeet) {
  ScriptedServer ours([](const std::string& path, auto&, int) {
    return path == "/v1/models" ? ScriptedServer::json(200, {{"data", {{{"id", "a"}}}}})
                                : ScriptedServer::json(200, {{"vocab_size", 77}});
  });
  ScriptedServer theirs([](const std::string&, auto&, int) {
    return ScriptedServer::json(200, {{"data", {{{"id", "b"}, {"meta", {{"n_vocab", 88}}}}}}});
  });
  ScriptedServer neither([](const std::string&, auto&, int) {
    return ScriptedServer::json(200, {{"data", Json::array()}});
  });
  const auto probe = [](const ScriptedServer& s) {
    auto http = HttpCalls::open(s.url(), {});
    return probe_server(**http, s.url(), "--model");
  };
  EXPECT_EQ(probe(ours)->model, "a");
  EXPECT_EQ(probe(ours)->vocab_size, 77);
  EXPECT_EQ(probe(theirs)->vocab_size, 88);
  EXPECT_NE(probe(neither).status().message().find("--model gives one"), std::string::npos);
}

}  // namespace
}  // namespace reprise::client::load_test

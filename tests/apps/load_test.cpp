// `reprise serve` under load: a thousand streams at a time, and callers of all kinds beside each other. Every answer is
// the one that a lone caller gets, and afterwards the server holds no more than before.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>

#include "apps/serving.h"
#include "client/load.h"
#include "client/server_probe.h"
#include "support/http_client.h"

namespace reprise::apps::load_test {
namespace {

using testing_support::HttpAnswer;
using testing_support::HttpClient;

struct Holdings {
  int64_t descriptors = 0, resident = 0;
};

Holdings holdings_of(const Server& server) { return {server.descriptors(), server.resident_bytes()}; }

// Everything is given back: nothing runs or waits, no client is left, and without its cache every page is free.
bool is_at_rest(const Server& server) {
  HttpClient c(server.port());
  const Json state = Json::parse(c.get("/server_info").body, nullptr, false)["internal_states"][0];
  if (state["running"] != 0 || state["waiting"] != 0) return false;
  if (c.post("/flush_cache", "").status != 200) return false;
  const Json after = Json::parse(c.get("/server_info").body, nullptr, false)["internal_states"][0];
  return after["kv_pages_free"] == after["kv_pages"];
}

// Prompts that share beginnings with some others and not with all, of 5 to 300 tokens.
std::vector<client::GenerationCall> different_calls(size_t count) {
  std::vector<client::GenerationCall> calls;
  for (size_t i = 0; i < count; ++i) {
    std::string prompt(5 + 37 * i % 296, static_cast<char>('a' + i % 3));
    prompt += fmt::format("{} is the question", i);
    calls.push_back({prompt, 0, static_cast<int64_t>(8 + 7 * i % 25)});
  }
  return calls;
}

// Not for sanitizers, whose allocators keep what is freed.
TEST(SlowLoad, AThousandStreamsGetWhatALoneOneGets) {
  const Model model;
  // Fewer descriptors than it needs: it must ask for more itself.
  Server server(model, "", "ulimit -Sn 256;");
  ASSERT_NE(server.port(), 0) << server.said();
  auto http = client::HttpCalls::open(server.url(), {});
  ASSERT_TRUE(http.is_ok());
  client::GenerationStyle style;
  style.ignore_eos = true;
  const std::vector<client::GenerationCall> kinds = different_calls(40);
  std::vector<std::string> alone;
  for (const client::GenerationCall& call : kinds) {
    const client::GenerationRecord r = client::call_once(**http, call, style);
    ASSERT_TRUE(r.ok) << r.problem;
    alone.push_back(r.text);
  }
  const std::set<std::string> texts(alone.begin(), alone.end());
  EXPECT_GT(texts.size(), 30u);  // else equal answers would prove little
  ASSERT_TRUE(soon([&] { return is_at_rest(server); }));

  std::vector<client::GenerationCall> calls;
  for (size_t i = 0; i < 1000; ++i) calls.push_back(kinds[i % kinds.size()]);
  const auto round = [&] {
    auto clients = client::HttpCalls::open(server.url(), {});
    const client::LoadRun run = client::run_load(**clients, calls, style, {});
    EXPECT_EQ(run.peak_concurrency, 1000);
    for (size_t i = 0; i < calls.size(); ++i) {
      const client::GenerationRecord& r = run.records[i];
      ASSERT_TRUE(r.ok) << i << ": " << r.problem << server.said();
      ASSERT_EQ(r.text, alone[i % kinds.size()]) << i;
      ASSERT_EQ(r.output_tokens, calls[i].max_tokens);
    }
  };
  const Holdings before = holdings_of(server);
  round();
  ASSERT_TRUE(soon([&] { return is_at_rest(server); }));
  const Holdings once = holdings_of(server);
  {
    std::vector<std::unique_ptr<HttpClient>> waiting;
    for (int i = 0; i < 1000; ++i) waiting.push_back(std::make_unique<HttpClient>(server.port()));
    EXPECT_TRUE(soon([&] { return holdings_of(server).descriptors >= 1000; })) << server.said();
  }
  round();
  ASSERT_TRUE(soon([&] { return is_at_rest(server); }));
  EXPECT_TRUE(soon([&] { return holdings_of(server).descriptors <= before.descriptors; }))
      << before.descriptors << " to " << holdings_of(server).descriptors;
  // What a thousand connections needed may stay with the allocator; a second thousand takes no more.
  const int64_t twice = holdings_of(server).resident;
  RecordProperty("resident_before", std::to_string(before.resident));
  RecordProperty("resident_after", std::to_string(twice));
  EXPECT_LT(twice, once.resident + (8 << 20)) << before.resident;
  EXPECT_LT(twice, before.resident + (64 << 20));
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0) << server.said();
}

// Callers of all kinds beside each other: streams, whole answers, several answers to one prompt, callers that leave.
TEST(Load, MixedCallersGetTheTextOfGenerateAlone) {
  const Model model;
  const std::vector<client::GenerationCall> kinds = different_calls(8);
  std::vector<std::string> alone;
  for (const client::GenerationCall& call : kinds) {
    const OrderedJson out = json_of(
        run_binary(fmt::format("generate {} --json --ignore-eos --temperature 0 --max-new-tokens {} --prompt '{}'",
                               model.flags(), call.max_tokens, std::get<std::string>(call.prompt))));
    alone.push_back(out["output"]["text"]);
  }
  for (const std::string flags : {"", "--disable-radix-cache", "--max-running-requests 3 --max-total-tokens 1536"}) {
    Server server(model, flags);
    ASSERT_NE(server.port(), 0) << server.said();
    std::atomic<bool> ended{false};
    // Asks for a whole answer, or for three, again and again.
    const auto whole = [&](int n) {
      HttpClient c(server.port(), 120);
      for (size_t i = 0; i < 12; ++i) {
        const size_t kind = (i * 5 + static_cast<size_t>(n)) % kinds.size();
        const HttpAnswer a = c.post("/v1/completions", Json{{"prompt", std::get<std::string>(kinds[kind].prompt)},
                                                            {"max_tokens", kinds[kind].max_tokens},
                                                            {"temperature", 0},
                                                            {"ignore_eos", true},
                                                            {"n", n}}
                                                           .dump());
        ASSERT_EQ(a.status, 200) << a.body;
        const Json out = Json::parse(a.body);
        ASSERT_EQ(out["choices"].size(), static_cast<size_t>(n));
        for (const Json& choice : out["choices"]) ASSERT_EQ(choice["text"], alone[kind]) << flags << " n = " << n;
      }
    };
    // Leaves in the middle of a long answer.
    const auto leave = [&] {
      for (int i = 0; !ended; ++i) {
        HttpClient c(server.port());
        const std::string body = Json{
            {"prompt", std::string(static_cast<size_t>(30 + i % 90), 'a')},
            {"max_tokens", 200},
            {"ignore_eos", true},
            {"stream", true},
            {"n", 1 + i % 2}}.dump();
        c.send(fmt::format("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{}",
                           body.size(), body));
        c.receive();
      }
    };
    std::vector<std::thread> threads;
    for (const int n : {1, 3, 2}) threads.emplace_back(whole, n);
    std::thread leaver(leave);
    std::vector<client::GenerationCall> calls;
    for (size_t i = 0; i < 96; ++i) calls.push_back(kinds[(i * 3) % kinds.size()]);
    client::GenerationStyle style;
    style.ignore_eos = true;
    auto http = client::HttpCalls::open(server.url(), {});
    const client::LoadRun run = client::run_load(**http, calls, style, {.max_concurrency = 24});
    for (std::thread& t : threads) t.join();
    ended = true;
    leaver.join();
    for (size_t i = 0; i < calls.size(); ++i) {
      ASSERT_TRUE(run.records[i].ok) << run.records[i].problem << server.said();
      ASSERT_EQ(run.records[i].text, alone[(i * 3) % kinds.size()]) << flags << " " << i;
    }
    EXPECT_TRUE(soon([&] { return is_at_rest(server); })) << flags;
  }
}

}  // namespace
}  // namespace reprise::apps::load_test

// `reprise bench serving`: the command against real and broken servers.
#include <gtest/gtest.h>

#include <set>

#include "apps/serving.h"
#include "support/scripted_server.h"

namespace reprise::apps::bench_serving_test {
namespace {

using testing_support::Script;
using testing_support::ScriptedServer;

TEST(BenchServing, AgainstARealServer) {
  const Model model;
  Server server(model, "--api-key secret");
  ASSERT_NE(server.port(), 0) << server.said();
  const Folder folder;
  const std::string command = "bench serving --api-key secret --json --ignore-eos --base-url " + server.url() +
                              " --num-prompts 24 --random-input-len 30 --random-output-len 12 ";
  const OrderedJson ids = json_of(run_binary(command + "--max-concurrency 1,8 --output-details --output " +
                                             (folder / "o.json") + " --plot " + (folder / "p.svg")));
  EXPECT_EQ(ids["prompts"], "ids");
  ASSERT_EQ(ids["rows"].size(), 2u);
  for (const OrderedJson& row : ids["rows"]) {
    EXPECT_EQ(row["completed"], 24) << row["errors"];
    EXPECT_EQ(row["failed"], 0);
    EXPECT_EQ(row["total_input_tokens"], 24 * 30);
    EXPECT_EQ(row["total_output_tokens"], 24 * 12);
    EXPECT_EQ(row["without_usage"], 0);
    EXPECT_EQ(row["max_concurrent_requests"], row["max_concurrency"]);
    EXPECT_GT(row["output_throughput"], 0);
    EXPECT_LE(row["median_ttft_ms"], row["p99_ttft_ms"]);
    EXPECT_LE(row["p99_ttft_ms"], row["p99_e2el_ms"]);
    for (const OrderedJson& text : row["details"]["generated_texts"]) EXPECT_FALSE(text.get<std::string>().empty());
  }
  // Prompts of their own for each row: no cache makes the second one quicker.
  EXPECT_EQ(ids["rows"][1]["total_cached_tokens"], 0);
  EXPECT_EQ(OrderedJson::parse(content_of(folder / "o.json")), ids);
  const std::string svg = content_of(folder / "p.svg");
  EXPECT_NE(svg.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_NE(svg.find("<title>p99 at 8:"), std::string::npos);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));

  for (const std::string more : {"--endpoint chat", "--endpoint generate", "--prompt-form text --request-rate 500",
                                 "--endpoint generate --prompt-form text --max-concurrency 4"}) {
    const OrderedJson out = json_of(run_binary(command + more));
    const OrderedJson& row = out["rows"][0];
    EXPECT_EQ(row["completed"], 24) << more << row["errors"];
    EXPECT_EQ(row["total_output_tokens"], 24 * 12) << more;
    EXPECT_EQ(out["prompts"], more == "--endpoint generate" ? "ids" : "text") << more;
  }
  folder.write("q.jsonl",
               "{\"question\": \"1+1?\", \"answer\": \"#### 2\"}\n{\"question\": \"2+1?\", \"answer\": \"#### 3\"}\n");
  const OrderedJson asked =
      json_of(run_binary(command + "--dataset gsm8k --num-shots 1 --data-path " + (folder / "q.jsonl")));
  EXPECT_EQ(asked["rows"][0]["completed"], 24) << asked["rows"][0]["errors"];

  const Outcome wrong = run_binary("bench serving --base-url " + server.url());
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_NE(wrong.err.find("API key"), std::string::npos) << wrong.err;
  const Outcome table = run_binary(
      "bench serving --api-key secret --num-prompts 3 --random-input-len 8 "
      "--random-output-len 2 --base-url " +
      server.url());
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_NE(table.out.find("TTFT med/p99 ms"), std::string::npos) << table.out;
}

TEST(BenchServing, TellsWhatFailed) {
  ScriptedServer server([](const std::string& path, auto& body, int) {
    if (path == "/v1/models") return ScriptedServer::json(200, {{"data", {{{"id", "m"}}}}});
    if (path == "/model_info") return ScriptedServer::json(404, Json::object());
    if (body["prompt"].is_array()) return ScriptedServer::json(400, {{"error", {{"message", "text only"}}}});
    if (body["max_tokens"] == 3) return ScriptedServer::json(429, {{"error", {{"message", "busy"}}}});
    return ScriptedServer::stream({ScriptedServer::text_event("x", "stop"), "[DONE]"});
  });
  const Folder folder;
  folder.write("a.jsonl", "{\"prompt\": \"x\", \"max_tokens\": 2}\n{\"prompt\": \"x\", \"max_tokens\": 3}\n");
  const std::string command = "bench serving --base-url " + server.url() + " --num-prompts 10 ";
  const OrderedJson half = json_of(run_binary(command + "--json --dataset file --data-path " + (folder / "a.jsonl")));
  EXPECT_EQ(half["rows"][0]["completed"], 5);
  EXPECT_EQ(half["rows"][0]["failed"], 5);
  EXPECT_EQ(half["rows"][0]["errors"], (OrderedJson{{"HTTP 429: busy", 5}}));
  EXPECT_EQ(half["rows"][0]["without_usage"], 5);
  // Token ids are refused, so prompts become text; all of them fail, which is the command's failure.
  const Outcome all = run_binary(command + "--warmup-requests 0 --random-output-len 3");
  EXPECT_EQ(all.exit_code, 1);
  EXPECT_NE(all.err.find("prompts are sent as text"), std::string::npos) << all.err;
  EXPECT_NE(all.err.find("no request was answered"), std::string::npos) << all.err;
  EXPECT_NE(all.out.find("10 failed: HTTP 429: busy"), std::string::npos) << all.out;
  const Outcome warm = run_binary(command + "--random-output-len 3");
  EXPECT_NE(warm.err.find("a warm-up request failed: HTTP 429: busy"), std::string::npos) << warm.err;
}

TEST(BenchServing, WrongFlagsNameWhatIsAllowed) {
  const std::pair<const char*, const char*> cases[] = {{"--request-rate fast", "inf"},
                                                       {"--request-rate 0", "inf"},
                                                       {"--dataset file", "--data-path"},
                                                       {"--dataset sharegpt", "sharegpt-like"},
                                                       {"--endpoint chat --prompt-form ids", "text"},
                                                       {"--extra-request-body [1]", "object"},
                                                       {"--max-concurrency 0", "1"}};
  for (const auto& c : cases) {
    const Outcome o = run_binary(std::string("bench serving ") + c.first);
    EXPECT_EQ(o.exit_code, 2) << c.first;
    EXPECT_NE(o.err.find(c.second), std::string::npos) << c.first << ": " << o.err;
  }
  const Outcome url = run_binary("bench serving --base-url https://127.0.0.1:1");
  EXPECT_EQ(url.exit_code, 1);
  EXPECT_NE(url.err.find("http://HOST[:PORT]"), std::string::npos) << url.err;
}

}  // namespace
}  // namespace reprise::apps::bench_serving_test

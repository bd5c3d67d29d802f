// `reprise serve --otlp-endpoint` and `--log-prompts` as a process: where spans go, what the flags allow, and what a
// file of prompts is to its owner and to others.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <mutex>

#include "apps/serving.h"
#include "support/http_client.h"
#include "support/scripted_server.h"

namespace reprise::apps::serve_traces_test {
namespace {

using testing_support::ScriptedServer;

using namespace std::chrono_literals;
using testing_support::HttpClient;

TEST(ServeTraces, WhatIsWrongIsSaidAtTheStart) {
  const std::string check = "serve --check --model-path nowhere --load-format dummy ";
  const Outcome tls = run_binary(check + "--otlp-endpoint https://collector:4318");
  EXPECT_EQ(tls.exit_code, 2);
  EXPECT_TRUE(holds(tls.err, "--otlp-endpoint https://collector:4318: this server does not speak TLS")) << tls.err;
  EXPECT_TRUE(holds(tls.err, "a collector or a proxy beside it")) << tls.err;
  const Outcome form = run_binary(check + "--otlp-endpoint collector");
  EXPECT_EQ(form.exit_code, 2);
  EXPECT_TRUE(holds(form.err, "--otlp-endpoint") && holds(form.err, "http://HOST[:PORT][/PATH]")) << form.err;
  EXPECT_EQ(run_binary(check + "--otlp-endpoint http://collector:4318").exit_code, 0);
  for (const char* flags : {"--log-prompts", "--log-prompts --request-log -"}) {
    const Outcome o = run_binary(check + flags);
    EXPECT_EQ(o.exit_code, 2) << flags;
    EXPECT_TRUE(holds(o.err, "--log-prompts: allowed with --request-log FILE")) << o.err;
  }
}

// A text that is in the prompt, the answer or the name of a model is in no log and no trace, until it is asked for.
TEST(ServeTraces, TextIsWhereItIsAskedForAndNowhereElse) {
  const std::string canary = "xylophone", body = R"({"prompt": "xylophone", "max_tokens": 3, "temperature": 0})";
  std::mutex mutex;
  std::string sent;
  ScriptedServer collector([&](const std::string&, const Json& got, int) {
    std::lock_guard lock(mutex);
    sent += got.dump();
    return ScriptedServer::json(200, Json::object());
  });
  const Model model;
  for (const bool asked : {false, true}) {
    const std::string log = model.folder / (asked ? "with" : "without");
    std::ofstream(log) << "";
    ASSERT_EQ(::chmod(log.c_str(), 0644), 0);
    Server server(model, fmt::format("--access-log --request-log {} --otlp-endpoint {} {}", log, collector.url(),
                                     asked ? "--log-prompts" : ""));
    ASSERT_NE(server.port(), 0) << server.said();
    HttpClient c(server.port());
    EXPECT_EQ(c.post("/v1/completions", body).status, 200);
    EXPECT_EQ(c.post("/v1/completions", R"({"prompt": "xylophone", "model": "xylophone"})").status, 404);
    server.signal(SIGTERM);
    EXPECT_EQ(server.wait(), 0);
    struct stat s {};
    ASSERT_EQ(::stat(log.c_str(), &s), 0);
    EXPECT_EQ(s.st_mode & 0777, asked ? 0600u : 0644u);
    EXPECT_EQ(holds(content_of(log), canary), asked);
    EXPECT_EQ(holds(server.said(), "--log-prompts: what clients ask"), asked) << server.said();
    EXPECT_FALSE(holds(server.said(), canary));
  }
  std::lock_guard lock(mutex);
  EXPECT_TRUE(holds(sent, "text_completion"));
  EXPECT_FALSE(holds(sent, canary));
}

// Vectors and scores are named by the conventions, or by words like theirs; each text has its times.
TEST(ServeTraces, VectorsAndScoresAreTraced) {
  std::mutex mutex;
  std::vector<Json> spans;
  ScriptedServer collector([&](const std::string&, const Json& got, int) {
    std::lock_guard lock(mutex);
    for (const Json& s : got["resourceSpans"][0]["scopeSpans"][0]["spans"]) spans.push_back(s);
    return ScriptedServer::json(200, Json::object());
  });
  const auto serve = [&](const std::string& encoder, const std::vector<std::pair<std::string, std::string>>& calls) {
    const Model model(
        fmt::format("--model-path {}/tests/data/encoders/{} --dtype float32 --threads 2", REPRISE_SOURCE_DIR, encoder));
    const std::string log = model.folder / "log";
    Server server(model, fmt::format("--otlp-endpoint {} --log-prompts --request-log {}", collector.url(), log));
    ASSERT_NE(server.port(), 0) << server.said();
    for (const auto& [path, body] : calls) EXPECT_EQ(HttpClient(server.port()).post(path, body).status, 200) << path;
    server.signal(SIGTERM);
    EXPECT_EQ(server.wait(), 0);
    EXPECT_TRUE(holds(content_of(log), R"("prompt":[)")) << content_of(log);
  };
  serve("bert_mean", {{"/v1/embeddings", R"({"input": ["one", "two"]})"}, {"/api/embed", R"({"input": "one"})"}});
  serve("bert_scores", {{"/v1/rerank", R"({"query": "one", "documents": ["two", "three"]})"},
                        {"/v1/score", R"({"text_1": "one", "text_2": "two"})"}});
  std::lock_guard lock(mutex);
  std::map<std::string, int> names;
  std::map<std::string, int> below;  // of the span
  for (const Json& s : spans) {
    ++names[s["name"]];
    if (s.contains("parentSpanId")) ++below[s["parentSpanId"]];
  }
  for (const char* name : {"embeddings bert_mean", "rerank bert_scores", "score bert_scores"})
    EXPECT_EQ(names[name], name == std::string("embeddings bert_mean") ? 2 : 1) << name;
  EXPECT_EQ(names["decode"], 0);
  EXPECT_EQ(names["queue"], 6);
  EXPECT_EQ(names["prefill"], 6);
  for (const Json& s : spans) {
    if (s["name"] != "rerank bert_scores") continue;
    EXPECT_EQ(below[s["spanId"]], 4);
    EXPECT_TRUE(holds(s.dump(), "gen_ai.usage.input_tokens"));
    EXPECT_FALSE(holds(s.dump(), "gen_ai.latency.time_to_first_token"));
  }
}

}  // namespace
}  // namespace reprise::apps::serve_traces_test

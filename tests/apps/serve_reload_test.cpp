// `reprise serve` over changes: keys that are read anew, a drain that is announced, a restart on a socket that stays.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "apps/serving.h"
#include "support/http_client.h"
#include "support/scripted_server.h"

namespace reprise::apps::serve_reload_test {
namespace {

using testing_support::Script;
using testing_support::ScriptedServer;

using testing_support::HttpClient;

const std::string kBody = R"({"prompt": "my words", "max_tokens": 2, "temperature": 0})";

int ask(int64_t port, const std::string& key) {
  return HttpClient(port).post("/v1/completions", kBody, "authorization: Bearer " + key + "\r\n").status;
}

TEST(ServeReload, KeysAreMadeAndReadAnew) {
  const Model model;
  const std::string file = model.folder / "keys", log = model.folder / "requests";
  const auto key_of = [&](const std::string& name, const std::string& more = "") {
    const Outcome made = run_binary(fmt::format("key new {} --api-keys-file {} {}", name, file, more));
    EXPECT_EQ(made.exit_code, 0) << made.err;
    EXPECT_TRUE(made.out.starts_with("sk-") && made.out.ends_with("\n")) << made.out;
    return made.out.substr(0, made.out.size() - 1);
  };
  const std::string ada = key_of("ada", "--requests-per-minute 1000 --max-running 4");
  EXPECT_EQ(run_binary("key new ada --api-keys-file " + file).exit_code, 1);  // there is one
  EXPECT_EQ(run_binary("key new bob").exit_code, 2);
  const std::string first = content_of(file);
  EXPECT_FALSE(holds(first, ada));
  Server server(model, fmt::format("--api-keys-file {} --request-log {} --drain-delay 0.5", file, log));
  ASSERT_NE(server.port(), 0) << server.said();
  EXPECT_EQ(ask(server.port(), ada), 200);
  EXPECT_EQ(ask(server.port(), "sk-none"), 401);

  const std::string bob = key_of("bob");
  EXPECT_EQ(ask(server.port(), bob), 401);
  server.signal(SIGHUP);
  EXPECT_TRUE(soon([&] { return ask(server.port(), bob) == 200; }));
  EXPECT_EQ(ask(server.port(), ada), 200);
  // A wrong file changes nothing, and is told of.
  std::ofstream(file) << "{\"name\": \"eve\"}\n";
  server.signal(SIGHUP);
  EXPECT_TRUE(soon([&] { return holds(server.said(), "SIGHUP: nothing changes: "); }));
  EXPECT_TRUE(holds(server.said(), "line 1: sha256"));
  EXPECT_EQ(ask(server.port(), bob), 200);
  std::filesystem::rename(log, log + ".1");
  server.signal(SIGHUP);
  EXPECT_TRUE(soon([&] { return std::filesystem::exists(log); }));

  // The end is announced, and requests are still taken.
  server.signal(SIGTERM);
  EXPECT_TRUE(soon([&] { return HttpClient(server.port()).get("/readyz").status == 503; }));
  EXPECT_EQ(ask(server.port(), bob), 200);
  EXPECT_EQ(server.wait(), 0);
  const std::string lines = content_of(log + ".1") + content_of(log);
  EXPECT_TRUE(holds(lines, R"("key":"bob")")) << lines;
  for (const std::string& secret : {ada, bob, std::string("my words")})
    EXPECT_FALSE(holds(lines + server.said() + first, secret));
}

// The number of a line of /metrics; -1: there is none.
int64_t metric(int64_t port, const std::string& begin, const std::string& key) {
  const std::string text = HttpClient(port).get("/metrics", "authorization: Bearer " + key + "\r\n").body;
  const size_t at = text.find("\n" + begin);
  return at == std::string::npos ? -1 : std::stoll(text.substr(text.find("} ", at) + 2));
}

// Live settings change, the others are named, and a wrong file changes nothing at all.
TEST(ServeReload, LiveSettingsChange) {
  const Model model;
  const std::string file = model.folder / "server.json";
  const auto write = [&](const std::string& more) { model.folder.write("server.json", "{" + more + "}"); };
  const std::string log = model.folder / "requests", moved = model.folder / "moved";
  write(fmt::format(R"("log-level": "info", "api-key": "one", "request-log": "{}", "max-queued-requests": 10)", log));
  // Debug lines are not asked of this start; the request log's first place is the file's.
  Server server(model, fmt::format("--config {} --max-answers 7", file), "REPRISE_SET_MAX_CONNECTIONS=100");
  ASSERT_NE(server.port(), 0) << server.said();
  const auto reloads = [&](const std::string& result, const std::string& key) {
    return metric(server.port(),
                  fmt::format("reprise:config_reloads_total{{model_name=\"{}\",result=\"{}\"}}",
                              std::filesystem::path(model.folder.path()).filename().string(), result),
                  key);
  };
  EXPECT_EQ(reloads("ok", "one"), 0);
  EXPECT_EQ(reloads("refused", "one"), 0);
  EXPECT_EQ(ask(server.port(), "one"), 200);
  EXPECT_FALSE(holds(server.said(), "{\"ts\""));

  write(fmt::format(R"("log-level": "warning", "log-format": "json", "api-key": "two", "access-log": true,
                       "request-log": "{}", "max-queued-requests": 20, "max-connections": 50, "max-answers": 9)",
                    moved));
  server.signal(SIGHUP);
  ASSERT_TRUE(soon([&] { return ask(server.port(), "two") == 200; })) << server.said();
  EXPECT_EQ(ask(server.port(), "one"), 401);
  EXPECT_EQ(reloads("ok", "two"), 1);
  EXPECT_TRUE(
      holds(server.said(), "new values are in effect: log-level, api-key, request-log, log-format, access-log\n"))
      << server.said();
  EXPECT_TRUE(holds(server.said(), "a restart puts into effect: max-queued-requests\n")) << server.said();
  EXPECT_TRUE(holds(server.said(), "flags or the environment outrank the file: max-answers, max-connections\n"))
      << server.said();
  EXPECT_TRUE(soon([&] { return holds(content_of(moved), R"("status":401)"); }));
  const size_t before = content_of(log).size();
  EXPECT_TRUE(soon([&] { return holds(server.said(), "\n{\"ts\""); })) << server.said();
  // What is info is told no more; and again when the file asks for it.
  const auto outranked = [&] {
    const std::string said = server.said(), line = "outrank the file: max-answers";
    int n = 0;
    for (size_t at = 0; (at = said.find(line, at)) != std::string::npos; ++at) ++n;
    return n;
  };
  server.signal(SIGHUP);
  EXPECT_TRUE(soon([&] { return reloads("ok", "two") == 2; }));
  EXPECT_EQ(outranked(), 1) << server.said();
  write(fmt::format(R"("log-level": "debug", "log-format": "json", "api-key": "two", "request-log": "{}",
                       "max-answers": 9)",
                    moved));
  server.signal(SIGHUP);
  EXPECT_TRUE(soon([&] { return reloads("ok", "two") == 3; }));
  EXPECT_EQ(outranked(), 2) << server.said();
  EXPECT_TRUE(holds(server.said(), R"("msg":"SIGHUP: new values are in effect: log-level, access-log")"))
      << server.said();
  EXPECT_EQ(content_of(log).size(), before);

  // Each is wrong in another place; none of them changes a key or a level.
  int64_t refused = 0;
  for (const std::string wrong :
       {"\"api-key\": \"three\", \"log-level\": \"loud\"", "\"api-key\": \"three\", \"api-kye\": \"a\"",
        "\"api-key\": \"three\", \"socket-mode\": \"999\"", "\"api-key\": \"three\", \"api-keys-file\": \"/none\"",
        "\"api-key\": \"three\", \"request-log\": \"/no/such/folder/log\"", "\"api-key\": \"three\", \"",
        "\"api-key\": \"three\", \"graph\": \"off\", \"graph-decode\": \"whole\""}) {
    write(wrong);
    server.signal(SIGHUP);
    ++refused;
    EXPECT_TRUE(soon([&] { return reloads("refused", "two") == refused; })) << wrong;
    EXPECT_EQ(ask(server.port(), "two"), 200) << wrong;
    EXPECT_EQ(ask(server.port(), "three"), 401) << wrong;
  }
  EXPECT_TRUE(holds(server.said(), "allowed: debug, info, notice, warning, error, off")) << server.said();
  EXPECT_TRUE(holds(server.said(), "--socket-mode 999: allowed: 000 to 777")) << server.said();
  EXPECT_EQ(reloads("ok", "two"), 3);
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0);
}

// Traces go to the collector that the file names, and nowhere when it names none.
TEST(ServeReload, TracesGoWhereTheFileSays) {
  std::atomic<int> got{0};
  ScriptedServer collector([&](const std::string&, const Json&, int) {
    ++got;
    return ScriptedServer::json(200, Json::object());
  });
  const Model model;
  model.folder.write("server.json", "{}");
  Server server(model, "--config " + (model.folder / "server.json"));
  ASSERT_NE(server.port(), 0) << server.said();
  model.folder.write("server.json", fmt::format(R"({{"otlp-endpoint": "{}"}})", collector.url()));
  server.signal(SIGHUP);
  ASSERT_TRUE(soon([&] { return holds(server.said(), "new values are in effect: otlp-endpoint"); })) << server.said();
  model.folder.write("server.json", R"({"otlp-endpoint": "https://collector"})");
  server.signal(SIGHUP);
  ASSERT_TRUE(soon([&] { return holds(server.said(), "nothing changes: --otlp-endpoint https://collector"); }))
      << server.said();
  EXPECT_EQ(HttpClient(server.port()).post("/v1/completions", kBody).status, 200);
  server.signal(SIGTERM);  // what waits is sent
  EXPECT_EQ(server.wait(), 0);
  EXPECT_EQ(got, 1);
}

TEST(ServeReload, AWrongFileOfKeysIsAUsageError) {
  const Folder folder;
  folder.write("keys", "{\"name\": \"ada\", \"sha256\": \"abc\"}\n");
  const Outcome o = run_binary(
      fmt::format("serve --check --model-path nowhere --load-format dummy --api-keys-file {}", folder / "keys"));
  EXPECT_EQ(o.exit_code, 2) << o.err;
  EXPECT_TRUE(holds(o.err, "line 1: sha256")) << o.err;
}

// As under a socket unit of systemd: one server ends while clients ask, and the next begins.
TEST(ServeReload, ARestartOnAKeptSocketRefusesNobody) {
  const int kept = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(kept, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(kept, 1024), 0);
  const std::string before = fmt::format("exec 3<&{}; export LISTEN_FDS=1 LISTEN_PID=$$;", kept);
  const Model model;
  std::atomic<bool> stop{false};
  std::atomic<int> answered{0}, lost{0};
  std::vector<std::thread> clients;
  {
    Server server(model, "", before);
    ASSERT_NE(server.port(), 0) << server.said();
    for (int i = 0; i < 3; ++i)
      clients.emplace_back([&, port = server.port()] {
        while (!stop) ++(HttpClient(port).post("/v1/completions", kBody).status == 200 ? answered : lost);
      });
    EXPECT_TRUE(soon([&] { return answered > 10; }));
    server.signal(SIGTERM);
    EXPECT_EQ(server.wait(), 0) << server.said();
  }
  Server next(model, "", before);
  const int so_far = answered;
  EXPECT_TRUE(soon([&] { return answered > so_far + 10; })) << next.said();
  stop = true;
  for (std::thread& t : clients) t.join();
  EXPECT_EQ(lost, 0);
  next.signal(SIGTERM);
  EXPECT_EQ(next.wait(), 0);
  ::close(kept);
}

}  // namespace
}  // namespace reprise::apps::serve_reload_test

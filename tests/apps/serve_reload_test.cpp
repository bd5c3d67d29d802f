// `reprise serve` over changes: keys that are read anew, a drain that is announced, a restart on a socket that stays.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "apps/serving.h"
#include "support/http_client.h"

namespace reprise::apps::serve_reload_test {
namespace {

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
  EXPECT_TRUE(soon([&] { return holds(server.said(), "the keys stay as they are"); }));
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

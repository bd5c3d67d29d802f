// Health, keys with limits, the request log, draining, and sockets other than a TCP port.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <fstream>
#include <set>
#include <sstream>

#include "base/sha256.h"
#include "server/dialect_fixture.h"

namespace reprise::server::day_two_test {
namespace {

class DayTwoTest : public DialectServerTest {
 protected:
  void TearDown() override {
    DialectServerTest::TearDown();
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  const std::string& path() {
    static int count = 0;
    if (path_.empty()) path_ = testing::TempDir() + fmt::format("reprise_day_two_{}_{}", ::getpid(), count++);
    return path_;
  }
  static KeyRules rules(const std::string& name, const std::string& key) {
    KeyRules k;
    k.name = name;
    k.sha256 = sha256_hex(key);
    return k;
  }
  HttpAnswer ask(const std::string& key, int64_t most = 4, const char* route = "/v1/completions") {
    Json body = ids_call(sched::count_up(10), most);
    return HttpClient(http_->port()).post(route, body.dump(), "authorization: Bearer " + key + "\r\n");
  }
  HttpAnswer ask_open(const Json& body) { return HttpClient(http_->port()).post("/v1/completions", body.dump()); }
  std::vector<Json> lines() {
    std::ifstream in(path());
    std::vector<Json> out;
    // A reader may see the first part of a line that crosses a page of the file: one without its end is not counted.
    for (std::string line; std::getline(in, line) && !in.eof();)
      if (Json json = Json::parse(line); json["route"] != "/ready") out.push_back(std::move(json));  // the fixture asks
    return out;
  }

  std::unique_ptr<RequestLogFile> log_;  // of a server, which ends in TearDown() and writes to it until then

 private:
  std::string path_;
};

TEST_F(DayTwoTest, ProbesTellAliveFromReady) {
  start({}, {}, {8, 64, 60, 1000}, false);
  HttpClient c(http_->port());
  EXPECT_EQ(Json::parse(c.get("/livez").body)["state"], "loading");
  EXPECT_EQ(c.get("/readyz").status, 503);
  EXPECT_EQ(c.get("/health_generate").status, 503);
  api_->serve({&model_, replicas_.get(), metrics_.get(), Json::object()});
  EXPECT_TRUE(soon([&] { return c.get("/readyz").status == 200; }));
  const int64_t steps = executor_->steps;
  EXPECT_EQ(Json::parse(c.get("/health_generate").body)["status"], "ready");
  EXPECT_GT(executor_->steps, steps);
  EXPECT_EQ(Json::parse(c.get("/load").body)["server_load"], 0);
  // Requests are still taken while others are told to go elsewhere.
  api_->leave();
  EXPECT_EQ(c.get("/readyz").status, 503);
  EXPECT_EQ(c.get("/health_generate").status, 503);
  EXPECT_EQ(c.get("/health").status, 200);
  EXPECT_EQ(c.post("/v1/completions", ids_call({2}, 1).dump()).status, 200);
  api_->drain();
  EXPECT_EQ(Json::parse(c.get("/livez").body)["state"], "draining");
  EXPECT_EQ(c.post("/v1/completions", ids_call({2}, 1).dump()).status, 503);
  api_->fail("the device is lost");
  EXPECT_EQ(HttpClient(http_->port()).get("/livez").status, 503);
}

TEST_F(DayTwoTest, ProbesShareOneTokenAndSeeAFailure) {
  start();
  executor_->fail_at = executor_->steps + 1;
  EXPECT_EQ(HttpClient(http_->port()).get("/health_generate").status, 500);
  EXPECT_EQ(HttpClient(http_->port()).get("/health_generate").status, 200);
}

TEST_F(DayTwoTest, AKeyHasItsLimits) {
  ApiOptions options;
  KeyRules ada = rules("ada", "one"), bob = rules("bob", "two"), eve = rules("eve", "old"), root = rules("root", "top");
  ada.requests_per_minute = 2;
  bob.tokens_per_minute = 30;
  bob.max_tokens_per_request = 20;
  bob.max_running = 2;
  eve.expires = 1000;
  root.admin = true;
  options.keys = {ada, bob, eve, root};
  start(options);
  const HttpAnswer first = ask("one");
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.headers.at("x-ratelimit-limit-requests"), "2");
  EXPECT_EQ(first.headers.at("x-ratelimit-remaining-requests"), "1");
  EXPECT_EQ(ask("one").status, 200);
  const HttpAnswer refused = ask("one");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(Json::parse(refused.body)["error"]["code"], "rate_limit_exceeded");
  const int wait = std::stoi(refused.headers.at("retry-after"));
  EXPECT_TRUE(wait > 20 && wait <= 30) << wait;
  EXPECT_EQ(refused.headers.at("x-ratelimit-remaining-requests"), "0");

  // 10 of the prompt and 4 of the answer, of which an end token may leave some.
  EXPECT_EQ(ask("two", 4).status, 200);
  EXPECT_EQ(ask("two", 4).status, 200);
  EXPECT_EQ(ask("two", 4).status, 429);
  EXPECT_EQ(ask("two", 100).status, 400);
  EXPECT_EQ(Json::parse(ask("two", 100).body)["error"]["code"], "too_many_tokens");
  Json several = ids_call({2}, 1);
  several["n"] = 3;
  EXPECT_EQ(HttpClient(http_->port()).post("/v1/completions", several.dump(), "x-api-key: two\r\n").status, 429);

  EXPECT_EQ(Json::parse(ask("old").body)["error"]["code"], "expired_api_key");
  EXPECT_EQ(ask("old").status, 401);
  EXPECT_EQ(ask("none").status, 401);
  EXPECT_EQ(ask(ada.sha256).status, 401);
  HttpClient c(http_->port());
  EXPECT_EQ(c.get("/requests", "x-forwarded-for: 1.2.3.4\r\nauthorization: Bearer one\r\n").status, 403);
  HttpClient admin(http_->port());
  EXPECT_EQ(admin.get("/requests", "x-forwarded-for: 1.2.3.4\r\nauthorization: Bearer top\r\n").status, 200);
  const std::string metrics = admin.get("/metrics", "authorization: Bearer top\r\n").body;
  for (const char* sample : {R"(reprise:key_requests_total{model_name="fake",key="ada",status="200"} 2)",
                             R"(reprise:key_requests_total{model_name="fake",key="ada",status="429"} 1)",
                             R"(reprise:key_tokens_total{model_name="fake",key="ada",kind="prompt"} 20)",
                             R"(reprise:rate_limited_total{model_name="fake",key="ada",limit="requests"} 1)",
                             R"(reprise:rate_limited_total{model_name="fake",key="bob",limit="tokens"} 1)"})
    EXPECT_NE(metrics.find(sample), std::string::npos) << sample << "\n" << metrics.substr(metrics.find("reprise:key"));
}

TEST_F(DayTwoTest, TokensThatWereNotUsedAreGivenBack) {
  ApiOptions options;
  KeyRules ada = rules("ada", "one");
  ada.tokens_per_minute = 1000;
  options.keys = {ada};
  start(options);
  // Asks for 500, and ends after 10 and 4.
  Json body = ids_call(sched::count_up(10), 490);
  body["stop_token_ids"] = {sched::expected(sched::count_up(10), 4, true).back()};
  for (int i = 0; i < 3; ++i) {
    const HttpAnswer a = HttpClient(http_->port()).post("/v1/completions", body.dump(), "x-api-key: one\r\n");
    EXPECT_EQ(a.status, 200) << a.body;
  }
}

TEST_F(DayTwoTest, KeysAreReplacedWhileTheServerRuns) {
  ApiOptions options;
  options.keys = {rules("ada", "one")};
  start(options);
  EXPECT_EQ(ask("one").status, 200);
  LiveOptions other;
  other.keys = {rules("ada", "new")};
  api_->change(other);
  EXPECT_TRUE(soon([&] { return ask("new").status == 200; }));
  EXPECT_EQ(ask("one").status, 401);
}

// One line for each request, with what it was and how it ended, and nothing that a client wrote.
TEST_F(DayTwoTest, TheRequestLogHasNumbersAndNoText) {
  auto log = RequestLogFile::open(path());
  ASSERT_TRUE(log.is_ok());
  log_ = std::move(*log);
  ApiOptions options;
  options.keys = {rules("ada", "one")};
  options.request_log = log_.get();
  start_with_letters(options);
  const char* canary = "dolphin";
  HttpClient c(http_->port());
  const std::string key = "authorization: Bearer one\r\nx-request-id: mine\r\n";
  const Json chat = {{"max_tokens", 3},
                     {"metadata", {{"user_id", canary}}},
                     {"mcp_servers", {{{"url", canary}}}},
                     {"messages", {{{"role", "user"}, {"content", canary}}}}};
  EXPECT_EQ(c.post("/v1/messages", chat.dump(), key).status, 200);
  EXPECT_EQ(c.post("/v1/messages", Json{{"model", canary}, {"max_tokens", 3}}.dump(), key).status, 404);
  EXPECT_EQ(c.post("/v1/completions", Json{{"prompt", canary}, {"stream", true}}.dump(), key).status, 200);
  EXPECT_EQ(HttpClient(http_->port()).get("/v1/models").status, 401);
  EXPECT_EQ(HttpClient(http_->port()).get(std::string("/") + canary).status, 404);
  ASSERT_TRUE(soon([&] { return lines().size() == 5; }));
  std::ifstream in(path());
  std::stringstream all;
  all << in.rdbuf();
  EXPECT_EQ(all.str().find(canary), std::string::npos) << all.str();
  EXPECT_EQ(all.str().find("127.0.0.1"), std::string::npos);
  // A line is written when all of a request has gone, so lines may change places.
  const auto of = [all = lines()](const char* route, int status) {
    for (const Json& line : all)
      if (line["route"] == route && line["status"] == status) return line;
    ADD_FAILURE() << route << " " << status;
    return Json();
  };
  const Json first = of("/v1/messages", 200);
  EXPECT_EQ(first["request_id"], "mine");
  EXPECT_EQ(first["key"], "ada");
  EXPECT_EQ(first["dialect"], "anthropic");
  EXPECT_EQ(first["model"], "fake");
  EXPECT_EQ(first["prompt_tokens"], 8);
  EXPECT_EQ(first["ignored"], Json{"mcp_servers"});
  for (const char* name : {"ts", "finish", "stream", "n", "cached_tokens", "completion_tokens", "reasoning_tokens",
                           "queued_ms", "ttft_ms", "total_ms", "preemptions"})
    EXPECT_TRUE(first.contains(name)) << name;
  EXPECT_EQ(of("/v1/messages", 404)["error"], "model_not_found");
  EXPECT_EQ(of("/v1/completions", 200)["stream"], true);
  EXPECT_EQ(of("/v1/models", 401)["error"], "invalid_api_key");
  EXPECT_FALSE(of("/v1/models", 401).contains("key"));

  // After the file was renamed, lines go to a new one.
  const std::string moved = path() + ".1";
  ASSERT_EQ(::rename(path().c_str(), moved.c_str()), 0);
  ASSERT_TRUE(log_->reopen().is_ok());
  EXPECT_EQ(c.get("/health").status, 200);
  EXPECT_TRUE(soon([&] { return lines().size() == 1; }));
  ::unlink(moved.c_str());
  EXPECT_FALSE(RequestLogFile::open("/no/such/folder/log").is_ok());
}

// Where the operator asks for it, and in a file of the operator's alone.
TEST_F(DayTwoTest, TheRequestLogHasTextWhereItIsAskedFor) {
  { std::ofstream(path()) << "{\"route\": \"before\"}\n"; }
  ASSERT_EQ(::chmod(path().c_str(), 0644), 0);
  const auto mode = [&] {
    struct stat s {};
    EXPECT_EQ(::stat(path().c_str(), &s), 0);
    return s.st_mode & 0777;
  };
  auto log = RequestLogFile::open(path(), true);
  ASSERT_TRUE(log.is_ok()) << log.status().message();
  log_ = std::move(*log);
  EXPECT_EQ(mode(), 0600u);
  ApiOptions options;
  options.request_log = log_.get();
  options.log_prompts = true;
  start_with_letters(options);
  HttpClient c(http_->port());
  const Json one = {{"prompt", "dolphin"}, {"max_tokens", 4}, {"temperature", 0}};
  const Json answer = Json::parse(c.post("/v1/completions", one.dump()).body);
  Json several = one;
  several["prompt"] = {"dolphin", "a"};
  several["stream"] = true;
  EXPECT_EQ(c.post("/v1/completions", several.dump()).status, 200);
  ASSERT_TRUE(soon([&] { return lines().size() == 3; }));
  const Json first = lines()[1], second = lines()[2];
  EXPECT_EQ(first["prompt"], "dolphin");
  EXPECT_EQ(first["answer"], answer["choices"][0]["text"]);
  EXPECT_EQ(first["answer"], greedy("dolphin", 4));
  EXPECT_FALSE(first.contains("reasoning"));
  EXPECT_EQ(second["prompt"], (Json{"dolphin", "a"}));
  EXPECT_EQ(second["answer"], (Json{greedy("dolphin", 4), greedy("a", 4)}));
  // A file that takes its place is its owner's alone, too.
  ASSERT_EQ(::unlink(path().c_str()), 0);
  ASSERT_TRUE(log_->reopen().is_ok());
  EXPECT_EQ(mode(), 0600u);

  EXPECT_NE(RequestLogFile::open("-", true).status().message().find("--log-prompts"), std::string::npos);
  EXPECT_NE(RequestLogFile::open("/dev/null", true).status().message().find("allowed: a file"), std::string::npos);
  EXPECT_TRUE(RequestLogFile::open("/dev/null").is_ok());
}

// SGLang's form, as its routers read it (python/sglang/srt/entrypoints/v1_loads.py, GetLoadsReqOutput).
TEST_F(DayTwoTest, RoutersAreToldTheLoad) {
  graph_.weight_bytes = uint64_t{3} << 30;
  start();
  EXPECT_EQ(ask_open(ids_call(sched::count_up(10), 4)).status, 200);
  HttpClient c(http_->port());
  // Pages are given back behind the answer's last token.
  HttpAnswer all;
  const auto used = [&] {
    all = c.get("/v1/loads");
    return all.status == 200 ? Json::parse(all.body)["loads"][0]["num_used_tokens"].get<int64_t>() : 0;
  };
  EXPECT_TRUE(soon([&] { return used() == 0; }));
  ASSERT_EQ(all.status, 200) << all.body;
  const Json body = Json::parse(all.body);
  EXPECT_EQ(body["dp_rank_count"], 1);
  ASSERT_EQ(body["loads"].size(), 1u);
  const Json load = body["loads"][0];
  EXPECT_EQ(load["dp_rank"], 0);
  EXPECT_EQ(load["num_running_reqs"], 0);
  EXPECT_EQ(load["num_waiting_reqs"], 0);
  EXPECT_EQ(load["num_used_tokens"], 0);
  EXPECT_EQ(load["max_total_num_tokens"], 60 * kv::kPageTokens);
  EXPECT_EQ(load["token_usage"], 0.0);
  EXPECT_EQ(load["memory"]["weight_gb"], 3.0);
  EXPECT_EQ(load["memory"]["token_capacity"], load["max_total_num_tokens"]);
  EXPECT_EQ(load["queues"]["waiting"], 0);
  EXPECT_FALSE(load.contains("speculative"));
  EXPECT_GT(load["timestamp"], 1.7e9);
  const auto sections = [&](const std::string& query) {
    std::set<std::string> out;
    const Json answer = Json::parse(c.get("/v1/loads?" + query).body);
    for (const auto& [key, value] : answer["loads"][0].items()) out.insert(key);
    return out;
  };
  EXPECT_EQ(sections("include=queues"), (std::set<std::string>{"dp_rank", "timestamp", "queues"}));
  EXPECT_EQ(sections("include=queues%2Cmemory&dp_rank=0&format=json"),
            (std::set<std::string>{"dp_rank", "timestamp", "queues", "memory"}));
  EXPECT_EQ(sections("include="), sections("include=all"));
  EXPECT_TRUE(sections("include=core").contains("num_total_tokens"));
  for (const auto& [query, param] : {std::pair{"include=everything", "include"},
                                     {"include=core,", ""},
                                     {"dp_rank=1", "dp_rank"},
                                     {"dp_rank=-1", "dp_rank"},
                                     {"dp_rank=x", "dp_rank"},
                                     {"format=prometheus", "format"}}) {
    const HttpAnswer wrong = c.get(std::string("/v1/loads?") + query);
    EXPECT_EQ(wrong.status, *param ? 400 : 200) << query;
    if (*param) {
      EXPECT_EQ(Json::parse(wrong.body)["error"]["param"], param);
    }
  }
}

HttpAnswer ask_unix(const std::string& path, const std::string& head) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  HttpAnswer a;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    const std::string text = head + "\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    EXPECT_EQ(::send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    char buffer[4096];
    for (ssize_t n; (n = ::recv(fd, buffer, sizeof buffer, 0)) > 0;) a.body.append(buffer, static_cast<size_t>(n));
    if (a.body.size() > 12) a.status = std::atoi(a.body.c_str() + 9);
  }
  ::close(fd);
  return a;
}

// A server on options, with a handler that says who asks.
class Listening {
 public:
  explicit Listening(const HttpOptions& options) {
    auto made = HttpServer::listen(options, [](const HttpRequest& r, const std::shared_ptr<Reply>& reply) {
      reply->send(200, "text/plain", r.from_loopback ? "loopback" : "unknown:" + r.client);
    });
    status = made.status();
    if (!made) return;
    http = std::move(*made);
    thread_ = std::thread([this] { http->run(); });
    http->accept_inherited();
  }
  ~Listening() {
    if (!http) return;
    http->stop();
    thread_.join();
  }
  Status status;
  std::unique_ptr<HttpServer> http;

 private:
  std::thread thread_;
};

TEST(Sockets, ASocketOfThisMachine) {
  const std::string path = testing::TempDir() + fmt::format("reprise_sock_{}", ::getpid());
  HttpOptions options;
  options.host = "unix:" + path;
  options.socket_mode = 0600;
  {
    Listening server(options);
    ASSERT_TRUE(server.status.is_ok()) << server.status.message();
    struct stat s {};
    ASSERT_EQ(::stat(path.c_str(), &s), 0);
    EXPECT_EQ(s.st_mode & 0777, 0600u);
    EXPECT_EQ(server.http->port(), 0);
    EXPECT_FALSE(server.http->on_loopback());
    // Who is behind it is not known, so nobody is taken for this machine.
    const HttpAnswer a = ask_unix(path, "GET / HTTP/1.1");
    EXPECT_EQ(a.status, 200);
    EXPECT_TRUE(a.body.ends_with("unknown:")) << a.body;
    // Another server does not take it.
    EXPECT_NE(Listening(options).status.message().find("a server listens there"), std::string::npos);
    EXPECT_EQ(ask_unix(path, "GET / HTTP/1.1").status, 200);
  }
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
  // What a server left behind when it was killed is replaced.
  const int left = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(left, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(left);
  EXPECT_TRUE(Listening(options).status.is_ok());
  options.host = "unix:";
  EXPECT_FALSE(Listening(options).status.is_ok());
  options.host = "unix:" + std::string(200, 'x');
  EXPECT_FALSE(Listening(options).status.is_ok());
}

// A socket that is kept by somebody else: while one server after another listens on it, no connection is refused.
TEST(Sockets, ARestartOnAKeptSocketRefusesNobody) {
  const int kept = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(kept, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(kept, 1024), 0);
  socklen_t size = sizeof address;
  ASSERT_EQ(::getsockname(kept, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const int64_t port = ntohs(address.sin_port);

  HttpOptions options;
  std::atomic<bool> stop{false};
  std::atomic<int> answered{0}, lost{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i)
    clients.emplace_back([&] {
      while (!stop) ++(HttpClient(port).get("/").status == 200 ? answered : lost);
    });
  for (int round = 0; round < 5; ++round) {
    options.inherited = ::dup(kept);
    Listening server(options);
    ASSERT_TRUE(server.status.is_ok()) << server.status.message();
    EXPECT_EQ(server.http->port(), port);
    EXPECT_TRUE(server.http->on_loopback());
    const int before = answered;
    EXPECT_TRUE(soon([&] { return answered > before + 8; }));
    server.http->leave();
    // What has connected is answered; then nothing comes any more.
    EXPECT_TRUE(soon([&] { return server.http->counters().open == 0; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  stop = true;
  options.inherited = ::dup(kept);
  {
    Listening last(options);
    for (std::thread& t : clients) t.join();
  }
  EXPECT_EQ(lost, 0);
  EXPECT_GT(answered, 40);
  ::close(kept);
  options.inherited = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_NE(Listening(options).status.message().find("LISTEN_FDS"), std::string::npos);
  ::close(*options.inherited);
}

}  // namespace
}  // namespace reprise::server::day_two_test

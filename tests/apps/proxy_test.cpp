// Servers behind HAProxy with the file of examples/: when one is killed under load, only what it was answering is lost.
#include <future>
#include <map>
#include <optional>

#include "apps/serving.h"
#include "support/http_client.h"

namespace reprise::apps::proxy_test {
namespace {

using testing_support::HttpAnswer;
using testing_support::HttpClient;

class Proxy {
 public:
  // examples/haproxy.cfg with these servers and a free port in front of them.
  Proxy(const Folder& folder, int64_t first, int64_t second) : log_(folder / "haproxy.log") {
    for (port_ = 20000 + ::getpid() % 20000; !is_free(port_); ++port_) {
    }
    std::string text = content_of(std::string(REPRISE_SOURCE_DIR) + "/examples/haproxy.cfg");
    for (const auto& [from, to] : {std::pair<int64_t, int64_t>{30000, port_}, {30001, first}, {30002, second}}) {
      const std::string address = fmt::format("127.0.0.1:{}", from);
      const size_t at = text.find(address);
      EXPECT_NE(at, std::string::npos) << address;
      text.replace(at, address.size(), fmt::format("127.0.0.1:{}", to));
    }
    folder.write("haproxy.cfg", text);
    const std::string command = fmt::format("exec haproxy -db -f {} >{} 2>&1", folder / "haproxy.cfg", log_);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
  }
  ~Proxy() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  int64_t port() const { return port_; }
  std::string said() const { return content_of(log_); }
  // Sessions by server and status, from the log.
  std::map<std::pair<std::string, int>, int> sessions() const {
    std::map<std::pair<std::string, int>, int> out;
    std::istringstream lines(said());
    std::string server, state;
    int status = 0;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      if (words >> server >> status >> state && (server == "a" || server == "b" || server == "<NOSRV>"))
        ++out[{server, status}];
    }
    return out;
  }

 private:
  static bool is_free(int64_t port) { return HttpClient(port).get("/").status <= 0; }
  std::string log_;
  int64_t port_ = 0;
  pid_t pid_ = 0;
};

TEST(Proxy, AKilledServerLosesWhatItWasAnsweringAlone) {
  if (std::system("haproxy -v >/dev/null 2>&1") != 0) {
    if (std::getenv("CI")) FAIL() << "there is no haproxy (Debian: haproxy)";
    GTEST_SKIP() << "there is no haproxy (Debian: haproxy)";
  }
  Model model;
  model.threads = 1;
  std::optional<Server> a(std::in_place, model, "");
  const Server b(model, "");
  ASSERT_NE(a->port(), 0) << a->said();
  ASSERT_NE(b.port(), 0) << b.said();
  const Proxy proxy(model.folder, a->port(), b.port());
  ASSERT_TRUE(soon([&] { return HttpClient(proxy.port()).get("/ready").status == 200; })) << proxy.said();

  constexpr int kClients = 6;
  std::atomic<bool> killed{false};
  std::atomic<int> after{0};
  // An answer is whole when its last piece has come: the tokens, or the end of a stream.
  const auto ask = [&](bool stream) {
    const std::string body = fmt::format(
        R"({{"prompt": "once upon", "max_tokens": 40, "ignore_eos": true, "temperature": 0, "stream": {}}})", stream);
    const HttpAnswer answer = HttpClient(proxy.port()).post("/v1/completions", body);
    return answer.status == 200 && holds(answer.body, stream ? "data: [DONE]" : "\"completion_tokens\":40");
  };
  std::vector<std::future<int>> clients;
  for (int i = 0; i < kClients; ++i)
    clients.push_back(std::async(std::launch::async, [&, stream = i % 2 == 0] {
      int lost = 0;
      while (after < 40) {
        const bool late = killed;
        lost += ask(stream) ? 0 : 1;
        if (late) ++after;
      }
      return lost;
    }));
  ASSERT_TRUE(soon([&] {
    const auto sessions = proxy.sessions();
    return sessions.contains({"a", 200}) && sessions.contains({"b", 200});
  })) << proxy.said();
  a->signal(SIGKILL);
  killed = true;
  int lost = 0;
  for (auto& client : clients) {
    ASSERT_EQ(client.wait_for(std::chrono::seconds(60)), std::future_status::ready) << proxy.said();
    lost += client.get();
  }
  // A client has one request at a time, so the killed server was answering some of them at most; and no session that
  // another server had was lost.
  EXPECT_LE(lost, kClients);
  for (const auto& [session, count] : proxy.sessions()) {
    if (session.second != 200) {
      EXPECT_EQ(session.first, "a") << proxy.said();
    }
  }
  // It answers alone afterwards.
  EXPECT_GE(after, 40);
}

}  // namespace
}  // namespace reprise::apps::proxy_test

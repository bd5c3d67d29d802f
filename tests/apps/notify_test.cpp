// What `reprise serve` tells the supervisor that started it, read from a socket of the test as systemd would.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <ctime>

#include "apps/serving.h"
#include "support/http_client.h"

namespace reprise::apps::notify_test {
namespace {

using testing_support::HttpClient;

class Supervisor {
 public:
  // A path, or "@name" in the abstract namespace.
  explicit Supervisor(const std::string& name) : name_(name), socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = 0;
    const auto size = offsetof(sockaddr_un, sun_path) + name.size();
    EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(size)), 0) << name;
  }
  ~Supervisor() { ::close(socket_); }
  // Shell text that starts a command under it.
  std::string before(int64_t watchdog_us) const {
    return fmt::format("export NOTIFY_SOCKET='{}' WATCHDOG_USEC={} WATCHDOG_PID=$$;", name_, watchdog_us);
  }
  // What has been said so far, in order.
  const std::vector<std::string>& said() {
    char bytes[4096];
    for (ssize_t n; (n = ::recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT)) >= 0;)
      said_.emplace_back(bytes, static_cast<size_t>(n));
    return said_;
  }
  // The index of the first message behind `from` that begins so; -1: it has not come.
  int64_t find(const std::string& begin, size_t from = 0) {
    const auto& all = said();
    for (size_t i = from; i < all.size(); ++i)
      if (all[i].starts_with(begin)) return static_cast<int64_t>(i);
    return -1;
  }
  bool says(const std::string& begin, size_t from = 0) {
    return soon([&] { return find(begin, from) >= 0; });
  }

 private:
  std::string name_;
  int socket_;
  std::vector<std::string> said_;
};

int64_t now_us() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000 + t.tv_nsec / 1000;
}

TEST(Notify, ASupervisorIsToldOfEachState) {
  const Model model;
  model.folder.write("server.json",
                     "{ // few at a time\n \"max-running-requests\": 3, \"served-model-name\": \"filed\"}");
  Supervisor supervisor(model.folder / "notify");
  Server server(model, fmt::format("--served-model-name given --config {}", model.folder / "server.json"),
                supervisor.before(200'000));
  ASSERT_NE(server.port(), 0) << server.said();
  ASSERT_TRUE(supervisor.says("READY=1\nSTATUS=serving given"));
  EXPECT_TRUE(supervisor.said()[0].starts_with("STATUS=loading")) << supervisor.said()[0];
  EXPECT_TRUE(holds(supervisor.said()[0], "\nEXTEND_TIMEOUT_USEC=60000000"));
  const auto info = Json::parse(HttpClient(server.port()).get("/server_info").body);
  EXPECT_EQ(info["max_running_requests"], 3);
  EXPECT_EQ(info["served_model_name"], "given");
  size_t seen = supervisor.said().size();
  EXPECT_TRUE(supervisor.says("WATCHDOG=1", seen));

  model.folder.write("server.json", "{\"max-running-requests\": 4, \"served-model-name\": \"filed\"}");
  const int64_t before = now_us();
  seen = supervisor.said().size();
  server.signal(SIGHUP);
  ASSERT_TRUE(supervisor.says("RELOADING=1\nMONOTONIC_USEC=", seen));
  const auto reloading = static_cast<size_t>(supervisor.find("RELOADING=1", seen));
  ASSERT_TRUE(supervisor.says("READY=1", reloading));
  const int64_t told = std::stoll(supervisor.said()[reloading].substr(std::strlen("RELOADING=1\nMONOTONIC_USEC=")));
  EXPECT_TRUE(before <= told && told <= now_us()) << told;
  EXPECT_TRUE(holds(server.said(), "a restart puts into effect: max-running-requests\n")) << server.said();
  model.folder.write("server.json", "{\"max-running\": 4}");
  server.signal(SIGHUP);
  EXPECT_TRUE(soon([&] { return holds(server.said(), "SIGHUP: nothing changes: "); }));
  EXPECT_TRUE(holds(server.said(), "\"max-running\" is not a setting; close names: ")) << server.said();

  seen = supervisor.said().size();
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0) << server.said();
  EXPECT_GE(supervisor.find("STOPPING=1\nSTATUS=", seen), 0);
}

TEST(Notify, NoSignOfLifeBehindAStepThatHangs) {
  const Model model;
  Supervisor supervisor(fmt::format("@reprise-notify-{}", ::getpid()));
  Server server(model, "--inject-fault hang@3 --watchdog-timeout 0.6", supervisor.before(200'000));
  ASSERT_NE(server.port(), 0) << server.said();
  ASSERT_TRUE(supervisor.says("READY=1"));
  HttpClient c(server.port());
  const std::string body = R"({"prompt": "abc", "max_tokens": 50, "ignore_eos": true})";
  c.send(fmt::format("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{}", body.size(),
                     body));
  EXPECT_EQ(server.wait(), 1);
  const int64_t end = supervisor.find("STOPPING=1\nSTATUS=step ");
  ASSERT_GE(end, 0);
  EXPECT_GE(supervisor.find("WATCHDOG=1"), 0);
  EXPECT_EQ(supervisor.find("WATCHDOG=1", static_cast<size_t>(end)), -1);
}

TEST(Notify, WrongSettingsOfASupervisorAreErrors) {
  const Model model;
  for (const auto& [variables, instead] : std::vector<std::pair<std::string, std::string>>{
           {"NOTIFY_SOCKET=run", "allowed: a path that begins with /"},
           {"NOTIFY_SOCKET=@a WATCHDOG_USEC=soon", "allowed: 1 or more"}}) {
    const Outcome o = run_binary("serve --port 0 " + model.flags(), variables);
    EXPECT_EQ(o.exit_code, 1) << o.err;
    EXPECT_TRUE(holds(o.err, instead)) << o.err;
  }
  // A watchdog of another process is not meant.
  const Outcome other =
      run_binary("serve --check " + model.flags(), "NOTIFY_SOCKET=@a WATCHDOG_USEC=soon WATCHDOG_PID=1");
  EXPECT_EQ(other.exit_code, 0) << other.err;
}

// A flag outranks the file, and a wrong line of the file is a usage error that names both.
TEST(Notify, TheFileOfSettingsIsCheckedLikeFlags) {
  const Model model;
  const auto check = [&](const std::string& text, const std::string& flags = "") {
    model.folder.write("f.json", text);
    return run_binary(fmt::format("serve --check --config {} {}", model.folder / "f.json", flags));
  };
  const std::string path = fmt::format("\"model-path\": \"{}\", \"load-format\": \"dummy\"", model.folder.path());
  const Outcome good = check("{" + path + ", \"max-queued-requests\": 7, \"graph\": \"off\"}");
  EXPECT_EQ(good.exit_code, 0) << good.err;
  for (const auto& [text, instead] : std::vector<std::pair<std::string, std::string>>{
           {"{\"port\": 70000}", "f.json: port: 70000 is out of range; allowed: 0 to 65535"},
           {"{\"prot\": 1}", "f.json: \"prot\" is not a setting; close names: port"},
           {"{\"temperature\": 1}", "f.json: \"temperature\" is no setting of `serve`"},
           {"{\"ssl-keyfile\": \"k\"}", "reverse proxy"},
           {"{\"port\": 1", "f.json: not valid JSON"}}) {
    const Outcome o = check(text);
    EXPECT_EQ(o.exit_code, 2) << text;
    EXPECT_TRUE(holds(o.err, instead)) << o.err;
  }
  EXPECT_EQ(check("{" + path + ", \"graph\": \"off\", \"graph-decode\": \"whole\"}").exit_code, 2);
  const Outcome outranked = check("{" + path + ", \"graph\": \"off\"}", "--graph auto --graph-decode whole");
  EXPECT_EQ(outranked.exit_code, 0) << outranked.err;
}

}  // namespace
}  // namespace reprise::apps::notify_test

// A server behind nginx with the file of examples/: TLS, a socket that only nginx reaches, streams that are not held
// up.
#include <sstream>

#include "apps/serving.h"
#include "support/http_client.h"

namespace reprise::apps::nginx_test {
namespace {

using testing_support::HttpClient;

bool is_there(const char* command) { return std::system(fmt::format("{} >/dev/null 2>&1", command).c_str()) == 0; }

class Nginx {
 public:
  // examples/nginx.conf with a free port, a certificate of its own, and paths of the folder.
  Nginx(const Folder& folder, const std::string& socket) : log_(folder / "nginx.log") {
    for (port_ = 20000 + ::getpid() % 20000; HttpClient(port_).connected(); ++port_) {
    }
    const std::string make = fmt::format(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost "
        "-keyout {} -out {} 2>/dev/null",
        folder / "key", folder / "pem");
    EXPECT_EQ(std::system(make.c_str()), 0);
    std::string text = content_of(std::string(REPRISE_SOURCE_DIR) + "/examples/nginx.conf");
    for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
             {"unix:/run/reprise/http.sock;", "unix:" + socket + ";"},
             {"127.0.0.1:443", fmt::format("127.0.0.1:{}", port_)},
             {"/etc/ssl/reprise.pem", folder / "pem"},
             {"/etc/ssl/reprise.key", folder / "key"},
             {"pid /run/nginx.pid;", fmt::format("pid {}; daemon off;", folder / "nginx.pid")}}) {
      const size_t at = text.rfind(from);
      EXPECT_NE(at, std::string::npos) << from;
      if (at != std::string::npos) text.replace(at, from.size(), to);
    }
    folder.write("nginx.conf", text);
    const std::string command = fmt::format("exec nginx -p {} -c {} 2>{}", folder.path(), folder / "nginx.conf", log_);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
  }
  ~Nginx() {
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
  std::string url() const { return fmt::format("https://localhost:{}", port_); }
  std::string said() const { return content_of(log_); }

 private:
  std::string log_;
  int64_t port_ = 0;
  pid_t pid_ = 0;
};

TEST(Nginx, AddsTlsToASocketOfThisMachine) {
  for (const char* program : {"nginx -v", "openssl version", "curl --version"}) {
    if (is_there(program)) continue;
    if (std::getenv("CI")) FAIL() << "there is no " << program << " (Debian: nginx-light, openssl, curl)";
    GTEST_SKIP() << "there is no " << program << " (Debian: nginx-light, openssl, curl)";
  }
  const Model model;
  const std::string keys = model.folder / "keys", socket = model.folder / "sock";
  const Outcome made = run_binary("key new ada --api-keys-file " + keys);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const std::string key = made.out.substr(0, made.out.size() - 1);
  Server server(model, fmt::format("--host unix:{} --socket-mode 666 --api-keys-file {}", socket, keys));
  ASSERT_TRUE(soon([&] { return holds(server.said(), "serving "); })) << server.said();
  const Nginx nginx(model.folder, socket);
  const auto curl = [&](const std::string& route, const std::string& more) {
    const std::string out = model.folder / "answer";
    std::system(
        fmt::format("curl -sS -N --cacert {} {} {}{} >{} 2>&1", model.folder / "pem", more, nginx.url(), route, out)
            .c_str());
    return content_of(out);
  };
  ASSERT_TRUE(soon([&] { return holds(curl("/readyz", ""), "ready"); })) << nginx.said() << curl("/readyz", "-v");
  const std::string bearer = "-H 'authorization: Bearer " + key + "' ";
  const std::string body = R"(-d '{"prompt": "once upon", "max_tokens": 20, "ignore_eos": true, "stream": true}' )";
  EXPECT_TRUE(holds(curl("/v1/completions", body), "invalid_api_key"));
  const std::string events = curl("/v1/completions", bearer + body);
  EXPECT_TRUE(holds(events, "data: [DONE]")) << events;
  EXPECT_TRUE(
      holds(curl("/v1/messages", bearer + R"(-d '{"max_tokens": 4, "messages": [{"role": "user", "content": "a"}]}' )"),
            R"("type":"message")"));
  // Who comes through the proxy is no client of this machine.
  EXPECT_TRUE(holds(curl("/requests", bearer), "403") || holds(curl("/requests", bearer), "permission_error"));
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(socket));
}

}  // namespace
}  // namespace reprise::apps::nginx_test

// Bytes on a connection of the HTTP server, in pieces whose size the first byte chooses. Whatever they are, the server
// sends whole answers or none, closes the connection and forgets it.
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "server/http_server.h"

using namespace reprise::server;

namespace {

class Server {
 public:
  Server() {
    HttpOptions options;
    options.port = 0;
    options.max_header_bytes = 512;
    options.max_body_bytes = 1024;
    http_ = HttpServer::listen(options, [this](HttpRequest r, auto reply) { serve(r, std::move(reply)); }).value();
    thread_ = std::thread([this] { http_->run(); });
  }
  ~Server() {
    http_->stop();
    thread_.join();
  }
  HttpServer& http() { return *http_; }

 private:
  void serve(const HttpRequest& r, std::shared_ptr<Reply> reply) {
    if (r.path == "/later") {
      reply->on_gone([] {});
      http_->post([reply] { reply->send(200, "text/plain", "later"); });
    } else if (r.path == "/stream") {
      reply->begin(200, "text/event-stream");
      for (size_t i = 0; i < r.body.size() % 5; ++i) reply->write("data: piece\n\n");
      if (r.query != "leave") reply->end();
    } else if (r.path != "/forget") {
      std::string all = r.method + r.path + r.query + r.body;
      for (const auto& [name, value] : r.headers) all += name + value;
      reply->send(200, "text/plain", all, {{"x-request-id", "1"}});
    }
  }

  std::unique_ptr<HttpServer> http_;
  std::thread thread_;
};

// What the server sent, until it closed; it must do so soon.
std::string read_to_the_end(int socket) {
  std::string out;
  char buffer[4096];
  while (true) {
    const ssize_t n = ::recv(socket, buffer, sizeof buffer, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) std::abort();
    if (n <= 0) return out;
    out.append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Server server;
  if (size == 0) return 0;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  const timeval limit{5, 0};
  ::setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  server.http().adopt(ends[1]);
  const size_t piece = data[0] < 200 ? size : size_t{1} + data[0] - 200;
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  while (!rest.empty()) {
    const ssize_t n = ::send(ends[0], rest.data(), std::min(piece, rest.size()), MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) std::abort();
    if (n <= 0) break;  // it has seen enough
    rest.remove_prefix(static_cast<size_t>(n));
  }
  ::shutdown(ends[0], SHUT_WR);
  const std::string answer = read_to_the_end(ends[0]);
  ::close(ends[0]);
  if (!answer.empty() && !answer.starts_with("HTTP/1.1 ")) std::abort();
  for (int i = 0; server.http().counters().open != 0; ++i) {
    if (i == 50000) std::abort();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return 0;
}

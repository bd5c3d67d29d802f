// HttpClient: a plain blocking HTTP/1.1 client over a socket, for tests: it sends bytes as given and reads an answer,
// chunks joined. One connection, one thread.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

namespace reprise::testing_support {

struct HttpAnswer {
  int status = 0;  // 0: the connection ended before an answer came
  std::map<std::string, std::string> headers;
  std::string body;
  bool complete = false;
};

class HttpClient {
 public:
  explicit HttpClient(int64_t port, int seconds = 30) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const timeval limit{seconds, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~HttpClient() { close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  void end_sending() { ::shutdown(fd_, SHUT_WR); }
  // Ends the connection as a machine does that has forgotten it.
  void reset() {
    const linger at_once{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close();
  }
  // Some bytes, or "" at the end.
  std::string receive() {
    char buffer[4096];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    return n > 0 ? std::string(buffer, static_cast<size_t>(n)) : std::string();
  }

  HttpAnswer read() {
    HttpAnswer a;
    size_t end;
    while ((end = held_.find("\r\n\r\n")) == std::string::npos)
      if (!more()) return a;
    size_t line = held_.find("\r\n");
    a.status = std::atoi(held_.c_str() + std::min<size_t>(9, held_.size()));
    while (line < end) {
      const size_t next = held_.find("\r\n", line + 2);
      const std::string field = held_.substr(line + 2, next - line - 2);
      const size_t colon = field.find(':');
      std::string name = field.substr(0, colon);
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      if (colon != std::string::npos) a.headers[name] = field.substr(std::min(field.size(), colon + 2));
      line = next;
    }
    held_.erase(0, end + 4);
    if (a.status == 100) return read();
    if (a.headers.contains("content-length")) {
      const size_t length = std::stoul(a.headers["content-length"]);
      while (held_.size() < length)
        if (!more()) return a;
      a.body = held_.substr(0, length);
      held_.erase(0, length);
      a.complete = true;
    } else if (a.headers["transfer-encoding"] == "chunked") {
      while (true) {
        size_t mark;
        while ((mark = held_.find("\r\n")) == std::string::npos)
          if (!more()) return a;
        const size_t length = std::stoul(held_.substr(0, mark), nullptr, 16);
        while (held_.size() < mark + 2 + length + 2)
          if (!more()) return a;
        a.body += held_.substr(mark + 2, length);
        held_.erase(0, mark + 2 + length + 2);
        if (length == 0) break;
      }
      a.complete = true;
    } else {
      while (more()) continue;
      a.body = std::exchange(held_, {});
      a.complete = true;
    }
    return a;
  }

  HttpAnswer get(const std::string& path, const std::string& headers = "") {
    send("GET " + path + " HTTP/1.1\r\n" + with_host(headers) + "\r\n");
    return read();
  }
  HttpAnswer post(const std::string& path, const std::string& body, const std::string& headers = "") {
    send("POST " + path + " HTTP/1.1\r\ncontent-length: " + std::to_string(body.size()) + "\r\n" + with_host(headers) +
         "\r\n" + body);
    return read();
  }

 private:
  // A request has one host, which the headers may name.
  static std::string with_host(const std::string& headers) {
    return headers.starts_with("host: ") ? headers : "host: localhost\r\n" + headers;
  }
  bool more() {
    const std::string bytes = receive();
    held_ += bytes;
    return !bytes.empty();
  }

  int fd_ = -1;
  bool connected_ = false;
  std::string held_;
};

}  // namespace reprise::testing_support

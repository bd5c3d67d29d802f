// ScriptedServer: an HTTP server that sends what a test wrote, byte for byte, piece for piece. A thread for each
// connection (LocalListener); it goes with its test.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "support/local_listener.h"

namespace reprise::testing_support {

struct Script {
  std::vector<std::string> pieces;  // each is a segment of its own
  bool close = false;               // the connection, afterwards
};

class ScriptedServer {
 public:
  // Called with the path and the body of every request, and how many came before it.
  using Answer = std::function<Script(const std::string& path, const Json& body, int before)>;

  explicit ScriptedServer(Answer answer) : answer_(std::move(answer)) {}
  std::string url() const { return listener_.url(); }
  int connections() const { return listener_.connections(); }

  static std::string chunk(const std::string& bytes) { return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes); }
  static std::string stream_head() {
    return "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
  }
  static Script stream(const std::vector<std::string>& events) {
    Script s{{stream_head()}};
    for (const std::string& e : events) s.pieces.push_back(chunk("data: " + e + "\n\n"));
    s.pieces.push_back("0\r\n\r\n");
    return s;
  }
  static Script json(int status, const Json& body) {
    const std::string text = body.dump();
    return {{fmt::format("HTTP/1.1 {} Said\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{}", status,
                         text.size(), text)}};
  }
  static std::string text_event(const std::string& text, const std::string& finish = "") {
    return Json{
        {"choices", {{{"index", 0}, {"text", text}, {"finish_reason", finish.empty() ? Json() : Json(finish)}}}}}
        .dump();
  }
  static std::string usage_event(int prompt, int completion) {
    return Json{{"choices", Json::array()}, {"usage", {{"prompt_tokens", prompt}, {"completion_tokens", completion}}}}
        .dump();
  }

 private:
  bool answer_one(int fd) {
    std::string held;
    char buffer[65536];
    size_t head = std::string::npos, length = 0;
    while (head == std::string::npos || held.size() < head + 4 + length) {
      const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
      if (n <= 0) return false;
      held.append(buffer, static_cast<size_t>(n));
      head = held.find("\r\n\r\n");
      const size_t field = held.find("Content-Length: ");
      if (head != std::string::npos && field < head) length = std::stoul(held.substr(field + 16));
    }
    const size_t path = held.find(' ') + 1;
    const Script script = answer_(held.substr(path, held.find(' ', path) - path),
                                  Json::parse(held.substr(head + 4), nullptr, false), requests_++);
    for (const std::string& piece : script.pieces) {
      if (::send(fd, piece.data(), piece.size(), MSG_NOSIGNAL) < 0) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a segment of its own
    }
    return !script.close;
  }

  Answer answer_;
  std::atomic<int> requests_{0};
  LocalListener listener_{[this](int fd) { return answer_one(fd); }};
};

}  // namespace reprise::testing_support

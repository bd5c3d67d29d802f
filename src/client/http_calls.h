// HttpCalls: HTTP/1.1 requests to one server, thousands at a time on one thread.
//
// start() queues a request, run() works until all have ended. A sink hears of its answer as it arrives: began() once,
// piece() as often as there are bytes, end() always and last. Connections are kept and used again; one that the server
// had closed meanwhile is replaced without a word. Everything happens on the thread that calls run().
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace reprise::client {

struct HttpCall {
  std::string method = "POST";
  std::string path;  // behind the server's own: "/v1/completions"
  std::string body;  // JSON
};

class CallSink {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~CallSink() = default;
  virtual void began(int status) = 0;
  // The header of that name, where the answer has it; after began().
  virtual void retry_after(std::string_view) {}
  virtual void piece(std::string_view bytes) = 0;
  // Not ok: the answer did not come, or not all of it; the message says why.
  virtual void end(const Status& status) = 0;
};

struct HttpAnswer {
  int status = 0;
  std::string body;
  std::string retry_after = {};  // the header
};

// A server, and where on it the calls begin.
struct HttpPlace {
  std::string authority, host, port;  // "localhost:30000", "localhost", "30000"
  std::string prefix;                 // "/api"
};
// `url` is http://HOST[:PORT][/PATH].
Result<HttpPlace> parse_http_place(const std::string& url);

struct HttpCallOptions {
  std::vector<std::pair<std::string, std::string>> headers;  // of every request
  std::chrono::milliseconds connect_time{10000};
  std::chrono::milliseconds silence{600000};  // longest time without a byte of an answer
};

class HttpCalls {
 public:
  using Clock = CallSink::Clock;
  // `url` is http://HOST[:PORT][/PATH]; the host is looked up here.
  static Result<std::unique_ptr<HttpCalls>> open(const std::string& url, HttpCallOptions options);
  ~HttpCalls();

  void start(HttpCall call, std::shared_ptr<CallSink> sink);
  void at(Clock::time_point when, std::function<void()> what);
  // Until every call has ended and nothing is planned.
  void run();
  // One call by itself, with run(). With a limit it ends by then, and where it failed this is not to be used again.
  Result<HttpAnswer> fetch(HttpCall call, std::optional<std::chrono::milliseconds> limit = std::nullopt);
  int64_t connections() const;  // made so far

 private:
  struct Shared;
  class Connection;
  explicit HttpCalls(std::unique_ptr<Shared> shared);
  std::unique_ptr<Shared> shared_;
};

}  // namespace reprise::client

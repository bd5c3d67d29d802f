// HttpServer: HTTP/1.1 on one thread: keep-alive, bounded headers, bodies and times, answers in chunks.
//
// run() is the thread; handlers are called on it. Requests of one connection are answered one after the other; a
// RequestReader says what a request is. A client that is slow to send or to read is dropped after the times below; one
// that stops reading a stream is dropped when more than max_unsent_bytes wait for it. stop() and post() may be called
// by any thread. Replies do not outlive their server.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "server/http.h"

namespace reprise::server {

struct HttpOptions {
  std::string host = "127.0.0.1";     // or unix:PATH
  int64_t port = 30000;               // 0: any free one
  int64_t socket_mode = 0660;         // of a unix:PATH
  std::optional<int> inherited;       // a socket that listens already, in place of host and port
  std::optional<int64_t> admin_port;  // on loopback; 0: any free one
  size_t max_header_bytes = 16 * 1024;
  size_t max_body_bytes = 16 * 1024 * 1024;
  int64_t max_connections = 4096;
  std::chrono::milliseconds header_time{10000};  // from the first byte of a request to its headers' end
  std::chrono::milliseconds body_time{60000};    // until its body is complete
  std::chrono::milliseconds body_grace{5000};    // from when on a body comes at body_rate at least, in the mean
  double body_rate = 1024;                       // bytes a second; 0: any
  std::chrono::milliseconds idle_time{75000};    // between requests
  std::chrono::milliseconds write_time{30000};   // for the client to take what was written
  size_t max_unsent_bytes = 4 * 1024 * 1024;
  size_t max_held_bytes = 512 * 1024 * 1024;  // of all requests that are being read or wait to be parsed
};

struct HttpCounters {
  uint64_t connections = 0, requests = 0, refused = 0, dropped = 0;  // refused: over max_connections
  int64_t open = 0;
  int64_t held_bytes = 0;  // of requests that are being read or wait to be parsed
};

class HttpServer {
 public:
  // Binds and listens; serves when run() is called. Errors name the address.
  static Result<std::unique_ptr<HttpServer>> listen(const HttpOptions& options, HttpHandler handler,
                                                    HttpGate gate = nullptr);
  virtual ~HttpServer() = default;

  virtual int64_t port() const = 0;
  virtual int64_t admin_port() const = 0;  // 0: there is none
  virtual bool on_loopback() const = 0;    // only this machine can connect
  virtual void run() = 0;
  virtual void stop() = 0;
  // Any thread: accepts connections of a socket that was passed on; what connects before waits in the socket. Others
  // are accepted from the beginning.
  virtual void accept_inherited() = 0;
  // Any thread: accepts no more connections, and keeps none for a further request. What connects waits for the process
  // that listens on the same socket next.
  virtual void leave() = 0;
  // Any thread: serves a connected stream socket that another acceptor accepted, and owns it from now on.
  virtual void adopt(int socket) = 0;
  virtual void post(std::function<void()> what) = 0;
  virtual void after(std::chrono::milliseconds time, std::function<void()> what) = 0;
  virtual HttpCounters counters() const = 0;  // any thread
};

}  // namespace reprise::server

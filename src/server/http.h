// HttpRequest, Reply and HttpHandler: what the server's routes see of HTTP. No sockets here.
//
// A handler gets a request and a Reply to answer it through, now or later, whole or in pieces. A gate may turn a
// request away before its body is read. Everything happens on the HTTP server's one thread; other threads reach it
// through HttpServer::post().
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace reprise::server {

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // without the query, percent-decoded
  std::string query;
  std::map<std::string, std::string> headers;  // names in lower case; of several of one name the values, with commas
  std::string authority;                       // of a target with a host in it; then it is the Host header too
  std::string body;
  std::shared_ptr<const void> held;  // the body counts as held memory as long as this lives
  std::string client;                // address of the other end; "" = not known
  bool from_loopback = false;
  bool on_admin_port = false;

  std::string_view header(const std::string& name) const {
    const auto it = headers.find(name);
    return it == headers.end() ? std::string_view() : std::string_view(it->second);
  }
};

using Headers = std::vector<std::pair<std::string, std::string>>;

// The way back to one client. It may be kept beyond the handler's return; when the client goes, what is written is
// dropped.
class Reply {
 public:
  virtual ~Reply() = default;
  // A whole answer. Once, unless begin() was called.
  virtual void send(int status, std::string_view content_type, std::string body, const Headers& headers = {}) = 0;
  // An answer in pieces: begin(), write() as often as there is something, end().
  virtual void begin(int status, std::string_view content_type, const Headers& headers = {}) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end() = 0;
  // Called at most once, when the client goes away or falls too far behind before the answer was complete.
  virtual void on_gone(std::function<void()> callback) = 0;
  virtual bool gone() const = 0;
  // Named values of the answer for the request log, never text of it; `brief`: for the line of the access log, too.
  // Before the answer ends.
  virtual void note(const OrderedJson& facts, bool brief = true) {}
};

using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<Reply>)>;
// Sees a request whose body has not been read yet. True: it was answered, and its body is not wanted.
using HttpGate = std::function<bool(const HttpRequest&, const std::shared_ptr<Reply>&)>;

}  // namespace reprise::server

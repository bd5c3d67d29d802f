// HttpSession: GET and HEAD requests to a hub over libcurl, one after another on kept connections. libcurl is opened
// with the first session (library.h). Proxies come from the environment as libcurl reads them; certificates are always
// checked.
//
// Redirects are followed here and not by libcurl: the token goes to the endpoint's own scheme, host and port and to no
// other, and nothing leads from https to http. Everything that arrives is bounded. Owned by the code that fetches; one
// thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "hub/settings.h"

namespace reprise::hub {

struct HttpAnswer {
  int status = 0;
  std::string host;                            // that gave it: "cdn.example:8443"
  bool by_hub = true;                          // it is the endpoint's, and not of a host that it led to
  std::map<std::string, std::string> headers;  // names in lower case
  // Headers of the endpoint's own last answer, when a redirect led to another host: a hub says there what the file is.
  std::map<std::string, std::string> hub_headers;
  std::string body;  // unless it went to HttpRequest::body

  // "" when absent.
  std::string header(const std::string& name) const;
  std::string hub_header(const std::string& name) const;
  // Seconds to wait, when Retry-After or RateLimit says so.
  std::optional<int> retry_after() const;
};

struct HttpRequest {
  std::string url;
  // Where others chose the URL: the origins that it may be of ("https://cdn.example", "http://10.0.0.7:8000"). No
  // redirect is followed and no proxy asked; names must lead to public addresses, on the very connection that is made.
  // An address that the list has itself may be any.
  const std::vector<std::string>* only = nullptr;
  bool head = false;                    // no body is asked for, and redirects to other hosts are not followed
  uint64_t from = 0;                    // "Range: bytes=from-" when not 0
  size_t most_bytes = 1 << 20;          // of a body that is kept
  std::string_view most_bytes_by = {};  // behind the number in errors: " (what sets it)"
  // With both, the body of a 200 or 206 goes here instead: first the head, then the bytes. An error of either ends the
  // request with it.
  std::function<Status(const HttpAnswer&)> begin;
  std::function<Status(std::string_view)> body;
};

class HttpSession {
 public:
  // `stop` is asked about once a second and at every piece; true ends a request with Cancelled. `library` is for tests.
  static Result<HttpSession> open(const HubSettings& settings, std::function<bool()> stop,
                                  const char* library = "libcurl.so.4");
  HttpSession(HttpSession&&) noexcept;
  ~HttpSession();

  // Any status is an answer. NotFound: the host could not be reached. Busy: the transfer broke. Both can be tried
  // again, other errors cannot.
  Result<HttpAnswer> run(const HttpRequest& request);

 private:
  struct Curl;
  explicit HttpSession(std::unique_ptr<Curl> curl);
  std::unique_ptr<Curl> curl_;
};

// Worth another try: 408, 425, 429 and 5xx but 501 and 505.
bool is_passing_status(int status);

}  // namespace reprise::hub

#include "hub/http.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <mutex>

#include "base/lower_case.h"
#include "hub/library.h"
#include "hub/model_name.h"
#include "hub/public_address.h"

namespace reprise::hub {
namespace {

constexpr size_t kMostHeaderBytes = 256 << 10;
constexpr int kMostRedirects = 10;
constexpr long kConnectSeconds = 15;

// libcurl's functions under its own names without "curl_".
struct Api {
  decltype(curl_global_init)* global_init = nullptr;
  decltype(curl_easy_init)* easy_init = nullptr;
  decltype(curl_easy_setopt)* easy_setopt = nullptr;
  decltype(curl_easy_perform)* easy_perform = nullptr;
  decltype(curl_easy_getinfo)* easy_getinfo = nullptr;
  decltype(curl_easy_cleanup)* easy_cleanup = nullptr;
  decltype(curl_easy_strerror)* easy_strerror = nullptr;
  decltype(curl_slist_append)* slist_append = nullptr;
  decltype(curl_slist_free_all)* slist_free_all = nullptr;
  decltype(curl_url)* url = nullptr;
  decltype(curl_url_cleanup)* url_cleanup = nullptr;
  decltype(curl_url_set)* url_set = nullptr;
  decltype(curl_url_get)* url_get = nullptr;
  decltype(curl_free)* free = nullptr;

  static Result<Api> open(const char* name) {
    ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::open({name}, "fetching models needs", "libcurl4"));
    Api a;
    RETURN_IF_ERROR(library.find("curl_global_init", a.global_init));
    RETURN_IF_ERROR(library.find("curl_easy_init", a.easy_init));
    RETURN_IF_ERROR(library.find("curl_easy_setopt", a.easy_setopt));
    RETURN_IF_ERROR(library.find("curl_easy_perform", a.easy_perform));
    RETURN_IF_ERROR(library.find("curl_easy_getinfo", a.easy_getinfo));
    RETURN_IF_ERROR(library.find("curl_easy_cleanup", a.easy_cleanup));
    RETURN_IF_ERROR(library.find("curl_easy_strerror", a.easy_strerror));
    RETURN_IF_ERROR(library.find("curl_slist_append", a.slist_append));
    RETURN_IF_ERROR(library.find("curl_slist_free_all", a.slist_free_all));
    RETURN_IF_ERROR(library.find("curl_url", a.url));
    RETURN_IF_ERROR(library.find("curl_url_cleanup", a.url_cleanup));
    RETURN_IF_ERROR(library.find("curl_url_set", a.url_set));
    RETURN_IF_ERROR(library.find("curl_url_get", a.url_get));
    RETURN_IF_ERROR(library.find("curl_free", a.free));
    static std::mutex one;  // older versions start for one thread at a time
    std::lock_guard lock(one);
    if (a.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return error(Code::Unsupported, "{} cannot be started", name);
    return a;
  }
};

// Where a token may go: all three must be equal.
struct Origin {
  std::string scheme, host, port;
  bool operator==(const Origin&) const = default;
  std::string words() const {
    const bool usual = port == (scheme == "https" ? "443" : "80");
    return usual ? host : host + ":" + port;
  }
};

// By libcurl's own parser, so that what is compared is what is connected to.
Result<Origin> origin_of(const Api& api, const std::string& url) {
  CURLU* parsed = api.url();
  if (!parsed) return error(Code::OutOfMemory, "no memory for a URL");
  const auto part = [&](CURLUPart which, unsigned flags) {
    char* text = nullptr;
    std::string out;
    if (api.url_get(parsed, which, &text, flags) == CURLUE_OK && text) out = text;
    api.free(text);
    return out;
  };
  Origin o;
  const bool fine = api.url_set(parsed, CURLUPART_URL, url.c_str(), 0) == CURLUE_OK;
  if (fine) o = {part(CURLUPART_SCHEME, 0), part(CURLUPART_HOST, 0), part(CURLUPART_PORT, CURLU_DEFAULT_PORT)};
  api.url_cleanup(parsed);
  o.host = lower_case(o.host);
  if (!fine || o.host.empty() || (o.scheme != "https" && o.scheme != "http"))
    return invalid("\"{}\" is no http or https URL", printable(url));
  return o;
}

// What to do about it, where libcurl's words do not say.
const char* advice(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_PROXY: return "; see HTTPS_PROXY and ALL_PROXY";
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return "; certificates are those of the package ca-certificates, or of the file that CURL_CA_BUNDLE names";
    default: return "";
  }
}

Code code_of(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT: return Code::NotFound;
    // Transfers that may well work the next time.
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: return Code::Busy;
    default: return Code::Invalid;
  }
}

std::optional<int> whole_number(std::string_view text) {
  int n = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (problem != std::errc() || end != text.data() + text.size() || n < 0) return std::nullopt;
  return n;
}

// One exchange, for libcurl's callbacks.
struct Exchange {
  const HttpRequest* request = nullptr;
  const std::function<bool()>* stop = nullptr;
  HttpAnswer answer;
  size_t header_bytes = 0;
  bool begun = false;
  Status status;  // why it was ended from here

  bool streams() const { return request->body && (answer.status == 200 || answer.status == 206); }
  bool fail(Status s) {
    status = std::move(s);
    return false;
  }

  bool take_header(std::string_view line) {
    header_bytes += line.size();
    if (header_bytes > kMostHeaderBytes) return fail(invalid("the head of the answer is too long"));
    if (line.starts_with("HTTP/")) {  // also after an interim answer
      answer.headers.clear();
      const size_t space = line.find(' ');
      answer.status = space == line.npos ? 0 : whole_number(line.substr(space + 1, 3)).value_or(0);
      return true;
    }
    const size_t colon = line.find(':');
    if (colon == line.npos) return true;
    const std::string name = lower_case(line.substr(0, colon));
    std::string_view rest = line.substr(colon + 1);
    while (!rest.empty() && (rest.front() == ' ' || rest.front() == '\t')) rest.remove_prefix(1);
    while (!rest.empty() && static_cast<unsigned char>(rest.back()) <= ' ') rest.remove_suffix(1);
    answer.headers[name] = rest;
    return true;
  }
  bool begin() {
    if (begun || !streams()) return true;
    begun = true;
    Status s = request->begin(answer);
    return s.is_ok() || fail(std::move(s));
  }
  bool take_body(std::string_view bytes) {
    if (!begin()) return false;
    if (streams()) {
      Status s = request->body(bytes);
      return s.is_ok() || fail(std::move(s));
    }
    // What an error says is cut; what was asked for must be whole.
    if (answer.body.size() + bytes.size() > request->most_bytes) {
      if (answer.status == 200)
        return fail(invalid("the answer has more than {} bytes{}", request->most_bytes, request->most_bytes_by));
      bytes = bytes.substr(0, request->most_bytes - answer.body.size());
    }
    answer.body.append(bytes);
    return true;
  }
};

size_t on_header(char* data, size_t size, size_t count, void* user) {
  return static_cast<Exchange*>(user)->take_header({data, size * count}) ? size * count : 0;
}

size_t on_body(char* data, size_t size, size_t count, void* user) {
  return static_cast<Exchange*>(user)->take_body({data, size * count}) ? size * count : 0;
}

// The address that is about to be connected to, however the name was resolved.
curl_socket_t on_open(void* user, curlsocktype, curl_sockaddr* a) {
  if (is_public_address(a->addr)) return ::socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
  static_cast<Exchange*>(user)->fail(invalid("it leads to an address that is not public"));
  return CURL_SOCKET_BAD;
}

bool is_address(std::string host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  in6_addr any;
  return ::inet_pton(AF_INET, host.c_str(), &any) == 1 || ::inet_pton(AF_INET6, host.c_str(), &any) == 1;
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return (*static_cast<Exchange*>(user)->stop)() ? 1 : 0;
}

}  // namespace

std::string HttpAnswer::header(const std::string& name) const {
  const auto it = headers.find(name);
  return it == headers.end() ? "" : it->second;
}

std::string HttpAnswer::hub_header(const std::string& name) const {
  const auto it = hub_headers.find(name);
  return it == hub_headers.end() ? "" : it->second;
}

std::optional<int> HttpAnswer::retry_after() const {
  if (const auto seconds = whole_number(header("retry-after"))) return seconds;
  // Hugging Face: ratelimit: "api";r=0;t=55
  const std::string limit = header("ratelimit");
  const size_t t = limit.find(";t=");
  if (limit.find(";r=0") == limit.npos || t == limit.npos) return std::nullopt;
  return whole_number(limit.substr(t + 3, limit.find(';', t + 3) - t - 3));
}

bool is_passing_status(int status) {
  return status == 408 || status == 425 || status == 429 || (status >= 500 && status != 501 && status != 505);
}

struct HttpSession::Curl {
  Api api;
  CURL* handle = nullptr;
  Origin endpoint;
  std::string token, certificates;
  bool cookie = false;  // ModelScope's older routes know the token by this alone
  int stall_seconds = 30;
  std::function<bool()> stop;

  ~Curl() {
    if (handle) api.easy_cleanup(handle);
  }

  template <typename Value>
  void set(CURLoption option, Value value) {
    api.easy_setopt(handle, option, value);
  }

  void set_for_all() {
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(stall_seconds));
    set(CURLOPT_TCP_KEEPALIVE, 1L);
    set(CURLOPT_BUFFERSIZE, 256L << 10);
    set(CURLOPT_USERAGENT, "reprise");
    set(CURLOPT_HEADERFUNCTION, on_header);
    set(CURLOPT_WRITEFUNCTION, on_body);
    set(CURLOPT_XFERINFOFUNCTION, on_progress);
    set(CURLOPT_NOPROGRESS, 0L);
    if (!certificates.empty()) set(CURLOPT_CAINFO, certificates.c_str());
  }

  // For a URL that others chose.
  Status guard(const Origin& origin, Exchange& x) {
    const auto& only = *x.request->only;
    if (std::find(only.begin(), only.end(), origin.scheme + "://" + origin.words()) == only.end())
      return invalid("{}://{} is not among the hosts that are fetched from", origin.scheme, printable(origin.words()));
    set(CURLOPT_PROXY, "");
    if (is_address(origin.host)) return Status::ok();
    set(CURLOPT_OPENSOCKETFUNCTION, on_open);
    set(CURLOPT_OPENSOCKETDATA, &x);
    return Status::ok();
  }

  Result<std::string> exchange(const std::string& url, const Origin& origin, Exchange& x) {
    if (x.request->only) RETURN_IF_ERROR(guard(origin, x));
    curl_slist* headers = nullptr;
    const auto add = [&](const std::string& line) { headers = api.slist_append(headers, line.c_str()); };
    if (!token.empty() && origin == endpoint) {
      add("Authorization: Bearer " + token);
      if (cookie) add("Cookie: m_session_id=" + token);
    }
    if (x.request->from > 0) add(fmt::format("Range: bytes={}-", x.request->from));
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_HTTPHEADER, headers);
    set(CURLOPT_NOBODY, x.request->head ? 1L : 0L);
    if (!x.request->head) set(CURLOPT_HTTPGET, 1L);
    set(CURLOPT_HEADERDATA, &x);
    set(CURLOPT_WRITEDATA, &x);
    set(CURLOPT_XFERINFODATA, &x);
    const CURLcode code = api.easy_perform(handle);
    set(CURLOPT_HTTPHEADER, static_cast<curl_slist*>(nullptr));
    api.slist_free_all(headers);
    if (!x.status.is_ok()) return x.status;
    if (code == CURLE_ABORTED_BY_CALLBACK) return error(Code::Cancelled, "interrupted");
    if (code != CURLE_OK)
      return error(code_of(code), "{}: {}{}", origin.words(), api.easy_strerror(code), advice(code));
    // An answer without a body.
    if (!x.begin()) return x.status;
    char* next = nullptr;
    api.easy_getinfo(handle, CURLINFO_REDIRECT_URL, &next);
    return next ? std::string(next) : std::string();
  }
};

HttpSession::HttpSession(std::unique_ptr<Curl> curl) : curl_(std::move(curl)) {}
HttpSession::HttpSession(HttpSession&&) noexcept = default;
HttpSession::~HttpSession() = default;

Result<HttpSession> HttpSession::open(const HubSettings& settings, std::function<bool()> stop, const char* library) {
  auto curl = std::make_unique<Curl>();
  ASSIGN_OR_RETURN(curl->api, Api::open(library));
  ASSIGN_OR_RETURN(curl->endpoint, origin_of(curl->api, settings.endpoint));
  curl->handle = curl->api.easy_init();
  if (!curl->handle) return error(Code::OutOfMemory, "libcurl cannot open a session");
  curl->token = settings.token;
  curl->certificates = settings.certificates;
  curl->cookie = settings.kind == HubKind::ModelScope;
  curl->stall_seconds = settings.stall_seconds;
  curl->stop = stop ? std::move(stop) : [] { return false; };
  curl->set_for_all();
  return HttpSession(std::move(curl));
}

Result<HttpAnswer> HttpSession::run(const HttpRequest& request) {
  std::string url = request.url;
  std::map<std::string, std::string> hub_headers;
  ASSIGN_OR_RETURN(Origin origin, origin_of(curl_->api, url));
  for (int hop = 0; hop <= kMostRedirects; ++hop) {
    if (curl_->stop()) return error(Code::Cancelled, "interrupted");
    Exchange x;
    x.request = &request;
    x.stop = &curl_->stop;
    ASSIGN_OR_RETURN(const std::string next, curl_->exchange(url, origin, x));
    x.answer.host = origin.words();
    x.answer.by_hub = origin == curl_->endpoint;
    if (x.answer.by_hub) hub_headers = x.answer.headers;
    x.answer.hub_headers = hub_headers;
    const bool redirects = x.answer.status / 100 == 3 && x.answer.status != 304 && !next.empty();
    if (!redirects) return std::move(x.answer);
    if (request.only) return invalid("{} redirects, which is not followed", origin.words());
    auto target = origin_of(curl_->api, next);
    if (!target) return target.status().at(origin.words() + " redirects, but");
    if (request.head && !(*target == curl_->endpoint)) return std::move(x.answer);
    if (origin.scheme == "https" && target->scheme != "https")
      return invalid("{} redirects from https to http ({}), which is not followed", origin.words(), target->words());
    url = next;
    origin = std::move(target).value();
  }
  return invalid("{}: more than {} redirects", origin.words(), kMostRedirects);
}

}  // namespace reprise::hub

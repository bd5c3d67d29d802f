#include "client/http_calls.h"

#include <array>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <charconv>

namespace reprise::client {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

struct HttpCalls::Shared {
  HttpCallOptions options;
  std::string host, prefix;  // "localhost:30000", "/api"
  asio::io_context io{1};
  std::vector<tcp::endpoint> endpoints;
  std::vector<std::shared_ptr<Connection>> idle;  // the one used last is at the end
  int64_t connections = 0;
};

// One connection, and the call it works on.
class HttpCalls::Connection : public std::enable_shared_from_this<Connection> {
 public:
  explicit Connection(Shared& shared) : shared_(&shared), stream_(shared.io) {}

  void start(HttpCall call, std::shared_ptr<CallSink> sink) {
    call_ = std::move(call);
    sink_ = std::move(sink);
    heard_ = false;
    if (connected_) return send();
    stream_.expires_after(shared_->options.connect_time);
    ++shared_->connections;
    stream_.async_connect(shared_->endpoints, [self = shared_from_this()](error_code ec, const tcp::endpoint&) {
      if (ec) return self->fail("no connection: " + self->words(ec));
      self->connected_ = true;
      error_code ignored;
      self->stream_.socket().set_option(tcp::no_delay(true), ignored);
      self->send();
    });
  }

 private:
  void send() {
    request_ = {};
    request_.method_string(call_.method);
    request_.target(shared_->prefix + call_.path);
    request_.version(11);
    request_.set(http::field::host, shared_->host);
    for (const auto& [name, value] : shared_->options.headers) request_.set(name, value);
    if (!call_.body.empty()) request_.set(http::field::content_type, "application/json");
    request_.body() = call_.body;
    request_.prepare_payload();
    stream_.expires_after(shared_->options.silence);
    http::async_write(stream_, request_, [self = shared_from_this()](error_code ec, size_t) {
      // A server may answer and close before it has read everything; what it said is worth more than the error.
      if (ec && ec != asio::error::broken_pipe && ec != asio::error::connection_reset) return self->lost(ec);
      self->read_header();
    });
  }

  void read_header() {
    parser_.emplace();
    parser_->body_limit(boost::none);
    stream_.expires_after(shared_->options.silence);
    http::async_read_header(stream_, buffer_, *parser_, [self = shared_from_this()](error_code ec, size_t) {
      if (ec) return self->lost(ec);
      self->heard_ = true;
      const auto& head = self->parser_->get();
      self->sink_->began(static_cast<int>(head.result_int()));
      if (const auto wait = head.find(http::field::retry_after); wait != head.end()) {
        const auto value = wait->value();
        self->sink_->retry_after({value.data(), value.size()});
      }
      self->parser_->is_done() ? self->done() : self->read_body();
    });
  }

  void read_body() {
    parser_->get().body().data = bytes_.data();
    parser_->get().body().size = bytes_.size();
    stream_.expires_after(shared_->options.silence);
    http::async_read_some(stream_, buffer_, *parser_, [self = shared_from_this()](error_code ec, size_t) {
      if (ec == http::error::need_buffer) ec = {};
      const size_t got = self->bytes_.size() - self->parser_->get().body().size;
      if (got > 0) self->sink_->piece({self->bytes_.data(), got});
      if (ec) return self->lost(ec);
      self->parser_->is_done() ? self->done() : self->read_body();
    });
  }

  void done() {
    stream_.expires_never();
    if (parser_->keep_alive())
      shared_->idle.push_back(shared_from_this());
    else
      close();
    std::exchange(sink_, nullptr)->end(Status::ok());
  }

  void lost(error_code ec) {
    // The server closed it while it was idle: the request was not received.
    const bool stale = used_before_ && !heard_ &&
                       (ec == http::error::end_of_stream || ec == asio::error::connection_reset ||
                        ec == asio::error::broken_pipe || ec == asio::error::eof);
    used_before_ = false;
    if (stale) {
      close();
      return std::make_shared<Connection>(*shared_)->start(std::move(call_), std::move(sink_));
    }
    fail(heard_ ? "the connection ended in the middle of the answer: " + words(ec)
                : "the connection ended before an answer came: " + words(ec));
  }

  std::string words(error_code ec) const { return ec == beast::error::timeout ? "it took too long" : ec.message(); }

  void fail(std::string why) {
    close();
    std::exchange(sink_, nullptr)->end(error(Code::Device, "{}", why));
  }

  void close() {
    connected_ = false;
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
    stream_.close();
  }

  friend class HttpCalls;
  Shared* shared_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
  std::optional<http::response_parser<http::buffer_body>> parser_;
  std::array<char, 16384> bytes_;
  HttpCall call_;
  std::shared_ptr<CallSink> sink_;
  bool connected_ = false, used_before_ = false, heard_ = false;
};

HttpCalls::HttpCalls(std::unique_ptr<Shared> shared) : shared_(std::move(shared)) {}
HttpCalls::~HttpCalls() = default;

Result<HttpPlace> parse_http_place(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  const std::string allowed = "http://HOST[:PORT][/PATH]";
  if (!url.starts_with(kScheme)) return invalid("\"{}\" is not an address that can be used; allowed: {}", url, allowed);
  std::string rest = url.substr(kScheme.size());
  std::string prefix;
  if (const size_t slash = rest.find('/'); slash != std::string::npos) {
    prefix = rest.substr(slash);
    rest.resize(slash);
    while (prefix.ends_with('/')) prefix.pop_back();
  }
  std::string host = rest, port = "80";
  // An address of IPv6 stands in brackets.
  const size_t colon = rest.rfind(':'), bracket = rest.rfind(']');
  if (colon != std::string::npos && (bracket == std::string::npos || colon > bracket)) {
    host = rest.substr(0, colon);
    port = rest.substr(colon + 1);
  }
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  int number = 0;
  const auto [end, wrong] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (host.empty() || wrong != std::errc() || end != port.data() + port.size() || number < 1 || number > 65535)
    return invalid("\"{}\" is not an address that can be used; allowed: {}, ports 1 to 65535", url, allowed);
  return HttpPlace{rest, host, port, prefix};
}

Result<std::unique_ptr<HttpCalls>> HttpCalls::open(const std::string& url, HttpCallOptions options) {
  ASSIGN_OR_RETURN(HttpPlace place, parse_http_place(url));
  auto shared = std::make_unique<Shared>();
  shared->host = std::move(place.authority);
  shared->prefix = std::move(place.prefix);
  shared->options = std::move(options);
  error_code ec;
  tcp::resolver resolver(shared->io);
  const auto found = resolver.resolve(place.host, place.port, ec);
  if (ec) return error(Code::NotFound, "the host of {} was not found: {}", url, ec.message());
  for (const auto& entry : found) shared->endpoints.push_back(entry.endpoint());
  return std::unique_ptr<HttpCalls>(new HttpCalls(std::move(shared)));
}

void HttpCalls::start(HttpCall call, std::shared_ptr<CallSink> sink) {
  std::shared_ptr<Connection> connection;
  if (shared_->idle.empty()) {
    connection = std::make_shared<Connection>(*shared_);
  } else {
    connection = std::move(shared_->idle.back());
    shared_->idle.pop_back();
    connection->used_before_ = true;
  }
  connection->start(std::move(call), std::move(sink));
}

void HttpCalls::at(Clock::time_point when, std::function<void()> what) {
  auto timer = std::make_shared<asio::steady_timer>(shared_->io, when);
  timer->async_wait([timer, what = std::move(what)](error_code ec) {
    if (!ec) what();
  });
}

void HttpCalls::run() {
  shared_->io.restart();
  shared_->io.run();
}

Result<HttpAnswer> HttpCalls::fetch(HttpCall call, std::optional<std::chrono::milliseconds> limit) {
  struct Collect final : CallSink {
    void began(int status) override { answer.status = status; }
    void retry_after(std::string_view value) override { answer.retry_after = value; }
    void piece(std::string_view bytes) override { answer.body += bytes; }
    void end(const Status& s) override {
      status = s;
      ended = true;
    }
    HttpAnswer answer;
    Status status;
    bool ended = false;
  };
  auto sink = std::make_shared<Collect>();
  start(std::move(call), sink);
  if (limit) {
    shared_->io.restart();
    shared_->io.run_for(*limit);
    if (!sink->ended) return error(Code::Device, "no whole answer came within {} ms", limit->count());
  } else {
    run();
  }
  if (!sink->status.is_ok()) return sink->status;
  return std::move(sink->answer);
}

int64_t HttpCalls::connections() const { return shared_->connections; }

}  // namespace reprise::client

#include "server/http_server.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http/status.hpp>
#include <cstring>

#include "base/log.h"
#include "server/api_error.h"
#include "server/request_reader.h"

namespace reprise::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using Stream = asio::generic::stream_protocol;  // TCP, or a socket of this machine
using boost::system::error_code;

// What the sessions share with their server, which outlives them: io goes first, and takes along what waits in it.
struct Shared {
  HttpOptions options;
  HttpHandler handler;
  HttpGate gate;
  // Bytes of requests that are being read or wait to be parsed; a parser may outlive the server.
  std::shared_ptr<std::atomic<int64_t>> held = std::make_shared<std::atomic<int64_t>>(0);
  std::atomic<uint64_t> connections{0}, requests{0}, refused{0}, dropped{0};
  std::atomic<int64_t> open{0};
  bool stopping = false, leaving = false;
  asio::io_context io{1};
};

using Clock = std::chrono::steady_clock;

constexpr size_t kPiece = 4 * 1024, kBodyPiece = 64 * 1024;  // bytes read at once
constexpr std::chrono::seconds kLinger{2};
constexpr std::string_view kUnixPrefix = "unix:";

// nullopt: it is not of the internet's.
std::optional<asio::ip::address> address_of(const Stream::endpoint& end) {
  tcp::endpoint out;
  const int family = end.data()->sa_family;
  if ((family != AF_INET && family != AF_INET6) || end.size() > out.capacity()) return std::nullopt;
  std::memcpy(out.data(), end.data(), end.size());
  return out.address();
}

// One connection: reads a request, has it answered, reads the next.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Shared& shared, Stream::socket socket, bool admin)
      : shared_(&shared), stream_(std::move(socket)), admin_(admin) {
    ++shared_->open;
    error_code ignored;
    stream_.socket().set_option(tcp::no_delay(true), ignored);
    stream_.socket().set_option(asio::socket_base::keep_alive(true), ignored);
    const auto peer = address_of(stream_.socket().remote_endpoint(ignored));
    // Behind a socket of this machine is a proxy, most likely: no client counts as one of loopback.
    if (!peer) return;
    client_ = peer->to_string(ignored);
    loopback_ = peer->is_loopback() || (peer->is_v6() && peer->to_v6().is_v4_mapped() &&
                                        asio::ip::make_address_v4(asio::ip::v4_mapped, peer->to_v6()).is_loopback());
  }
  ~Session() {
    hold(0);
    --shared_->open;
  }

  void start() { read_first_byte(); }

 private:
  class SessionReply;
  struct Answer {  // of the request being served
    bool begun = false, chunked = false, ended = false;
    std::function<void()> on_gone;
  };

  // Waits for a request without counting its time.
  void read_first_byte() {
    if (!in_.empty()) return begin_request();
    stream_.expires_after(shared_->options.idle_time);
    read_some(kPiece, [](Session& s) { s.begin_request(); });
  }

  // Some bytes more, before the time that the stream was given.
  template <typename Next>
  void read_some(size_t most, Next next) {
    piece_.resize(most);
    stream_.async_read_some(asio::buffer(piece_), [self = shared_from_this(), next](error_code ec, size_t n) {
      if (ec) {
        if (ec == beast::error::timeout && self->reader_) ++self->shared_->dropped;
        return self->close();
      }
      self->in_.append(self->piece_.data(), n);
      next(*self);
    });
  }

  void begin_request() {
    reader_.emplace(ReaderLimits{shared_->options.max_header_bytes, shared_->options.max_body_bytes});
    begun_ = Clock::now();
    let_in_ = false;
    read_request();
  }

  void read_request() {
    while (true) {
      in_.erase(0, reader_->take(in_));
      hold(static_cast<int64_t>(reader_->held_bytes()));
      if (reader_->state() == RequestReader::State::Complete) return serve();
      if (reader_->state() == RequestReader::State::Refused) return refuse(reader_->status(), reader_->problem());
      if (reader_->state() == RequestReader::State::Body && !let_in_ && !let_in()) return;
      if (*shared_->held > static_cast<int64_t>(shared_->options.max_held_bytes))
        return refuse(503, "too many large requests are being read");
      if (in_.empty()) break;
    }
    const bool head = reader_->state() == RequestReader::State::Head;
    stream_.expires_at(begun_ + (head ? shared_->options.header_time : time_for_body()));
    read_some(head ? kPiece : kBodyPiece, [](Session& s) { s.read_request(); });
  }

  // Who may not ask is told so before the body is read, which then is no request of its own. False: it was told.
  bool let_in() {
    let_in_ = true;
    begun_ = Clock::now();
    if (shared_->gate) {
      fill_in(reader_->request());
      keep_alive_ = head_only_ = false;
      linger_ = true;
      answer_ = std::make_shared<Answer>();
      const auto reply = make_reply();
      if (shared_->gate(reader_->request(), reply)) {
        ++shared_->requests;
        return false;
      }
      answer_.reset();  // the reply leads nowhere any more
      linger_ = false;
    }
    if (reader_->expects_continue() && in_.empty()) {
      out_ += "HTTP/1.1 100 Continue\r\n\r\n";
      write_some();
    }
    return true;
  }

  // From the end of the head: as long as the body comes fast enough, and no longer than a body may take.
  std::chrono::milliseconds time_for_body() const {
    const HttpOptions& o = shared_->options;
    if (o.body_rate <= 0) return o.body_time;
    const std::chrono::duration<double> earned(static_cast<double>(reader_->taken()) / o.body_rate);
    return std::min(o.body_time, o.body_grace + std::chrono::duration_cast<std::chrono::milliseconds>(earned));
  }

  // What this session holds of the bytes that all may hold.
  void hold(int64_t bytes) {
    *shared_->held += bytes - held_;
    held_ = bytes;
  }

  // What could not be read as a request, or may not be.
  void refuse(int status, const std::string& why) {
    hold(0);
    keep_alive_ = false;
    linger_ = true;
    answer_ = std::make_shared<Answer>();
    Headers headers;
    if (status == 503) headers.emplace_back("retry-after", "1");
    send(status, "application/json", ApiError{status, why}.json(error_form(reader_->request())).dump(), headers);
  }

  void fill_in(HttpRequest& request) const {
    request.client = client_;
    request.from_loopback = loopback_;
    request.on_admin_port = admin_;
  }
  std::shared_ptr<Reply> make_reply();

  void serve();

  // A client that goes away while it waits for its answer is seen by reading nothing from it.
  void watch() {
    if (closed_ || watching_) return;
    watching_ = true;
    stream_.socket().async_wait(Stream::socket::wait_read, [self = shared_from_this()](error_code ec) {
      self->watching_ = false;
      if (ec || self->closed_ || !self->answer_ || self->answer_->ended) return;
      char byte;
      const ssize_t n = ::recv(self->stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      // Another request may wait behind this one; then its end is seen when something is written.
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) self->close();
    });
  }

  void head(int status, std::string_view type, const Headers& headers, std::optional<size_t> length) {
    const auto reason = http::obsolete_reason(static_cast<http::status>(status));
    out_ += fmt::format("HTTP/1.1 {} {}\r\n", status, std::string_view(reason.data(), reason.size()));
    if (!type.empty()) out_ += fmt::format("content-type: {}\r\n", type);
    for (const auto& [name, value] : headers) out_ += fmt::format("{}: {}\r\n", name, value);
    if (status == 204)
      ;  // has no body, and no length (RFC 9110, 8.6)
    else if (length)
      out_ += fmt::format("content-length: {}\r\n", *length);
    else if (answer_->chunked)
      out_ += "transfer-encoding: chunked\r\n";
    if (!keep_alive_) out_ += "connection: close\r\n";
    out_ += "\r\n";
  }

  void send(int status, std::string_view type, std::string body, const Headers& headers) {
    if (closed_ || answer_->begun) return;
    answer_->begun = true;
    head(status, type, headers, body.size());
    if (!head_only_) out_ += body;
    finish();
  }
  void begin(int status, std::string_view type, const Headers& headers) {
    if (closed_ || answer_->begun) return;
    answer_->begun = true;
    answer_->chunked = http11_;
    keep_alive_ = keep_alive_ && http11_;
    head(status, type, headers, std::nullopt);
    write_some();
  }
  void write(std::string_view piece) {
    if (closed_ || !answer_->begun || answer_->ended || piece.empty() || head_only_) return;
    if (answer_->chunked)
      out_ += fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
    else
      out_ += piece;
    if (out_.size() > shared_->options.max_unsent_bytes) {
      ++shared_->dropped;
      log::warning("a client that does not read its answer is dropped: {} bytes wait for it", out_.size());
      return close();
    }
    write_some();
  }
  void end() {
    if (closed_ || !answer_->begun || answer_->ended) return;
    if (answer_->chunked && !head_only_) out_ += "0\r\n\r\n";
    finish();
  }
  void finish() {
    answer_->ended = true;
    answer_->on_gone = nullptr;
    write_some();
    if (!writing_) next();
  }

  void write_some() {
    if (writing_ || closed_ || out_.empty()) return;
    writing_ = true;
    sending_.swap(out_);
    out_.clear();
    stream_.expires_after(shared_->options.write_time);
    asio::async_write(stream_, asio::buffer(sending_), [self = shared_from_this()](error_code ec, size_t) {
      self->writing_ = false;
      if (ec) {
        if (ec == beast::error::timeout) ++self->shared_->dropped;
        return self->close();
      }
      self->stream_.expires_never();
      if (!self->out_.empty()) return self->write_some();
      if (self->answer_ && self->answer_->ended) self->next();
    });
  }

  void next() {
    answer_.reset();
    reader_.reset();
    if (linger_ && !shared_->stopping) return linger();
    if (!keep_alive_ || shared_->stopping) return close();
    error_code ignored;
    if (watching_) stream_.socket().cancel(ignored);
    read_first_byte();
  }

  // The client may still be sending what was not read. Closed at once, its machine would drop the answer unread.
  void linger() {
    if (closed_) return;
    error_code ignored;
    if (watching_) stream_.socket().cancel(ignored);
    stream_.socket().shutdown(Stream::socket::shutdown_send, ignored);
    stream_.expires_after(kLinger);
    in_.clear();
    discard();
  }
  void discard() {
    discarded_ += in_.size();
    in_.clear();
    if (discarded_ > shared_->options.max_body_bytes) return close();
    read_some(kBodyPiece, [](Session& s) { s.discard(); });
  }

  void close() {
    if (closed_) return;
    closed_ = true;
    hold(0);
    error_code ignored;
    stream_.socket().shutdown(Stream::socket::shutdown_both, ignored);
    stream_.close();
    if (answer_ && answer_->on_gone) std::exchange(answer_->on_gone, nullptr)();
  }

  Shared* shared_;
  beast::basic_stream<Stream> stream_;
  bool admin_, loopback_ = false;
  std::string client_;
  std::string piece_, in_;  // what is being received, and what was and is not read yet
  std::optional<RequestReader> reader_;
  Clock::time_point begun_;  // the head, then the body
  int64_t held_ = 0;
  size_t discarded_ = 0;
  bool let_in_ = false, linger_ = false;
  std::shared_ptr<Answer> answer_;
  std::string out_, sending_;
  bool writing_ = false, watching_ = false, closed_ = false;
  bool keep_alive_ = true, http11_ = true, head_only_ = false;
};

class Session::SessionReply final : public Reply {
 public:
  SessionReply(std::shared_ptr<Session> session, std::shared_ptr<Answer> answer)
      : session_(std::move(session)), answer_(std::move(answer)) {}
  ~SessionReply() override {
    if (session_->shared_->stopping) return;  // no answer is written any more
    // A handler that forgot its client.
    if (current() && !answer_->begun)
      session_->send(500, "application/json", R"({"error":{"message":"no answer was given","type":"server_error"}})",
                     {});
    else if (current() && !answer_->ended)
      session_->close();
  }
  void send(int status, std::string_view type, std::string body, const Headers& headers) override {
    if (current()) session_->send(status, type, std::move(body), headers);
  }
  void begin(int status, std::string_view type, const Headers& headers) override {
    if (current()) session_->begin(status, type, headers);
  }
  void write(std::string piece) override {
    if (current()) session_->write(piece);
  }
  void end() override {
    if (current()) session_->end();
  }
  void on_gone(std::function<void()> callback) override {
    if (session_->closed_) return callback();
    if (current() && !answer_->ended) answer_->on_gone = std::move(callback);
  }
  bool gone() const override { return session_->closed_; }

 private:
  bool current() const { return !session_->closed_ && session_->answer_ == answer_; }

  std::shared_ptr<Session> session_;
  std::shared_ptr<Answer> answer_;
};

std::shared_ptr<Reply> Session::make_reply() {
  http11_ = reader_->http11();
  return std::make_shared<SessionReply>(shared_from_this(), answer_);
}

void Session::serve() {
  stream_.expires_never();
  ++shared_->requests;
  head_only_ = reader_->request().method == "HEAD";
  HttpRequest request = std::move(reader_->request());
  fill_in(request);
  request.held = std::shared_ptr<const void>(
      nullptr, [all = shared_->held, n = std::exchange(held_, 0)](const void*) { *all -= n; });
  keep_alive_ = reader_->keep_alive() && !shared_->leaving;
  answer_ = std::make_shared<Answer>();
  auto reply = make_reply();
  if (head_only_) request.method = "GET";
  // Idle connections and streams hold little.
  piece_ = {};
  in_.shrink_to_fit();
  watch();
  shared_->handler(std::move(request), std::move(reply));
}

class AsioServer final : public HttpServer {
 public:
  AsioServer(const HttpOptions& options, HttpHandler handler, HttpGate gate) : shared_(std::make_unique<Shared>()) {
    shared_->options = options;
    shared_->handler = std::move(handler);
    shared_->gate = std::move(gate);
  }

  ~AsioServer() override {
    // A socket that was given lives on with its giver, under its name.
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  Status open() {
    const std::string& host = shared_->options.host;
    if (shared_->options.inherited)
      RETURN_IF_ERROR(inherit(*shared_->options.inherited));
    else if (host.starts_with(kUnixPrefix))
      RETURN_IF_ERROR(bind_path(host.substr(kUnixPrefix.size())));
    else
      RETURN_IF_ERROR(bind(acceptor_, host, shared_->options.port));
    if (shared_->options.admin_port) RETURN_IF_ERROR(bind(admin_, "127.0.0.1", *shared_->options.admin_port));
    return Status::ok();
  }

  int64_t port() const override { return port_of(acceptor_); }
  int64_t admin_port() const override { return admin_.is_open() ? port_of(admin_) : 0; }
  bool on_loopback() const override {
    error_code ignored;
    const auto address = address_of(acceptor_.local_endpoint(ignored));
    return address && address->is_loopback();
  }
  void run() override {
    // It waits for stop(), also while there is nothing to do yet.
    const auto work = asio::make_work_guard(shared_->io);
    if (!shared_->options.inherited) accept(acceptor_, false);
    if (admin_.is_open()) accept(admin_, true);
    shared_->io.run();
  }
  void stop() override {
    asio::post(shared_->io, [this] {
      shared_->stopping = true;
      error_code ignored;
      close_acceptor();
      admin_.close(ignored);
      shared_->io.stop();
    });
  }
  void accept_inherited() override {
    post([this] {
      if (shared_->options.inherited && acceptor_.is_open()) accept(acceptor_, false);
    });
  }
  void leave() override {
    post([this] {
      shared_->leaving = true;
      close_acceptor();
    });
  }
  void adopt(int socket) override {
    post([this, socket] {
      Stream::socket taken(shared_->io);
      error_code ec;
      taken.assign(Stream(tcp::v4()), socket, ec);
      if (ec)
        ::close(socket);
      else
        open_session(std::move(taken), false);
    });
  }
  void post(std::function<void()> what) override { asio::post(shared_->io, std::move(what)); }
  void after(std::chrono::milliseconds time, std::function<void()> what) override {
    post([this, time, what = std::move(what)] {
      auto timer = std::make_shared<asio::steady_timer>(shared_->io, time);
      timer->async_wait([timer, what](error_code ec) {
        if (!ec) what();
      });
    });
  }
  HttpCounters counters() const override {
    return {shared_->connections, shared_->requests, shared_->refused, shared_->dropped, shared_->open, *shared_->held};
  }

 private:
  using Acceptor = asio::basic_socket_acceptor<Stream>;

  // A socket that listens already: the supervisor's, which keeps it over restarts.
  Status inherit(int socket) {
    error_code ec;
    int listens = 0;
    socklen_t size = sizeof listens;
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (::getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || !listens ||
        ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0)
      return invalid("the socket that was passed on (LISTEN_FDS) does not listen");
    acceptor_.assign(Stream(address.ss_family, 0), socket, ec);
    if (ec) return invalid("the socket that was passed on (LISTEN_FDS): {}", ec.message());
    return Status::ok();
  }

  // A socket of this machine. One that an earlier server left behind is replaced; one that a server listens on is not.
  Status bind_path(const std::string& path) {
    const auto fail = [&](const std::string& why) {
      return error(Code::Busy, "cannot listen on {}{}: {}; --host chooses another", kUnixPrefix, path, why);
    };
    sockaddr_un address{};
    if (path.empty() || path.size() >= sizeof address.sun_path)
      return invalid("--host {}{}: a path of 1 to {} bytes is expected", kUnixPrefix, path,
                     sizeof address.sun_path - 1);
    const asio::local::stream_protocol::endpoint endpoint(path);
    error_code ec;
    asio::local::stream_protocol::socket probe(shared_->io);
    probe.connect(endpoint, ec);
    if (!ec) return fail("a server listens there");
    if (ec == asio::error::connection_refused) ::unlink(path.c_str());
    if (acceptor_.open(Stream(endpoint.protocol()), ec)) return fail(ec.message());
    // No client connects before it has its mode.
    const mode_t before = ::umask(0777);
    acceptor_.bind(endpoint, ec);
    ::umask(before);
    if (ec) return fail(ec.message());
    path_ = path;
    if (::chmod(path.c_str(), static_cast<mode_t>(shared_->options.socket_mode)) != 0) return fail(::strerror(errno));
    if (acceptor_.listen(1024, ec)) return fail(ec.message());
    return Status::ok();
  }

  Status bind(Acceptor& acceptor, const std::string& host, int64_t port) {
    error_code ec;
    tcp::resolver resolver(shared_->io);
    const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, ec);
    if (ec || found.empty()) return invalid("cannot listen on {}: {}", host, ec.message());
    const tcp::endpoint endpoint = found.begin()->endpoint();
    const auto fail = [&](const char* what) {
      return error(Code::Busy, "cannot {} {} port {}: {}; --port chooses another", what, host, port, ec.message());
    };
    if (acceptor.open(Stream(endpoint.protocol()), ec)) return fail("open");
    acceptor.set_option(asio::socket_base::reuse_address(true), ec);
    if (acceptor.bind(endpoint, ec)) return fail("bind");
    if (acceptor.listen(1024, ec)) return fail("listen on");
    return Status::ok();
  }

  // Others may hold the same socket, so closing it here would not take it from the events that are waited for.
  void close_acceptor() {
    error_code ec;
    if (!acceptor_.is_open()) return;
    const int socket = acceptor_.release(ec);
    if (ec)
      acceptor_.close(ec);
    else
      ::close(socket);
  }

  // 0: it has none.
  static int64_t port_of(const Acceptor& acceptor) {
    error_code ignored;
    const Stream::endpoint end = acceptor.local_endpoint(ignored);
    const auto* address = end.data();
    if (address->sa_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(address)->sin_port);
    if (address->sa_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(address)->sin6_port);
    return 0;
  }

  void accept(Acceptor& acceptor, bool admin) {
    acceptor.async_accept([this, &acceptor, admin](error_code ec, Stream::socket socket) {
      if (shared_->stopping) return;
      if (!acceptor.is_open()) {
        // It was accepted before that.
        if (!ec) open_session(std::move(socket), admin);
        return;
      }
      if (ec) {
        // Out of descriptors, most likely: others will be given back.
        log::warning("a connection could not be accepted: {}", ec.message());
        auto timer = std::make_shared<asio::steady_timer>(shared_->io, std::chrono::milliseconds(100));
        timer->async_wait([this, timer, &acceptor, admin](error_code) { accept(acceptor, admin); });
        return;
      }
      open_session(std::move(socket), admin);
      accept(acceptor, admin);
    });
  }

  void open_session(Stream::socket socket, bool admin) {
    if (shared_->open >= shared_->options.max_connections) {
      ++shared_->refused;
    } else {
      ++shared_->connections;
      std::make_shared<Session>(*shared_, std::move(socket), admin)->start();
    }
  }

  std::unique_ptr<Shared> shared_;
  Acceptor acceptor_{shared_->io}, admin_{shared_->io};
  std::string path_;  // of the socket that it made
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpOptions& options, HttpHandler handler, HttpGate gate) {
  auto server = std::make_unique<AsioServer>(options, std::move(handler), std::move(gate));
  RETURN_IF_ERROR(server->open());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace reprise::server

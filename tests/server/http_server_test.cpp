#include "server/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/http_client.h"
#include "support/soon.h"

namespace reprise::server::http_server_test {
namespace {

using testing_support::HttpAnswer;
using testing_support::HttpClient;
using testing_support::soon;

// Routes: /echo answers with the body, /later after a moment, /stream in three pieces, /endless until the client goes,
// /silent drops its reply.
class HttpServerTest : public testing::Test {
 protected:
  void start(HttpOptions options = {}) {
    options.port = 0;
    auto made = HttpServer::listen(options, [this](HttpRequest r, std::shared_ptr<Reply> reply) { serve(r, reply); });
    ASSERT_TRUE(made.is_ok()) << made.status().message();
    http_ = std::move(*made);
    thread_ = std::thread([this] { http_->run(); });
  }
  void TearDown() override {
    if (!http_) return;
    http_->stop();
    thread_.join();
  }
  void serve(HttpRequest& r, std::shared_ptr<Reply>& reply) {
    EXPECT_TRUE(r.from_loopback);
    if (r.path == "/echo") {
      reply->send(200, "text/plain", r.method + r.query + r.body);
    } else if (r.path == "/later") {
      http_->after(std::chrono::milliseconds(20), [reply] { reply->send(200, "text/plain", "later"); });
    } else if (r.path == "/stream") {
      reply->begin(200, "text/event-stream");
      reply->write("one ");
      http_->after(std::chrono::milliseconds(5), [reply] {
        reply->write("two ");
        reply->write("three");
        reply->end();
      });
    } else if (r.path == "/endless") {
      reply->on_gone([this] { gone_ = true; });
      reply->begin(200, "text/event-stream");
      flood(reply);
    } else if (r.path == "/wait") {
      reply->on_gone([this] { gone_ = true; });
      waiting_ = reply;
    } else if (r.path != "/silent") {
      reply->send(404, "text/plain", "");
    }
  }
  void flood(std::shared_ptr<Reply> reply) {
    if (reply->gone()) return;
    reply->write(std::string(64 * 1024, 'x'));
    http_->post([this, reply] { flood(reply); });
  }

  std::unique_ptr<HttpServer> http_;
  std::thread thread_;
  std::atomic<bool> gone_{false};
  std::shared_ptr<Reply> waiting_;
};

TEST_F(HttpServerTest, AnswersOneAfterTheOtherOnOneConnection) {
  start();
  HttpClient c(http_->port());
  EXPECT_EQ(c.get("/echo?a=1").body, "GETa=1");
  EXPECT_EQ(c.post("/echo", "hello").body, "POSThello");
  EXPECT_EQ(c.get("/later").body, "later");
  const HttpAnswer stream = c.get("/stream");
  EXPECT_EQ(stream.body, "one two three");
  EXPECT_EQ(stream.headers.at("content-type"), "text/event-stream");
  EXPECT_EQ(c.get("/nothing").status, 404);
  // A body in chunks, and two requests at once.
  c.send(
      "POST /echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
      "GET /later HTTP/1.1\r\nhost: localhost\r\n\r\nGET /echo HTTP/1.1\r\nhost: localhost\r\n\r\n");
  EXPECT_EQ(c.read().body, "POSTabcde");
  EXPECT_EQ(c.read().body, "later");
  EXPECT_EQ(c.read().body, "GET");
  EXPECT_EQ(http_->counters().connections, 1u);
  EXPECT_EQ(http_->counters().requests, 8u);
}

TEST_F(HttpServerTest, OldClientsGetTheEndOfTheConnection) {
  start();
  HttpClient c(http_->port());
  c.send("GET /stream HTTP/1.0\r\n\r\n");
  const HttpAnswer a = c.read();
  EXPECT_EQ(a.body, "one two three");
  EXPECT_EQ(a.headers.at("connection"), "close");
  HttpClient d(http_->port());
  EXPECT_EQ(d.get("/echo", "connection: close\r\n").body, "GET");
  EXPECT_EQ(d.receive(), "");
}

TEST_F(HttpServerTest, RefusesWhatIsNotHttpOrTooLarge) {
  HttpOptions options;
  options.max_body_bytes = 1000;
  options.max_header_bytes = 2000;
  start(options);
  const auto status_of = [&](const std::string& bytes) {
    HttpClient c(http_->port());
    c.send(bytes);
    return c.read().status;
  };
  EXPECT_EQ(status_of("NONSENSE\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nbad header\r\n\r\n"), 400);
  EXPECT_EQ(status_of("POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1001\r\n\r\n"), 413);
  EXPECT_EQ(status_of("POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 104857600\r\n\r\n"), 413);
  EXPECT_EQ(status_of("POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n"), 400);
  EXPECT_EQ(status_of("POST /echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n400\r\n" +
                      std::string(1024, 'a') + "\r\n0\r\n\r\n"),
            413);
  EXPECT_EQ(status_of("GET /echo HTTP/1.1\r\nhost: localhost\r\nx: " + std::string(3000, 'a') + "\r\n\r\n"), 431);
  EXPECT_EQ(status_of("GET /echo HTTP/1.1\r\nhost: a\r\n\r\n"), 200);
  EXPECT_EQ(status_of("GET /echo HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET /echo HTTP/1.0\r\n\r\n"), 200);
  EXPECT_EQ(status_of("GET /echo HTTP/1.1\r\nhost: a\r\nHost: b\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET /echo HTTP/1.1\r\nhost: a\r\nx: y\r\nhost: a\r\n\r\n"), 400);
  HttpClient c(http_->port());
  EXPECT_EQ(c.post("/echo", std::string(1000, 'b')).body.size(), 1004u);
}

// A request that is refused ends its connection: what follows is not read as another.
TEST_F(HttpServerTest, NoSecondRequestIsSmuggledInABody) {
  start();
  const std::string second = "GET /echo?second HTTP/1.1\r\nhost: localhost\r\n\r\n";
  for (const std::string& framing :
       {std::string("transfer-encoding: chunked\r\ncontent-length: 5\r\n"),
        std::string("content-length: 5\r\ntransfer-encoding: chunked\r\n"),
        std::string("transfer-encoding: xchunked\r\n"), std::string("transfer-encoding: gzip, chunked\r\n"),
        std::string("transfer-encoding: identity\r\n"), std::string("transfer-encoding : chunked\r\n"),
        std::string("x: y\r\n transfer-encoding: chunked\r\n"),
        std::string("content-length: 5\r\ncontent-length: 0\r\n"), std::string("content-length: +5\r\n"),
        std::string("content-length: 0\r\nhost: other\r\n")}) {
    const uint64_t before = http_->counters().requests;
    HttpClient c(http_->port());
    c.send("POST /echo HTTP/1.1\r\nhost: localhost\r\n" + framing + "\r\n0\r\n\r\n" + second);
    const HttpAnswer a = c.read();
    EXPECT_EQ(a.status, 400) << framing;
    EXPECT_EQ(a.headers.at("connection"), "close") << framing;
    EXPECT_EQ(c.read().status, 0) << framing << "the second was answered";
    EXPECT_EQ(http_->counters().requests, before) << framing;
  }
  // What is no ambiguity leaves the second alone.
  HttpClient c(http_->port());
  c.send("POST /echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + second);
  EXPECT_EQ(c.read().body, "POST");
  EXPECT_EQ(c.read().body, "GETsecond");
}

// Bytes that never become a body are not held, and end the connection.
TEST_F(HttpServerTest, EndlessFramingIsCutOffAndHoldsNothing) {
  start();
  const std::string head = "POST /echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
  const std::string piece(64 * 1024, 'x');
  for (const std::string& begin : {head + "1;", head + "0\r\n", head + "0\r\nx: ", head + "1;a=\"",
                                   std::string("GET / HTTP/1.1\r\nx: "), std::string("GET /")}) {
    HttpClient c(http_->port(), 5);
    c.send(begin);
    size_t sent = 0;
    int64_t held = 0;
    while (sent < (64u << 20) && c.send(piece)) {
      sent += piece.size();
      held = std::max(held, http_->counters().held_bytes);
    }
    EXPECT_LT(sent, size_t{48} << 20) << begin;
    EXPECT_LE(held, 64 * 1024) << begin;
    EXPECT_TRUE(soon([&] { return http_->counters().open == 0; }));
  }
  EXPECT_EQ(http_->counters().held_bytes, 0);
}

TEST_F(HttpServerTest, BodiesOfAllTogetherAreBounded) {
  HttpOptions options;
  options.max_held_bytes = 1 << 20;
  start(options);
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 2; ++i) {
    clients.push_back(std::make_unique<HttpClient>(http_->port()));
    clients.back()->send("POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 700001\r\n\r\n" +
                         std::string(300000, 'x'));
  }
  EXPECT_TRUE(soon([&] { return http_->counters().held_bytes >= 600000; }));
  HttpClient third(http_->port());
  const HttpAnswer a = third.post("/echo", std::string(900000, 'x'));
  EXPECT_EQ(a.status, 503);
  EXPECT_TRUE(a.headers.contains("retry-after"));
  clients.clear();
  EXPECT_TRUE(soon([&] { return http_->counters().held_bytes == 0; }));
  EXPECT_EQ(HttpClient(http_->port()).post("/echo", std::string(900000, 'x')).status, 200);
}

TEST_F(HttpServerTest, ABodyComesAtARateOrNotAtAll) {
  HttpOptions options;
  options.body_grace = std::chrono::milliseconds(200);
  options.body_rate = 100000;
  start(options);
  // Bytes keep coming, and the whole time is far away.
  HttpClient slow(http_->port());
  slow.send("POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9999\r\n\r\n");
  EXPECT_TRUE(soon([&] {
    slow.send("x");
    return http_->counters().dropped == 1;
  }));
  HttpClient fast(http_->port());
  EXPECT_EQ(fast.post("/echo", std::string(1000000, 'x')).status, 200);
}

TEST_F(HttpServerTest, SlowSendersAndIdleConnectionsAreClosed) {
  HttpOptions options;
  options.header_time = std::chrono::milliseconds(100);
  options.body_time = std::chrono::milliseconds(100);
  options.idle_time = std::chrono::milliseconds(300);
  start(options);
  HttpClient slow(http_->port()), half(http_->port()), idle(http_->port());
  slow.send("GET /echo HT");
  half.send("POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nabc");
  EXPECT_EQ(slow.receive(), "");
  EXPECT_EQ(half.receive(), "");
  EXPECT_EQ(idle.receive(), "");
  EXPECT_TRUE(soon([&] { return http_->counters().open == 0; }));
}

TEST_F(HttpServerTest, SlowSendersHaveNoMoreTimeForSendingOn) {
  HttpOptions options;
  options.header_time = options.body_time = std::chrono::milliseconds(400);
  start(options);
  // A byte every now and then, for ever: the time is that of the whole request.
  std::vector<std::unique_ptr<HttpClient>> slow;
  for (int i = 0; i < 20; ++i) {
    slow.push_back(std::make_unique<HttpClient>(http_->port()));
    slow.back()->send(i % 2 == 0 ? "GET /echo HTTP/1.1\r\nhost: localhost\r\nx: "
                                 : "POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9999\r\n\r\n");
  }
  EXPECT_TRUE(soon([&] { return http_->counters().open == 20; }));
  HttpClient good(http_->port());
  size_t answered = 0;
  EXPECT_TRUE(soon([&] {
    for (auto& c : slow) c->send("x");
    answered += good.get("/echo").body == "GET";
    return http_->counters().open == 1;
  }));
  EXPECT_GT(answered, 5u) << "others are served meanwhile";
}

TEST_F(HttpServerTest, HalfClosedAndResetConnectionsAreForgotten) {
  start();
  HttpClient half(http_->port());
  half.send("GET /wait HTTP/1.1\r\nhost: localhost\r\n\r\n");
  EXPECT_TRUE(soon([&] { return http_->counters().requests == 1; }));
  half.end_sending();
  EXPECT_TRUE(soon([&] { return gone_.load(); }));
  EXPECT_EQ(half.receive(), "");
  http_->post([this] { waiting_.reset(); });
  gone_ = false;
  {
    HttpClient reset(http_->port());
    reset.send("GET /endless HTTP/1.1\r\nhost: localhost\r\n\r\n");
    EXPECT_FALSE(reset.receive().empty());
    reset.reset();
  }
  EXPECT_TRUE(soon([&] { return gone_.load() && http_->counters().open == 0; }));
}

TEST_F(HttpServerTest, SeesClientsGo) {
  start();
  {
    HttpClient c(http_->port());
    c.send("GET /wait HTTP/1.1\r\nhost: localhost\r\n\r\n");
    EXPECT_TRUE(soon([&] { return http_->counters().requests == 1; }));
  }
  EXPECT_TRUE(soon([&] { return gone_.load(); }));
  http_->post([this] { waiting_->send(200, "text/plain", "to nobody"); });
  HttpClient c(http_->port());
  EXPECT_EQ(c.get("/echo").body, "GET");
  http_->post([this] { waiting_.reset(); });
}

TEST_F(HttpServerTest, DropsAClientThatStopsReading) {
  HttpOptions options;
  options.max_unsent_bytes = 1 << 20;
  start(options);
  HttpClient c(http_->port());
  c.send("GET /endless HTTP/1.1\r\nhost: localhost\r\n\r\n");
  EXPECT_TRUE(soon([&] { return gone_.load(); }));
  EXPECT_EQ(http_->counters().dropped, 1u);
}

TEST_F(HttpServerTest, AForgottenReplyIsAnError) {
  start();
  HttpClient c(http_->port());
  EXPECT_EQ(c.get("/silent").status, 500);
}

TEST_F(HttpServerTest, HoldsManyConnectionsAndRefusesTheRest) {
  HttpOptions options;
  options.max_connections = 200;
  start(options);
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::make_unique<HttpClient>(http_->port()));
    clients.back()->send("GET /later HTTP/1.1\r\nhost: localhost\r\n\r\n");
  }
  for (auto& c : clients) EXPECT_EQ(c->read().body, "later");
  HttpClient one_more(http_->port());
  EXPECT_EQ(one_more.receive(), "");
  EXPECT_EQ(http_->counters().refused, 1u);
}

TEST_F(HttpServerTest, ATakenPortIsAnErrorThatNamesIt) {
  start();
  HttpOptions options;
  options.port = http_->port();
  const auto second = HttpServer::listen(options, {});
  ASSERT_FALSE(second.is_ok());
  EXPECT_NE(second.status().message().find(std::to_string(http_->port())), std::string::npos);
  options.host = "no such host";
  EXPECT_FALSE(HttpServer::listen(options, {}).is_ok());
}

}  // namespace
}  // namespace reprise::server::http_server_test

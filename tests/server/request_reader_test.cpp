// RequestReader: what RFC 9112 makes of bytes, in any pieces, and what every byte counts against.
#include "server/request_reader.h"

#include <gtest/gtest.h>

namespace reprise::server::request_reader_test {
namespace {

using State = RequestReader::State;

// Feeds pieces of so many bytes until the request is complete or refused; `rest` is what it left.
RequestReader read(std::string_view bytes, size_t piece = SIZE_MAX, ReaderLimits limits = {},
                   std::string* rest = nullptr) {
  RequestReader r(limits);
  while (!bytes.empty() && r.state() != State::Complete && r.state() != State::Refused) {
    const size_t n = r.take(bytes.substr(0, piece));
    EXPECT_GT(n, 0u);
    bytes.remove_prefix(n);
  }
  if (rest) *rest = bytes;
  return r;
}

const std::string kHost = "host: localhost\r\n";

TEST(RequestReader, ReadsARequestInAnyPieces) {
  const std::string bytes = "POST /a%20b?x=1 HTTP/1.1\r\n" + kHost +
                            "X-Two: a\r\nX-Empty:\r\nx-two:  b \r\nTransfer-Encoding: chunked\r\n\r\n"
                            "3;name=value\r\nabc\r\n00A\r\n0123456789\r\n0\r\nx-trailer: 1\r\n\r\nGET /next";
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, size_t{1000}}) {
    std::string rest;
    RequestReader r = read(bytes, piece, {}, &rest);
    ASSERT_EQ(r.state(), State::Complete) << r.problem();
    EXPECT_EQ(r.request().method, "POST");
    EXPECT_EQ(r.request().path, "/a b");
    EXPECT_EQ(r.request().query, "x=1");
    EXPECT_EQ(r.request().header("x-two"), "a, b");
    EXPECT_EQ(r.request().header("x-empty"), "");
    EXPECT_EQ(r.request().body, "abc0123456789");
    EXPECT_EQ(r.request().headers.count("x-trailer"), 0u) << "trailers do not join the head";
    EXPECT_EQ(rest, "GET /next");
    EXPECT_EQ(r.taken(), bytes.size() - rest.size());
    EXPECT_TRUE(r.keep_alive());
  }
}

TEST(RequestReader, StopsBeforeTheBodyOnce) {
  RequestReader r({});
  const std::string bytes = "POST / HTTP/1.1\r\n" + kHost + "content-length: 3\r\n\r\nabc";
  EXPECT_EQ(r.take(bytes), bytes.size() - 3);
  EXPECT_EQ(r.state(), State::Body);
  EXPECT_EQ(r.content_length(), 3u);
  EXPECT_EQ(r.take("abcGET"), 3u);
  EXPECT_EQ(r.state(), State::Complete);
}

// RFC 9112 6.1 and 6.3: what two readers could take for two requests.
TEST(RequestReader, RefusesEveryAmbiguousLength) {
  const auto status = [](const std::string& headers, const char* version = "HTTP/1.1") {
    const RequestReader r = read(std::string("POST / ") + version + "\r\n" + kHost + headers +
                                 "\r\n5\r\nhello\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nhost: localhost\r\n\r\n");
    EXPECT_EQ(r.keep_alive(), r.state() != State::Refused && std::string_view(version) == "HTTP/1.1") << headers;
    return r.state() == State::Refused ? r.status() : 0;
  };
  EXPECT_EQ(status("transfer-encoding: chunked\r\n"), 0);
  EXPECT_EQ(status("transfer-encoding: Chunked\r\n"), 0);
  for (const char* coding : {"gzip", "gzip, chunked", "chunked, chunked", "chunked, identity", "identity", "xchunked",
                             "\"chunked\"", "chunked;q=1", "chunked,", ",chunked", "chunked \v", "", "cow"})
    EXPECT_EQ(status("transfer-encoding: " + std::string(coding) + "\r\n"), 400) << coding;
  EXPECT_EQ(status("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n"), 400);
  EXPECT_EQ(status("transfer-encoding: identity\r\ntransfer-encoding: chunked\r\n"), 400);
  EXPECT_EQ(status("transfer-encoding: chunked\r\ncontent-length: 5\r\n"), 400);
  EXPECT_EQ(status("content-length: 5\r\ntransfer-encoding: chunked\r\n"), 400);
  EXPECT_EQ(status("content-length: 5\r\ntransfer-encoding: nonsense\r\n"), 400);
  EXPECT_EQ(status("transfer-encoding: chunked\r\n", "HTTP/1.0"), 400);
  EXPECT_EQ(status("transfer-encoding : chunked\r\n"), 400);
  EXPECT_EQ(status("transfer-encoding\t: chunked\r\n"), 400);
  EXPECT_EQ(status("x: y\r\n transfer-encoding: chunked\r\n"), 400) << "a folded line";
  EXPECT_EQ(status("x: y\r\n\tz\r\n"), 400);
  EXPECT_EQ(status(" x: y\r\n"), 400);
  EXPECT_EQ(status("content-length: 5\r\ncontent-length: 6\r\n"), 400);
  EXPECT_EQ(status("content-length: 5\r\nContent-Length: 5\r\n"), 400);
  for (const char* length :
       {"5, 5", "5,6", "+5", "-5", "0x5", "5 5", "5.0", "", "5a", "18446744073709551616", "99999999999999999999999999"})
    EXPECT_EQ(status("content-length: " + std::string(length) + "\r\n"), 400) << length;
  EXPECT_EQ(status("content-length: 5\nx: y\r\n"), 400) << "a bare line feed";
  EXPECT_EQ(status("content-length: 5\rx: y\r\n"), 400) << "a bare carriage return";
}

TEST(RequestReader, RefusesHeadersThatMayComeOnceAndComeTwice) {
  for (const char* name : {"Host", "Authorization", "Content-Type", "Origin", "Content-Length", "Sec-Fetch-Site"}) {
    const std::string two = std::string(name) + ": 1\r\n" + name + ": 1\r\n";
    const RequestReader r =
        read("GET / HTTP/1.1\r\n" + (std::string_view(name) == "Host" ? std::string() : kHost) + two + "\r\n");
    ASSERT_EQ(r.state(), State::Refused) << name;
    EXPECT_EQ(r.status(), 400);
  }
}

TEST(RequestReader, RefusesWhatIsNoHttp) {
  for (const std::string head :
       {"GET / HTTP/1.1\r\n: x\r\n", "GET / HTTP/1.1\r\nna me: x\r\n", "GET / HTTP/1.1\r\nx(y): x\r\n",
        "GET / HTTP/1.1\r\nx: a\x01z\r\n", "GET /  HTTP/1.1\r\n", "GET  / HTTP/1.1\r\n", "GET /\r\n",
        "GET / HTTP/1\r\n", "GET / HTTP/11\r\n", "GET / http/1.1\r\n", "GET / HTTP/1.1 \r\n", "G(T / HTTP/1.1\r\n",
        "GET /\x01 HTTP/1.1\r\n", "GET x HTTP/1.1\r\n", "GET http:// HTTP/1.1\r\n", "GET ftp://a/ HTTP/1.1\r\n",
        "GET http://a b/ HTTP/1.1\r\n", "GET / HTTP/1.1\nx: y\r\n", "CONNECT a:1 HTTP/1.1\r\n"}) {
    const RequestReader r = read(head + kHost + "\r\n");
    ASSERT_EQ(r.state(), State::Refused) << head;
    EXPECT_EQ(r.status(), 400) << head;
  }
  EXPECT_EQ(read("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").status(), 505);
  EXPECT_EQ(read("GET / HTTP/1.1\r\n\r\n").status(), 400) << "no host";
  EXPECT_EQ(read("GET / HTTP/1.1\r\nhost: a/b\r\n\r\n").status(), 400);
  EXPECT_EQ(read("GET / HTTP/1.1\r\nhost: a b\r\n\r\n").status(), 400);
  EXPECT_EQ(read("GET / HTTP/1.1\r\nhost: a, b\r\n\r\n").status(), 400);
  EXPECT_EQ(read("GET / HTTP/1.1\r\n" + kHost + "expect: miracles\r\n\r\n").status(), 417);
  EXPECT_EQ(read("GET / HTTP/1.0\r\n\r\n").state(), State::Complete);
}

TEST(RequestReader, TheHostOfTheTargetCounts) {
  RequestReader r = read("GET http://Other.example:80/p?q HTTP/1.1\r\n" + kHost + "\r\n");
  ASSERT_EQ(r.state(), State::Complete) << r.problem();
  EXPECT_EQ(r.request().header("host"), "Other.example:80");
  EXPECT_EQ(r.request().path, "/p");
  EXPECT_EQ(r.request().query, "q");
}

TEST(RequestReader, EveryByteOfTheHeadCounts) {
  const ReaderLimits limits{1000, 1000};
  const auto status = [&](const std::string& bytes) {
    for (const size_t piece : {size_t{1}, size_t{999}, SIZE_MAX}) {
      const RequestReader r = read(bytes, piece, limits);
      if (r.state() != State::Refused) return 0;
      EXPECT_EQ(r.status(), 431);
      EXPECT_LE(r.held_bytes(), 64u * 1024);
    }
    return 431;
  };
  const std::string head = "GET / HTTP/1.1\r\n" + kHost, end = "\r\n";
  const auto padded = [&](size_t n) {
    return head + "x: " + std::string(n - head.size() - end.size() - 5, 'a') + "\r\n" + end;
  };
  EXPECT_EQ(status(padded(1000)), 0);
  EXPECT_EQ(status(padded(1001)), 431);
  std::string empty;
  for (int i = 0; i < 600; ++i) empty += "\r\n";
  EXPECT_EQ(status(empty + head + end), 431) << "lines before the request";
  EXPECT_EQ(status("GET /" + std::string(2000, 'a')), 431);
  EXPECT_EQ(status(std::string(2000, 'A')), 431);
  std::string many = head;
  for (int i = 0; i < 200; ++i) many += "a" + std::to_string(i) + ":\r\n";
  EXPECT_EQ(read(many + end).status(), 431);
}

TEST(RequestReader, EveryByteOfTheBodyCounts) {
  const ReaderLimits limits{1000, 1000};
  const std::string head = "POST / HTTP/1.1\r\n" + kHost;
  const auto status = [&](const std::string& rest) {
    int last = -1;
    for (const size_t piece : {size_t{1}, size_t{13}, SIZE_MAX}) {
      const RequestReader r = read(head + rest, piece, limits);
      const int now = r.state() == State::Refused ? r.status() : r.state() == State::Complete ? 200 : 0;
      EXPECT_TRUE(last == -1 || last == now) << rest.substr(0, 100);
      EXPECT_LE(r.held_bytes(), 64u * 1024) << rest.substr(0, 100);
      last = now;
    }
    return last;
  };
  const std::string chunked = "transfer-encoding: chunked\r\n\r\n";
  EXPECT_EQ(status("content-length: 1000\r\n\r\n" + std::string(1000, 'a')), 200);
  EXPECT_EQ(status("content-length: 1001\r\n\r\n"), 413);
  EXPECT_EQ(status(chunked + "3e8\r\n" + std::string(1000, 'a') + "\r\n0\r\n\r\n"), 200);
  EXPECT_EQ(status(chunked + "3e9\r\n"), 413);
  EXPECT_EQ(status(chunked + "3e8\r\n" + std::string(1000, 'a') + "\r\n1\r\n"), 413);
  EXPECT_EQ(status(chunked + "fffffffffffffff\r\n"), 413);
  EXPECT_EQ(status(chunked + "ffffffffffffffff\r\n"), 400);
  EXPECT_EQ(status(chunked + "00000000000000000000000001\r\n"), 400) << "digits";
  EXPECT_EQ(status(chunked + std::string(100000, '0')), 431) << "digits without an end are held as a line";
  // Extensions: one that has no end, one that is long, and many that are short.
  EXPECT_EQ(status(chunked + "1;" + std::string(100000, 'x')), 431);
  EXPECT_EQ(status(chunked + "1;" + std::string(900, 'x') + "\r\na\r\n0\r\n\r\n"), 200);
  EXPECT_EQ(status(chunked + "1;" + std::string(1100, 'x') + "\r\na\r\n0\r\n\r\n"), 431);
  std::string many = chunked;
  for (int i = 0; i < 100; ++i) many += "1;" + std::string(40, 'x') + "\r\na\r\n";
  EXPECT_EQ(status(many), 431);
  // Trailers: likewise.
  EXPECT_EQ(status(chunked + "0\r\n" + std::string(100000, 'x')), 431);
  EXPECT_EQ(status(chunked + "0\r\nx: " + std::string(1100, 'x') + "\r\n\r\n"), 431);
  many = chunked + "0\r\n";
  for (int i = 0; i < 300; ++i) many += "x: y\r\n";
  EXPECT_EQ(status(many), 431);
  EXPECT_EQ(status(chunked + "0\r\nx: y\r\n\r\n"), 200);
  EXPECT_EQ(status(chunked + "0\r\nno field\r\n\r\n"), 400);
  // Sizes of one byte each take six bytes around it.
  many = chunked;
  for (int i = 0; i < 400; ++i) many += "1\r\na\r\n";
  EXPECT_EQ(status(many), 413);
  for (const char* bad : {"g\r\n", "\r\n", " 1\r\n", "1 x\r\n", "-1\r\n", "0x1\r\n", "1\r\nab\r\n", "1\r\na0\r\n",
                          "1\na\r\n", "1\r\na\n0\r\n\r\n", "1;\x01\r\n"})
    EXPECT_EQ(status(chunked + bad), 400) << bad;
}

TEST(RequestReader, NamesOfHosts) {
  for (const auto& [host, name] :
       std::vector<std::pair<const char*, const char*>>{{"A.b:80", "a.b"},
                                                        {"localhost", "localhost"},
                                                        {"127.0.0.1:", "127.0.0.1"},
                                                        {"[::1]:5", "[::1]"},
                                                        {"[::ffff:127.0.0.1]", "[::ffff:127.0.0.1]"}})
    EXPECT_EQ(host_name(host), name) << host;
  for (const char* host : {"", ":80", "a:b", "a:1:2", "a:123456", "[::1", "[::1]x", "[]", "[zz]", "a@b", "a/b", "a b"})
    EXPECT_FALSE(host_name(host)) << host;
}

}  // namespace
}  // namespace reprise::server::request_reader_test

// Pages of other origins: none by default, and those of --cors-origins, with the headers that a browser looks for.
#include "server/cors.h"

#include "server/api_fixture.h"

namespace reprise::server::cors_test {
namespace {

TEST(Cors, OriginsAreChecked) {
  for (const char* good : {"*", "https://chat.example", "http://localhost:5173", "https://[::1]:8443"})
    EXPECT_TRUE(check_origin(good).is_ok()) << good;
  for (const char* bad : {"", "chat.example", "https://", "https://a/b", "https://a.example/", "ftp://a.example",
                          "https://user@a.example", "https://a b", "null", "https://*"})
    EXPECT_FALSE(check_origin(bad).is_ok()) << bad;
}

constexpr const char* kAsk =
    "origin: https://chat.example\r\nsec-fetch-site: cross-site\r\naccess-control-request-method: POST\r\n"
    "access-control-request-headers: authorization,content-type\r\n";
constexpr const char* kPage = "origin: https://chat.example\r\nsec-fetch-site: cross-site\r\n";
const Json kShort = {{"prompt", {3, 4}}, {"max_tokens", 2}};

HttpAnswer ask(int64_t port, const std::string& headers) {
  HttpClient c(port);
  c.send("OPTIONS /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n" + headers + "\r\n");
  return c.read();
}

class CorsApi : public ApiTest {
 protected:
  void start_with(std::vector<std::string> origins) {
    ApiOptions options;
    options.cors_origins = std::move(origins);
    start(options);
  }
};

TEST_F(CorsApi, WithoutOriginsPagesOfOthersAreRefused) {
  start_with({});
  const HttpAnswer a = ask(http_->port(), kAsk);
  EXPECT_EQ(a.status, 405);
  EXPECT_FALSE(a.headers.contains("access-control-allow-origin"));
  post("/v1/completions", kShort, 403, kPage);
}

TEST_F(CorsApi, AnAllowedPageMayAskAndRead) {
  start_with({"https://other.example", "https://chat.example"});
  const HttpAnswer a = ask(http_->port(), kAsk);
  EXPECT_EQ(a.status, 204);
  EXPECT_EQ(a.body, "");
  EXPECT_FALSE(a.headers.contains("content-length"));
  EXPECT_EQ(a.headers.at("access-control-allow-origin"), "https://chat.example");
  EXPECT_EQ(a.headers.at("access-control-allow-headers"), "authorization,content-type");
  EXPECT_NE(a.headers.at("access-control-allow-methods").find("POST"), std::string::npos);
  EXPECT_EQ(a.headers.at("vary"), "Origin");
  HttpClient c(http_->port());
  for (const bool stream : {false, true}) {
    Json body = kShort;
    body["stream"] = stream;
    const HttpAnswer b = c.post("/v1/completions", body.dump(), kPage);
    EXPECT_EQ(b.status, 200) << b.body;
    EXPECT_EQ(b.headers.at("access-control-allow-origin"), "https://chat.example");
    EXPECT_NE(b.headers.at("access-control-expose-headers").find("x-request-id"), std::string::npos);
  }
  // Errors are readable, too.
  EXPECT_EQ(c.get("/nowhere", kPage).headers.at("access-control-allow-origin"), "https://chat.example");
}

TEST_F(CorsApi, OthersAreRefusedAsBefore) {
  start_with({"https://chat.example"});
  for (const char* origin : {"https://chat.example.evil", "http://chat.example", "https://chat.example:8443", "null"}) {
    const std::string page = fmt::format("origin: {}\r\nsec-fetch-site: cross-site\r\n", origin);
    const HttpAnswer a = ask(http_->port(), page + "access-control-request-method: POST\r\n");
    EXPECT_EQ(a.status, 405) << origin;
    EXPECT_FALSE(a.headers.contains("access-control-allow-origin")) << origin;
    post("/v1/completions", kShort, 403, page);
  }
}

TEST_F(CorsApi, EveryPageMayCallAndNoneIsAnAdministrator) {
  start_with({"*"});
  EXPECT_EQ(ask(http_->port(), kAsk).headers.at("access-control-allow-origin"), "*");
  post("/v1/completions", kShort, 200, kPage);
  post("/flush_cache", Json::object(), 403, kPage);
}

}  // namespace
}  // namespace reprise::server::cors_test

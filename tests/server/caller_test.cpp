// What headers say about a sender: hosts, proxies, pages.
#include "server/caller.h"

#include <gtest/gtest.h>

namespace reprise::server::caller_test {
namespace {

HttpRequest with(std::map<std::string, std::string> headers) {
  HttpRequest r;
  r.headers = std::move(headers);
  return r;
}

TEST(Caller, LoopbackIsALiteralOrLocalhost) {
  for (const char* host : {"localhost", "LOCALHOST:30000", "localhost.", "a.localhost", "127.0.0.1", "127.0.0.1:8",
                           "127.3.4.5", "[::1]", "[::1]:30000", "[::ffff:127.0.0.1]"})
    EXPECT_TRUE(is_loopback_host(host)) << host;
  for (const char* host : {"", "evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "127.0.0.1.evil:80",
                           "127.1", "0.0.0.0", "10.0.0.1", "notlocalhost", "[::2]", "[::ffff:10.0.0.1]", "2130706433"})
    EXPECT_FALSE(is_loopback_host(host)) << host;
}

TEST(Caller, HostsThatAreAllowed) {
  EXPECT_TRUE(host_is_allowed(with({}), {}));
  EXPECT_TRUE(host_is_allowed(with({{"host", "localhost:1"}}), {}));
  EXPECT_FALSE(host_is_allowed(with({{"host", "evil.example"}}), {}));
  EXPECT_FALSE(host_is_allowed(with({{"host", "evil.example"}}), {"good.example"}));
  EXPECT_TRUE(host_is_allowed(with({{"host", "Good.example:443"}}), {"good.EXAMPLE"}));
  EXPECT_TRUE(host_is_allowed(with({{"host", "evil.example"}}), {"*"}));
}

TEST(Caller, ProxiesAreSeenByTheirHeaders) {
  EXPECT_FALSE(came_through_proxy(with({{"host", "x"}, {"user-agent", "y"}, {"accept", "z"}, {"x-request-id", "1"}})));
  for (const char* name : {"forwarded",
                           "via",
                           "x-forwarded-for",
                           "x-forwarded-host",
                           "x-forwarded-proto",
                           "x-forwarded-port",
                           "x-forwarded-server",
                           "x-forwarded-prefix",
                           "x-forwarded",
                           "x-real-ip",
                           "x-client-ip",
                           "x-cluster-client-ip",
                           "client-ip",
                           "true-client-ip",
                           "cf-connecting-ip",
                           "cf-connecting-ipv6",
                           "cf-ray",
                           "fastly-client-ip",
                           "fly-client-ip",
                           "x-original-forwarded-for",
                           "x-original-host",
                           "x-original-url",
                           "x-envoy-external-address",
                           "x-azure-clientip",
                           "x-appengine-user-ip",
                           "x-amzn-trace-id",
                           "cdn-loop",
                           "x-remote-addr",
                           "x-originating-ip"})
    EXPECT_TRUE(came_through_proxy(with({{name, ""}}))) << name;
}

TEST(Caller, PagesAreSeenByOriginAndFetchSite) {
  const auto foreign = [](std::map<std::string, std::string> headers) {
    headers.emplace("host", "localhost:30000");
    return is_of_foreign_page(with(std::move(headers)));
  };
  EXPECT_FALSE(foreign({}));
  EXPECT_FALSE(foreign({{"origin", "http://localhost:30000"}, {"sec-fetch-site", "same-origin"}}));
  EXPECT_FALSE(foreign({{"sec-fetch-site", "none"}}));
  EXPECT_TRUE(foreign({{"sec-fetch-site", "cross-site"}}));
  EXPECT_TRUE(foreign({{"sec-fetch-site", "same-site"}}));
  for (const char* origin :
       {"http://evil.example", "null", "", "http://localhost:8080", "http://127.0.0.1:30000", "file://"})
    EXPECT_TRUE(foreign({{"origin", origin}})) << origin;
  EXPECT_FALSE(foreign({{"host", "api.example"}, {"origin", "https://api.example"}}));
  EXPECT_FALSE(foreign({{"host", "api.example:80"}, {"origin", "http://api.example"}}));
}

TEST(Caller, APageMayHaveTheNameThatAProxyKeeps) {
  const auto foreign = [](const char* origin, const std::vector<std::string>& others) {
    return is_of_foreign_page(with({{"host", "127.0.0.1:30000"}, {"origin", origin}, {"sec-fetch-site", "same-site"}}),
                              others);
  };
  EXPECT_FALSE(foreign("https://chat.example", {"chat.example"}));
  EXPECT_TRUE(foreign("https://chat.example", {"*", "other.example"}));
  EXPECT_TRUE(foreign("https://chat.example.evil", {"chat.example"}));
  EXPECT_TRUE(foreign("http://127.0.0.1:8080", {"127.0.0.1"})) << "another program's page";
  EXPECT_TRUE(foreign("null", {"null"}));
}

TEST(Caller, TypesThatPagesMaySendUnasked) {
  EXPECT_TRUE(is_page_content("text/plain"));
  EXPECT_TRUE(is_page_content("Text/Plain ; charset=UTF-8"));
  EXPECT_TRUE(is_page_content("multipart/form-data; boundary=x"));
  EXPECT_FALSE(is_page_content(""));
  EXPECT_FALSE(is_page_content("application/json"));
  EXPECT_FALSE(is_page_content("application/x-www-form-urlencoded")) << "curl -d sends it";
}

}  // namespace
}  // namespace reprise::server::caller_test

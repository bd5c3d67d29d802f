// URLs that others chose: which origins, addresses and redirects are followed.
#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

#include "folder.h"
#include "hub/http.h"
#include "hub/public_address.h"
#include "support/hub_server.h"

namespace reprise::hub::guard_test {
namespace {

using testing_support::HubReply;
using testing_support::HubRequest;
using testing_support::HubServer;

bool is_public(const char* text) {
  sockaddr_in four{};
  four.sin_family = AF_INET;
  if (::inet_pton(AF_INET, text, &four.sin_addr) == 1)
    return is_public_address(reinterpret_cast<const sockaddr&>(four));
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  EXPECT_EQ(::inet_pton(AF_INET6, text, &six.sin6_addr), 1) << text;
  return is_public_address(reinterpret_cast<const sockaddr&>(six));
}

// By the registries of IANA for special-purpose addresses, and its blocks of multicast.
TEST(PublicAddress, IsNoneOfTheRegistries) {
  for (const char* text : {"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
                           "128.0.0.0", "169.253.255.255", "172.15.255.255", "172.32.0.0", "192.167.255.255",
                           "198.17.255.255", "198.20.0.0", "223.255.255.255", "2606:4700::1111", "2a00::1"})
    EXPECT_TRUE(is_public(text)) << text;
  for (const char* text :
       {"0.0.0.0",      "10.0.0.1",         "100.64.0.1",     "127.0.0.1",       "127.255.255.255", "169.254.169.254",
        "172.16.0.1",   "172.31.255.255",   "192.0.0.8",      "192.0.2.1",       "192.168.1.1",     "198.18.0.1",
        "198.51.100.1", "203.0.113.1",      "224.0.0.1",      "240.0.0.1",       "255.255.255.255", "::",
        "::1",          "::ffff:127.0.0.1", "::ffff:1.1.1.1", "64:ff9b::7f00:1", "fc00::1",         "fd12::1",
        "fe80::1",      "ff02::1",          "2001:db8::1",    "2001::1",         "2002:7f00:1::",   "3fff::1"})
    EXPECT_FALSE(is_public(text)) << text;
}

TEST(Guard, OnlyListedOriginsWithoutRedirectsOnPublicAddresses) {
  HubServer server;
  server.hook = [&](const HubRequest& r, int) -> std::optional<HubReply> {
    if (r.path == "/away") return HubReply{302, {{"Location", "/image"}}, ""};
    return HubReply{200, {}, r.header("authorization") + "pixels"};
  };
  const std::string port = server.url().substr(server.url().rfind(':'));
  const std::vector<std::string> only{"http://127.0.0.1" + port, "http://localhost" + port};
  const auto fetch = [&](const std::string& url, size_t most = 100) -> std::string {
    HubSettings settings;
    settings.endpoint = "https://other.example";
    settings.token = "secret";
    auto session = HttpSession::open(settings, nullptr);
    if (!session) return session.status().message();
    HttpRequest request;
    request.url = url;
    request.only = &only;
    request.most_bytes = most;
    const auto answer = session->run(request);
    return answer ? answer->body : answer.status().message();
  };
  EXPECT_EQ(fetch("http://127.0.0.1" + port + "/image"), "pixels");
  // A user that the URL names goes along, and the hub's token does not.
  EXPECT_EQ(fetch("http://other@127.0.0.1" + port + "/image"), "Basic b3RoZXI6pixels");
  EXPECT_TRUE(holds(fetch("http://127.0.0.1" + port + "/image", 3), "more than 3 bytes"));
  EXPECT_TRUE(holds(fetch("http://127.0.0.1" + port + "/away"), "redirects, which is not followed"));
  // The name may be asked for, and leads to this machine.
  EXPECT_TRUE(holds(fetch("http://localhost" + port + "/image"), "an address that is not public"));
  const std::vector<std::string> others{
      "http://127.0.0.1/image", "https://127.0.0.1" + port + "/image", "http://127.0.0.1.example" + port + "/image",
      "http://127.0.0.1" + port + "@other.example/image", "http://[::1]" + port + "/image"};
  for (const std::string& url : others) EXPECT_TRUE(holds(fetch(url), "not among the hosts")) << url;
  EXPECT_TRUE(holds(fetch("file:///etc/passwd"), "no http or https URL"));
}

}  // namespace
}  // namespace reprise::hub::guard_test

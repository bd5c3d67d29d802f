#include "server/caller.h"

#include <arpa/inet.h>

#include <algorithm>

#include "base/lower_case.h"
#include "server/request_reader.h"

namespace reprise::server {
namespace {

// Without the port that the scheme implies, and without the dot that ends a full name.
std::string plain_authority(std::string_view authority) {
  std::string out = lower_case(authority);
  for (const std::string_view port : {":80", ":443"})
    if (out.ends_with(port)) out.resize(out.size() - port.size());
  if (out.ends_with('.')) out.pop_back();
  return out;
}

}  // namespace

bool is_loopback_host(std::string_view host) {
  auto name = host_name(host);
  if (!name) return false;
  if (name->ends_with('.')) name->pop_back();
  if (*name == "localhost" || name->ends_with(".localhost")) return true;
  if (name->starts_with('[')) {
    const std::string address = name->substr(1, name->size() - 2);
    in6_addr v6{};
    if (::inet_pton(AF_INET6, address.c_str(), &v6) != 1) return false;
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
  }
  in_addr v4{};
  return ::inet_pton(AF_INET, name->c_str(), &v4) == 1 && (ntohl(v4.s_addr) >> 24) == 127;
}

bool host_is_allowed(const HttpRequest& request, const std::vector<std::string>& others) {
  const std::string_view host = request.header("host");
  if (host.empty() || is_loopback_host(host)) return true;
  const auto name = host_name(host);
  return name && std::any_of(others.begin(), others.end(), [&](const std::string& other) {
           return other == "*" || plain_authority(other) == plain_authority(*name);
         });
}

bool came_through_proxy(const HttpRequest& request) {
  static constexpr const char* kExact[] = {"forwarded",
                                           "via",
                                           "x-real-ip",
                                           "x-client-ip",
                                           "x-cluster-client-ip",
                                           "client-ip",
                                           "true-client-ip",
                                           "fastly-client-ip",
                                           "fly-client-ip",
                                           "x-original-host",
                                           "x-original-url",
                                           "x-original-forwarded-for",
                                           "x-rewrite-url",
                                           "x-proxyuser-ip",
                                           "x-remote-ip",
                                           "x-remote-addr",
                                           "x-originating-ip",
                                           "x-azure-clientip",
                                           "x-azure-socketip",
                                           "x-appengine-user-ip",
                                           "x-amzn-trace-id",
                                           "x-cloud-trace-context",
                                           "x-arr-ssl",
                                           "x-arr-log-id",
                                           "wl-proxy-client-ip",
                                           "proxy-client-ip",
                                           "cdn-loop",
                                           "x-nginx-proxy",
                                           "x-tailscale-user",
                                           "tailscale-user-login"};
  for (const char* name : kExact)
    if (request.headers.contains(name)) return true;
  // X-Forwarded-For, -Host, -Proto, -Port, -Server, -Prefix, -Ssl, -User, ...; Cloudflare's CF-*; Akamai's.
  for (const std::string_view prefix : {"x-forwarded", "cf-", "x-akamai-", "x-envoy-", "x-original-"}) {
    const auto at = request.headers.lower_bound(std::string(prefix));
    if (at != request.headers.end() && at->first.starts_with(prefix)) return true;
  }
  return false;
}

bool is_of_foreign_page(const HttpRequest& request, const std::vector<std::string>& others) {
  const bool has_origin = request.headers.contains("origin");
  std::string_view origin = request.header("origin");
  const size_t scheme = origin.find("://");
  origin.remove_prefix(scheme == std::string_view::npos ? origin.size() : scheme + 3);
  if (const auto name = host_name(origin); name && !is_loopback_host(*name))
    for (const std::string& other : others)
      if (plain_authority(other) == plain_authority(*name)) return false;
  const std::string site = lower_case(request.header("sec-fetch-site"));
  if (!site.empty() && site != "same-origin" && site != "none") return true;
  // "null" is the origin of what may not name its own.
  return has_origin && (origin.empty() || plain_authority(origin) != plain_authority(request.header("host")));
}

bool is_page_content(std::string_view content_type) {
  std::string type = lower_case(content_type.substr(0, content_type.find(';')));
  type.erase(type.find_last_not_of(" \t") + 1);
  return type == "text/plain" || type == "multipart/form-data";
}

}  // namespace reprise::server

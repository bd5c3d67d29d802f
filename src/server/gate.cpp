#include "server/gate.h"

#include <algorithm>
#include <ctime>

#include "base/lower_case.h"
#include "server/caller.h"
#include "server/cors.h"

namespace reprise::server {
namespace {

// Takes the same time wherever the two differ.
bool same(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  return difference == 0;
}

// The scheme's name is taken in any case (RFC 9110 11.1).
bool is_bearer(std::string_view scheme) {
  constexpr std::string_view kBearer = "bearer ";
  return std::equal(scheme.begin(), scheme.end(), kBearer.begin(), kBearer.end(),
                    [](char a, char b) { return lower_case(a) == b; });
}

}  // namespace

std::string_view Gate::key_of(const HttpRequest& request) {
  std::string_view key = request.header("authorization");
  if (key.size() >= 7 && is_bearer(key.substr(0, 7))) key.remove_prefix(7);
  const std::string_view other = request.header("x-api-key");  // Anthropic's
  if (other.empty()) return key;
  return key.empty() || same(key, other) ? other : std::string_view();
}

Gate::Who Gate::who(const HttpRequest& request) const {
  const std::string_view key = key_of(request);
  const bool admin = !options_.admin_api_key.empty() && same(key, options_.admin_api_key);
  if (const KeyRules* rules = ring_.find(key)) {
    if (rules->expires && std::time(nullptr) >= *rules->expires) return Who::Expired;
    return admin || rules->admin ? Who::Admin : Who::User;
  }
  bool user = !asks_for_key() || (!options_.api_key.empty() && same(key, options_.api_key));
  for (const std::string& k : options_.api_keys) user |= same(key, k);
  return admin ? Who::Admin : user ? Who::User : Who::Nobody;
}

// A browser on this machine, or one that may reach it, sends what pages of other sites have it send. A key that is
// asked for is no such page's to send; where none is, the sender counts.
std::optional<ApiError> Gate::refuse_sender(const HttpRequest& request, const RouteFacts& route) const {
  if (options_.allowed_hosts && !host_is_allowed(request, *options_.allowed_hosts))
    return ApiError{
        403,
        "this server listens on loopback, but the Host header has another name; --allowed-hosts NAME of the "
        "server allows it",
        "", "host_not_allowed"};
  if (std::string_view(route.method) != "POST") return std::nullopt;
  if (is_page_content(request.header("content-type")))
    return ApiError{415, "the body's content type has to be application/json", "", "unsupported_media_type"};
  const bool by_key = asks_for_key() || who(request) == Who::Admin;
  const bool allowed = origin_is_allowed(request, options_.cors_origins);
  if (!by_key && !allowed && is_of_foreign_page(request, options_.allowed_hosts.value_or(std::vector<std::string>())))
    return ApiError{
        403,
        "a page of another site may not post here, unless with a key (--api-key of the server) or from an allowed "
        "origin (--cors-origins)",
        "", "foreign_origin"};
  return std::nullopt;
}

std::optional<ApiError> Gate::refuse(const HttpRequest& request, const RouteFacts& route) const {
  const Who asks = who(request);
  if (route.access != Access::Open && asks == Who::Expired)
    return ApiError{401, "the API key has expired", "", "expired_api_key"};
  if (route.access != Access::Open && asks == Who::Nobody)
    return ApiError{401, "the API key is missing or wrong; send it as \"Authorization: Bearer KEY\"", "",
                    "invalid_api_key"};
  if (auto refused = refuse_sender(request, route)) return refused;
  const bool here = (options_.admin_port ? request.on_admin_port : request.from_loopback) &&
                    !came_through_proxy(request) && !is_of_foreign_page(request) && host_is_allowed(request, {});
  if (route.access == Access::Admin && asks != Who::Admin && !here)
    return ApiError{403, options_.admin_port ? "this route is on the admin port (--admin-port) alone"
                                             : "this route is for clients on this machine (by a name of loopback, "
                                               "through no proxy, and no page of another site), or with "
                                               "--admin-api-key"};
  return std::nullopt;
}

}  // namespace reprise::server

#include "server/cors.h"

#include <algorithm>

#include "base/lower_case.h"
#include "server/request_reader.h"

namespace reprise::server {
namespace {

bool has_any(const std::vector<std::string>& origins) {
  return std::find(origins.begin(), origins.end(), "*") != origins.end();
}

// Names of header fields, separated by commas.
bool is_list_of_names(std::string_view text) {
  constexpr size_t kMost = 1024;
  return text.size() <= kMost && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '-' || c == '_' || c == ',' || c == ' ';
         });
}

}  // namespace

Status check_origin(std::string_view origin) {
  if (origin == "*") return Status::ok();
  const size_t scheme = origin.find("://");
  const std::string_view authority = scheme == std::string_view::npos ? "" : origin.substr(scheme + 3);
  const bool known = origin.starts_with("http://") || origin.starts_with("https://");
  if (!known || authority.find_first_of("/?#@* ") != std::string_view::npos || !host_name(authority))
    return invalid(
        "\"{}\" is not an origin; allowed: *, or http:// or https:// with a host and perhaps a port, as "
        "https://chat.example or http://localhost:5173",
        origin);
  return Status::ok();
}

bool origin_is_allowed(const HttpRequest& request, const std::vector<std::string>& origins) {
  const std::string origin = lower_case(request.header("origin"));
  if (origin.empty()) return false;
  return has_any(origins) ||
         std::any_of(origins.begin(), origins.end(), [&](const std::string& o) { return lower_case(o) == origin; });
}

bool is_preflight(const HttpRequest& request) {
  return request.method == "OPTIONS" && request.headers.contains("origin") &&
         request.headers.contains("access-control-request-method");
}

Headers cors_headers(const HttpRequest& request, const std::vector<std::string>& origins) {
  if (origins.empty()) return {};
  // What lies in a cache is for the origin that asked.
  Headers out = {{"vary", "Origin"}};
  if (!origin_is_allowed(request, origins)) return out;
  out.emplace_back("access-control-allow-origin",
                   has_any(origins) ? std::string("*") : std::string(request.header("origin")));
  out.emplace_back("access-control-expose-headers", "x-request-id, x-reprise-warnings, retry-after");
  return out;
}

Headers preflight_headers(const HttpRequest& request) {
  Headers out = {{"access-control-allow-methods", "GET, POST, OPTIONS"}, {"access-control-max-age", "600"}};
  const std::string_view names = request.header("access-control-request-headers");
  if (!names.empty() && is_list_of_names(names)) out.emplace_back("access-control-allow-headers", names);
  if (request.header("access-control-request-private-network") == "true")
    out.emplace_back("access-control-allow-private-network", "true");
  return out;
}

}  // namespace reprise::server

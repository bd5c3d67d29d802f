#include "server/route_table.h"

#include <fmt/format.h>

namespace reprise::server {
namespace {

bool takes(std::string_view route, std::string_view path) {
  const bool prefix = route.size() > 1 && route.back() == '/';
  return prefix ? path.starts_with(route) && path.size() > route.size() : path == route;
}

}  // namespace

RouteTable::Match RouteTable::find(std::string_view method, std::string_view path) const {
  Match out;
  for (const RouteFacts* r : routes_) {
    if (!takes(r->path, path)) continue;
    out.allowed += (out.allowed.empty() ? "" : ", ") + std::string(r->method);
    if (method == r->method || (method == "HEAD" && std::string_view(r->method) == "GET")) out.route = r;
  }
  return out;
}

std::vector<std::string> RouteTable::names() const {
  std::vector<std::string> out;
  for (const RouteFacts* r : routes_) out.push_back(fmt::format("{} {}", r->method, r->path));
  return out;
}

std::string_view RouteTable::path_for_log(std::string_view path) const {
  for (const RouteFacts* r : routes_)
    if (r->path == path || takes(r->path, path)) return r->path;
  return "unknown";
}

}  // namespace reprise::server

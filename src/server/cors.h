// CORS (https://fetch.spec.whatwg.org/#http-cors-protocol): which pages of other origins may call this server from a
// browser, and the headers that tell the browser. Without an allowed origin there are no such headers, and browsers
// keep answers from other pages. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/http.h"

namespace reprise::server {

// "*", or a scheme, a host and perhaps a port: "https://chat.example", "http://localhost:5173".
Status check_origin(std::string_view origin);

// Whether the request comes from a page of one of the origins.
bool origin_is_allowed(const HttpRequest& request, const std::vector<std::string>& origins);

// A browser asks beforehand whether it may send a request.
bool is_preflight(const HttpRequest& request);

// Headers of an answer to a request of an allowed origin.
Headers cors_headers(const HttpRequest& request, const std::vector<std::string>& origins);
// Further headers of the answer to such a preflight.
Headers preflight_headers(const HttpRequest& request);

}  // namespace reprise::server

// What the headers of a request say about who sent it: for which host it is meant, whether a proxy passed it on, and
// whether a page of another site had a browser send it. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

namespace reprise::server {

// localhost and names below it, 127.0.0.0/8 and ::1, with or without a port. Names that merely lead there are not: any
// domain may have one.
bool is_loopback_host(std::string_view host);

// The Host header names this machine's loopback or one of `others` ("*": any; without a port). A page can be given a
// name that leads to this machine (DNS rebinding), and then asks as if it were a page of this server; its Host still
// is that name. True without a Host header, which no browser leaves out.
bool host_is_allowed(const HttpRequest& request, const std::vector<std::string>& others);

// A header of those that proxies add, which also says that the connection's other end is not the client.
bool came_through_proxy(const HttpRequest& request);

// Sent by a browser for a page that this server did not give out, by its own name or by one of `others` (of a proxy
// that keeps the Host to itself; names of loopback do not count, for other programs have pages there).
bool is_of_foreign_page(const HttpRequest& request, const std::vector<std::string>& others = {});

// A type of content that pages of other sites may send without asking, and that is not what the routes take.
bool is_page_content(std::string_view content_type);

}  // namespace reprise::server

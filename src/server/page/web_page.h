// WebPage: the pages that a browser gets: the live page at `/`, which shows what the server does and talks with the
// model, and the one at `/docs`, which describes the routes. CMake makes each of the files in this folder into one HTML
// text with nothing outside it. They hold no data: their scripts ask the same routes as any client. Any thread.
#pragma once

#include <string>

#include "server/http.h"

namespace reprise::server {

struct WebPage {
  std::string html;
  // A policy that lets the browser run this page's own scripts and nothing else, and ask this server alone.
  Headers headers;
};

// With marks of its own for each answer, by which the browser knows the page's scripts and style.
WebPage live_page();
WebPage docs_page();

}  // namespace reprise::server

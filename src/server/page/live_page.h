// LivePage: the page at `/`, which shows what the server does and talks with the model. It is one HTML file
// (page.html) with nothing outside it, and holds no data: its script asks the same routes as any client. Any thread.
#pragma once

#include <string>

#include "server/http.h"

namespace reprise::server {

struct LivePage {
  std::string html;
  // A policy that lets the browser run this page's own script and nothing else, and ask this server alone.
  Headers headers;
};

// With marks of its own for each answer, by which the browser knows the page's script and style.
LivePage live_page();

}  // namespace reprise::server

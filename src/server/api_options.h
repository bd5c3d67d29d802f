// ApiOptions: what a server allows, whom, and where it writes. Plain values; the HTTP thread reads them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/generate_call.h"
#include "server/key_ring.h"

namespace reprise::server {

class RequestLogFile;
class SpanExporter;

// What may change while the server runs.
struct LiveOptions {
  std::string api_key;                // "" = none is asked for
  std::vector<std::string> api_keys;  // others that open the same
  std::vector<KeyRules> keys;         // with limits of their own
  int64_t most_answers_of_key = 0;    // that run or wait at once; 0: no bound
  std::string admin_api_key;          // opens the admin routes to others than loopback
  bool access_log = false;            // a log line per request
};

struct ApiOptions : LiveOptions {
  bool admin_port = false;                // the admin routes are on that port alone
  RequestLogFile* request_log = nullptr;  // outlives the server's threads; null: none
  bool log_prompts = false;               // prompts and answers stand in the request log
  SpanExporter* spans = nullptr;          // likewise
  // Besides loopback's names, the hosts that requests may be meant for; nullopt: any.
  std::optional<std::vector<std::string>> allowed_hosts;
  // Origins whose pages may call ("https://a.example"); "*": every page.
  std::vector<std::string> cors_origins;
  std::chrono::milliseconds ping_every{15000};  // of silence in a stream, where its dialect has a word for it
  CallLimits limits;
};

}  // namespace reprise::server

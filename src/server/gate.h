// Gate: who sent a request, and whether a route is for them: by the key, the connection, and what the headers say of
// pages of other sites. It reads the server's options and the ring of keys, which outlive it. HTTP thread.
#pragma once

#include <optional>
#include <string_view>

#include "server/api_error.h"
#include "server/api_options.h"
#include "server/http.h"
#include "server/route_table.h"

namespace reprise::server {

class Gate {
 public:
  Gate(const ApiOptions& options, const KeyRing& ring) : options_(options), ring_(ring) {}

  // Why the request may not have that route; nullopt: it may.
  std::optional<ApiError> refuse(const HttpRequest& request, const RouteFacts& route) const;

  // "" where the two headers for it do not agree: that is no client's key.
  static std::string_view key_of(const HttpRequest& request);
  // The rules of the key, where it is of the ring; null where not.
  const KeyRules* rules_of(const HttpRequest& request) const { return ring_.find(key_of(request)); }
  bool asks_for_key() const { return !options_.api_key.empty() || !options_.api_keys.empty() || !ring_.empty(); }

 private:
  enum class Who : uint8_t { Nobody, Expired, User, Admin };
  Who who(const HttpRequest& request) const;  // by the key
  std::optional<ApiError> refuse_sender(const HttpRequest& request, const RouteFacts& route) const;

  const ApiOptions& options_;
  const KeyRing& ring_;
};

}  // namespace reprise::server

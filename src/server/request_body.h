// body_of: the JSON of a request's body within the bounds that every route has. Pure; any thread.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <type_traits>

#include "base/bounded_json.h"
#include "server/api_error.h"
#include "server/generate_call.h"

namespace reprise::server {

// What a request's JSON may have. The longest prompt of ids is a list of that many values; a member or a list costs
// more memory than a number, and some readers' time grows with the members of one object.
constexpr size_t kMostMembers = 1 << 16, kMostLists = 1 << 17, kValuesBesideIds = 1 << 20;

// The body as JSON; nullopt after an error. `stopping` gives it up.
template <typename J>
std::optional<J> body_of(const std::string& text, const CallLimits& limits, const std::atomic<bool>& stopping,
                         ApiError& error) {
  const JsonLimits json{kMostMembers, kMostLists, static_cast<size_t>(limits.token_budget) + kValuesBesideIds,
                        &stopping};
  auto parsed = [&]() -> Result<J> {
    if constexpr (std::is_same_v<J, Json>)
      return parse_json(text, "the request's body", json);
    else
      return parse_ordered_json(text, "the request's body", json);
  }();
  if (parsed) return std::move(*parsed);
  error = ApiError::from(parsed.status());
  return std::nullopt;
}

}  // namespace reprise::server

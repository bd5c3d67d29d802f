// KeyRing: the keys of a file, by the SHA-256 of each, with what each may do; and their token buckets. A file has one
// JSON object a line. Lookups and charges are the HTTP thread's; parse() is pure.
//
// A bucket holds what a key may use in a minute, and fills up at that rate. A request takes one from the bucket of
// requests, and the tokens that it may take from the bucket of tokens; those that it did not take are given back.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/http.h"

namespace reprise::server {

struct KeyRules {
  std::string name, sha256;
  bool admin = false;
  int64_t requests_per_minute = 0, tokens_per_minute = 0;  // 0: no bound, as of the next two
  int64_t max_running = 0;                                 // answers that run or wait
  int64_t max_tokens_per_request = 0;                      // prompt and answers
  std::optional<int64_t> priority;                         // of requests that name none
  std::optional<int64_t> expires;                          // seconds since 1970
};

class KeyRing {
 public:
  using Clock = std::chrono::steady_clock;

  // Errors name the line and the member.
  static Result<std::vector<KeyRules>> parse(std::string_view file);

  // Buckets of keys that were there before, by name, go on as they are.
  void replace(std::vector<KeyRules> keys);
  bool empty() const { return keys_.empty(); }
  // Null: no such key. An expired one is one that the caller tells so (`expires`).
  const KeyRules* find(std::string_view key) const;

  // What a request that is let in or refused is told.
  struct Charge {
    bool taken = false;
    std::string limit;          // "requests" or "tokens": the one that refused
    int64_t retry_after_s = 0;  // until it would be let in
    int64_t tokens = 0;         // that were charged: no more than the bucket holds
    Headers headers;            // x-ratelimit-*
  };
  Charge charge(const KeyRules& key, int64_t tokens, Clock::time_point now);
  // At the end: gives back what was charged and not used, and takes what was used beyond. A key that has gone
  // meanwhile is none.
  void reconcile(const std::string& name, int64_t charged, int64_t used, Clock::time_point now);

 private:
  struct Bucket {
    double level = 0;
    Clock::time_point at{};
  };
  struct Buckets {
    Bucket requests, tokens;
    int64_t request_limit = 0, token_limit = 0;
  };
  static void fill(Bucket& bucket, int64_t limit, Clock::time_point now);

  std::vector<KeyRules> keys_;
  std::map<std::string, size_t, std::less<>> by_hash_;
  std::map<std::string, Buckets> buckets_;
};

}  // namespace reprise::server

// KeyLedger: what the keys of clients have used and may use yet: answers that run or wait, tokens of their buckets, and
// counts for /metrics. A call is entered before it starts and leaves when it has ended. It owns the ring of keys. HTTP
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "server/api_error.h"
#include "server/key_ring.h"
#include "server/metric_text.h"

namespace reprise::server {

class KeyLedger {
 public:
  void replace(std::vector<KeyRules> keys) { ring_.replace(std::move(keys)); }
  const KeyRing& ring() const { return ring_; }

  struct Wish {
    const KeyRules* rules = nullptr;  // null: the key is not of the ring
    std::string_view key;             // the secret where it is not; "": none
    int64_t answers = 0;
    int64_t most_answers = 0;  // that run or wait at once, where the key has no bound of its own; 0: no bound
    int64_t tokens = 0;        // of prompts and answers, at most
  };
  // A call that was let in.
  struct Entry {
    std::string key, name;  // `name` of a key of the ring, else ""
    int64_t answers = 0, charged = 0;
  };
  // Why the call is not let in; nullopt: it is, and `entry` says what leave() takes back. `headers` gets what a client
  // is told of its buckets.
  std::optional<ApiError> enter(const Wish& wish, Headers& headers, Entry& entry);
  void leave(const Entry& entry, int64_t prompt_tokens, int64_t completion_tokens);
  // A request of a key of the ring was answered.
  void answered(const std::string& name, int status) { ++counts_[name].requests[status]; }

  void add_metrics(MetricText& text) const;

 private:
  struct Counts {
    std::map<int, uint64_t> requests;  // by status
    uint64_t prompt_tokens = 0, completion_tokens = 0;
    std::map<std::string, uint64_t> limited;  // by limit
  };
  std::optional<ApiError> charge(const Wish& wish, Headers& headers, Entry& entry);

  KeyRing ring_;
  std::unordered_map<std::string, int64_t> answers_;  // that run or wait, by key
  std::map<std::string, Counts> counts_;              // of the ring's keys
};

}  // namespace reprise::server

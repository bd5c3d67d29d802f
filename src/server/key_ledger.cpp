#include "server/key_ledger.h"

#include <algorithm>

namespace reprise::server {

std::optional<ApiError> KeyLedger::enter(const Wish& wish, Headers& headers, Entry& entry) {
  entry = {};
  if (wish.rules) entry.name = wish.rules->name;
  // A key of the ring keeps its count when its secret changes.
  entry.key = wish.rules ? "ring " + entry.name : std::string(wish.key);
  const auto found = answers_.find(entry.key);
  const int64_t running = found == answers_.end() ? 0 : found->second;
  const int64_t most = wish.rules && wish.rules->max_running > 0 ? wish.rules->max_running : wish.most_answers;
  if (wish.answers > 0 && most > 0 && running + wish.answers > most)
    return ApiError{429,
                    fmt::format("this key has {} answers that run or wait, and {} more are asked for; at most {} "
                                "are allowed at once",
                                running, wish.answers, most),
                    "", "too_many_answers"};
  if (wish.rules)
    if (auto refused = charge(wish, headers, entry)) return refused;
  entry.answers = wish.answers;
  if (wish.answers > 0) answers_[entry.key] += wish.answers;
  return std::nullopt;
}

std::optional<ApiError> KeyLedger::charge(const Wish& wish, Headers& headers, Entry& entry) {
  const KeyRules& rules = *wish.rules;
  if (rules.max_tokens_per_request > 0 && wish.tokens > rules.max_tokens_per_request)
    return ApiError{400,
                    fmt::format("this request may take {} tokens, prompt and answers; this key allows {}", wish.tokens,
                                rules.max_tokens_per_request),
                    "max_tokens", "too_many_tokens"};
  const KeyRing::Charge charged = ring_.charge(rules, wish.tokens, KeyRing::Clock::now());
  for (const auto& header : charged.headers) headers.push_back(header);
  entry.charged = charged.tokens;
  if (charged.taken) return std::nullopt;
  ++counts_[rules.name].limited[charged.limit];
  ApiError refused{429, fmt::format("the limit of {} a minute of this key is reached", charged.limit), "",
                   "rate_limit_exceeded"};
  refused.retry_after_s = std::max<int64_t>(1, charged.retry_after_s);
  return refused;
}

void KeyLedger::leave(const Entry& entry, int64_t prompt_tokens, int64_t completion_tokens) {
  // Keys that nobody uses any more take no memory.
  if (const auto found = answers_.find(entry.key); found != answers_.end() && (found->second -= entry.answers) <= 0)
    answers_.erase(found);
  if (entry.name.empty()) return;
  ring_.reconcile(entry.name, entry.charged, prompt_tokens + completion_tokens, KeyRing::Clock::now());
  Counts& counts = counts_[entry.name];
  counts.prompt_tokens += static_cast<uint64_t>(prompt_tokens);
  counts.completion_tokens += static_cast<uint64_t>(completion_tokens);
}

void KeyLedger::add_metrics(MetricText& t) const {
  const auto label = &MetricText::label;
  if (counts_.empty()) return;
  const auto each = [&](const char* name, const char* help, auto samples) {
    t.family(name, "counter", help);
    for (const auto& [key, counts] : counts_)
      samples(counts, [&, of = label("key", key)](const std::string& kind, uint64_t n) {
        t.sample(static_cast<double>(n), of + "," + kind);
      });
  };
  each("reprise:key_requests_total", "Requests of a key, by status.", [&](const Counts& c, auto add) {
    for (const auto& [status, n] : c.requests) add(label("status", std::to_string(status)), n);
  });
  each("reprise:key_tokens_total", "Tokens of a key.", [&](const Counts& c, auto add) {
    add(label("kind", "prompt"), c.prompt_tokens);
    add(label("kind", "completion"), c.completion_tokens);
  });
  each("reprise:rate_limited_total", "Requests that a limit of their key refused.", [&](const Counts& c, auto add) {
    for (const auto& [limit, n] : c.limited) add(label("limit", limit), n);
  });
}

}  // namespace reprise::server

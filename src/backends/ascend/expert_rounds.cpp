#include "backends/ascend/expert_rounds.h"

#include <algorithm>
#include <cstdlib>

#include "ops/collectives.h"

namespace reprise::ascend {
namespace {

constexpr int64_t kMegabyte = int64_t{1} << 20;

int64_t aligned(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

RoundLimits RoundLimits::of(std::string_view soc, const char* megabytes) {
  RoundLimits l;
  l.third = soc.starts_with("Ascend910_93");
  if (l.third) l.tokens = 512;
  if (megabytes && *megabytes) l.megabytes = std::strtoll(megabytes, nullptr, 10);
  return l;
}

int64_t SentShape::rows_of_token() const { return ranks * std::min(experts, choices); }

int64_t SentShape::window_bytes(const RoundLimits& limits) const {
  if (!limits.third) return 2 * rows_of_token() * width * 2;
  const int64_t there = aligned(aligned(2 * width, 32) + 64, 512), back = aligned(2 * width, 512);
  return 2 * (experts * ranks * there + choices * back);
}

int64_t SentShape::tokens_at_once(const RoundLimits& limits) const {
  const int64_t besides = limits.third ? 0 : 4 * kMegabyte;
  const int64_t held = std::max<int64_t>(limits.megabytes * kMegabyte - besides, 0) / window_bytes(limits);
  return std::min(limits.tokens, held);
}

Status SentShape::fits(const RoundLimits& limits) const {
  const int64_t held = tokens_at_once(limits);
  if (held >= kFewest) {
    // What two rounds of one token more than one holds tell each other: in none is less room for the counts.
    const int64_t spare = kSentRowWords - kAssistWords - 1, all = experts * ranks;
    if (2 * all + 16 <= rows_of_token() * (spare * (held + 1) - kAssistWords - 1)) return Status::ok();
    return error(Code::Unsupported,
                 "rounds of {} tokens of a rank have too little room for the counts of {} experts; a larger "
                 "HCCL_BUFFSIZE than {} MB holds more tokens at a time",
                 held, all, limits.megabytes);
  }
  const int64_t besides = limits.third ? 0 : 4 * kMegabyte;
  const auto needed = [&](int64_t tokens) {
    return (tokens * window_bytes(limits) + besides + kMegabyte - 1) / kMegabyte;
  };
  return error(Code::Unsupported,
               "HCCL_BUFFSIZE of {} MB holds {} tokens of a rank at a time, and rows are sent from {} on; {} MB hold "
               "these, {} MB the most that the operators take, {}",
               limits.megabytes, held, kFewest, needed(kFewest), needed(limits.tokens), limits.tokens);
}

Rounds::Rounds(int64_t tokens, int64_t at_once, int64_t rows_of_token, int64_t places) : tokens_(tokens) {
  const auto cut = [&](int64_t rounds) {
    most_ = (tokens + rounds - 1) / rounds;
    count_ = (tokens + most_ - 1) / most_;
  };
  cut(std::max<int64_t>((tokens + at_once - 1) / at_once, 1));
  for (int64_t rounds = count_ + 1; count_ * most_ * rows_of_token > places && rounds <= tokens; ++rounds) cut(rounds);
}

}  // namespace reprise::ascend

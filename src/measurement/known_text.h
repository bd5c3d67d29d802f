// KnownText: drafts what an answer is known to be, and each of its tokens by chance another one, by a seed. As
// spec::Drafter, for `bench one-batch --speculative-synthetic-acceptance` alone.
//
// Whether the draft of a place is right depends on the seed, the request and the place, so a run that is made again has
// the same drafts. Its chances are those of the seed, so the rule that says how many drafts a step has chooses as with
// a drafter that knows itself well. The scheduler that it is made for owns it, and the texts outlive it.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "spec/drafter.h"

namespace reprise::measurement {

class KnownText final : public spec::Drafter {
 public:
  using Texts = std::unordered_map<uint64_t, std::vector<int32_t>>;  // by request: its prompt and its answer

  KnownText(const Texts& texts, double acceptance, int64_t vocab, uint64_t seed)
      : texts_(texts), acceptance_(acceptance), vocab_(vocab), seed_(seed) {}

  void begin(const spec::Start&) override {}
  void propose(std::span<const spec::Wish> wishes, std::span<spec::Proposal> out) override;
  void judged(uint64_t, int64_t, int64_t) override {}
  void end(uint64_t, std::span<const int32_t>) override {}

 private:
  const Texts& texts_;
  double acceptance_;
  int64_t vocab_;
  uint64_t seed_;
};

}  // namespace reprise::measurement

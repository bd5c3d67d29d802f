#include "measurement/known_text.h"

#include <algorithm>

#include "base/split_mix.h"

namespace reprise::measurement {

void KnownText::propose(std::span<const spec::Wish> wishes, std::span<spec::Proposal> out) {
  for (size_t i = 0; i < wishes.size(); ++i) {
    const spec::Wish& wish = wishes[i];
    out[i].clear();
    const auto text = texts_.find(wish.id);
    if (text == texts_.end()) continue;
    const size_t begin = wish.tokens.size();
    const size_t end = std::min(text->second.size(), begin + static_cast<size_t>(std::max<int64_t>(0, wish.most)));
    double chance = 1;
    for (size_t at = begin; at < end; ++at) {
      const uint64_t bits = split_mix(seed_ ^ split_mix(wish.id * kSplitMixStep + at));
      const int64_t right = text->second[at];
      const bool wrong = static_cast<double>(bits >> 11) * 0x1p-53 >= acceptance_;
      out[i].tokens.push_back(static_cast<int32_t>(wrong ? (right + 1) % vocab_ : right));
      out[i].survival.push_back(static_cast<float>(chance *= acceptance_));
    }
  }
}

}  // namespace reprise::measurement

// Acceptance: how often a guess came true, by how many tokens before it agreed with an earlier place: a moving average
// for each length. What was assumed counts as two guesses, so a short match that misleads soon counts for little, and a
// good one for much. One per drafter; one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace reprise::spec {

class Acceptance {
 public:
  // Rates of matches of `shortest` to `longest` tokens. Until something was seen: 0.5 for 3 tokens, 0.9 for 8 and more.
  Acceptance(int64_t shortest, int64_t longest) : shortest_(shortest) {
    for (int64_t g = shortest; g <= longest; ++g)
      rates_.push_back({std::clamp(0.5 + 0.08 * static_cast<double>(g - 3), 0.5, 0.9)});
  }

  double rate(int64_t length) const { return rates_[index(length)].rate; }
  // The first `accepted` of `verified` guesses behind a match of this length came true, and the next one did not.
  void saw(int64_t length, int64_t verified, int64_t accepted) {
    Rate& r = rates_[index(length)];
    for (int64_t i = 0; i < std::min(verified, accepted + 1); ++i) {
      r.weight = std::max(kLeastWeight, r.weight / (1 + r.weight));  // 1 / 3, 1 / 4, 1 / 5, ...
      r.rate += r.weight * ((i < accepted ? 1 : 0) - r.rate);
    }
    r.rate = std::clamp(r.rate, 0.02, 0.99);
  }

 private:
  static constexpr double kLeastWeight = 1.0 / 32;
  struct Rate {
    double rate = 0;
    double weight = 0.5;  // of the last guess
  };
  size_t index(int64_t length) const {
    return static_cast<size_t>(std::clamp<int64_t>(length - shortest_, 0, static_cast<int64_t>(rates_.size()) - 1));
  }
  int64_t shortest_;
  std::vector<Rate> rates_;
};

}  // namespace reprise::spec

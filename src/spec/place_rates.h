// PlaceRates: how often the draft at each place of a chain came true when those before it did: moving averages. One for
// a drafter, and copies of it that go on with one request each. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace reprise::spec {

class PlaceRates {
 public:
  // Until something was seen: 0.7. `weight` of what is seen next.
  explicit PlaceRates(int64_t places, double weight) : rates_(static_cast<size_t>(places), 0.7), weight_(weight) {}
  PlaceRates(const PlaceRates& begin, double weight) : rates_(begin.rates_), weight_(weight) {}

  int64_t places() const { return static_cast<int64_t>(rates_.size()); }
  double rate(int64_t place) const { return rates_[static_cast<size_t>(std::min(place, places() - 1))]; }
  // The chances of the first `places` drafts of a chain to come true, each with all before it.
  void survival(int64_t places, std::vector<float>& out) const {
    double chance = 1;
    for (int64_t i = 0; i < places; ++i) out.push_back(static_cast<float>(chance *= rate(i)));
  }
  // The first `accepted` of `verified` drafts came true, and the next one did not.
  void saw(int64_t verified, int64_t accepted) {
    for (int64_t i = 0; i < std::min({verified, accepted + 1, places()}); ++i) {
      double& rate = rates_[static_cast<size_t>(i)];
      rate = std::clamp(rate + weight_ * ((i < accepted ? 1 : 0) - rate), 0.02, 0.99);
    }
  }

 private:
  std::vector<double> rates_;
  double weight_;
};

}  // namespace reprise::spec

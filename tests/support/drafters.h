// Drafters for tests: at random, and from a script of what will be answered.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "spec/drafter.h"

namespace reprise::testing_support {

// What follows a history, as far as it is known.
using Foresight = std::function<std::vector<int32_t>(std::span<const int32_t> history, int64_t most)>;

// Proposes what `foresight` says, where each token is replaced by another one with the chance `wrong`; a proposal may
// end early. It holds requests to the order that a drafter may rely on.
class TestDrafter final : public spec::Drafter {
 public:
  struct Options {
    double wrong = 0;   // chance of each token to be another one
    bool whole = true;  // as many as wished
    uint32_t seed = 1;
    int32_t vocab = 29;
  };
  TestDrafter(Options options, Foresight foresight)
      : options_(options), foresight_(std::move(foresight)), rng_(options.seed) {}
  ~TestDrafter() override {
    if (known_.size() > 0) ADD_FAILURE() << known_.size() << " requests have not ended";
  }

  void begin(const spec::Start& start) override {
    EXPECT_EQ(std::count(known_.begin(), known_.end(), start.id), 0);
    known_.push_back(start.id);
  }
  void propose(std::span<const spec::Wish> wishes, std::span<spec::Proposal> out) override {
    for (size_t i = 0; i < wishes.size(); ++i) {
      const spec::Wish& wish = wishes[i];
      EXPECT_EQ(std::count(known_.begin(), known_.end(), wish.id), 1);
      out[i].clear();
      int64_t most = wish.most;
      if (!options_.whole) most = static_cast<int64_t>(rng_() % static_cast<uint64_t>(most + 1));
      out[i].tokens = foresight_(wish.tokens, most);
      out[i].tokens.resize(std::min(out[i].tokens.size(), static_cast<size_t>(most)));
      for (int32_t& t : out[i].tokens)
        if (std::uniform_real_distribution<>(0, 1)(rng_) < options_.wrong)
          t = static_cast<int32_t>(
              (static_cast<uint32_t>(t) + 1 + rng_() % (static_cast<uint32_t>(options_.vocab) - 1)) %
              static_cast<uint32_t>(options_.vocab));
      out[i].survival.assign(out[i].tokens.size(), 0.5f);
    }
  }
  void judged(uint64_t id, int64_t verified, int64_t accepted) override {
    EXPECT_LE(accepted, verified);
    judgements.emplace_back(verified, accepted);
  }
  void end(uint64_t id, std::span<const int32_t> answer) override {
    EXPECT_EQ(std::erase(known_, id), 1u);
    answers.emplace_back(answer.begin(), answer.end());
  }

  std::vector<std::pair<int64_t, int64_t>> judgements;
  std::vector<std::vector<int32_t>> answers;

 private:
  Options options_;
  Foresight foresight_;
  std::mt19937 rng_;
  std::vector<uint64_t> known_;
};

// What goes on as one of these texts does.
inline Foresight from_script(std::vector<std::vector<int32_t>> texts) {
  return [texts = std::move(texts)](std::span<const int32_t> history, int64_t most) -> std::vector<int32_t> {
    for (const auto& text : texts)
      if (text.size() > history.size() && std::equal(history.begin(), history.end(), text.begin())) {
        const auto begin = text.begin() + static_cast<ptrdiff_t>(history.size());
        return {begin, begin + static_cast<ptrdiff_t>(
                                   std::min<size_t>(text.size() - history.size(), static_cast<size_t>(most)))};
      }
    return {};
  };
}

// Anything.
inline Foresight at_random(uint32_t seed, int32_t vocab) {
  return [rng = std::mt19937(seed), vocab](std::span<const int32_t>, int64_t most) mutable {
    std::vector<int32_t> out(static_cast<size_t>(most));
    for (int32_t& t : out) t = static_cast<int32_t>(rng() % static_cast<uint32_t>(vocab));
    return out;
  };
}

}  // namespace reprise::testing_support

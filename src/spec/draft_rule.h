// DraftRule: how many drafts a step takes. Each further row of a step costs time, and each draft comes true by a
// chance: of D drafts in all it takes the D likeliest, and the D with the most tokens per second by measured step
// times; none unless that is three per cent better than a step without. Text never depends on it, so times may decide.
//
// Step times are not known at first, and they drift. A step of more rows than any measured one is tried where one of
// half the rows is known, and would pay off if its further rows cost half of what those of that one cost. A row count
// that lost is tried again now and then,
// with at most a hundredth of all time. One per scheduler; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "spec/drafter.h"

namespace reprise::spec {

// A step of so many rows: nullopt where it would not run like others; else its microseconds, 0: not known yet.
using RowTimes = std::function<std::optional<double>(int64_t rows)>;

// What proposing takes: in any case, and for each round, which makes the next draft of every sequence.
struct DraftingTime {
  double us = 0, round_us = 0;
};

struct DraftChoice {
  std::vector<int64_t> take;  // of each proposal so many tokens, the first ones
  int64_t drafts = 0;         // in all
  bool unusual = false;       // larger steps would not run like others
};

class DraftRule {
 public:
  explicit DraftRule(bool adaptive) : adaptive_(adaptive) {}

  // `sequences` rows without drafts, at most `most_rows` with them. Of equal chances that of the proposal with the
  // larger priority comes first, then that which comes first. Chances alone count, so the tokens may be still to come.
  const DraftChoice& choose(int64_t sequences, int64_t most_rows, std::span<const Proposal> proposals,
                            std::span<const int64_t> priorities, const RowTimes& times, const DraftingTime& drafting);

  // What choose() would say, for a look at a step that is still to be formed. No trial counts as made; a step without
  // drafts counts as one.
  const DraftChoice& look(int64_t sequences, int64_t most_rows, std::span<const Proposal> proposals,
                          std::span<const int64_t> priorities, const RowTimes& times, const DraftingTime& drafting);

 private:
  struct Draft {
    float survival;
    int64_t priority;
    uint32_t proposal, place;
  };
  int64_t by_times(int64_t sequences, const RowTimes& times, const DraftingTime& drafting);
  int64_t to_try(int64_t sequences, const RowTimes& times, double best_rate, int64_t largest_known);

  bool adaptive_;
  double to_spend_us_ = 0;  // on row counts that lost
  int64_t turn_ = 0;
  std::vector<Draft> drafts_;      // kept to avoid allocating per step
  std::vector<double> gained_;     // tokens of a step with the first i drafts
  std::vector<double> rounds_us_;  // of making them
  DraftChoice choice_;
};

}  // namespace reprise::spec

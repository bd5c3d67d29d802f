#include "spec/draft_rule.h"

#include <algorithm>
#include <tuple>

namespace reprise::spec {
namespace {

constexpr double kWorth = 1.03;
constexpr double kTrials = 0.01;        // of all time
constexpr double kUnknownSlope = 0.5;   // of what a further row has cost so far
constexpr double kMostTrialSteps = 16;  // that may be saved up for trials

}  // namespace

const DraftChoice& DraftRule::choose(int64_t sequences, int64_t most_rows, std::span<const Proposal> proposals,
                                     std::span<const int64_t> priorities, const RowTimes& times,
                                     const DraftingTime& drafting) {
  choice_.take.assign(proposals.size(), 0);
  choice_.drafts = 0;
  choice_.unusual = false;
  drafts_.clear();
  for (uint32_t p = 0; p < proposals.size(); ++p)
    for (uint32_t i = 0; i < proposals[p].survival.size(); ++i)
      drafts_.push_back({proposals[p].survival[i], p < priorities.size() ? priorities[p] : 0, p, i});
  // Chances fall along a proposal, so the likeliest ones of all are first tokens of each.
  std::sort(drafts_.begin(), drafts_.end(), [](const Draft& a, const Draft& b) {
    return std::tuple(-a.survival, -a.priority, a.proposal, a.place) <
           std::tuple(-b.survival, -b.priority, b.proposal, b.place);
  });
  drafts_.resize(std::min(drafts_.size(), static_cast<size_t>(std::max<int64_t>(0, most_rows - sequences))));
  while (!drafts_.empty() && !times(sequences + static_cast<int64_t>(drafts_.size()))) {
    drafts_.pop_back();
    choice_.unusual = true;
  }
  choice_.drafts = adaptive_ ? by_times(sequences, times, drafting) : static_cast<int64_t>(drafts_.size());
  for (int64_t i = 0; i < choice_.drafts; ++i) ++choice_.take[drafts_[static_cast<size_t>(i)].proposal];
  return choice_;
}

const DraftChoice& DraftRule::look(int64_t sequences, int64_t most_rows, std::span<const Proposal> proposals,
                                   std::span<const int64_t> priorities, const RowTimes& times,
                                   const DraftingTime& drafting) {
  const auto [spend, turn] = std::tuple(to_spend_us_, turn_);
  choose(sequences, most_rows, proposals, priorities, times, drafting);
  if (choice_.drafts > 0) to_spend_us_ = spend, turn_ = turn;
  return choice_;
}

int64_t DraftRule::by_times(int64_t sequences, const RowTimes& times, const DraftingTime& drafting) {
  const double now = times(sequences).value_or(0);
  if (now <= 0) return 0;
  to_spend_us_ = std::min(to_spend_us_ + kTrials * now, kMostTrialSteps * now);
  const auto most = static_cast<int64_t>(drafts_.size());
  gained_.assign(1, static_cast<double>(sequences));
  rounds_us_.assign(1, 0);
  for (const Draft& d : drafts_) {
    gained_.push_back(gained_.back() + d.survival);
    rounds_us_.push_back(std::max(rounds_us_.back(), drafting.round_us * (d.place + 1)));
  }
  int64_t best = 0, largest_known = 0;
  double best_rate = kWorth * static_cast<double>(sequences) / now;
  for (int64_t d = 1; d <= most; ++d) {
    const double us = times(sequences + d).value_or(0);
    if (us <= 0) continue;
    largest_known = d;
    const double rate = gained_[static_cast<size_t>(d)] / (us + drafting.us + rounds_us_[static_cast<size_t>(d)]);
    if (rate > best_rate) best = d, best_rate = rate;
  }
  const int64_t trial = to_try(sequences, times, best_rate, largest_known);
  if (trial > 0) return trial;
  if (best > 0 || most == 0) return best;
  // One that lost, if it may cost that much.
  const int64_t again = 1 + turn_++ % most;
  const double more = times(sequences + again).value_or(0) + rounds_us_[static_cast<size_t>(again)] - now;
  if (more <= 0 || more > to_spend_us_) return best;
  to_spend_us_ -= more;
  return again;
}

// More drafts than any step had whose time is known; 0: none.
int64_t DraftRule::to_try(int64_t sequences, const RowTimes& times, double best_rate, int64_t largest_known) {
  const int64_t rows = sequences + largest_known, most = static_cast<int64_t>(drafts_.size());
  const int64_t trial = std::min(most, 2 * rows - sequences);
  if (trial <= largest_known) return 0;
  const auto known = times(rows), unknown = times(sequences + trial);
  if (!known || *known <= 0 || !unknown || *unknown > 0) return 0;
  const double row_us = largest_known > 0 ? (*known - *times(sequences)) / static_cast<double>(largest_known) : 0;
  const double hoped_us = *known + kUnknownSlope * std::max(0.0, row_us) * static_cast<double>(trial - largest_known);
  return gained_[static_cast<size_t>(trial)] / (hoped_us + rounds_us_[static_cast<size_t>(trial)]) > best_rate ? trial
                                                                                                               : 0;
}

}  // namespace reprise::spec

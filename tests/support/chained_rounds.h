// What rounds of a draft model guess, each submitted before the one in front of it is waited for or behind it, and how
// many were in flight.
#pragma once

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "sched/model_drafter.h"
#include "support/answers.h"
#include "support/executor_proxy.h"

namespace reprise::testing_support {

// The engine, with or without its leave to be ahead.
class WatchedRounds final : public ExecutorProxy {
 public:
  WatchedRounds(engine::Engine& e, bool ahead) : ExecutorProxy(e), ahead_(ahead) {}
  bool overlaps() const override { return ahead_ && ExecutorProxy::overlaps(); }
  Result<engine::Ticket> submit(std::span<const engine::StepItem> items, engine::StepOutput output) override {
    most_in_flight = std::max(most_in_flight, ++in_flight_);
    return ExecutorProxy::submit(items, output);
  }
  Result<engine::StepResult> wait(engine::Ticket ticket) override {
    --in_flight_;
    auto result = ExecutorProxy::wait(ticket);
    if (result.is_ok() && result->gap_us) gap_us += *result->gap_us, ++gaps;
    return result;
  }
  int64_t most_in_flight = 0, gaps = 0;
  double gap_us = 0;  // between steps, in which the device had nothing to do

 private:
  bool ahead_;
  int64_t in_flight_ = 0;
};

struct DraftedRounds {
  std::vector<spec::Proposal> proposals;
  double clock_us = 0, gap_us = 0;
  int64_t most_in_flight = 0;
};

// Texts of which some go on as guessed, some otherwise and one is drawn; chains of several lengths.
inline DraftedRounds draft_rounds(engine::Engine& e, bool ahead, std::vector<sched::Tokens> texts, int turns = 5) {
  WatchedRounds model(e, ahead);
  sched::ModelDrafter drafter(model, {.most_drafts = 5});
  DraftedRounds out;
  for (uint64_t id = 0; id < texts.size(); ++id) drafter.begin({.id = id});
  std::vector<spec::Proposal> got(texts.size());
  const double begin = e.device().clock_us().value_or(0);
  for (int turn = 0; turn < turns; ++turn) {
    std::vector<spec::Wish> wishes;
    for (size_t i = 0; i < texts.size(); ++i) {
      wishes.push_back({i, texts[i], static_cast<int64_t>(1 + (i + static_cast<size_t>(turn)) % 5)});
      if (i == 2)
        wishes.back().draw = Draw{.scale = 1.2f, .seed = 7, .position = static_cast<int64_t>(texts[i].size())};
    }
    drafter.propose(wishes, got);
    const Status whole = drafter.check_integrity();
    EXPECT_TRUE(whole.is_ok()) << whole.message();
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(got[i].tokens.size(), got[i].survival.size());
      out.proposals.push_back(got[i]);
      const auto true_ones = static_cast<ptrdiff_t>(got[i].tokens.size() * ((i + static_cast<size_t>(turn)) % 3) / 2);
      texts[i].insert(texts[i].end(), got[i].tokens.begin(), got[i].tokens.begin() + true_ones);
      texts[i].push_back(static_cast<int32_t>(3 + turn));
    }
  }
  out.clock_us = e.device().clock_us().value_or(0) - begin;
  out.gap_us = model.gaps > 0 ? model.gap_us / static_cast<double>(model.gaps) : 0;
  out.most_in_flight = model.most_in_flight;
  return out;
}

// Both guessed the same; how many drafts that were.
inline size_t expect_same_guesses(const DraftedRounds& got, const DraftedRounds& want) {
  EXPECT_EQ(got.proposals.size(), want.proposals.size());
  size_t drafts = 0;
  for (size_t i = 0; i < std::min(got.proposals.size(), want.proposals.size()); ++i) {
    EXPECT_EQ(got.proposals[i].tokens, want.proposals[i].tokens) << i;
    drafts += got.proposals[i].tokens.size();
  }
  return drafts;
}

}  // namespace reprise::testing_support

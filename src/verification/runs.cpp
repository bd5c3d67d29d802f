#include "verification/runs.h"

#include <algorithm>

namespace reprise::verification {
namespace {

constexpr int kDecodeSteps = 2;
constexpr uint64_t kCostOfStep = 8;  // in rows

// The last prompt, its decode steps, and a token more.
int64_t longest_border(int64_t batch) { return kv::kPageTokens - 2 + batch + kDecodeSteps; }

// As many prompts that end around a page's border as fit into a step.
int64_t border_batch(const engine::Engine& e, int64_t most) {
  int64_t batch = std::min(most, e.max_step_rows());
  while (batch > 0 &&
         (longest_border(batch) > e.context_length() || batch * longest_border(batch) > e.max_step_tokens()))
    --batch;
  return batch;
}

// Rows that every mode can verify: modes whose graphs freeze sizes have them by the options, others as many as decode.
int64_t most_rows_with_drafts(const engine::Engine& e) {
  const std::vector<int64_t> sizes =
      engine::verify_sizes(e.options().graph.verify, e.max_step_rows(), e.options().graph.decode_sizes);
  return sizes.empty() ? 0 : std::min({sizes.back(), e.max_verify_rows(), e.max_step_tokens()});
}

}  // namespace

uint64_t VerifyRun::cost() const {
  const auto batch = static_cast<uint64_t>(traffic.batch), steps = static_cast<uint64_t>(traffic.decode_steps) + 1;
  const uint64_t prompt = traffic.borders ? static_cast<uint64_t>(kv::kPageTokens) : 5;
  return (traffic.feed == Feed::Together ? 1 : batch) * steps * kCostOfStep + batch * (prompt + steps);
}

uint64_t cost_of_changes(int64_t batch) {
  const auto rows = static_cast<uint64_t>(batch);
  return (7 * rows + 2) * 2 * (kCostOfStep + 3 * rows);
}

uint64_t VerifyRuns::cost() const {
  uint64_t sum = 0;
  for (const VerifyRun& r : runs) sum += r.cost();
  for (const int64_t batch : changed_batches) sum += cost_of_changes(batch);
  return sum;
}

size_t VerifyRuns::together(size_t run) const {
  const TrafficOptions& t = runs[run].traffic;
  const auto found = std::find_if(runs.begin(), runs.end(), [&](const VerifyRun& r) {
    return r.traffic.feed == Feed::Together && r.traffic.greedy == t.greedy && r.traffic.batch == t.batch &&
           r.traffic.borders == t.borders;
  });
  CHECK(found != runs.end(), "{} has no run of the whole batch", runs[run].name);
  return static_cast<size_t>(found - runs.begin());
}

VerifyRuns verify_runs(const engine::Engine& e, int64_t largest, bool quick) {
  VerifyRuns out;
  largest = std::min(largest, e.max_step_rows());
  const auto add = [&](std::string what, TrafficOptions traffic) {
    traffic.decode_steps = kDecodeSteps;
    out.runs.push_back({fmt::format("batch {}{}", traffic.batch, what), traffic});
  };
  std::vector<int64_t> batches, others{std::min<int64_t>(3, largest), std::min<int64_t>(11, largest)};
  // Alone, between two captured sizes, and above several.
  if (quick) batches = {1, std::min<int64_t>(3, largest), std::min<int64_t>(13, largest)}, others.pop_back();
  for (int64_t batch = 1; !quick && batch <= largest; ++batch) batches.push_back(batch);
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  others.erase(std::unique(others.begin(), others.end()), others.end());
  for (const int64_t batch : batches) add("", {.batch = batch});
  for (const int64_t batch : others) {
    add(", each alone", {.batch = batch, .feed = Feed::Alone});
    add(", prompts in chunks of 3", {.batch = batch, .feed = Feed::Chunked});
    add(", greedy tokens", {.batch = batch, .greedy = true});
  }
  // Steps with drafts are there where the command is told of drafts.
  const bool drafts = e.options().graph.verify.each > kDecodeSteps && e.max_verify_rows() > 0;
  for (const int64_t batch : others)
    if (drafts && batch * (kDecodeSteps + 1) <= most_rows_with_drafts(e))
      add(", its steps as drafts of one", {.batch = batch, .feed = Feed::Drafted});
  if (const int64_t batch = border_batch(e, 4); batch > 0) {
    if (drafts && batch * (kDecodeSteps + 1) <= most_rows_with_drafts(e))
      add(", its steps as drafts of one over the border of a page",
          {.batch = batch, .feed = Feed::Drafted, .borders = true});
    add(", over the border of a page", {.batch = batch, .borders = true});
    add(", over the border of a page in chunks of 50", {.batch = batch, .feed = Feed::Chunked, .borders = true});
  } else {
    out.left_out = fmt::format("no sequence reaches the border of a page: a context of {} and steps of {} tokens",
                               e.context_length(), e.max_step_tokens());
  }
  out.changed_batches = {1, std::min<int64_t>(5, e.max_step_rows())};
  if (quick) out.changed_batches = {std::min<int64_t>(2, e.max_step_rows())};
  return out;
}

}  // namespace reprise::verification

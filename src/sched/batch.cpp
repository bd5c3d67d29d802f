#include "sched/batch.h"

#include <algorithm>
#include <unordered_map>

namespace reprise::sched {
namespace {

struct Share {
  LiveRequest* who;
  int64_t left;      // what it may read in this step
  int64_t turn = 0;  // prompts of the same call before it
  int64_t take = 0;
};

// Tokens of the step's `room` for each prompt. All together take at most `most_tokens`, unless the first alone takes
// more.
void share_out(std::vector<Share>& prompts, int64_t room, int64_t most_tokens) {
  int64_t taken = 0;
  const auto give = [&](Share& s, int64_t most) {
    const int64_t n = std::min({most, s.left - s.take, room});
    s.take += n;
    room -= n;
    taken += n;
  };
  give(prompts.front(), prompts.size() == 1 ? room : (room + 1) / 2);
  std::vector<Share*> others;
  for (size_t i = 1; i < prompts.size(); ++i) others.push_back(&prompts[i]);
  std::stable_sort(others.begin(), others.end(), [](const Share* a, const Share* b) {
    return a->turn != b->turn ? a->turn < b->turn : a->left < b->left;
  });
  const int64_t first = taken;
  for (Share* s : others) give(*s, std::max<int64_t>(0, most_tokens - taken));
  give(prompts.front(), taken == first ? room : std::max<int64_t>(0, most_tokens - taken));
}

// The prompts that take part: of every call one, then of every call a second one, and so on; the first stays first.
void keep_first(std::vector<Share>& prompts, int64_t most) {
  if (most <= 0 || static_cast<int64_t>(prompts.size()) <= most) return;
  std::stable_sort(prompts.begin() + 1, prompts.end(), [](const Share& a, const Share& b) { return a.turn < b.turn; });
  prompts.resize(static_cast<size_t>(most));
}

// In the order of arrival, as many as fit.
Batch form_whole(std::span<const LivePtr> running, const BatchLimits& limits) {
  Batch batch;
  int64_t room = limits.tokens;
  for (const LivePtr& r : running) {
    const int64_t size = r->sequence.uncached();
    if (size == 0 || size > room || static_cast<int64_t>(batch.items.size()) >= limits.rows) continue;
    room -= size;
    batch.items.push_back({&r->sequence, size, 1});
    batch.owners.push_back(r.get());
    batch.answers.push_back(1);
    batch.prefill_tokens += size;
  }
  return batch;
}

}  // namespace

Batch form_batch(std::span<const LivePtr> running, const BatchLimits& limits) {
  if (limits.whole) return form_whole(running, limits);
  Batch batch;
  int64_t rows = limits.rows;
  std::vector<Share> prompts;
  std::unordered_map<uint64_t, int64_t> turns;
  for (const LivePtr& r : running) {
    if (r->sequence.uncached() == 0) continue;  // its next token is being computed
    if (!r->decodes()) {
      int64_t left = r->sequence.uncached();
      if (limits.to_borders) left = std::min(left, next_state_border(r->sequence) - r->sequence.cached());
      prompts.push_back({r.get(), left, turns[r->call()]++});
    } else if (rows > 0 && batch.decode_tokens < limits.tokens) {
      batch.items.push_back({&r->sequence, 1, 1});
      batch.owners.push_back(r.get());
      batch.answers.push_back(1);
      ++batch.decode_tokens;
      --rows;
    }
  }
  int64_t room = limits.tokens - batch.decode_tokens;
  if (batch.decode_tokens > 0) room = std::min(room, limits.mixed_prefill_tokens);
  if (prompts.empty() || room <= 0) return batch;
  keep_first(prompts, limits.prefill_requests);
  share_out(prompts, room, limits.prefill_tokens);
  for (Share& s : prompts) {
    if (s.take == 0 || rows == 0) continue;
    engine::StepItem item{&s.who->sequence, s.take};
    if (s.who->wants_prompt()) {
      const int64_t unscored = s.who->unscored();
      item.count = std::min(s.take, unscored + rows);
      item.logits = std::max<int64_t>(0, item.count - unscored);
      item.logits_too = true;
    }
    const bool answers = item.count == s.who->sequence.uncached() && !s.who->request.score_from;
    if (answers) item.logits = std::max<int64_t>(1, item.logits);
    rows -= std::max<int64_t>(1, item.logits);
    batch.items.push_back(item);
    batch.owners.push_back(s.who);
    batch.answers.push_back(answers);
    batch.prefill_tokens += item.count;
  }
  return batch;
}

}  // namespace reprise::sched

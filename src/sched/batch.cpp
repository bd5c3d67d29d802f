#include "sched/batch.h"

#include <algorithm>

namespace reprise::sched {
namespace {

struct Share {
  LiveRequest* who;
  int64_t left, take = 0;
};

// Tokens of the step's `room` for each prompt; `left` is what each still has to read.
void share_out(std::vector<Share>& prompts, int64_t room) {
  const auto give = [&](Share& s, int64_t most) {
    const int64_t n = std::min({most, s.left - s.take, room});
    s.take += n;
    room -= n;
  };
  give(prompts.front(), prompts.size() == 1 ? room : (room + 1) / 2);
  std::vector<Share*> others;
  for (size_t i = 1; i < prompts.size(); ++i) others.push_back(&prompts[i]);
  std::stable_sort(others.begin(), others.end(), [](const Share* a, const Share* b) { return a->left < b->left; });
  for (Share* s : others) give(*s, room);
  give(prompts.front(), room);
}

}  // namespace

Batch form_batch(std::span<const LivePtr> running, const BatchLimits& limits) {
  Batch batch;
  int64_t rows = limits.rows;
  std::vector<Share> prompts;
  for (const LivePtr& r : running) {
    if (!r->decodes()) {
      prompts.push_back({r.get(), r->sequence.uncached()});
    } else if (rows > 0 && batch.decode_tokens < limits.tokens) {
      batch.items.push_back({&r->sequence, 1, true});
      batch.owners.push_back(r.get());
      ++batch.decode_tokens;
      --rows;
    }
  }
  int64_t room = limits.tokens - batch.decode_tokens;
  if (batch.decode_tokens > 0) room = std::min(room, limits.mixed_prefill_tokens);
  if (prompts.empty() || room <= 0) return batch;
  share_out(prompts, room);
  for (Share& s : prompts) {
    if (s.take == 0 || rows == 0) continue;
    engine::StepItem item{&s.who->sequence, s.take, s.take == s.left};
    if (s.who->wants_prompt()) {
      item.wants_all_logits = true;
      item.count = std::min(s.take, rows);
      item.wants_logits = item.count == s.left;
    }
    rows -= std::max<int64_t>(1, item.logit_rows());
    batch.items.push_back(item);
    batch.owners.push_back(s.who);
    batch.prefill_tokens += item.count;
  }
  return batch;
}

}  // namespace reprise::sched

// Steps: running a batch and handing out what it gave.
#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "sched/scheduler.h"

namespace reprise::sched {

bool Scheduler::run_batch(Batch& batch) {
  bool argmax = executor_.has_greedy_steps();
  for (size_t i = 0; i < batch.items.size(); ++i) {
    if (batch.items[i].logit_rows() == 0) continue;
    argmax &= !batch.items[i].wants_all_logits && batch.owners[i]->sampler.takes_argmax();
  }
  Status failed;
  if (argmax) {
    auto next = executor_.step_greedy(batch.items);
    if (next)
      take_rows(batch, {}, *next);
    else
      failed = next.status();
  } else {
    auto logits = executor_.step(batch.items);
    if (logits)
      take_rows(batch, *logits, {});
    else
      failed = logits.status();
  }
  if (failed.is_ok()) return true;
  log::error("a step of {} sequences failed: {}", batch.items.size(), failed.message());
  {
    std::lock_guard lock(mutex_);
    ++stats_.failed_steps;
  }
  if (failed.code() == Code::DeviceLost)
    lose(failed);
  else
    for (LiveRequest* r : batch.owners) finish(*r, FinishReason::Cancelled, failed);
  return false;
}

// Whoever runs, waits or is still in the mail hears of it at once.
void Scheduler::lose(const Status& why) {
  const Status lost = why.at("the device is lost");
  {
    std::lock_guard lock(mutex_);
    lost_ = lost;
    closed_ = stopped_ = true;
  }
  if (observer_) observer_->lost_device(lost);
  take_mail();
  for (auto* list : {&running_, &waiting_})
    for (LivePtr& r : *list) finish(*r, FinishReason::Cancelled, lost);
}

void Scheduler::take_rows(const Batch& batch, std::span<float> logits, std::span<const int32_t> next) {
  const auto vocab = static_cast<size_t>(executor_.vocab_size());
  size_t row = 0;
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const engine::StepItem& item = batch.items[i];
    LiveRequest& r = *batch.owners[i];
    const auto rows = static_cast<size_t>(item.logit_rows());
    if (rows == 0) continue;
    const size_t first = row;
    row += rows;
    if (logits.empty()) {
      CHECK(row <= next.size(), "a step returned {} tokens", next.size());
      r.sampler.took(next[first]);
      accept(r, {next[first], {}, {}});
      continue;
    }
    CHECK(row * vocab <= logits.size(), "a step returned {} floats for row {}", logits.size(), row);
    const auto mine = logits.subspan(first * vocab, rows * vocab);
    if (item.wants_all_logits) {
      const Status taken = take_prompt_rows(r, r.sequence.cached() - item.count, item.count, mine);
      if (!taken.is_ok()) {
        finish(r, FinishReason::Cancelled, taken);
        continue;
      }
      r.checked = r.sequence.cached();
    }
    if (!item.wants_logits) continue;
    auto sampled = r.sampler.sample(mine.last(vocab));
    if (sampled)
      accept(r, std::move(sampled).value());
    else
      finish(r, FinishReason::Cancelled, sampled.status());
  }
}

// Rows [begin, begin + count) of the prompt: each tells how likely the token after it was.
Status Scheduler::take_prompt_rows(LiveRequest& r, int64_t begin, int64_t count, std::span<float> logits) {
  const auto& prompt = r.request.prompt;
  const auto vocab = static_cast<size_t>(executor_.vocab_size());
  if (begin == 0) r.prompt_logprobs.assign(1, SampledToken{prompt[0], {}, {}});
  for (int64_t k = 0; k < count; ++k) {
    const auto at = static_cast<size_t>(begin + k + 1);
    if (at >= prompt.size()) break;
    ASSIGN_OR_RETURN(SampledToken token, engine::score_token(logits.subspan(static_cast<size_t>(k) * vocab, vocab),
                                                             prompt[at], std::max(0, r.request.sampling.logprobs)));
    r.prompt_logprobs.push_back(std::move(token));
  }
  if (begin + count >= static_cast<int64_t>(prompt.size())) {
    r.prompt_told = true;
    r.request.sink->prompt(std::move(r.prompt_logprobs));
  }
  return Status::ok();
}

void Scheduler::accept(LiveRequest& r, SampledToken token) {
  RequestResult& result = r.result;
  r.checked = r.sequence.cached();
  if (!result.first_token) result.first_token = Clock::now();
  ++result.completion_tokens;
  r.sequence.append(token.token);
  {
    std::lock_guard lock(mutex_);
    ++stats_.generated_tokens;
  }
  const auto& stops = r.request.sampling.stop_token_ids;
  const auto& eos = options_.eos_tokens;
  const auto in = [&](const std::vector<int32_t>& list) {
    return std::find(list.begin(), list.end(), token.token) != list.end();
  };
  FinishReason reason = FinishReason::None;
  if (in(stops) || (!r.request.sampling.ignore_eos && in(eos))) {
    reason = FinishReason::Stop;
    result.stop_token = token.token;
  } else if (result.completion_tokens >= r.most_new_tokens) {
    reason = FinishReason::Length;
  }
  if (!r.request.sink->token(token, reason) && reason != FinishReason::Stop) reason = FinishReason::Stop;
  if (reason != FinishReason::None)
    finish(r, reason);
  else if (!r.prompt_cached)
    share_prompt(r);
}

}  // namespace reprise::sched

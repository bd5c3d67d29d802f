// Steps: running a batch and handing out what it gave.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/elapsed.h"
#include "base/log.h"
#include "sched/scheduler.h"

namespace reprise::sched {

namespace {

// What one step counts for relative to the next one, in the recent rate.
constexpr double kFading = 0.95;

// log p of `token` under softmax(logits), in double: 150,000 small terms are summed.
double log_probability(std::span<const float> logits, int32_t token) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float v : logits) sum += std::exp(static_cast<double>(v) - top);
  return static_cast<double>(logits[static_cast<size_t>(token)]) - top - std::log(sum);
}

}  // namespace

BatchLimits Scheduler::limits() const {
  return {executor_.max_step_tokens(), executor_.max_step_rows(), options_.mixed_prefill_tokens,
          options_.max_prefill_tokens, options_.prefill_requests, executor_.whole_prompts(),
          pages_.keeps_states()};
}

bool Scheduler::submit_next(Clock::time_point begin) {
  admit(true);
  const bool enough = provide_pages(true);
  Batch batch = form_batch(running_, limits());
  if (speculation_) {
    speculation_->add_drafts(batch, limits(), pages_.spare(admission_.pages_to_keep()));
  }
  if (batch.items.empty()) {
    CHECK(running_.empty() && (admission_.waiting().empty() || !enough),
          "{} requests run and none takes part in a step", running_.size());
    return false;
  }
  submit(std::move(batch), begin);
  return true;
}

// The rows of the current step are known to go on, but for what their token may end. None: the next batch need not
// wait, and has no drafts for the reason `no_drafts`.
OverlapStop Scheduler::stop_of_overlap(SpecOff& no_drafts) {
  const Submitted& now = flights_.front();
  const OverlapStop stop = stop_of_tokens(now);
  if (stop != OverlapStop::None || !speculation_) return stop;
  no_drafts = speculation_->look_ahead(now.batch, limits());
  return no_drafts == SpecOff::None ? OverlapStop::Drafts : OverlapStop::None;
}

// Whether a token of this step must be known before what comes behind it is submitted.
OverlapStop Scheduler::stop_of_tokens(const Submitted& now) const {
  OverlapStop stop = OverlapStop::None;
  for (size_t i = 0; i < now.batch.items.size(); ++i) {
    const engine::StepItem& item = now.batch.items[i];
    if (!item.drafts.empty()) return OverlapStop::Drafts;
    if (item.logits == 0) continue;
    // Every token is known to the device before it is to the host.
    if (now.output == engine::StepOutput::Logits ||
        (now.output == engine::StepOutput::Sampled && (!item.draw || !executor_.draws_beside(*item.draw))))
      return OverlapStop::HostDraw;
    const LiveRequest& r = *now.batch.owners[i];
    if (!r.sampler.needs_every_token()) continue;
    if (r.request.constraint)
      stop = OverlapStop::Grammar;
    else if (stop == OverlapStop::None)
      stop = OverlapStop::Penalties;
  }
  return stop;
}

// Who decodes takes part with a token to come, unless that one is its last.
void Scheduler::submit_ahead(SpecOff no_drafts) {
  const auto begin = Clock::now();
  admit(false);
  if (admission_.would_preempt()) return count_stop(OverlapStop::Preemption);
  const Submitted& now = flights_.front();
  std::vector<LiveRequest*> to_come;
  for (size_t i = 0; i < now.batch.items.size(); ++i) {
    LiveRequest& r = *now.batch.owners[i];
    if (!now.batch.answers[i] || r.result.finish != FinishReason::None) continue;
    if (!r.goes_on()) continue;
    r.sequence.append_pending();
    to_come.push_back(&r);
  }
  Batch batch;
  if (provide_pages(false)) batch = form_batch(running_, limits());
  const auto takes_part = [&](const LiveRequest* r) {
    return std::find(batch.owners.begin(), batch.owners.end(), r) != batch.owners.end();
  };
  for (LiveRequest* r : to_come)
    if (!takes_part(r)) r->sequence.drop_pending();
  const bool decodes = batch.decode_tokens > 0;
  if (batch.prefill_tokens > 0) no_drafts = SpecOff::PromptInStep;
  if (!batch.items.empty() && !submit(std::move(batch), begin)) {
    // Where the device is lost, the requests have gone with it.
    if (flights_.empty()) return;
    for (LiveRequest* r : to_come)
      if (r->sequence.pending()) r->sequence.drop_pending();
  } else if (decodes) {
    if (speculation_) speculation_->went_without(no_drafts);
    submit_run();
  }
  if (!flights_.empty()) flights_.front().overlap_s = seconds_of(Clock::now() - begin);
}

void Scheduler::count_stop(OverlapStop why) {
  std::lock_guard lock(stats_mutex_);
  ++stats_.overlap_stops[static_cast<size_t>(why)];
}

// None: the device can draw the item's token, and the item says how; it does, too, where the hosts of all ranks draw it
// (NoKernel). `room` is what the step's edits have left.
engine::HostDraw Scheduler::plan_draw(const LiveRequest& r, engine::StepItem& item, int64_t& room) const {
  using engine::HostDraw;
  const int64_t ahead = r.ahead();
  if (!executor_.has_sampled_steps()) return HostDraw::NoKernel;
  // Drafts are judged in turn: what changes the logits behind them is known then.
  if (!item.drafts.empty() && r.sampler.needs_every_token()) return r.sampler.edited_by();
  const std::optional<Draw> draw = r.sampler.device_draw(ahead);
  if (!draw) return HostDraw::Logprobs;
  if (const HostDraw edited = r.sampler.edited_by(ahead); edited != HostDraw::None) {
    if (executor_.edit_words() == 0) return edited;
    const auto edits = r.sampler.edits(ahead);
    if (!edits) return edited;  // the host meets the same error when it draws
    const int64_t words = edits->words(executor_.vocab_size());
    if (words > room) return HostDraw::NoRoom;
    room -= words;
    item.edits = *edits;
  }
  item.draw = draw;
  return executor_.draws_on_device() ? HostDraw::None : HostDraw::NoKernel;
}

// What the batch gives, and who draws its tokens.
Scheduler::Draws Scheduler::plan_output(Batch& batch, Submitted& s) const {
  Draws draws{};
  if (executor_.pooled_size() > 0) {
    s.output = engine::StepOutput::Pooled;
    s.draws.assign(batch.items.size(), engine::HostDraw::None);
    return draws;
  }
  bool argmax = executor_.has_greedy_steps(), sampled = false;
  int64_t room = executor_.edit_words();
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const LiveRequest& r = *batch.owners[i];
    s.draws.push_back(engine::HostDraw::None);
    if (batch.items[i].logits == 0) continue;
    argmax &= batch.answers[i] && !r.wants_prompt() && r.sampler.takes_argmax(r.ahead());
    if (!batch.answers[i]) continue;
    s.draws.back() = plan_draw(r, batch.items[i], room);
    ++draws[static_cast<size_t>(s.draws.back())];
    sampled |= batch.items[i].draw.has_value();
  }
  s.output = argmax    ? engine::StepOutput::NextTokens
             : sampled ? engine::StepOutput::Sampled
                       : engine::StepOutput::Logits;
  return draws;
}

bool Scheduler::submit(Batch batch, Clock::time_point begin) {
  Submitted s;
  s.begin = begin;
  s.rested = rested_;
  for (size_t i = 0; observer_ && i < batch.items.size(); ++i) {
    const LiveRequest& r = *batch.owners[i];
    s.parts.push_back({r.id, batch.items[i].count, r.decodes() && r.result.completion_tokens + r.ahead() > 0});
  }
  const Draws draws = plan_output(batch, s);
  s.forming_s = seconds_of(Clock::now() - begin);
  int64_t cached = 0;
  for (const engine::StepItem& item : batch.items) cached += item.sequence->cached();
  // A shared step advances its sequences only when it is waited for.
  for (const engine::StepItem& item : batch.items) s.ends.push_back(item.sequence->cached() + item.own());
  auto ticket = executor_.submit(batch.items, s.output);
  if (!ticket && !flights_.empty()) {
    // It may have failed with the step before it, which tells why. What took no part in that is tried again.
    for (const engine::StepItem& item : batch.items) cached -= item.sequence->cached();
    if (cached == 0) return false;
  }
  if (!ticket) {
    fail(batch, ticket.status());
    forget_finished();
    return false;
  }
  {
    std::lock_guard lock(stats_mutex_);
    for (size_t i = 0; i < draws.size(); ++i)
      (s.output == engine::StepOutput::NextTokens || i == 0 ? stats_.device_draws : stats_.host_draws[i]) += draws[i];
  }
  s.ticket = *ticket;
  s.copied = pages_.take_copied();
  s.batch = std::move(batch);
  flights_.push_back(std::move(s));
  return true;
}

void Scheduler::complete_all() {
  while (!flights_.empty()) complete_first();
}

void Scheduler::complete_first() {
  Submitted s = std::move(flights_.front());
  flights_.pop_front();
  const auto result = executor_.wait(s.ticket);
  if (observer_) observer_->completing();
  const uint64_t came_true = speculation_ ? speculation_->stats().accepted_tokens : 0;
  if (result) {
    if (pages_.keeps_states()) keep_states(s);
    take_rows(s, *result);
  } else {
    fail(s.batch, result.status());
  }
  StepRecord record;
  for (const engine::StepItem& item : s.batch.items) record.draft_tokens += static_cast<int64_t>(item.drafts.size());
  if (speculation_) record.accepted_tokens = static_cast<int64_t>(speculation_->stats().accepted_tokens - came_true);
  forget_finished();
  record.begin = std::max(s.begin, last_end_);
  record.end = last_end_ = Clock::now();
  record.decode_tokens = s.batch.decode_tokens;
  record.prefill_tokens = s.batch.prefill_tokens;
  record.sequences = static_cast<int64_t>(s.batch.items.size());
  record.parts = s.parts;
  record.forming_s = s.begin < record.begin ? 0 : s.forming_s;
  record.overlap_s = s.overlap_s;
  if (result && result->gap_us && !s.rested) record.gap_s = *result->gap_us * 1e-6;
  const double took = seconds_of(record.end - record.begin);
  {
    std::lock_guard lock(stats_mutex_);
    ++stats_.steps;
    if (stats_.step_since) stats_.step_since = record.end;
    stats_.busy_s += took;
    recent_tokens_ = kFading * recent_tokens_ +
                     static_cast<double>(s.batch.decode_tokens + s.batch.prefill_tokens + record.accepted_tokens);
    recent_s_ = kFading * recent_s_ + took;
    stats_.tokens_per_s = recent_s_ > 0 ? recent_tokens_ / recent_s_ : 0;
  }
  if (observer_) observer_->stepped(record);
}

// A later step of a run that has failed reads what the failed step left: its requests have ended.
bool Scheduler::failed_before(const Batch& batch) const {
  bool failed = false;
  for (const LiveRequest* r : batch.owners) {
    if (r->result.finish == FinishReason::None) return false;
    const Status& ended = r->result.status;
    failed |= !ended.is_ok() && ended.code() != Code::Cancelled;
  }
  return failed;
}

void Scheduler::fail(const Batch& batch, const Status& why) {
  if (why.code() != Code::DeviceLost && failed_before(batch)) return;
  if (options_.log_failures) log::error("a step of {} sequences failed: {}", batch.items.size(), why.message());
  {
    std::lock_guard lock(stats_mutex_);
    ++stats_.failed_steps;
  }
  if (why.code() == Code::DeviceLost) return fail_all(why);
  for (LiveRequest* r : batch.owners) finish(*r, FinishReason::Cancelled, why);
}

// Requests that run, wait or are still in the mail end with it at once.
void Scheduler::fail_all(const Status& why) { end_with(why.at("the device is lost")); }

void Scheduler::share_loss(const Status& lost) {
  if (!lost.is_ok() && this->lost().is_ok()) end_with(lost);
}

void Scheduler::end_with(const Status& lost) {
  mailbox_.lose(lost);
  if (observer_) observer_->lost_device(lost);
  // Their requests hear of it below, and stay until then.
  const std::deque<Submitted> dropped = std::exchange(flights_, {});
  for (const Submitted& s : dropped) (void)executor_.wait(s.ticket);
  take_mail();
  for (auto* list : {&running_, &admission_.waiting()})
    for (LivePtr& r : *list) finish(*r, FinishReason::Cancelled, lost);
}

void Scheduler::take_rows(const Submitted& step, const engine::StepResult& result) {
  const auto vocab = static_cast<size_t>(executor_.vocab_size());
  size_t row = 0;
  uint64_t for_nothing = 0;
  for (size_t i = 0; i < step.batch.items.size(); ++i) {
    const engine::StepItem& item = step.batch.items[i];
    LiveRequest& r = *step.batch.owners[i];
    const auto rows = static_cast<size_t>(item.logits);
    const size_t first = row;
    row += rows;
    if (rows == 0) continue;
    if (r.result.finish != FinishReason::None) {
      for_nothing += rows;
      continue;
    }
    if (r.request.score_from) {
      CHECK(row * vocab <= result.logits.size(), "a step returned {} floats for row {}", result.logits.size(), row);
      take_scores(r, step.ends[i], result.logits.subspan(first * vocab, rows * vocab));
      continue;
    }
    if (r.request.prompt_logprobs && !r.prompt_reported) {
      CHECK(row * vocab <= result.logits.size(), "a step returned {} floats for row {}", result.logits.size(), row);
      const Status taken = take_prompt_rows(r, step.ends[i] - item.count, item.count,
                                            result.logits.subspan(first * vocab, rows * vocab));
      if (!taken.is_ok()) {
        finish(r, FinishReason::Cancelled, taken);
        continue;
      }
      r.checked = step.ends[i];
    }
    if (step.output == engine::StepOutput::Pooled)
      give_row(r, step.ends[i], result, row - 1);
    else if (step.batch.answers[i])
      judge_rows(r, step, i, result, row - 1 - item.drafts.size());
  }
  if (for_nothing == 0) return;
  std::lock_guard lock(stats_mutex_);
  stats_.rows_for_nothing += for_nothing;
}

// The row that a text was computed for.
void Scheduler::give_row(LiveRequest& r, int64_t end, const engine::StepResult& result, size_t row) {
  const auto size = static_cast<size_t>(executor_.pooled_size());
  CHECK((row + 1) * size <= result.pooled.size(), "a step returned {} numbers for row {}", result.pooled.size(), row);
  r.checked = end;
  r.result.first_token = Clock::now();
  r.request.sink->pooled(result.pooled.subspan(row * size, size));
  finish(r, FinishReason::Stop);
}

// The tokens that an item gives: that behind its last own token, in row `row`, then those behind its drafts for as long
// as each draft is the token that was drawn before it. What comes behind the first other token is never looked at.
void Scheduler::judge_rows(LiveRequest& r, const Submitted& step, size_t i, const engine::StepResult& result,
                           size_t row) {
  const engine::StepItem& item = step.batch.items[i];
  const bool drawn = step.output == engine::StepOutput::NextTokens ||
                     (step.output == engine::StepOutput::Sampled && item.draw.has_value());
  const auto vocab = static_cast<size_t>(executor_.vocab_size());
  const size_t drafts = item.drafts.size();
  ++r.result.decode_steps;
  if (drafts > 0) speculation_->verified(r);
  size_t k = 0;
  for (;; ++k) {
    const int64_t end = step.ends[i] + static_cast<int64_t>(k);
    auto token = drawn ? take_token(r, result, row + k) : sample_row(r, result, (row + k) * vocab);
    if (!token.is_ok()) return finish(r, FinishReason::Cancelled, token.status());
    const int32_t id = token->token;
    if (k > 0) {
      speculation_->came_true(r, k - 1);
      r.sequence.commit(1);
    }
    accept(r, std::move(token).value(), end);
    if (r.result.finish != FinishReason::None || k == drafts || id != item.drafts[k]) break;
  }
  if (drafts > 0) {
    const bool ended = r.result.finish != FinishReason::None;  // the draft behind the last token was not looked at
    speculation_->judged(r, static_cast<int64_t>(ended ? k : drafts), static_cast<int64_t>(k));
  }
  std::lock_guard lock(stats_mutex_);
  ++stats_.answer_steps;
  const engine::HostDraw by = step.draws[i];
  const bool here = step.output == engine::StepOutput::NextTokens || by == engine::HostDraw::None;
  (drawn && here ? stats_.device_draws : stats_.host_draws[static_cast<size_t>(by)]) += k;
}

// The token that the host draws from the logits that begin at number `at` of the result.
Result<SampledToken> Scheduler::sample_row(LiveRequest& r, const engine::StepResult& result, size_t at) {
  const auto vocab = static_cast<size_t>(executor_.vocab_size());
  CHECK(at + vocab <= result.logits.size(), "a step returned {} floats, not {}", result.logits.size(), at + vocab);
  return r.sampler.sample(result.logits.subspan(at, vocab));
}

// The token that the device chose in this row of the result.
Result<SampledToken> Scheduler::take_token(LiveRequest& r, const engine::StepResult& result, size_t row) {
  CHECK(row < result.tokens.size(), "a step returned {} tokens", result.tokens.size());
  SampledToken token{result.tokens[row], {}, {}};
  if (token.token < 0)
    return error(Code::Internal,
                 "no token can be drawn: a logit is no number (the weights or a kernel are broken), or all are -inf");
  if (const int wanted = r.request.sampling.logprobs; wanted >= 0) {
    token.logprob = result.logprobs[row];
    const auto most = static_cast<size_t>(kMostTopTokens);
    for (size_t k = row * most; k < row * most + static_cast<size_t>(wanted) && result.top_tokens[k] >= 0; ++k)
      token.top.push_back({result.top_tokens[k], result.top_logprobs[k]});
  }
  RETURN_IF_ERROR(r.sampler.observe_token(token.token));
  return token;
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
    r.prompt_reported = true;
    r.request.sink->prompt(std::move(r.prompt_logprobs));
  }
  return Status::ok();
}

// The rows behind the last of the first `end` tokens of the prompt: each scores the token after it. What a preempted
// request reads again is not scored again.
void Scheduler::take_scores(LiveRequest& r, int64_t end, std::span<const float> logits) {
  const auto vocab = static_cast<size_t>(executor_.vocab_size());
  const auto rows = static_cast<int64_t>(logits.size() / vocab);
  std::vector<double> log_p;
  for (int64_t k = 0; k < rows; ++k) {
    const int64_t at = end - rows + k + 1;
    if (at < r.scored) continue;
    const auto row = logits.subspan(static_cast<size_t>(k) * vocab, vocab);
    log_p.push_back(log_probability(row, r.request.prompt[static_cast<size_t>(at)]));
    if (!std::isfinite(log_p.back()))
      return finish(r, FinishReason::Cancelled, error(Code::Internal, "the logits of a step are not finite"));
  }
  r.checked = end;
  if (!log_p.empty()) r.request.sink->scored(log_p);
  r.scored = std::max(r.scored, end + 1);
  if (end == r.sequence.size()) finish(r, FinishReason::Stop);
}

// `end`: the sequence's tokens that the step had cached when it was done; the token comes behind them.
void Scheduler::accept(LiveRequest& r, SampledToken token, int64_t end) {
  RequestResult& result = r.result;
  r.checked = end;
  if (!result.first_token) result.first_token = Clock::now();
  ++result.completion_tokens;
  if (r.sequence.size() == end)
    r.sequence.append(token.token);
  else
    r.sequence.resolve(end, token.token);
  {
    std::lock_guard lock(stats_mutex_);
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
    pages_.share_prompt(r);
}

}  // namespace reprise::sched

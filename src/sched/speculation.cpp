#include "sched/speculation.h"

#include <algorithm>

#include "base/check.h"
#include "base/elapsed.h"

namespace reprise::sched {

std::string_view spec_off_name(SpecOff why) {
  constexpr std::string_view kNames[] = {"",        "batch",    "no match",       "cost",
                                         "pages",   "grammar",  "prompt in step", "quarantined",
                                         "request", "logprobs", "border"};
  static_assert(std::size(kNames) == static_cast<size_t>(SpecOff::kCount));
  return kNames[static_cast<size_t>(why)];
}

void DraftPlaces::verify(size_t drafts) {
  drafted.resize(std::max(drafted.size(), drafts));
  accepted.resize(drafted.size());
  for (size_t i = 0; i < drafts; ++i) ++drafted[i];
}

DraftPlaces& DraftPlaces::operator+=(const DraftPlaces& other) {
  drafted.resize(std::max(drafted.size(), other.drafted.size()));
  accepted.resize(drafted.size());
  for (size_t i = 0; i < other.drafted.size(); ++i) {
    drafted[i] += other.drafted[i];
    accepted[i] += other.accepted[i];
  }
  return *this;
}

DraftCounts& DraftCounts::operator+=(const DraftCounts& other) {
  steps += other.steps;
  drafted += other.drafted;
  accepted += other.accepted;
  predicted += other.predicted;
  predicted_accepted += other.predicted_accepted;
  places += other.places;
  return *this;
}

SpeculationStats& SpeculationStats::operator+=(const SpeculationStats& other) {
  drafts += other.drafts;
  draft_tokens += other.draft_tokens;
  accepted_tokens += other.accepted_tokens;
  steps += other.steps;
  rows += other.rows;
  drafting_s += other.drafting_s;
  places += other.places;
  for (size_t i = 0; i < off.size(); ++i) off[i] += other.off[i];
  return *this;
}

Speculation::Speculation(engine::Executor& executor, const spec::SpecOptions& options,
                         std::unique_ptr<spec::Drafter> drafter, bool teaches)
    : executor_(executor), options_(options), drafter_(std::move(drafter)), teaches_(teaches), rule_(options.adaptive) {
  times_ = [this](int64_t rows) -> std::optional<double> {
    const engine::RowsCost cost = executor_.rows_cost(rows, sequences_);
    return cost.usual ? std::optional(cost.us.value_or(0)) : std::nullopt;
  };
}

// How many drafts may come behind the request's last token, or behind the one in flight (`ahead` 1); where it is none,
// why.
int64_t Speculation::most_drafts(LiveRequest& r, int64_t ahead, SpecOff& why) const {
  const engine::SamplingParams& sampling = r.request.sampling;
  const int64_t made = r.result.completion_tokens + ahead;
  int64_t most = std::min(options_.draft_tokens - 1, executor_.max_drafts());
  if (r.request.draft_tokens) most = std::min(most, *r.request.draft_tokens - 1);
  most = std::min(most, r.most_new_tokens - made - 1);
  // The host sees logits of several rows in turn, and its log-probabilities have other bits than a device's.
  if (most > 0 && r.sampler.needs_every_token() && sampling.logprobs >= 0) {
    why = SpecOff::Logprobs;
    return 0;
  }
  // What changes the logits must be the same in all rows that a device draws from.
  if (const int64_t ends = sampling.min_new_tokens - made; ends > 0) most = std::min(most, ends - 1);
  if (most <= 0) why = SpecOff::Request;
  return std::max<int64_t>(0, most);
}

// Drafts that the grammar forbids cannot come true. False: none is left.
bool Speculation::keep_allowed(LiveRequest& r, spec::Proposal& p, SpecOff& why) const {
  if (p.tokens.empty()) return false;
  const int64_t vocab = executor_.vocab_size();
  const auto known = std::find_if(p.tokens.begin(), p.tokens.end(), [&](int32_t t) { return t < 0 || t >= vocab; });
  auto good = static_cast<size_t>(known - p.tokens.begin());
  if (r.request.constraint) {
    good = static_cast<size_t>(r.request.constraint->allowed_prefix(std::span(p.tokens).first(good)));
    if (good == 0) why = SpecOff::Grammar;
  }
  p.tokens.resize(good);
  p.survival.resize(good);
  return good > 0;
}

// Drafts that find a place in pages which the sequence has, or may take.
int64_t Speculation::take_pages(LiveRequest& r, int64_t drafts, int64_t& spare_pages) const {
  auto& pages = r.sequence.pages();
  const int64_t size = r.sequence.size();
  while (kv::pages_for(size + drafts) > static_cast<int64_t>(pages.size()) && spare_pages > 0) {
    auto page = executor_.kv_pool().allocate(1);
    if (!page.is_ok()) break;
    pages.push_back(page->front());
    --spare_pages;
  }
  return std::min(drafts, static_cast<int64_t>(pages.size()) * kv::kPageTokens - size);
}

// The rows that may have drafts in the step, or in the one behind it (`ahead` 1); why there are none.
SpecOff Speculation::list_wishes(const Batch& batch, const BatchLimits& limits, int64_t most_rows, int64_t ahead) {
  items_.clear();
  wishes_.clear();
  priorities_.clear();
  SpecOff why = SpecOff::NoMatch;
  for (size_t i = 0; i < batch.items.size(); ++i) {
    LiveRequest& r = *batch.owners[i];
    if (r.result.finish != FinishReason::None) continue;
    int64_t most = std::min(most_drafts(r, ahead, why), most_rows);
    if (const int64_t room = std::max<int64_t>(0, drafts_to_border(r) - ahead); limits.to_borders && most > room) {
      most = room;
      if (most == 0) why = SpecOff::Border;
    }
    if (most <= 0) continue;
    if (!r.drafts_begun) {
      drafter_->begin({r.id, r.request.prediction, r.request.cache_salt});
      r.drafts_begun = true;
    }
    items_.push_back(i);
    wishes_.push_back({r.id, r.sequence.tokens(), most, r.sampler.device_draw(), r.sequence.pages()});
    priorities_.push_back(r.request.priority);
  }
  if (items_.empty()) return why;
  if (proposals_.size() < items_.size()) proposals_.resize(items_.size());
  return SpecOff::None;
}

// Asks for their drafts; why there are none.
SpecOff Speculation::propose(const Batch& batch) {
  SpecOff why = SpecOff::NoMatch;
  const std::span<spec::Proposal> out(proposals_.data(), items_.size());
  const auto begin = Clock::now();
  drafter_->propose(wishes_, out);
  const double took = seconds_of(Clock::now() - begin);
  stats_.drafting_s += took;
  drafting_us_ += (took * 1e6 - drafting_us_) / 16;
  bool any = false;
  for (size_t k = 0; k < items_.size(); ++k) {
    CHECK(out[k].tokens.size() == out[k].survival.size(), "a drafter proposes {} tokens with {} chances",
          out[k].tokens.size(), out[k].survival.size());
    out[k].tokens.resize(std::min(out[k].tokens.size(), static_cast<size_t>(wishes_[k].most)));
    out[k].survival.resize(out[k].tokens.size());
    any |= keep_allowed(*batch.owners[items_[k]], out[k], why);
  }
  return any ? SpecOff::None : why;
}

int64_t Speculation::most_rows(const BatchLimits& limits) const {
  const int64_t most = std::min(limits.tokens, executor_.max_verify_rows());
  return options_.max_rows > 0 ? std::min(most, options_.max_rows) : most;
}

// What may be drafted behind the token that the step in flight will give, by those whose answer it does not end: the
// first draft of what is found now stands for that token.
SpecOff Speculation::look_ahead(const Batch& now, const BatchLimits& limits) {
  sequences_ = 0;
  for (size_t i = 0; i < now.items.size(); ++i) {
    const LiveRequest& r = *now.owners[i];
    if (!now.answers[i]) return SpecOff::PromptInStep;
    sequences_ += r.result.finish == FinishReason::None && r.result.completion_tokens + 1 < r.most_new_tokens;
  }
  const int64_t most = most_rows(limits);
  if (most <= sequences_) return SpecOff::Batch;
  if (const SpecOff why = list_wishes(now, limits, most - sequences_, 1); why != SpecOff::None) return why;
  const std::span<spec::Proposal> proposals(proposals_.data(), items_.size());
  const bool foreseen = drafter_->foresee(wishes_, proposals);
  if (!foreseen) {
    for (spec::Wish& wish : wishes_) ++wish.most;
    if (const SpecOff why = propose(now); why != SpecOff::None) return why;
    bool any = false;
    for (spec::Proposal& p : proposals) {
      if (p.survival.empty()) continue;
      const float first = p.survival.front();
      p.survival.erase(p.survival.begin());
      for (float& s : p.survival) s = std::min(1.0f, s / std::max(first, 1e-6f));
      any |= !p.survival.empty();
    }
    if (!any) return SpecOff::NoMatch;
  }
  const spec::DraftingTime drafting{foreseen ? 0 : drafting_us_, drafter_->round_us()};
  const spec::DraftChoice& choice = rule_.look(sequences_, most, proposals, priorities_, times_, drafting);
  if (choice.drafts > 0) return SpecOff::None;
  return choice.unusual ? SpecOff::Quarantined : SpecOff::Cost;
}

void Speculation::add_drafts(Batch& batch, const BatchLimits& limits, int64_t spare_pages) {
  const auto sequences = sequences_ = static_cast<int64_t>(batch.items.size());
  if (batch.decode_tokens == 0) return;
  const auto off = [&](SpecOff why) { ++stats_.off[static_cast<size_t>(why)]; };
  if (batch.prefill_tokens > 0) return off(SpecOff::PromptInStep);
  const int64_t most = most_rows(limits);
  if (most <= sequences) return off(SpecOff::Batch);
  if (const SpecOff why = list_wishes(batch, limits, most - sequences); why != SpecOff::None) return off(why);
  const std::span<spec::Proposal> proposals(proposals_.data(), items_.size());
  // What costs time to make is chosen before it is made.
  const bool foreseen = drafter_->foresee(wishes_, proposals);
  if (!foreseen)
    if (const SpecOff why = propose(batch); why != SpecOff::None) return off(why);
  const spec::DraftingTime drafting{foreseen ? 0 : drafting_us_, drafter_->round_us()};
  const spec::DraftChoice& choice = rule_.choose(sequences, most, proposals, priorities_, times_, drafting);
  if (choice.drafts == 0) return off(choice.unusual ? SpecOff::Quarantined : SpecOff::Cost);
  if (foreseen) {
    // Pages first: a head leaves rows of its own in those of its drafts.
    bool room = false;
    for (size_t k = 0; k < items_.size(); ++k) {
      LiveRequest& r = *batch.owners[items_[k]];
      wishes_[k].most = choice.take[k] > 0 ? std::max<int64_t>(0, take_pages(r, choice.take[k], spare_pages)) : 0;
      wishes_[k].pages = r.sequence.pages();
      room |= wishes_[k].most > 0;
    }
    if (!room) return off(SpecOff::Pages);
    if (const SpecOff why = propose(batch); why != SpecOff::None) return off(why);
  }
  int64_t added = 0;
  for (size_t k = 0; k < items_.size(); ++k) {
    LiveRequest& r = *batch.owners[items_[k]];
    const int64_t wanted = std::min(choice.take[k], static_cast<int64_t>(proposals[k].tokens.size()));
    const int64_t take = wanted > 0 ? take_pages(r, wanted, spare_pages) : 0;
    if (take <= 0) continue;
    r.drafts.assign(proposals[k].tokens.begin(), proposals[k].tokens.begin() + take);
    r.predicted = proposals[k].from_prediction;
    engine::StepItem& item = batch.items[items_[k]];
    item.drafts = r.drafts;
    item.count += take;
    item.logits += take;
    added += take;
  }
  if (added == 0) return off(SpecOff::Pages);
  ++stats_.steps;
  stats_.rows += static_cast<uint64_t>(sequences + added);
}

void Speculation::verified(LiveRequest& r) {
  ++stats_.drafts;
  stats_.draft_tokens += r.drafts.size();
  DraftCounts& mine = r.result.drafts;
  ++mine.steps;
  mine.drafted += static_cast<int64_t>(r.drafts.size());
  if (r.predicted) mine.predicted += static_cast<int64_t>(r.drafts.size());
  stats_.places.verify(r.drafts.size());
  mine.places.verify(r.drafts.size());
}

void Speculation::came_true(LiveRequest& r, size_t place) {
  ++stats_.accepted_tokens;
  stats_.places.came_true(place);
  DraftCounts& mine = r.result.drafts;
  ++mine.accepted;
  if (r.predicted) ++mine.predicted_accepted;
  mine.places.came_true(place);
}

void Speculation::end(LiveRequest& r) {
  if (!r.drafts_begun) return;
  const auto& tokens = r.sequence.tokens();
  const size_t prompt = std::min(tokens.size(), r.request.prompt.size());
  drafter_->end(r.id, std::span(tokens).subspan(prompt));
  const DraftCounts& mine = r.result.drafts;
  if (mine.drafted == 0 || !teaches_) return;
  executor_.learn_drafts(spec::algorithm_name(options_.algorithm), mine.places.drafted, mine.places.accepted);
}

}  // namespace reprise::sched

// RandomSchedule: random traffic (add, cancel, flush, tight pools, priorities, all sampling kinds) against what each
// request answers by itself, tokens and log-probabilities, with the integrity of pages, cache and queues checked after
// every step. Most schedules have drafts: good ones, wrong ones and some of each, of models and heads as well. A number
// names a schedule. One thread.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sched/model_drafter.h"
#include "sched/schedule_subjects.h"
#include "sched/scheduler.h"
#include "sched/together.h"

namespace reprise::sched {

class RandomSchedule {
 public:
  explicit RandomSchedule(uint32_t seed) : rng_(seed) {}

  void run(Subject& subject) {
    subject_ = &subject;
    subject.begin(rng_);
    limits_ = subject.limits;
    SchedulerOptions options;
    options.eos_tokens = subject.eos;
    options.prefix_cache = below(4) != 0;
    constexpr Policy kAll[] = {Policy::Fcfs, Policy::LongestPrefix, Policy::DfsWeight, Policy::Random,
                               Policy::LongestOutput};
    options.policy = kAll[below(5)];
    options.mixed_prefill_tokens = 1 + below(64);
    options.max_prefill_tokens = 1 + below(300);
    options.prefill_requests = below(3);
    if (below(3) == 0) options.preemption_threshold = below(3);
    options.small_priorities_first = below(4) == 0;
    options.max_queued = 3 + below(20);
    options.max_running = subject.most_running();
    choose_drafts(options);
    make_schedulers(options);
    const int64_t actions = 5 + below(30);
    for (int64_t i = 0; i < actions; ++i) {
      const int64_t what = below(10);
      if (what < 4) add();
      if (what == 4 && !asked_.empty()) {
        const One& one = asked_[static_cast<size_t>(below(size()))];
        one.scheduler->cancel(one.id);
      }
      if (what == 5 && below(5) == 0) any_scheduler().flush_cache();
      for (int64_t n = what > 5 ? below(12) : 0; n > 0; --n) ASSERT_NO_FATAL_FAILURE(step());
    }
    const auto busy = [](const auto& s) { return !s->idle(); };
    for (int i = 0; std::any_of(schedulers_.begin(), schedulers_.end(), busy); ++i) {
      ASSERT_LT(i, 20000);
      ASSERT_NO_FATAL_FAILURE(step());
    }
    for (const One& one : asked_) ASSERT_NO_FATAL_FAILURE(check(one));
    for (const auto& scheduler : schedulers_) scheduler->flush_cache();
    for (engine::Executor* part : subject.parts()) ASSERT_EQ(part->kv_pool().free_pages(), limits_.pages);
    if (draft_model_) {
      ASSERT_EQ(draft_->kv_pool().free_pages(), draft_pages_);
    }
    if (subject.executor().kept_states()) {
      ASSERT_EQ(subject.executor().kept_states()->kept(), 0);
    }
  }
  std::mt19937& rng() { return rng_; }

  // What the schedule went through.
  struct Seen {
    uint64_t preemptions = 0, cached_tokens = 0, evicted = 0;
    uint64_t copies = 0, cancelled = 0, prompts_told = 0;
    uint64_t drafted = 0, accepted = 0, requests = 0;
    uint64_t schedules = 0, runs = 0;  // of decode steps
    uint64_t may_run = 0;              // schedules on executors that take runs
    uint64_t drawn = 0, scored = 0;    // answers that were drawn; that came with log-probabilities
    std::string text() const {
      return fmt::format(
          "soak: {} requests in {} schedules: {} drawn, {} with log-probabilities, {} cancelled, {} preemptions\n"
          "soak: {} of {} drafts came true, {} runs of decode steps\n",
          requests, schedules, drawn, scored, cancelled, preemptions, accepted, drafted, runs);
    }
  };
  void count(Seen& seen) const {
    for (const auto& scheduler : schedulers_) {
      const SchedulerStats s = scheduler->stats();
      seen.preemptions += s.preemptions;
      seen.cached_tokens += s.cached_tokens;
      seen.evicted += s.evicted_pages;
      seen.drafted += s.speculation.draft_tokens;
      seen.accepted += s.speculation.accepted_tokens;
      seen.runs += s.decode_runs;
      seen.may_run += s.decode_steps > 1;
    }
    seen.copies += subject_->copies();
    seen.requests += asked_.size();
    ++seen.schedules;
    for (const One& one : asked_) {
      seen.drawn += one.sampling.temperature > 0;
      seen.scored += one.sampling.logprobs >= 0;
      seen.cancelled += one.answer->result->finish == FinishReason::Cancelled;
      seen.prompts_told += !one.answer->prompt.empty();
    }
  }

 private:
  struct One {
    RequestId id = 0;
    Scheduler* scheduler = nullptr;
    Tokens prompt;
    int64_t most = 0;
    engine::SamplingParams sampling;
    bool prompt_logprobs = false;
    std::shared_ptr<Answer> answer;
  };

  // One for each part of a world that shares out requests.
  void make_schedulers(SchedulerOptions& options) {
    const auto parts = subject_->parts();
    if (parts.size() > 1) options.bell = &bell_;
    std::vector<Scheduler*> all;
    for (engine::Executor* part : parts) {
      schedulers_.push_back(std::make_unique<Scheduler>(*part, options));
      all.push_back(schedulers_.back().get());
    }
    if (parts.size() > 1) together_.emplace(all, bell_);
  }
  Scheduler& any_scheduler() {
    const auto n = static_cast<int64_t>(schedulers_.size());
    return *schedulers_[n > 1 ? static_cast<size_t>(below(n)) : 0];
  }

  void choose_drafts(SchedulerOptions& options) {
    const int64_t kind = below(6);
    if (kind == 0) return;
    if (subject_->steps_ahead() > 1 && below(2) == 0) return;
    spec::SpecOptions& spec = options.speculation;
    spec.draft_tokens = 1 + below(12);
    spec.adaptive = below(4) == 0;  // times are not known to a fake executor: no drafts then
    spec.shortest_match = 1 + below(3);
    if (kind < 3) {
      spec.algorithm = kind == 1 ? spec::Algorithm::Ngram : spec::Algorithm::Suffix;
      spec.suffix_answers = below(20);
      return;
    }
    if (kind == 5 && subject_->is_fake()) return choose_draft_model(options);
    if (kind == 5 && subject_->executor().draft()) {
      spec.algorithm = spec::Algorithm::Prediction;
      return;
    }
    const auto foresight = kind >= 4 || (!subject_->is_fake() && below(2) == 0) ? subject_->foresight() : nullptr;
    const testing_support::TestDrafter::Options how{static_cast<double>(below(4)) / 4, below(2) == 0,
                                                    static_cast<uint32_t>(rng_()), subject_->vocab};
    options.drafter = [=, vocab = subject_->vocab] {
      return std::make_unique<testing_support::TestDrafter>(
          how, foresight ? foresight : testing_support::at_random(how.seed, vocab));
    };
  }

  // A model that answers alike, whose pool may be small and whose steps may fail.
  void choose_draft_model(SchedulerOptions& options) {
    draft_pages_ = 2 + below(8);
    draft_ = std::make_unique<FakeExecutor>(
        FakeExecutor::Limits{.rows = 2 + below(6), .tokens = 8 + below(100), .pages = draft_pages_});
    draft_->runs_beside = subject_->executor().overlaps();  // both on one device
    if (below(4) == 0) draft_->fail_at = below(60);
    const ModelDrafterOptions how{1 + below(6), 1 + below(50), below(4) != 0};
    options.drafter = [this, how] {
      auto made = std::make_unique<ModelDrafter>(*draft_, how);
      draft_model_ = made.get();
      return made;
    };
  }

  int64_t below(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }
  int64_t size() const { return static_cast<int64_t>(asked_.size()); }

  void step() {
    if (together_)
      together_->step();
    else
      schedulers_[0]->step();
    for (const auto& scheduler : schedulers_) {
      const Status ok = scheduler->check_integrity();
      ASSERT_TRUE(ok.is_ok()) << ok.message();
    }
    if (!draft_model_) return;
    const Status whole = draft_model_->check_integrity();
    ASSERT_TRUE(whole.is_ok()) << whole.message();
  }

  void add() {
    // Prompts begin like others before them, at every kind of border.
    Tokens prompt;
    if (!asked_.empty() && below(3) != 0) {
      const Tokens& old = asked_[static_cast<size_t>(below(size()))].prompt;
      prompt.assign(old.begin(), old.begin() + below(static_cast<int64_t>(old.size()) + 1));
    }
    for (int64_t n = below(below(3) == 0 ? 250 : 20); n >= 0; --n)
      prompt.push_back(static_cast<int32_t>(below(subject_->vocab)));
    One one;
    one.prompt = prompt;
    one.most = 1 + below(below(2) == 0 ? subject_->longest_answer : 10);
    Asked a = ask(prompt, one.most);
    a.request.priority = below(3) - 1;
    a.request.several = below(3) == 0;
    a.request.call = static_cast<uint64_t>(below(4));
    a.request.sampling.ignore_eos = below(3) != 0;
    if (below(4) == 0) {
      a.request.sampling.temperature = 0.7;
      a.request.sampling.seed = rng_();
      a.request.sampling.repetition_penalty = below(2) ? 1.0 : 1.2;
    }
    if (below(6) == 0) a.request.sampling.logprobs = static_cast<int>(below(4));
    a.request.prompt_logprobs = below(8) == 0;
    if (below(8) == 0) a.request.cache_salt = "salt";
    one.sampling = a.request.sampling;
    one.prompt_logprobs = a.request.prompt_logprobs;
    one.answer = a.answer;
    one.scheduler = &any_scheduler();
    auto id = one.scheduler->add(std::move(a.request));
    if (!id) {
      const bool fits = static_cast<int64_t>(prompt.size()) < limits_.context &&
                        kv::pages_for(static_cast<int64_t>(prompt.size())) <= limits_.pages;
      EXPECT_EQ(id.status().code(), fits ? Code::Busy : Code::Invalid) << id.status().message();
      return;
    }
    one.id = *id;
    asked_.push_back(std::move(one));
  }

  // By itself, token by token, with a sampler of its own.
  std::vector<SampledToken> alone(const One& one) const {
    const auto size = static_cast<int64_t>(one.prompt.size());
    const int64_t most = std::min({one.most, limits_.context - size, limits_.pages * kv::kPageTokens - size + 1});
    engine::Sampler sampler(one.sampling, one.prompt, subject_->eos);
    Tokens history = one.prompt;
    std::vector<SampledToken> out;
    while (static_cast<int64_t>(out.size()) < most) {
      auto row = subject_->logits_of(history);
      out.push_back(std::move(sampler.sample(row)).value());
      history.push_back(out.back().token);
      if (!one.sampling.ignore_eos &&
          std::find(subject_->eos.begin(), subject_->eos.end(), history.back()) != subject_->eos.end())
        break;
    }
    return out;
  }

  // By itself as well, with the draws of the device and without drafts.
  std::shared_ptr<Answer> served_alone(const One& one, engine::Executor& executor) const {
    SchedulerOptions options;
    options.eos_tokens = subject_->eos;
    options.prefix_cache = options.overlap = false;
    Scheduler scheduler(executor, options);
    Asked a = ask(one.prompt, one.most);
    a.request.sampling = one.sampling;
    a.request.prompt_logprobs = one.prompt_logprobs;
    const auto id = scheduler.add(std::move(a.request));
    EXPECT_TRUE(id.is_ok()) << id.status().message();
    for (int i = 0; !scheduler.idle() && i < 20000; ++i) scheduler.step();
    EXPECT_TRUE(a.answer->result && a.answer->result->status.is_ok());
    return a.answer;
  }

  void check(const One& one) const {
    ASSERT_EQ(one.answer->times_finished, 1);
    const RequestResult& r = *one.answer->result;
    std::vector<SampledToken> want = alone(one);
    if (r.finish == FinishReason::Cancelled) {
      ASSERT_EQ(r.status.code(), Code::Cancelled) << r.status.message();
      want.resize(std::min(want.size(), one.answer->tokens.size()));
    }
    Tokens tokens;
    for (const SampledToken& t : want) tokens.push_back(t.token);
    ASSERT_EQ(one.answer->tokens, tokens)
        << "request " << one.id << ", prompt of " << one.prompt.size() << ", temperature " << one.sampling.temperature
        << ", repetition penalty " << one.sampling.repetition_penalty << ", logprobs " << one.sampling.logprobs
        << ", told of the prompt " << one.answer->prompt.size() << ", preemptions " << r.preemptions;
    ASSERT_EQ(r.completion_tokens, static_cast<int64_t>(want.size()));
    ASSERT_EQ(r.completion_tokens, r.decode_steps + r.drafts.accepted);
    if (one.sampling.logprobs >= 0 || one.prompt_logprobs) check_scores(one, want);
  }

  // Bit for bit with those of the same device; a device adds in another order than the host's sampler, so with its own
  // nearly.
  void check_scores(const One& one, const std::vector<SampledToken>& by_host) const {
    const bool scored = one.sampling.logprobs >= 0;
    engine::Executor* device = subject_->alone();
    if (!device) return same_scores(one, one.answer->sampled, by_host, 0);
    const auto served = served_alone(one, *device);
    if (!one.answer->prompt.empty()) same_scores(one, one.answer->prompt, served->prompt, 0);
    if (!scored) return;
    served->sampled.resize(std::min(served->sampled.size(), by_host.size()));
    same_scores(one, one.answer->sampled, served->sampled, 0);
    same_scores(one, one.answer->sampled, by_host, 1e-4f);
  }

  void same_scores(const One& one, const std::vector<SampledToken>& got, const std::vector<SampledToken>& want,
                   float within) const {
    const auto same = [&](float a, float b) { return a == b || std::abs(a - b) <= within; };
    ASSERT_EQ(got.size(), want.size()) << "request " << one.id;
    for (size_t i = 0; i < got.size(); ++i) {
      const std::string where = fmt::format("request {}, place {}, logprobs {}", one.id, i, one.sampling.logprobs);
      ASSERT_EQ(got[i].token, want[i].token) << where;
      ASSERT_EQ(got[i].logprob.has_value(), want[i].logprob.has_value()) << where;
      if (got[i].logprob) {
        ASSERT_TRUE(same(*got[i].logprob, *want[i].logprob))
            << where << ": " << *got[i].logprob << ", not " << *want[i].logprob;
      }
      ASSERT_EQ(got[i].top.size(), want[i].top.size()) << where;
      for (size_t k = 0; k < got[i].top.size(); ++k) {
        if (within == 0) {
          ASSERT_EQ(got[i].top[k].token, want[i].top[k].token) << where << ", best " << k;
        }
        ASSERT_TRUE(same(got[i].top[k].logprob, want[i].top[k].logprob)) << where << ", best " << k;
      }
    }
  }

  std::mt19937 rng_;
  FakeExecutor::Limits limits_;
  Subject* subject_ = nullptr;
  std::unique_ptr<FakeExecutor> draft_;  // null: the schedule has no draft model
  int64_t draft_pages_ = 0;
  const ModelDrafter* draft_model_ = nullptr;
  Bell bell_;
  std::vector<std::unique_ptr<Scheduler>> schedulers_;
  std::optional<Together> together_;  // of several
  std::vector<One> asked_;
};

}  // namespace reprise::sched

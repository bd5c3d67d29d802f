// Random traffic (add, cancel, flush, tight pools, priorities, all sampling kinds) against what each request answers by
// itself, with the integrity of pages, cache and queues checked after every step.
#include <gtest/gtest.h>

#include <random>

#include "base/sanitizer.h"
#include "sched/scheduler.h"
#include "support/answers.h"

namespace reprise::sched::random_schedules_test {
namespace {

class RandomSchedule {
 public:
  explicit RandomSchedule(uint32_t seed) : rng_(seed) {}

  void run() {
    FakeExecutor::Limits limits{1 + below(6), 8 + below(200), 3 + below(6), 150 + below(400)};
    limits.tokens = std::max(limits.tokens, limits.rows);
    SchedulerOptions options;
    options.eos_tokens = {FakeExecutor::kEos};
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
    executor_ = std::make_unique<FakeExecutor>(limits);
    executor_->greedy_steps = below(3) != 0;
    executor_->runs_beside = below(2) != 0;
    limits_ = limits;
    scheduler_ = std::make_unique<Scheduler>(*executor_, options);
    const int64_t actions = 5 + below(30);
    for (int64_t i = 0; i < actions; ++i) {
      const int64_t what = below(10);
      if (what < 4) add();
      if (what == 4 && !asked_.empty()) scheduler_->cancel(asked_[static_cast<size_t>(below(size()))].id);
      if (what == 5 && below(5) == 0) scheduler_->flush_cache();
      for (int64_t n = what > 5 ? below(12) : 0; n > 0; --n) ASSERT_NO_FATAL_FAILURE(step());
    }
    for (int i = 0; !scheduler_->idle(); ++i) {
      ASSERT_LT(i, 20000);
      ASSERT_NO_FATAL_FAILURE(step());
    }
    for (const One& one : asked_) ASSERT_NO_FATAL_FAILURE(check(one));
    scheduler_->flush_cache();
    ASSERT_EQ(executor_->kv_pool().free_pages(), limits.pages);
  }

  // What the schedule went through.
  struct Seen {
    uint64_t preemptions = 0, cached_tokens = 0, evicted = 0;
    uint64_t copies = 0, cancelled = 0, prompts_told = 0;
  };
  void count(Seen& seen) const {
    const SchedulerStats s = scheduler_->stats();
    seen.preemptions += s.preemptions;
    seen.cached_tokens += s.cached_tokens;
    seen.evicted += s.evicted_pages;
    seen.copies += static_cast<uint64_t>(executor_->copies);
    for (const One& one : asked_) {
      seen.cancelled += one.answer->result->finish == FinishReason::Cancelled;
      seen.prompts_told += !one.answer->prompt.empty();
    }
  }

 private:
  struct One {
    RequestId id = 0;
    Tokens prompt;
    int64_t most = 0;
    engine::SamplingParams sampling;
    std::shared_ptr<Answer> answer;
  };

  int64_t below(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }
  int64_t size() const { return static_cast<int64_t>(asked_.size()); }

  void step() {
    scheduler_->step();
    const Status ok = scheduler_->check_integrity();
    ASSERT_TRUE(ok.is_ok()) << ok.message();
  }

  void add() {
    // Prompts begin like others before them, at every kind of border.
    Tokens prompt;
    if (!asked_.empty() && below(3) != 0) {
      const Tokens& old = asked_[static_cast<size_t>(below(size()))].prompt;
      prompt.assign(old.begin(), old.begin() + below(static_cast<int64_t>(old.size()) + 1));
    }
    for (int64_t n = below(below(3) == 0 ? 250 : 20); n >= 0; --n)
      prompt.push_back(static_cast<int32_t>(below(FakeExecutor::kVocab)));
    One one;
    one.prompt = prompt;
    one.most = 1 + below(below(2) == 0 ? 300 : 10);
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
    one.answer = a.answer;
    auto id = scheduler_->add(std::move(a.request));
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
  Tokens alone(const One& one) const {
    const auto size = static_cast<int64_t>(one.prompt.size());
    const int64_t most = std::min({one.most, limits_.context - size, limits_.pages * kv::kPageTokens - size + 1});
    const std::vector<int32_t> eos{FakeExecutor::kEos};
    engine::Sampler sampler(one.sampling, one.prompt, eos);
    Tokens history = one.prompt, out;
    while (static_cast<int64_t>(out.size()) < most) {
      auto row = FakeExecutor::logits_of(history);
      out.push_back(sampler.sample(row)->token);
      history.push_back(out.back());
      if (!one.sampling.ignore_eos && out.back() == FakeExecutor::kEos) break;
    }
    return out;
  }

  void check(const One& one) const {
    ASSERT_EQ(one.answer->times_finished, 1);
    const RequestResult& r = *one.answer->result;
    Tokens want = alone(one);
    if (r.finish == FinishReason::Cancelled) {
      ASSERT_EQ(r.status.code(), Code::Cancelled) << r.status.message();
      want.resize(std::min(want.size(), one.answer->tokens.size()));
    }
    ASSERT_EQ(one.answer->tokens, want);
    ASSERT_EQ(r.completion_tokens, static_cast<int64_t>(want.size()));
  }

  std::mt19937 rng_;
  FakeExecutor::Limits limits_;
  std::unique_ptr<FakeExecutor> executor_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<One> asked_;
};

// Under a sanitizer a schedule takes ten times as long.
#if REPRISE_ASAN
constexpr uint32_t kSchedules = 100;
#else
constexpr uint32_t kSchedules = 1000;
#endif

// Ten parts, so that a failure names a small range and CTest runs them side by side.
class RandomSchedules : public testing::TestWithParam<uint32_t> {};

TEST_P(RandomSchedules, AnswerAsEachRequestAlone) {
  RandomSchedule::Seen seen;
  for (uint32_t i = 0; i < kSchedules; ++i) {
    const uint32_t seed = GetParam() * kSchedules + i;
    RandomSchedule schedule(seed);
    ASSERT_NO_FATAL_FAILURE(schedule.run()) << "schedule " << seed;
    schedule.count(seen);
  }
  // Nothing of interest was left out.
  EXPECT_GT(seen.preemptions, kSchedules / 100);
  EXPECT_GT(seen.cached_tokens, 10 * kSchedules);
  EXPECT_GT(seen.evicted, kSchedules);
  EXPECT_GT(seen.copies, kSchedules / 4);
  EXPECT_GT(seen.cancelled, kSchedules / 4);
  EXPECT_GT(seen.prompts_told, kSchedules / 4);
}

INSTANTIATE_TEST_SUITE_P(, RandomSchedules, testing::Range(0u, 10u));

}  // namespace
}  // namespace reprise::sched::random_schedules_test

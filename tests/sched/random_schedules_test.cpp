// Random traffic (add, cancel, flush, tight pools, priorities, all sampling kinds) against what each request answers by
// itself, with the integrity of pages, cache and queues checked after every step. On the fake executor, whose answers
// cost nothing, on engines of every device that computes, and over two ranks against one. Most schedules have drafts:
// good ones, wrong ones and some of each, of models and heads as well. A key or a state of a rejected draft that is
// read changes what the fake one answers.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "base/sanitizer.h"
#include "engine/local_world.h"
#include "sched/model_drafter.h"
#include "sched/scheduler.h"
#include "support/answers.h"
#include "support/computing_platforms.h"
#include "support/drafters.h"
#include "support/heads.h"
#include "support/tiny_models.h"

namespace reprise::sched::random_schedules_test {
namespace {

using testing_support::ComputingPlatform;

// What a schedule runs on, and the logits that its model gives after a history.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual engine::Executor& executor() = 0;
  virtual std::vector<float> logits_of(std::span<const int32_t> history) = 0;
  virtual uint64_t copies() const { return 0; }
  // What greedy decoding gives next, where asking costs little.
  virtual testing_support::Foresight foresight() { return nullptr; }
  virtual bool is_fake() const { return false; }  // others that answer alike can be made
  virtual int64_t most_running() const { return 0; }

  FakeExecutor::Limits limits;
  int32_t vocab = FakeExecutor::kVocab;
  int64_t longest_answer = 300;
  std::vector<int32_t> eos{FakeExecutor::kEos};
};

class FakeSubject final : public Subject {
 public:
  explicit FakeSubject(std::mt19937& rng) {
    const auto below = [&](int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint64_t>(n)); };
    limits = {1 + below(6), 8 + below(200), 3 + below(6), 150 + below(400)};
    limits.tokens = std::max(limits.tokens, limits.rows);
    if (below(3) == 0) limits.state_drafts = 1 + below(8);
    executor_ = std::make_unique<FakeExecutor>(limits);
    executor_->greedy_steps = below(3) != 0;
    executor_->runs_beside = below(2) != 0;
    if (limits.state_drafts == 0) executor_->in_flight_limit = 2 + limits.pages % 3 * 3;  // runs of 1, 4 or 7 steps
  }
  engine::Executor& executor() override { return *executor_; }
  std::vector<float> logits_of(std::span<const int32_t> history) override { return FakeExecutor::logits_of(history); }
  uint64_t copies() const override { return static_cast<uint64_t>(executor_->copies); }
  testing_support::Foresight foresight() override {
    return [](std::span<const int32_t> history, int64_t most) {
      return expected(Tokens(history.begin(), history.end()), most, true);
    };
  }
  bool is_fake() const override { return true; }

 private:
  std::unique_ptr<FakeExecutor> executor_;
};

// What an engine gives behind a history; `known` is the one it has read.
std::vector<float> logits_by(engine::Engine& e, engine::Sequence& known, std::span<const int32_t> history,
                             int64_t chunk, int32_t vocab) {
  if (static_cast<size_t>(known.size()) >= history.size() ||
      !std::equal(known.tokens().begin(), known.tokens().end(), history.begin())) {
    e.release(known);
    known = engine::Sequence(Tokens{});
  }
  for (size_t i = static_cast<size_t>(known.size()); i < history.size(); ++i) known.append(history[i]);
  EXPECT_TRUE(e.reserve(known, known.size()).is_ok());
  for (;;) {
    const int64_t n = std::min(known.uncached(), chunk);
    const engine::StepItem item{&known, n, n == known.uncached()};
    const auto logits = e.step({&item, 1});
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    if (!logits.is_ok()) return std::vector<float>(static_cast<size_t>(vocab));
    if (item.logits > 0) return {logits->begin(), logits->end()};
  }
}

// An engine, and another that computes one history at a time, node by node.
class EngineSubject final : public Subject {
 public:
  // The other one is always on one rank.
  explicit EngineSubject(ComputingPlatform where, int ranks = 1) : where_(where) {
    limits = {3, 40, 4, 200};
    longest_answer = 60;
    if (ranks > 1) {
      auto world = engine::LocalWorld::start(
          ranks, [this](std::shared_ptr<ranks::Member> member) { return open_over(std::move(member)); });
      EXPECT_TRUE(world.is_ok()) << world.status().message();
      if (world.is_ok()) world_ = std::move(*world);
    } else {
      engine_ = open(engine::GraphPolicy::Auto);
    }
    alone_ = open(engine::GraphPolicy::Off);
    if (!is_open()) return;
    limits.pages = executor().kv_pool().free_pages();
    vocab = static_cast<int32_t>(executor().vocab_size());
    eos.clear();
    for (int32_t t = 7; t < vocab; t += 29) eos.push_back(t);  // as likely as in the fake one
  }
  ~EngineSubject() override {
    if (alone_) alone_->release(history_);
  }
  bool is_open() const { return (engine_ || world_) && alone_; }
  engine::Executor& executor() override { return world_ ? world_->front() : *engine_; }

  std::vector<float> logits_of(std::span<const int32_t> history) override {
    return logits_by(*alone_, history_, history, limits.tokens, vocab);
  }

 private:
  engine::EngineOptions options_of(engine::GraphPolicy policy) const {
    engine::EngineOptions o;
    o.model_path = testing_support::tiny_model_path("llama_gqa3_tied");
    o.dtype = testing_support::dtype_of(where_);
    o.max_running_requests = limits.rows;
    o.chunked_prefill_size = limits.tokens;
    o.max_total_tokens = limits.pages * kv::kPageTokens;
    o.context_length = limits.context;
    o.graph.policy = policy;
    o.graph.verify = {4};
    if (where_ != ComputingPlatform::Cpu) o.graph.decode_sizes = {1, limits.rows}, o.graph.prefill_sizes = {32};
    return o;
  }

  Result<std::unique_ptr<engine::Engine>> open_over(std::shared_ptr<ranks::Member> member) const {
    DeviceOptions device;
    device.threads = 1;
    device.pin_threads = false;
    device.member = member;
    ASSIGN_OR_RETURN(Platform platform, make_platform(device));
    engine::EngineOptions o = options_of(engine::GraphPolicy::Auto);
    o.member = std::move(member);
    return engine::Engine::create(o, std::move(platform));
  }

  std::unique_ptr<engine::Engine> open(engine::GraphPolicy policy) {
    const engine::EngineOptions o = options_of(policy);
    auto platform = testing_support::make_computing_platform(where_, taken_);
    EXPECT_TRUE(platform.is_ok()) << platform.status().message();
    auto e = engine::Engine::create(o, std::move(*platform));
    EXPECT_TRUE(e.is_ok()) << e.status().message();
    return e.is_ok() ? std::move(*e) : nullptr;
  }

  ComputingPlatform where_;
  testing_support::Taken taken_;
  std::unique_ptr<engine::Engine> engine_, alone_;
  std::unique_ptr<engine::LocalWorld> world_;  // in place of engine_
  engine::Sequence history_{Tokens{}};
};

// A model with its head, which may have states, in one graph mode; and the model alone, node by node.
class HeadSubject final : public Subject {
 public:
  struct Setup {
    std::string model, mode;
  };
  explicit HeadSubject(const Setup& s) {
    limits = {16, 90, 6, 420};
    longest_answer = 60;
    testing_support::HeadSetup with{.model = s.model, .head = s.model, .dtype = DType::BF16, .pages = limits.pages};
    with.chunk = limits.tokens, with.rows = limits.rows, with.context = limits.context;
    testing_support::HeadSetup alone = with;
    alone.head.clear(), alone.pages = 4, alone.policy = engine::GraphPolicy::Off;
    if (s.mode == "eager") with.policy = engine::GraphPolicy::Off;
    if (s.mode != "eager") with.decode = with.prefill = s.mode == "whole" ? GraphMode::Whole : GraphMode::Piecewise;
    engine_ = open(with);
    alone_ = open(alone);
    if (!is_open()) return;
    limits.pages = engine_->kv_pool().free_pages();
    vocab = static_cast<int32_t>(engine_->vocab_size());
    eos.clear();
    for (int32_t t = 7; t < vocab; t += 29) eos.push_back(t);
  }
  ~HeadSubject() override {
    if (alone_) alone_->release(history_);
  }
  bool is_open() const { return engine_ && alone_; }
  engine::Executor& executor() override { return *engine_; }
  int64_t most_running() const override { return 4; }  // of the rows of a step; the others are for drafts

  std::vector<float> logits_of(std::span<const int32_t> history) override {
    return logits_by(*alone_, history_, history, limits.tokens, vocab);
  }
  testing_support::Foresight foresight() override {
    return [this](std::span<const int32_t> history, int64_t most) {
      Tokens text(history.begin(), history.end());
      most = std::min(most, limits.context - static_cast<int64_t>(text.size()));
      for (int64_t i = 0; i < most; ++i) {
        const auto row = logits_of(text);
        text.push_back(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
      }
      return Tokens(text.begin() + static_cast<ptrdiff_t>(history.size()), text.end());
    };
  }

 private:
  static std::unique_ptr<engine::Engine> open(const testing_support::HeadSetup& s) {
    auto e = testing_support::open_with_head(s);
    EXPECT_TRUE(e.is_ok()) << e.status().message();
    return e.is_ok() ? std::move(*e) : nullptr;
  }

  std::unique_ptr<engine::Engine> engine_, alone_;
  engine::Sequence history_{Tokens{}};
};

class RandomSchedule {
 public:
  explicit RandomSchedule(uint32_t seed) : rng_(seed) {}

  void run(Subject& subject) {
    subject_ = &subject;
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
    scheduler_ = std::make_unique<Scheduler>(subject.executor(), options);
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
    ASSERT_EQ(subject.executor().kv_pool().free_pages(), limits_.pages);
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
  };
  void count(Seen& seen) const {
    const SchedulerStats s = scheduler_->stats();
    seen.preemptions += s.preemptions;
    seen.cached_tokens += s.cached_tokens;
    seen.evicted += s.evicted_pages;
    seen.copies += subject_->copies();
    seen.drafted += s.speculation.draft_tokens;
    seen.accepted += s.speculation.accepted_tokens;
    seen.requests += asked_.size();
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

  void choose_drafts(SchedulerOptions& options) {
    const int64_t kind = below(6);
    if (kind == 0) return;
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
    scheduler_->step();
    const Status ok = scheduler_->check_integrity();
    ASSERT_TRUE(ok.is_ok()) << ok.message();
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
    engine::Sampler sampler(one.sampling, one.prompt, subject_->eos);
    Tokens history = one.prompt, out;
    while (static_cast<int64_t>(out.size()) < most) {
      auto row = subject_->logits_of(history);
      out.push_back(sampler.sample(row)->token);
      history.push_back(out.back());
      if (!one.sampling.ignore_eos &&
          std::find(subject_->eos.begin(), subject_->eos.end(), out.back()) != subject_->eos.end())
        break;
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
    ASSERT_EQ(one.answer->tokens, want) << "request " << one.id << ", prompt of " << one.prompt.size()
                                        << ", temperature " << one.sampling.temperature << ", repetition penalty "
                                        << one.sampling.repetition_penalty << ", logprobs " << one.sampling.logprobs
                                        << ", told of the prompt " << one.answer->prompt.size() << ", preemptions "
                                        << r.preemptions;
    ASSERT_EQ(r.completion_tokens, static_cast<int64_t>(want.size()));
    ASSERT_EQ(r.completion_tokens, r.decode_steps + r.drafts.accepted);
  }

  std::mt19937 rng_;
  FakeExecutor::Limits limits_;
  Subject* subject_ = nullptr;
  std::unique_ptr<FakeExecutor> draft_;  // null: the schedule has no draft model
  int64_t draft_pages_ = 0;
  const ModelDrafter* draft_model_ = nullptr;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<One> asked_;
};

// Under a sanitizer a schedule takes ten times as long.
#if REPRISE_ASAN || REPRISE_TSAN
constexpr uint32_t kSchedules = 100, kOnEngines = 3, kOfModels = 2;
#else
constexpr uint32_t kSchedules = 1000, kOnEngines = 16, kOfModels = 16;
#endif

// Ten parts, so that a failure names a small range and CTest runs them side by side.
class RandomSchedules : public testing::TestWithParam<uint32_t> {};

// REPRISE_SOAK_SCHEDULES: so many instead, for a run of hours; REPRISE_SOAK_FIRST: from this one on.
int64_t number_from(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoll(text, nullptr, 10) : otherwise;
}

TEST_P(RandomSchedules, AnswerAsEachRequestAlone) {
  RandomSchedule::Seen seen;
  const auto count = static_cast<uint32_t>(number_from("REPRISE_SOAK_SCHEDULES", kSchedules));
  const auto first = static_cast<uint32_t>(number_from("REPRISE_SOAK_FIRST", 0));
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t seed = first + GetParam() * count + i;
    RandomSchedule schedule(seed);
    FakeSubject subject(schedule.rng());
    ASSERT_NO_FATAL_FAILURE(schedule.run(subject)) << "schedule " << seed;
    schedule.count(seen);
  }
  if (count < kSchedules) return;  // too few to meet everything
  // Nothing of interest was left out.
  EXPECT_GT(seen.preemptions, kSchedules / 100);
  EXPECT_GT(seen.cached_tokens, 5 * kSchedules);
  EXPECT_GT(seen.evicted, kSchedules);
  EXPECT_GT(seen.copies, kSchedules / 4);
  EXPECT_GT(seen.cancelled, kSchedules / 4);
  EXPECT_GT(seen.prompts_told, kSchedules / 4);
  EXPECT_GT(seen.drafted, 10 * kSchedules);
  EXPECT_GT(seen.accepted, kSchedules / 4);
}

INSTANTIATE_TEST_SUITE_P(, RandomSchedules, testing::Range(0u, 10u));

class RandomSchedulesOnEngine : public testing::TestWithParam<ComputingPlatform> {};

TEST_P(RandomSchedulesOnEngine, AnswerAsEachRequestAlone) {
  EngineSubject subject(GetParam());
  ASSERT_TRUE(subject.is_open());
  RandomSchedule::Seen seen;
  for (uint32_t seed = 0; seed < kOnEngines; ++seed) {
    RandomSchedule schedule(seed);
    ASSERT_NO_FATAL_FAILURE(schedule.run(subject)) << "schedule " << seed;
    schedule.count(seen);
  }
  if (kOnEngines < 16) return;  // too few to meet everything
  EXPECT_GT(seen.preemptions, 0u);
  EXPECT_GT(seen.cached_tokens, 0u);
  EXPECT_GT(seen.cancelled, 0u);
  EXPECT_GT(seen.drafted, 0u);
}

INSTANTIATE_TEST_SUITE_P(, RandomSchedulesOnEngine, testing_support::kComputingPlatforms,
                         testing_support::computing_platform_name);

// States that are kept, given up, gone on from and computed again, and heads that draft beside other drafters, in every
// graph mode.
class RandomSchedulesOfModels : public testing::TestWithParam<HeadSubject::Setup> {};

TEST_P(RandomSchedulesOfModels, AnswerAsEachRequestAlone) {
  const int64_t first = number_from("REPRISE_SOAK_FIRST", 0);
  const int64_t count = number_from("REPRISE_SOAK_SCHEDULES", kOfModels);
  HeadSubject subject(GetParam());
  ASSERT_TRUE(subject.is_open());
  RandomSchedule::Seen seen;
  for (int64_t seed = first; seed < first + count; ++seed) {
    RandomSchedule schedule(static_cast<uint32_t>(seed));
    ASSERT_NO_FATAL_FAILURE(schedule.run(subject)) << "schedule " << seed;
    schedule.count(seen);
  }
  if (count > kOfModels)
    fmt::print("{} requests, {} preemptions, {} of {} drafts came true\n", seen.requests, seen.preemptions,
               seen.accepted, seen.drafted);
  if (count < 16) return;  // too few to meet everything
  EXPECT_GT(seen.preemptions, 0u);
  EXPECT_GT(seen.cached_tokens, 0u);
  EXPECT_GT(seen.cancelled, 0u);
  EXPECT_GT(seen.accepted, 5u);
  EXPECT_GT(seen.drafted, seen.accepted);
}

INSTANTIATE_TEST_SUITE_P(
    , RandomSchedulesOfModels,
    testing::Values(HeadSubject::Setup{"qwen3_next", "whole"}, HeadSubject::Setup{"qwen3_next", "piecewise"},
                    HeadSubject::Setup{"qwen3_5", "eager"}, HeadSubject::Setup{"glm4_moe", "whole"},
                    HeadSubject::Setup{"glm4_moe", "piecewise"}, HeadSubject::Setup{"glm4_moe", "eager"}),
    [](const auto& info) { return info.param.model + "_" + info.param.mode; });

TEST(RandomSchedulesOverRanks, AnswerAsOneRank) {
  const int64_t first = number_from("REPRISE_SOAK_FIRST", 0);
  const int64_t count = number_from("REPRISE_SOAK_SCHEDULES", kOnEngines);
  ASSERT_GT(count, 0) << "REPRISE_SOAK_SCHEDULES is no number from 1";
  EngineSubject subject(ComputingPlatform::Cpu, 2);
  ASSERT_TRUE(subject.is_open());
  for (int64_t seed = first; seed < first + count; ++seed) {
    RandomSchedule schedule(static_cast<uint32_t>(seed));
    ASSERT_NO_FATAL_FAILURE(schedule.run(subject)) << "schedule " << seed;
  }
}

}  // namespace
}  // namespace reprise::sched::random_schedules_test

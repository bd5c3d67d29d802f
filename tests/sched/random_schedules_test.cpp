// Random schedules (random_schedule.h) on the fake executor, whose answers cost nothing and whose keys and states are
// hashes: a key or a state of a rejected draft that is read changes what it answers. Then on engines of every device
// that computes, in each graph mode, with decode steps one by one and in runs; on models with heads and states; and
// over two ranks, which may share out requests, against one.
//
// Environment: REPRISE_SOAK_SCHEDULES so many schedules instead; REPRISE_SOAK_REQUESTS as many as have so many
// requests; REPRISE_SOAK_FIRST from this one on. `./dev soak` sets them.
#include "sched/random_schedule.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/sanitizer.h"

namespace reprise::sched::random_schedules_test {
namespace {

// Under a sanitizer a schedule takes ten times as long.
#if REPRISE_ASAN || REPRISE_TSAN
constexpr int64_t kSchedules = 100, kOnEngines = 2, kOfModels = 2, kOverRanks = 3;
#else
constexpr int64_t kSchedules = 1000, kOnEngines = 16, kOfModels = 16, kOverRanks = 16;
#endif

// Which schedules a part runs.
class Course {
 public:
  explicit Course(int64_t usual, int64_t part = 0) : usual_(usual) {
    requests_ = number_from("REPRISE_SOAK_REQUESTS", 1);
    const auto schedules = number_from("REPRISE_SOAK_SCHEDULES", 1);
    count_ = schedules.value_or(usual);
    next_ = number_from("REPRISE_SOAK_FIRST", 0).value_or(0) + part * (requests_ ? *requests_ : count_);
  }
  // In turn; false: that was the last one.
  bool next(const RandomSchedule::Seen& seen) const {
    const auto n = [](uint64_t v) { return static_cast<int64_t>(v); };
    return requests_ ? n(seen.requests) < *requests_ : n(seen.schedules) < count_;
  }
  uint32_t number() { return static_cast<uint32_t>(next_++); }
  bool is_soak() const { return requests_ || count_ != usual_; }

 private:
  static std::optional<int64_t> number_from(const char* variable, int64_t least) {
    const char* text = std::getenv(variable);
    if (!text) return std::nullopt;
    const std::string_view all(text);
    int64_t n = 0;
    const auto [end, ec] = std::from_chars(all.data(), all.data() + all.size(), n);
    const bool good = ec == std::errc() && end == all.data() + all.size() && n >= least && n <= UINT32_MAX;
    if (!good) ADD_FAILURE() << variable << " \"" << text << "\" is no number from " << least;
    return good ? std::optional(n) : std::optional<int64_t>(least);
  }

  int64_t usual_ = 0, count_ = 0, next_ = 0;
  std::optional<int64_t> requests_;
};

// `subject(schedule)` is what a schedule runs on.
template <typename Make>
void run(Course course, const Make& subject, RandomSchedule::Seen& seen) {
  while (course.next(seen)) {
    const uint32_t number = course.number();
    RandomSchedule schedule(number);
    auto&& on = subject(schedule);
    ASSERT_NO_FATAL_FAILURE(schedule.run(*on)) << "schedule " << number;
    schedule.count(seen);
  }
  if (course.is_soak()) fmt::print("{}", seen.text());
}

// Ten parts, so that a failure names a small range and CTest runs them side by side.
class RandomSchedules : public testing::TestWithParam<uint32_t> {};

TEST_P(RandomSchedules, AnswerAsEachRequestAlone) {
  RandomSchedule::Seen seen;
  ASSERT_NO_FATAL_FAILURE(run(
      Course(kSchedules, GetParam()), [](RandomSchedule& s) { return std::make_unique<FakeSubject>(s.rng()); }, seen));
  if (seen.schedules < kSchedules) return;  // too few to meet everything
  // Nothing of interest was left out.
  EXPECT_GT(seen.preemptions, kSchedules / 100);
  EXPECT_GT(seen.cached_tokens, 5 * kSchedules);
  EXPECT_GT(seen.evicted, kSchedules);
  EXPECT_GT(seen.copies, kSchedules / 4);
  EXPECT_GT(seen.cancelled, kSchedules / 4);
  EXPECT_GT(seen.prompts_told, kSchedules / 4);
  EXPECT_GT(seen.scored, kSchedules / 4);
  EXPECT_GT(seen.drafted, 10 * kSchedules);
  EXPECT_GT(seen.accepted, kSchedules / 4);
  // Executors are drawn, and some take no runs. Of those that do there is one for every ten at least.
  if (seen.may_run >= 20) {
    EXPECT_GE(10 * seen.runs, seen.may_run);
  }
}

INSTANTIATE_TEST_SUITE_P(, RandomSchedules, testing::Range(0u, 10u));

class RandomSchedulesOnEngine : public testing::TestWithParam<EngineSubject::Setup> {};

TEST_P(RandomSchedulesOnEngine, AnswerAsEachRequestAlone) {
  EngineSubject subject(GetParam());
  ASSERT_TRUE(subject.is_open());
  RandomSchedule::Seen seen;
  const int64_t usual = GetParam().mode == GraphMode::Whole ? kOnEngines : std::max<int64_t>(2, kOnEngines / 4);
  ASSERT_NO_FATAL_FAILURE(run(
      Course(usual), [&](RandomSchedule&) { return &subject; }, seen));
  if (seen.schedules < 16) return;  // too few to meet everything
  EXPECT_GT(seen.preemptions, 0u);
  EXPECT_GT(seen.cached_tokens, 0u);
  EXPECT_GT(seen.cancelled, 0u);
  EXPECT_GT(seen.drawn, 0u);
  EXPECT_GT(seen.scored, 0u);
  EXPECT_GT(seen.drafted, 0u);
  EXPECT_EQ(seen.runs > 0, GetParam().where != ComputingPlatform::Cpu);
}

std::vector<EngineSubject::Setup> engine_setups() {
  std::vector<EngineSubject::Setup> out;
  for (const auto where : {ComputingPlatform::Cpu, ComputingPlatform::Remote, ComputingPlatform::Ascend})
    for (const auto mode : {GraphMode::Whole, GraphMode::Piecewise, GraphMode::Eager}) out.push_back({where, mode});
  return out;
}

INSTANTIATE_TEST_SUITE_P(, RandomSchedulesOnEngine, testing::ValuesIn(engine_setups()), [](const auto& info) {
  const char* where = info.param.where == ComputingPlatform::Cpu      ? "Cpu"
                      : info.param.where == ComputingPlatform::Remote ? "Remote"
                                                                      : "Ascend";
  return fmt::format("{}_{}", where, graph_mode_name(info.param.mode));
});

// States that are kept, given up, gone on from and computed again, and heads that draft beside other drafters, in every
// graph mode.
class RandomSchedulesOfModels : public testing::TestWithParam<HeadSubject::Setup> {};

TEST_P(RandomSchedulesOfModels, AnswerAsEachRequestAlone) {
  HeadSubject subject(GetParam());
  ASSERT_TRUE(subject.is_open());
  RandomSchedule::Seen seen;
  ASSERT_NO_FATAL_FAILURE(run(
      Course(kOfModels), [&](RandomSchedule&) { return &subject; }, seen));
  if (seen.schedules < 16) return;  // too few to meet everything
  EXPECT_GT(seen.preemptions, 0u);
  EXPECT_GT(seen.cached_tokens, 0u);
  EXPECT_GT(seen.cancelled, 0u);
  EXPECT_GT(seen.scored, 0u);
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
  EngineSubject subject({ComputingPlatform::Cpu, GraphMode::Whole, 2});
  ASSERT_TRUE(subject.is_open());
  RandomSchedule::Seen seen;
  ASSERT_NO_FATAL_FAILURE(run(
      Course(kOverRanks), [&](RandomSchedule&) { return &subject; }, seen));
  EXPECT_GT(seen.requests, 0u);
}

// States and a head that drafts: what followers keep is what the front's steps say.
TEST(RandomSchedulesOverRanks, StatesAndDraftsAnswerAsOneRank) {
  HeadSubject subject({"qwen3_next", "whole", 2});
  ASSERT_TRUE(subject.is_open());
  RandomSchedule::Seen seen;
  ASSERT_NO_FATAL_FAILURE(run(
      Course(kOverRanks), [&](RandomSchedule&) { return &subject; }, seen));
  EXPECT_GT(seen.requests, 0u);
}

// Ranks that share out requests, each part with a scheduler, latents and a head's rows of its own.
TEST(RandomSchedulesOverRanks, PartsWithAHeadAnswerAsOneRank) {
  HeadSubject subject({"deepseek_v3", "whole", 2, 2});
  ASSERT_TRUE(subject.is_open());
  RandomSchedule::Seen seen;
  ASSERT_NO_FATAL_FAILURE(run(
      Course(kOverRanks), [&](RandomSchedule&) { return &subject; }, seen));
  EXPECT_GT(seen.requests, 0u);
  if (seen.schedules < 16) return;  // too few to meet everything
  EXPECT_GT(seen.preemptions, 0u);
  EXPECT_GT(seen.cached_tokens, 0u);
  EXPECT_GT(seen.drafted, 100u);
  EXPECT_GT(seen.accepted, 0u);
}

// Likewise over simulated cards, where a step of drafts and one of a prompt are two.
TEST(RandomSchedulesOverRanks, PartsOfCardsWithAHeadAnswerAsOneCard) {
  HeadSubject subject({"glm4_moe", "whole", 2, 2, DeviceKind::Ascend});
  ASSERT_TRUE(subject.is_open());
  RandomSchedule::Seen seen;
  ASSERT_NO_FATAL_FAILURE(run(
      Course(std::max<int64_t>(2, kOverRanks / 4)), [&](RandomSchedule&) { return &subject; }, seen));
  EXPECT_GT(seen.requests, 0u);
}

}  // namespace
}  // namespace reprise::sched::random_schedules_test

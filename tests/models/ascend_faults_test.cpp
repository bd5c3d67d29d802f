// Faults on demand below an engine on Ascend: a card that cannot serve, an old driver, old firmware, out of memory, a
// failed kernel inside a replay, an event that never comes, no stream left. Each ends in one line that says what
// happened or in a degraded mode with its reason, nothing hangs, and an engine opened afterwards in the same process
// works.
#include <gtest/gtest.h>

#include <chrono>

#include "support/ascend_engine.h"

namespace reprise::ascend_faults_test {
namespace {

using testing_support::decode_traffic;
using testing_support::same_bits;
using testing_support::Setting;

// Decode steps of one and of up to four sequences are captured; prompts, whose graphs are many, run as they are.
Result<std::unique_ptr<engine::Engine>> open() {
  return testing_support::open_ascend(testing_support::tiny_model_path("qwen3_tied"),
                                      {.prefill = GraphMode::Eager, .decode_sizes = {1, 4}});
}

constexpr int kSteps = 4;

class AscendFaults : public testing::Test {
 protected:
  void SetUp() override {
    expected_ = traffic_without_faults();
    ASSERT_FALSE(expected_.empty());
  }
  void TearDown() override { EXPECT_TRUE(same_bits(expected_, traffic_without_faults())) << "after the fault"; }

  static std::vector<float> traffic_without_faults() {
    auto e = open();
    EXPECT_TRUE(e.is_ok()) << e.status().message();
    return e.is_ok() ? decode_traffic(**e, kSteps) : std::vector<float>{};
  }

  std::vector<float> expected_;

 private:
  // What hangs is told after so long, not after the simulator's usual twenty seconds.
  Setting hang_{"ASCEND_SIM_HANG_MS", "1000"}, destroy_{"ASCEND_SIM_DESTROY_MS", "200"};
};

void expect_one_line(const Status& s, const std::vector<std::string>& words) {
  ASSERT_FALSE(s.is_ok());
  EXPECT_EQ(s.message().find('\n'), std::string::npos) << s.message();
  for (const std::string& word : words) EXPECT_NE(s.message().find(word), std::string::npos) << s.message();
}

// One sequence; ok, or what the first step that went wrong said.
struct OneSequence {
  explicit OneSequence(engine::Engine& e) : engine(e), sequence(std::vector<int32_t>{1, 2, 3}) {
    EXPECT_TRUE(engine.reserve(sequence, 100).is_ok());
  }
  Status steps(int n) {
    for (int i = 0; i < n; ++i) {
      if (sequence.uncached() == 0) sequence.append(1);
      const engine::StepItem item{&sequence, sequence.uncached(), 1};
      auto logits = engine.step({&item, 1});
      if (!logits.is_ok()) return logits.status();
    }
    return Status::ok();
  }
  engine::Engine& engine;
  engine::Sequence sequence;
};

TEST_F(AscendFaults, MemoryThatIsNotThereIsNamed) {
  const Setting small("ASCEND_SIM_HBM_BYTES", "4194304");
  auto e = open();
  ASSERT_FALSE(e.is_ok());
  EXPECT_EQ(e.status().code(), Code::OutOfMemory) << e.status().message();
}

// Machines on which no engine can start: what is wrong and what to do about it, before anything is loaded.
TEST_F(AscendFaults, ACardThatCannotServeIsNamedInOneLine) {
  const struct {
    const char* fault;
    Code code;
    std::vector<std::string> words;
  } cases[] = {
      {"no_kernels", Code::Unsupported, {"no kernels for Ascend910B3", "561112", "install CANN's kernels package"}},
      {"wrong_chip", Code::Unsupported, {"Ascend310P3", "Atlas A2 or A3", "npu-smi info"}},
      {"no_permission", Code::Device, {"507899", "/dev/davinci", "HwHiAiUser"}},
      {"devices:0", Code::Unsupported, {"no Ascend device", "npu-smi info"}},
      {"free:4194304", Code::OutOfMemory, {"4.0 of 65536 MB", "other processes"}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.fault);
    const Setting fault("ASCEND_SIM_FAULT", c.fault);
    auto e = open();
    ASSERT_FALSE(e.is_ok());
    EXPECT_EQ(e.status().code(), c.code);
    expect_one_line(e.status(), c.words);
  }
}

// Such a driver captures and replays, but changes nothing that was captured: each size runs eagerly from its first
// replay on, for the reason that the runtime gave.
TEST_F(AscendFaults, AnOldDriverRunsStepsEagerly) {
  const Setting fault("ASCEND_SIM_FAULT", "old_driver");
  auto e = open();
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  EXPECT_TRUE(same_bits(expected_, decode_traffic(**e, kSteps)));
  const engine::StepRunner& runner = *(*e)->runner("decode");
  ASSERT_FALSE(runner.quarantined().empty());
  for (const auto& [size, why] : runner.quarantined()) EXPECT_NE(why.find("207000"), std::string::npos) << why;
}

// Attention is of mixed type, in one operator and in the pair before it, and nothing else is updated.
TEST_F(AscendFaults, OldFirmwareUpdatesAttention) {
  const Setting fault("ASCEND_SIM_FAULT", "old_firmware");
  for (const bool fia : {true, false}) {
    auto e = testing_support::open_ascend(testing_support::tiny_model_path("qwen3_tied"),
                                          {.prefill = GraphMode::Eager, .fia = fia, .decode_sizes = {1, 4}});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    EXPECT_TRUE(same_bits(expected_, decode_traffic(**e, kSteps)));
    EXPECT_EQ((*e)->runner("decode")->stats().replays, static_cast<uint64_t>(kSteps));
    EXPECT_TRUE((*e)->runner("decode")->quarantined().empty());
  }
}

// Another process on the card, or a card that is too small for the largest size: an engine that does not fit says so,
// one that fits computes what it should, and between the two there is nothing else.
TEST_F(AscendFaults, HoweverMuchMemoryIsFree) {
  const std::pair<const char*, std::vector<int64_t>> rooms[] = {
      {"ASCEND_SIM_FAULT", {17, 40, 80, 88, 89, 90, 91, 92, 94, 96, 100, 120, 160, 400}},
      {"ASCEND_SIM_HBM_BYTES", {100, 1000, 3000, 5000, 9000}}};
  for (const auto& [variable, sizes] : rooms) {
    const bool taken = std::string_view(variable) == "ASCEND_SIM_FAULT";
    int refused = 0, opened = 0;
    for (const int64_t mb : sizes) {
      SCOPED_TRACE(fmt::format("{} {} MB", variable, mb));
      const Setting room(variable, fmt::format("{}{}", taken ? "free:" : "", mb << 20));
      auto e = open();
      if (!e.is_ok()) {
        ++refused;
        EXPECT_EQ(e.status().code(), Code::OutOfMemory) << e.status().message();
        expect_one_line(e.status(), {taken ? "memory" : "MB"});
        EXPECT_EQ(opened, 0) << "it fits into less";
        continue;
      }
      ++opened;
      EXPECT_TRUE(same_bits(expected_, decode_traffic(**e, kSteps)));
    }
    EXPECT_GE(refused, 1) << variable;
    EXPECT_GE(opened, 1) << variable;
  }
}

// An engine whose cache would take all that is left for it.
Result<std::unique_ptr<engine::Engine>> open_greedy() {
  DeviceOptions device;
  device.kind = DeviceKind::Ascend;
  device.ascend_runtime = "sim";
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  engine::EngineOptions o;
  o.model_path = testing_support::tiny_model_path("qwen3_tied");
  o.dtype = DType::BF16;
  o.chunked_prefill_size = 64;
  o.max_running_requests = 64;
  o.overrides = {"max_position_embeddings=1048576"};
  o.mem_fraction_static = 0.6;
  o.graph.decode_sizes = {1};
  o.graph.prefill_sizes = {64};
  return engine::Engine::create(o, std::move(platform));
}

// The cache is sized by the memory that is free when an engine starts: the second on a card gets a smaller one.
TEST(AscendMemory, ASecondEngineGetsASmallerCache) {
  const Setting card("ASCEND_SIM_HBM_BYTES", "1073741824");
  auto first = open_greedy();
  ASSERT_TRUE(first.is_ok()) << first.status().message();
  auto second = open_greedy();
  ASSERT_TRUE(second.is_ok()) << second.status().message();
  const auto cache = [](engine::Engine& e) { return e.memory().kv_bytes; };
  EXPECT_GT(cache(**first), size_t{500} << 20);
  EXPECT_LT(cache(**second), cache(**first) / 2);
  EXPECT_GT(cache(**second), size_t{100} << 20);
  const std::vector<int32_t> tokens{5, 17, 42, 99};
  EXPECT_TRUE(
      same_bits(testing_support::all_logits(**first, tokens, 4), testing_support::all_logits(**second, tokens, 4)));
}

// Whichever allocation fails: the engine does not open and says why, or does without and computes what it should.
TEST_F(AscendFaults, EveryAllocationMayFail) {
  int refused = 0, opened = 0;
  for (const int n : {1, 2, 3, 4, 6, 9, 13, 20, 30, 200}) {
    const Setting fault("ASCEND_SIM_FAULT", fmt::format("malloc:{}", n));
    auto e = open();
    if (!e.is_ok()) {
      ++refused;
      EXPECT_NE(e.status().message().find("207001"), std::string::npos) << n << ": " << e.status().message();
      continue;
    }
    ++opened;
    EXPECT_EQ(decode_traffic(**e, kSteps).size(), expected_.size()) << n;
  }
  EXPECT_GE(refused, 3);
  EXPECT_GE(opened, 1);
}

TEST_F(AscendFaults, EveryStreamMayBeTheLast) {
  int refused = 0, opened = 0;
  for (const int n : {1, 2, 3, 4, 6, 8, 12, 16, 24}) {
    const Setting fault("ASCEND_SIM_FAULT", fmt::format("stream:{}", n));
    auto e = open();
    if (!e.is_ok()) {
      ++refused;
      EXPECT_NE(e.status().message().find("207008"), std::string::npos) << n << ": " << e.status().message();
      continue;
    }
    ++opened;  // a size that could not be captured runs eagerly
    EXPECT_TRUE(same_bits(expected_, decode_traffic(**e, kSteps))) << n;
  }
  EXPECT_GE(refused, 3);
  EXPECT_GE(opened, 1);
}

// Steps of one sequence until the fault comes, which must be in a replay.
TEST_F(AscendFaults, AKernelThatFailsInAReplayIsAnErrorOfItsStepAndOfAllThatFollow) {
  for (const char* kernel : {"aclnnFusedInferAttentionScoreV3", "aclnnSwiGlu"}) {
    const Setting fault("ASCEND_SIM_FAULT", fmt::format("kernel:{}:60", kernel));
    auto e = open();
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    OneSequence run(**e);
    const Status failed = run.steps(90);
    EXPECT_GT((*e)->runner("decode")->stats().replays, 2u);
    expect_one_line(failed, {"507015", kernel, "start the engine anew"});
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 20; ++i) expect_one_line(run.steps(1), {"in an earlier step", "507015", kernel});
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  }
}

// The graph waits for the update, or the next replay for the one before: for ever, on a device.
TEST_F(AscendFaults, AnEventThatNeverComesIsFoundOut) {
  int stuck = 0;
  for (int n = 1; n <= 5; ++n) {
    const Setting fault("ASCEND_SIM_FAULT", fmt::format("event:{}", n));
    auto e = open();
    if (!e.is_ok()) {
      expect_one_line(e.status(), {"50704"});  // of a stream or of an event
      continue;
    }
    OneSequence run(**e);
    const Status failed = run.steps(8);
    if (failed.is_ok()) continue;
    ++stuck;
    expect_one_line(failed, {"50704", "the device is stuck", "start the engine anew"});
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 20; ++i) expect_one_line(run.steps(1), {"in an earlier step", "50704"});
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(7)) << "each waited anew";
  }
  EXPECT_GT(stuck, 2);
}

// The graph is left alone from then on, and the step runs without it.
TEST_F(AscendFaults, AnUpdateThatFailsIsMadeUpFor) {
  const Setting fault("ASCEND_SIM_FAULT", "update:5");
  auto e = open();
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  EXPECT_TRUE(same_bits(expected_, decode_traffic(**e, kSteps)));
  EXPECT_EQ((*e)->runner("decode")->stats().fallbacks.size(), 1u);
}

}  // namespace
}  // namespace reprise::ascend_faults_test

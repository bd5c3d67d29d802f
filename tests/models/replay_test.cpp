// What replays must survive: sizes frozen at capture, garbage in padding and scratch, injected faults, a moved cache,
// failed captures; and what they must not do: allocate, capture again.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "engine/learned.h"
#include "models/model.h"
#include "support/tiny_models.h"
#include "support/traffic.h"

namespace reprise::replay_test {
namespace {

using engine::GraphPolicy;
using testing_support::eager;
using testing_support::same_bits;
using testing_support::tiny_model_path;
using testing_support::Traffic;

struct Setup {
  engine::GraphOptions graph = {};
  bool live_sizes = true;
  int threads = 2;
  int64_t total_tokens = 24 * 256;
  double fraction = 0.8;
  int64_t chunk = 200;
};

Result<std::unique_ptr<engine::Engine>> open(const std::string& model, const Setup& s) {
  DeviceOptions device;
  device.threads = s.threads;
  device.pin_threads = false;
  device.live_sizes = s.live_sizes;
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  engine::EngineOptions o;
  o.model_path = tiny_model_path(model);
  o.chunked_prefill_size = s.chunk;
  o.max_running_requests = 20;
  o.max_total_tokens = s.total_tokens;
  o.mem_fraction_static = s.fraction;
  o.graph = s.graph;
  return engine::Engine::create(o, std::move(platform));
}

std::unique_ptr<engine::Engine> must_open(const std::string& model, const Setup& s) {
  auto e = open(model, s);
  EXPECT_TRUE(e.is_ok()) << e.status().message();
  return e.is_ok() ? std::move(*e) : nullptr;
}

Traffic traffic_of(engine::Engine& e, int64_t batch) {
  return Traffic(e, testing_support::lengths(batch, 1, 3, 17), 8);
}

std::vector<float> traffic(engine::Engine& e, int64_t batch, int decodes = 3) {
  return traffic_of(e, batch).run(decodes);
}

// F05, F06, F07, F29: one program, one capture per size, padding rows really computed.
TEST(FrozenSizes, EveryBatchAndModeGivesTheBitsOfTheEagerRun) {
  auto key = must_open("qwen3_tied", {.graph = eager()});
  for (const auto decode : {GraphMode::Whole, GraphMode::Piecewise}) {
    for (const auto prefill : {GraphMode::Whole, GraphMode::Piecewise}) {
      engine::GraphOptions g;
      g.decode = decode;
      g.prefill = prefill;
      auto e = must_open("qwen3_tied", {.graph = g, .live_sizes = false});
      for (int64_t batch : {1, 2, 3, 5, 8, 11, 16, 17, 20})
        EXPECT_TRUE(same_bits(traffic(*key, batch), traffic(*e, batch))) << "batch " << batch;
      EXPECT_TRUE(e->runner("decode")->stats().fallbacks.empty());
      EXPECT_TRUE(e->runner("prefill")->stats().fallbacks.empty());
      EXPECT_GT(e->runner("decode")->stats().padded_rows, 0u);
    }
  }
}

// F07: whatever lies in padding rows, in the scratch page and in the arena before a step has no influence.
TEST(FrozenSizes, GarbageInPaddingDoesNotReachTheBatch) {
  for (const char* model : {"llama_gqa3_tied", "deepseek_v3_dense"}) {
    auto key = must_open(model, {.graph = eager()});
    auto e = must_open(model, {.live_sizes = false});
    e->set_step_hook([](const engine::StagedStep& s) {
      s.fill(s.arena.data(), 0xff, s.arena.size());  // NaN in every dtype
      const auto& shape = s.pool.shape();
      for (size_t c = 0; c < shape.caches.size(); ++c) s.fill(s.pool.cache(c), 0xff, shape.caches[c].page_bytes);
      const auto rows = static_cast<size_t>(s.live.value[models::kTokens]);
      const auto tokens = s.stage.ints("tokens"), positions = s.stage.ints("positions"),
                 last_rows = s.stage.ints("last_rows");
      for (size_t i = rows; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i % 50), positions[i] = 77;
      for (size_t i = static_cast<size_t>(s.live.value[models::kLogitRows]); i < last_rows.size(); ++i)
        last_rows[i] = static_cast<int32_t>(rows - 1);
    });
    for (int64_t batch : {1, 3, 5, 9, 13, 19})
      EXPECT_TRUE(same_bits(traffic(*key, batch), traffic(*e, batch))) << model << " " << batch;
    EXPECT_GT(e->runner("decode")->stats().padded_rows, 0u) << model;
    EXPECT_GT(e->runner("prefill")->stats().padded_rows, 0u) << model;
  }
}

TEST(FrozenSizes, MemoryOfAllSizesIsThatOfTheLargest) {
  engine::GraphOptions one;
  one.decode_sizes = {20};
  one.prefill_sizes = {200};
  auto largest = must_open("qwen3_tied", {.graph = one, .live_sizes = false});
  auto all = must_open("qwen3_tied", {.live_sizes = false});
  EXPECT_GT(all->runner("decode")->sizes().size(), 5u);
  auto bytes = [](engine::Engine& e) { return e.device().pool().stats().live_bytes; };
  EXPECT_LE(static_cast<double>(bytes(*all)), 1.05 * static_cast<double>(bytes(*largest)));
  EXPECT_EQ(all->runner("decode")->planned_bytes(), largest->runner("decode")->planned_bytes());
}

// F11
TEST(FrozenSizes, WarmUpsAreCounted) {
  engine::GraphOptions g;
  g.warmups = 2;
  g.decode_sizes = {2, 5};
  auto e = must_open("qwen3_tied", {.graph = g, .live_sizes = false});
  EXPECT_EQ(e->runner("decode")->stats().warmups, 2u * 2);
}

TEST(FrozenSizes, KnownTimesChooseTwoSizesOrEager) {
  engine::GraphOptions g;
  g.decode_sizes = {1, 4, 16};
  auto key = must_open("qwen3_tied", {.graph = eager()});
  auto e = must_open("qwen3_tied", {.graph = g, .live_sizes = false});
  auto& costs = const_cast<engine::StepRunner*>(e->runner("decode"))->costs();
  auto know = [&](double one, double four, double sixteen) {
    costs.restore(engine::StepKind::Replay, 1, {one, 1000000});
    costs.restore(engine::StepKind::Replay, 4, {four, 1000000});
    costs.restore(engine::StepKind::Replay, 16, {sixteen, 1000000});
  };
  know(10, 20, 100);
  const auto plan = e->runner("decode")->plan(5);
  ASSERT_TRUE(plan.is_ok());
  EXPECT_EQ(plan->kind, engine::StepPlan::Kind::Split);
  EXPECT_TRUE(same_bits(traffic(*key, 5), traffic(*e, 5)));
  EXPECT_TRUE(same_bits(traffic(*key, 20), traffic(*e, 20)));  // above the largest size
  know(10, 20, 100);                                           // the steps in between were measured
  costs.restore(engine::StepKind::Eager, 5, {5, 1000000});
  EXPECT_EQ(e->runner("decode")->plan(5)->kind, engine::StepPlan::Kind::Eager);
  costs.restore(engine::StepKind::Eager, 5, {99, 1000000});
  know(95, 20, 100);
  EXPECT_EQ(e->runner("decode")->plan(5)->kind, engine::StepPlan::Kind::Replay);
}

TEST(Greedy, TokensAreTheArgmaxOfTheLogits) {
  for (const bool live : {true, false}) {
    auto a = must_open("qwen2_untied", {}), b = must_open("qwen2_untied", {.live_sizes = live});
    for (int64_t batch : {1, 3, 7, 20}) {
      Traffic ta = traffic_of(*a, batch), tb = traffic_of(*b, batch);
      for (int step = 0; step < 3; ++step) {
        auto logits = a->step(ta.items());
        auto next = b->step_greedy(tb.items());
        ASSERT_TRUE(logits.is_ok() && next.is_ok()) << next.status().message();
        const auto vocab = logits->size() / next->size();
        for (size_t r = 0; r < next->size(); ++r) {
          const auto row = logits->subspan(r * vocab, vocab);
          EXPECT_EQ((*next)[r], std::max_element(row.begin(), row.end()) - row.begin());
        }
        const auto ha = a->hidden_states(), hb = b->hidden_states();
        ASSERT_EQ(ha->elements(), hb->elements());
        EXPECT_EQ(std::memcmp(ha->data, hb->data, static_cast<size_t>(ha->elements()) * size_of(ha->dtype)), 0);
        ta.append(), tb.append();
      }
    }
  }
}

// F20: asking for hidden states captures nothing (their values: hidden_states_test.cpp).
TEST(HiddenStates, AreServedForEveryRowWithoutCapturingAgain) {
  auto e = must_open("qwen3_untied", {});
  const auto captures = e->counters().captures;
  engine::Sequence s({1, 5, 9, 2, 4, 8});
  ASSERT_TRUE(e->reserve(s, 6).is_ok());
  const engine::StepItem item{&s, 6, 6};
  auto logits = e->step({&item, 1});
  ASSERT_TRUE(logits.is_ok()) << logits.status().message();
  const auto hidden = e->hidden_states();
  ASSERT_TRUE(hidden.is_ok());
  EXPECT_EQ(hidden->size[0], 6);
  EXPECT_EQ(hidden->size[1], e->config().hidden_size);
  EXPECT_EQ(logits->size(), 6u * static_cast<size_t>(e->config().vocab_size));
  EXPECT_EQ(e->counters().captures, captures);
  e->release(s);
}

TEST(MovedCache, IsBoundAnewAndKeepsItsContent) {
  for (const bool live : {true, false}) {
    auto key = must_open("qwen3_tied", {});
    auto e = must_open("qwen3_tied", {.live_sizes = live, .total_tokens = 10 * 128});
    Traffic a = traffic_of(*key, 7), b = traffic_of(*e, 7);
    EXPECT_TRUE(same_bits(a.run(2), b.run(2)));
    const auto captures = e->counters().captures;
    ASSERT_TRUE(e->resize_kv(40 * 128).is_ok());
    EXPECT_EQ(e->free_pages(), 40 - 7);
    EXPECT_TRUE(same_bits(a.run(2), b.run(2)));
    ASSERT_TRUE(e->resize_kv(9 * 128).is_ok());
    EXPECT_TRUE(same_bits(a.run(1), b.run(1)));
    EXPECT_EQ(e->counters().rebinds, 2u);
    EXPECT_EQ(e->counters().captures, captures);
    const Status lost = e->resize_kv(3 * 128);
    EXPECT_NE(lost.message().find("in use"), std::string::npos) << lost.message();
  }
}

// F27: outputs are views of shared memory; one that is out of date is refused, not read.
TEST(Outputs, OfAnOlderRunAreRefused) {
  auto e = must_open("qwen3_tied", {});
  Traffic t = traffic_of(*e, 3);
  ASSERT_TRUE(e->step(t.items()).is_ok());
  const CompiledModel& prefill = *e->runner("prefill")->last_program();
  const auto fresh = prefill.output("logits");
  ASSERT_TRUE(fresh.is_ok()) << fresh.status().message();
  t.append();
  ASSERT_TRUE(e->step(t.items()).is_ok());
  const auto stale = prefill.output("logits");
  ASSERT_FALSE(stale.is_ok());
  EXPECT_NE(stale.status().message().find("something else has run"), std::string::npos) << stale.status().message();
  const auto now = e->runner("decode")->last_program()->output("logits");
  ASSERT_TRUE(now.is_ok());
  EXPECT_GT(now->generation, fresh->generation);
}

struct FaultCase {
  const char* fault;
  const char* seen;  // what the quarantine's reason says
};

class FaultTest : public testing::TestWithParam<FaultCase> {};

TEST_P(FaultTest, IsCaughtAndServingGoesOnWithTheRightBits) {
  const auto dir = std::filesystem::path(testing::TempDir()) / fmt::format("reprise-fault-{}", ::getpid());
  for (const bool live : {true, false}) {
    std::filesystem::remove_all(dir);
    engine::GraphOptions g;
    g.verify_replay = 1;
    g.report_dir = dir.string();
    g.faults = {*engine::parse_fault(GetParam().fault)};
    auto key = must_open("qwen3_tied", {.graph = eager()});
    auto e = must_open("qwen3_tied", {.graph = g, .live_sizes = live});
    EXPECT_TRUE(same_bits(traffic(*key, 3, 6), traffic(*e, 3, 6)));
    const auto& bad = e->runner("decode")->quarantined();
    ASSERT_EQ(bad.size(), 1u);
    EXPECT_EQ(bad.begin()->first, 4);
    EXPECT_NE(bad.begin()->second.find(GetParam().seen), std::string::npos) << bad.begin()->second;
    EXPECT_GT(e->runner("decode")->stats().fallbacks.at(bad.begin()->second), 0u);
    EXPECT_TRUE(same_bits(traffic(*key, 9, 2), traffic(*e, 9, 2)));  // another size replays on
    if (std::string(GetParam().fault).starts_with("kernel")) continue;
    EXPECT_EQ(e->counters().differences, 1u);
    std::ifstream file(e->counters().last_report);
    std::stringstream text;
    text << file.rdbuf();
    const auto report = parse_json(text.str(), "report");
    ASSERT_TRUE(report.is_ok()) << report.status().message();
    EXPECT_EQ((*report)["size"], 4);
    EXPECT_EQ((*report)["sequences"].size(), 3u);
  }
  std::filesystem::remove_all(dir);
}

INSTANTIATE_TEST_SUITE_P(Kinds, FaultTest,
                         testing::Values(FaultCase{"padding-leak@3", "replay"}, FaultCase{"stale-input@3", "replay"},
                                         FaultCase{"wrong-length@3", "replay"}, FaultCase{"bit-flip@3", "logits"},
                                         FaultCase{"kernel-error@3", "kernel failed"}),
                         [](auto& info) {
                           std::string name = info.param.fault;
                           return name.substr(0, name.find('-'));
                         });

TEST(VerifyReplay, FindsNothingWhereNothingIsWrong) {
  for (const bool live : {true, false}) {
    engine::GraphOptions g;
    g.verify_replay = 2;
    auto key = must_open("llama_gqa3_tied", {.graph = eager()});
    auto e = must_open("llama_gqa3_tied", {.graph = g, .live_sizes = live});
    for (int64_t batch : {1, 4, 6, 13}) EXPECT_TRUE(same_bits(traffic(*key, batch), traffic(*e, batch)));
    EXPECT_EQ(e->counters().checked, 8u);
    EXPECT_EQ(e->counters().differences, 0u);
    EXPECT_TRUE(e->runner("decode")->quarantined().empty());
  }
}

// F14: a capture that fails leaves a size out, or degrades, and the reason is kept.
TEST(FailedCapture, LeavesASizeOutOrDegradesAndServes) {
  auto key = must_open("qwen3_tied", {.graph = eager()});
  engine::GraphOptions g;
  g.decode_sizes = {2, 8, 20};
  g.prefill_sizes = {200};
  g.faults = {*engine::parse_fault("alloc@3")};  // the capture of prefill, size 20 of decode, then size 8
  auto frozen = must_open("qwen3_tied", {.graph = g, .live_sizes = false});
  EXPECT_EQ(frozen->runner("decode")->sizes(), (std::vector<int64_t>{2, 20}));
  ASSERT_EQ(frozen->runner("decode")->dropped().size(), 1u);
  EXPECT_EQ(frozen->runner("decode")->dropped()[0].size, 8);
  EXPECT_TRUE(same_bits(traffic(*key, 5), traffic(*frozen, 5)));

  g.faults = {*engine::parse_fault("alloc@2")};
  auto degraded = must_open("qwen3_tied", {.graph = g});
  EXPECT_EQ(degraded->runner("decode")->mode(), GraphMode::Piecewise);
  EXPECT_TRUE(same_bits(traffic(*key, 5), traffic(*degraded, 5)));

  g.faults = {*engine::parse_fault("alloc@2"), *engine::parse_fault("alloc@3")};
  auto off = must_open("qwen3_tied", {.graph = g});
  EXPECT_EQ(off->runner("decode")->mode(), GraphMode::Eager);
  EXPECT_NE(off->runner("decode")->uncaptured_reason().find("injected"), std::string::npos);
  EXPECT_TRUE(same_bits(traffic(*key, 5), traffic(*off, 5)));

  g.policy = GraphPolicy::Required;
  g.faults = {*engine::parse_fault("alloc@2")};
  const auto refused = open("qwen3_tied", {.graph = g});
  ASSERT_FALSE(refused.is_ok());
  EXPECT_NE(refused.status().message().find("`graph` required"), std::string::npos) << refused.status().message();
}

// F63: too little memory for activations means smaller chunks, and says so.
TEST(MemoryBudget, ShrinksTheChunkOrNamesTheFlags) {
  auto full = must_open("qwen3_tied", {});
  // Between what the whole chunk and half of it need; part of that does not depend on the chunk.
  const auto bytes = static_cast<double>(full->runner("prefill")->planned_bytes());
  const auto half = static_cast<double>(must_open("qwen3_tied", {.chunk = 100})->runner("prefill")->planned_bytes());
  ASSERT_LT(half, bytes);
  const auto memory = static_cast<double>(full->device().info().memory_bytes);
  auto e = must_open("qwen3_tied", {.fraction = 0.5 * (half + bytes) / memory});
  EXPECT_EQ(e->max_step_tokens(), 100);
  EXPECT_LE(e->runner("prefill")->sizes().back(), 100);
  const auto none = open("qwen3_tied", {.fraction = 0.01 * bytes / memory});
  ASSERT_FALSE(none.is_ok());
  for (const char* flag : {"`chunked_prefill_size`", "`max_running_requests`", "`mem_fraction_static`"})
    EXPECT_NE(none.status().message().find(flag), std::string::npos) << none.status().message();
}

TEST(Learned, SizesComeFromTheTrafficOfEarlierRuns) {
  const auto dir = std::filesystem::path(testing::TempDir()) / fmt::format("reprise-learned-{}", ::getpid());
  std::filesystem::remove_all(dir);
  engine::GraphOptions g;
  g.learned_dir = dir.string();
  g.learn_decode_sizes = true;
  {
    auto e = must_open("qwen3_tied", {.graph = g});
    EXPECT_EQ(e->runner("decode")->sizes().back(), 20);
    EXPECT_GT(e->runner("decode")->sizes().size(), 3u);  // by rule
    Traffic three = traffic_of(*e, 3);
    for (int i = 0; i < 8; ++i) (void)traffic(*e, 3, 7), (void)traffic(*e, 7, 7);
  }
  auto e = must_open("qwen3_tied", {.graph = g});
  EXPECT_EQ(e->runner("decode")->sizes(), (std::vector<int64_t>{3, 7, 20}));
  EXPECT_TRUE(e->runner("decode")->costs().known(engine::StepKind::Replay, 3).has_value());
  e.reset();
  // A spoilt file is told and replaced.
  std::string file;
  for (auto& entry : std::filesystem::directory_iterator(dir)) file = entry.path().string();
  std::ofstream(file) << "{\"version\": 1, \"decode\": 7}";
  EXPECT_FALSE(engine::load_learned(file).is_ok());
  e = must_open("qwen3_tied", {.graph = g});
  EXPECT_GT(e->runner("decode")->sizes().size(), 3u);
  e.reset();
  EXPECT_TRUE(engine::load_learned(file).is_ok());
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace reprise::replay_test

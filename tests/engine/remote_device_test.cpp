// An engine on a device that is as unlike the CPU as can be: memory that the host cannot touch, work done late, sizes
// frozen at capture, no slots that are skipped, keys and values apart, and lengths that the host must hand over at
// every step. Its numbers are those of the CPU, and the same bits in every graph mode.
#include <gtest/gtest.h>

#include <cmath>

#include "support/plain_kernels.h"
#include "support/taking_device.h"
#include "support/tiny_models.h"

namespace reprise::engine::remote_device_test {
namespace {

using testing_support::Taken;
using testing_support::TakingDevice;
using testing_support::TakingOptions;

constexpr int64_t kContext = 160;

struct Setup {
  GraphOptions graph = {};
  TakingOptions device = {.skips_negative_slots = false};
  int64_t chunk = 24;
};

EngineOptions options_for(const std::string& model, const Setup& s) {
  EngineOptions o;
  o.model_path = testing_support::tiny_model_path(model);
  o.dtype = DType::F32;
  o.context_length = kContext;
  o.max_running_requests = 3;
  o.chunked_prefill_size = s.chunk;
  o.max_total_tokens = 5 * 256;
  o.graph = s.graph;
  o.graph.choose_by_cost = false;
  return o;
}

Result<std::unique_ptr<Engine>> open_remote(const std::string& model, const Setup& s, Taken& taken) {
  Platform p;
  p.ops = std::make_unique<OpRegistry>();
  register_core_ops(*p.ops);
  p.kernels = std::make_unique<KernelRegistry>();
  testing_support::register_plain_kernels(*p.kernels);
  p.device = std::make_unique<TakingDevice>(s.device, taken);
  return Engine::create(options_for(model, s), std::move(p));
}

std::vector<int32_t> prompt_of(int64_t n, int seed) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(static_cast<int32_t>((i * 7 + seed * 13) % 61 + 1));
  return out;
}

// Logits of three sequences of unequal lengths, decoded together for `steps` steps: every length changes at every step.
std::vector<float> traffic(Engine& e, int steps = 6) {
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<float> out;
  const auto step = [&](const std::vector<StepItem>& items) {
    auto logits = e.step(items);
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    if (!logits.is_ok()) return;
    out.insert(out.end(), logits->begin(), logits->end());
  };
  int seed = 0;
  for (const int64_t length : {5, 126, 33}) {
    sequences.push_back(std::make_unique<Sequence>(prompt_of(length, seed++)));
    Sequence& s = *sequences.back();
    const Status room = e.reserve(s, length + steps);
    EXPECT_TRUE(room.is_ok()) << room.message();
    while (s.uncached() > 0) step({{&s, std::min(e.max_step_tokens(), s.uncached()), true}});
  }
  for (int i = 0; i < steps; ++i) {
    std::vector<StepItem> items;
    for (size_t k = 0; k < sequences.size() - static_cast<size_t>(i == 3 ? 1 : 0); ++k) {
      sequences[k]->append((i * 5 + static_cast<int>(k)) % 60 + 1);
      items.push_back({sequences[k].get(), 1, true});
    }
    step(items);
  }
  for (auto& s : sequences) e.release(*s);
  return out;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_FALSE(a.empty());
  float largest = 0, gap = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(std::isfinite(a[i])) << i;
    largest = std::max(largest, std::fabs(b[i]));
    gap = std::max(gap, std::fabs(a[i] - b[i]));
  }
  EXPECT_GT(largest, 0.01f);
  EXPECT_LT(gap, 2e-4f * largest);
}

GraphOptions modes(GraphMode decode, GraphMode prefill) {
  GraphOptions g;
  g.decode = decode;
  g.prefill = prefill;
  g.policy = decode == GraphMode::Eager ? GraphPolicy::Off : GraphPolicy::Auto;
  return g;
}

TEST(RemoteDevice, ComputesWhatTheCpuComputesInEveryMode) {
  for (const char* model : {"llama_gqa3_tied", "mistral_window24", "qwen2_tied", "qwen3_untied"}) {
    SCOPED_TRACE(model);
    auto platform = make_platform({DeviceKind::Cpu, "auto", 2, false});
    ASSERT_TRUE(platform.is_ok());
    auto cpu = Engine::create(options_for(model, {}), std::move(*platform));
    ASSERT_TRUE(cpu.is_ok()) << cpu.status().message();
    const std::vector<float> expected = traffic(**cpu);
    std::vector<float> first;
    for (const auto& [decode, prefill] : {std::pair{GraphMode::Eager, GraphMode::Eager},
                                          {GraphMode::Whole, GraphMode::Piecewise},
                                          {GraphMode::Piecewise, GraphMode::Piecewise}}) {
      Taken taken;
      auto e = open_remote(model, {.graph = modes(decode, prefill)}, taken);
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      const uint64_t captures = (*e)->counters().captures;
      const std::vector<float> got = traffic(**e);
      if (first.empty()) {
        first = got;
        expect_near(got, expected);
      }
      EXPECT_EQ(got, first) << graph_mode_name(decode);
      EXPECT_EQ((*e)->counters().captures, captures) << "nothing is captured anew";
      EXPECT_EQ((*e)->kv_pool().shape().caches.front().name, "kv.0.keys");
      if (decode == GraphMode::Whole) {
        EXPECT_TRUE((*e)->runner("decode")->stats().fallbacks.empty());
        EXPECT_EQ((*e)->runner("decode")->stats().replays, 6u);
        EXPECT_EQ(taken.patches, 6 * static_cast<size_t>((*e)->config().num_hidden_layers));
      } else {
        EXPECT_EQ(taken.patches, 0u) << "attention is launched";
      }
    }
  }
}

TEST(RemoteDevice, WholeGraphsLeaveLaunchesOutWhereNothingCanBePatched) {
  Taken taken;
  auto eager = open_remote("llama_gqa3_tied", {.graph = modes(GraphMode::Eager, GraphMode::Eager)}, taken);
  ASSERT_TRUE(eager.is_ok()) << eager.status().message();
  auto e = open_remote(
      "llama_gqa3_tied",
      {.graph = modes(GraphMode::Whole, GraphMode::Whole), .device = {.patches = false, .skips_negative_slots = false}},
      taken);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  EXPECT_EQ(traffic(**e), traffic(**eager));
  EXPECT_EQ(taken.recorded, 0);
  EXPECT_EQ((*e)->runner("decode")->stats().replays, 6u);
}

TEST(RemoteDevice, MovedCachesAreFoundAgain) {
  for (const bool free_patches : {true, false}) {
    Taken taken;
    auto e = open_remote("llama_gqa3_tied", {.device = {.free_patches = free_patches, .skips_negative_slots = false}},
                         taken);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    const std::vector<float> before = traffic(**e);
    const uint64_t captures = (*e)->counters().captures;
    ASSERT_TRUE((*e)->resize_kv(9 * 128).is_ok());
    EXPECT_EQ(traffic(**e), before);
    EXPECT_EQ((*e)->counters().rebinds, 1u);
    if (free_patches)
      EXPECT_EQ((*e)->counters().captures, captures);
    else
      EXPECT_EQ((*e)->counters().captures, 2 * captures);
  }
}

// Decode keeps all its sizes; prefill has what is left, from its smallest size to its largest.
TEST(RemoteDevice, WhereGraphsHaveNoRoomFewerSizesAreSpreadOverAll) {
  Taken none, taken;
  struct Setup off;
  off.graph.policy = GraphPolicy::Off;
  auto eager = open_remote("qwen3_tied", off, none);
  ASSERT_TRUE(eager.is_ok()) << eager.status().message();
  struct Setup s {
    .device = {.free_patches = false, .skips_negative_slots = false, .room = 5 }
  };
  s.graph.prefill = GraphMode::Whole;
  auto e = open_remote("qwen3_tied", s, taken);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  EXPECT_EQ((*e)->runner("decode")->sizes(), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ((*e)->runner("prefill")->sizes(), (std::vector<int64_t>{4, 24})) << "3 graphs of decode";
  EXPECT_EQ(taken.graphs, 5u);
  const auto& dropped = (*e)->runner("prefill")->dropped();
  ASSERT_EQ(dropped.size(), 4u);
  EXPECT_EQ(dropped[0].size, 20);
  EXPECT_EQ(dropped[3].size, 8);
  for (const auto& d : dropped) EXPECT_NE(d.reason.find("room for 2 of 6 sizes"), std::string::npos) << d.reason;
  EXPECT_EQ(traffic(**e), traffic(**eager));
}

// Of seven graphs decode may have three and a half, and needs three; the rest is for prefill. A list that was named is
// captured whole.
TEST(RemoteDevice, GraphsTakeAHundredthOfTheMemory) {
  struct Setup s {
    .device = {.skips_negative_slots = false, .memory_bytes = 7 * 100 * TakingOptions::kGraphBytes }
  };
  s.graph.prefill = GraphMode::Whole;
  Taken none, taken, named;
  struct Setup off = s;
  off.graph.policy = GraphPolicy::Off;
  auto eager = open_remote("qwen3_tied", off, none);
  ASSERT_TRUE(eager.is_ok()) << eager.status().message();
  auto e = open_remote("qwen3_tied", s, taken);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  EXPECT_EQ((*e)->runner("decode")->sizes(), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ((*e)->runner("prefill")->sizes().size(), 4u);
  EXPECT_EQ((*e)->runner("prefill")->sizes().back(), 24);
  const auto& dropped = (*e)->runner("prefill")->dropped();
  ASSERT_EQ(dropped.size(), 2u);
  EXPECT_NE(dropped[0].reason.find("of the device's memory; allowed: 0.0 MB"), std::string::npos) << dropped[0].reason;
  EXPECT_EQ(traffic(**e), traffic(**eager));
  s.graph.prefill_sizes = {4, 8, 12, 16, 20, 24};
  auto all = open_remote("qwen3_tied", s, named);
  ASSERT_TRUE(all.is_ok()) << all.status().message();
  EXPECT_EQ((*all)->runner("prefill")->sizes(), s.graph.prefill_sizes);
}

TEST(RemoteDevice, GreedyTokensAndHiddenStatesComeToTheHost) {
  Taken taken;
  auto e = open_remote("qwen3_tied", {}, taken);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  Sequence s(prompt_of(11, 3));
  ASSERT_TRUE((*e)->reserve(s, 20).is_ok());
  const StepItem item{&s, 11, 1};
  auto logits = (*e)->step({&item, 1});
  ASSERT_TRUE(logits.is_ok()) << logits.status().message();
  const auto best = static_cast<int32_t>(std::max_element(logits->begin(), logits->end()) - logits->begin());
  (*e)->release(s);
  ASSERT_TRUE((*e)->reserve(s, 20).is_ok());
  const StreamStats before = (*e)->stream_stats();
  auto next = (*e)->step_greedy({&item, 1});
  ASSERT_TRUE(next.is_ok()) << next.status().message();
  ASSERT_EQ(next->size(), 1u);
  EXPECT_EQ((*next)[0], best);
  EXPECT_EQ((*e)->stream_stats().copies_to_host - before.copies_to_host, 2u) << "the tokens, and what they come from";
  EXPECT_EQ((*e)->stream_stats().copies_to_device - before.copies_to_device, 1u) << "all inputs together";
  auto hidden = (*e)->hidden_states();
  ASSERT_TRUE(hidden.is_ok()) << hidden.status().message();
  EXPECT_EQ(hidden->elements(), (*e)->config().hidden_size);
  EXPECT_TRUE(std::isfinite(static_cast<const float*>(hidden->data)[0]));
  (*e)->release(s);
}

// The checks of a step reach the device's memory too.
TEST(RemoteDevice, ReplaysAreCheckedAndFaultsFound) {
  GraphOptions checked;
  checked.verify_replay = 1;
  checked.report_dir = testing::TempDir();
  Taken taken;
  auto sound = open_remote("llama_gqa3_tied", {.graph = checked}, taken);
  ASSERT_TRUE(sound.is_ok()) << sound.status().message();
  const std::vector<float> expected = traffic(**sound);
  EXPECT_GT((*sound)->counters().checked, 5u);
  EXPECT_EQ((*sound)->counters().differences, 0u);
  checked.faults = {*parse_fault("bit-flip@8")};
  auto broken = open_remote("llama_gqa3_tied", {.graph = checked}, taken);
  ASSERT_TRUE(broken.is_ok()) << broken.status().message();
  EXPECT_EQ(traffic(**broken), expected) << "the right answer all the same";
  EXPECT_EQ((*broken)->counters().differences, 1u);
}

}  // namespace
}  // namespace reprise::engine::remote_device_test

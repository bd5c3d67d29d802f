// A device whose fused operator rounds less often than its parts: replays are held to the bits of the same passes run
// eagerly, the fused run to a bound from the unfused one; and dtypes that a device has no kernels for.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "support/plain_kernels.h"
#include "support/taking_device.h"
#include "support/temporary_path.h"
#include "support/tiny_models.h"

namespace reprise::engine::inexact_device_test {
namespace {

using testing_support::Taken;
using testing_support::TakingDevice;

// silu(first half) * second half without a rounding in between; more by Millis thousandths.
template <int Millis>
void silu_mul(const LaunchArgs& a, const LiveSizes& live) {
  const int64_t n = a.dim[1].value(live);
  for (int64_t t = 0; t < a.dim[0].value(live); ++t)
    for (int64_t i = 0; i < n; ++i) {
      const double gate = static_cast<float*>(a.ptr[0])[t * 2 * n + i],
                   up = static_cast<float*>(a.ptr[0])[t * 2 * n + n + i];
      static_cast<float*>(a.ptr[1])[t * n + i] =
          static_cast<float>(gate / (1 + std::exp(-gate)) * up * (1 + Millis / 1000.0));
    }
}

KernelEntry fused_entry(null::NullKernel kernel, bool exact) {
  KernelEntry e;
  e.name = "plain.silu_mul";
  e.op = "silu_mul";
  e.device = DeviceKind::Null;
  e.exact = exact;
  e.accepts = [](const OpCall& c) {
    return c.in[0].dtype == DType::F32 ? Status::ok() : error(Code::Unsupported, "floats other than f32");
  };
  e.bind = [](const OpCall& c, LaunchArgs& a) {
    a.dim[0] = c.out[0].shape[0];
    a.dim[1] = c.out[0].shape[1];
  };
  e.part[0] = null::opaque(kernel);
  return e;
}

struct Opening {
  std::optional<KernelEntry> fused;
  GraphOptions graph = {};
  std::optional<DType> dtype = DType::F32;
  std::optional<DType> kv_dtype = {};
};

Result<std::unique_ptr<Engine>> open(const Opening& s, const std::string& model = "llama_gqa3_tied") {
  static Taken taken;
  Platform p;
  p.ops = std::make_unique<OpRegistry>();
  register_core_ops(*p.ops);
  p.kernels = std::make_unique<KernelRegistry>();
  testing_support::register_plain_kernels(*p.kernels);
  if (s.fused) p.kernels->add(*s.fused);
  p.device = std::make_unique<TakingDevice>(testing_support::TakingOptions{.skips_negative_slots = false}, taken);
  EngineOptions o;
  o.model_path = testing_support::tiny_model_path(model);
  o.dtype = s.dtype;
  o.kv_dtype = s.kv_dtype;
  o.context_length = 64;
  o.max_running_requests = 2;
  o.chunked_prefill_size = 24;
  o.max_total_tokens = 512;
  o.graph = s.graph;
  o.graph.choose_by_cost = false;
  return Engine::create(o, std::move(p));
}

std::vector<float> traffic(Engine& e) {
  Sequence s({5, 6, 7, 8, 9});
  std::vector<float> out;
  EXPECT_TRUE(e.reserve(s, 12).is_ok());
  for (int i = 0; i < 6; ++i) {
    const StepItem item{&s, s.uncached(), 1};
    auto logits = e.step({&item, 1});
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    if (!logits.is_ok()) break;
    out.insert(out.end(), logits->begin(), logits->end());
    s.append(10 + i);
  }
  e.release(s);
  return out;
}

GraphOptions checked(const std::string& folder) {
  GraphOptions g;
  g.verify_replay = 1;
  g.report_dir = folder;
  return g;
}

TEST(InexactDevice, ReplaysKeepTheBitsOfTheirPassesAndTheBoundOfTheUnfusedRun) {
  const std::string folder = testing_support::temporary_path("inexact");
  auto unfused = open({});
  ASSERT_TRUE(unfused.is_ok()) << unfused.status().message();
  auto fused = open({fused_entry(silu_mul<0>, false), checked(folder)});
  ASSERT_TRUE(fused.is_ok()) << fused.status().message();
  const std::vector<float> plain = traffic(**unfused), rounded_once = traffic(**fused);
  EXPECT_NE(plain, rounded_once) << "the fused kernel must round otherwise, or this proves nothing";
  EXPECT_EQ((*fused)->counters().checked, 6u);
  EXPECT_EQ((*fused)->counters().differences, 0u);
  // The same kernel, declared exact, differs at once.
  auto lying = open({fused_entry(silu_mul<0>, true), checked(folder)});
  ASSERT_TRUE(lying.is_ok()) << lying.status().message();
  (void)traffic(**lying);
  EXPECT_GT((*lying)->counters().differences, 0u);
}

TEST(InexactDevice, FaultsOfReplaysAreFoundAndTheAnswerStays) {
  const std::string folder = testing_support::temporary_path("inexact_faults");
  auto sound = open({fused_entry(silu_mul<0>, false)});
  ASSERT_TRUE(sound.is_ok()) << sound.status().message();
  const std::vector<float> expected = traffic(**sound);
  for (const char* fault : {"bit-flip@3", "stale-input@4", "wrong-length@3", "padding-leak@3"}) {
    GraphOptions graph = checked(folder);
    graph.faults = {*parse_fault(fault)};
    graph.decode_sizes = {2};  // one row is padding
    auto e = open({fused_entry(silu_mul<0>, false), graph});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    EXPECT_EQ(traffic(**e), expected) << fault;
    EXPECT_EQ((*e)->counters().differences, 1u) << fault;
  }
}

// A thousandth is far more than roundings are.
TEST(InexactDevice, AWrongFusionIsOutsideTheBound) {
  const std::string folder = testing_support::temporary_path("inexact_wrong");
  auto e = open({fused_entry(silu_mul<1>, false), checked(folder)});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const std::vector<float> found = traffic(**e);
  EXPECT_EQ((*e)->counters().differences, 1u) << "nothing fused runs after it";
  auto report = parse_ordered_json(
      [&] {
        std::ifstream in((*e)->counters().last_report);
        return std::string(std::istreambuf_iterator<char>(in), {});
      }(),
      "report");
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  EXPECT_EQ((*report)["fusion"], true);
  EXPECT_NE((*report)["what"].get<std::string>().find("silu_mul"), std::string::npos) << *report;
  // The step that was found wrong, and all after it, are answered by unfused runs.
  auto unfused = open({});
  ASSERT_TRUE(unfused.is_ok()) << unfused.status().message();
  const std::vector<float> right = traffic(**unfused);
  EXPECT_EQ(right, found);
}

// The checkpoint is bf16; the kernels are fp32's.
TEST(DeviceDtypes, AutoTakesWhatTheDeviceHasKernelsFor) {
  auto e = open({.dtype = std::nullopt});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  EXPECT_EQ((*e)->dtype(), DType::F32);
  EXPECT_EQ((*e)->options().kv_dtype, DType::F32);
  auto named = open({});
  ASSERT_TRUE(named.is_ok()) << named.status().message();
  EXPECT_EQ(traffic(**e), traffic(**named));
}

TEST(DeviceDtypes, AFlagThatItCannotDoIsOneLineWithWhatItCan) {
  const auto expect_line = [](const Opening& setup, const std::string& expected) {
    const auto e = open(setup);
    ASSERT_FALSE(e.is_ok()) << expected;
    EXPECT_EQ(e.status().message(), expected);
  };
  expect_line({.dtype = DType::BF16},
              "`dtype` bfloat16: null has no kernels for this model in it; allowed: auto, float32");
  expect_line({.dtype = DType::F16},
              "`dtype` float16: null has no kernels for this model in it; allowed: auto, float32");
  expect_line({.dtype = DType::F32, .kv_dtype = DType::BF16},
              "`kv_cache_dtype` bfloat16: null has no kernels for this model's cache in it; allowed: auto");
  // Where no dtype helps the reason stays what it was.
  const auto e = open({}, "mixtral_top2");
  ASSERT_FALSE(e.is_ok());
  EXPECT_NE(e.status().message().find("moe_gate"), std::string::npos) << e.status().message();
}

}  // namespace
}  // namespace reprise::engine::inexact_device_test

// F45: a model's source names no hardware. What it is traced to, before any pass, is the same text for every device;
// what the passes make of it is not, or the comparison would prove nothing.
#include <gtest/gtest.h>

#include "support/tiny_models.h"

namespace reprise::one_trace_test {
namespace {

struct Traced {
  std::string decode, prefill, compiled;
};

Traced trace(const std::string& model, DeviceKind kind, DType dtype) {
  DeviceOptions device;
  device.kind = kind;
  device.ascend_runtime = "sim";
  device.threads = 2;
  device.pin_threads = false;
  auto platform = make_platform(device);
  EXPECT_TRUE(platform.is_ok()) << platform.status().message();
  engine::EngineOptions o;
  o.model_path = testing_support::tiny_model_path(model);
  o.dtype = dtype;
  o.chunked_prefill_size = 64;
  o.max_running_requests = 2;
  o.max_total_tokens = 4 * 128;
  o.graph.policy = engine::GraphPolicy::Off;
  o.graph.pipeline.passes.keep_graphs = true;
  auto e = engine::Engine::create(o, std::move(*platform));
  EXPECT_TRUE(e.is_ok()) << e.status().message();
  if (!e.is_ok()) return {};
  return {(*e)->passes("decode")->traced, (*e)->passes("prefill")->traced, (*e)->graph_text()};
}

TEST(OneTrace, ServesEveryDevice) {
  for (const char* model : {"llama_gqa3_tied", "mistral_full", "qwen2_untied", "qwen3_tied", "mixtral_top2",
                            "qwen2_moe_shared", "qwen3_moe_norm"}) {
    SCOPED_TRACE(model);
    const Traced cpu = trace(model, DeviceKind::Cpu, DType::BF16), null = trace(model, DeviceKind::Null, DType::BF16),
                 ascend = trace(model, DeviceKind::Ascend, DType::BF16);
    EXPECT_NE(cpu.decode.find("paged_attention"), std::string::npos);
    EXPECT_EQ(null.decode, cpu.decode);
    EXPECT_EQ(ascend.decode, cpu.decode);
    EXPECT_EQ(null.prefill, cpu.prefill);
    EXPECT_EQ(ascend.prefill, cpu.prefill);
    EXPECT_NE(ascend.compiled, cpu.compiled);
    for (const std::string& text : {cpu.decode, cpu.prefill})
      for (const char* device : {"cpu", "ascend", "cuda", "null", "avx"})
        EXPECT_EQ(text.find(device), std::string::npos) << device;
  }
  // Ascend has no kernels for these; another dtype.
  for (const char* model : {"deepseek_v2_lite", "deepseek_v3_dense", "mistral_window24"})
    EXPECT_EQ(trace(model, DeviceKind::Null, DType::F32).decode, trace(model, DeviceKind::Cpu, DType::F32).decode);
}

}  // namespace
}  // namespace reprise::one_trace_test

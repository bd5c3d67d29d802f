// The tiny checkpoints of tests/data/models and engines on them, shared by tests.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/all.h"
#include "checkpoint/safetensors.h"
#include "engine/engine.h"
#include "support/test_mode.h"

namespace reprise::testing_support {

// Families that differ from Llama by small ops (tools/golden/small_families.py).
inline const std::vector<std::string>& small_families() {
  static const std::vector<std::string> names{"gemma2",
                                              "gemma3",
                                              "gemma3_old",
                                              "gemma3_text_of_images",
                                              "phi3_partial",
                                              "phi3_longrope",
                                              "glm4",
                                              "glm4_moe",
                                              "olmo2",
                                              "olmo3",
                                              "olmo3_old",
                                              "granite",
                                              "granite_moe",
                                              "smollm3",
                                              "cohere",
                                              "cohere2",
                                              "starcoder2",
                                              "exaone4_window",
                                              "exaone4_full",
                                              "ernie",
                                              "ernie_moe",
                                              "seed_oss",
                                              "hunyuan",
                                              "minimax_m2",
                                              "falcon3",
                                              "mistral_small3",
                                              "gpt_oss",
                                              "qwen3_next",
                                              "qwen3_5",
                                              "qwen3_5_moe_text_of_images",
                                              "granite_hybrid",
                                              "granite_hybrid_plain",
                                              "granite_hybrid_dense",
                                              "nemotron_h",
                                              "nemotron_h_moe",
                                              "hunyuan_moe",
                                              "internlm3",
                                              "ministral3",
                                              "llama4",
                                              "llama4_lists",
                                              "glm",
                                              "olmoe",
                                              "gemma",
                                              "arcee"};
  return names;
}

inline const std::vector<std::string>& tiny_models() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all{"llama_bias",          "llama_gqa3_tied",
                                 "llama_gqa4_sharded",  "llama_mha_untied",
                                 "llama_rope_dynamic",  "llama_rope_dynamic_new",
                                 "llama_rope_linear",   "llama_rope_llama3",
                                 "llama_rope_yarn",     "llama_rope_yarn_options",
                                 "mistral_full",        "mistral_window24",
                                 "mistral_layer_types", "qwen25_yarn",
                                 "qwen2_tied",          "qwen2_untied",
                                 "qwen3_tied",          "qwen3_untied",
                                 "deepseek_v2_dense",   "deepseek_v3_dense",
                                 "mixtral_top2",        "mixtral_one_expert",
                                 "qwen3_moe_norm",      "qwen3_moe_top8",
                                 "qwen3_moe_top1",      "qwen2_moe_shared",
                                 "qwen2_moe_lopsided",  "deepseek_v2_moe",
                                 "deepseek_v2_lite",    "deepseek_v3_moe",
                                 "deepseek_v3_kimi_k2"};
    all.insert(all.end(), small_families().begin(), small_families().end());
    return all;
  }();
  return names;
}

// Heads of the sizes that published models have, with one to eight queries for a key.
inline const std::vector<std::string>& head_sizes() {
  static const std::vector<std::string> names{"llama_head80_gqa8", "qwen3_head96", "mistral_head192_gqa2",
                                              "llama_head256_gqa8"};
  return names;
}

// Of models that need an op for which Ascend has no kernel, that op: the device refuses it by name.
inline const std::map<std::string, std::string>& lacking_on_ascend() {
  static const std::map<std::string, std::string> ops{
      {"gemma2", "paged_attention"}, {"llama4", "paged_attention"}, {"llama4_lists", "paged_attention"}};
  return ops;
}

inline std::string tiny_model_path(const std::string& name) {
  return std::string(REPRISE_SOURCE_DIR) + "/tests/data/models/" + name;
}

struct EngineSetup {
  DType dtype = DType::F32;
  std::optional<DType> kv_dtype = {};
  std::string isa = "auto";
  DeviceKind device = DeviceKind::Cpu;  // Ascend: the simulator
  int threads = 2;
  int64_t chunk = 256;
  int64_t rows = 16;
  int64_t context = 256;
  int64_t total_tokens = 0;
  checkpoint::Quantization quantization = checkpoint::Quantization::Auto;
  bool expanded = false;              // --mla-prefill
  bool fia = true;                    // Ascend: the fused attention, or the pair of operators before it
  const CudaStandIn* cuda = nullptr;  // CUDA: in place of a GPU
  std::optional<engine::GraphPolicy> policy = {};
  std::optional<GraphMode> prefill = {};
  std::shared_ptr<ranks::Member> member = nullptr;  // of a world of several ranks
  bool reduce = false;                              // those ranks add sums
  int64_t ep_size = 1;
  int64_t sequence_parts = 1;
  bool count_experts = false;
  int64_t loras = 0;
  int64_t most_drafts = 0;
  bool live_sizes = true;          // of the CPU; false: graphs freeze sizes
  engine::VerifyRows verify = {};  // where they do
  int64_t verify_replay = 0;
  std::vector<engine::Fault> faults = {};
  std::string reports = {};                 // where differences are written down
  std::vector<std::string> overrides = {};  // of the configuration
};

inline Result<std::unique_ptr<engine::Engine>> open_engine(const std::string& path, const EngineSetup& s) {
  DeviceOptions device;
  device.kind = s.device;
  device.ascend_runtime = "sim";
  device.ascend_fia = s.fia;
  device.cuda_stand_in = s.cuda;
  device.isa = s.isa;
  device.threads = s.threads;
  device.pin_threads = false;
  device.live_sizes = s.live_sizes;
  device.member = s.member;
  engine::EngineOptions o;
  o.member = s.member;
  o.reduce_over_ranks = s.reduce;
  o.ep_size = s.ep_size;
  o.sequence_parts = s.sequence_parts;
  o.max_loras = s.loras;
  o.most_drafts = s.most_drafts;
  if (s.count_experts) o.count_experts = engine::CountExperts::On;
  RETURN_IF_ERROR(apply_test_mode(o, device));
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  o.model_path = path;
  o.overrides = s.overrides;
  o.dtype = s.dtype;
  o.kv_dtype = s.kv_dtype;
  o.quantization = s.quantization;
  o.chunked_prefill_size = s.chunk;
  o.graph.pipeline.expand_latents = s.expanded;
  o.max_running_requests = s.rows;
  o.context_length = s.context;
  if (s.policy) o.graph.policy = *s.policy;
  if (s.prefill) o.graph.prefill = *s.prefill;
  if (s.device != DeviceKind::Cpu) {  // every size is a capture of its own, and the simulator is no fast device
    o.graph.decode_sizes = {s.rows};
    o.graph.prefill_sizes = {std::min<int64_t>(s.chunk, 64)};
  }
  o.graph.verify = s.verify;
  o.graph.verify_replay = s.verify_replay;
  o.graph.faults = s.faults;
  o.graph.report_dir = s.reports;
  // A dynamically scaled window may be exceeded; that is its purpose.
  o.max_total_tokens = s.total_tokens ? s.total_tokens : 16 * s.context;
  return engine::Engine::create(o, std::move(platform));
}

// Logits of every position of `tokens`, in steps of at most `chunk` tokens (and as many rows with logits as the engine
// allows).
inline std::vector<float> all_logits(engine::Engine& e, std::span<const int32_t> tokens, int64_t chunk,
                                     int32_t adapter = 0) {
  engine::Sequence s(std::vector<int32_t>(tokens.begin(), tokens.end()));
  s.set_adapter(adapter);
  std::vector<float> out;
  Status ok = e.reserve(s, s.size());
  EXPECT_TRUE(ok.is_ok()) << ok.message();
  while (s.uncached() > 0) {
    const int64_t n = std::min({chunk, s.uncached(), e.max_step_rows(), e.max_step_tokens()});
    const engine::StepItem item{&s, n, n};
    auto logits = e.step({&item, 1});
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    if (!logits.is_ok()) break;
    out.insert(out.end(), logits->begin(), logits->end());
  }
  e.release(s);
  return out;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return !a.empty() && a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// The logits of `tokens`, which must be the same bits in chunks of every size and from every engine that
// open(others[i]) gives.
template <typename Options, typename Open>
std::vector<float> same_logits_everywhere(engine::Engine& e, const std::vector<int32_t>& tokens,
                                          const std::vector<Options>& others, const Open& open) {
  const std::vector<float> expected = all_logits(e, tokens, 1000);
  for (int64_t chunk : {1, 7, 16}) EXPECT_TRUE(same_bits(expected, all_logits(e, tokens, chunk))) << chunk;
  for (size_t i = 0; i < others.size(); ++i) {
    auto again = open(others[i]);
    EXPECT_TRUE(again.is_ok()) << again.status().message();
    if (!again.is_ok()) continue;
    for (int64_t chunk : {1000, 6, 1})
      EXPECT_TRUE(same_bits(expected, all_logits(**again, tokens, chunk))) << "engine " << i << ", chunk " << chunk;
  }
  return expected;
}

}  // namespace reprise::testing_support

// Engines on the Ascend backend over the simulator, and traffic whose lengths change every step, shared by tests.
#pragma once

#include <cstdlib>

#include "support/setting.h"
#include "support/tiny_models.h"

namespace reprise::testing_support {

struct AscendOptions {
  engine::GraphPolicy policy = engine::GraphPolicy::Auto;
  GraphMode prefill = GraphMode::Piecewise;
  bool fia = true;
  std::vector<int64_t> decode_sizes = {1, 2, 4};
  std::vector<int64_t> prefill_sizes = {};
  DType dtype = DType::BF16;
  int64_t context = 384;
  int64_t chunk = 128;
  GraphMode decode = GraphMode::Whole;
  checkpoint::Quantization quantization = checkpoint::Quantization::Auto;
  int64_t sequences = 4;
  std::vector<std::string> without = {};            // passes
  std::shared_ptr<ranks::Member> member = nullptr;  // of several ranks, a simulated card each
  bool reduce = false;                              // they add sums
  int64_t ep_size = 1;                              // they share out experts
  int64_t sequence_parts = 1;                       // they share out sequences
  bool dispatch = false;                            // they send rows to the ranks of their experts
  int64_t verify_replay = 0;                        // every so many replays are run again
  std::vector<std::string> faults = {};
  engine::VerifyRows verify = {};
};

// The checkpoint in `folder`.
inline Result<std::unique_ptr<engine::Engine>> open_ascend(const std::string& folder, const AscendOptions& options) {
  setenv("ASCEND_SIM_RACES", "1", 0);  // work on the same memory that nothing orders is an error
  DeviceOptions device;
  device.kind = DeviceKind::Ascend;
  device.ascend_runtime = "sim";
  device.ascend_fia = options.fia;
  device.member = options.member;
  device.dispatch = options.dispatch;
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  engine::EngineOptions o;
  o.member = options.member;
  o.reduce_over_ranks = options.reduce;
  o.ep_size = options.ep_size;
  o.sequence_parts = options.sequence_parts;
  o.dispatch = options.dispatch;
  o.model_path = folder;
  o.dtype = options.dtype;
  o.chunked_prefill_size = options.chunk;
  o.max_running_requests = options.sequences;
  o.max_total_tokens = options.sequences * options.context;
  o.context_length = options.context;
  o.graph.policy = options.policy;
  o.graph.prefill = options.prefill;
  o.graph.decode = options.decode;
  o.quantization = options.quantization;
  o.graph.pipeline.passes.disable = options.without;
  o.graph.decode_sizes = options.decode_sizes;
  o.graph.prefill_sizes = options.prefill_sizes;
  o.graph.verify_replay = options.verify_replay;
  o.graph.verify = options.verify;
  o.graph.report_dir = testing::TempDir();
  for (const std::string& fault : options.faults) {
    ASSIGN_OR_RETURN(const engine::Fault parsed, engine::parse_fault(fault));
    o.graph.faults.push_back(parsed);
  }
  return engine::Engine::create(o, std::move(platform));
}

// Three sequences of different lengths, then `steps` steps of decode; every logit.
inline std::vector<float> decode_traffic(engine::Engine& e, int steps) {
  std::vector<engine::Sequence> sequences;
  uint32_t seed = 11;
  auto token = [&] {
    seed = seed * 1664525u + 1013904223u;
    return static_cast<int32_t>((seed >> 8) % static_cast<uint32_t>(e.config().vocab_size));
  };
  for (size_t length : {5, 120, 37}) {
    std::vector<int32_t> prompt(length);
    for (auto& t : prompt) t = token();
    sequences.emplace_back(prompt);
  }
  std::vector<float> out;
  for (auto& s : sequences) {
    EXPECT_TRUE(e.reserve(s, s.size() + steps).is_ok());
    while (s.uncached() > 0) {
      const engine::StepItem item{&s, std::min<int64_t>(s.uncached(), 50), 1};
      auto logits = e.step({&item, 1});
      EXPECT_TRUE(logits.is_ok()) << logits.status().message();
      if (!logits.is_ok()) return {};
      out.insert(out.end(), logits->begin(), logits->end());
    }
  }
  for (int i = 0; i < steps; ++i) {
    std::vector<engine::StepItem> items;
    for (auto& s : sequences) {
      s.append(token());
      items.push_back({&s, 1, 1});
    }
    auto logits = e.step(items);
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    if (!logits.is_ok()) return {};
    out.insert(out.end(), logits->begin(), logits->end());
  }
  for (auto& s : sequences) e.release(s);
  return out;
}

}  // namespace reprise::testing_support

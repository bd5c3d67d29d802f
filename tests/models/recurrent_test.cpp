// Models with states (Qwen3-Next, Qwen3.5): the last rows of a prompt one by one, as decoding computes them, against
// transformers' form of one row; what a sequence remembers; what prompts in other orders, preemption and a step
// computed again leave of the bits.
#include <gtest/gtest.h>

#include "backends/cpu/isa.h"
#include "support/goldens.h"
#include "support/tiny_models.h"

namespace reprise::recurrent_test {
namespace {

using testing_support::all_logits;
using testing_support::EngineSetup;
using testing_support::open_engine;
using testing_support::same_bits;
using testing_support::tiny_model_path;

class StateModels : public testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return tiny_model_path(GetParam()); }
};

// Logits of the last `steps` tokens, each of a step of its own behind one step with all others.
std::vector<float> stepped_logits(engine::Engine& e, const std::vector<int32_t>& tokens, int64_t steps) {
  engine::Sequence s(tokens);
  std::vector<float> out;
  EXPECT_TRUE(e.reserve(s, s.size()).is_ok());
  engine::StepItem item{&s, s.size() - steps};
  EXPECT_TRUE(e.step({&item, 1}).is_ok());
  item = {&s, 1, 1};
  while (s.uncached() > 0) {
    const auto logits = e.step({&item, 1});
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    if (!logits.is_ok()) break;
    out.insert(out.end(), logits->begin(), logits->end());
  }
  e.release(s);
  return out;
}

TEST_P(StateModels, StepsBehindAPromptAreThoseOfTheReference) {
  const auto goldens = testing_support::read_goldens(folder());
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (const cpu::Isa isa : cpu::supported_isas()) {
      auto e = open_engine(folder(), {.dtype = dtype, .isa = std::string(cpu::isa_name(isa))});
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      const auto vocab = static_cast<size_t>((*e)->config().vocab_size);
      size_t compared = 0;
      for (const auto& [length, g] : goldens) {
        if (g.stepped.empty()) continue;
        const auto steps = static_cast<int64_t>(g.stepped.size() / vocab);
        const std::vector<float> logits = stepped_logits(**e, g.tokens, steps);
        ASSERT_EQ(logits.size(), g.stepped.size());
        double largest = 0, worst = 0;
        for (size_t i = 0; i < logits.size(); ++i) {
          largest = std::max(largest, std::fabs(static_cast<double>(g.stepped[i])));
          worst = std::max(worst, std::fabs(static_cast<double>(logits[i]) - static_cast<double>(g.stepped[i])));
        }
        EXPECT_LE(worst, (dtype == DType::F32 ? 1e-4 : 2e-2) * largest)
            << dtype_name(dtype) << " " << cpu::isa_name(isa) << " length " << length;
        const std::vector<float> whole = all_logits(**e, g.tokens, 1000);
        EXPECT_TRUE(same_bits(std::span(whole).last(logits.size()), logits)) << length;
        ++compared;
      }
      EXPECT_GE(compared, 2u);
    }
}

// Layers with states keep no keys and values, and a sequence gives its slots back.
TEST_P(StateModels, HaveStatesForLayersAndPagesForTheOthers) {
  auto e = open_engine(folder(), {});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const auto& f = (*e)->config();
  const auto with_states = std::count(f.layer_types.begin(), f.layer_types.end(), "linear_attention");
  EXPECT_EQ(with_states, 4);
  EXPECT_EQ((*e)->state_pool().caches().size(), 2 * static_cast<size_t>(with_states));
  EXPECT_EQ((*e)->kv_pool().shape().caches.size(), f.layer_types.size() - static_cast<size_t>(with_states));
  const int64_t key = static_cast<int64_t>(f.number("linear_key_head_dim")) *
                      static_cast<int64_t>(f.number("linear_num_key_heads")),
                heads = static_cast<int64_t>(f.number("linear_num_value_heads")),
                value = static_cast<int64_t>(f.number("linear_value_head_dim"));
  const int64_t conv = (static_cast<int64_t>(f.number("linear_conv_kernel_dim")) - 1) * (2 * key + heads * value),
                delta = heads * static_cast<int64_t>(f.number("linear_key_head_dim")) * value;
  size_t slot = 0;
  for (const auto& c : (*e)->state_pool().caches()) slot += c.slot_bytes;
  EXPECT_EQ(slot, static_cast<size_t>(with_states * (conv + delta)) * sizeof(float));
  EXPECT_EQ((*e)->state_pool().free_slots(), (*e)->state_pool().slots() - 2);
  const std::vector<int32_t> tokens{5, 6, 7, 8};
  const auto once = all_logits(**e, tokens, 1000);
  EXPECT_EQ((*e)->state_pool().free_slots(), (*e)->state_pool().slots() - 2);
  EXPECT_TRUE(same_bits(once, all_logits(**e, tokens, 2)));
}

// A check runs a step twice over, from the slot that is read to the one that is written.
TEST_P(StateModels, AStepThatIsCheckedAndRepeatedHasTheSameBits) {
  EngineSetup checked{.dtype = DType::BF16};
  auto plain = open_engine(folder(), checked);
  ASSERT_TRUE(plain.is_ok()) << plain.status().message();
  DeviceOptions device{DeviceKind::Cpu, "auto", 2, false};
  auto platform = make_platform(device);
  ASSERT_TRUE(platform.is_ok());
  engine::EngineOptions o;
  o.model_path = folder();
  o.dtype = DType::BF16;
  o.chunked_prefill_size = 64;
  o.max_running_requests = 16;
  o.max_total_tokens = 4096;
  o.graph.verify_replay = 1;
  auto verified = engine::Engine::create(o, std::move(*platform));
  ASSERT_TRUE(verified.is_ok()) << verified.status().message();
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 70; ++i) tokens.push_back((i * 37 + 5) % 131);
  EXPECT_TRUE(same_bits(all_logits(**plain, tokens, 9), all_logits(**verified, tokens, 13)));
  EXPECT_GT((*verified)->counters().checked, 0u);
  EXPECT_EQ((*verified)->counters().differences, 0u);
}

INSTANTIATE_TEST_SUITE_P(Tiny, StateModels, testing::Values("qwen3_next", "qwen3_5", "qwen3_5_moe_text_of_images"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace reprise::recurrent_test

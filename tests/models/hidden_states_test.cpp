// F20: the hidden states that a step returns, multiplied with the checkpoint's own head in double, are the logits that
// it returns, in prompts and in decode steps, captured and not.
#include <gtest/gtest.h>

#include <cmath>

#include "base/half.h"
#include "checkpoint/convert.h"
#include "support/tiny_models.h"
#include "support/traffic.h"

namespace reprise::hidden_states_test {
namespace {

using testing_support::Traffic;

double number(DType dtype, const void* data, size_t i) {
  switch (dtype) {
    case DType::BF16: return bf16_to_float(static_cast<const uint16_t*>(data)[i]);
    case DType::F16: return half_to_float(static_cast<const uint16_t*>(data)[i]);
    default: return static_cast<const float*>(data)[i];
  }
}

// [vocabulary][hidden] of the file, rounded to the dtype that the engine computes in.
std::vector<double> head_of(const std::string& folder, bool tied, DType dtype) {
  auto file = checkpoint::SafetensorsFile::open(folder + "/model.safetensors");
  EXPECT_TRUE(file.is_ok()) << file.status().message();
  const auto* t = file->find(tied ? "model.embed_tokens.weight" : "lm_head.weight");
  EXPECT_TRUE(t);
  if (!t) return {};
  const auto n = static_cast<size_t>(t->shape[0] * t->shape[1]);
  std::vector<uint8_t> values(n * size_of(dtype));
  const Status s = checkpoint::convert_elements(t->type, file->bytes(*t), dtype, values.data(), n, nullptr);
  EXPECT_TRUE(s.is_ok()) << s.message();
  std::vector<double> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = number(dtype, values.data(), i);
  return out;
}

struct Param {
  std::string model;
  bool tied;
  DType dtype;
};

class HeadTest : public testing::TestWithParam<Param> {
 protected:
  // Every row of the last step. Products are summed in fp32 by the kernels, which is what the bound allows.
  void expect_head(engine::Engine& e, std::span<const float> logits, size_t rows) {
    const auto hidden = e.hidden_states();
    ASSERT_TRUE(hidden.is_ok()) << hidden.status().message();
    const auto width = static_cast<size_t>(e.config().hidden_size), vocab = static_cast<size_t>(e.config().vocab_size);
    ASSERT_EQ(hidden->dtype, GetParam().dtype);
    ASSERT_EQ(static_cast<size_t>(hidden->elements()), rows * width);
    ASSERT_EQ(logits.size(), rows * vocab);
    for (size_t r = 0; r < rows; ++r)
      for (size_t v = 0; v < vocab; ++v) {
        double sum = 0, size = 0;
        for (size_t i = 0; i < width; ++i) {
          const double product = number(hidden->dtype, hidden->data, r * width + i) * head_[v * width + i];
          sum += product, size += std::fabs(product);
        }
        ASSERT_NEAR(logits[r * vocab + v], sum, 1e-6 * size) << "row " << r << ", token " << v;
      }
  }
  std::vector<double> head_;
};

TEST_P(HeadTest, TimesHiddenStatesGivesTheLogits) {
  const Param& p = GetParam();
  const std::string folder = testing_support::tiny_model_path(p.model);
  head_ = head_of(folder, p.tied, p.dtype);
  for (const GraphMode decode : {GraphMode::Whole, GraphMode::Piecewise, GraphMode::Eager}) {
    DeviceOptions device;
    device.threads = 2;
    device.pin_threads = false;
    auto platform = make_platform(device);
    ASSERT_TRUE(platform.is_ok()) << platform.status().message();
    engine::EngineOptions o;
    o.model_path = folder;
    o.dtype = p.dtype;
    o.chunked_prefill_size = 64;
    o.max_running_requests = 16;
    o.max_total_tokens = 16 * 128;
    o.graph.decode = decode;
    auto e = engine::Engine::create(o, std::move(*platform));
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    const uint64_t captures = (*e)->counters().captures;
    {
      engine::Sequence s({1, 5, 9, 2, 4, 8});
      ASSERT_TRUE((*e)->reserve(s, 6).is_ok());
      const engine::StepItem all{&s, 6, 6};
      const auto logits = (*e)->step({&all, 1});
      ASSERT_TRUE(logits.is_ok()) << logits.status().message();
      expect_head(**e, *logits, 6);
      (*e)->release(s);
    }
    Traffic traffic(**e, testing_support::lengths(3, 2, 5, 17), 4);
    for (int step = 0; step < 3; ++step) {  // a prompt, and two steps of decode
      const auto logits = (*e)->step(traffic.items());
      ASSERT_TRUE(logits.is_ok()) << logits.status().message();
      expect_head(**e, *logits, 3);
      traffic.append();
    }
    EXPECT_EQ((*e)->counters().captures, captures) << "asking captures nothing";
    EXPECT_EQ((*e)->runner("decode")->stats().replays > 0, decode != GraphMode::Eager);
  }
}

std::vector<Param> params() {
  std::vector<Param> out;
  for (const auto& [model, tied] : {std::pair{"llama_gqa3_tied", true},
                                    {"mistral_window24", false},
                                    {"qwen2_untied", false},
                                    {"qwen3_tied", true},
                                    {"qwen3_untied", false},
                                    {"mixtral_top2", false},
                                    {"qwen3_moe_norm", true},
                                    {"deepseek_v3_dense", false}})
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) out.push_back({model, tied, dtype});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Tiny, HeadTest, testing::ValuesIn(params()), [](const auto& info) {
  return fmt::format("{}_{}", info.param.model, dtype_name(info.param.dtype));
});

}  // namespace
}  // namespace reprise::hidden_states_test

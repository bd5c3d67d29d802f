// CUDA's encoders, pooled rows and LoRA adapters on the SIMT executor: ops with the CPU's bits, vectors and scores of
// tiny encoders against transformers, and logits of adapters against PEFT, also on a GPU where there is one.
#include <gtest/gtest.h>

#include "simt/both_devices.h"
#include "simt/gpu.h"
#include "support/goldens.h"
#include "support/pooled_goldens.h"
#include "support/tiny_models.h"

namespace reprise::simt::encoder_test {
namespace {

using namespace cpu;
using testing_support::EngineSetup;

TestTensor integers(const std::vector<double>& values, std::vector<int64_t> shape = {}) {
  if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
  return tensor_of(DType::I32, shape, values);
}

TEST(CudaEncoder, AttentionHasTheCpusBits) {
  for (DType t : kDTypes)
    for (const auto& [heads, groups, size, window] :
         {std::array<int64_t, 4>{2, 2, 20, 0}, {1, 1, 128, 0}, {3, 1, 136, 7}, {4, 2, 24, 33}, {1, 1, 256, 0}}) {
      const std::vector<int64_t> query{105, heads, size}, key{105, groups, size};
      expect_equal("segment_attention",
                   {random_tensor(t, query, 1, -2, 2), random_tensor(t, key, 2, -2, 2), random_tensor(t, key, 3),
                    integers({0, 17, 17, 18, 105})},
                   {{"scale", 0.3}, {"window", window}}, std::string(dtype_name(t)));
    }
}

TEST(CudaEncoder, PooledRowsHaveTheCpusBits) {
  for (DType t : kDTypes)
    for (const char* kind : {"last", "mean", "first"})
      expect_equal("pool_rows",
                   {random_tensor(t, {20, 270}, 1), integers({0, 4, 4, 5, 20}), integers({3, 4, 19, 9, 0})},
                   {{"kind", std::string(kind)}}, kind);
  TestTensor rows = random_tensor(DType::F32, {11, 37}, 2, -3, 3);
  for (int64_t i = 0; i < 37; ++i) rows.set(37 + i, 0);
  expect_equal("l2_normalize", {rows});
}

TEST(CudaLora, ProductsHaveTheCpusBits) {
  constexpr int64_t kSlots = 3, kRank = 18, kRows = 7;
  const TestTensor ids = integers({0, 1, 3, 2, 3, 1, 0}, {kRows, 1}), ranks = integers({18, 0, 5}),
                   scales = tensor_of(DType::F32, {kSlots}, {0.5, 9, -1.25});
  for (DType t : kDTypes) {
    const TestTensor x = random_tensor(t, {kRows, 45}, 1), a = random_tensor(t, {kSlots, kRank, 45}, 2);
    expect_equal("lora_shrink", {x, ids, a, ranks, scales});
    expect_equal("lora_expand",
                 {random_tensor(t, {kRows, 300}, 3), random_tensor(DType::F32, {kRows, kRank}, 4), ids,
                  random_tensor(t, {kSlots, kRank, 270}, 5), ranks},
                 {{"begin", int64_t{20}}});
  }
}

// true: on a GPU.
class CudaSmall : public testing::TestWithParam<bool> {};

EngineSetup setup_for(bool gpu, engine::GraphPolicy policy) {
  EngineSetup s;
  s.device = DeviceKind::Cuda;
  if (!gpu) s.cuda = &stand_in();
  s.dtype = DType::F32;
  s.policy = policy;
  s.rows = 4;
  return s;
}

constexpr const char* kModels[] = {"bert_mean",          "bert_cls_old",      "bert_scores", "roberta_mean",
                                   "roberta_scores",     "qwen3_last",        "qwen3_mean",  "qwen3_yes_no",
                                   "mistral_both_sides", "gemma3_both_sides", "bert_dense",  "qwen2_both_sides",
                                   "llama_bidirectional"};

// The shortest text of each, by itself and, from a captured graph, together with another.
TEST_P(CudaSmall, EncodersGiveTheRowsOfTheReference) {
  for (const char* model : kModels) {
    const std::string folder = std::string(REPRISE_SOURCE_DIR) + "/tests/data/encoders/" + model;
    auto goldens = testing_support::read_pooled_goldens(folder);
    ASSERT_GE(goldens.size(), 2u);
    std::sort(goldens.begin(), goldens.end(),
              [](const auto& a, const auto& b) { return a.request.tokens.size() < b.request.tokens.size(); });
    std::vector<sched::EmbeddingRequest> requests{goldens[0].request, goldens[1].request};
    std::vector<std::vector<float>> alone;
    for (const engine::GraphPolicy policy : {engine::GraphPolicy::Off, engine::GraphPolicy::Required}) {
      EngineSetup s = setup_for(GetParam(), policy);
      s.context = 140;
      s.chunk = 140;
      auto e = testing_support::open_engine(folder, s);
      ASSERT_TRUE(e.is_ok()) << model << ": " << e.status().message();
      const auto rows = sched::Embedder(**e).run(std::span(requests).first(alone.empty() ? 1 : 2));
      ASSERT_TRUE(rows.is_ok()) << model << ": " << rows.status().message();
      if (alone.empty()) alone = *rows;
      EXPECT_EQ(alone[0], (*rows)[0]) << model;
      for (size_t i = 0; i < rows->size(); ++i)
        for (size_t k = 0; k < goldens[i].row.size(); ++k)
          EXPECT_NEAR((*rows)[i][k], goldens[i].row[k], 1e-4) << model << " " << i << ", " << k;
    }
  }
}

TEST_P(CudaSmall, AdaptersGiveTheLogitsOfPeft) {
  const std::string adapter = std::string(REPRISE_SOURCE_DIR) + "/tests/data/lora/llama_gqa3_tied.style";
  EngineSetup s = setup_for(GetParam(), engine::GraphPolicy::Off);
  s.loras = 2;
  auto opened = testing_support::open_engine(testing_support::tiny_model_path("llama_gqa3_tied"), s);
  ASSERT_TRUE(opened.is_ok()) << opened.status().message();
  engine::Engine& e = **opened;
  const auto file = checkpoint::LoraAdapter::open(adapter);
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  const auto prepared = e.adapters().prepare(*file);
  ASSERT_TRUE(prepared.is_ok()) << prepared.status().message();
  const testing_support::Golden g = testing_support::read_goldens(adapter).begin()->second;
  const auto before = testing_support::all_logits(e, g.tokens, 1000);
  const auto slot = e.adapters().load(*prepared);
  ASSERT_TRUE(slot.is_ok()) << slot.status().message();
  const auto logits = testing_support::all_logits(e, g.tokens, 1000, *slot);
  const auto vocab = static_cast<size_t>(e.config().vocab_size);
  double largest = 0, worst = 0;
  for (const float x : g.logits) largest = std::max(largest, std::fabs(static_cast<double>(x)));
  for (size_t i = 0; i < g.positions.size(); ++i)
    for (size_t v = 0; v < vocab; ++v)
      worst = std::max(worst, std::fabs(static_cast<double>(logits[static_cast<size_t>(g.positions[i]) * vocab + v]) -
                                        static_cast<double>(g.logits[i * vocab + v])));
  EXPECT_LE(worst, 1e-4 * largest);
  // Neither rows without an adapter nor those of a slot that is free again know of it.
  EXPECT_TRUE(testing_support::same_bits(before, testing_support::all_logits(e, g.tokens, 1000)));
  ASSERT_TRUE(e.adapters().unload(*slot).is_ok());
  EXPECT_TRUE(testing_support::same_bits(before, testing_support::all_logits(e, g.tokens, 1000, *slot)));
}

INSTANTIATE_TEST_SUITE_P(Tiny, CudaSmall,
                         testing::ValuesIn(no_gpu().empty() ? std::vector<bool>{false, true}
                                                            : std::vector<bool>{false}),
                         [](const auto& info) { return info.param ? "gpu" : "executor"; });

}  // namespace
}  // namespace reprise::simt::encoder_test

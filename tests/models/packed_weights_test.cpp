// F57: weights are stored in the layout of the kernels, packed once while they are loaded: not again at a step of any
// size, and not at all at a start that finds them in the cache.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "support/tiny_models.h"

namespace reprise::packed_weights_test {
namespace {

using testing_support::all_logits;
using testing_support::same_bits;

// How often rows were packed, by the parameter they belong to. The layout's function has no place for it.
struct Packed {
  int64_t size = 0;
  std::map<int64_t, int> rows;  // by row
};
std::mutex guard;
std::map<const void*, Packed> packed;
void (*pack_really)(const TensorType&, void*, const void*, int64_t, int64_t) = nullptr;

void pack_and_count(const TensorType& type, void* to, const void* rows, int64_t first, int64_t count) {
  {
    const std::lock_guard lock(guard);
    Packed& p = packed[to];
    p.size = type.shape[0].factor;
    for (int64_t r = first; r < first + count; ++r) ++p.rows[r];
  }
  pack_really(type, to, rows, first, count);
}

Result<std::unique_ptr<engine::Engine>> open(const std::string& model, DType dtype, bool int8,
                                             const std::string& cache) {
  packed.clear();
  DeviceOptions device;
  device.threads = 2;
  device.pin_threads = false;
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  // The registry is ours and not shared yet.
  auto* layout = const_cast<ParamLayout*>(platform.kernels->layout(DeviceKind::Cpu, "panel64"));
  pack_really = layout->pack;
  layout->pack = pack_and_count;
  engine::EngineOptions o;
  o.model_path = testing_support::tiny_model_path(model);
  o.dtype = dtype;
  if (int8) o.quantization = checkpoint::Quantization::W8A8Int8;
  o.chunked_prefill_size = 64;
  o.max_running_requests = 16;
  o.max_total_tokens = 2048;
  o.weight_cache = cache;
  return engine::Engine::create(o, std::move(platform));
}

int64_t packings() {
  int64_t n = 0;
  for (const auto& [to, p] : packed)
    for (const auto& [row, times] : p.rows) n += times;
  return n;
}

TEST(PackedWeights, ArePackedOnceAndByNoStep) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / fmt::format("reprise_packed_weights_{}", ::getpid());
  std::filesystem::remove_all(folder);
  const std::vector<int32_t> tokens{3, 141, 59, 26, 53, 58, 97, 93, 23, 84, 62, 64, 33, 83, 27, 95, 2, 88, 41, 97};
  for (const bool int8 : {false, true})
    for (DType dtype : {DType::F32, DType::BF16}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype_name(dtype), int8 ? "int8" : ""));
      auto e = open("qwen3_tied", dtype, int8, folder.string());
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      // A layer's qkv, o, gate_up and down; the table, which is the head as well, of which int8 is a copy.
      EXPECT_EQ(packed.size(), static_cast<size_t>(4 * (*e)->config().num_hidden_layers + (int8 ? 2 : 1)));
      for (const auto& [to, p] : packed) {
        EXPECT_EQ(static_cast<int64_t>(p.rows.size()), p.size);
        for (const auto& [row, times] : p.rows) EXPECT_EQ(times, 1) << "row " << row;
      }
      const int64_t after_load = packings();
      EXPECT_GT(after_load, 0);
      const auto expected = all_logits(**e, tokens, 64);
      for (int64_t chunk : {1, 7}) EXPECT_TRUE(same_bits(expected, all_logits(**e, tokens, chunk))) << chunk;
      EXPECT_EQ(packings(), after_load) << "a step packed weights";
      auto again = open("qwen3_tied", dtype, int8, folder.string());
      ASSERT_TRUE(again.is_ok()) << again.status().message();
      EXPECT_EQ(packings(), 0) << "they are in the cache";
      EXPECT_TRUE(same_bits(expected, all_logits(**again, tokens, 64)));
    }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace reprise::packed_weights_test

// Defaults by device memory, row by row (F21), and errors that name the value to set.
#include "engine/memory_rules.h"

#include <gtest/gtest.h>

namespace reprise::engine::memory_rules_test {
namespace {

constexpr int64_t kGb = 1024;

TEST(MemoryRules, TableOfBatchAndChunk) {
  struct Row {
    DeviceKind kind;
    int64_t mb, tp;
    StepDefaults expected;
  };
  const auto cuda = DeviceKind::Cuda, ascend = DeviceKind::Ascend;
  const std::vector<Row> rows{
      {cuda, 0, 1, {160, 4096}},
      {ascend, 0, 8, {160, 4096}},
      {cuda, 16 * kGb, 1, {8, 2048}},
      {cuda, 20 * kGb - 1, 8, {8, 2048}},
      {ascend, 16 * kGb, 8, {8, 2048}},
      {ascend, 20 * kGb, 3, {16, 32768}},
      {ascend, 32 * kGb - 1, 4, {64, 32768}},
      {ascend, 32 * kGb, 1, {24, 2048}},
      {cuda, 20 * kGb, 1, {24, 2048}},
      {cuda, 24 * kGb, 4, {80, 2048}},
      {cuda, 35 * kGb - 1, 3, {24, 2048}},
      {cuda, 35 * kGb, 1, {32, 4096}},
      {cuda, 48 * kGb, 4, {160, 4096}},
      {ascend, 60 * kGb - 1, 1, {32, 4096}},
      {ascend, 60 * kGb, 1, {64, 32768}},
      {ascend, 64 * kGb - 1, 4, {128, 32768}},
      {ascend, 64 * kGb, 1, {256, 8192}},
      {cuda, 60 * kGb, 1, {256, 8192}},
      {cuda, 80 * kGb, 3, {256, 8192}},
      {cuda, 80 * kGb, 4, {512, 8192}},
      {cuda, 90 * kGb, 1, {256, 8192}},
      {cuda, 160 * kGb - 1, 4, {512, 8192}},
      {cuda, 160 * kGb, 1, {512, 16384}},
      {ascend, 192 * kGb, 8, {512, 16384}},
      {DeviceKind::Cpu, 16 * kGb, 1, {64, 2048}},
      {DeviceKind::Cpu, 512 * kGb, 8, {64, 2048}},
  };
  for (const Row& r : rows)
    EXPECT_EQ(step_defaults(r.kind, r.mb, r.tp), r.expected)
        << device_kind_name(r.kind) << " " << r.mb << " MB, tp " << r.tp;
}

TEST(MemoryRules, Fraction) {
  const auto fraction = [](const FractionInputs& in) {
    auto f = mem_fraction(in);
    EXPECT_TRUE(f.is_ok()) << f.status().message();
    return f.is_ok() ? *f : -1;
  };
  // 512 + 1.5 x 2048 + 2 x 24 + 128 = 3760 of 24576
  EXPECT_DOUBLE_EQ(reserved_mb({.memory_mb = 24 * kGb, .chunk = 2048, .largest_batch = 24}), 3760);
  EXPECT_DOUBLE_EQ(fraction({.memory_mb = 24 * kGb, .chunk = 2048, .largest_batch = 24}), 0.847);
  // A smaller chunk counts as 2048.
  EXPECT_DOUBLE_EQ(reserved_mb({.memory_mb = 24 * kGb, .chunk = 512, .largest_batch = 24}), 3760);
  // 512 + 6144 + 64 + 128 x tp x pp
  EXPECT_DOUBLE_EQ(reserved_mb({.memory_mb = 48 * kGb, .chunk = 4096, .largest_batch = 32, .tp = 2, .pp = 3}), 7488);
  // Above 60 GB at least 10 GB.
  EXPECT_DOUBLE_EQ(reserved_mb({.memory_mb = 60 * kGb, .chunk = 2048, .largest_batch = 32}), 3776);
  EXPECT_DOUBLE_EQ(reserved_mb({.memory_mb = 60 * kGb + 1, .chunk = 2048, .largest_batch = 32}), 10240);
  EXPECT_DOUBLE_EQ(fraction({.memory_mb = 80 * kGb, .chunk = 2048, .largest_batch = 256}), 0.875);
  EXPECT_DOUBLE_EQ(reserved_mb({.memory_mb = 80 * kGb, .chunk = 8192, .largest_batch = 256}), 13440);
  // Data-parallel attention: 3 MB a batch row and rank, 4.5 above 300.
  EXPECT_DOUBLE_EQ(reserved_mb({.memory_mb = 48 * kGb, .chunk = 2048, .largest_batch = 300, .dp = 2}), 6112);
  EXPECT_DOUBLE_EQ(reserved_mb({.memory_mb = 48 * kGb, .chunk = 2048, .largest_batch = 301, .dp = 2}), 7023);
  // Draft models come on top, also of the 10 GB.
  EXPECT_DOUBLE_EQ(reserved_mb({.memory_mb = 80 * kGb, .chunk = 2048, .largest_batch = 8, .draft = Draft::Eagle}),
                   12288);
  EXPECT_DOUBLE_EQ(reserved_mb({.memory_mb = 80 * kGb, .chunk = 2048, .largest_batch = 8, .draft = Draft::Standalone}),
                   16384);
  EXPECT_DOUBLE_EQ(fraction({.chunk = 4096, .largest_batch = 160}), 0.88);
  const auto none = mem_fraction({.memory_mb = 4096, .chunk = 32768, .largest_batch = 16});
  ASSERT_FALSE(none.is_ok());
  EXPECT_NE(none.status().message().find("set `mem_fraction_static`"), std::string::npos) << none.status().message();
}

TEST(MemoryRules, WhatIsSetStaysAndTheRestIsFilled) {
  DeviceInfo gpu;
  gpu.kind = DeviceKind::Cuda;
  gpu.memory_bytes = size_t{24} << 30;
  EngineOptions o;
  ASSERT_TRUE(fill_defaults(o, gpu).is_ok());
  EXPECT_EQ(o.max_running_requests, 24);
  EXPECT_EQ(o.chunked_prefill_size, 2048);
  EXPECT_DOUBLE_EQ(o.mem_fraction_static, 0.847);
  o = {};
  o.max_running_requests = 100;
  o.mem_fraction_static = 0.5;
  ASSERT_TRUE(fill_defaults(o, gpu).is_ok());
  EXPECT_EQ(o.max_running_requests, 100);
  EXPECT_EQ(o.chunked_prefill_size, 2048);
  EXPECT_DOUBLE_EQ(o.mem_fraction_static, 0.5);
  // The largest captured size counts, not what runs beyond it.
  o = {};
  o.max_running_requests = 512;
  o.graph.decode_sizes = {1, 24};
  ASSERT_TRUE(fill_defaults(o, gpu).is_ok());
  EXPECT_DOUBLE_EQ(o.mem_fraction_static, 0.847);

  DeviceInfo cpu;
  cpu.kind = DeviceKind::Cpu;
  cpu.memory_bytes = size_t{24} << 30;
  o = {};
  ASSERT_TRUE(fill_defaults(o, cpu).is_ok());
  EXPECT_EQ(o.max_running_requests, 64);
  EXPECT_EQ(o.chunked_prefill_size, 2048);
  EXPECT_DOUBLE_EQ(o.mem_fraction_static, 0.8);
}

// What public logs of a 64 GB chip show, and a guess for one of 32 GB.
TEST(MemoryRules, AChunkByRuleLeavesRoomForAModel) {
  const auto filled = [](int64_t mb, int64_t chunk) {
    DeviceInfo npu;
    npu.kind = DeviceKind::Ascend;
    npu.memory_bytes = static_cast<size_t>(mb) << 20;
    EngineOptions o;
    o.chunked_prefill_size = chunk;
    EXPECT_TRUE(fill_defaults(o, npu).is_ok());
    return std::pair(o.chunked_prefill_size, o.mem_fraction_static);
  };
  EXPECT_EQ(filled(62433, 0), (std::pair<int64_t, double>(8192, 0.791)));
  EXPECT_EQ(filled(30208, 0), (std::pair<int64_t, double>(4096, 0.774)));
  EXPECT_EQ(filled(62433, 32768).second, 0.2) << "what was asked for stays";
}

TEST(MemoryRules, SizesThatCannotOccurAreLeftOut) {
  DeviceInfo gpu;
  gpu.kind = DeviceKind::Cuda;
  gpu.memory_bytes = size_t{24} << 30;
  EngineOptions o;
  o.graph.decode_sizes = {1, 8, 64, 160};
  o.graph.prefill_sizes = {4, 2048, 4096};
  ASSERT_TRUE(fill_defaults(o, gpu).is_ok());
  EXPECT_EQ(o.graph.decode_sizes, (std::vector<int64_t>{1, 8, 24}));
  EXPECT_EQ(o.graph.prefill_sizes, (std::vector<int64_t>{4, 2048}));
}

// Other processes on a device make the cache smaller, and nothing else.
TEST(MemoryRules, WhatIsFreeIsShared) {
  DeviceInfo npu;
  npu.kind = DeviceKind::Ascend;
  npu.memory_bytes = size_t{61} << 30;
  EXPECT_EQ(usable_bytes(npu), static_cast<double>(size_t{61} << 30)) << "a device that does not tell";
  EngineOptions alone, beside;
  ASSERT_TRUE(fill_defaults(alone, npu).is_ok());
  npu.free_bytes = size_t{20} << 30;
  EXPECT_EQ(usable_bytes(npu), static_cast<double>(size_t{20} << 30));
  ASSERT_TRUE(fill_defaults(beside, npu).is_ok());
  EXPECT_EQ(beside.mem_fraction_static, alone.mem_fraction_static);
  EXPECT_EQ(beside.chunked_prefill_size, alone.chunked_prefill_size);
}

TEST(MemoryRules, KvPagesAndTheFractionToSet) {
  // 1000 bytes, half of them for us, 100 of weights: 40 pages of 10 of which one is scratch.
  EXPECT_EQ(*kv_pages_that_fit({1000, 0.5, 100, 10}, 1000), 39);
  EXPECT_EQ(*kv_pages_that_fit({1000, 0.5, 100, 10}, 7), 7);
  EXPECT_EQ(*kv_pages_that_fit({1000, 0.12, 100, 10}, 7), 1);
  const auto more = kv_pages_that_fit({1000, 0.119, 100, 10}, 7);
  ASSERT_FALSE(more.is_ok());
  EXPECT_NE(more.status().message().find("set `mem_fraction_static` 0.12 or more"), std::string::npos)
      << more.status().message();
  EXPECT_NE(kv_pages_that_fit({0, 0.8, 100, 10}, 7).status().message().find("`max_total_tokens`"), std::string::npos);
  // What it says works, also where it had to be rounded.
  const auto odd = kv_pages_that_fit({997, 0.1, 331, 13}, 7);
  ASSERT_FALSE(odd.is_ok());
  const std::string words = "set `mem_fraction_static` ";
  const double named = std::stod(odd.status().message().substr(odd.status().message().find(words) + words.size()));
  EXPECT_TRUE(kv_pages_that_fit({997, named, 331, 13}, 7).is_ok()) << named;
  EXPECT_FALSE(kv_pages_that_fit({997, named - 0.002, 331, 13}, 7).is_ok()) << named;
  const auto never = kv_pages_that_fit({1000, 0.9, 2000, 10}, 7);
  ASSERT_FALSE(never.is_ok());
  EXPECT_NE(never.status().message().find("too small for this model at any fraction"), std::string::npos);
}

TEST(UsualActivations, AreInt8WhereThatIsFasterAndTheModelIsNotSmall) {
  DeviceInfo fast, slow;
  fast.int8_blocks = true;
  EXPECT_TRUE(usual_int8_activations({250'000'001, 1}, fast));
  EXPECT_FALSE(usual_int8_activations({250'000'000, 250'000'000}, fast));
  EXPECT_FALSE(usual_int8_activations({600'000'000, 0}, fast));
  EXPECT_FALSE(usual_int8_activations({600'000'000, 600'000'000}, slow));
}

}  // namespace
}  // namespace reprise::engine::memory_rules_test

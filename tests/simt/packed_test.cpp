// CUDA's ops on GGUF blocks on the SIMT executor: the CPU's bits of fp32 and f16, since both make fp32 chains over
// ascending depth. The CPU's bf16 has sums by blocks; CUDA's is the chain of the same numbers as fp32, rounded once.
#include "base/block_format.h"

#include <gtest/gtest.h>

#include "simt/both_devices.h"

namespace reprise::simt::packed_test {
namespace {

using namespace cpu;

// Every number of every format, factors of both signs, subnormal and zero among them.
TestTensor random_blocks(BlockFormat format, int64_t n, int64_t k, uint32_t seed) {
  const BlockFormatInfo& info = block_format_info(format);
  TestTensor t = zero_tensor(DType::U8, {n, k / info.elements * info.bytes});
  std::mt19937 gen(seed);
  for (int64_t b = 0; b < n * k / info.elements; ++b) {
    uint8_t* block = t.as<uint8_t>() + b * info.bytes;
    for (int64_t i = 0; i < info.bytes; ++i) block[i] = static_cast<uint8_t>(gen());
    if (format == BlockFormat::Mxfp4) {
      block[0] = b % 11 == 5 ? 0 : static_cast<uint8_t>(118 + gen() % 9);
      continue;
    }
    for (int64_t i = 0; i < (format == BlockFormat::Q4_1 ? 2 : 1); ++i) {
      const float v = (static_cast<float>(gen()) / 4294967296.0f - 0.5f) * (b % 7 == 3 ? 1e-6f : 0.1f);
      const uint16_t h = b % 11 == 5 ? 0 : float_to_half(v);
      std::memcpy(block + 2 * i, &h, 2);
    }
  }
  return t;
}

// The others have no kernels on CUDA, which says so.
std::vector<BlockFormatInfo> formats() {
  std::vector<BlockFormatInfo> out;
  for (const BlockFormatInfo& f : kBlockFormats)
    if (f.format <= BlockFormat::Mxfp4) out.push_back(f);
  return out;
}

Attrs format_attr(const BlockFormatInfo& f) { return {{"format", std::string(f.name)}}; }

TestTensor as(DType to, const TestTensor& x) {
  TestTensor out = zero_tensor(to, {x.size()});
  out.type.shape = x.type.shape;
  for (int64_t i = 0; i < x.size(); ++i) out.set(i, x.get(i));
  return out;
}

// The chain of fp32 that bf16 goes through too, on the CPU.
void expect_chain(const std::string& op, std::vector<TestTensor> in, const Attrs& attrs, const std::string& what) {
  if (in[0].type.dtype != DType::BF16) return expect_equal(op, in, attrs, what);
  const TestTensor got = on_cuda().run(op, in, attrs)[0], again = on_cuda(Order::Shuffled).run(op, in, attrs)[0];
  for (TestTensor& t : in)
    if (t.type.dtype == DType::BF16) t = as(DType::F32, t);
  expect_same_bits(got, as(got.type.dtype, on_cpu().run(op, in, attrs)[0]), what);
  expect_same_bits(again, got, what + ", lanes shuffled");
}

TEST(CudaPacked, LinearHasTheCpusBits) {
  for (const BlockFormatInfo& f : formats())
    for (const auto& [m, n, k] :
         {std::array<int64_t, 3>{1, 65, 96}, {3, 1, 32}, {17, 33, 64}, {5, 31, 576}, {33, 40, 160}})
      for (const DType t : kDTypes) {
        const TestTensor x = random_tensor(t, {m, k}, 1), w = random_blocks(f.format, n, k, 2);
        Attrs attrs = format_attr(f);
        expect_chain("linear_blocks", {x, w}, attrs, std::string(f.name));
        attrs.set("out", std::string("f32"));
        expect_chain("linear_blocks", {x, w, random_tensor(t, {n}, 3)}, attrs, std::string(f.name));
      }
}

TEST(CudaPacked, EmbeddingHasTheCpusBits) {
  const TestTensor ids = tensor_of(DType::I32, {6}, {0, 130, 64, 131, -1, 77});
  for (const BlockFormatInfo& f : formats())
    for (const int64_t k : {32, 96, 576})
      for (const char* out : {"f32", "bf16", "f16"}) {
        Attrs attrs = format_attr(f);
        attrs.set("width", k);
        attrs.set("out", std::string(out));
        expect_equal("embedding_blocks", {random_blocks(f.format, 131, k, 4), ids}, attrs, std::string(f.name));
      }
}

TEST(CudaPacked, TheHeadFindsTheCpusToken) {
  for (const BlockFormatInfo& f : formats())
    for (const DType t : kDTypes)
      for (const auto& [m, n] : {std::pair<int64_t, int64_t>{1, 1}, {3, 65}, {20, 133}}) {
        TestTensor w = random_blocks(f.format, n, 96, 5);
        // The last row is the first once more: equal logits.
        const size_t row = w.bytes.size() / static_cast<size_t>(n);
        std::copy_n(w.bytes.begin(), row, w.bytes.end() - static_cast<int64_t>(row));
        expect_chain("lm_head_argmax_blocks", {random_tensor(t, {m, 96}, 6), w}, format_attr(f), std::string(f.name));
      }
}

// Experts in MXFP4: of bf16 the bits of the same product on unpacked weights, else the CPU's.
TEST(CudaPacked, ExpertsHaveTheBitsOfUnpackedOnes) {
  const Attrs format{{"format", std::string("mxfp4")}};
  for (const auto& [rows, n, k] : {std::array<int64_t, 3>{9, 37, 288}, {150, 70, 64}, {6, 33, 544}}) {
    constexpr int64_t kExperts = 2;
    TestTensor weight = random_blocks(BlockFormat::Mxfp4, kExperts * n, k, 1);
    TestTensor ids = zero_tensor(DType::I32, {kExperts * n});
    for (int64_t i = 0; i < ids.size(); ++i) ids.set(i, static_cast<double>(i));
    TestTensor floats = on_cpu().run("embedding_blocks", {weight, ids},
                                     {{"format", std::string("mxfp4")}, {"width", k}, {"out", std::string("bf16")}})[0];
    floats.type.shape = constant_shape({kExperts, n, k});
    weight.type.shape = constant_shape({kExperts, n, k / 32 * 17});
    for (const double border : {0.0, 1.0, static_cast<double>(rows - 2)}) {
      const TestTensor starts = tensor_of(DType::I32, {kExperts + 1}, {0, border, static_cast<double>(rows - 1)});
      const TestTensor x = random_tensor(DType::BF16, {rows, k}, 2);
      for (const Order order : {Order::Ascending, Order::Shuffled})
        expect_same_bits(on_cuda(order).run("grouped_linear_blocks", {x, starts, weight}, format)[0],
                         on_cuda().run("grouped_linear", {x, starts, floats})[0], fmt::format("{} rows", rows));
      if (rows < 100)
        for (const DType t : {DType::F32, DType::F16})
          expect_equal("grouped_linear_blocks", {random_tensor(t, {rows, k}, 2), starts, weight}, format);
    }
  }
}

}  // namespace
}  // namespace reprise::simt::packed_test

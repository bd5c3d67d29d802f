// The CUDA kernels on the SIMT executor against the CPU's: the same bits where both promise them, else a bounded error;
// and against themselves: lanes in any order, tokens in any company.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/args/elements.h"
#include "simt/both_devices.h"
#include "support/goldens.h"

namespace reprise::simt::kernels_test {
namespace {

using namespace cpu;

TestTensor indices(const std::vector<double>& values) {
  return tensor_of(DType::I32, {static_cast<int64_t>(values.size())}, values);
}

TEST(CudaKernels, ElementsHaveTheCpusBits) {
  for (DType t : kDTypes)
    for (int64_t width : {1, 7, 40, 264}) {
      const TestTensor a = random_tensor(t, {5, width}, 1, -8, 8), b = random_tensor(t, {5, width}, 2, -8, 8);
      for (const char* op : {"add", "mul"}) expect_equal(op, {a, b});
      for (const char* op : {"silu", "sigmoid", "reciprocal", "gelu", "gelu_tanh", "relu_squared", "widen"})
        expect_equal(op, {a});
      expect_equal("scale_rows", {a, random_tensor(DType::F32, {5, 1}, 5, -2, 2)});
      expect_equal("row_write", {zero_tensor(t, {2, kPageTokens, width}), a, indices({130, -1, 0, 127, 128})});
      expect_equal("scale", {a}, {{"by", 0.37}});
      expect_equal("softcap", {a}, {{"cap", 3.5}});
      expect_equal("swiglu_clamped", {a, b}, {{"alpha", 1.702}, {"limit", 5.0}});
      expect_equal("concat", {a, random_tensor(t, {5, 16}, 4)});
      expect_equal("silu_mul", {random_tensor(t, {5, 2 * width}, 3, -20, 20)});
      expect_equal("copy", {a});
      expect_equal("index_select", {a, indices({4, 0, -1, 2, 5, 4})});
      expect_equal("embedding", {a, indices({4, 0, -1, 2, 5, 4})});
      if (width > 7) expect_equal("slice", {a}, {{"begin", int64_t{3}}, {"size", width - 5}});
    }
}

// Every whole line once, in any order of lanes.
TEST(CudaKernels, APrefetchAsksForEachLineOnce) {
  constexpr int64_t kFirst = 512, kBytes = 5 * 4096 + 3 * 128;
  alignas(128) static char param[kFirst + kBytes];
  std::vector<const char*> asked, lines;
  for (int64_t at = kFirst; at < kFirst + kBytes; at += 128) lines.push_back(param + at);
  LaunchArgs args;
  args.as<PrefetchArgs>() = {{param}, kFirst, kBytes};
  for (const Order order : {Order::Ascending, Order::Shuffled}) {
    asked.clear();
    Launch launch(order);
    prefetched_lines = &asked;
    kernels().prefetch(args, LiveSizes{}, launch);
    prefetched_lines = nullptr;
    std::sort(asked.begin(), asked.end());
    EXPECT_EQ(asked, lines);
  }
}

TEST(CudaKernels, SpecialNumbers) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (DType t : kDTypes) {
    const TestTensor x =
        tensor_of(t, {2, 8}, {0, -0.0, inf, -inf, 1, -300, 100, 1e-6, 2, 3, -1, 65504, -65504, -90, 90, 5});
    for (const char* op : {"silu", "gelu", "gelu_tanh", "relu_squared"}) expect_equal(op, {x});
    expect_equal("softcap", {x}, {{"cap", 30.0}});
    expect_equal("swiglu_clamped", {x, x}, {{"alpha", 1.702}, {"limit", 7.0}});
    expect_equal("add", {x, x});
    expect_equal("argmax", {x});
    expect_equal("argmax", {tensor_of(t, {3, 4}, {nan, -inf, nan, nan, nan, nan, nan, nan, 1, nan, 2, 2})});
  }
}

TEST(CudaKernels, RotationHasTheCpusBits) {
  std::vector<double> freq;
  for (int i = 0; i < 16; ++i) freq.push_back(std::pow(10000.0, -i / 16.0));
  const Attrs table{{"dim", int64_t{32}}, {"inv_freq", freq}};
  const TestTensor positions = indices({0, 1, 17, 1000, 40959});
  expect_equal("rope_table", {positions}, table);
  for (int64_t offset : {0, 1})
    expect_equal("position_scale", {positions},
                 {{"factors", std::vector<double>{1.0, 1.25, 1.4}}, {"period", int64_t{16}}, {"offset", offset}});
  Attrs ntk = table;
  ntk.set("ntk_base", 10000.0);
  ntk.set("ntk_factor", 4.0);
  ntk.set("ntk_window", int64_t{512});
  expect_equal("rope_table", {positions}, ntk);
  std::vector<double> axes;
  for (int i = 0; i < 16; ++i) axes.push_back(i % 3);
  expect_equal("rope_table_axes", {tensor_of(DType::I32, {3, 3}, {0, 1, 17, 1000, 40959, 3, 5, 5, 5})},
               {{"inv_freq", freq}, {"axes", axes}, {"scale", 1.25}});
  const TestTensor angles = on_cpu().run("rope_table", {positions}, table)[0];
  for (DType t : kDTypes)
    for (int64_t way : {0, 1}) {
      expect_equal("rope", {random_tensor(t, {5, 3, 32}, 4), angles}, {{"interleaved", way}});
      expect_equal("rope", {random_tensor(t, {5, 3, 50}, 5), angles}, {{"interleaved", way}});
    }
}

// Numbers that nothing here computed: cosines of the angles as transformers has them, rounded once, and those of
// RoFormer's formula, which an angle of two rounded factors is near (tools/golden/make_rope_table.py).
TEST(CudaKernels, RopeTableIsThatOfMpmath) {
  const Json data = testing_support::golden_json("rope_table.json");
  ASSERT_FALSE(data.is_null());
  const auto at = data["positions"].get<std::vector<double>>();
  for (const Json& c : data["cases"]) {
    const auto freq = c["inv_freq"].get<std::vector<double>>();
    const auto dim = c["dim"].get<int64_t>(), half = dim / 2;
    const Attrs attrs{{"dim", dim},
                      {"inv_freq", freq},
                      {"scale", c["scale"].get<double>()},
                      {"ntk_base", c["ntk_base"].get<double>()},
                      {"ntk_factor", c["ntk_factor"].get<double>()},
                      {"ntk_window", c["ntk_window"].get<int64_t>()}};
    const TestTensor cpu = on_cpu().run("rope_table", {indices(at)}, attrs)[0],
                     cuda = on_cuda().run("rope_table", {indices(at)}, attrs)[0];
    for (size_t t = 0; t < at.size(); ++t) {
      const auto bits = c["rows"][t]["bits"].get<std::vector<uint32_t>>();
      const auto real = c["rows"][t]["real"].get<std::vector<double>>();
      for (int64_t i = 0; i < dim; ++i) {
        const auto k = static_cast<size_t>(i);
        const int64_t n = static_cast<int64_t>(t) * dim + i;
        EXPECT_EQ(cuda.as<uint32_t>()[n], bits[k]) << "position " << at[t] << ", " << i << " of " << dim;
        EXPECT_EQ(cpu.as<uint32_t>()[n], bits[k]) << "the CPU's position " << at[t] << ", " << i << " of " << dim;
        const double angle = at[t] * freq[static_cast<size_t>(i % half)];
        EXPECT_NEAR(cuda.get(n), real[k], angle * 0x1p-22 + 0x1p-22) << "position " << at[t];
      }
    }
  }
}

TEST(CudaKernels, NormsAreNearTheCpus) {
  for (DType t : kDTypes) {
    const double rel = 4 * unit_roundoff(t), abs = 1e-6;
    for (int64_t width : {1, 6, 64, 576, 4104}) {
      const TestTensor x = random_tensor(t, {3, width}, 1), r = random_tensor(t, {3, width}, 2),
                       w = random_tensor(t, {width}, 3), b = random_tensor(t, {width}, 4);
      expect_near("rms_norm", {x, w}, rel, abs, {{"eps", 1e-5}});
      expect_near("rms_norm", {x, w, b}, rel, 4 * unit_roundoff(t), {{"eps", 1e-5}});
      expect_near("add_rms_norm", {x, r, w}, rel, abs, {{"eps", 1e-5}});
      expect_near("rms_norm_centred", {x, w}, rel, abs, {{"eps", 1e-5}});
      expect_near("unit_rms_norm", {x}, rel, abs, {{"eps", 1e-5}});
      expect_near("layer_norm", {x, w}, rel, 4 * unit_roundoff(t), {{"eps", 1e-5}});
      expect_near("layer_norm", {x, w, b}, rel, 4 * unit_roundoff(t), {{"eps", 1e-5}});
    }
    expect_near("layer_norm", {random_tensor(t, {3, 2, 22}, 1), random_tensor(t, {2, 22}, 2)}, rel,
                4 * unit_roundoff(t), {{"eps", 1e-6}});
    expect_near("rms_norm", {random_tensor(t, {3, 2, 64}, 1), random_tensor(t, {64}, 2)}, rel, abs, {{"eps", 1e-6}});
  }
}

// The fused kernels give the bits of their parts on this device.
TEST(CudaKernels, FusedIsTheSumOfItsParts) {
  const OpRunner cuda = cuda_runner();
  const Attrs eps{{"eps", 1e-5}};
  for (DType t : kDTypes) {
    const TestTensor x = random_tensor(t, {3, 200}, 1), r = random_tensor(t, {3, 200}, 2),
                     w = random_tensor(t, {200}, 3);
    const TestTensor sum = cuda.run("add", {x, r})[0];
    const auto fused = cuda.run("add_rms_norm", {x, r, w}, eps);
    expect_same_bits(fused[0], cuda.run("rms_norm", {sum, w}, eps)[0]);
    expect_same_bits(fused[1], sum);

    const TestTensor a = random_tensor(t, {5, 72}, 4), m = random_tensor(t, {50, 72}, 5),
                     y = random_tensor(t, {5, 50}, 6);
    const TestTensor product = cuda.run("linear", {a, m})[0];
    expect_same_bits(cuda.run("linear_add", {a, m, y})[0], cuda.run("add", {product, y})[0]);
    const Attrs wide{{"out", std::string(t == DType::F32 ? "same" : "f32")}};
    expect_same_bits(cuda.run("lm_head_argmax", {a, m})[0],
                     cuda.run("argmax", {cuda.run("linear", {a, m}, wide)[0]})[0]);
  }
}

TEST(CudaKernels, SplitHeadsIsTheSumOfItsParts) {
  const OpRunner cuda = cuda_runner();
  for (DType t : kDTypes)
    for (int64_t d : {22, 64, 128}) {
      const int64_t heads = 3, kv_heads = 1, rot = d == 64 ? 32 : d;
      std::vector<double> freq(static_cast<size_t>(rot / 2), 0.1);
      const TestTensor table = cuda.run("rope_table", {indices({3, 5})}, {{"dim", rot}, {"inv_freq", freq}})[0];
      const TestTensor qkv = random_tensor(t, {2, (heads + 2 * kv_heads) * d}, 1), qw = random_tensor(t, {d}, 2),
                       kw = random_tensor(t, {d}, 3);
      const Attrs eps{{"eps", 1e-5}};
      auto part = [&](int64_t begin, int64_t n, const TestTensor* w) {
        TestTensor p = cuda.run("slice", {qkv}, {{"begin", begin * d}, {"size", n * d}})[0];
        p.type.shape = constant_shape({2, n, d});
        if (w) p = cuda.run("rope", {cuda.run("rms_norm", {p, *w}, eps)[0], table})[0];
        return p;
      };
      const TestTensor q = part(0, heads, &qw), k = part(heads, kv_heads, &kw),
                       v = part(heads + kv_heads, kv_heads, nullptr);
      const Attrs at{{"heads", heads}, {"kv_heads", kv_heads}, {"eps", 1e-5}};
      const auto split = cuda.run("split_qk_norm_rope", {qkv, table, qw, kw}, at);
      expect_same_bits(split[0], q);
      expect_same_bits(split[1], k);
      expect_same_bits(split[2], v);
      for (DType stored : {t, DType::I8}) {
        const TestTensor cache = zero_tensor(stored, {3, 2, kv_heads, kPageTokens, kv_row(stored, d)});
        const TestTensor slots = indices({131, -1});
        const auto fused = cuda.run("split_qk_norm_rope_kv", {cache, qkv, table, slots, qw, kw}, at);
        expect_same_bits(fused[0], cuda.run("kv_write", {cache, k, v, slots})[0]);
        expect_same_bits(fused[1], q);
      }
    }
}

TEST(CudaKernels, ProductsAreNearTheCpus) {
  for (DType t : kDTypes) {
    const double rel = 2 * unit_roundoff(t);
    for (auto [rows, depth, columns] :
         {std::array<int64_t, 3>{1, 16, 8}, {3, 72, 50}, {17, 200, 33}, {40, 136, 70}, {70, 64, 9}, {2, 13, 5}}) {
      const TestTensor x = random_tensor(t, {rows, depth}, 1), w = random_tensor(t, {columns, depth}, 2);
      expect_near("linear", {x, w}, rel, 1e-5 * static_cast<double>(depth));
      expect_near("linear", {x, w, random_tensor(t, {columns}, 3)}, rel, 1e-5 * static_cast<double>(depth));
      if (t != DType::F32)
        expect_near("linear", {x, w}, 0, 1e-5 * static_cast<double>(depth), {{"out", std::string("f32")}});
    }
  }
}

// A row's bits do not depend on how many others there are or where it lies.
TEST(CudaKernels, RowsKeepTheirBitsInAnyCompany) {
  const OpRunner cuda = cuda_runner();
  for (DType t : kDTypes) {
    const TestTensor x = random_tensor(t, {70, 88}, 1), w = random_tensor(t, {40, 88}, 2);
    const TestTensor all = cuda.run("linear", {x, w})[0], head = cuda.run("lm_head_argmax", {x, w})[0];
    for (auto [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {5, 8}, {16, 16}, {3, 17}, {30, 33}, {69, 1}}) {
      const TestTensor part = rows_of(x, first, count);
      expect_same_bits(cuda.run("linear", {part, w})[0], rows_of(all, first, count));
      expect_same_bits(cuda.run("lm_head_argmax", {part, w})[0], rows_of(head, first, count));
    }
  }
}

// Every number of rows near the sizes where a product takes another way, in another order of lanes.
TEST(CudaKernels, ProductsOfAnyNumberOfRowsHaveTheSameBits) {
  constexpr int64_t kRows = 257;
  const TestTensor x = random_tensor(DType::BF16, {kRows, 32}, 1), w = random_tensor(DType::BF16, {24, 32}, 2),
                   added = random_tensor(DType::BF16, {kRows, 24}, 3);
  const TestTensor all = on_cuda().run("linear", {x, w})[0], sum = on_cuda().run("linear_add", {x, w, added})[0];
  for (int64_t rows = 1; rows <= kRows; rows += rows == 80 ? 47 : rows == 129 ? 126 : 1) {
    const TestTensor part = rows_of(x, 0, rows);
    const Order order = rows % 2 ? Order::Shuffled : Order::Descending;
    expect_same_bits(on_cuda(order).run("linear", {part, w})[0], rows_of(all, 0, rows), fmt::format("{} rows", rows));
    expect_same_bits(on_cuda(order).run("linear_add", {part, w, rows_of(added, 0, rows)})[0], rows_of(sum, 0, rows),
                     fmt::format("{} rows, and added", rows));
  }
}

TEST(CudaKernels, Int8HasTheCpusBits) {
  for (DType t : kDTypes)
    for (int64_t width : {5, 40, 264}) {
      const TestTensor x = random_tensor(t, {4, width}, 1, -3, 3), gate_up = random_tensor(t, {4, 2 * width}, 2, -4, 4);
      const TestTensor one = tensor_of(DType::F32, {1}, {17.0}), zero = tensor_of(DType::F32, {1}, {-3.0});
      const TestTensor scale = random_tensor(DType::F32, {width}, 3, 5, 30),
                       offset = random_tensor(DType::F32, {width}, 4);
      expect_equal("quantize_dynamic", {x});
      expect_equal("quantize_static", {x, one, zero});
      expect_equal("quantize_static", {x, scale, offset});
      expect_equal("silu_mul_quant", {gate_up});
      expect_equal("silu_mul_quant_static", {gate_up, scale, offset});
    }
}

TEST(CudaKernels, Int8ProductsHaveTheCpusBits) {
  for (auto [rows, depth, columns] :
       {std::array<int64_t, 3>{1, 16, 8}, {3, 144, 50}, {17, 200, 33}, {40, 136, 70}, {70, 64, 9}, {2, 13, 5}}) {
    const TestTensor x = random_tensor(DType::I8, {rows, depth}, 1, -128, 128),
                     w = random_tensor(DType::I8, {columns, depth}, 2, -128, 128),
                     x_scale = random_tensor(DType::F32, {rows, 1}, 3, 0.001, 0.1),
                     scale = random_tensor(DType::F32, {columns}, 4, 0.001, 0.1),
                     bias = random_tensor(DType::I32, {columns}, 5, -9000, 9000),
                     add = random_tensor(DType::F32, {columns}, 6);
    for (const char* out : {"f32", "bf16", "f16"}) {
      const Attrs to{{"out", std::string(out)}};
      expect_equal("linear_w8a8_dynamic", {x, x_scale, w, scale}, to);
      expect_equal("linear_w8a8_dynamic", {x, x_scale, w, scale, add}, to);
      expect_equal("linear_w8a8_static", {x, w, scale, bias}, to);
      expect_equal("linear_w8a8_static", {x, w, scale, bias, add}, to);
    }
    expect_equal("lm_head_argmax_w8a8", {x, x_scale, w, scale});
  }
}

TEST(CudaKernels, NormsThatQuantiseAreTheSumOfTheirParts) {
  const OpRunner cuda = cuda_runner();
  const Attrs eps{{"eps", 1e-5}};
  for (DType t : kDTypes)
    for (int64_t width : {60, 264}) {
      const TestTensor x = random_tensor(t, {3, width}, 1), r = random_tensor(t, {3, width}, 2),
                       w = random_tensor(t, {width}, 3), scale = random_tensor(DType::F32, {width}, 4, 5, 30),
                       offset = random_tensor(DType::F32, {width}, 5);
      const auto normed = cuda.run("add_rms_norm", {x, r, w}, eps);
      const auto dynamic = cuda.run("add_rms_norm_quant_dynamic", {x, r, w}, eps);
      const auto quantised = cuda.run("quantize_dynamic", {normed[0]});
      expect_same_bits(dynamic[0], quantised[0]);
      expect_same_bits(dynamic[1], quantised[1]);
      expect_same_bits(dynamic[2], normed[1]);
      const auto given = cuda.run("add_rms_norm_quant_static", {x, r, w, scale, offset}, eps);
      expect_same_bits(given[0], cuda.run("quantize_static", {normed[0], scale, offset})[0]);
      expect_same_bits(given[1], normed[1]);
    }
}

}  // namespace
}  // namespace reprise::simt::kernels_test

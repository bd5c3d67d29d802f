// Fused kernels against their meaning: the meaning is traced on the test's types and run op by op through the plain
// kernels; every bit of every result must agree, on every instruction set, dtype and pool size. The new primitive ops
// have answers of their own here.
#include <gtest/gtest.h>

#include <map>

#include "backends/op_runner.h"
#include "nn/fused.h"

namespace reprise::cpu::fused_test {
namespace {

constexpr int64_t kRows[] = {1, 2, 3, 7, 33};

void for_each(const std::function<void(const OpRunner&, Isa, DType)>& body,
              const std::vector<Isa>& isas = supported_isas()) {
  for (Isa isa : isas) {
    const OpRunner runner(isa);
    for (DType t : kDTypes) {
      body(runner, isa, t);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Results of the meaning. `optional` operands left out are not passed.
std::vector<TestTensor> run_meaning(const OpRunner& runner, const nn::FusedOp& op, const std::vector<TestTensor>& in,
                                    Attrs attrs, const RunOptions& options = {}) {
  const OpSchema* schema = runner.ops().find(op.name());
  CHECK(schema && check_attrs(*schema, attrs).is_ok(), "attributes of {}", op.name());
  std::vector<TensorType> types;
  for (const TestTensor& t : in) types.push_back(t.type);
  const std::vector<Symbol> symbols{{"T", 64}};
  auto traced = nn::trace_meaning(op.meaning, schema->operands.size(), symbols, types, attrs, runner.ops());
  CHECK(traced.is_ok(), "{}", traced.status().message());
  const Graph graph = std::move(traced).value();
  std::map<const Value*, TestTensor> value;
  for (const Node* n = graph.first(); n; n = n->next) {
    if (n->is_input()) {
      value[n->result()] = in[static_cast<size_t>(std::stoi(n->attrs.text("name")))];
    } else if (n->is_view()) {
      value[n->result()] = {n->result()->type, value.at(n->in[0]).bytes};
    } else {
      std::vector<TestTensor> operands;
      for (const Value* v : n->in) operands.push_back(value.at(v));
      const std::vector<TestTensor> out = runner.run(n->op->name, operands, n->attrs, options);
      for (size_t i = 0; i < out.size(); ++i) value[n->result(i)] = out[i];
    }
  }
  std::vector<TestTensor> out;
  for (const GraphOutput& o : graph.outputs()) out.push_back(value.at(o.value));
  return out;
}

void expect_meaning(const OpRunner& runner, std::string_view name, const std::vector<TestTensor>& in,
                    const Attrs& attrs, const std::string& what, RunOptions options = {}) {
  static const nn::FusedOps fused = nn::fused_ops();
  const std::vector<TestTensor> want = run_meaning(runner, *fused.find(name), in, attrs, options);
  for (int threads : kSanitized ? std::vector{3} : std::vector{1, 2, 3}) {
    options.threads = threads;
    const std::vector<TestTensor> got = runner.run(name, in, attrs, options);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
      expect_same_bits(got[i], want[i], fmt::format("{} {}, result {}, {} threads", name, what, i, threads));
  }
}

std::string name_of(Isa isa, const TestTensor& t) { return fmt::format("{} {}", isa_name(isa), describe(t.type)); }

// A few values at which rounding, overflow and division are unusual.
void add_odd_values(TestTensor& t) {
  const double odd[] = {0, -0.0, 1e-7, -1e-7, 1e-40, 300, -300, 60000};
  for (int64_t i = 0; i < t.size(); i += 37) t.set(i, odd[(i / 37) % 8]);
}

TEST(Slice, CopiesColumns) {
  for_each([](const OpRunner& runner, Isa isa, DType t) {
    struct Case {
      int64_t width, begin, size;
    };
    for (int64_t rows : kRows)
      for (const Case& c : {Case{1, 0, 1}, Case{37, 5, 11}, Case{256, 128, 128}, Case{200, 0, 200}}) {
        const TestTensor x = random_tensor(t, {rows, c.width}, 1);
        TestTensor want = zero_tensor(t, {rows, c.size});
        for (int64_t i = 0; i < want.size(); ++i) want.set(i, x.get(i / c.size * c.width + c.begin + i % c.size));
        for (int threads : {1, 2, 3})
          expect_same_bits(runner.run("slice", {x}, {{"begin", c.begin}, {"size", c.size}}, {.threads = threads})[0],
                           want, name_of(isa, x));
      }
  });
}

TEST(Copy, KeepsEveryBit) {
  for_each([](const OpRunner& runner, Isa isa, DType t) {
    for (const auto& shape : std::vector<std::vector<int64_t>>{{1}, {33}, {3, 77}, {2, 3, 64}, {0, 8}}) {
      const TestTensor x = random_tensor(t, shape, 2);
      for (int threads : {1, 2, 3})
        expect_same_bits(runner.run("copy", {x}, {}, {.threads = threads})[0], x, name_of(isa, x));
    }
  });
}

TEST(Argmax, SmallestIndexAndNoNan) {
  for_each([](const OpRunner& runner, Isa isa, DType t) {
    for (int64_t rows : kRows)
      for (int64_t n : {1, 7, 16, 100, 333, 2049}) {
        TestTensor x = random_tensor(t, {rows, n}, static_cast<uint32_t>(n), -9, -1);
        for (int64_t i = 0; i < x.size(); i += 5) x.set(i, NAN);
        if (rows > 2) {
          for (int64_t i = 0; i < n; ++i) x.set(n + i, i % 2 ? -INFINITY : NAN);
          for (int64_t i = 0; i < n; ++i) x.set(2 * n + i, i % 3 ? -0.0 : -1);
        }
        TestTensor want = zero_tensor(DType::I32, {rows});
        for (int64_t r = 0; r < rows; ++r) {
          double top = -INFINITY;
          for (int64_t i = 0; i < n; ++i)
            if (x.get(r * n + i) > top) top = x.get(r * n + i), want.set(r, static_cast<double>(i));
        }
        for (int threads : {1, 2, 3})
          expect_same_bits(runner.run("argmax", {x}, {}, {.threads = threads})[0], want, name_of(isa, x));
      }
  });
}

TEST(Reciprocal, RoundsOnce) {
  for_each([](const OpRunner& runner, Isa isa, DType t) {
    TestTensor x = random_tensor(t, {3, 77}, 3, -4, 4);
    add_odd_values(x);
    TestTensor want = x;
    for (int64_t i = 0; i < x.size(); ++i) want.set(i, 1.0f / static_cast<float>(x.get(i)));
    for (int threads : {1, 2, 3})
      expect_same_bits(runner.run("reciprocal", {x}, {}, {.threads = threads})[0], want, name_of(isa, x));
  });
}

int8_t quantised(float v) {
  if (std::isnan(v)) return 0;
  return static_cast<int8_t>(std::nearbyint(std::min(127.0f, std::max(-128.0f, v))));
}

TEST(Quantize, StaticMatchesTheReference) {
  for_each([](const OpRunner& runner, Isa isa, DType t) {
    for (int64_t rows : kRows)
      for (int64_t n : {1, 17, 128, 333})
        for (int64_t wide : {int64_t{1}, n}) {
          TestTensor x = random_tensor(t, {rows, n}, 4, -3, 3);
          add_odd_values(x);
          for (int64_t i = 0; i < x.size(); i += 11) x.set(i, std::round(x.get(i) * 2) / 2);
          x.set(x.size() - 1, NAN);
          if (x.size() > 1) x.set(x.size() - 2, INFINITY);
          TestTensor scale = random_tensor(DType::F32, {wide}, 5, 20, 60),
                     offset = random_tensor(DType::F32, {n}, 6, -9, 9);
          if (n > 1) scale.set(0, 1), offset.set(0, 0);
          TestTensor want = zero_tensor(DType::I8, {rows, n});
          for (int64_t i = 0; i < x.size(); ++i) {
            const float product = static_cast<float>(x.get(i)) * static_cast<float>(scale.get(wide == 1 ? 0 : i % n));
            want.as<int8_t>()[i] = quantised(product + static_cast<float>(offset.get(i % n)));
          }
          for (int threads : {1, 2, 3})
            EXPECT_EQ(runner.run("quantize_static", {x, scale, offset}, {}, {.threads = threads})[0].bytes, want.bytes)
                << name_of(isa, x);
        }
  });
}

TEST(Quantize, DynamicMatchesTheReference) {
  for_each([](const OpRunner& runner, Isa isa, DType t) {
    for (int64_t rows : kRows)
      for (int64_t n : {1, 17, 128, 333}) {
        TestTensor x = random_tensor(t, {rows, n}, 7, -3, 3);
        if (rows > 2) {
          for (int64_t i = 0; i < n; ++i) x.set(n + i, 0);
          x.set(2 * n, NAN);
        }
        TestTensor want = zero_tensor(DType::I8, {rows, n}), scales = zero_tensor(DType::F32, {rows, 1});
        for (int64_t r = 0; r < rows; ++r) {
          float top = 0;
          for (int64_t i = 0; i < n; ++i) {
            const float v = std::abs(static_cast<float>(x.get(r * n + i)));
            if (v > top) top = v;
          }
          const float scale = top / 127.0f;
          scales.set(r, scale);
          for (int64_t i = 0; i < n; ++i)
            want.as<int8_t>()[r * n + i] = quantised(static_cast<float>(x.get(r * n + i)) / scale);
        }
        for (int threads : {1, 2, 3}) {
          const auto got = runner.run("quantize_dynamic", {x}, {}, {.threads = threads});
          EXPECT_EQ(got[0].bytes, want.bytes) << name_of(isa, x);
          EXPECT_EQ(got[1].bytes, scales.bytes) << name_of(isa, x);
        }
      }
  });
}

// Values next to where the quotient rounds the other way, at scales of all sizes: the last bit of a quotient counts.
TEST(Quantize, DynamicRoundsTheExactQuotient) {
  for (Isa isa : supported_isas()) {
    const OpRunner runner(isa);
    for (int power : {-126, -70, -59, -20, 0, 20, 59, 70, 118}) {
      constexpr int64_t kRowCount = 40, kColumns = 1 + 127 * 5;
      TestTensor x = zero_tensor(DType::F32, {kRowCount, kColumns});
      TestTensor want = zero_tensor(DType::I8, {kRowCount, kColumns}), scales = zero_tensor(DType::F32, {kRowCount, 1});
      std::mt19937 gen(static_cast<uint32_t>(power + 1000));
      for (int64_t r = 0; r < kRowCount; ++r) {
        float* row = x.as<float>() + r * kColumns;
        row[0] = std::ldexp(1.0f + static_cast<float>(gen() >> 9) * 0x1p-23f, power + 7);
        const float scale = row[0] / 127.0f;
        scales.as<float>()[r] = scale;
        for (int64_t i = 1; i < kColumns; ++i) {
          float v = static_cast<float>((static_cast<double>((i - 1) / 5) - 0.5) * scale);
          for (int64_t k = 2; k < (i - 1) % 5; ++k) v = std::nextafter(v, row[0]);
          for (int64_t k = (i - 1) % 5; k < 2; ++k) v = std::nextafter(v, -row[0]);
          row[i] = i % 2 ? v : -v;
        }
        for (int64_t i = 0; i < kColumns; ++i) want.as<int8_t>()[r * kColumns + i] = quantised(row[i] / scale);
      }
      const auto got = runner.run("quantize_dynamic", {x}, {}, {.threads = 2});
      EXPECT_EQ(got[0].bytes, want.bytes) << isa_name(isa) << " power " << power;
      EXPECT_EQ(got[1].bytes, scales.bytes) << isa_name(isa) << " power " << power;
    }
  }
}

TEST(Fused, SiluMul) {
  for_each([](const OpRunner& runner, Isa isa, DType t) {
    for (int64_t rows : kRows)
      for (int64_t f : {1, 16, 33, 130, 768}) {
        TestTensor x = random_tensor(t, {rows, 2 * f}, 8, -9, 9);
        add_odd_values(x);
        expect_meaning(runner, "silu_mul", {x}, {}, name_of(isa, x));
        for (int64_t wide : {int64_t{1}, f}) {
          const TestTensor scale = random_tensor(DType::F32, {wide}, 12, 2, 6);
          const TestTensor offset = random_tensor(DType::F32, {f}, 13, -9, 9);
          expect_meaning(runner, "silu_mul_quant_static", {x, scale, offset}, {}, name_of(isa, x));
        }
        for (int64_t i = 0; rows > 2 && i < 2 * f; ++i) x.set(2 * f + i, 0);
        expect_meaning(runner, "silu_mul_quant", {x}, {}, name_of(isa, x));
      }
  });
}

TEST(Fused, AddRmsNorm) {
  for_each([](const OpRunner& runner, Isa isa, DType t) {
    for (int64_t rows : kRows)
      for (int64_t n : {1, 15, 64, 577}) {
        TestTensor x = random_tensor(t, {rows, n}, 9, -3, 3), r = random_tensor(t, {rows, n}, 10, -3, 3);
        add_odd_values(x);
        for (int64_t i = 0; rows > 2 && i < n; ++i) x.set(n + i, -r.get(n + i));
        const TestTensor w = random_tensor(t, {n}, 11, 0.5, 1.5), b = random_tensor(t, {n}, 14, -2, 2);
        for (const char* name : {"add_rms_norm", "add_rms_norm_quant_dynamic"}) {
          expect_meaning(runner, name, {x, r, w}, {{"eps", 1e-5}}, name_of(isa, x));
          expect_meaning(runner, name, {x, r, w, b}, {{"eps", 1e-5}}, name_of(isa, x) + " with a bias");
        }
        for (int64_t wide : {int64_t{1}, n}) {
          const TestTensor scale = random_tensor(DType::F32, {wide}, 12, 20, 60);
          const TestTensor offset = random_tensor(DType::F32, {wide}, 13, -9, 9);
          expect_meaning(runner, "add_rms_norm_quant_static", {x, r, w, scale, offset}, {{"eps", 1e-5}},
                         name_of(isa, x));
          expect_meaning(runner, "add_rms_norm_quant_static", {x, r, w, scale, offset, b}, {{"eps", 1e-5}},
                         name_of(isa, x) + " with a bias");
        }
      }
  });
}

struct SplitCase {
  int64_t heads, kv_heads, size, rot;
};
const SplitCase kSplits[] = {{2, 1, 24, 24},   {9, 3, 64, 64}, {4, 2, 80, 20},
                             {3, 3, 128, 128}, {2, 1, 64, 34}, {20, 17, 64, 64}};

TEST(Fused, SplitQkNormRope) {
  for_each([](const OpRunner& runner, Isa isa, DType t) {
    for (int64_t tokens : kRows)
      for (const SplitCase& c : kSplits) {
        TestTensor qkv = random_tensor(t, {tokens, (c.heads + 2 * c.kv_heads) * c.size}, 14, -2, 2);
        add_odd_values(qkv);
        const TestTensor table = random_tensor(DType::F32, {tokens, c.rot}, 15);
        const TestTensor qw = random_tensor(t, {c.size}, 16, 0.5, 1.5), kw = random_tensor(t, {c.size}, 17, 0.5, 1.5);
        const Attrs attrs{{"heads", c.heads}, {"kv_heads", c.kv_heads}, {"eps", 1e-6}};
        for (const auto& in :
             std::vector<std::vector<TestTensor>>{{qkv, table}, {qkv, table, qw}, {qkv, table, qw, kw}})
          expect_meaning(runner, "split_qk_norm_rope", in, attrs, name_of(isa, qkv));
      }
  });
}

TEST(Fused, SplitQkNormRopeKv) {
  for_each([](const OpRunner& runner, Isa isa, DType t) {
    for (const SplitCase& c : kSplits) {
      const TestTensor kv = random_tensor(t, {2, 2, c.kv_heads, kPageTokens, c.size}, 19);
      const TestTensor kv8 =
          random_tensor(DType::I8, {2, 2, c.kv_heads, kPageTokens, kv_row(DType::I8, c.size)}, 19, -128, 128);
      for (int64_t tokens : kRows) {
        TestTensor qkv = random_tensor(t, {tokens, (c.heads + 2 * c.kv_heads) * c.size}, 18, -2, 2);
        add_odd_values(qkv);
        const TestTensor table = random_tensor(DType::F32, {tokens, c.rot}, 20);
        const TestTensor qw = random_tensor(t, {c.size}, 21, 0.5, 1.5), kw = random_tensor(t, {c.size}, 22, 0.5, 1.5);
        // A run across the border of a page, a hole, then single slots elsewhere.
        TestTensor slots = zero_tensor(DType::I32, {tokens});
        for (int64_t i = 0; i < tokens; ++i)
          slots.set(i, i < 25 ? 128 + 111 + static_cast<double>(i) - (i >= 17 ? 128 : 0)
                              : 5 + 3 * static_cast<double>(i - 25));
        if (tokens > 2) slots.set(2, -1);
        const Attrs attrs{{"heads", c.heads}, {"kv_heads", c.kv_heads}, {"eps", 1e-6}};
        for (const auto& in : std::vector<std::vector<TestTensor>>{{kv, qkv, table, slots},
                                                                   {kv, qkv, table, slots, qw, kw},
                                                                   {kv8, qkv, table, slots},
                                                                   {kv8, qkv, table, slots, qw, kw}})
          expect_meaning(runner, "split_qk_norm_rope_kv", in, attrs, name_of(isa, qkv));
      }
    }
  });
}

struct LinearCase {
  int64_t k, n;
};
const LinearCase kLinears[] = {{1, 1}, {33, 70}, {64, 200}, {130, 64}, {257, 129}};

TEST(Fused, LinearAdd) {
  for_each(
      [](const OpRunner& runner, Isa isa, DType t) {
        for (int64_t rows : {1, 2, 3, 7, 33, 100})
          for (const LinearCase& c : kLinears) {
            TestTensor x = random_tensor(t, {rows, c.k}, 26), w = random_tensor(t, {c.n, c.k}, 27);
            TestTensor residual = random_tensor(t, {rows, c.n}, 28), bias = random_tensor(t, {c.n}, 29);
            add_odd_values(x);
            add_odd_values(residual);
            // Products that are nothing against subnormal residuals: the sum's mode must not leak into the addition.
            for (int64_t i = 0; i < c.k; ++i) x.set((rows - 1) * c.k + i, 0);
            for (int64_t i = 0; i < c.n; ++i) residual.set((rows - 1) * c.n + i, 1e-40 * static_cast<double>(i));
            expect_meaning(runner, "linear_add", {x, w, residual}, {}, name_of(isa, x));
            expect_meaning(runner, "linear_add", {x, w, residual, bias}, {{"shard", std::string("row")}},
                           name_of(isa, x));
          }
      },
      isas_with_tiles());
}

TEST(Fused, LmHeadArgmax) {
  for_each(
      [](const OpRunner& runner, Isa isa, DType t) {
        for (int64_t rows : {1, 2, 3, 7, 33, 100})
          for (const LinearCase& c : kLinears) {
            TestTensor x = random_tensor(t, {rows, c.k}, 30), w = random_tensor(t, {c.n, c.k}, 31);
            expect_meaning(runner, "lm_head_argmax", {x, w}, {}, name_of(isa, x));
            // Ties in different panels and shares; all logits negative; NaN and infinities.
            for (int64_t i = 0; i < w.size(); ++i) w.set(i, w.get(i % (7 * c.k)));
            for (int64_t i = 0; i < c.k; ++i) x.set(i, 0);
            if (rows > 2) x.set(c.k, NAN), x.set(2 * c.k, -INFINITY);
            expect_meaning(runner, "lm_head_argmax", {x, w}, {}, name_of(isa, x) + " ties");
            for (int64_t i = 0; i < w.size(); ++i) w.set(i, -std::abs(w.get(i)) - 0.01);
            for (int64_t i = 0; i < x.size(); ++i) x.set(i, std::abs(x.get(i)));
            expect_meaning(runner, "lm_head_argmax", {x, w}, {}, name_of(isa, x) + " negative");
          }
      },
      isas_with_tiles());
}

TEST(Fused, LmHeadArgmaxW8A8) {
  for (Isa isa : isas_with_tiles()) {
    const OpRunner runner(isa);
    for (int64_t rows : {1, 2, 3, 7, 33, 100})
      for (const LinearCase& c : kLinears) {
        TestTensor x = random_tensor(DType::I8, {rows, c.k}, 33, -128, 128),
                   w = random_tensor(DType::I8, {c.n, c.k}, 34, -128, 128);
        TestTensor x_scale = random_tensor(DType::F32, {rows, 1}, 35, 0, 0.1),
                   scale = random_tensor(DType::F32, {c.n}, 36, 0.001, 0.01);
        auto check = [&](const char* what) {
          expect_meaning(runner, "lm_head_argmax_w8a8", {x, x_scale, w, scale}, {}, name_of(isa, x) + what);
        };
        check("");
        // Ties in different panels and shares; rows of zeros, NaN, infinities and signs in the scales.
        for (int64_t i = 0; i < w.size(); ++i) w.set(i, w.get(i % (7 * c.k)));
        for (int64_t i = 0; i < c.n; ++i) scale.set(i, 0.5);
        if (rows > 2) x_scale.set(0, 0), x_scale.set(1, NAN), x_scale.set(2, INFINITY);
        check(" ties");
        for (int64_t i = 0; i < c.n; ++i) scale.set(i, i % 3 ? -scale.get(i) : NAN);
        check(" signs");
        if (testing::Test::HasFatalFailure()) return;
      }
  }
}

TEST(Fused, OnlyLiveRowsAreTouched) {
  const OpRunner runner(supported_isas().back());
  RunOptions options;
  options.live.value[1] = 3;
  for (DType t : kDTypes) {
    // The result buffers of the runner have exactly the live rows, then guard bytes.
    TestTensor x = random_tensor(t, {8, 96}, 23), table = random_tensor(DType::F32, {8, 8}, 24);
    const TestTensor w = random_tensor(t, {96}, 25);
    x.type.shape[0] = table.type.shape[0] = Dim(1, 1);
    expect_meaning(runner, "silu_mul", {x}, {}, "live", options);
    expect_meaning(runner, "silu_mul_quant", {x}, {}, "live", options);
    expect_meaning(runner, "add_rms_norm", {x, x, w}, {{"eps", 1e-5}}, "live", options);
    expect_meaning(runner, "add_rms_norm_quant_dynamic", {x, x, w}, {{"eps", 1e-5}}, "live", options);
    expect_meaning(runner, "split_qk_norm_rope", {x, table}, {{"heads", int64_t{4}}, {"kv_heads", int64_t{1}}}, "live",
                   options);
    const TestTensor one = random_tensor(DType::F32, {1}, 34);
    expect_meaning(runner, "silu_mul_quant_static", {x, one, one}, {}, "live", options);
    const TestTensor matrix = random_tensor(t, {96, 96}, 32);
    expect_meaning(runner, "linear_add", {x, matrix, x}, {}, "live", options);
    expect_meaning(runner, "lm_head_argmax", {x, matrix}, {}, "live", options);
    EXPECT_EQ(runner.run("argmax", {x}, {}, options)[0].size(), 3);
    EXPECT_EQ(runner.run("copy", {x}, {}, options)[0].size(), 3 * 96);
  }
}

TEST(Fused, RefusalsSayWhy) {
  const OpRunner runner(Isa::Baseline);
  const Dim tokens(2);
  const auto odd =
      runner.choose("split_qk_norm_rope", {{DType::F32, {tokens, Dim(32)}}, {DType::F32, {tokens, Dim(3)}}},
                    {{"heads", int64_t{2}}, {"kv_heads", int64_t{1}}});
  ASSERT_FALSE(odd.is_ok());
  EXPECT_NE(odd.status().message().find("not an even constant"), std::string::npos) << odd.status().message();
  const auto large = runner.choose("split_qk_norm_rope_kv",
                                   {{DType::F32, {Dim(1), Dim(2), Dim(1), Dim(kPageTokens), Dim(512)}},
                                    {DType::F32, {tokens, Dim(3 * 512)}},
                                    {DType::F32, {tokens, Dim(64)}},
                                    {DType::I32, {tokens}}},
                                   {{"heads", int64_t{1}}, {"kv_heads", int64_t{1}}});
  ASSERT_FALSE(large.is_ok());
  EXPECT_NE(large.status().message().find("from 2 to 256"), std::string::npos) << large.status().message();
}

}  // namespace
}  // namespace reprise::cpu::fused_test

// Norms, rotary embedding, elementwise ops and rows against double precision, on every instruction set, dtype and pool
// size.
#include <gtest/gtest.h>

#include "backends/op_runner.h"
#include "backends/reference.h"

namespace reprise::cpu::vector_test {
namespace {

std::string name_of(Isa isa, DType t, const std::string& more) {
  return fmt::format("{} {} {}", isa_name(isa), dtype_name(t), more);
}

// Runs on 1, 2 and 3 threads, expects the same bits and returns them.
TestTensor run_all_threads(const OpRunner& runner, std::string_view op, const std::vector<TestTensor>& in,
                           const Attrs& attrs, const std::string& what) {
  const TestTensor one = runner.run(op, in, attrs, {.threads = 1})[0];
  for (int threads : {2, 3}) expect_same_bits(runner.run(op, in, attrs, {.threads = threads})[0], one, what);
  return one;
}

void for_each(const std::function<void(const OpRunner&, Isa, DType)>& body) {
  for (Isa isa : supported_isas()) {
    const OpRunner runner(isa);
    for (DType t : kDTypes) {
      body(runner, isa, t);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(RmsNorm, MatchesTheReference) {
  for_each([](const OpRunner& runner, Isa isa, DType t) {
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
             {1, 1}, {1, 1024}, {2, 15}, {3, 16}, {5, 17}, {7, 576}, {4, 3, 64}, {3, 5, 33}, {1, 9, 128}, {9, 1000}}) {
      const TestTensor x = random_tensor(t, shape, 1, -3, 3), w = random_tensor(t, {shape.back()}, 2, 0.5, 1.5);
      const std::string what = name_of(isa, t, describe(x.type));
      const TestTensor got = run_all_threads(runner, "rms_norm", {x, w}, {{"eps", 1e-5}}, what);
      expect_close(got, reference::rms_norm(to_doubles(x), to_doubles(w), 1e-5), unit_roundoff(t) + 5e-7, 1e-7, what);
    }
  });
}

TEST(RmsNorm, WithABiasMatchesTheReferenceAndRoundsOnce) {
  for_each([](const OpRunner& runner, Isa isa, DType t) {
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{1, 1}, {2, 15}, {3, 16}, {5, 17}, {7, 576}, {4, 3, 33}, {9, 1000}}) {
      const TestTensor x = random_tensor(t, shape, 1, -3, 3), w = random_tensor(t, {shape.back()}, 2, 0.5, 1.5);
      const TestTensor b = random_tensor(t, {shape.back()}, 3, -2, 2);
      const std::string what = name_of(isa, t, describe(x.type));
      const TestTensor got = run_all_threads(runner, "rms_norm", {x, w, b}, {{"eps", 1e-5}}, what);
      // Where the bias cancels the norm, what is left carries the fp32 errors of both.
      expect_close(got, reference::rms_norm(to_doubles(x), to_doubles(w), 1e-5, to_doubles(b)), unit_roundoff(t) + 5e-7,
                   2e-6, what);
      // A bias of zeros is no bias.
      const TestTensor zeros = zero_tensor(t, {shape.back()});
      expect_same_bits(runner.run("rms_norm", {x, w, zeros}, {{"eps", 1e-5}})[0],
                       runner.run("rms_norm", {x, w}, {{"eps", 1e-5}})[0], what);
    }
  });
}

TEST(RmsNorm, RowsDoNotDependOnTheBatch) {
  for_each([](const OpRunner& runner, Isa isa, DType t) {
    const TestTensor x = random_tensor(t, {7, 577}, 3), w = random_tensor(t, {577}, 4);
    const TestTensor all = runner.run("rms_norm", {x, w}, {{"eps", 1e-6}})[0];
    for (int64_t r = 0; r < 7; ++r)
      expect_same_bits(runner.run("rms_norm", {rows_of(x, r, 1), w}, {{"eps", 1e-6}})[0], rows_of(all, r, 1),
                       name_of(isa, t, fmt::format("row {}", r)));
  });
}

TEST(RmsNorm, CentredMultipliesWithOneMoreInFp32) {
  for_each([](const OpRunner& runner, Isa isa, DType t) {
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{1, 1}, {2, 15}, {5, 17}, {7, 576}, {4, 3, 33}}) {
      // Weights near zero, where 1 + w in bf16 would lose most of them.
      const TestTensor x = random_tensor(t, shape, 1, -3, 3), w = random_tensor(t, {shape.back()}, 2, -0.01, 0.01);
      std::vector<double> weight = to_doubles(w);
      for (double& v : weight) v += 1;
      const std::string what = name_of(isa, t, describe(x.type));
      const TestTensor got = run_all_threads(runner, "rms_norm_centred", {x, w}, {{"eps", 1e-5}}, what);
      expect_close(got, reference::rms_norm(to_doubles(x), weight, 1e-5), unit_roundoff(t) + 5e-7, 1e-7, what);
    }
  });
}

TEST(RmsNorm, WithoutAWeightMultipliesWithNone) {
  for_each([](const OpRunner& runner, Isa isa, DType t) {
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{1, 1}, {7, 577}, {4, 3, 33}}) {
      const TestTensor x = random_tensor(t, shape, 1, -3, 3);
      const std::string what = name_of(isa, t, describe(x.type));
      const TestTensor got = run_all_threads(runner, "unit_rms_norm", {x}, {{"eps", 1e-5}}, what);
      const std::vector<double> ones(static_cast<size_t>(shape.back()), 1.0);
      expect_close(got, reference::rms_norm(to_doubles(x), ones, 1e-5), unit_roundoff(t) + 5e-7, 1e-7, what);
    }
  });
}

TEST(LayerNorm, MatchesTheReference) {
  struct Case {
    std::vector<int64_t> shape, weight;
  };
  const std::vector<Case> cases{{{1, 16}, {16}},       {{2, 15}, {15}},    {{5, 17}, {17}},    {{7, 576}, {576}},
                                {{4, 3, 33}, {3, 33}}, {{3, 5, 24}, {24}}, {{9, 1000}, {1000}}};
  for_each([&](const OpRunner& runner, Isa isa, DType t) {
    for (const Case& c : cases)
      for (const bool biased : {false, true}) {
        // Far from zero: a variance of squares minus the square of the mean would lose it.
        const TestTensor x = random_tensor(t, c.shape, 1, 5, 9), w = random_tensor(t, c.weight, 2, 0.5, 1.5);
        const TestTensor b = random_tensor(t, c.weight, 3, -2, 2);
        std::vector<TestTensor> in{x, w};
        if (biased) in.push_back(b);
        const std::string what = name_of(isa, t, describe(x.type));
        const TestTensor got = run_all_threads(runner, "layer_norm", in, {{"eps", 1e-5}}, what);
        expect_close(got,
                     reference::layer_norm(to_doubles(x), to_doubles(w), static_cast<size_t>(c.shape.back()), 1e-5,
                                           biased ? to_doubles(b) : std::vector<double>{}),
                     unit_roundoff(t) + 5e-7, 4e-6, what);
      }
  });
}

TEST(LayerNorm, RefusesWeightsOfOtherShapes) {
  const OpRunner runner(Isa::Baseline);
  const Attrs attrs{{"eps", 1e-5}};
  const DType t = DType::F32;
  const TensorType x{t, {Dim(3), Dim(5), Dim(8)}};
  for (const Shape& weight : {Shape{Dim(5)}, Shape{Dim(3), Dim(8)}, Shape{Dim(3), Dim(5), Dim(8)}})
    EXPECT_FALSE(runner.choose("layer_norm", {x, {t, weight}}, attrs).is_ok());
  EXPECT_FALSE(runner.choose("layer_norm", {x, {t, {Dim(8)}}, {t, {Dim(5), Dim(8)}}}, attrs).is_ok());
}

std::vector<double> inverse_frequencies(int64_t dim, double base) {
  std::vector<double> f;
  for (int64_t i = 0; i < dim; i += 2) f.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(dim)));
  return f;
}

TEST(RopeTable, MatchesTheReference) {
  std::vector<int> positions{0, 1, 2, 3, 127, 128, 2047, 2048, 40000, 131071, 1000003};
  const TestTensor p = tensor_of(DType::I32, {11}, std::vector<double>(positions.begin(), positions.end()));
  for (Isa isa : supported_isas()) {
    const OpRunner runner(isa);
    for (int64_t dim : {2, 6, 64, 128}) {
      const std::vector<double> freq = inverse_frequencies(dim, 10000);
      const std::string what = name_of(isa, DType::F32, fmt::format("dim {}", dim));
      const TestTensor got =
          run_all_threads(runner, "rope_table", {p}, {{"dim", dim}, {"inv_freq", freq}, {"scale", 1.25}}, what);
      expect_close(got, reference::rope_table(positions, freq, 1.25), 1.3e-7, 0, what);
    }
  }
}

TEST(RopeTable, DynamicNtkStretchesLongPositionsOnly) {
  const std::vector<int> positions{0, 62, 63, 64, 65, 200};
  const TestTensor p = tensor_of(DType::I32, {6}, std::vector<double>(positions.begin(), positions.end()));
  const std::vector<double> freq = inverse_frequencies(32, 10000);
  for (Isa isa : supported_isas()) {
    const OpRunner runner(isa);
    const Attrs attrs{{"dim", int64_t{32}},
                      {"inv_freq", freq},
                      {"ntk_base", 10000.0},
                      {"ntk_factor", 2.0},
                      {"ntk_window", int64_t{64}}};
    const TestTensor got = run_all_threads(runner, "rope_table", {p}, attrs, "ntk");
    // An inverse frequency that rounds to another float moves an angle of up to 200 by half a unit in its last place.
    expect_close(got, reference::rope_table(positions, freq, 1, {10000, 2, 64}), 2e-7, 2e-5, "ntk");
    const TestTensor plain = runner.run("rope_table", {p}, {{"dim", int64_t{32}}, {"inv_freq", freq}})[0];
    expect_same_bits(rows_of(got, 0, 3), rows_of(plain, 0, 3), "inside the window");
    EXPECT_NE(got.get(3 * 32 + 15), plain.get(3 * 32 + 15));
  }
}

TEST(RopeTable, NtkNeedsABase) {
  const OpRunner runner(Isa::Baseline);
  const Attrs attrs{{"dim", int64_t{4}}, {"inv_freq", std::vector<double>{1, 0.5}}, {"ntk_window", int64_t{64}}};
  const auto chosen = runner.choose("rope_table", {{DType::I32, {Dim(3)}}}, attrs);
  ASSERT_FALSE(chosen.is_ok());
  EXPECT_NE(chosen.status().message().find("ntk_base"), std::string::npos) << chosen.status().message();
}

TEST(Rope, MatchesTheReference) {
  for_each([](const OpRunner& runner, Isa isa, DType t) {
    struct Case {
      int64_t tokens, heads, size, rot;
    };
    for (const Case& c : {Case{1, 1, 2, 2}, Case{1, 9, 64, 64}, Case{5, 3, 64, 32}, Case{3, 2, 24, 6},
                          Case{4, 4, 128, 128}, Case{2, 1, 50, 34}}) {
      const TestTensor x = random_tensor(t, {c.tokens, c.heads, c.size}, 5, -2, 2);
      const TestTensor table = random_tensor(DType::F32, {c.tokens, c.rot}, 6);
      const std::string what = name_of(isa, t, describe(x.type));
      const TestTensor got = run_all_threads(runner, "rope", {x, table}, {}, what);
      const auto u = [](int64_t n) { return static_cast<size_t>(n); };
      expect_close(got, reference::rope(to_doubles(x), to_doubles(table), u(c.tokens), u(c.heads), u(c.size), u(c.rot)),
                   unit_roundoff(t), 4e-7, what);
    }
  });
}

TEST(Elementwise, AddAndMulRoundOnce) {
  for_each([](const OpRunner& runner, Isa isa, DType t) {
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{1, 1}, {1, 1000}, {3, 17}, {50, 65}, {2, 3, 64}, {0, 64}}) {
      const TestTensor a = random_tensor(t, shape, 7, -4, 4), b = random_tensor(t, shape, 8, -4, 4);
      for (const char* op : {"add", "mul"}) {
        const std::string what = name_of(isa, t, op);
        const TestTensor got = run_all_threads(runner, op, {a, b}, {}, what);
        TestTensor want = a;
        for (int64_t i = 0; i < a.size(); ++i) {
          const float x = static_cast<float>(a.get(i)), y = static_cast<float>(b.get(i));
          want.set(i, op[0] == 'a' ? x + y : x * y);
        }
        expect_same_bits(got, want, what);
      }
    }
  });
}

TEST(Elementwise, SubnormalsAreRoundedToo) {
  for_each([](const OpRunner& runner, Isa isa, DType t) {
    const int low = t == DType::F16 ? -9 : -66;  // products around the smallest normal number of the type
    for (int64_t subnormals : {1, 5, 64}) {
      TestTensor a = random_tensor(t, {3, 77}, 9, -2, 2), b = random_tensor(t, {3, 77}, 10, -2, 2);
      for (int64_t i = 0; i < a.size(); i += 64 / subnormals) {
        a.set(i, std::ldexp(a.get(i), low + static_cast<int>(i % 5)));
        b.set(i, std::ldexp(b.get(i), low + static_cast<int>(i % 7)));
      }
      a.set(70, INFINITY);
      const std::string what = name_of(isa, t, "mul");
      const TestTensor got = run_all_threads(runner, "mul", {a, b}, {}, what);
      TestTensor want = a;
      for (int64_t i = 0; i < a.size(); ++i) want.set(i, static_cast<float>(a.get(i)) * static_cast<float>(b.get(i)));
      expect_same_bits(got, want, what);
    }
  });
}

// Distance in units in the last place of a float. Below 1e-36 the exponential of a silu is subnormal and loses bits;
// there the unit stays that of 1e-36.
double ulps(float got, double want) {
  const double unit = std::max(std::ldexp(1.0, -142), std::ldexp(1.0, std::ilogb(want) - 23));
  return std::abs(got - want) / unit;
}

TEST(Elementwise, SiluIsAccurateEverywhere) {
  for (Isa isa : supported_isas()) {
    const OpRunner runner(isa);
    TestTensor x = random_tensor(DType::F32, {101, 997}, 9, -105, 105);
    for (int64_t i = 0; i < 50000; ++i) x.set(i, x.get(i) / 10);
    const TestTensor got = run_all_threads(runner, "silu", {x}, {}, "silu");
    double worst = 0, at = 0;
    for (int64_t i = 0; i < x.size(); ++i) {
      const double e = ulps(got.as<float>()[i], reference::silu(x.get(i)));
      if (e > worst) worst = e, at = x.get(i);
    }
    RecordProperty(fmt::format("silu_ulps_{}", isa_name(isa)), fmt::format("{:.2f}", worst));
    EXPECT_LE(worst, 3.0) << isa_name(isa) << " at " << at;
  }
}

// Relative to the result, down to where the rounded argument of an exponential of -100 moves it by a few 1e-6.
TEST(Elementwise, GeluAndSoftcapMatchTheReference) {
  struct Case {
    const char* op;
    Attrs attrs;
    std::function<double(double)> f;
    double tolerance;
  };
  const std::vector<Case> cases{
      {"gelu", {}, reference::gelu, 2e-5},
      {"gelu_tanh", {}, reference::gelu_tanh, 2e-5},
      {"relu_squared", {}, [](double x) { return x > 0 ? x * x : 0; }, 2e-7},
      {"scale", {{"by", 0.22}}, [](double x) { return x * static_cast<double>(0.22f); }, 1e-7},
      {"softcap", {{"cap", 5.5}}, [](double x) { return 5.5 * std::tanh(x / 5.5); }, 4e-7}};
  for_each([&](const OpRunner& runner, Isa isa, DType t) {
    for (const Case& c : cases)
      for (const double width : {0.01, 3.0, 30.0}) {
        const TestTensor x = random_tensor(t, {19, 77}, 9, -width, width);
        const std::string what = name_of(isa, t, c.op);
        const TestTensor got = run_all_threads(runner, c.op, {x}, c.attrs, what);
        std::vector<double> want;
        for (int64_t i = 0; i < x.size(); ++i) want.push_back(c.f(x.get(i)));
        expect_close(got, want, unit_roundoff(t) + c.tolerance, t == DType::F16 ? 4e-8 : 1e-30, what);
      }
  });
}

TEST(Elementwise, SoftcapNeedsACap) {
  const OpRunner runner(Isa::Baseline);
  const TensorType x{DType::F32, {Dim(3), Dim(8)}};
  EXPECT_FALSE(runner.choose("softcap", {x}, {{"cap", 0.0}}).is_ok());
  EXPECT_TRUE(runner.choose("softcap", {x}, {{"cap", 30.0}}).is_ok());
}

class Gates : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Gates, testing::Values("silu", "gelu", "gelu_tanh"));

TEST_P(Gates, HaveTheRightLimits) {
  const double inf = INFINITY;
  for_each([&](const OpRunner& runner, Isa isa, DType t) {
    const TestTensor x = tensor_of(t, {1, 9}, {inf, -inf, NAN, 0, -0.0, 60000, -60000, 88, -88});
    const TestTensor got = runner.run(GetParam(), {x})[0];
    const std::vector<double> want{inf, 0, NAN, 0, 0, x.get(5), 0, 88, 0};
    for (int64_t i = 0; i < 9; ++i) {
      if (std::isnan(want[static_cast<size_t>(i)]))
        EXPECT_TRUE(std::isnan(got.get(i)));
      else
        EXPECT_NEAR(got.get(i) == want[static_cast<size_t>(i)] ? 0 : got.get(i) - want[static_cast<size_t>(i)], 0,
                    1e-30)
            << name_of(isa, t, fmt::format("{}", x.get(i)));
    }
  });
}

TEST_P(Gates, OfAValueDoNotDependOnItsPlace) {
  for_each([](const OpRunner& runner, Isa isa, DType t) {
    const TestTensor x = random_tensor(t, {1, 37}, 10, -8, 8);
    const TestTensor all = runner.run(GetParam(), {x})[0];
    for (int64_t i = 0; i < x.size(); ++i) {
      const TestTensor one = runner.run(GetParam(), {tensor_of(t, {1, 1}, {x.get(i)})})[0];
      EXPECT_EQ(one.get(0), all.get(i)) << name_of(isa, t, GetParam());
    }
  });
}

TEST(Rows, GathersAndZeroesBadIndices) {
  for_each([](const OpRunner& runner, Isa isa, DType t) {
    const TestTensor x = random_tensor(t, {5, 33}, 11);
    const TestTensor index = tensor_of(DType::I32, {7}, {4, 0, -1, 5, 2, 2, 1000000});
    const TestTensor got = run_all_threads(runner, "index_select", {x, index}, {}, name_of(isa, t, "rows"));
    for (int64_t r = 0; r < 7; ++r)
      for (int64_t i = 0; i < 33; ++i) {
        const int64_t from = static_cast<int64_t>(index.get(r));
        EXPECT_EQ(got.get(r * 33 + i), from >= 0 && from < 5 ? x.get(from * 33 + i) : 0.0);
      }
  });
}

TEST(Vector, OnlyLiveRowsAreTouched) {
  const OpRunner runner(supported_isas().back());
  RunOptions options{.threads = 2};
  options.live.value[1] = 3;
  for (DType t : kDTypes) {
    // The result buffer of the runner has exactly the live rows, then guard bytes.
    TestTensor x = random_tensor(t, {8, 48}, 12), w = random_tensor(t, {48}, 13);
    x.type.shape[0] = Dim(1, 1);
    EXPECT_EQ(runner.run("rms_norm", {x, w}, {{"eps", 1e-5}}, options)[0].size(), 3 * 48);
    EXPECT_EQ(runner.run("silu", {x}, {}, options)[0].size(), 3 * 48);
    EXPECT_EQ(runner.run("add", {x, x}, {}, options)[0].size(), 3 * 48);
  }
}

}  // namespace
}  // namespace reprise::cpu::vector_test

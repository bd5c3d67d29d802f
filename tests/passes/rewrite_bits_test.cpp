// Every rewrite of the house, automatically: pattern and replacement run on the CPU on the same random inputs, for
// every dtype and several sizes, and must give the same bits, or differ by the roundings that the rewrite declares and
// no more. A rewrite whose ops have no CPU kernel is skipped with the reason.
#include <gtest/gtest.h>

#include <cmath>

#include "support.h"

namespace reprise::rewrite_bits_test {
namespace {

using test::Bytes;

// Further sizes for ops whose examples say little about real models; everything else runs on its examples.
std::vector<nn::FusedExample> with_other_sizes(const Rewrite& r, std::mt19937& random) {
  std::vector<nn::FusedExample> out = r.examples;
  const auto pick = [&](int64_t lo, int64_t hi) { return std::uniform_int_distribution<int64_t>(lo, hi)(random); };
  for (const nn::FusedExample& base : r.examples) {
    if (base.attrs.find("kv_heads")) {
      const int64_t old = base.attrs.integer("heads") + 2 * base.attrs.integer("kv_heads");
      for (int64_t size : {64, 80, 128}) {
        nn::FusedExample e = base;
        const int64_t groups = pick(1, 3), heads = groups * pick(1, 3);
        const int rank = e.in[0].shape.rank();
        const size_t caches = rank == 5 ? 1 : rank == 3 ? 2 : 0;
        const int64_t old_size = e.in[caches].shape[1].factor / old;
        if (caches == 1) e.in[0].shape[2] = Dim(groups), e.in[0].shape[4] = Dim(size);
        for (size_t i = 0; caches == 2 && i < 2; ++i) e.in[i].shape[2] = Dim(groups * size);
        e.in[caches].shape[1] = Dim((heads + 2 * groups) * size);
        Dim& rotated = e.in[caches + 1].shape[1];
        rotated = Dim(rotated.factor == old_size ? size : size / 2);
        for (TensorType& t : e.in)
          if (t.shape.rank() == 1 && t.shape[0].is_constant()) t.shape[0] = Dim(size);
        e.attrs.set("heads", heads);
        e.attrs.set("kv_heads", groups);
        out.push_back(std::move(e));
      }
    } else if (r.name.starts_with("add_rms_norm") || r.name.starts_with("silu_mul")) {
      for (int i = 0; i < 3; ++i) {
        nn::FusedExample e = base;
        const int64_t width = 2 * pick(1, 300), first = base.in[0].shape[1].factor;
        for (TensorType& t : e.in)
          for (int d = 0; d < t.shape.rank(); ++d) {
            if (!t.shape[d].is_constant()) continue;
            if (t.shape[d].factor == first)
              t.shape[d] = Dim(width);
            else if (2 * t.shape[d].factor == first)  // one number per product of a gate and its other half
              t.shape[d] = Dim(width / 2);
          }
        out.push_back(std::move(e));
      }
    }
  }
  return out;
}

// Weights that devices may lay out their own way must be parameters.
Result<Graph> trace(const Rewrite& r, const nn::Meaning& f, const nn::FusedExample& e, const OpRegistry& ops) {
  ASSIGN_OR_RETURN(const Graph plain, nn::trace_meaning(r.search, r.operands, e.symbols, e.in, e.attrs, ops));
  Tracer t("meaning", ops);
  for (const Symbol& s : e.symbols) (void)t.symbol(s.name, s.bound);
  std::vector<Tensor> in(r.operands);
  for (size_t i = 0; i < e.in.size(); ++i) {
    const Node* n = plain.find_input(std::to_string(i));
    const Use& u = n->result()->uses.front();
    const bool weight = u.declared().role == OperandRole::Weight;
    in[i] = weight ? t.param(std::to_string(i), e.in[i]) : t.input(std::to_string(i), e.in[i]);
  }
  const std::vector<Tensor> out = f(in, e.attrs);
  for (size_t i = 0; i < out.size(); ++i) t.output(std::to_string(i), out[i]);
  return t.finish();
}

std::map<std::string, Bytes> random_inputs(const nn::FusedExample& e, const LiveSizes& bound, std::mt19937& random) {
  std::map<std::string, Bytes> bytes;
  for (size_t i = 0; i < e.in.size(); ++i) {
    const int64_t n = e.in[i].shape.elements(bound);
    Bytes b = test::random_bytes(e.in[i].dtype, n, random);
    if (e.in[i].dtype == DType::I32)  // slots: distinct, one of them "nowhere"
      for (int64_t j = 0; j < n; ++j) {
        const auto slot = static_cast<int32_t>(j == 3 ? -1 : 5 * j);
        std::memcpy(b.data() + 4 * j, &slot, 4);
      }
    bytes[std::to_string(i)] = std::move(b);
  }
  return bytes;
}

int64_t differing(const std::map<std::string, Bytes>& a, const std::map<std::string, Bytes>& b) {
  int64_t n = 0;
  for (auto& [name, bytes] : a) {
    EXPECT_EQ(bytes.size(), b.at(name).size());
    for (size_t i = 0; i < bytes.size(); ++i) n += bytes[i] != b.at(name)[i];
  }
  return n;
}

// The largest relative error of one rounding to a dtype.
double unit_of(DType dtype) { return std::ldexp(1.0, dtype == DType::BF16 ? -8 : dtype == DType::F16 ? -11 : -24); }

double number(DType dtype, const Bytes& bytes, size_t i) {
  if (dtype == DType::F32) {
    float value = 0;
    std::memcpy(&value, bytes.data() + 4 * i, 4);
    return value;
  }
  uint16_t half = 0;
  std::memcpy(&half, bytes.data() + 2 * i, 2);
  return dtype == DType::BF16 ? bf16_to_float(half) : half_to_float(half);
}

// The largest relative distance of two results, in units of the dtype.
double units_apart(const std::map<std::string, Bytes>& a, const std::map<std::string, Bytes>& b, DType dtype) {
  double largest = 0;
  for (auto& [name, bytes] : a)
    for (size_t i = 0; i < bytes.size() / size_of(dtype); ++i) {
      const double x = number(dtype, bytes, i), y = number(dtype, b.at(name), i);
      EXPECT_TRUE(std::isfinite(x) && y != 0) << name << ": " << x << " and " << y;
      largest = std::max(largest, std::fabs(x - y) / (std::fabs(y) * unit_of(dtype)));
    }
  return largest;
}

class RewriteBits : public testing::TestWithParam<std::string> {};

TEST_P(RewriteBits, PatternAndReplacementGiveTheSame) {
  Platform platform = test::cpu_platform();
  std::mt19937 random(7);
  int compared = 0;
  double farthest = 0;
  std::string skipped;
  for (const Rewrite& r : house_rewrites(*platform.ops)) {
    if (r.name != GetParam()) continue;
    for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      farthest = 0;
      for (nn::FusedExample e : with_other_sizes(r, random)) {
        for (TensorType& t : e.in)
          if (t.dtype == DType::BF16) t.dtype = dtype;
        auto pattern = trace(r, r.search, e, *platform.ops);
        ASSERT_TRUE(pattern.is_ok()) << pattern.status().message();
        auto replacement = trace(r, r.replace, e, *platform.ops);
        ASSERT_TRUE(replacement.is_ok()) << replacement.status().message();
        // The engine turns the one into the other.
        Graph rewritten = test::copy_of(*pattern, *platform.ops);
        PassContext context(*platform.ops, nn::fused_ops(), nullptr);
        context.begin(r.name, false, -1);
        ASSERT_TRUE(run_rewrite(r, rewritten, context).is_ok());
        ASSERT_EQ(context.report().matched, 1) << print(*pattern);
        ASSERT_EQ(rewritten.size(), replacement->size());
        for (int64_t live_tokens : {int64_t{1}, int64_t{7}, e.symbols[0].bound}) {
          LiveSizes live = pattern->bounds();
          live.value[1] = live_tokens;
          const auto inputs = random_inputs(e, pattern->bounds(), random);
          auto a = test::run_graph(test::copy_of(*pattern, *platform.ops), platform, live, inputs);
          auto b = test::run_graph(test::copy_of(rewritten, *platform.ops), platform, live, inputs);
          if (!a.is_ok() || !b.is_ok()) {
            const Status& why = a.is_ok() ? b.status() : a.status();
            ASSERT_EQ(why.code(), Code::Unsupported) << why.message();
            skipped = why.message();
            continue;
          }
          ++compared;
          if (r.roundings == 0) {
            EXPECT_EQ(differing(*a, *b), 0) << r.name << " " << dtype_name(dtype) << "\n" << print(*pattern);
            continue;
          }
          // Each rounding multiplies by 1 - u to 1 + u, or divides by that. One less than declared is not enough.
          const double apart = units_apart(*a, *b, dtype), u = unit_of(dtype);
          EXPECT_LE(apart, r.roundings / (1 - u)) << r.name << " " << dtype_name(dtype);
          farthest = std::max(farthest, apart);
        }
      }
      if (r.roundings > 0) EXPECT_GT(farthest, r.roundings - 1) << r.name << " " << dtype_name(dtype);
    }
  }
  // What accelerators alone have a kernel for is compared with its formula there.
  if (compared == 0 && (GetParam() == "grouped_silu_mul_quant" || GetParam() == "split_qk_norm_rope_rows" ||
                        GetParam() == "latent_rows" || GetParam() == "linear_silu_mul"))
    GTEST_SKIP() << skipped;
  EXPECT_GT(compared, 0) << skipped;
}

std::vector<std::string> names() {
  OpRegistry ops;
  register_core_ops(ops);
  nn::register_fused_ops(ops);
  std::vector<std::string> out;
  for (auto& r : house_rewrites(ops)) out.push_back(r.name);
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, RewriteBits, testing::ValuesIn(names()), [](auto& p) { return p.param; });

// A whole model through the pipeline: the logits keep their bits, whatever the device has kernels for.
TEST(PipelineBits, LogitsOfEveryFamilyStay) {
  Platform platform = test::cpu_platform();
  std::mt19937 random(11);
  for (const char* family : {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM",
                             "MixtralForCausalLM", "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM"})
    for (DType dtype : {DType::BF16, DType::F32}) {
      const Graph traced = test::trace_tiny({family, 2, 64}, *platform.ops, dtype);
      Graph fused = test::copy_of(traced, *platform.ops);
      auto report = run_pipeline(fused, {}, platform);
      ASSERT_TRUE(report.is_ok()) << report.status().message();
      std::map<std::string, Bytes> bytes;
      for (const Node* n = traced.first(); n; n = n->next)
        if (n->is_source())
          bytes[n->attrs.text("name")] =
              test::random_bytes(n->result()->type.dtype, n->result()->type.shape.elements(traced.bounds()), random);
      for (const Node* n = traced.first(); n; n = n->next) {
        if (!n->is_param()) continue;
        const std::string name = n->attrs.text("name");
        const std::vector<ParamPart> parts = parts_of_name(name, n->result()->type.shape);
        const size_t each = bytes[name].size() / parts.size();
        for (size_t i = 0; parts.size() > 1 && i < parts.size(); ++i)
          bytes[parts[i].tensor].assign(bytes[name].begin() + static_cast<ptrdiff_t>(i * each),
                                        bytes[name].begin() + static_cast<ptrdiff_t>((i + 1) * each));
      }
      for (const DerivedParam& p : report->derived)
        for (const ParamPart& part : p.parts)
          bytes[p.name].insert(bytes[p.name].end(), bytes.at(part.tensor).begin(), bytes.at(part.tensor).end());
      auto ints = [&](const char* name, std::vector<int32_t> v) {
        std::memcpy(bytes.at(name).data(), v.data(), 4 * v.size());
      };
      // Two sequences of 9 and 4 tokens on pages of their own.
      ints("tokens", {5, 9, 200, 17, 3, 3, 262, 0, 41, 8, 100, 101, 7});
      ints("positions", {0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3});
      std::vector<int32_t> slots;
      for (int32_t i = 0; i < 13; ++i) slots.push_back(i < 9 ? 128 + i : 384 + i - 9);
      ints("slots", slots);
      ints("page_table", {1, 0, 3, 0});
      ints("context_lens", {9, 4});
      ints("cu_seqlens", {0, 9, 13});
      ints("last_rows", {8, 12});
      LiveSizes live = traced.bounds();
      live.value[models::kTokens] = 13;
      live.value[models::kSequences] = live.value[models::kLogitRows] = 2;
      live.value[models::kCuSeqlens] = 3;
      auto a = test::run_graph(test::copy_of(traced, *platform.ops), platform, live, bytes);
      auto b = test::run_graph(std::move(fused), platform, live, bytes);
      ASSERT_TRUE(a.is_ok()) << a.status().message();
      ASSERT_TRUE(b.is_ok()) << b.status().message();
      EXPECT_EQ(differing(*a, *b), 0) << family << " " << dtype_name(dtype);
    }
}

}  // namespace
}  // namespace reprise::rewrite_bits_test

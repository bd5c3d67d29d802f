// CUDA's layers with states on the SIMT executor: the CPU's bits, states and rows alike, also with drafts; and the same
// whether a prompt comes at once, in chunks, or in company.
#include <gtest/gtest.h>

#include "backends/paged_step.h"
#include "ops/recurrent.h"
#include "simt/both_devices.h"

namespace reprise::simt::recurrent_test {
namespace {

using namespace cpu;

TestTensor integers(const std::vector<double>& values) {
  return tensor_of(DType::I32, {static_cast<int64_t>(values.size())}, values);
}

// Five sequences of 5, 0, 1, 0 and 19 rows and three rows of none: from one slot to another, within one, without rows
// from one slot to another, to nowhere.
struct Step {
  TestTensor read = integers({0, 3, 2, 4, 1}), write = integers({5, 6, 2, 4, -1}),
             borders = integers({0, 5, 5, 6, 6, 25});
  static constexpr int64_t kTokens = 28, kSlots = 7;
};

// With drafts: the first four have some, or took some of the step before, over borders of 16 rows as well; the last one
// goes on in its slot.
struct DraftStep {
  TestTensor read = integers({0, 1, 2, 4, 3}), write = integers({5, 6, 7, 8, 3}),
             borders = integers({0, 6, 7, 28, 46, 49}), drafts = integers({3, 4, 4, 0, 0, 4, 1, 4, 0, 0});
  static constexpr int64_t kTokens = 52, kSlots = 9, kMost = 4;
  DraftStep() { drafts.type.shape = {Dim(5), Dim(2)}; }
};

// The other slots hold NaN, which must stay where it is.
TestTensor states(std::vector<int64_t> shape, uint32_t seed, int64_t slots = Step::kSlots) {
  shape.insert(shape.begin(), slots);
  TestTensor s = random_tensor(DType::F32, shape, seed);
  const int64_t each = s.size() / slots;
  for (int64_t i = 5 * each; i < s.size(); ++i) s.set(i, std::nan(""));
  return s;
}

TEST(CudaRecurrent, ConvolutionsHaveTheCpusBits) {
  const Step step;
  for (DType t : kDTypes)
    for (const auto& [columns, taps] : {std::pair<int64_t, int64_t>{12, 4}, {270, 2}, {5, 16}})
      expect_equal("causal_conv",
                   {states({taps - 1, columns}, 1), random_tensor(t, {Step::kTokens, columns}, 2, -2, 2),
                    random_tensor(t, {columns, 1, taps}, 3), step.read, step.write, step.borders},
                   {}, fmt::format("{} {} columns, {} taps", dtype_name(t), columns, taps));
}

TEST(CudaRecurrent, ConvolutionsTakeBackDraftsAsTheCpuDoes) {
  const DraftStep step;
  for (DType t : kDTypes)
    for (const auto& [columns, taps] : {std::pair<int64_t, int64_t>{12, 4}, {270, 2}, {5, 16}, {9, 1}})
      expect_equal("causal_conv",
                   {states({taps - 1 + DraftStep::kMost, columns}, 1, DraftStep::kSlots),
                    random_tensor(t, {DraftStep::kTokens, columns}, 2, -2, 2), random_tensor(t, {columns, 1, taps}, 3),
                    step.read, step.write, step.borders, step.drafts},
                   {}, fmt::format("{} {} columns, {} taps", dtype_name(t), columns, taps));
}

TEST(CudaRecurrent, ConvolutionsWithABiasHaveTheCpusBits) {
  const Step step;
  const DraftStep drafts;
  for (DType t : kDTypes)
    for (const auto& [columns, taps] : {std::pair<int64_t, int64_t>{12, 4}, {270, 2}}) {
      const TestTensor w = random_tensor(t, {columns, 1, taps}, 3), bias = random_tensor(t, {columns}, 4);
      expect_equal("causal_conv_biased",
                   {states({taps - 1, columns}, 1), random_tensor(t, {Step::kTokens, columns}, 2, -2, 2), w, bias,
                    step.read, step.write, step.borders},
                   {}, fmt::format("{} {} columns, {} taps", dtype_name(t), columns, taps));
      expect_equal("causal_conv_biased",
                   {states({taps - 1 + DraftStep::kMost, columns}, 1, DraftStep::kSlots),
                    random_tensor(t, {DraftStep::kTokens, columns}, 2, -2, 2), w, bias, drafts.read, drafts.write,
                    drafts.borders, drafts.drafts},
                   {}, fmt::format("{} {} columns, {} taps, drafts", dtype_name(t), columns, taps));
    }
}

struct Space {
  int64_t heads, groups, state, head;
  double least, most;
  int64_t width() const { return heads * head + 2 * groups * state; }
};

TEST(CudaRecurrent, TheStateSpaceStepHasTheCpusBits) {
  const Step step;
  const DraftStep drafts;
  for (DType t : kDTypes)
    for (const Space& m : {Space{6, 2, 12, 20, 0, 0}, Space{1, 1, 33, 65, 0.2, 0.9}, Space{2, 2, 128, 130, 0, 2}}) {
      const auto rows = [&](int64_t tokens) {
        return std::vector<TestTensor>{
            random_tensor(t, {tokens, m.width()}, 2, -1, 1), random_tensor(t, {tokens, m.heads}, 3, -4, 3),
            random_tensor(DType::F32, {m.heads}, 4, -4, 1), random_tensor(DType::F32, {m.heads}, 5, -1, 1),
            random_tensor(DType::F32, {m.heads}, 6, -1, 1)};
      };
      Attrs attrs{{"groups", m.groups}, {"least_step", m.least}, {"most_step", m.most}};
      std::vector<TestTensor> in = rows(Step::kTokens);
      in.insert(in.begin(), states({m.heads, m.state, m.head}, 1));
      in.insert(in.end(), {step.read, step.write, step.borders});
      expect_equal("state_space", in, attrs, fmt::format("{} {} heads", dtype_name(t), m.heads));
      attrs.set("most_drafts", DraftStep::kMost);
      in = rows(DraftStep::kTokens);
      in.insert(in.begin(),
                states({m.heads, delta_state_rows(m.state, m.head, DraftStep::kMost), m.head}, 1, DraftStep::kSlots));
      in.insert(in.end(), {drafts.read, drafts.write, drafts.borders, drafts.drafts});
      expect_equal("state_space", in, attrs, fmt::format("{} {} heads, drafts", dtype_name(t), m.heads));
    }
}

TEST(CudaRecurrent, TheNormBehindAGateHasTheCpusBits) {
  for (DType t : kDTypes)
    for (const auto& [width, groups] : {std::pair<int64_t, int64_t>{48, 1}, {54, 3}, {260, 2}, {7, 7}})
      expect_equal("rms_norm_gated",
                   {random_tensor(t, {5, width}, 1, -3, 3), random_tensor(t, {5, width}, 2, -3, 3),
                    random_tensor(t, {width}, 3, 0.5, 1.5)},
                   {{"groups", groups}, {"eps", 1e-5}}, fmt::format("{} {} in {}", dtype_name(t), width, groups));
}

struct Delta {
  int64_t heads, key_heads, key, value;
  int64_t width() const { return 2 * key_heads * key + heads * value; }
};

std::vector<TestTensor> delta_rows(const Delta& m, DType t, int64_t tokens) {
  return {random_tensor(t, {tokens, m.width()}, 2, -2, 2), random_tensor(t, {tokens, m.heads}, 3, -3, 3),
          random_tensor(t, {tokens, m.heads}, 4, -4, 3), random_tensor(DType::F32, {m.heads}, 5, -4, 1),
          random_tensor(DType::F32, {m.heads}, 6, -1, 1)};
}

TEST(CudaRecurrent, TheDeltaRuleHasTheCpusBits) {
  const Step step;
  for (DType t : kDTypes)
    for (const Delta& m : {Delta{6, 2, 12, 20}, Delta{1, 1, 33, 65}}) {
      std::vector<TestTensor> in = delta_rows(m, t, Step::kTokens);
      in.insert(in.begin(), states({m.heads, m.key, m.value}, 1));
      in.insert(in.end(), {step.read, step.write, step.borders});
      expect_equal("gated_delta", in, {{"key_heads", m.key_heads}}, std::string(dtype_name(t)));
    }
}

// Of changes that a slot keeps, numbers between -2 and 2: gates are none.
TEST(CudaRecurrent, TheDeltaRuleTakesBackDraftsAsTheCpuDoes) {
  const DraftStep step;
  for (DType t : kDTypes)
    for (const Delta& m : {Delta{6, 2, 12, 20}, Delta{1, 1, 33, 65}, Delta{2, 2, 9, 130}}) {
      std::vector<TestTensor> in = delta_rows(m, t, DraftStep::kTokens);
      in.insert(in.begin(),
                states({m.heads, delta_state_rows(m.key, m.value, DraftStep::kMost), m.value}, 1, DraftStep::kSlots));
      in.insert(in.end(), {step.read, step.write, step.borders, step.drafts});
      expect_equal("gated_delta", in, {{"key_heads", m.key_heads}, {"most_drafts", DraftStep::kMost}},
                   fmt::format("{} {} columns", dtype_name(t), m.value));
    }
}

// 40 rows at once, and as 16, 1 and 23 beside another sequence.
TEST(CudaRecurrent, ChunksAndCompanyChangeNothing) {
  const Delta m{2, 1, 12, 20};
  const Attrs attrs{{"key_heads", m.key_heads}};
  const std::vector<TestTensor> all = delta_rows(m, DType::BF16, 40);
  const TestTensor begin = states({m.heads, m.key, m.value}, 1);
  const auto run = [&](const TestTensor& state, const std::vector<std::pair<int64_t, int64_t>>& parts,
                       const std::vector<double>& read, const std::vector<double>& write) {
    std::vector<TestTensor> in{state};
    for (size_t i = 0; i < 3; ++i) {
      std::vector<TestTensor> rows;
      for (const auto& [from, to] : parts) rows.push_back(rows_of(all[i], from, to - from));
      in.push_back(concat(rows));
    }
    std::vector<double> borders{0};
    for (const auto& [from, to] : parts) borders.push_back(borders.back() + static_cast<double>(to - from));
    in.insert(in.end(), {all[3], all[4], integers(read), integers(write), integers(borders)});
    return on_cuda().run("gated_delta", in, attrs);
  };
  const auto whole = run(begin, {{0, 40}}, {1}, {5});
  auto part = run(begin, {{0, 16}}, {1}, {5});
  expect_same_bits(part[1], rows_of(whole[1], 0, 16));
  part = run(part[0], {{3, 9}, {16, 17}}, {2, 5}, {2, 6});
  expect_same_bits(rows_of(part[1], 6, 1), rows_of(whole[1], 16, 1));
  part = run(part[0], {{17, 40}, {0, 2}}, {6, 0}, {5, 0});
  expect_same_bits(rows_of(part[1], 0, 23), rows_of(whole[1], 17, 23));
  expect_same_bits(rows_of(part[0], 5, 1), rows_of(whole[0], 5, 1));
}

}  // namespace
}  // namespace reprise::simt::recurrent_test

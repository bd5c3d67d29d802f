// Threads of a launch that help each other: those that come first do the shares of those that come late, with the same
// bits, and leave nothing behind for the next launch.
#include "backends/cpu/register.h"
#include "backends/packed_blocks.h"
#include "backends/paged_step.h"

namespace reprise::cpu::help_test {
namespace {

using packed_test::format_attr;
using packed_test::Packed;
using packed_test::random_blocks;

// The threads of a launch one after the other, the last one first or the first one first: each finds what those before
// it have left.
struct InTurn {
  bool backwards = false;
  int64_t parts_of_others = 0;  // taken by others than their owner, at least

  void operator()(const KernelEntry& entry, LaunchArgs args, const LiveSizes& live, int threads) {
    std::vector<std::atomic<int32_t>> taken(static_cast<size_t>(threads));
    args.taken = taken.data();
    for (const OpaqueKernel part : entry.part) {
      if (!part) continue;
      for (int i = 0; i < threads; ++i) {
        const int thread = backwards ? threads - 1 - i : i;
        reinterpret_cast<CpuKernel>(part)(args, live, thread, threads);
        // Less one: who finds a share empty counts as well.
        const int next = backwards ? thread - 1 : thread + 1;
        if (next >= 0 && next < threads) parts_of_others += std::max(0, taken[static_cast<size_t>(next)].load() - 1);
      }
      for (const auto& of : taken) EXPECT_EQ(of.load(), 0) << entry.name;
    }
  }
};

class Help : public testing::TestWithParam<Isa> {
 protected:
  OpRunner runner{GetParam()};

  // The op in turn, on several numbers of threads, beside one thread.
  void expect_the_same(std::string_view op, const std::vector<TestTensor>& in, const Attrs& attrs, bool helped) {
    const TestTensor alone = runner.run(op, in, attrs)[0];
    for (const int threads : {2, 3, 8, 9, 17})
      for (const bool backwards : {false, true}) {
        auto turn = std::make_shared<InTurn>(InTurn{.backwards = backwards});
        const OpRunner in_turn(
            DeviceKind::Cpu, [](KernelRegistry& r) { register_cpu(r, GetParam()); },
            [turn](const KernelEntry& entry, const LaunchArgs& args, const LiveSizes& live, int of) {
              (*turn)(entry, args, live, of);
            });
        const std::string what = fmt::format("{} on {} threads{}", op, threads, backwards ? ", backwards" : "");
        expect_same_bits(in_turn.run(op, in, attrs, {.threads = threads})[0], alone, what);
        EXPECT_EQ(turn->parts_of_others > 0, helped) << what;
      }
  }
};

TEST_P(Help, LinearsAndHeads) {
  for (const DType t : {DType::F32, DType::BF16, DType::F16})
    for (const int64_t rows : {3, 7, 100, 200}) {
      const TestTensor x = random_tensor(t, {rows, 96}, 1), w = random_tensor(t, {1300, 96}, 2);
      expect_the_same("linear", {x, w}, {{"out", std::string("same")}}, rows > 6);
      // Equal logits in the shares of different threads: the first one wins, whoever computes it.
      TestTensor ties = w;
      for (int64_t i = 0; i < ties.size(); ++i) ties.set(i, w.get(i % (7 * 96)));
      expect_the_same("lm_head_argmax", {x, ties}, {}, rows > 6);
    }
}

TEST_P(Help, Int8) {
  for (const int64_t rows : {5, 50}) {
    const TestTensor x = random_tensor(DType::I8, {rows, 100}, 3, -128, 128),
                     w = random_tensor(DType::I8, {700, 100}, 4, -128, 128),
                     x_scale = random_tensor(DType::F32, {rows, 1}, 5, 0, 0.1),
                     scale = random_tensor(DType::F32, {700}, 6, 0.001, 0.01);
    expect_the_same("lm_head_argmax_w8a8", {x, x_scale, w, scale}, {}, rows > 6);
  }
}

TEST_P(Help, Blocks) {
  const Packed w = random_blocks(BlockFormat::Q4_0, 640, 96, 7);
  for (const int64_t rows : {5, 50})
    expect_the_same("linear_blocks", {random_tensor(DType::BF16, {rows, 96}, 8), w.blocks},
                    format_attr(BlockFormat::Q4_0), rows > 6);
}

// Linears on tile registers are computed in whole shares; what follows is not.
class HelpOnEverySet : public Help {};

// Two of the groups have rows for everybody, in several blocks of rows; one has a single row, and one none.
TEST_P(HelpOnEverySet, Experts) {
  constexpr int64_t kGroups = 4, kWide = 1300;
  for (const int64_t rows : {14, 30, 330}) {
    const double last = static_cast<double>(rows) - 2, middle = std::floor(last / 3);
    const TestTensor starts = tensor_of(DType::I32, {kGroups + 1}, {1, middle, middle + 1, middle + 1, last});
    const bool helped = rows > 6 * kGroups;
    for (const DType t : {DType::F32, DType::BF16, DType::F16})
      expect_the_same("grouped_linear",
                      {random_tensor(t, {rows, 70}, 1), starts, random_tensor(t, {kGroups, kWide, 70}, 2)}, {}, helped);
    TestTensor token = zero_tensor(DType::I32, {rows});
    for (int64_t i = 0; i < rows; ++i) token.set(i, static_cast<double>(i * 7 % 9));
    expect_the_same(
        "grouped_linear_rows",
        {random_tensor(DType::BF16, {9, 70}, 3), token, starts, random_tensor(DType::BF16, {kGroups, kWide, 70}, 4)},
        {}, helped);
    expect_the_same(
        "grouped_linear_w8a8_dynamic",
        {random_tensor(DType::I8, {rows, 100}, 5, -128, 128), random_tensor(DType::F32, {rows, 1}, 6, 0, 0.1), starts,
         random_tensor(DType::I8, {kGroups, kWide, 100}, 7, -128, 128),
         random_tensor(DType::F32, {kGroups * kWide}, 8, 0.001, 0.01)},
        {{"out", std::string("bf16")}}, helped);
    TestTensor blocks = random_blocks(BlockFormat::Q4_0, kGroups * kWide, 96, 9).blocks;
    blocks.type.shape = constant_shape({kGroups, kWide, blocks.type.shape.back().factor});
    expect_the_same("grouped_linear_blocks", {random_tensor(DType::BF16, {rows, 96}, 10), starts, blocks},
                    format_attr(BlockFormat::Q4_0), helped);
  }
}

// Prompts whose tiles are computed whole, beside sequences of one token, of which a long one is cut at pages.
TEST_P(HelpOnEverySet, Attention) {
  struct Part {
    int64_t from, to;
  };
  constexpr int64_t kHeads = 6, kGroups = 2, kSize = 64;
  for (const std::vector<Part>& parts :
       {std::vector<Part>{{0, 150}}, {{300, 301}, {0, 130}, {1300, 1301}, {128, 200}}, {{300, 301}, {77, 78}}}) {
    const PagedStep at(parts);
    int64_t tokens = 0;
    for (const Part& p : parts) tokens += p.to - p.from;
    for (const DType t : {DType::F32, DType::BF16, DType::F16})
      expect_the_same(
          "paged_attention",
          {random_tensor(t, {tokens, kHeads, kSize}, 11),
           random_tensor(t, {at.pages, 2, kGroups, kPageTokens, kSize}, 12), at.table, at.lengths, at.starts},
          {{"scale", 0.125}}, tokens > 6 * static_cast<int64_t>(parts.size()));
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, HelpOnEverySet, testing::ValuesIn(isas_with_tiles()), isa_test_name);

std::vector<Isa> isas_without_tiles() {
  std::vector<Isa> out = supported_isas();
  std::erase_if(out, [](Isa isa) { return base_of(isa) != isa; });
  return out;
}
INSTANTIATE_TEST_SUITE_P(Cpu, Help, testing::ValuesIn(isas_without_tiles()), isa_test_name);

}  // namespace
}  // namespace reprise::cpu::help_test

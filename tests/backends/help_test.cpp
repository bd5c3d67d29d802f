// Threads of a launch that help each other: those that come first do the shares of those that come late, with the same
// bits, and leave nothing behind for the next launch.
#include "backends/cpu/register.h"
#include "backends/packed_blocks.h"

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

// On tile registers shares are computed as a whole.
std::vector<Isa> isas_without_tiles() {
  std::vector<Isa> out = supported_isas();
  std::erase_if(out, [](Isa isa) { return base_of(isa) != isa; });
  return out;
}
INSTANTIATE_TEST_SUITE_P(Cpu, Help, testing::ValuesIn(isas_without_tiles()), isa_test_name);

}  // namespace
}  // namespace reprise::cpu::help_test

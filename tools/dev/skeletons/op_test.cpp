// skeleton_op against double precision, on every instruction set, dtype and number of threads.
#include <gtest/gtest.h>

#include "backends/op_runner.h"

namespace reprise::cpu {
namespace {

TEST(SkeletonOp, MatchesTheReference) {
  for (const Isa isa : supported_isas()) {
    const OpRunner runner(isa);
    for (const DType t : {DType::F32, DType::BF16, DType::F16})
      for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{1, 1}, {3, 17}, {5, 64}, {2, 1000}}) {
        const TestTensor x = random_tensor(t, shape, 1, -4, 4);
        std::vector<double> want = to_doubles(x);
        for (double& v : want) v = v + 0;  // write the op's meaning here
        const std::string what = fmt::format("{} {}", isa_name(isa), describe(x.type));
        const TestTensor one = runner.run("skeleton_op", {x}, {}, {.threads = 1})[0];
        for (int threads : {2, 3})
          expect_same_bits(runner.run("skeleton_op", {x}, {}, {.threads = threads})[0], one, what);
        expect_close(one, want, unit_roundoff(t) + 5e-7, 1e-7, what);
      }
  }
}

}  // namespace
}  // namespace reprise::cpu

// Numbers that positions stand for on the Ascend backend over the simulator: the factor of a query's position.
#include "backends/ascend_entry.h"

namespace reprise::ascend_positions_test {
namespace {

class AscendPositions : public AscendEntryTest {};

TEST_F(AscendPositions, FactorsChangeWhereAPeriodEnds) {
  for (const int64_t period : {int64_t{1}, int64_t{7}, int64_t{16384}}) {
    SCOPED_TRACE(period);
    std::vector<int32_t> positions;
    for (const int64_t multiple : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}, 262143 / period})
      for (const int64_t off : {-1, 0, 1})
        if (multiple * period + off >= 0) positions.push_back(static_cast<int32_t>(multiple * period + off));
    const std::vector<double> factors{1, 1.25, 1.5};
    const Dim t(static_cast<int64_t>(positions.size()));
    for (const int64_t offset : {0, 1}) {
      const auto got = run("ascend.position_scale", {operand({DType::I32, {t}}, positions)},
                           {{"factors", factors}, {"period", period}, {"offset", offset}});
      ASSERT_EQ(got.size(), 1u);
      const std::vector<float> scales = numbers_of<float>(got[0]);
      for (size_t i = 0; i < positions.size(); ++i)
        EXPECT_EQ(scales[i], factors[static_cast<size_t>(std::min<int64_t>((positions[i] + offset) / period, 2))])
            << positions[i];
    }
  }
}

}  // namespace
}  // namespace reprise::ascend_positions_test

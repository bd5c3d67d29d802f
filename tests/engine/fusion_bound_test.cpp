// How far fused runs may be from unfused ones: distances by hand, and what a tally of rows makes of them.
#include "engine/fusion_bound.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace reprise::engine::fusion_bound_test {
namespace {

TEST(FusionBound, DistancesAreRelativeToTheRowsOwnSpread) {
  const float row[] = {1, 2, 3, 4}, same[] = {1, 2, 3, 4}, off[] = {1, 2, 3, 5};
  EXPECT_EQ(row_distance(same, row), 0);
  // A difference of 1 over squares about the mean of 2.25 + 0.25 + 0.25 + 2.25.
  EXPECT_DOUBLE_EQ(row_distance(off, row), std::sqrt(1 / 5.0));
  // What all numbers have in common is no part of their spread.
  const float far[] = {101, 102, 103, 104}, far_off[] = {101, 102, 103, 105};
  EXPECT_DOUBLE_EQ(row_distance(far_off, far), std::sqrt(1 / 5.0));
  const float broken[] = {1, 2, std::nanf(""), 4}, flat[] = {2, 2, 2, 2};
  EXPECT_TRUE(std::isinf(row_distance(broken, row)));
  EXPECT_TRUE(std::isinf(row_distance(row, flat)));
}

TEST(FusionBound, OneRowOutsideIsTooManyUnlessRowsAreRouted) {
  FusionTally dense({{"silu_mul"}, 0.1, false});
  for (int i = 0; i < 100; ++i) dense.add(0.1);
  EXPECT_TRUE(dense.holds());
  dense.add(0.11);
  EXPECT_FALSE(dense.holds());
  EXPECT_EQ(dense.outside(), 1);
  EXPECT_DOUBLE_EQ(dense.largest(), 0.11);
  EXPECT_NE(dense.words().find("1 of 101 rows"), std::string::npos) << dense.words();
  EXPECT_NE(dense.words().find("silu_mul"), std::string::npos) << dense.words();

  FusionTally routed({{"silu_mul"}, 0.1, true});
  for (int i = 0; i < 15; ++i) routed.add(1);
  EXPECT_TRUE(routed.holds()) << "too few rows to tell";
  routed.add(1);
  EXPECT_FALSE(routed.holds());
  for (int i = 0; i < 48; ++i) routed.add(0.05);
  EXPECT_TRUE(routed.holds()) << "a quarter took another expert";
  routed.add(std::numeric_limits<double>::infinity());
  EXPECT_FALSE(routed.holds());
}

}  // namespace
}  // namespace reprise::engine::fusion_bound_test

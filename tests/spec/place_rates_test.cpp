// How often drafts at each place of a chain come true.
#include "spec/place_rates.h"

#include <gtest/gtest.h>

namespace reprise::spec {
namespace {

TEST(PlaceRates, EachPlaceCountsWhereThoseBeforeItCameTrue) {
  PlaceRates rates(3, 0.5);
  rates.saw(3, 1);  // the first came true, the second did not, and nothing is known of the third
  EXPECT_DOUBLE_EQ(rates.rate(0), 0.85);
  EXPECT_DOUBLE_EQ(rates.rate(1), 0.35);
  EXPECT_DOUBLE_EQ(rates.rate(2), 0.7);
  rates.saw(1, 1);  // no more was verified
  EXPECT_DOUBLE_EQ(rates.rate(0), 0.925);
  EXPECT_DOUBLE_EQ(rates.rate(1), 0.35);
  std::vector<float> chances;
  rates.survival(3, chances);
  ASSERT_EQ(chances.size(), 3u);
  EXPECT_FLOAT_EQ(chances[0], 0.925f);
  EXPECT_FLOAT_EQ(chances[2], 0.925f * 0.35f * 0.7f);
}

TEST(PlaceRates, ACopyGoesOnByItself) {
  PlaceRates all(2, 0.5);
  all.saw(1, 0);
  PlaceRates one(all, 0.25);
  one.saw(1, 1);
  EXPECT_DOUBLE_EQ(all.rate(0), 0.35);
  EXPECT_DOUBLE_EQ(one.rate(0), 0.35 + 0.25 * 0.65);
  for (int i = 0; i < 100; ++i) one.saw(2, 2);
  EXPECT_LE(one.rate(0), 0.99);
  EXPECT_DOUBLE_EQ(one.rate(7), one.rate(1));  // places behind the last one are as that
}

}  // namespace
}  // namespace reprise::spec

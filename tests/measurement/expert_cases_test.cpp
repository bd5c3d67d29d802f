// Where the tokens of a benchmarked case go: what moe_route would give for choices that no token makes twice.
#include "measurement/expert_cases.h"

#include <gtest/gtest.h>

#include <set>

namespace reprise::measurement::expert_cases_test {
namespace {

TEST(Routing, SortsEveryChoiceByExpertAndToken) {
  for (const auto& [tokens, experts, per_token] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 8, 8}, {5, 7, 1}, {64, 128, 8}, {33, 60, 4}}) {
    const Routing r = Routing::of(tokens, experts, per_token);
    const auto choices = static_cast<size_t>(tokens * per_token);
    ASSERT_EQ(r.experts.size(), choices);
    ASSERT_EQ(r.token.size(), choices);
    ASSERT_EQ(r.place.size(), choices);
    ASSERT_EQ(r.starts.size(), static_cast<size_t>(experts) + 1);
    EXPECT_EQ(r.starts.front(), 0);
    EXPECT_EQ(r.starts.back(), tokens * per_token);
    for (int64_t t = 0; t < tokens; ++t) {
      std::set<int32_t> chosen;
      for (int64_t j = 0; j < per_token; ++j) {
        const auto i = static_cast<size_t>(t * per_token + j);
        const int32_t e = r.experts[i], row = r.place[i];
        EXPECT_TRUE(e >= 0 && e < experts && chosen.insert(e).second) << t << " " << e;
        EXPECT_TRUE(r.starts[static_cast<size_t>(e)] <= row && row < r.starts[static_cast<size_t>(e) + 1]);
        EXPECT_EQ(r.token[static_cast<size_t>(row)], t);
      }
    }
    for (size_t e = 0; e < static_cast<size_t>(experts); ++e)
      for (int32_t row = r.starts[e] + 1; row < r.starts[e + 1]; ++row)
        EXPECT_LT(r.token[static_cast<size_t>(row) - 1], r.token[static_cast<size_t>(row)]);
  }
}

// Enough that the sizes of a benchmark do not all go the same way.
TEST(Routing, ReachesMostExperts) {
  const Routing r = Routing::of(64, 64, 6);
  EXPECT_GT(std::set<int32_t>(r.experts.begin(), r.experts.end()).size(), 60u);
}

}  // namespace
}  // namespace reprise::measurement::expert_cases_test

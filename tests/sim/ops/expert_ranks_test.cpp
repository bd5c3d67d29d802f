// Rows that go to the ranks of their experts, and what comes back, worked out here choice by choice.
#include <algorithm>

#include "sim/ops/bench.h"

namespace sim_test {
namespace {

class ExpertRanks : public OpsTest {
 protected:
  void SetUp() override {
    OpsTest::SetUp();
    bench().given.clear();
  }
  void TearDown() override {
    bench().given.clear();
    bench().seat = {};
    OpsTest::TearDown();
  }
};

constexpr int64_t kRanks = 3, kTokens = 2, kWidth = 32, kChoices = 2, kExperts = 6, kRoom = kRanks * kTokens * 2;

// What one rank has.
struct Rank {
  Array x{kBf16, {kTokens, kWidth}}, chosen{kInt32, {kTokens, kChoices}}, weights{kFloat, {kTokens, kChoices}},
      rows{kBf16, {kRoom, kWidth}}, assist{kInt32, {kRoom * 128}}, counts{kInt64, {kExperts / kRanks}},
      received{kInt32, {kExperts}}, sums{kBf16, {kTokens, kWidth}};
  std::vector<double> numbers_of_x, experts, factors;

  explicit Rank(int rank) {
    numbers_of_x = kept(kBf16, numbers(kTokens * kWidth, 7 + static_cast<unsigned>(rank)));
    for (int64_t i = 0; i < kTokens * kChoices; ++i) {
      // Rank 1 chooses expert 5 for both tokens; nobody chooses expert 3.
      const int64_t e = rank == 1 ? 5 - i % 2 : (rank * 2 + i) % kExperts;
      experts.push_back(static_cast<double>(e == 3 ? 0 : e));
      factors.push_back(0.25 * static_cast<double>(i + 1));
    }
    x.set(numbers_of_x), chosen.set(experts), weights.set(factors);
  }
  aclnnStatus send(int64_t kind) {
    return RUN_OP(aclnnMoeDistributeDispatchV2, x, chosen, nullptr, nullptr, nullptr, "experts", kRanks,
                  bench().seat.rank, kExperts, "", 0, 0, 0, 0, 0, 0, kRanks * kTokens, kind, "", rows, nullptr, assist,
                  counts, received, nullptr, nullptr);
  }
  aclnnStatus take_back() {
    return RUN_OP(aclnnMoeDistributeCombineV2, rows, chosen, assist, received, weights, nullptr, nullptr, nullptr,
                  nullptr, nullptr, nullptr, nullptr, "experts", kRanks, bench().seat.rank, kExperts, "", 0, 0, 0, 0, 0,
                  kRanks * kTokens, 0, 0, 0, "", sums);
  }
};

// All give, then each takes.
template <typename Run>
void together(const Run& run) {
  bench().given.clear();
  for (int pass = 0; pass < 2; ++pass)
    for (int r = 0; r < kRanks; ++r) {
      bench().seat = {r, kRanks};
      ASSERT_EQ(run(r), 0) << bench().error;
    }
}

TEST_F(ExpertRanks, RowsGoToTheirExpertsAndComeBackAsSums) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int r = 0; r < kRanks; ++r) ranks.push_back(std::make_unique<Rank>(r));
  for (const int64_t kind : {0, 1}) {
    together([&](int r) { return ranks[static_cast<size_t>(r)]->send(kind); });
    std::vector<std::vector<int64_t>> crossing(kRanks, std::vector<int64_t>(kRanks, 0));
    for (int me = 0; me < kRanks; ++me) {
      Rank& mine = *ranks[static_cast<size_t>(me)];
      std::vector<double> wanted, counts;
      for (int64_t e = me * 2; e < me * 2 + 2; ++e) {
        double count = 0;
        for (int r = 0; r < kRanks; ++r)
          for (int64_t i = 0; i < kTokens * kChoices; ++i) {
            const Rank& from = *ranks[static_cast<size_t>(r)];
            if (from.experts[static_cast<size_t>(i)] != static_cast<double>(e)) continue;
            const auto begin = from.numbers_of_x.begin() + i / kChoices * kWidth;
            wanted.insert(wanted.end(), begin, begin + kWidth);
            ++count;
            if (r != me) ++crossing[static_cast<size_t>(r)][static_cast<size_t>(me)];
          }
        counts.push_back(count + (kind == 0 && !counts.empty() ? counts.back() : 0));
      }
      std::vector<double> rows = mine.rows.get_all();
      rows.resize(wanted.size());
      EXPECT_EQ(rows, wanted) << "rank " << me;
      EXPECT_EQ(mine.counts.get_all(), counts) << "rank " << me;
    }
    int64_t fullest = 0;
    for (const auto& from : crossing) fullest = std::max(fullest, *std::max_element(from.begin(), from.end()));
    EXPECT_EQ(bench().link_bytes, static_cast<double>(fullest * kWidth * 2));
  }
  // Each expert multiplies by its number and one.
  for (int me = 0; me < kRanks; ++me) {
    Rank& mine = *ranks[static_cast<size_t>(me)];
    std::vector<double> rows = mine.rows.get_all();
    const std::vector<double> counts = mine.counts.get_all();
    for (size_t i = 0; i < static_cast<size_t>(counts[0] + counts[1]) * kWidth; ++i)
      rows[i] *= me * 2 + (i >= static_cast<size_t>(counts[0]) * kWidth ? 2 : 1);
    for (double& v : rows) v = v == v ? kept(kBf16, v) : 0;
    mine.rows.set(rows);
  }
  together([&](int r) { return ranks[static_cast<size_t>(r)]->take_back(); });
  for (int me = 0; me < kRanks; ++me) {
    Rank& mine = *ranks[static_cast<size_t>(me)];
    std::vector<double> wanted;
    for (int64_t t = 0; t < kTokens; ++t)
      for (int64_t c = 0; c < kWidth; ++c) {
        double sum = 0;
        for (int64_t j = t * kChoices; j < (t + 1) * kChoices; ++j)
          sum += mine.factors[static_cast<size_t>(j)] *
                 kept(kBf16, mine.numbers_of_x[static_cast<size_t>(t * kWidth + c)] *
                                 (mine.experts[static_cast<size_t>(j)] + 1));
        wanted.push_back(sum);
      }
    expect_close(mine.sums.get_all(), wanted, kBf16);
  }
}

// Rows of int8, and their scales, are what aclnnDynamicQuant makes of the rows that are sent; one of zeros has scale 0.
// A byte a number and a scale cross, in place of two.
TEST_F(ExpertRanks, Int8RowsAreThoseOfDynamicQuant) {
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<std::vector<double>> values, steps;
  for (int r = 0; r < kRanks; ++r) {
    Rank& rank = *ranks.emplace_back(std::make_unique<Rank>(r));
    if (r == 2) std::fill_n(rank.numbers_of_x.begin(), kWidth, 0.0);
    rank.x.set(rank.numbers_of_x);
    Array y(kInt8, {kTokens, kWidth}), scale(kFloat, {kTokens});
    ASSERT_EQ(RUN_OP(aclnnDynamicQuant, rank.x, nullptr, y, scale), 0) << bench().error;
    values.push_back(y.get_all()), steps.push_back(scale.get_all());
  }
  EXPECT_EQ(steps[2][0], 0);
  Array rows(kInt8, {kRoom, kWidth}), scales(kFloat, {kRoom});
  for (int me = 0; me < kRanks; ++me) {
    together([&](int r) {
      Rank& rank = *ranks[static_cast<size_t>(r)];
      const auto send = [&](Array& to, Array& scales_to) {
        return RUN_OP(aclnnMoeDistributeDispatchV2, rank.x, rank.chosen, nullptr, nullptr, nullptr, "experts", kRanks,
                      bench().seat.rank, kExperts, "", 0, 0, 0, 0, 0, 2, 0, 1, "", to, scales_to, rank.assist,
                      rank.counts, rank.received, nullptr, nullptr);
      };
      Array others(kInt8, {kRoom, kWidth}), their_scales(kFloat, {kRoom});
      return r == me ? send(rows, scales) : send(others, their_scales);
    });
    std::vector<double> wanted, wanted_scales;
    for (int64_t e = me * 2; e < me * 2 + 2; ++e)
      for (size_t r = 0; r < kRanks; ++r)
        for (int64_t i = 0; i < kTokens * kChoices; ++i) {
          if (ranks[r]->experts[static_cast<size_t>(i)] != static_cast<double>(e)) continue;
          const auto begin = values[r].begin() + i / kChoices * kWidth;
          wanted.insert(wanted.end(), begin, begin + kWidth);
          wanted_scales.push_back(steps[r][static_cast<size_t>(i / kChoices)]);
        }
    std::vector<double> got = rows.get_all(), got_scales = scales.get_all();
    got.resize(wanted.size()), got_scales.resize(wanted_scales.size());
    EXPECT_EQ(got, wanted) << "rank " << me;
    EXPECT_EQ(got_scales, wanted_scales) << "rank " << me;
  }
  EXPECT_EQ(static_cast<int64_t>(bench().link_bytes) % (kWidth + 4), 0);
  EXPECT_GT(bench().link_bytes, 0);
}

// What combine is given must be what dispatch gave.
TEST_F(ExpertRanks, CombineKnowsWhatDispatchWrote) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int r = 0; r < kRanks; ++r) ranks.push_back(std::make_unique<Rank>(r));
  together([&](int r) { return ranks[static_cast<size_t>(r)]->send(1); });
  ranks[1]->assist.set(std::vector<double>(static_cast<size_t>(kRoom * 128), 0));
  bench().given.clear();
  bench().seat = {1, kRanks};
  EXPECT_NE(ranks[1]->take_back(), 0);
  EXPECT_NE(bench().error.find("assistInfoForCombine is not what"), std::string::npos) << bench().error;
}

}  // namespace
}  // namespace sim_test

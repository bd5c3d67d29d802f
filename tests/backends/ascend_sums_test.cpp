// Parts of sums on several simulated cards: few rows, which every card adds, and many, of which each adds a share; and
// the largest logit of all cards.
#include <array>
#include <barrier>
#include <thread>

#include "backends/ascend_entry.h"
#include "base/half.h"
#include "support/ranked_hosts.h"

namespace reprise::ascend_sums_test {
namespace {

// A card of several, in its thread.
class Card : public AscendEntryTest {
 public:
  std::vector<uint8_t> result_of(const std::string& name, const std::vector<AscendOperand>& in, Attrs attrs = {}) {
    if (HasFatalFailure()) return {};
    auto out = run(name, in, std::move(attrs));
    return out.empty() ? std::vector<uint8_t>() : std::move(out[0]);
  }
  using AscendEntryTest::open;
  // Of a matrix of so many rows, which may be fewer.
  size_t workspace(int64_t rows, int64_t width) const {
    const KernelEntry& entry = *platform_.kernels->find("ascend.all_reduce");
    const OpSchema* op = platform_.ops->find("all_reduce");
    const std::vector<TensorType> types{{DType::BF16, {Dim(1, 1), Dim(width)}}};
    const Attrs attrs;
    LiveSizes live;
    live.value[1] = rows;
    return *entry.workspace({op, types, types, &attrs, {}}, live, 1);
  }
  void TestBody() override {}
};

struct Case {
  int cards;
  int64_t rows, width;
  DType type;
  bool bias;
};

void PrintTo(const Case& c, std::ostream* to) {
  *to << c.cards << " cards, " << c.rows << " x " << c.width << " " << dtype_name(c.type) << (c.bias ? ", bias" : "");
}

float number(int64_t i, int salt) {
  return static_cast<float>((static_cast<uint32_t>(i) * 2654435761u + static_cast<uint32_t>(salt) * 40503u) >> 12 &
                            65535) /
             7919.0F -
         4;
}

uint16_t narrow(DType t, float v) { return t == DType::BF16 ? float_to_bf16(v) : float_to_half(v); }
float kept(DType t, float v) {
  if (t == DType::F32) return v;
  return t == DType::BF16 ? bf16_to_float(narrow(t, v)) : half_to_float(narrow(t, v));
}

AscendOperand numbers(DType t, const Shape& shape, int64_t count, int salt) {
  std::vector<float> wide;
  std::vector<uint16_t> narrowed;
  for (int64_t i = 0; i < count; ++i) {
    if (t == DType::F32)
      wide.push_back(number(i, salt));
    else
      narrowed.push_back(narrow(t, number(i, salt)));
  }
  return t == DType::F32 ? operand({t, shape}, wide) : operand({t, shape}, narrowed);
}

class AscendSums : public testing::TestWithParam<Case> {};

TEST_P(AscendSums, AreThoseOfAllCardsInTheirOrderRoundedOnce) {
  const Case& c = GetParam();
  const int64_t count = c.rows * c.width;
  const testing_support::RankedHosts host({c.cards});
  std::vector<std::vector<uint8_t>> got(static_cast<size_t>(c.cards));
  std::vector<std::thread> cards;
  for (int r = 0; r < c.cards; ++r)
    cards.emplace_back([&, r] {
      std::vector<AscendOperand> in{numbers(c.type, {Dim(c.rows), Dim(c.width)}, count, r)};
      if (c.bias) in.push_back(numbers(c.type, {Dim(c.width)}, c.width, 99));
      Card card;
      card.open(host.member(r));
      got[static_cast<size_t>(r)] = card.result_of("ascend.all_reduce", in);
    });
  for (std::thread& card : cards) card.join();
  std::vector<uint8_t> expected;
  for (int64_t i = 0; i < count; ++i) {
    float sum = kept(c.type, number(i, 0));
    for (int r = 1; r < c.cards; ++r) sum += kept(c.type, number(i, r));
    if (c.bias) sum += kept(c.type, number(i % c.width, 99));
    const uint16_t rounded = narrow(c.type, sum);
    const auto* bytes =
        c.type == DType::F32 ? reinterpret_cast<const uint8_t*>(&sum) : reinterpret_cast<const uint8_t*>(&rounded);
    expected.insert(expected.end(), bytes, bytes + size_of(c.type));
  }
  for (int r = 0; r < c.cards; ++r) EXPECT_TRUE(got[static_cast<size_t>(r)] == expected) << "card " << r;
}

// Above 280 KB without a rank's own share and one more, which begins at three cards, each adds its share of rows.
INSTANTIATE_TEST_SUITE_P(Cards, AscendSums,
                         testing::Values(Case{2, 3, 40, DType::BF16, false}, Case{2, 3, 40, DType::F16, true},
                                         Case{3, 1, 33, DType::BF16, true}, Case{3, 5, 48, DType::F32, false},
                                         Case{2, 64, 8192, DType::BF16, false}, Case{3, 60, 8192, DType::BF16, false},
                                         Case{4, 37, 8192, DType::BF16, true}, Case{4, 37, 4096, DType::F32, false}));

// 72 rows are shared out among four cards and 70 are not; all fit into what is planned for any number up to a bound.
TEST(AscendSumsWorkspace, GrowsWithTheRows) {
  const testing_support::RankedHosts host({4});
  std::vector<std::thread> cards;
  for (int r = 0; r < 4; ++r)
    cards.emplace_back([&, r] {
      Card card;
      card.open(host.member(r));
      size_t before = 0;
      for (const int64_t rows : {1, 8, 69, 70, 71, 72, 73, 100, 512}) {
        const size_t now = card.workspace(rows, 4096);
        EXPECT_GE(now, before) << rows;
        before = now;
      }
    });
  for (std::thread& card : cards) card.join();
}

struct ExpertsCase {
  int cards;
  int64_t experts, top_k, tokens, width;
  int64_t ways = 1;  // cards that have the same experts
};

void PrintTo(const ExpertsCase& c, std::ostream* to) {
  *to << c.cards << " cards, " << c.experts << " experts, " << c.top_k << " of them for each of " << c.tokens;
}

// Choices of all tokens, sorted as moe_route sorts them.
struct Routes {
  std::vector<int32_t> experts, place, token, starts;
  std::vector<float> weights;

  explicit Routes(const ExpertsCase& c) : place(static_cast<size_t>(c.tokens * c.top_k)) {
    for (int64_t t = 0; t < c.tokens; ++t)
      for (int64_t j = 0; j < c.top_k; ++j) {
        // No token has an expert twice; the last expert has none, the first many.
        experts.push_back(static_cast<int32_t>(((t % 3 == 0 ? 0 : t * 5) + j) % (c.experts - 1)));
        weights.push_back(number(t * c.top_k + j, 3));
      }
    for (int32_t e = 0; e < c.experts; ++e) {
      starts.push_back(static_cast<int32_t>(token.size()));
      for (size_t i = 0; i < experts.size(); ++i)
        if (experts[i] == e) {
          place[i] = static_cast<int32_t>(token.size());
          token.push_back(static_cast<int32_t>(static_cast<int64_t>(i) / c.top_k));
        }
    }
    starts.push_back(static_cast<int32_t>(token.size()));
  }
};

class AscendExpertRanks : public testing::TestWithParam<ExpertsCase> {};

// Every card has its experts' rows alone, and rubbish behind them; the sums are those that one card has of all rows.
TEST_P(AscendExpertRanks, AddWhatOneCardAdds) {
  const ExpertsCase& c = GetParam();
  const Routes routes(c);
  const int64_t rows = c.tokens * c.top_k;
  std::vector<uint16_t> all;
  for (int64_t i = 0; i < rows * c.width; ++i) all.push_back(float_to_bf16(number(i, 5)));
  const auto table = [&](DType t, const auto& values) { return operand({t, {Dim(c.tokens), Dim(c.top_k)}}, values); };
  const AscendOperand weights = table(DType::F32, routes.weights), place = table(DType::I32, routes.place),
                      experts = table(DType::I32, routes.experts),
                      starts = operand({DType::I32, {Dim(c.experts + 1)}}, routes.starts);
  Card alone;
  alone.open(nullptr);
  const std::vector<uint8_t> expected =
      alone.result_of("ascend.moe_combine", {operand({DType::BF16, {Dim(rows), Dim(c.width)}}, all), weights, place});
  const testing_support::RankedHosts host({c.cards});
  std::vector<std::vector<uint8_t>> got(static_cast<size_t>(c.cards));
  std::vector<std::thread> cards;
  for (int r = 0; r < c.cards; ++r)
    cards.emplace_back([&, r] {
      Card card;
      card.open(host.member(r));
      const int64_t parts = c.cards / c.ways, part = r / c.ways, width = c.width / c.ways, column = r % c.ways * width,
                    first = c.experts * part / parts, count = c.experts * (part + 1) / parts - first;
      const int64_t room = c.tokens * std::min(count, c.top_k);
      const auto begin = routes.starts[static_cast<size_t>(first)],
                 end = routes.starts[static_cast<size_t>(first + count)];
      const auto mine = numbers_of<int32_t>(card.result_of("ascend.own_rows",
                                                           {operand({DType::I32, {Dim(rows)}}, routes.token), starts},
                                                           {{"first", first}, {"count", count}, {"top_k", c.top_k}}));
      ASSERT_EQ(static_cast<int64_t>(mine.size()), room);
      EXPECT_TRUE(std::equal(routes.token.begin() + begin, routes.token.begin() + end, mine.begin())) << "card " << r;
      std::vector<uint16_t> y;
      for (int64_t row = begin; row < end; ++row)
        y.insert(y.end(), all.begin() + row * c.width + column, all.begin() + row * c.width + column + width);
      y.resize(static_cast<size_t>(room * width), 0x7fc0);  // NaN
      got[static_cast<size_t>(r)] =
          card.result_of("ascend.combine_over_ranks",
                         {operand({DType::BF16, {Dim(room), Dim(width)}}, y), weights, place, experts, starts},
                         {{"first", first}, {"count", count}, {"ways", c.ways}});
    });
  for (std::thread& card : cards) card.join();
  for (int r = 0; r < c.cards; ++r) EXPECT_TRUE(got[static_cast<size_t>(r)] == expected) << "card " << r;
}

// Few rows, which all cards add; many (above 280 KB of a card), of which each adds its share; shares that are not
// equal; fewer experts on a card than choices; fewer tokens than cards; two cards with the same experts.
INSTANTIATE_TEST_SUITE_P(Cards, AscendExpertRanks,
                         testing::Values(ExpertsCase{3, 6, 2, 7, 48}, ExpertsCase{3, 6, 2, 100, 1024},
                                         ExpertsCase{4, 8, 4, 40, 2048}, ExpertsCase{3, 7, 3, 5, 40},
                                         ExpertsCase{4, 9, 2, 2, 33}, ExpertsCase{4, 5, 3, 7, 48, 2},
                                         ExpertsCase{4, 8, 4, 80, 2048, 2}));

struct TableCase {
  DType type;
  std::vector<int64_t> first;  // of each card's rows; those of the last end with the table
};

// One card after the other is asked for the rows of two tables that have as many ids and are cut at other places: what
// was made for the one is not taken for the other.
TEST(AscendTables, OfAsManyIdsWithOtherPartsAreKeptApart) {
  constexpr int kCards = 2;
  constexpr int64_t kIds = 11, kWidth = 6;
  const std::vector<int32_t> ids{0, 10, 4, 5, 6, 4, 3, 7};
  const auto rows = static_cast<int64_t>(ids.size());
  const testing_support::RankedHosts host({kCards});
  const auto check = [&](Card& card, int rank, const TableCase& c) {
    const int64_t first = c.first[static_cast<size_t>(rank)],
                  count = (rank + 1 < kCards ? c.first[static_cast<size_t>(rank) + 1] : kIds) - first;
    const Attrs part{{"first", first}, {"count", count}, {"of", kIds}};
    const AscendOperand asked = operand({DType::I32, {Dim(rows)}}, ids);
    const auto places = numbers_of<int32_t>(card.result_of("ascend.found_ids", {asked}, part));
    std::vector<float> mine, all;
    ASSERT_EQ(places.size(), ids.size());
    for (size_t t = 0; t < ids.size(); ++t) {
      const bool here = ids[t] >= first && ids[t] < first + count;
      EXPECT_EQ(places[t], here ? ids[t] - first : 0) << "card " << rank << ", id " << ids[t];
      for (int64_t i = 0; i < kWidth; ++i) {
        mine.push_back(kept(c.type, number((first + places[t]) * kWidth + i, 1)));
        all.push_back(kept(c.type, number(ids[t] * kWidth + i, 1)));
      }
    }
    const auto as_operand = [&](const std::vector<float>& values) {
      if (c.type == DType::F32) return operand({c.type, {Dim(rows), Dim(kWidth)}}, values);
      std::vector<uint16_t> narrowed;
      for (float v : values) narrowed.push_back(narrow(c.type, v));
      return operand({c.type, {Dim(rows), Dim(kWidth)}}, narrowed);
    };
    EXPECT_TRUE(card.result_of("ascend.gather_found", {as_operand(mine), asked}, part) == as_operand(all).bytes)
        << "card " << rank << ", " << dtype_name(c.type);
  };
  std::vector<std::thread> cards;
  for (int r = 0; r < kCards; ++r)
    cards.emplace_back([&, r] {
      Card card;
      card.open(host.member(r));
      for (const TableCase& c : {TableCase{DType::BF16, {0, 4}}, TableCase{DType::BF16, {0, 6}},
                                 TableCase{DType::F32, {0, 6}}, TableCase{DType::F32, {0, 4}}})
        check(card, r, c);
    });
  for (std::thread& card : cards) card.join();
}

// Each card has a part of the vocabulary: its pairs are the largest values with their places in all of it, and of the
// pairs of all cards the first of the largest wins.
TEST(AscendGreedy, TheLargestOfAllCardsIsTheLargestOfAll) {
  constexpr int kCards = 3;
  constexpr int64_t kRows = 5, kWidth = 37;
  const testing_support::RankedHosts host({kCards});
  std::vector<int32_t> pairs(kRows * kCards * 2), expected(kRows);
  const auto value = [](int64_t row, int64_t column) {  // row 3: all are equal
    return row == 3 ? 1.5F : number(row * kWidth * kCards + column, 7);
  };
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t i = 1; i < kWidth * kCards; ++i)
      if (value(row, i) > value(row, expected[static_cast<size_t>(row)]))
        expected[static_cast<size_t>(row)] = static_cast<int32_t>(i);
  std::array<std::vector<uint8_t>, kCards> merged;
  std::barrier meeting(kCards);
  std::vector<std::thread> cards;
  for (int r = 0; r < kCards; ++r)
    cards.emplace_back([&, r] {
      Card card;
      card.open(host.member(r));
      std::vector<float> x;
      std::vector<int32_t> best(kRows);
      for (int64_t row = 0; row < kRows; ++row)
        for (int64_t i = 0; i < kWidth; ++i) {
          x.push_back(value(row, r * kWidth + i));
          int32_t& place = best[static_cast<size_t>(row)];
          if (x.back() > x[static_cast<size_t>(row * kWidth + place)]) place = static_cast<int32_t>(i);
        }
      const auto own = numbers_of<int32_t>(card.result_of(
          "ascend.argmax_pairs",
          {operand({DType::F32, {Dim(kRows), Dim(kWidth)}}, x), operand({DType::I32, {Dim(kRows)}}, best)},
          {{"first", r * kWidth}}));
      for (size_t i = 0; i < own.size(); ++i) pairs[(i / 2 * kCards + static_cast<size_t>(r)) * 2 + i % 2] = own[i];
      meeting.arrive_and_wait();
      merged[static_cast<size_t>(r)] =
          card.result_of("ascend.merge_argmax", {operand({DType::I32, {Dim(kRows), Dim(2 * kCards)}}, pairs)});
    });
  for (std::thread& card : cards) card.join();
  for (const auto& tokens : merged) EXPECT_EQ(numbers_of<int32_t>(tokens), expected);
}

}  // namespace
}  // namespace reprise::ascend_sums_test

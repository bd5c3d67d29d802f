// Parts of sums on several simulated cards: few rows, which every card adds, and many, of which each adds a share.
#include <thread>

#include "backends/ascend_entry.h"
#include "base/half.h"
#include "support/ranked_hosts.h"

namespace reprise::ascend_sums_test {
namespace {

// A card of several, in its thread.
class Card : public AscendEntryTest {
 public:
  std::vector<uint8_t> all_reduce(std::shared_ptr<ranks::Member> member, const std::vector<AscendOperand>& in) {
    open(std::move(member));
    if (HasFatalFailure()) return {};
    auto out = run("ascend.all_reduce", in, {});
    return out.empty() ? std::vector<uint8_t>() : std::move(out[0]);
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
      got[static_cast<size_t>(r)] = Card().all_reduce(host.member(r), in);
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

}  // namespace
}  // namespace reprise::ascend_sums_test

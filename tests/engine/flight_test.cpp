// Steps in flight: whose turn it is, which row of a result belongs to a sequence, and what a result must be before a
// sequence gets a token of it.
#include "engine/flight.h"

#include <gtest/gtest.h>

#include <limits>

namespace reprise::engine::flight_test {
namespace {

struct FlightTest : testing::Test {
  Sequence first{{1, 2, 3}}, second{{4, 5}}, third{{6}};
  std::vector<float> hidden{1, 2, 3, 4};
  std::vector<int32_t> tokens{70, 71};
  Flight f;

  FlightTest() {
    f.output = StepOutput::NextTokens;
    f.items = {{&first, 3, 1}, {&second, 1, 0}, {&third, 1, 1}};
    f.ends = {3, 1, 1};
    f.answers[Flight::Tokens].view = view(DType::I32, tokens.data(), 2);
    f.answers[Flight::Finite].view = view(DType::F32, hidden.data(), 4);
  }
  static TensorView view(DType dtype, void* data, int64_t n) { return TensorView::dense(data, dtype, {n}); }
};

TEST_F(FlightTest, ResultsHaveARowForEachItemThatAsksForOne) {
  EXPECT_EQ(f.result_row(&first), 0);
  EXPECT_EQ(f.result_row(&second), -1);
  EXPECT_EQ(f.result_row(&third), 1);
  Sequence other({9});
  EXPECT_EQ(f.result_row(&other), -1);
  // What follows drafts is known when they were judged, unless they are certain.
  const std::vector<int32_t> drafts{8};
  f.items[0].drafts = drafts;
  f.items[0].logits = 2;
  EXPECT_EQ(f.result_row(&first), -1);
  f.items[0].certain = true;
  EXPECT_EQ(f.result_row(&first), 1);
  EXPECT_EQ(f.result_row(&third), 2);
}

TEST_F(FlightTest, OnlyPendingPlacesGetTokens) {
  first.append_pending();
  third.append(33);  // its own, as a request that is sampled on the host
  EXPECT_TRUE(f.accept().is_ok());
  EXPECT_EQ(first.tokens(), (std::vector<int32_t>{1, 2, 3, 70}));
  EXPECT_EQ(second.tokens(), (std::vector<int32_t>{4, 5}));
  EXPECT_EQ(third.tokens(), (std::vector<int32_t>{6, 33}));
}

// In every form that a device says it in.
TEST_F(FlightTest, NoTokenComesOfWhatIsNotFinite) {
  first.append_pending();
  const auto refused = [&](const TensorView& finite) {
    f.answers[Flight::Finite].view = finite;
    const Status s = f.accept();
    return !s.is_ok() && s.message().find("not a finite number") != std::string::npos && first.pending();
  };
  hidden[2] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(refused(view(DType::F32, hidden.data(), 4)));
  hidden[2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(refused(view(DType::F32, hidden.data(), 4)));
  std::vector<uint16_t> halves{0x3c00, 0x7c00};  // 1 and infinity in fp16; in bf16 the second is 2^121
  EXPECT_TRUE(refused(view(DType::F16, halves.data(), 2)));
  halves = {0x3f80, 0xff80};  // 1 and -infinity in bf16
  EXPECT_TRUE(refused(view(DType::BF16, halves.data(), 2)));
  std::vector<int32_t> said{1, 0};
  EXPECT_TRUE(refused(view(DType::I32, said.data(), 2)));
  said[1] = 1;
  EXPECT_FALSE(refused(view(DType::I32, said.data(), 2)));
  EXPECT_EQ(first.tokens().back(), 70);
}

TEST(Flights, TakeTurnsAndAreFoundByTheirTickets) {
  Flights flights(2);
  EXPECT_EQ(flights.find(0), nullptr);
  EXPECT_EQ(flights.find(1), nullptr);
  Flight& a = flights.next();
  EXPECT_EQ(flights.before(a), nullptr);
  EXPECT_EQ(flights.give(a), 1u);
  Flight& b = flights.next();
  EXPECT_NE(&a, &b);
  EXPECT_EQ(flights.before(b), &a);  // it has no ticket yet
  EXPECT_EQ(flights.give(b), 2u);
  EXPECT_EQ(flights.before(b), &a);
  EXPECT_EQ(flights.find(1), &a);
  EXPECT_EQ(flights.find(2), &b);
  EXPECT_EQ(flights.find(3), nullptr);
  EXPECT_EQ(&flights.next(), &a);
  EXPECT_EQ(flights.slot_of(b), 1);
  a.ticket = 0;  // it was waited for
  EXPECT_EQ(flights.find(1), nullptr);
  EXPECT_EQ(flights.before(b), nullptr);
  EXPECT_EQ(flights.give(flights.next()), 3u);
  EXPECT_EQ(flights.before(a), &b);
  // The marks of a step are its own while any later one may be in flight, and one step longer.
  for (Ticket t = 1; t <= 3; ++t) EXPECT_NE(&flights.marks_of(t), &flights.marks_of(t + 2));
}

}  // namespace
}  // namespace reprise::engine::flight_test

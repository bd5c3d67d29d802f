#include "device/recorded_order.h"

#include <gtest/gtest.h>

#include "device/conformance.h"

namespace reprise::conformance::recorded_order_test {
namespace {

// Launches 0 1 | 2 3 | 4 5, of which 2 and 3 are on the side: 2 follows 0, and 5 follows 3.
RecordedOrder fork_and_join() {
  RecordedOrder o;
  EXPECT_OK(o.launch(0));
  EXPECT_OK(o.record(0, 7));
  EXPECT_OK(o.launch(0));
  EXPECT_OK(o.wait(1, 7));
  EXPECT_OK(o.launch(1));
  EXPECT_OK(o.launch(1));
  EXPECT_OK(o.record(1, 8));
  EXPECT_OK(o.launch(0));
  EXPECT_OK(o.wait(0, 8));
  EXPECT_OK(o.launch(0));
  return o;
}

TEST(RecordedOrder, OrdersKeepStreamsAndWaits) {
  const RecordedOrder o = fork_and_join();
  EXPECT_OK(o.finish());
  EXPECT_TRUE(o.several_streams());
  EXPECT_EQ(o.waits(), 2u);
  using List = std::vector<uint32_t>;
  EXPECT_EQ(o.order(0), (List{0, 2, 3, 1, 4, 5}));
  EXPECT_EQ(o.order(1), (List{0, 1, 4, 2, 3, 5}));
  std::vector<List> seen;
  for (uint64_t seed = 2; seed < 40; ++seed) {
    const List order = o.order(seed);
    std::vector<size_t> place(6);
    for (size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
    for (auto [a, b] : {std::pair{0, 1}, {1, 4}, {4, 5}, {2, 3}, {0, 2}, {3, 5}}) EXPECT_LT(place[a], place[b]);
    if (std::find(seen.begin(), seen.end(), order) == seen.end()) seen.push_back(order);
  }
  EXPECT_EQ(seen.size(), 6u);  // two of the side among two of the main stream
}

TEST(RecordedOrder, RulesOfARecording) {
  RecordedOrder o;
  EXPECT_OK(o.launch(0));
  EXPECT_NE(o.launch(1).message().find("has waited for nothing yet"), std::string::npos);
  EXPECT_NE(o.launch(2).message().find("has waited for nothing yet"), std::string::npos);
  EXPECT_NE(o.launch(3).message().find("allowed: 0 to 2"), std::string::npos);
  EXPECT_NE(o.wait(1, 3).message().find("mark 3, not recorded yet"), std::string::npos);
  EXPECT_OK(o.record(0, 3));
  EXPECT_OK(o.wait(1, 3));
  EXPECT_OK(o.finish());
  EXPECT_OK(o.launch(1));
  EXPECT_NE(o.finish().message().find("stream 1 is not joined"), std::string::npos);
}

}  // namespace
}  // namespace reprise::conformance::recorded_order_test

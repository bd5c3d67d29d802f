#include "device/recorded_order.h"

#include <gtest/gtest.h>

#include <random>

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

TEST(RecordedOrder, StagesForkAsEarlyAsTheyMay) {
  using Stage = RecordedOrder::Stage;
  // 1 and 4 wait for nothing on the side.
  EXPECT_EQ(fork_and_join().stages(), (std::vector<Stage>{{{{0}, {}, {}}}, {{{1, 4}, {2, 3}, {}}}, {{{5}, {}, {}}}}));
  RecordedOrder one;
  for (int i = 0; i < 3; ++i) EXPECT_OK(one.launch(0));
  EXPECT_EQ(one.stages(), (std::vector<Stage>{Stage{{{0, 1, 2}, {}, {}}}}));
}

// Whatever was recorded: stages one after the other, and within one the streams at any times, keep every wait.
TEST(RecordedOrder, StagesKeepEveryWait) {
  std::minstd_rand random(3);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  size_t beside = 0;
  for (int round = 0; round < 200; ++round) {
    RecordedOrder o;
    std::vector<uint8_t> stream_of;
    std::vector<std::pair<uint32_t, std::vector<uint32_t>>> behind;  // of a launch: those that it follows by waits
    std::array<std::vector<uint32_t>, 3> next_waits;
    std::vector<std::pair<uint8_t, uint32_t>> marks;  // their last launch; by number
    std::array<int64_t, 3> last{-1, -1, -1};
    std::array<bool, 3> in{true, false, false};
    for (int i = 0; i < 30; ++i) {
      const auto s = static_cast<uint8_t>(below(3));
      if (in[s] && below(2) == 0) {
        EXPECT_OK(o.launch(s));
        last[s] = static_cast<int64_t>(stream_of.size());
        behind.emplace_back(static_cast<uint32_t>(last[s]), std::exchange(next_waits[s], {}));
        stream_of.push_back(s);
      } else if (in[s] && last[s] >= 0 && below(2) == 0) {
        EXPECT_OK(o.record(s, static_cast<uint32_t>(marks.size())));
        marks.emplace_back(s, static_cast<uint32_t>(last[s]));
      } else if (!marks.empty()) {
        const uint32_t mark = below(static_cast<uint32_t>(marks.size()));
        if (marks[mark].first == s) continue;
        EXPECT_OK(o.wait(s, mark));
        in[s] = true;
        next_waits[s].push_back(marks[mark].second);
      }
    }
    std::vector<size_t> stage_of(stream_of.size(), SIZE_MAX), place(stream_of.size());
    const auto stages = o.stages();
    for (size_t k = 0; k < stages.size(); ++k) {
      int streams = 0;
      for (uint8_t s = 0; s < 3; ++s) {
        streams += stages[k][s].empty() ? 0 : 1;
        for (size_t i = 0; i < stages[k][s].size(); ++i) {
          const uint32_t launch = stages[k][s][i];
          EXPECT_EQ(stream_of[launch], s);
          EXPECT_EQ(stage_of[launch], SIZE_MAX) << "twice";
          stage_of[launch] = k, place[launch] = i;
        }
      }
      EXPECT_GT(streams, 0);
      beside += streams > 1 ? 1 : 0;
    }
    for (const auto& [launch, before] : behind) {
      ASSERT_NE(stage_of[launch], SIZE_MAX) << "left out";
      for (const uint32_t b : before) EXPECT_LT(stage_of[b], stage_of[launch]) << "round " << round;
    }
    for (uint32_t a = 0; a < stream_of.size(); ++a)
      for (uint32_t b = a + 1; b < stream_of.size(); ++b)
        if (stream_of[a] == stream_of[b])
          EXPECT_LT(std::pair(stage_of[a], place[a]), std::pair(stage_of[b], place[b])) << "round " << round;
  }
  EXPECT_GT(beside, 100u);
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

// How the streams of a graph share the chip in the modelled time.
#include "ascend/runtime/sharing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace sim_test::rt_sharing_test {
namespace {

using ascend_sim::Share;
using ascend_sim::shared_ends;
using ascend_sim::SharedStep;
using Kind = SharedStep::Kind;

constexpr Share kCube{1, 0, 0}, kVector{0, 1, 0};

SharedStep work(double micros, Share share) { return {Kind::Work, micros, share}; }

TEST(Sharing, WorkOnTheSameCoresOrBandwidthTakesAsLongAsOneAfterTheOther) {
  for (const Share share : {kCube, kVector, Share{0, 0, 1}}) {
    const auto ends = shared_ends({{work(30, share)}, {work(10, share)}}, 100);
    EXPECT_DOUBLE_EQ(ends[0], 140);
    EXPECT_DOUBLE_EQ(ends[1], 120);  // half as fast until then
  }
}

TEST(Sharing, WorkThatNeedsDifferentPartsRunsBesideEachOther) {
  EXPECT_DOUBLE_EQ(shared_ends({{work(30, kCube)}, {work(10, kVector)}}, 0)[0], 30);
  // Both want 3/4 of the bandwidth: a third slower together, the rest of the longer one alone.
  const auto ends = shared_ends({{work(30, {1, 0, 0.75})}, {work(10, {0, 1, 0.75})}}, 0);
  EXPECT_DOUBLE_EQ(ends[1], 15);
  EXPECT_DOUBLE_EQ(ends[0], 35);
}

// Never less than each resource takes by itself, never more than all work one after the other.
TEST(Sharing, NothingIsPromisedThatTheChipDoesNotHave) {
  std::minstd_rand random(5);
  const auto part = [&] { return random() % 3 == 0 ? 0.0 : static_cast<double>(random() % 100 + 1) / 100; };
  for (int round = 0; round < 50; ++round) {
    std::vector<std::vector<SharedStep>> streams(2 + random() % 2);
    double cube = 0, vector = 0, bandwidth = 0, all = 0, longest = 0;
    for (auto& stream : streams) {
      double own = 0;
      for (int i = 0; i < 6; ++i) {
        const SharedStep s = work(static_cast<double>(random() % 40), {part(), part(), part()});
        stream.push_back(s);
        own += s.micros;
        cube += s.micros * s.share.cube;
        vector += s.micros * s.share.vector;
        bandwidth += s.micros * s.share.bandwidth;
      }
      all += own;
      longest = std::max(longest, own);
    }
    double end = 0;
    for (double e : shared_ends(streams, 0)) end = std::max(end, e);
    for (const double least : {cube, vector, bandwidth, longest}) EXPECT_GE(end, least - 1e-4);
    EXPECT_LE(end, all + 1e-4);
  }
}

TEST(Sharing, MarksAndClocksHoldUp) {
  const int mark = 0, never = 0;
  const auto ends =
      shared_ends({{work(10, kCube), {Kind::Record, 0, {}, &mark}, work(5, kCube)},
                   {{Kind::Wait, 3, {}, &mark}, work(2, kVector), {Kind::Until, 121}, {Kind::Wait, 9, {}, &never}}},
                  100);
  EXPECT_DOUBLE_EQ(ends[0], 115);
  EXPECT_DOUBLE_EQ(ends[1], 121);
  EXPECT_DOUBLE_EQ(shared_ends({{{Kind::Wait, 3, {}, &mark}, work(2, kVector)}}, 100)[0], 102);
}

}  // namespace
}  // namespace sim_test::rt_sharing_test

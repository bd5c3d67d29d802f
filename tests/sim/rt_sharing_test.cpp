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

// A kernel of 100 bytes at a byte a microsecond, behind a start of 5; a cached byte takes a third.
SharedStep reads(uintptr_t from, uintptr_t bytes = 100) {
  const auto size = static_cast<double>(bytes);
  return {Kind::Work, 5 + size, {1, 0, size / (5 + size)}, nullptr, {5, 0, size, 0, size, {{from, from + bytes}}}};
}
SharedStep prefetches(uintptr_t from, uintptr_t bytes) {
  return {Kind::Work, 2 + static_cast<double>(bytes), {0, 0, 1}, nullptr, {}, {from, from + bytes}, 2};
}
double main_end(std::vector<SharedStep> main, std::vector<SharedStep> ahead, double capacity = 1000) {
  return shared_ends({std::move(main), std::move(ahead)}, 0, {capacity, 1.0 / 3})[0];
}

TEST(Sharing, WhatWasPrefetchedIsReadFromTheCache) {
  EXPECT_DOUBLE_EQ(main_end({work(50, kVector), reads(1000)}, {}), 155);
  // 48 of 100 bytes have come when the kernel begins.
  EXPECT_NEAR(main_end({work(50, kVector), reads(1000)}, {prefetches(1000, 48)}), 50 + 5 + 52 + 16, 1e-6);
  // Other bytes; and those without a cache.
  EXPECT_DOUBLE_EQ(main_end({work(50, kVector), reads(2000)}, {prefetches(1000, 48)}), 155);
  EXPECT_DOUBLE_EQ(main_end({work(50, kVector), reads(1000)}, {prefetches(1000, 48)}, 0), 155);
}

TEST(Sharing, TooMuchAheadCosts) {
  // It begins with the kernel that reads the same: both want the bandwidth, and nothing was there in time.
  EXPECT_GT(main_end({reads(1000)}, {prefetches(1000, 100)}), 105 + 50);
  // Behind a window for 48 bytes the rest competes with the product, whose own bytes it delays.
  const double enough = main_end({work(50, kVector), reads(1000), reads(2000)}, {prefetches(1000, 48)});
  EXPECT_GT(main_end({work(50, kVector), reads(1000), reads(2000)}, {prefetches(1000, 48), prefetches(5000, 150)}),
            enough + 50);
  // What passes through the cache in between takes its place.
  EXPECT_NEAR(main_end({work(50, kVector), reads(3000, 400), reads(1000)}, {prefetches(1000, 48)}, 1000),
              50 + 405 + 5 + 52 + 16, 1e-6);
  EXPECT_NEAR(main_end({work(50, kVector), reads(3000, 400), reads(1000)}, {prefetches(1000, 48)}, 300), 50 + 405 + 105,
              1e-6);
}

}  // namespace
}  // namespace sim_test::rt_sharing_test

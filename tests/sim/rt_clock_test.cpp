// The modelled clock: what calls, kernels, graphs and events do to it.
#include "sim/rt_support.h"

using namespace sim_test;

namespace {

using ascend_sim::Kernel;
using ascend_sim::Unit;

class RtClock : public Runtime {
 protected:
  Kernel streaming(double bytes, Unit unit = Unit::Cube) {
    Kernel kernel;
    kernel.name = "streaming";
    kernel.unit = unit;
    kernel.work = {0, bytes};
    return kernel;
  }
  // Microseconds of the host's clock that the body takes.
  static double elapsed(const std::function<void()>& body) {
    const double begin = ascendSimHostMicros();
    body();
    return ascendSimHostMicros() - begin;
  }
};

// 36 layers of 15 kernels that read the 16.4 GB of a bf16 model of 8 billion weights: no step is faster than the
// memory, in a graph the gaps are a small addition, and eager the host takes 15 ms for calls of 20 to 30 us each.
TEST_F(RtClock, EightBillionWeights) {
  start({{"COMPUTE", "0"}});
  constexpr int kKernels = 36 * 15;
  constexpr double kWeights = 16.4e9;
  // Of the 15 kernels of a layer 4 are large products.
  const auto step = [&] {
    for (int i = 0; i < kKernels; ++i) {
      const bool product = i % 15 < 4;
      ASSERT_EQ(ascend_sim::launch(
                    stream_, {streaming(product ? kWeights / (36 * 4) : 1e5, product ? Unit::Cube : Unit::Vector)}),
                0);
    }
  };
  const double floor = kWeights / (1.6 * 1099511627776.0 * 0.75) * 1e6;
  EXPECT_NEAR(floor, 12400, 100);
  const aclmdlRI graph = capture(step);
  const auto replay = [&] {
    ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
    ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  };
  replay();
  const double in_graph = elapsed(replay);
  EXPECT_GT(in_graph, floor);
  EXPECT_LT(in_graph, floor + 36 * (4 * 5 + 11 * 2.1) + kKernels * 1.0 + 100) << "starts, gaps and one replay call";
  // Operators charge 8 us for a cached first phase and 5 us for the launch; frameworks add theirs on top.
  const double eager = elapsed([&] {
    for (int i = 0; i < kKernels; ++i) ascend_sim::spend_host(28);
    step();
    ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  });
  EXPECT_GT(eager, 15000);
  EXPECT_GT(eager, in_graph);
}

// What a user of slower launches would see: operators' time is multiplied, the runtime's own calls are not.
TEST_F(RtClock, LaunchesMayCostMore) {
  start({{"COMPUTE", "0"}, {"LAUNCH_FACTOR", "2.5"}});
  EXPECT_NEAR(elapsed([] { ascend_sim::spend_host(8); }), 20, 1e-9);
  const double call = elapsed([&] { EXPECT_EQ(aclrtRecordEvent(new_event(), stream_), 0); });
  EXPECT_NE(std::string(ascendSimAssumptions()).find("multiplied by 2.5"), std::string::npos);
  aclFinalize();
  clear_environment();
  start({{"COMPUTE", "0"}});
  EXPECT_NEAR(elapsed([] { ascend_sim::spend_host(8); }), 8, 1e-9);
  EXPECT_NEAR(elapsed([&] { EXPECT_EQ(aclrtRecordEvent(new_event(), stream_), 0); }), call, 1e-9);
  EXPECT_EQ(std::string(ascendSimAssumptions()).find("multiplied"), std::string::npos);
}

TEST_F(RtClock, KernelsTakeTheLongerOfComputeAndMemory) {
  start({{"COMPUTE", "0"}});
  const auto micros = [&](Kernel kernel) {
    const double begin = stat("micros");
    EXPECT_EQ(ascend_sim::launch(stream_, {std::move(kernel)}), 0);
    EXPECT_EQ(aclrtSynchronizeStream(stream_), 0);
    return stat("micros") - begin;
  };
  ASSERT_EQ(ascend_sim::launch(stream_, {streaming(0)}), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_NEAR(micros(streaming(0)), 5, 1e-6) << "its start";
  EXPECT_NEAR(micros(streaming(1.6 * 1099511627776.0 * 0.75)), 1e6 + 5, 1);
  Kernel dense = streaming(8);
  dense.work.operations = 294.9e12 * 0.7;
  EXPECT_NEAR(micros(dense), 1e6 + 5, 1);
  dense.unit = Unit::CubeInt8;
  EXPECT_NEAR(micros(dense), 1e6 * 294.9 / 626 + 5, 1);
  EXPECT_NEAR(micros(streaming(1.6 * 1099511627776.0 * 0.6, Unit::Vector)), 1e6 + 2, 1);
}

// The published reading takes means of a card's profile for the least of small kernels, by name and for nothing else,
// and prints each with its source.
TEST_F(RtClock, PublishedMeansAreTheLeastOfTheirKernels) {
  const auto micros = [&](const char* name, double bytes, Unit unit) {
    Kernel kernel = streaming(bytes, unit);
    kernel.name = name;
    // Of two launches, the second takes the time of a kernel and of a gap longer.
    const auto launched = [&](int times) {
      return elapsed([&] {
        for (int i = 0; i < times; ++i) EXPECT_EQ(ascend_sim::launch(stream_, {kernel}), 0);
        EXPECT_EQ(aclrtSynchronizeStream(stream_), 0);
      });
    };
    return launched(3) - launched(2) - 1.75;
  };
  const double second = 1.6 * 1099511627776.0 * 0.6;
  for (const bool published : {false, true}) {
    start({{"COMPUTE", "0"}, {"RATES", published ? "published" : "model"}});
    ASSERT_EQ(ascend_sim::launch(stream_, {streaming(0)}), 0);
    ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
    EXPECT_NEAR(micros("aclnnAddRmsNorm", 0, Unit::Vector), published ? 6.1 : 2, 1e-6);
    EXPECT_NEAR(micros("aclnnAddRmsNorm", second, Unit::Vector), 1e6 + 2, 1) << "never less than by the model";
    EXPECT_NEAR(micros("aclnnMul/contiguous", 0, Unit::Vector), published ? 2.6 : 2, 1e-6);
    EXPECT_NEAR(micros("aclnnMul", 0, Unit::Vector), 2, 1e-6) << "nothing was published of it";
    EXPECT_NEAR(micros("aclnnMatmul", 0, Unit::Cube), 5, 1e-6) << "its time follows from its sizes";
    const std::string text = ascendSimAssumptions();
    EXPECT_EQ(text.find("aclnnArgMax: at least 88 us (measured by others") != std::string::npos, published) << text;
    EXPECT_NE(text.find("host: phase 1 of an operator: 60 us"), std::string::npos) << text;
    // Every constant says what is known of it.
    for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
      const std::string line = text.substr(at, end - at);
      const bool number = line.find(" us (") != std::string::npos || line.find("/s (") != std::string::npos;
      EXPECT_TRUE(!number || line.find("assumed") != std::string::npos ||
                  line.find("documented") != std::string::npos || line.find("measured by others") != std::string::npos)
          << line;
    }
    aclFinalize();
    clear_environment();
  }
}

TEST_F(RtClock, TheHostRunsAheadUntilItSynchronises) {
  start({{"COMPUTE", "0"}});
  const double launches = elapsed([&] {
    for (int i = 0; i < 10; ++i) ASSERT_EQ(ascend_sim::launch(stream_, {streaming(1e9)}), 0);
  });
  EXPECT_EQ(launches, 0) << "operators charge the host for launches, not the runtime";
  const double waited = elapsed([&] { ASSERT_EQ(aclrtSynchronizeStream(stream_), 0); });
  EXPECT_GT(waited, 10 * 1e9 / 1.32e12 * 1e6);
  // The stream is long done when the host comes back late, and the kernel starts with the host.
  ascend_sim::spend_host(1e6);
  const double late = elapsed([&] {
    ASSERT_EQ(ascend_sim::launch(stream_, {streaming(0)}), 0);
    ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  });
  EXPECT_NEAR(late, 5 + 10, 2.1);
}

TEST_F(RtClock, GapsAreSmallerInAGraph) {
  start({{"COMPUTE", "0"}});
  constexpr int kKernels = 100;
  const auto body = [&] {
    for (int i = 0; i < kKernels; ++i) ASSERT_EQ(ascend_sim::launch(stream_, {streaming(0)}), 0);
  };
  const aclmdlRI graph = capture(body);
  const double eager = elapsed([&] {
    body();
    ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  });
  const double replayed = elapsed([&] {
    ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
    ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  });
  EXPECT_NEAR(eager, kKernels * (5 + 1.75) + 10, 2);
  EXPECT_NEAR(replayed, 40 + 0.02 * kKernels + kKernels * (5 + 1) + 10, 2);
}

TEST_F(RtClock, StreamsOverlapAndEventsCarryTime) {
  start({{"COMPUTE", "0"}});
  const double one = 1e9 / (1.6 * 1099511627776.0 * 0.75) * 1e6 + 5;
  const double both = elapsed([&] {
    ASSERT_EQ(ascend_sim::launch(stream_, {streaming(1e9)}), 0);
    ASSERT_EQ(ascend_sim::launch(stream2_, {streaming(1e9)}), 0);
    ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
    ASSERT_EQ(aclrtSynchronizeStream(stream2_), 0);
  });
  EXPECT_NEAR(both, one + 20, 1) << "at the same time, two returns";
  const aclrtEvent event = new_event();
  const double ordered = elapsed([&] {
    ASSERT_EQ(ascend_sim::launch(stream_, {streaming(1e9)}), 0);
    ASSERT_EQ(aclrtRecordEvent(event, stream_), 0);
    ASSERT_EQ(aclrtStreamWaitEvent(stream2_, event), 0);
    ASSERT_EQ(ascend_sim::launch(stream2_, {streaming(1e9)}), 0);
    ASSERT_EQ(aclrtSynchronizeStream(stream2_), 0);
  });
  EXPECT_NEAR(ordered, 2 * one + 3 + 10, 4);
}

TEST_F(RtClock, TheSameStepTakesTheSameTimeUnderJitter) {
  double times[2];
  for (int run = 0; run < 2; ++run) {
    start({{"JITTER", std::to_string(run)}});
    const aclrtEvent event = new_event();
    times[run] = elapsed([&] {
      for (int i = 0; i < 50; ++i) {
        ASSERT_EQ(launch_writer(stream_, 0, i), 0);
        ASSERT_EQ(aclrtRecordEvent(event, stream_), 0);
        ASSERT_EQ(aclrtStreamWaitEvent(stream2_, event), 0);
        ASSERT_EQ(launch_mover(stream2_, 0, 1), 0);
      }
      ASSERT_EQ(aclrtSynchronizeStream(stream2_), 0);
    });
    ASSERT_EQ(aclFinalize(), 0);
  }
  EXPECT_EQ(times[0], times[1]);
}

TEST_F(RtClock, ThreadsHaveClocksOfTheirOwn) {
  start();
  ascend_sim::spend_host(1000);
  const double here = ascendSimHostMicros();
  double elsewhere = -1, moved = -1;
  std::thread([&] {
    elsewhere = ascendSimHostMicros();
    ascendSimHostAdvanceTo(here);
    ascendSimHostAdvanceTo(here / 2);
    moved = ascendSimHostMicros();
  }).join();
  EXPECT_EQ(elsewhere, 0);
  EXPECT_EQ(moved, here) << "never back";
}

TEST_F(RtClock, LearningOfTheEndTakesUntilTheEnd) {
  start({{"COMPUTE", "0"}});
  const aclrtEvent event = new_event();
  const double polled = elapsed([&] {
    ASSERT_EQ(ascend_sim::launch(stream_, {streaming(1.3e12)}), 0);
    ASSERT_EQ(aclrtRecordEvent(event, stream_), 0);
    aclrtEventRecordedStatus state = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    ASSERT_TRUE(eventually([&] {
      EXPECT_EQ(aclrtQueryEventStatus(event, &state), 0);
      return state == ACL_EVENT_RECORDED_STATUS_COMPLETE;
    }));
  });
  EXPECT_GT(polled, 0.9e6);
  const double here = ascendSimHostMicros();
  aclrtStreamStatus stream_state = ACL_STREAM_STATUS_NOT_READY;
  ASSERT_EQ(ascend_sim::launch(stream_, {streaming(1.3e12)}), 0);
  ASSERT_TRUE(eventually([&] {
    EXPECT_EQ(aclrtStreamQuery(stream_, &stream_state), 0);
    return stream_state == ACL_STREAM_STATUS_COMPLETE;
  }));
  EXPECT_GT(ascendSimHostMicros() - here, 0.9e6);
}

TEST_F(RtClock, StatsCountKernels) {
  start();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(launch_writer(stream_, 0, i), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_NE(stats().find("\"writer\": {\"count\": 3, \"micros\": "), std::string::npos) << stats();
  EXPECT_EQ(stat("streams"), 3);
  EXPECT_NE(std::string(ascendSimAssumptions()).find("assumed"), std::string::npos);
}

}  // namespace

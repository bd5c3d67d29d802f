// Starts of a program that the test plays.
#include "measurement/startup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "base/json.h"
#include "support/folder.h"

namespace reprise::measurement::startup_test {
namespace {

using testing_support::Folder;
using testing_support::holds;

struct Played {
  Folder folder;
  std::vector<std::string> caches;  // of each start
  std::string output =
      Json{{"timing", {{"load_s", 1.0}, {"compile_s", 2.0}, {"capture_s", 3.0}, {"ttft_s", 4.0}}}}.dump();
  int exit_code = 0;

  StartupPlan plan() {
    folder.write("model", "weights");
    StartupPlan p;
    p.model = folder / "model";
    p.caches = folder / "caches";
    p.command = [](const std::string& cache) { return std::vector<std::string>{"start", cache}; };
    p.repeat = 3;
    p.run = [this](const auto& command, const auto& environment, const auto&) -> Result<ProcessResult> {
      EXPECT_EQ(environment.size(), 1u);
      EXPECT_EQ(environment[0], (std::pair<std::string, std::string>("REPRISE_CACHE", command[1])));
      EXPECT_TRUE(std::filesystem::is_directory(command[1]));
      // A cold start finds nothing, a warm one what the cold one left.
      EXPECT_EQ(std::filesystem::exists(command[1] + "/plans"), !caches.empty() && caches.back() == command[1]);
      folder.write(std::filesystem::relative(command[1], folder.path()).string() + "/plans", "p");
      caches.push_back(command[1]);
      return ProcessResult{exit_code, output};
    };
    return p;
  }
};

TEST(Startup, WarmStartsFindTheCachesOfColdOnes) {
  Played played;
  const auto measured = measure_startup(played.plan());
  ASSERT_TRUE(measured.is_ok()) << measured.status().message();
  EXPECT_EQ(measured->cold.size(), 3u);
  EXPECT_EQ(measured->warm.size(), 3u);
  EXPECT_EQ(played.caches.size(), 7u) << "the first start is not counted";
  EXPECT_EQ(std::set<std::string>(played.caches.begin(), played.caches.end()).size(), 4u);
  EXPECT_EQ(measured->warm[0].load_s, 1);
  EXPECT_EQ(measured->cold[2].ttft_s, 4);
  EXPECT_GT(measured->cold[0].total_s, 0);
  EXPECT_GT(measured->warm[0].weights_resident, 0) << "it was written a moment ago";
  EXPECT_TRUE(std::filesystem::is_empty(played.folder / "caches"));
}

TEST(Startup, WithEvictedWeightsEveryStartCounts) {
  Played played;
  StartupPlan plan = played.plan();
  plan.evict = true;
  const auto measured = measure_startup(plan);
  ASSERT_TRUE(measured.is_ok());
  EXPECT_EQ(measured->cold.size(), 4u);
  EXPECT_EQ(played.caches.size(), 8u);
}

TEST(Startup, AStartThatFailsOrSaysNothingIsAnError) {
  Played played;
  played.exit_code = 3;
  played.output = "error: no memory\nmore\n";
  EXPECT_EQ(measure_startup(played.plan()).status().message(), "generate ended with 3: error: no memory");
  played.exit_code = 0;
  EXPECT_TRUE(holds(measure_startup(played.plan()).status().message(), "output of generate"));
  played.output = "{}";
  EXPECT_EQ(measure_startup(played.plan()).status().message(), "generate said nothing of times: {}");
  EXPECT_TRUE(std::filesystem::is_empty(played.folder / "caches"));
  StartupPlan nowhere = played.plan();
  nowhere.caches = "/proc/none";
  EXPECT_TRUE(holds(measure_startup(nowhere).status().message(), "set REPRISE_CACHE")) << "nothing can be made there";
}

TEST(Startup, EachFigureHasItsOwnMedian) {
  const Start m = median_of({{5, 1, 0, 0, 0, 0.5}, {1, 3, 0, 0, 0, 1}, {3, 2, 0, 0, 9, 0}});
  EXPECT_EQ(m.total_s, 3);
  EXPECT_EQ(m.load_s, 2);
  EXPECT_EQ(m.ttft_s, 0);
  EXPECT_EQ(m.weights_resident, 0.5);
  EXPECT_EQ(median_of({}).total_s, 0);
}

}  // namespace
}  // namespace reprise::measurement::startup_test

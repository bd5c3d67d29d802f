// Shares of processors on machines that are folders here, written as Linux shows them: lists of a node's processors
// (Documentation/admin-guide/cputopology.rst of the kernel, and its sysfs node files).
#include "ranks/processors.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>
#include <thread>

namespace reprise::ranks::processors_test {
namespace {

using List = std::vector<int>;

// Two sockets of four cores with two threads each: 0-3 and 8-11, 4-7 and 12-15.
class ProcessorsTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(testing::TempDir()) / ("processors_" + std::to_string(::getpid()) +
                                                         testing::UnitTest::GetInstance()->current_test_info()->name());
    machine({{0, "0-3,8-11"}, {1, "4-7,12-15"}});
    for (int cpu = 0; cpu < 16; ++cpu)
      write(fmt::format("cpu/cpu{}/topology/thread_siblings_list", cpu), fmt::format("{},{}", cpu % 8, cpu % 8 + 8));
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text << "\n";
  }
  void machine(const std::map<int, std::string>& nodes) const {
    std::string online;
    for (const auto& [node, list] : nodes) {
      online += fmt::format("{}{}", online.empty() ? "" : ",", node);
      write(fmt::format("node/node{}/cpulist", node), list);
    }
    write("node/online", online);
  }
  Processors processors(int count = 16) const {
    List all(static_cast<size_t>(count));
    std::iota(all.begin(), all.end(), 0);
    return {all, root_};
  }

  std::filesystem::path root_;
};

TEST_F(ProcessorsTest, RanksHaveWholeNodesAndCores) {
  const Processors p = processors();
  EXPECT_EQ(p.count(), 16);
  EXPECT_EQ(p.share(0, 2), (List{0, 8, 1, 9, 2, 10, 3, 11}));
  EXPECT_EQ(p.share(1, 2), (List{4, 12, 5, 13, 6, 14, 7, 15}));
  EXPECT_EQ(p.share(1, 4), (List{2, 10, 3, 11}));
  EXPECT_EQ(p.share(2, 4), (List{4, 12, 5, 13}));
  EXPECT_EQ(p.share(0, 1).size(), 16u);
  EXPECT_EQ(p.share(0, 17), List());
}

TEST_F(ProcessorsTest, ThreadsTakeCoresBeforeTheirSiblings) {
  EXPECT_EQ(processors().nodes(), 2);
  EXPECT_EQ(processors().cores(), 8);
  EXPECT_EQ(processors().in_thread_order(), (List{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}));
  // Siblings beside each other, as many virtual machines have them.
  for (int cpu = 0; cpu < 16; ++cpu)
    write(fmt::format("cpu/cpu{}/topology/thread_siblings_list", cpu),
          fmt::format("{}-{}", cpu / 2 * 2, cpu / 2 * 2 + 1));
  machine({{0, "0-7"}, {1, "8-15"}});
  EXPECT_EQ(processors().cores(), 8);
  EXPECT_EQ(processors().in_thread_order(), (List{0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15}));
  const Processors some({1, 2, 3, 8, 12, 13}, root_);  // of one core the second processor alone
  EXPECT_EQ(some.cores(), 4);
  EXPECT_EQ(some.in_thread_order(), (List{1, 2, 8, 12, 3, 13}));
  std::filesystem::remove_all(root_);
  EXPECT_EQ(processors(4).cores(), 4) << "nothing is known";
  EXPECT_EQ(processors(4).in_thread_order(), (List{0, 1, 2, 3}));
}

// Where numbers do not fit, shares are equal all the same, and every processor is somebody's.
TEST_F(ProcessorsTest, OddNumbersShareANode) {
  for (const int of : {3, 5, 16}) {
    List all;
    for (int i = 0; i < of; ++i) {
      const List mine = processors().share(i, of);
      EXPECT_GE(static_cast<int>(mine.size()), 16 / of);
      all.insert(all.end(), mine.begin(), mine.end());
    }
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all.size(), 16u) << of;
    EXPECT_EQ(std::unique(all.begin(), all.end()), all.end()) << of;
  }
}

TEST_F(ProcessorsTest, NodesWithoutProcessorsOfThisProcessDoNotCount) {
  EXPECT_EQ(processors(4).share(1, 2), (List{2, 3}));     // taskset -c 0-3: one node, a thread of each core
  machine({{0, ""}, {1, "0-3,8-11"}, {2, "4-7,12-15"}});  // a node of memory alone
  EXPECT_EQ(processors().share(1, 2), (List{4, 12, 5, 13, 6, 14, 7, 15}));
  machine({{0, "0-5"}, {1, "6-7"}});  // those of no node are the last one's
  EXPECT_EQ(processors().share(0, 2), (List{0, 1, 2, 3, 4, 5, 8, 9})) << "6 and 10 are no fair shares";
  EXPECT_EQ(processors().share(1, 2).size(), 8u);
  machine({{0, "0-4"}, {1, "5-8"}});
  EXPECT_EQ(processors(9).share(0, 2).size(), 5u) << "near enough to keep to the nodes";
  std::filesystem::remove_all(root_);
  EXPECT_EQ(processors(4).share(1, 2), (List{2, 3})) << "no such files";
}

// taskset -c 0,4-7 on the machine of two sockets: one of the first and four of the second.
TEST_F(ProcessorsTest, LittleOfANodeIsNoShare) {
  const Processors few({0, 4, 5, 6, 7, 12}, root_);
  EXPECT_EQ(few.share(0, 2), (List{0, 4, 12}));
  EXPECT_EQ(few.share(1, 2), (List{5, 6, 7}));
}

// A launcher has bound this rank to some; the others' are asked for all the same, and one that is offline is not.
TEST_F(ProcessorsTest, AllOfTheMachineMayBeAskedFor) {
  write("cpu/online", "0-14");
  const auto asked = [&](Processors p, const char* bind, const char* nodes) { return p.ask(bind, nodes, 2).message(); };
  const Processors bound({0, 1, 2, 3}, root_);
  EXPECT_NE(asked(bound, "0-3|4-7", "").find("processor 4 is not this process's"), std::string::npos);
  EXPECT_EQ(asked(Processors::online(root_), "0-3|4-7", ""), "");
  EXPECT_EQ(asked(Processors::online(root_), "", "0,1"), "");
  EXPECT_NE(asked(Processors::online(root_), "0-3|15", "").find("processor 15 is not"), std::string::npos);
}

TEST_F(ProcessorsTest, WhatIsAskedForIsTaken) {
  Processors p = processors();
  ASSERT_TRUE(p.ask("0-2|4,6", "", 2).is_ok());
  EXPECT_EQ(p.share(0, 2), (List{0, 1, 2}));
  EXPECT_EQ(p.share(1, 2), (List{4, 6}));
  Processors by_node = processors();
  ASSERT_TRUE(by_node.ask("", "1,0,1", 3).is_ok());
  EXPECT_EQ(by_node.share(0, 3), (List{4, 12, 5, 13}));
  EXPECT_EQ(by_node.share(1, 3), (List{0, 8, 1, 9, 2, 10, 3, 11}));
  EXPECT_EQ(by_node.share(2, 3), (List{6, 14, 7, 15}));
  Processors as_usual = processors();
  EXPECT_TRUE(as_usual.ask("all", "", 2).is_ok());
  EXPECT_FALSE(as_usual.asked());
  EXPECT_EQ(p.share(2, 3), List()) << "asked for two";
  EXPECT_TRUE(as_usual.ask("nobind", "", 2).is_ok());
  EXPECT_TRUE(as_usual.unbound());
  EXPECT_FALSE(as_usual.take(0, 2));
}

TEST_F(ProcessorsTest, WhatIsNotThereIsNamed) {
  const auto error_of = [&](const char* bind, const char* nodes) { return processors().ask(bind, nodes, 2).message(); };
  EXPECT_EQ(error_of("0-3", ""),
            "`cpu_bind` 0-3: processors of 1 rank, and this host has 2; allowed: a list for each, as 0-31|32-63");
  EXPECT_EQ(error_of("0-3|x", ""), "`cpu_bind` 0-3|x: \"x\" is no list of processors, as 0-31 or 0,2,4-7");
  EXPECT_EQ(error_of("0-3|3-2", ""), "`cpu_bind` 0-3|3-2: \"3-2\" is no list of processors, as 0-31 or 0,2,4-7");
  EXPECT_NE(error_of("0-3|16", "").find("processor 16 is not this process's; allowed: 0, 1, 2"), std::string::npos);
  EXPECT_NE(error_of("", "0,2").find("node 2 has no 1 processors for its ranks; nodes of this process: 0, 1"),
            std::string::npos);
  EXPECT_EQ(error_of("", "0,x,1"), "`numa_node` 0,x,1: \"x\" is no number of a memory node; allowed: as 0,1");
  EXPECT_EQ(error_of("0-3|3,4", ""), "`cpu_bind` 0-3|3,4: processor 3 is in two lists; allowed: in one");
  EXPECT_EQ(error_of("0,0|1", ""), "") << "twice in one list is no contradiction";
  EXPECT_EQ(
      processors().ask("0-3", "", 2, "VLLM_CPU_OMP_THREADS_BIND").message().find("VLLM_CPU_OMP_THREADS_BIND 0-3: "),
      0u);
  EXPECT_NE(error_of("", "0").find("allowed: a memory node for each rank of this host, 2 numbers"), std::string::npos);
  EXPECT_NE(error_of("0|1", "0,1").find("leave one of them out"), std::string::npos);
}

// A thread of its own, which keeps to its share.
TEST(ProcessorsOfThisMachine, AShareIsKeptTo) {
  std::thread([] {
    const Processors all = Processors::allowed();
    if (all.count() < 2) GTEST_SKIP() << "one processor";
    ASSERT_TRUE(all.take(1, 2));
    List mine = all.share(1, 2), now;
    cpu_set_t set;
    ASSERT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set)) now.push_back(i);
    std::sort(mine.begin(), mine.end());
    EXPECT_EQ(now, mine);
    EXPECT_FALSE(all.take(0, 2, true)) << "what a launcher binds stays";
  }).join();
}

}  // namespace
}  // namespace reprise::ranks::processors_test

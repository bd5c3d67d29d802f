// Collectives of several ranks, each a thread with a device of its own, or a process: what each has afterwards is
// worked out here from the vendor's description of the call (hicann/hccl, docs/zh/api_ref/comm_op_interface).
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <cstring>
#include <map>
#include <memory>

#include "ascend/runtime/hccl.h"
#include "sim/rt_support.h"

using namespace sim_test;

namespace {

constexpr auto kI32 = HCCL_DATA_TYPE_INT32;

// What one rank holds while its body runs.
struct Rank {
  int rank = 0, ranks = 1;
  aclrtStream stream = nullptr;
  HcclComm comm = nullptr;

  int32_t* memory(size_t elements) const {
    void* at = nullptr;
    EXPECT_EQ(aclrtMalloc(&at, elements * 4, ACL_MEM_MALLOC_HUGE_FIRST), 0) << last_text();
    return static_cast<int32_t*>(at);
  }
  // Number i of rank r is 1000 r + i.
  int32_t* numbers(size_t elements) const {
    std::vector<int32_t> values(elements);
    for (size_t i = 0; i < elements; ++i) values[i] = 1000 * rank + static_cast<int32_t>(i);
    int32_t* at = memory(elements);
    EXPECT_EQ(aclrtMemcpy(at, elements * 4, values.data(), elements * 4, ACL_MEMCPY_HOST_TO_DEVICE), 0);
    return at;
  }
  std::vector<int32_t> read(const int32_t* at, size_t elements) const {
    std::vector<int32_t> out(elements);
    EXPECT_EQ(aclrtSynchronizeStream(stream), 0) << last_text();
    EXPECT_EQ(aclrtMemcpy(out.data(), elements * 4, at, elements * 4, ACL_MEMCPY_DEVICE_TO_HOST), 0) << last_text();
    return out;
  }
};

class RtHcclRanks : public ::testing::Test {
 protected:
  void SetUp() override { clear_environment(); }
  void TearDown() override {
    aclFinalize();
    clear_environment();
    unsetenv("HCCL_CONNECT_TIMEOUT");
    unsetenv("HCCL_EXEC_TIMEOUT");
  }
  static void start(const Env& env = {}) {
    setenv("ASCEND_SIM_HBM_BYTES", "1073741824", 1);
    for (const auto& [name, value] : env) setenv(("ASCEND_SIM_" + name).c_str(), value.c_str(), 1);
    ASSERT_EQ(aclInit(nullptr), 0) << last_text();
  }
  static void join(Rank& me, const HcclRootInfo& root) {
    ASSERT_EQ(aclrtSetDevice(me.rank), 0) << last_text();
    ASSERT_EQ(aclrtCreateStreamWithConfig(&me.stream, 0, ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC), 0);
    ASSERT_EQ(HcclCommInitRootInfo(static_cast<uint32_t>(me.ranks), &root, static_cast<uint32_t>(me.rank), &me.comm),
              HCCL_SUCCESS)
        << last_text();
  }
  // Every rank's body in a thread of its own.
  static void run(int ranks, const std::function<void(Rank&)>& body) {
    ASSERT_EQ(aclrtSetDevice(0), 0) << last_text();
    HcclRootInfo root;
    ASSERT_EQ(HcclGetRootInfo(&root), HCCL_SUCCESS) << last_text();
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        Rank me{r, ranks};
        join(me, root);
        if (!HasFatalFailure()) body(me);
      });
    for (std::thread& t : threads) t.join();
  }
};

TEST_F(RtHcclRanks, EachCallMovesWhatItsDescriptionSays) {
  start({{"RACES", "1"}});
  run(3, [](Rank& me) {
    const size_t n = 5;
    uint32_t size = 0, rank = 9;
    EXPECT_EQ(HcclGetRankSize(me.comm, &size), HCCL_SUCCESS);
    EXPECT_EQ(HcclGetRankId(me.comm, &rank), HCCL_SUCCESS);
    EXPECT_EQ(size, 3u);
    EXPECT_EQ(rank, static_cast<uint32_t>(me.rank));
    int32_t *mine = me.numbers(3 * n), *gathered = me.memory(3 * n), *sum = me.memory(n), *most = me.memory(n),
            *scattered = me.memory(n), *turned = me.memory(3 * n), *sent = me.numbers(n);
    EXPECT_EQ(HcclAllGather(mine, gathered, n, kI32, me.comm, me.stream), HCCL_SUCCESS) << last_text();
    EXPECT_EQ(HcclAllReduce(mine, sum, n, kI32, HCCL_REDUCE_SUM, me.comm, me.stream), HCCL_SUCCESS);
    EXPECT_EQ(HcclAllReduce(mine, most, n, kI32, HCCL_REDUCE_MAX, me.comm, me.stream), HCCL_SUCCESS);
    EXPECT_EQ(HcclReduceScatter(mine, scattered, n, kI32, HCCL_REDUCE_SUM, me.comm, me.stream), HCCL_SUCCESS);
    EXPECT_EQ(HcclBroadcast(sent, n, kI32, 1, me.comm, me.stream), HCCL_SUCCESS);
    EXPECT_EQ(HcclAlltoAll(mine, n, kI32, turned, n, kI32, me.comm, me.stream), HCCL_SUCCESS);
    const auto g = me.read(gathered, 3 * n), s = me.read(sum, n), m = me.read(most, n), p = me.read(scattered, n),
               b = me.read(sent, n), t = me.read(turned, 3 * n);
    for (size_t i = 0; i < n; ++i) {
      const auto k = static_cast<int32_t>(i), at = static_cast<int32_t>(me.rank * n + i);
      for (int r = 0; r < 3; ++r) {
        EXPECT_EQ(g[r * n + i], 1000 * r + k);
        EXPECT_EQ(t[r * n + i], 1000 * r + at);
      }
      EXPECT_EQ(s[i], 3000 + 3 * k);
      EXPECT_EQ(m[i], 2000 + k);
      EXPECT_EQ(p[i], 3000 + 3 * at);
      EXPECT_EQ(b[i], 1000 + k);
    }
    // Rank r sends r + 1 + s numbers to rank s.
    std::vector<uint64_t> to(3), begin(3), from(3), place(3);
    for (int r = 0; r < 3; ++r) {
      to[r] = static_cast<uint64_t>(me.rank + 1 + r);
      from[r] = static_cast<uint64_t>(r + 1 + me.rank);
      begin[r] = r == 0 ? 0 : begin[r - 1] + to[r - 1];
      place[r] = r == 0 ? 0 : place[r - 1] + from[r - 1];
    }
    EXPECT_EQ(
        HcclAlltoAllV(mine, to.data(), begin.data(), kI32, turned, from.data(), place.data(), kI32, me.comm, me.stream),
        HCCL_SUCCESS)
        << last_text();
    const auto v = me.read(turned, 3 * n);
    for (int r = 0; r < 3; ++r) {
      int32_t first = 0;  // where rank r's numbers for this one begin
      for (int s2 = 0; s2 < me.rank; ++s2) first += r + 1 + s2;
      for (uint64_t i = 0; i < from[r]; ++i)
        EXPECT_EQ(v[place[r] + i], 1000 * r + first + static_cast<int32_t>(i)) << r << " " << i;
    }
    EXPECT_EQ(HcclCommDestroy(me.comm), HCCL_SUCCESS);
  });
}

// More than goes at once, and sums of 16-bit floats that are exact in fp32.
TEST_F(RtHcclRanks, LargeAndSmallTypes) {
  start();
  run(2, [](Rank& me) {
    const size_t n = 700'001;
    int32_t *mine = me.numbers(n), *all = me.memory(2 * n), *sum = me.memory(n);
    EXPECT_EQ(HcclAllGather(mine, all, n, kI32, me.comm, me.stream), HCCL_SUCCESS);
    EXPECT_EQ(HcclAllReduce(mine, sum, n, kI32, HCCL_REDUCE_SUM, me.comm, me.stream), HCCL_SUCCESS);
    const auto a = me.read(all, 2 * n), s = me.read(sum, n);
    size_t wrong = 0;
    for (size_t i = 0; i < n; ++i) {
      const auto k = static_cast<int32_t>(i);
      wrong += a[i] != k || a[n + i] != 1000 + k || s[i] != 1000 + 2 * k;
    }
    EXPECT_EQ(wrong, 0u);
    // 1.5 and 2.5 in bf16 (0x3FC0, 0x4020) and fp16 (0x3E00, 0x4100), two to a word; the sum is 4.
    for (const auto& [type, one, two, four] :
         {std::tuple(HCCL_DATA_TYPE_BFP16, 0x3FC0'3FC0, 0x4020'4020, 0x4080'4080),
          std::tuple(HCCL_DATA_TYPE_FP16, 0x3E00'3E00, 0x4100'4100, 0x4400'4400)}) {
      const int32_t word = me.rank == 0 ? one : two;
      int32_t* at = me.memory(1);
      EXPECT_EQ(aclrtMemcpy(at, 4, &word, 4, ACL_MEMCPY_HOST_TO_DEVICE), 0);
      EXPECT_EQ(HcclAllReduce(at, at, 2, type, HCCL_REDUCE_SUM, me.comm, me.stream), HCCL_SUCCESS) << "in place";
      EXPECT_EQ(me.read(at, 1)[0], four);
    }
  });
}

TEST_F(RtHcclRanks, CapturesReplayThemAndClocksMeet) {
  start({{"RACES", "1"}});
  std::barrier together(2);
  run(2, [&](Rank& me) {
    int32_t *mine = me.numbers(4), *all = me.memory(8);
    ASSERT_EQ(aclmdlRICaptureBegin(me.stream, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL), 0) << last_text();
    EXPECT_EQ(HcclAllGather(mine, all, 4, kI32, me.comm, me.stream), HCCL_SUCCESS) << last_text();
    aclmdlRI graph = nullptr;
    ASSERT_EQ(aclmdlRICaptureEnd(me.stream, &graph), 0) << last_text();
    // One rank is late by its own clock; the other waits for it.
    if (me.rank == 1)
      for (int i = 0; i < 100; ++i) EXPECT_EQ(aclrtMemset(all, 32, 0, 32), 0);
    const double late = ascendSimHostMicros();
    for (int i = 0; i < 50; ++i) EXPECT_EQ(aclmdlRIExecuteAsync(graph, me.stream), 0) << last_text();
    EXPECT_EQ(me.read(all, 8), (std::vector<int32_t>{0, 1, 2, 3, 1000, 1001, 1002, 1003}));
    static std::array<double, 2> begin, end;
    begin[me.rank] = late;
    end[me.rank] = ascendSimHostMicros();
    together.arrive_and_wait();
    EXPECT_GT(begin[1], begin[0]);
    for (const double one : end) EXPECT_GT(one, begin[1] + 50 * 10) << "50 collectives of at least 10 us";
    EXPECT_EQ(aclmdlRIDestroy(graph), 0);
  });
}

TEST_F(RtHcclRanks, WhatDiffersIsTold) {
  start();
  run(2, [](Rank& me) {
    int32_t *mine = me.numbers(8), *all = me.memory(16);
    EXPECT_EQ(HcclAllGather(mine, all, me.rank == 0 ? 4 : 5, kI32, me.comm, me.stream), HCCL_SUCCESS);
    EXPECT_EQ(aclrtSynchronizeStream(me.stream), 507015);
    const std::string text = last_text();
    EXPECT_NE(text.find("rule collective-same"), std::string::npos) << text;
    EXPECT_NE(text.find("HcclAllGather of 5 elements of type 2"), std::string::npos) << text;
  });
}

// A kernel that both ranks run together: each gives its number.
ascend_sim::Kernel together(const Rank& me, uint64_t count, std::vector<std::vector<uint8_t>>* seen) {
  char name[128] = {};
  EXPECT_EQ(HcclGetCommName(me.comm, name), HCCL_SUCCESS);
  auto exchange = std::make_shared<ascend_sim::Exchange>();
  exchange->group = name;
  exchange->count = count;
  exchange->give = [rank = me.rank] { return std::vector<uint8_t>{static_cast<uint8_t>(rank + 1)}; };
  exchange->take = [seen](const std::vector<std::vector<uint8_t>>& all) {
    *seen = all;
    return 280e3;  // 10 us at 28 GB/s
  };
  ascend_sim::Kernel kernel;
  kernel.name = "aclnnMoeDistributeDispatchV2";
  kernel.exchange = std::move(exchange);
  return kernel;
}

TEST_F(RtHcclRanks, KernelsMeetAndTakeTime) {
  start();
  std::array<double, 2> spent{};
  run(2, [&](Rank& me) {
    std::vector<std::vector<uint8_t>> seen;
    EXPECT_EQ(ascend_sim::launch(me.stream, {together(me, 4, &seen)}), 0) << last_text();
    EXPECT_EQ(aclrtSynchronizeStream(me.stream), 0) << last_text();
    EXPECT_EQ(seen, (std::vector<std::vector<uint8_t>>{{1}, {2}}));
    const double before = ascendSimHostMicros();
    EXPECT_EQ(ascend_sim::launch(me.stream, {together(me, 4, &seen), together(me, 4, &seen)}), 0) << last_text();
    EXPECT_EQ(aclrtSynchronizeStream(me.stream), 0) << last_text();
    spent[static_cast<size_t>(me.rank)] = ascendSimHostMicros() - before;
    EXPECT_EQ(ascend_sim::launch(me.stream, {together(me, me.rank == 0 ? 4 : 5, &seen)}), 0) << last_text();
    EXPECT_EQ(aclrtSynchronizeStream(me.stream), 507015);
    const std::string text = last_text();
    EXPECT_NE(text.find("rule collective-same"), std::string::npos) << text;
    EXPECT_NE(text.find("MoeDistributeDispatchV2 of 5 elements"), std::string::npos) << text;
  });
  for (const double micros : spent) EXPECT_GE(micros, 40) << "twice 10 us and the bytes' 10";
}

TEST_F(RtHcclRanks, CommunicatorsForExpertsRunNothingElse) {
  start();
  run(2, [](Rank& me) {
    std::vector<std::vector<uint8_t>> seen;
    int32_t *mine = me.numbers(4), *all = me.memory(8);
    EXPECT_EQ(ascend_sim::launch(me.stream, {together(me, 4, &seen)}), 0) << last_text();
    EXPECT_EQ(HcclAllGather(mine, all, 4, kI32, me.comm, me.stream), HCCL_E_PARA);
    EXPECT_NE(last_text().find("rule dispatch-alone"), std::string::npos) << last_text();
    EXPECT_EQ(aclrtSynchronizeStream(me.stream), 0) << last_text();
  });
  aclFinalize();
  start();
  run(2, [](Rank& me) {
    std::vector<std::vector<uint8_t>> seen;
    int32_t *mine = me.numbers(4), *all = me.memory(8);
    EXPECT_EQ(HcclAllGather(mine, all, 4, kI32, me.comm, me.stream), HCCL_SUCCESS);
    EXPECT_NE(ascend_sim::launch(me.stream, {together(me, 4, &seen)}), 0);
    EXPECT_NE(last_text().find("rule dispatch-alone"), std::string::npos) << last_text();
    EXPECT_EQ(aclrtSynchronizeStream(me.stream), 0) << last_text();
  });
}

TEST_F(RtHcclRanks, WhoDoesNotComeIsNotWaitedForForEver) {
  setenv("HCCL_CONNECT_TIMEOUT", "0.2", 1);
  setenv("HCCL_EXEC_TIMEOUT", "0.2", 1);
  start();
  ASSERT_EQ(aclrtSetDevice(0), 0);
  HcclRootInfo root;
  HcclComm comm = nullptr;
  ASSERT_EQ(HcclGetRootInfo(&root), HCCL_SUCCESS);
  EXPECT_EQ(HcclCommInitRootInfo(2, &root, 0, &comm), HCCL_E_TIMEOUT);
  EXPECT_NE(last_text().find("not all 2 ranks came within HCCL_CONNECT_TIMEOUT"), std::string::npos) << last_text();
  EXPECT_EQ(HcclCommInitRootInfo(2, &root, 1, &comm), HCCL_E_PARA) << "the root has gone";
  setenv("HCCL_CONNECT_TIMEOUT", "60", 1);
  run(2, [](Rank& me) {
    if (me.rank == 1) return;
    int32_t *mine = me.numbers(1), *all = me.memory(2);
    EXPECT_EQ(HcclAllGather(mine, all, 1, kI32, me.comm, me.stream), HCCL_SUCCESS);
    EXPECT_EQ(aclrtSynchronizeStream(me.stream), 507015);
    EXPECT_NE(last_text().find("did not come within HCCL_EXEC_TIMEOUT"), std::string::npos) << last_text();
    // A stream that waits can be destroyed, and one that left is told.
    unsetenv("HCCL_EXEC_TIMEOUT");
    aclrtStream other = nullptr;
    EXPECT_EQ(aclrtCreateStreamWithConfig(&other, 0, ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC), 0);
    EXPECT_EQ(HcclAllGather(mine, all, 1, kI32, me.comm, other), HCCL_SUCCESS);
    EXPECT_EQ(aclrtDestroyStreamForce(other), 0);
  });
}

// Ranks that are processes: the second finds the first by what the root wrote.
TEST_F(RtHcclRanks, AreProcesses) {
  int tell[2];
  ASSERT_EQ(::pipe(tell), 0);
  const pid_t other = ::fork();
  ASSERT_GE(other, 0);
  const auto body = [](Rank& me, const HcclRootInfo& root) {
    join(me, root);
    const auto all = me.memory(4);
    EXPECT_EQ(HcclAllGather(me.numbers(2), all, 2, kI32, me.comm, me.stream), HCCL_SUCCESS) << last_text();
    return me.read(all, 4) == std::vector<int32_t>{0, 1, 1000, 1001};
  };
  HcclRootInfo root;
  if (other == 0) {
    if (::read(tell[0], &root, sizeof root) != sizeof root) ::_exit(3);
    start();
    Rank me{1, 2};
    ::_exit(body(me, root) ? 0 : 4);
  }
  start();
  ASSERT_EQ(aclrtSetDevice(0), 0);
  ASSERT_EQ(HcclGetRootInfo(&root), HCCL_SUCCESS);
  ASSERT_EQ(::write(tell[1], &root, sizeof root), static_cast<ssize_t>(sizeof root));
  Rank me{0, 2};
  EXPECT_TRUE(body(me, root));
  int status = 0;
  ASSERT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  ::close(tell[0]);
  ::close(tell[1]);
}

}  // namespace

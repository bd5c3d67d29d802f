// What a person is told about functions and operators that are missing, and how many queues a graph takes.
#include <gtest/gtest.h>

#include <algorithm>

#include "backends/ascend/ascend_graph.h"
#include "backends/ascend/read_ahead.h"
#include "backends/ascend/start_checks.h"
#include "support/setting.h"

namespace reprise::ascend::ascend_library_test {
namespace {

TEST(AscendPurposes, EverythingThatMayBeMissingSaysWhatItIsFor) {
  std::vector<std::string> names = Operators().missing();  // nothing was looked up
  EXPECT_GT(names.size(), 30u);
#define REPRISE_TEST_SKIP(name, result, arguments)
#define REPRISE_TEST_NAME(name, result, arguments) \
  if (!std::string_view(#name).starts_with("ascendSim")) names.emplace_back(#name);
  REPRISE_ACL_FUNCTIONS(REPRISE_TEST_SKIP, REPRISE_TEST_NAME)
#undef REPRISE_TEST_SKIP
#undef REPRISE_TEST_NAME
  const std::string unknown = purpose_of("aclnnNoSuchThing");
  for (const std::string& name : names) EXPECT_NE(purpose_of(name), unknown) << name;
}

TEST(AscendCollectives, WhatIsNotThereIsNamedAndNeededByNobody) {
  const std::vector<std::string> none = Collectives().report("8.5.0");
  ASSERT_EQ(none.size(), 1u);
  EXPECT_EQ(none[0],
            "HCCL: not there (libhccl.so, libhcomm.so); several ranks need it; one device needs none of "
            "it");
  Collectives some;
  some.HcclCommDestroy = [](HcclComm) { return 0; };
  const std::vector<std::string> lines = some.report("8.5.0");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].find("HCCL: 8.5.0; "), 0u) << lines[0];
  EXPECT_NE(lines[1].find("HcclAllReduce"), std::string::npos) << lines[1];
  EXPECT_EQ(lines[1].find("HcclCommDestroy"), std::string::npos) << lines[1];
}

// Through the backend's own declarations, where an argument of another kind would show.
TEST(AscendCollectives, OneRankHasWhatItSent) {
  constexpr int32_t kFloat = 4, kSum = 0;
  constexpr uint64_t kCount = 100, kBytes = kCount * sizeof(float);
  const auto opened = Library::open("sim");
  ASSERT_TRUE(opened.is_ok()) << opened.status().message();
  const Library& acl = **opened;
  const Collectives& c = acl.collectives();
  ASSERT_TRUE(c.missing().empty()) << fmt::format("{}", fmt::join(c.missing(), ", "));
  ASSERT_EQ(acl.aclrtSetDevice(0), 0);
  HcclRootInfo root{};
  HcclComm comm = nullptr;
  ASSERT_EQ(c.HcclGetRootInfo(&root), 0);
  ASSERT_EQ(c.HcclCommInitRootInfo(1, &root, 0, &comm), 0) << acl.aclGetRecentErrMsg();
  aclrtStream stream = nullptr;
  ASSERT_EQ(acl.aclrtCreateStreamWithConfig(&stream, 0, ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC), 0);
  void *host = nullptr, *from = nullptr, *to = nullptr;
  ASSERT_EQ(acl.aclrtMallocHost(&host, kBytes), 0);
  for (void** p : {&from, &to}) ASSERT_EQ(acl.aclrtMalloc(p, kBytes, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  auto* values = static_cast<float*>(host);
  for (uint64_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i);
  const auto copy = [&](void* dst, const void* src, int32_t kind) {
    return acl.aclrtMemcpyAsync(dst, kBytes, src, kBytes, kind, stream);
  };
  const uint64_t none = 0;
  ASSERT_EQ(copy(from, host, ACL_MEMCPY_HOST_TO_DEVICE), 0);
  EXPECT_EQ(c.HcclAllReduce(from, to, kCount, kFloat, kSum, comm, stream), 0) << acl.aclGetRecentErrMsg();
  EXPECT_EQ(c.HcclBroadcast(to, kCount, kFloat, 0, comm, stream), 0);
  EXPECT_EQ(c.HcclReduceScatter(to, from, kCount, kFloat, kSum, comm, stream), 0);
  EXPECT_EQ(c.HcclAllGather(from, to, kCount, kFloat, comm, stream), 0);
  EXPECT_EQ(c.HcclAlltoAll(to, kCount, kFloat, from, kCount, kFloat, comm, stream), 0);
  EXPECT_EQ(c.HcclAlltoAllV(from, &kCount, &none, kFloat, to, &kCount, &none, kFloat, comm, stream), 0);
  ASSERT_EQ(acl.aclrtSynchronizeStream(stream), 0) << acl.aclGetRecentErrMsg();
  std::fill(values, values + kCount, -1.f);
  ASSERT_EQ(copy(host, to, ACL_MEMCPY_DEVICE_TO_HOST), 0);
  ASSERT_EQ(acl.aclrtSynchronizeStream(stream), 0);
  for (uint64_t i = 0; i < kCount; ++i) EXPECT_EQ(values[i], static_cast<float>(i));
  EXPECT_STREQ(c.HcclGetErrorString(0), "no error");
  EXPECT_EQ(c.HcclCommDestroy(comm), 0);
  for (void* p : {from, to}) EXPECT_EQ(acl.aclrtFree(p), 0);
  EXPECT_EQ(acl.aclrtFreeHost(host), 0);
  EXPECT_EQ(acl.aclrtDestroyStreamForce(stream), 0);
}

// The folder of an old CANN holds all its libraries; one from beside it would bring back what is absent there.
TEST(AscendLibrary, AnOldCannHasNothingOfAYoungerOne) {
  const auto young = [](const Library& library) {
    std::vector<std::string> found;
    for (const char* name :
         {"aclnnGroupedMatmulSwigluQuantWeightNZ", "aclnnScatterPaKvCache", "aclnnMatmulWeightNz", "aclrtValueWait"})
      if (library.symbol(name)) found.emplace_back(name);
    return found;
  };
  {
    const testing_support::Setting version("ASCEND_SIM_CANN", "8.1");
    const auto old = Library::open("sim");
    ASSERT_TRUE(old.is_ok()) << old.status().message();
    EXPECT_EQ((*old)->version(), "8.1.RC1");
    EXPECT_EQ(young(**old), std::vector<std::string>{});
    EXPECT_NE((*old)->symbol("aclnnGroupedMatmulSwigluQuant"), nullptr);
  }
  const auto now = Library::open("sim");
  ASSERT_TRUE(now.is_ok()) << now.status().message();
  EXPECT_EQ(young(**now).size(), 4u);
}

// Products and their support: aclrtCmoAsync.md of hicann/runtime; bandwidths and cores: docs/ascend-predictions.md.
TEST(AscendReadAhead, ChipsThatHaveItAndThoseThatDoNot) {
  const ReadAhead b3 = read_ahead_of("Ascend910B3", true, 192 << 20), b4 = read_ahead_of("Ascend910B4", true, 0);
  EXPECT_EQ(b3.refusal, "");
  EXPECT_NEAR(b3.bytes_per_us, 1.6 * 1099511.627776 * 0.75, 1e-3);
  EXPECT_NEAR(b3.cached_bytes_per_us / b3.bytes_per_us, 110 * 20 * 1800 / (1.6 * 1099511.627776), 1e-6);
  EXPECT_EQ(b3.cache_bytes, size_t{192} << 20);
  EXPECT_NEAR(b4.bytes_per_us * 2, b3.bytes_per_us, 1e-3);
  EXPECT_EQ(b4.cache_bytes, size_t{96} << 20);
  EXPECT_EQ(read_ahead_of("Ascend910_9391", true, 0).refusal, "");
  EXPECT_EQ(read_ahead_of("Ascend310P3", true, 0).refusal,
            "aclrtCmoAsync is there for Atlas A2, A3 and 350, not for inference cards (Ascend310P3)");
  EXPECT_EQ(read_ahead_of("Ascend910B3", false, 0).refusal, "this CANN has no aclrtCmoAsync");
  EXPECT_EQ(read_ahead_of("Ascend950PR", true, 0).refusal, "the bandwidth of Ascend950PR is not known here");
}

TEST(AscendStart, DriversBeforeTaskUpdatesAreKnownByTheirVersion) {
  for (const char* old : {"24.1.RC2", "23.0.7", "24.1.0.3"}) EXPECT_TRUE(lacks_task_updates(old)) << old;
  for (const char* other : {"25.0.RC1", "25.5.0", "26.0.RC1", "unknown", "", "24", "x.1"})
    EXPECT_FALSE(lacks_task_updates(other)) << other;
}

TEST(AscendQueues, AGraphTakesOneAndAFurtherOneAfterSoManyTasks) {
  EXPECT_EQ(GraphResources::queues_of(1), 1);
  EXPECT_EQ(GraphResources::queues_of(2013), 1);
  EXPECT_EQ(GraphResources::queues_of(2014), 2);
  EXPECT_EQ(GraphResources::queues_of(3 * 2013), 3);
}

}  // namespace
}  // namespace reprise::ascend::ascend_library_test

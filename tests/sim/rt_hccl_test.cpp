// Collectives of one rank: what they move, in which order, what captures do with them, and what is refused.
#include "ascend/runtime/hccl.h"

#include <cstring>

#include "sim/rt_support.h"

using namespace sim_test;

namespace {

class RtHccl : public Runtime {
 protected:
  void communicate() {
    start();
    HcclRootInfo root;
    ASSERT_EQ(HcclGetRootInfo(&root), HCCL_SUCCESS) << last_text();
    ASSERT_EQ(HcclCommInitRootInfo(1, &root, 0, &comm_), HCCL_SUCCESS) << last_text();
  }
  int64_t* slot(int i) { return values_ + i; }

  HcclComm comm_ = nullptr;
};

constexpr auto kI64 = HCCL_DATA_TYPE_INT64;
constexpr auto kSum = HCCL_REDUCE_SUM;

TEST_F(RtHccl, ACommunicatorOfOneRankKnowsItself) {
  communicate();
  uint32_t size = 9, rank = 9;
  EXPECT_EQ(HcclGetRankSize(comm_, &size), HCCL_SUCCESS);
  EXPECT_EQ(HcclGetRankId(comm_, &rank), HCCL_SUCCESS);
  EXPECT_EQ(size, 1u);
  EXPECT_EQ(rank, 0u);
  char name[128] = {};
  EXPECT_EQ(HcclGetCommName(comm_, name), HCCL_SUCCESS);
  EXPECT_NE(std::strlen(name), 0u);
  HcclResult later = HCCL_E_INTERNAL;
  EXPECT_EQ(HcclGetCommAsyncError(comm_, &later), HCCL_SUCCESS);
  EXPECT_EQ(later, HCCL_SUCCESS);
  EXPECT_STREQ(HcclGetErrorString(HCCL_E_PARA), "parameter error");
  EXPECT_EQ(HcclCommDestroy(comm_), HCCL_SUCCESS);
  EXPECT_EQ(HcclCommDestroy(comm_), HCCL_E_PARA) << "use after destroy";
  EXPECT_EQ(HcclGetRankSize(comm_, &size), HCCL_E_PARA);
}

TEST_F(RtHccl, EachMovesWhatTheOnlyRankHasInTheOrderOfItsStream) {
  communicate();
  ASSERT_EQ(close_gate(stream_), 0);
  ASSERT_EQ(launch_writer(stream_, 0, 7), 0);
  EXPECT_EQ(HcclAllReduce(slot(0), slot(1), 1, kI64, kSum, comm_, stream_), HCCL_SUCCESS) << last_text();
  EXPECT_EQ(HcclAllGather(slot(1), slot(2), 1, kI64, comm_, stream_), HCCL_SUCCESS);
  EXPECT_EQ(HcclReduceScatter(slot(2), slot(3), 1, kI64, HCCL_REDUCE_MAX, comm_, stream_), HCCL_SUCCESS);
  EXPECT_EQ(HcclBroadcast(slot(3), 1, kI64, 0, comm_, stream_), HCCL_SUCCESS);
  EXPECT_EQ(HcclAllReduce(slot(3), slot(3), 1, kI64, kSum, comm_, stream_), HCCL_SUCCESS) << "in place";
  EXPECT_EQ(HcclAlltoAll(slot(3), 1, kI64, slot(4), 1, kI64, comm_, stream_), HCCL_SUCCESS);
  const uint64_t one = 1, four = 4, six = 6;
  EXPECT_EQ(HcclAlltoAllV(values_, &one, &four, kI64, values_ + 1, &one, &six, kI64, comm_, stream_), HCCL_SUCCESS);
  EXPECT_EQ(HcclAllGather(slot(0), slot(9), 0, kI64, comm_, stream_), HCCL_SUCCESS) << "nothing to do";
  EXPECT_EQ(value(4), 0) << "the stream is held up";
  open_gate();
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0) << last_text();
  for (const int i : {1, 2, 3, 4, 7}) EXPECT_EQ(value(i), 7) << i;
}

TEST_F(RtHccl, CapturesRecordThem) {
  communicate();
  const aclmdlRI graph = capture([&] {
    EXPECT_EQ(HcclAllReduce(slot(0), slot(1), 1, kI64, kSum, comm_, stream_), HCCL_SUCCESS) << last_text();
    EXPECT_EQ(HcclAllGather(slot(1), slot(2), 1, kI64, comm_, stream_), HCCL_SUCCESS) << last_text();
  });
  for (int i = 1; i <= 3; ++i) {
    ASSERT_EQ(launch_writer(stream_, 0, i), 0);
    EXPECT_EQ(value(2), i - 1) << "nothing captured runs by itself";
    ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
    ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
    EXPECT_EQ(value(2), i);
  }
  EXPECT_EQ(aclmdlRIDestroy(graph), 0);
}

TEST_F(RtHccl, NotInATaskGroup) {
  communicate();
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL), 0);
  ASSERT_EQ(aclmdlRICaptureTaskGrpBegin(stream_), 0);
  EXPECT_EQ(HcclAllReduce(slot(0), slot(1), 1, kI64, kSum, comm_, stream_), HCCL_E_RUNTIME);
  EXPECT_NE(last_text().find("rule group-kernels-only"), std::string::npos);
  aclmdlRI graph = nullptr;
  EXPECT_EQ(aclmdlRICaptureEnd(stream_, &graph), 507903);
}

TEST_F(RtHccl, ArgumentsAreChecked) {
  communicate();
  HcclRootInfo root;
  HcclComm other = nullptr;
  uint32_t n = 0;
  EXPECT_EQ(HcclGetRootInfo(nullptr), HCCL_E_PTR);
  ASSERT_EQ(HcclGetRootInfo(&root), HCCL_SUCCESS);
  EXPECT_EQ(HcclCommInitRootInfo(17, &root, 0, &other), HCCL_E_NOT_SUPPORT);
  EXPECT_NE(last_text().find("17 ranks; simulated are the devices of one server, 16 at most"), std::string::npos);
  EXPECT_EQ(HcclCommInitRootInfo(1, &root, 1, &other), HCCL_E_PARA);
  EXPECT_EQ(HcclCommInitRootInfo(0, &root, 0, &other), HCCL_E_PARA);
  EXPECT_EQ(HcclCommInitRootInfo(1, nullptr, 0, &other), HCCL_E_PTR);
  EXPECT_EQ(HcclCommInitRootInfo(1, &root, 0, nullptr), HCCL_E_PTR);
  root = {};
  EXPECT_EQ(HcclCommInitRootInfo(1, &root, 0, &other), HCCL_E_PARA);
  EXPECT_EQ(HcclGetRankSize(nullptr, &n), HCCL_E_PTR);
  EXPECT_EQ(HcclGetRankSize(&n, &n), HCCL_E_PARA);
  EXPECT_EQ(HcclGetRankId(comm_, nullptr), HCCL_E_PTR);

  const auto reduce = [&](void* from, void* to, HcclDataType type, int op) {
    return HcclAllReduce(from, to, 1, type, static_cast<HcclReduceOp>(op), comm_, stream_);
  };
  EXPECT_EQ(reduce(nullptr, slot(1), kI64, 0), HCCL_E_PTR);
  EXPECT_EQ(reduce(slot(0), nullptr, kI64, 0), HCCL_E_PTR);
  EXPECT_EQ(reduce(slot(0), slot(1), kI64, 4), HCCL_E_PARA);
  EXPECT_EQ(reduce(slot(0), slot(1), HCCL_DATA_TYPE_FP64, 0), HCCL_E_NOT_SUPPORT);
  EXPECT_EQ(reduce(slot(0), slot(1), HCCL_DATA_TYPE_BFP16, HCCL_REDUCE_PROD), HCCL_E_NOT_SUPPORT);
  EXPECT_EQ(reduce(slot(0), slot(1), HCCL_DATA_TYPE_BFP16, HCCL_REDUCE_SUM), HCCL_SUCCESS);
  EXPECT_EQ(HcclAllGather(slot(0), slot(1), 1, static_cast<HcclDataType>(99), comm_, stream_), HCCL_E_NOT_SUPPORT);
  EXPECT_EQ(HcclBroadcast(slot(0), 1, kI64, 1, comm_, stream_), HCCL_E_PARA) << "no such root";
  EXPECT_EQ(HcclAlltoAll(slot(0), 1, kI64, slot(0), 1, kI64, comm_, stream_), HCCL_E_PARA) << "one buffer";
  EXPECT_EQ(HcclAlltoAll(slot(0), 1, kI64, slot(1), 2, kI64, comm_, stream_), HCCL_E_PARA) << "counts differ";
  EXPECT_EQ(HcclAlltoAllV(slot(0), nullptr, &n, kI64, slot(1), &n, &n, kI64, comm_, stream_), HCCL_E_PTR);
  EXPECT_EQ(HcclAllGather(slot(0), slot(1), 1, kI64, nullptr, stream_), HCCL_E_PTR);
  EXPECT_EQ(HcclAllGather(slot(0), slot(1), 1, kI64, comm_, &n), HCCL_E_RUNTIME) << "no such stream";
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 0) << last_text();
}

TEST_F(RtHccl, ACommunicatorTakesDeviceMemory) {
  communicate();
  size_t free = 0, total = 0, after = 0;
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), 0);
  ASSERT_EQ(HcclCommDestroy(comm_), HCCL_SUCCESS);
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &after, &total), 0);
  EXPECT_EQ(after - free, size_t{400} << 20);
}

}  // namespace

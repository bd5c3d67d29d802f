// The meta API and the two phases.
#include "sim/ops/bench.h"

#include <cstring>

namespace sim_test {
namespace {

class Executors : public OpsTest {};

TEST_F(Executors, TellsWhatATensorIs) {
  const Dims shape{2, 3}, strides{1, 2};
  Array array(kBf16, shape, strides, 4, 10);
  int64_t* values = nullptr;
  uint64_t count = 0;
  ASSERT_EQ(aclGetViewShape(array, &values, &count), 0);
  EXPECT_EQ(Dims(values, values + count), shape);
  delete[] values;
  ASSERT_EQ(aclGetViewStrides(array, &values, &count), 0);
  EXPECT_EQ(Dims(values, values + count), strides);
  delete[] values;
  ASSERT_EQ(aclGetStorageShape(array, &values, &count), 0);
  EXPECT_EQ(Dims(values, values + count), Dims{10});
  delete[] values;
  int64_t offset = 0;
  aclFormat format = 0;
  aclDataType dtype = 0;
  void* address = nullptr;
  EXPECT_EQ(aclGetViewOffset(array, &offset), 0);
  EXPECT_EQ(aclGetFormat(array, &format), 0);
  EXPECT_EQ(aclGetDataType(array, &dtype), 0);
  EXPECT_EQ(aclGetRawTensorAddr(array, &address), 0);
  EXPECT_EQ(offset, 4);
  EXPECT_EQ(format, ascend_sim::kNd);
  EXPECT_EQ(dtype, kBf16);
  EXPECT_EQ(address, array.device());
  const Ints ints({5, 6, 7});
  EXPECT_EQ(aclGetIntArraySize(ints, &count), 0);
  EXPECT_EQ(count, 3u);
}

TEST_F(Executors, AListDestroysItsMembers) {
  Array a(kFloat, {1}), b(kFloat, {1});
  aclTensor* member = a.get();
  {
    const List list({&a, &b});
    uint64_t count = 0;
    EXPECT_EQ(aclGetTensorListSize(list, &count), 0);
    EXPECT_EQ(count, 2u);
  }
  EXPECT_EQ(aclDestroyTensor(member), kBad);  // a second time
  EXPECT_NE(bench().error.find("destroyed already"), std::string::npos) << bench().error;
}

TEST_F(Executors, RefusesNullAndDeadHandles) {
  Array x(kFloat, {4}, {1, 2, 3, 4}), y(kFloat, {4});
  EXPECT_EQ(REFUSED(aclnnSilu, nullptr, y), kNull);
  EXPECT_EQ(REFUSED(aclnnSilu, x, nullptr), kNull);
  EXPECT_EQ(aclnnSiluGetWorkspaceSize(x, y, nullptr, nullptr), kNull);
  aclTensor* dead = nullptr;
  {
    Array short_lived(kFloat, {4});
    dead = short_lived.get();
  }
  EXPECT_EQ(REFUSED(aclnnSilu, dead, y), kBad);
  const aclTensor* nowhere = aclCreateTensor(x.shape().data(), 1, kFloat, nullptr, 0, 2, x.shape().data(), 1, nullptr);
  EXPECT_EQ(REFUSED(aclnnSilu, nowhere, y), kBad);
  aclDestroyTensor(nowhere);
}

TEST_F(Executors, APlainExecutorIsUsedOnce) {
  Array x(kFloat, {4}, {1, 2, 3, 4}), y(kFloat, {4});
  uint64_t size = 1;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnSinGetWorkspaceSize(x, y, &size, &executor), 0);
  EXPECT_EQ(size, 0u);
  EXPECT_EQ(aclnnCos(nullptr, 0, executor, nullptr), kBad);  // another operator's
  EXPECT_EQ(aclnnSin(nullptr, 0, executor, nullptr), 0);
  EXPECT_EQ(aclnnSin(nullptr, 0, executor, nullptr), kBad);
  EXPECT_NE(bench().error.find("was used by phase 2"), std::string::npos) << bench().error;
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), kBad);
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(executor), kBad);
  EXPECT_EQ(aclnnSin(nullptr, 0, nullptr, nullptr), kNull);
  EXPECT_EQ(aclnnSin(nullptr, 0, reinterpret_cast<aclOpExecutor*>(&size), nullptr), kBad);
}

TEST_F(Executors, ALeakedExecutorIsNamed) {
  Array x(kFloat, {4}), y(kFloat, {4});
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnSinGetWorkspaceSize(x, y, &size, &executor), 0);
  char text[256];
  EXPECT_EQ(ascendSimLiveObjects(text, sizeof(text)), 3);  // and two tensors
  EXPECT_NE(std::strstr(text, "executor of aclnnSin"), nullptr) << text;
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
}

TEST_F(Executors, ARepeatableOneTakesNewAddresses) {
  Array x(kFloat, {3}, {1, 2, 3}), y(kFloat, {3}), other(kFloat, {3}, {4, 5, 6}), to(kFloat, {3});
  Array wrong(kFloat, {2});
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnMulGetWorkspaceSize(x, x, y, &size, &executor), 0);
  EXPECT_EQ(aclSetInputTensorAddr(executor, 0, other, other.device()), kBad);  // not repeatable yet
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor), 0);
  ASSERT_EQ(aclnnMul(nullptr, 0, executor, nullptr), 0);
  EXPECT_EQ(y.get_all(), (std::vector<double>{1, 4, 9}));
  EXPECT_EQ(aclSetInputTensorAddr(executor, 1, other, other.device()), 0);
  EXPECT_EQ(aclSetOutputTensorAddr(executor, 0, to, to.device()), 0);
  EXPECT_EQ(aclSetInputTensorAddr(executor, 2, other, other.device()), kBad);  // there are two
  EXPECT_EQ(aclSetInputTensorAddr(executor, 0, wrong, wrong.device()), kBad);  // another shape
  EXPECT_EQ(aclSetInputTensorAddr(executor, 0, other, nullptr), kNull);
  ASSERT_EQ(aclnnMul(nullptr, 0, executor, nullptr), 0);
  EXPECT_EQ(to.get_all(), (std::vector<double>{4, 10, 18}));
  EXPECT_EQ(aclSetTensorAddr(executor, 0, other, other.device()), 0);
  ASSERT_EQ(aclnnMul(nullptr, 0, executor, nullptr), 0);
  EXPECT_EQ(to.get_all(), (std::vector<double>{16, 25, 36}));
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), kBad);
}

// hicann/opbase @ aa3cd74b, op_executor.cpp:215-217: every run asks the caller's tensors for their addresses.
TEST_F(Executors, ARepeatedOneNeedsItsTensors) {
  Array y(kFloat, {3});
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  auto x = std::make_unique<Array>(kFloat, Dims{3}, std::vector<double>{1, 2, 3});
  ASSERT_EQ(aclnnMulGetWorkspaceSize(*x, *x, y, &size, &executor), 0);
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor), 0);
  ASSERT_EQ(aclnnMul(nullptr, 0, executor, nullptr), 0);
  aclDestroyTensor(x->release());                // its memory stays
  Array at_its_address(kFloat, {3}, {4, 5, 6});  // the next one may have its place
  EXPECT_EQ(aclnnMul(nullptr, 0, executor, nullptr), kBad);
  EXPECT_NE(bench().error.find("was destroyed meanwhile"), std::string::npos) << bench().error;
  EXPECT_EQ(y.get_all(), (std::vector<double>{1, 4, 9}));
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
}

TEST_F(Executors, PhaseTwoSeesWhatPhaseOneSaw) {
  Array y(kFloat, {3});
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  auto x = std::make_unique<Array>(kFloat, Dims{3}, std::vector<double>{1, 2, 3});
  auto factor = std::make_unique<Number>(2.0f);
  ASSERT_EQ(aclnnMulsGetWorkspaceSize(*x, *factor, y, &size, &executor), 0);
  factor.reset();
  aclDestroyTensor(x->release());  // its memory stays
  ASSERT_EQ(aclnnMuls(nullptr, 0, executor, nullptr), 0);
  EXPECT_EQ(y.get_all(), (std::vector<double>{2, 4, 6}));
}

TEST_F(Executors, GapsCostACopyAndWorkspace) {
  Array x(kBf16, {3, 2}, {5, 1}, 1, 16), y(kBf16, {3, 2});
  x.set({1, 2, 3, 4, 5, 6});
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnReciprocalGetWorkspaceSize(x, y, &size, &executor), 0);
  EXPECT_EQ(size, 512u);
  EXPECT_EQ(aclnnReciprocal(nullptr, size, executor, nullptr), kNull);
  EXPECT_EQ(aclnnReciprocal(x.device(), size - 1, executor, nullptr), kBad);
  EXPECT_NE(bench().error.find("512 bytes"), std::string::npos) << bench().error;
  EXPECT_EQ(aclnnReciprocal(reinterpret_cast<void*>(uintptr_t{65}), size, executor, nullptr), kBad);  // not aligned
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
  ASSERT_EQ(RUN_OP(aclnnReciprocal, x, y), 0);
  ASSERT_EQ(bench().kernels.size(), 2u);
  EXPECT_EQ(bench().kernels[0].name, "aclnnReciprocal/contiguous");
  EXPECT_EQ(bench().kernels[0].work.bytes, 24);
  EXPECT_EQ(bench().kernels[1].name, "aclnnReciprocal");
  expect_close(y.get_all(), {1, 0.5, 1.0 / 3, 0.25, 0.2, 1.0 / 6}, kBf16);
}

TEST_F(Executors, AnOutputWithGapsIsCopiedBackAndNotRepeatable) {
  Array x(kFloat, {2, 2}, {1, 2, 4, 8}), y(kFloat, {2, 2}, {3, 1}, 0, 6);
  ASSERT_EQ(RUN_OP(aclnnReciprocal, x, y), 0);
  EXPECT_EQ(bench().kernels.size(), 2u);
  EXPECT_EQ(y.get_all(), (std::vector<double>{1, 0.5, 0.25, 0.125}));
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnReciprocalGetWorkspaceSize(x, y, &size, &executor), 0);
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(executor), kBad);
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
}

TEST_F(Executors, HostTimeDependsOnWhatTheThreadKnows) {
  Array x(kFloat, {3}, {1, 2, 3}), y(kFloat, {3}), longer(kFloat, {4}), there(kFloat, {4});
  const auto cost = [&](const Array& from, const Array& to) {
    bench().host_micros = 0;
    EXPECT_EQ(REFUSED(aclnnSin, from, to), 0);
    return bench().host_micros;
  };
  EXPECT_EQ(cost(x, y), 60);
  EXPECT_EQ(cost(x, y), 8);
  EXPECT_EQ(cost(longer, there), 60);
  aclnnFinalize();
  EXPECT_EQ(cost(x, y), 60);
  bench().updating = true;
  aclnnFinalize();
  EXPECT_EQ(cost(x, y), 20);
  bench().host_micros = 0;
  ASSERT_EQ(RUN_OP(aclnnSin, x, y), 0);
  EXPECT_EQ(bench().host_micros, 13);  // cached, and one kernel
}

TEST_F(Executors, YoungSymbolsAreAbsentFromOldVersions) {
  bench().machine.cann = ascend_sim::Cann::V8_1;
  Array x(kBf16, {1, 1, 1, 64}), cos(kBf16, {1, 1, 1, 64}), sin(kBf16, {1, 1, 1, 64}), y(kBf16, {1, 1, 1, 64});
  EXPECT_EQ(REFUSED(aclnnInterleaveRope, x, cos, sin, y), kAbsent);
  EXPECT_EQ(REFUSED(aclnnRotaryPositionEmbedding, x, cos, sin, 0, y), kAbsent);
  Array a(kBf16, {2, 8}), w(kBf16, {8, 2}), out(kBf16, {2, 2}), wide(kFloat, {2, 2});
  EXPECT_EQ(REFUSED(aclnnMatmulWeightNz, a, w, out, 0), kAbsent);
  EXPECT_EQ(REFUSED(aclnnMatmul, a, w, wide, 0), kBad);
  EXPECT_EQ(REFUSED(aclnnMatmul, a, w, out, 0), 0);
}

TEST_F(Executors, NotesSayWhatWasChosen) { EXPECT_NE(std::strstr(ascendSimOperatorNotes(), "absorbed"), nullptr); }

}  // namespace
}  // namespace sim_test

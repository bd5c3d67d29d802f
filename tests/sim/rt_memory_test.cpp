// Device memory: addresses, alignment, limits, poison, and the check of every address when a kernel runs.
#include "sim/rt_support.h"

using namespace sim_test;

namespace {

using RtMemory = Runtime;

void* allocate(size_t bytes) {
  void* block = nullptr;
  EXPECT_EQ(aclrtMalloc(&block, bytes, ACL_MEM_MALLOC_HUGE_FIRST), 0) << last_text();
  return block;
}

ascend_sim::Kernel reader(const void* address, size_t bytes) {
  ascend_sim::Kernel kernel;
  kernel.name = "reader";
  kernel.touches = {{address, bytes, false}};
  return kernel;
}

TEST_F(RtMemory, AddressesAreNotThoseOfTheHost) {
  start();
  void* block = allocate(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u);
  EXPECT_NE(reinterpret_cast<uintptr_t>(block) >> 47, 0u) << "no host can follow it";
  EXPECT_DEATH({ *static_cast<volatile char*>(block) = 1; }, "");
  aclrtPtrAttributes attributes;
  ASSERT_EQ(aclrtPointerGetAttributes(block, &attributes), 0);
  EXPECT_EQ(attributes.location.type, ACL_MEM_LOCATION_TYPE_DEVICE);
  ASSERT_EQ(aclrtPointerGetAttributes(&attributes, &attributes), 0);
  EXPECT_EQ(attributes.location.type, ACL_MEM_LOCATION_TYPE_UNREGISTERED);
  ASSERT_EQ(aclrtFree(block), 0);
  ASSERT_EQ(aclrtPointerGetAttributes(block, &attributes), 0);
  EXPECT_EQ(attributes.location.type, ACL_MEM_LOCATION_TYPE_UNREGISTERED);
}

TEST_F(RtMemory, WrongCallsAreRefused) {
  start();
  void* block = nullptr;
  EXPECT_EQ(aclrtMalloc(&block, 0, ACL_MEM_MALLOC_HUGE_FIRST), 107000);
  EXPECT_EQ(aclrtFree(nullptr), 107000);
  block = allocate(64);
  char* host = new char[64];
  EXPECT_EQ(aclrtFree(static_cast<char*>(block) + 32), 107000);
  EXPECT_EQ(aclrtMemcpy(block, 32, host, 64, ACL_MEMCPY_HOST_TO_DEVICE), 107000) << "destMax below count";
  EXPECT_EQ(aclrtMemcpy(block, 64, host, 64, ACL_MEMCPY_DEVICE_TO_HOST), 107000) << "the wrong kind";
  EXPECT_EQ(aclrtMemcpy(block, 128, host, 65, ACL_MEMCPY_HOST_TO_DEVICE), 107000) << "beyond the end";
  EXPECT_EQ(aclrtMemcpy(block, 64, host, 64, ACL_MEMCPY_DEFAULT), 0);
  ASSERT_EQ(aclrtFree(block), 0);
  EXPECT_EQ(aclrtFree(block), 107000) << "freed before";
  EXPECT_EQ(aclrtMemcpy(block, 64, host, 64, ACL_MEMCPY_HOST_TO_DEVICE), 107000);
  delete[] host;
}

TEST_F(RtMemory, TheMemoryHasAnEnd) {
  start({{"HBM_BYTES", "268435456"}});
  size_t free = 0, total = 0;
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), 0);
  EXPECT_EQ(total, 268435456u);
  constexpr size_t kMost = 250 << 20;
  void* block = allocate(kMost);
  void* more = &more;
  EXPECT_EQ(aclrtMalloc(&more, 8 << 20, ACL_MEM_MALLOC_HUGE_FIRST), 207001);
  EXPECT_NE(last_text().find("out of device memory: 8388608 bytes wanted"), std::string::npos);
  ASSERT_EQ(aclrtFree(block), 0);
  size_t after = 0;
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &after, &total), 0);
  EXPECT_EQ(after, free);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(aclrtFree(allocate(kMost)), 0) << "addresses come back";
}

TEST_F(RtMemory, RoundingAddsThirtyTwoBytes) {
  start();
  size_t before = 0, after = 0, total = 0;
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &before, &total), 0);
  void* tight = nullptr;
  ASSERT_EQ(aclrtMallocAlign32(&tight, 4096, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &after, &total), 0);
  EXPECT_EQ(before - after, 4096u);
  allocate(4096);
  size_t last = 0;
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &last, &total), 0);
  EXPECT_EQ(after - last, 8192u) << "one page and the extra bytes";
}

TEST_F(RtMemory, NewBlocksArePoisoned) {
  start();
  uint8_t bytes[64] = {};
  ASSERT_EQ(aclrtMemcpy(bytes, 64, allocate(64), 64, ACL_MEMCPY_DEVICE_TO_HOST), 0);
  for (const uint8_t byte : bytes) EXPECT_EQ(byte, 0xFF);
}

TEST_F(RtMemory, StaleAddressesFaultWhenTheKernelRuns) {
  start();
  char* block = static_cast<char*>(allocate(256));
  ASSERT_EQ(ascend_sim::launch(stream_, {reader(block, 256)}), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  for (const auto& [address, bytes] : {std::pair<char*, size_t>{block, 257}, {block + 255, 2}, {block - 1, 1}}) {
    ASSERT_EQ(ascend_sim::launch(stream_, {reader(address, bytes)}), 0) << "seen when it runs, not before";
    EXPECT_EQ(aclrtSynchronizeStream(stream_), 507015);
  }
  ASSERT_EQ(close_gate(stream_), 0);
  ASSERT_EQ(ascend_sim::launch(stream_, {reader(block, 16)}), 0);
  ASSERT_EQ(aclrtFree(block), 0) << "does not wait for the device";
  open_gate();
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 507015);
  const std::string text = last_text();
  EXPECT_NE(text.find("reader"), std::string::npos) << text;
  char address[32];
  std::snprintf(address, sizeof address, "%p", static_cast<void*>(block));
  EXPECT_NE(text.find(address), std::string::npos) << text;
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 0) << "told once where the stream goes on after failures";
}

TEST_F(RtMemory, AnUndeclaredTouchFaultsToo) {
  start();
  void* block = allocate(64);
  ascend_sim::Kernel kernel;
  kernel.name = "careless";
  kernel.compute = [block] { *ascend_sim::host<char>(block) = 1; };
  ASSERT_EQ(ascend_sim::launch(stream_, {kernel}), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  ASSERT_EQ(aclrtFree(block), 0);
  ASSERT_EQ(ascend_sim::launch(stream_, {kernel}), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 507015);
  EXPECT_NE(last_text().find("careless"), std::string::npos);
}

TEST_F(RtMemory, AFaultStopsTheContextWhereAsked) {
  start();
  EXPECT_EQ(aclrtSetStreamFailureMode(stream_, 2), 107000);
  ASSERT_EQ(aclrtSetStreamFailureMode(stream_, 1), 0);
  EXPECT_EQ(aclrtSetStreamFailureMode(stream_, 1), 107000) << "once";
  ASSERT_EQ(close_gate(stream_), 0);
  ASSERT_EQ(ascend_sim::launch(stream_, {reader(values_ + kValues, 8)}), 0);
  ASSERT_EQ(launch_writer(stream_, 0, 1), 0);
  open_gate();
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 507015);
  EXPECT_EQ(value(0), 0) << "what was queued behind is dropped";
  EXPECT_EQ(launch_writer(stream2_, 0, 1), 507015);
  EXPECT_EQ(aclrtSynchronizeDevice(), 507015);
  ASSERT_EQ(aclrtResetDeviceForce(0), 0);
  start_again();
}

TEST_F(RtMemory, PhysicalMemoryIsMappedIntoReservedAddresses) {
  start();
  constexpr size_t kMega = 1 << 20;
  void* range = nullptr;
  ASSERT_EQ(aclrtReserveMemAddress(&range, 8 * kMega, 0, nullptr, 0), 0);
  aclrtPhysicalMemProp prop = {};
  size_t granule = 0;
  ASSERT_EQ(aclrtMemGetAllocationGranularity(&prop, ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED, &granule), 0);
  EXPECT_EQ(granule, 2 * kMega);
  aclrtDrvMemHandle first = nullptr, second = nullptr;
  ASSERT_EQ(aclrtMallocPhysical(&first, 2 * kMega, &prop, 0), 0);
  ASSERT_EQ(aclrtMallocPhysical(&second, 2 * kMega, &prop, 0), 0);
  char* at = static_cast<char*>(range);
  EXPECT_NE(aclrtMemset(at, 64, 0, 64), 0) << "nothing mapped yet";
  ASSERT_EQ(aclrtMapMem(at, 2 * kMega, 0, first, 0), 0);
  EXPECT_EQ(aclrtMapMem(at, 2 * kMega, 0, second, 0), 107000) << "taken";
  ASSERT_EQ(aclrtMapMem(at + 2 * kMega, 2 * kMega, 0, second, 0), 0);
  ASSERT_EQ(aclrtMemset(at, 4 * kMega, 7, 4 * kMega), 0) << "neighbours are one range";
  EXPECT_NE(aclrtMemset(at + 4 * kMega, 64, 0, 64), 0);
  EXPECT_EQ(aclrtReleaseMemAddress(range), 107000) << "still mapped";
  size_t before = 0, after = 0, total = 0;
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &before, &total), 0);
  ASSERT_EQ(aclrtFreePhysical(first), 0);
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &after, &total), 0);
  EXPECT_EQ(after, before) << "takes effect after the last unmap";
  ASSERT_EQ(aclrtUnmapMem(at), 0);
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &after, &total), 0);
  EXPECT_EQ(after, before + 2 * kMega);
  ASSERT_EQ(aclrtUnmapMem(at + 2 * kMega), 0);
  ASSERT_EQ(aclrtFreePhysical(second), 0);
  EXPECT_EQ(aclrtReleaseMemAddress(range), 0);
}

TEST_F(RtMemory, FaultsOnDemand) {
  start({{"FAULT", "malloc:3,kernel:reader:2"}});  // the fixture allocates once
  allocate(64);
  void* block = nullptr;
  EXPECT_EQ(aclrtMalloc(&block, 64, ACL_MEM_MALLOC_HUGE_FIRST), 207001);
  block = allocate(64);
  for (const int code : {0, 507015, 0}) {
    ASSERT_EQ(ascend_sim::launch(stream_, {reader(block, 8)}), 0);
    EXPECT_EQ(aclrtSynchronizeStream(stream_), code);
  }
}

TEST_F(RtMemory, SkippedArithmeticTouchesNothing) {
  start({{"COMPUTE", "0"}, {"HBM_BYTES", "68719476736"}});
  EXPECT_FALSE(ascend_sim::machine().computes);
  void* huge = allocate(size_t{40} << 30);
  ascend_sim::Kernel kernel = reader(huge, size_t{40} << 30);
  bool ran = false;
  kernel.compute = [&] { ran = true; };
  ASSERT_EQ(ascend_sim::launch(stream_, {kernel}), 0);
  ASSERT_EQ(aclrtMemsetAsync(huge, size_t{40} << 30, 1, size_t{40} << 30, stream_), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_FALSE(ran);
  const int64_t small = 5;
  ASSERT_EQ(aclrtMemcpy(values_, 8, &small, 8, ACL_MEMCPY_HOST_TO_DEVICE), 0);
  EXPECT_EQ(value(0), 5) << "control data moves all the same";
  ASSERT_EQ(ascend_sim::launch(stream_, {reader(static_cast<char*>(huge) + (size_t{40} << 30), 1)}), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 507015) << "addresses are still checked";
}

}  // namespace

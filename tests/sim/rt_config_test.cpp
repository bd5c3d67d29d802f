// The environment, init and finalize, versions, contexts, error texts.
#include <cstring>

#include "sim/rt_support.h"

using namespace sim_test;

namespace {

using RtConfig = Runtime;

TEST_F(RtConfig, EveryChipHasItsMachine) {
  for (const char* name : {"Ascend910B1", "Ascend910B2", "Ascend910B3", "Ascend910B4", "Ascend910_9391",
                           "Ascend910_9381", "Ascend910_9372"}) {
    setenv("ASCEND_SIM_SOC", name, 1);
    ASSERT_EQ(aclInit(nullptr), 0) << last_text();
    EXPECT_STREQ(aclrtGetSocName(), name);
    EXPECT_EQ(ascend_sim::machine().soc, name);
    EXPECT_EQ(ascend_sim::machine().generation, std::string(name).find('_') == std::string::npos ? 2 : 3);
    int64_t cores = 0;
    EXPECT_EQ(aclGetDeviceCapability(0, ACL_DEVICE_INFO_VECTOR_CORE_NUM, &cores), 0);
    EXPECT_EQ(cores, ascend_sim::machine().vector_cores);
    ASSERT_EQ(aclrtSetDevice(0), 0);
    size_t free = 0, total = 0;
    EXPECT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), 0);
    EXPECT_EQ(total >> 30, std::string(name) == "Ascend910B4" ? 32u : 64u);
    EXPECT_NE(std::string(ascendSimAssumptions()).find(name), std::string::npos);
    ASSERT_EQ(aclFinalize(), 0);
  }
}

TEST_F(RtConfig, WrongValuesNameTheAllowed) {
  const struct {
    const char* name;
    const char* value;
    const char* allowed;
  } cases[] = {
      {"ASCEND_SIM_SOC", "Ascend310P3", "Ascend910B1, Ascend910B2"},
      {"ASCEND_SIM_STACK", "newest", "old, new"},
      {"ASCEND_SIM_COMPUTE", "yes", "0, 1"},
      {"ASCEND_SIM_CANN", "8.2", "8.1, 8.5, 9.1"},
      {"ASCEND_SIM_HBM_BYTES", "64G", "a whole number from 1048576"},
      {"ASCEND_SIM_JITTER", "x", "a whole number from 0"},
      {"ASCEND_SIM_LAUNCH_FACTOR", "twice", "a number from 0.01 to 1000"},
      {"ASCEND_SIM_LAUNCH_FACTOR", "0", "a number from 0.01 to 1000"},
      {"ASCEND_SIM_RATES", "measured", "model, published"},
      {"ASCEND_SIM_FAULT", "malloc", "malloc:N, stream:N, kernel:NAME:N"},
      {"ASCEND_SIM_FAULT", "malloc:0", "N from 1"},
      {"ASCEND_SIM_FAULT", "kernel:5", "kernel:NAME:N"},
      {"ASCEND_SIM_FAULT", "event:1,updates:2", "update:N"},
      {"ASCEND_SIM_FAULT", "devices:17", "devices from 0 to 16"},
  };
  for (const auto& one : cases) {
    clear_environment();
    setenv(one.name, one.value, 1);
    EXPECT_EQ(aclInit(nullptr), 100000) << one.name;
    const std::string text = last_text();
    EXPECT_NE(text.find(one.name), std::string::npos) << text;
    EXPECT_NE(text.find(one.allowed), std::string::npos) << text;
    EXPECT_EQ(last_text(), "") << "reading clears the text";
  }
}

TEST_F(RtConfig, InitOnceAndFinalizeDropsEverything) {
  uint32_t count = 0;
  EXPECT_EQ(aclrtGetDeviceCount(&count), 100001);
  start();
  EXPECT_EQ(aclInit(nullptr), 100002);
  const aclrtStream stream = stream_;
  ASSERT_EQ(aclFinalize(), 0);
  EXPECT_EQ(aclFinalize(), 100001);
  setenv("ASCEND_SIM_SOC", "Ascend910B4", 1);
  start();
  EXPECT_STREQ(aclrtGetSocName(), "Ascend910B4") << "a new aclInit reads the environment anew";
  EXPECT_EQ(aclrtSynchronizeStream(stream), 107017);
}

TEST_F(RtConfig, OldCannHidesYoungerSymbols) {
  start({{"CANN", "8.1"}});
  EXPECT_EQ(ascend_sim::machine().cann, ascend_sim::Cann::V8_1);
  aclCANNPackageVersion version;
  ASSERT_EQ(aclsysGetCANNVersion(ACL_PKG_NAME_CANN, &version), 0);
  EXPECT_STREQ(version.version, "8.1.RC1");
  EXPECT_EQ(aclrtValueWait(values_, 1, 0, stream_), 207000);
  EXPECT_EQ(aclrtValueWrite(values_, 1, 0, stream_), 207000);
  EXPECT_EQ(aclrtLaunchHostFunc(
                stream_, [](void*) {}, nullptr),
            207000);
  uint32_t streams = 0;
  EXPECT_EQ(aclrtGetStreamAvailableNum(&streams), 207000);
  char name[] = "runtime", text[128];
  EXPECT_EQ(aclsysGetVersionStr(name, text), 207000);
}

TEST_F(RtConfig, DevicesOnDemand) {
  setenv("ASCEND_SIM_FAULT", "devices:0", 1);
  ASSERT_EQ(aclInit(nullptr), 0);
  uint32_t count = 1;
  EXPECT_EQ(aclrtGetDeviceCount(&count), 0);
  EXPECT_EQ(count, 0u);
  EXPECT_EQ(aclrtSetDevice(0), 107001);
  EXPECT_NE(last_text().find("there are 0"), std::string::npos);
}

TEST_F(RtConfig, ContextsBelongToThreads) {
  start();
  int code = 0;
  std::thread([&] { code = aclrtSynchronizeStream(stream_); }).join();
  EXPECT_EQ(code, 107002);
  std::thread([&] {
    EXPECT_EQ(aclrtSetDevice(0), 0);
    code = aclrtSynchronizeStream(stream_);
  }).join();
  EXPECT_EQ(code, 0) << "threads share the device's own context";
  aclrtContext primary = nullptr, other = nullptr;
  ASSERT_EQ(aclrtGetCurrentContext(&primary), 0);
  ASSERT_EQ(aclrtCreateContext(&other, 0), 0);
  EXPECT_EQ(launch_writer(stream_, 0, 1), 107003);
  ASSERT_EQ(aclrtSetCurrentContext(primary), 0);
  EXPECT_EQ(launch_writer(stream_, 0, 1), 0);
  EXPECT_EQ(aclrtDestroyContext(other), 0);
  EXPECT_EQ(aclrtSetCurrentContext(other), 107017);
}

TEST_F(RtConfig, ErrorsBelongToThreads) {
  start();
  EXPECT_EQ(aclrtSetDevice(99), 107001);
  std::string elsewhere = "?";
  std::thread([&] { elsewhere = last_text(); }).join();
  EXPECT_EQ(elsewhere, "");
  EXPECT_EQ(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), 107001);
  EXPECT_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 107001);
  EXPECT_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 0);
  EXPECT_NE(last_text().find("aclrtSetDevice: device 99"), std::string::npos);
}

TEST_F(RtConfig, ResetIsCounted) {
  start();
  ASSERT_EQ(aclrtSetDevice(0), 0);
  ASSERT_EQ(aclrtResetDevice(0), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 0);
  ASSERT_EQ(aclrtResetDevice(0), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 107002);
  ASSERT_EQ(aclrtSetDevice(0), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 107017) << "the streams went with the device";
}

}  // namespace

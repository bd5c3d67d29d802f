// Rules of the runtime, faults that stand for a badly installed machine, and symbols that are really absent.
#include <dlfcn.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include "ascend/ops/acl_op.h"
#include "sim/rt_support.h"
#include "sim/rule_watch.h"

using namespace sim_test;

namespace {

using RtRules = Runtime;

const bool rules_watched = watch_rules("sim");

std::string library_folder() {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&aclInit), &info);
  return std::filesystem::path(info.dli_fname).parent_path();
}

TEST_F(RtRules, EachNamesItsTest) { expect_rules_name_tests("sim"); }

TEST_F(RtRules, NoPageableCopyInACapture) {
  start();
  int64_t number = 0;
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL), 0);
  EXPECT_EQ(aclrtMemcpyAsync(values_, 8, &number, 8, ACL_MEMCPY_HOST_TO_DEVICE, stream_), 107000);
  EXPECT_NE(last_text().find("rule pageable-in-capture"), std::string::npos);
  aclmdlRI graph = nullptr;
  ASSERT_EQ(aclmdlRICaptureEnd(stream_, &graph), 0) << last_text();
  EXPECT_EQ(aclmdlRIDestroy(graph), 0);
}

// A kernel of that unit, writing the first value.
int launch_kernel(aclrtStream stream, int64_t* values, ascend_sim::Unit unit) {
  ascend_sim::Kernel kernel{
      "aclnnTest", unit, {1, 8}, {{values, 8, true}}, [values] { *ascend_sim::host<int64_t>(values) = 1; }};
  return ascend_sim::launch(stream, {std::move(kernel)});
}

// A graph with one group of so many kernels.
aclmdlRI record_group(aclrtStream stream, int64_t* values, ascend_sim::Unit unit, int kernels, aclrtTaskGrp* group) {
  aclmdlRI graph = nullptr;
  EXPECT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL), 0);
  EXPECT_EQ(aclmdlRICaptureTaskGrpBegin(stream), 0);
  for (int i = 0; i < kernels; ++i) EXPECT_EQ(launch_kernel(stream, values, unit), 0);
  EXPECT_EQ(aclmdlRICaptureTaskGrpEnd(stream, group), 0);
  EXPECT_EQ(aclmdlRICaptureEnd(stream, &graph), 0) << last_text();
  return graph;
}

TEST_F(RtRules, OnlyPrefetchesOfTheOwnMemory) {
  start();
  EXPECT_EQ(aclrtCmoAsync(values_, 64, ACL_RT_CMO_TYPE_PREFETCH, stream_), 0);
  EXPECT_EQ(aclrtCmoAsync(values_, 0, ACL_RT_CMO_TYPE_PREFETCH, stream_), 107000);
  EXPECT_EQ(aclrtCmoAsync(nullptr, 64, ACL_RT_CMO_TYPE_PREFETCH, stream_), 107000);
  EXPECT_EQ(aclrtCmoAsync(values_, 64, ACL_RT_CMO_TYPE_WRITEBACK, stream_), 207000);
  EXPECT_NE(last_text().find("rule cmo-prefetch-only"), std::string::npos);
  int64_t number = 0;
  EXPECT_EQ(aclrtCmoAsync(&number, 8, ACL_RT_CMO_TYPE_PREFETCH, stream_), 107000);
  EXPECT_NE(last_text().find("rule cmo-own-memory"), std::string::npos);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  // No kernel, so no task of a group.
  aclmdlRI graph = nullptr;
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL), 0);
  ASSERT_EQ(aclmdlRICaptureTaskGrpBegin(stream_), 0);
  EXPECT_EQ(aclrtCmoAsync(values_, 64, ACL_RT_CMO_TYPE_PREFETCH, stream_), 507009);
  EXPECT_NE(aclmdlRICaptureEnd(stream_, &graph), 0);
  // What was freed is not there to be read.
  ASSERT_EQ(aclrtCmoAsync(values_, size_t{1} << 40, ACL_RT_CMO_TYPE_PREFETCH, stream_), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 507015);
}

TEST_F(RtRules, TaskGroupsTakeKernels) {
  start();
  aclrtTaskGrp group = nullptr;
  record_group(stream_, values_, ascend_sim::Unit::Mixed, 1, &group);
  ASSERT_EQ(aclmdlRICaptureTaskUpdateBegin(stream2_, group), 0);
  EXPECT_EQ(aclrtMemsetAsync(values_, 8, 0, 8, stream2_), 507009);
  EXPECT_NE(last_text().find("rule group-kernels-only"), std::string::npos);
  EXPECT_EQ(launch_kernel(stream2_, values_, ascend_sim::Unit::Mixed), 0);
  EXPECT_EQ(aclmdlRICaptureTaskUpdateEnd(stream2_), 0);
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL), 0);
  ASSERT_EQ(aclmdlRICaptureTaskGrpBegin(stream_), 0);
  EXPECT_EQ(aclrtMemsetAsync(values_, 8, 0, 8, stream_), 507009);
}

// Phase 2 of an operator inside an open group: which types have a kernel on the vector cores.
TEST_F(RtRules, TaskGroupsTakeNoAiCpu) {
  start();
  const int64_t shape[] = {4, 1};
  const auto tensor = [&](aclDataType dtype) {
    return aclCreateTensor(shape, 2, dtype, nullptr, 0, 2, shape, 2, values_);
  };
  enum { kFloat = 0, kInt32 = 3, kInt64 = 9, kDouble = 11 };
  const auto in_group = [&](const std::function<int(uint64_t*, aclOpExecutor**)>& phase1, auto phase2) {
    aclmdlRI graph = nullptr;
    aclrtTaskGrp group = nullptr;
    EXPECT_EQ(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL), 0) << last_text();
    EXPECT_EQ(aclmdlRICaptureTaskGrpBegin(stream_), 0);
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    EXPECT_EQ(phase1(&size, &executor), 0) << last_text();
    const int code = phase2(values_, size, executor, stream_) == 0 ? 0 : aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL);
    EXPECT_EQ(code != 0 || aclmdlRICaptureTaskGrpEnd(stream_, &group) == 0, true) << last_text();
    aclmdlRICaptureEnd(stream_, &graph);
    if (graph != nullptr) aclmdlRIDestroy(graph);
    return code;
  };
  const auto cast = [&](aclDataType from, aclDataType to) {
    aclTensor *x = tensor(from), *y = tensor(to);
    const int code = in_group(
        [&](uint64_t* size, aclOpExecutor** executor) { return aclnnCastGetWorkspaceSize(x, to, y, size, executor); },
        aclnnCast);
    aclDestroyTensor(x), aclDestroyTensor(y);
    return code;
  };
  EXPECT_EQ(cast(kInt64, kInt32), 0) << last_text();
  EXPECT_EQ(cast(kDouble, kFloat), 507009);
  const auto sum = [&](aclDataType dtype) {
    aclTensor *x = tensor(dtype), *y = tensor(dtype);
    const int code =
        in_group([&](uint64_t* size,
                     aclOpExecutor** executor) { return aclnnCumsumGetWorkspaceSize(x, 0, dtype, y, size, executor); },
                 aclnnCumsum);
    aclDestroyTensor(x), aclDestroyTensor(y);
    return code;
  };
  EXPECT_EQ(sum(kInt32), 0) << last_text();
  EXPECT_EQ(sum(kInt64), 507009);
  const auto sort = [&](aclDataType dtype, int64_t dim) {
    aclTensor *x = tensor(dtype), *y = tensor(dtype), *places = tensor(kInt64);
    const int code = in_group(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return dim < 0 ? aclnnTopkGetWorkspaceSize(x, 1, 1, true, true, y, places, size, executor)
                         : aclnnSortGetWorkspaceSize(x, true, dim, true, y, places, size, executor);
        },
        dim < 0 ? aclnnTopk : aclnnSort);
    aclDestroyTensor(x), aclDestroyTensor(y), aclDestroyTensor(places);
    return code;
  };
  EXPECT_EQ(sort(kFloat, -1), 0) << last_text();
  EXPECT_EQ(sort(kInt32, -1), 507009);
  EXPECT_EQ(sort(kFloat, 0), 507009) << "rows of one element";
}

TEST_F(RtRules, UpdatesKeepTheClass) {
  start();
  aclrtTaskGrp group = nullptr;
  record_group(stream_, values_, ascend_sim::Unit::Mixed, 1, &group);
  ASSERT_EQ(aclmdlRICaptureTaskUpdateBegin(stream2_, group), 0);
  EXPECT_EQ(launch_kernel(stream2_, values_, ascend_sim::Unit::Cube), 507000);
  EXPECT_NE(last_text().find("rule update-same-class"), std::string::npos);
  EXPECT_EQ(launch_kernel(stream2_, values_, ascend_sim::Unit::Mixed), 0);
  EXPECT_EQ(aclmdlRICaptureTaskUpdateEnd(stream2_), 0);
}

TEST_F(RtRules, UpdatesLaunchAllTasks) {
  start();
  aclrtTaskGrp group = nullptr;
  record_group(stream_, values_, ascend_sim::Unit::Vector, 2, &group);
  ASSERT_EQ(aclmdlRICaptureTaskUpdateBegin(stream2_, group), 0);
  EXPECT_EQ(launch_kernel(stream2_, values_, ascend_sim::Unit::Vector), 0);
  EXPECT_EQ(aclmdlRICaptureTaskUpdateEnd(stream2_), 507000) << "one of two";
  EXPECT_NE(last_text().find("rule update-all-tasks"), std::string::npos);
  ASSERT_EQ(aclmdlRICaptureTaskUpdateBegin(stream2_, group), 0);
  for (const int code : {0, 0, 507000}) EXPECT_EQ(launch_kernel(stream2_, values_, ascend_sim::Unit::Vector), code);
  EXPECT_EQ(aclmdlRICaptureTaskUpdateEnd(stream2_), 0);
}

TEST_F(RtRules, OldFirmwareUpdatesMixedKernels) {
  start({{"FAULT", "old_firmware"}});
  for (const auto& [unit, code] :
       {std::pair{ascend_sim::Unit::Mixed, 0}, std::pair{ascend_sim::Unit::Vector, 207019}}) {
    aclrtTaskGrp group = nullptr;
    record_group(stream_, values_, unit, 1, &group);
    ASSERT_EQ(aclmdlRICaptureTaskUpdateBegin(stream2_, group), 0);
    EXPECT_EQ(launch_kernel(stream2_, values_, unit), code) << last_text();
    EXPECT_EQ(aclmdlRICaptureTaskUpdateEnd(stream2_), code == 0 ? 0 : 507000);
  }
}

// Two sets of the same operators in one process: the documents forbid it without naming a code.
TEST_F(RtRules, OneSetOfOperatorLibraries) {
  const std::string folder = library_folder();
  void* whole = dlopen((folder + "/libopapi.so").c_str(), RTLD_LAZY);
  ASSERT_NE(whole, nullptr) << dlerror();
  EXPECT_NE(dlsym(whole, "aclnnAddGetWorkspaceSize"), nullptr);
  EXPECT_EQ(aclInit(nullptr), 0) << last_text();
  EXPECT_EQ(aclFinalize(), 0);
  for (const char* name : {"/libopapi_math.so", "/libopapi_nn.so", "/libopapi_transformer.so"}) {
    void* part = dlopen((folder + name).c_str(), RTLD_LAZY);
    ASSERT_NE(part, nullptr) << dlerror();
    EXPECT_NE(dlsym(part, "aclnnAddGetWorkspaceSize"), nullptr);
    EXPECT_EQ(aclInit(nullptr), 100000) << name;
    EXPECT_NE(last_text().find("rule one-operator-library"), std::string::npos);
    dlclose(part);
  }
  EXPECT_EQ(aclInit(nullptr), 0) << last_text();
  EXPECT_EQ(aclFinalize(), 0);
  void* part = dlopen((folder + "/libopapi_nn.so").c_str(), RTLD_LAZY);
  dlclose(whole);
  EXPECT_EQ(aclInit(nullptr), 0) << "parts alone: " << last_text();
  dlclose(part);
}

// A symbol that CANN 8.1 has no header for is not in its library; all others are.
TEST_F(RtRules, TheOldLibraryLacksYoungSymbols) {
  void* old = dlopen((library_folder() + "/8.1/libascendcl.so").c_str(), RTLD_LAZY | RTLD_LOCAL);
  ASSERT_NE(old, nullptr) << dlerror();
  std::ifstream map(REPRISE_SOURCE_DIR "/sim/ascend/loaded/cann_8_1.map");
  int hidden = 0;
  for (std::string name; map >> name;) {
    if (name.rfind("acl", 0) != 0) continue;
    name.resize(name.find_first_of("*;"));  // of a pair of phases the second
    EXPECT_EQ(dlsym(old, name.c_str()), nullptr) << name;
    EXPECT_EQ(dlsym(old, (name + "GetWorkspaceSize").c_str()), nullptr) << name;
    EXPECT_NE(dlsym(RTLD_DEFAULT, name.c_str()), nullptr) << name;
    ++hidden;
  }
  EXPECT_EQ(hidden, 10 + 16 + 1) << "functions, operators, and phase 1 of the one whose name begins another's";
  for (const char* name : {"aclInit", "aclnnMoeGatingTopKSoftmaxV2", "aclnnGroupedMatmulV4GetWorkspaceSize",
                           "aclnnFusedInferAttentionScoreV3GetMaxWorkspaceSize", "HcclGetRootInfo"})
    EXPECT_NE(dlsym(old, name), nullptr) << name;
  const auto init = reinterpret_cast<decltype(&aclInit)>(dlsym(old, "aclInit"));
  const auto finalize = reinterpret_cast<decltype(&aclFinalize)>(dlsym(old, "aclFinalize"));
  const auto version = reinterpret_cast<decltype(&aclsysGetCANNVersion)>(dlsym(old, "aclsysGetCANNVersion"));
  ASSERT_NE(init, &aclInit) << "a library of its own";
  setenv("ASCEND_SIM_CANN", "9.1", 1);
  EXPECT_EQ(init(nullptr), 100000);
  unsetenv("ASCEND_SIM_CANN");
  ASSERT_EQ(init(nullptr), 0);
  aclCANNPackageVersion cann;
  EXPECT_EQ(version(ACL_PKG_NAME_CANN, &cann), 0);
  EXPECT_STREQ(cann.version, "8.1.RC1");
  EXPECT_EQ(finalize(), 0);
}

TEST_F(RtRules, VersionsTellTheirNumbers) {
  const std::pair<const char*, const char*> versions[] = {{"8.1", "8.1.RC1"}, {"8.5", "8.5.0"}, {"9.1", "9.1.0"}};
  for (const auto& [asked, told] : versions) {
    setenv("ASCEND_SIM_CANN", asked, 1);
    ASSERT_EQ(aclInit(nullptr), 0) << last_text();
    aclCANNPackageVersion version;
    EXPECT_EQ(aclsysGetCANNVersion(ACL_PKG_NAME_CANN, &version), 0);
    EXPECT_STREQ(version.version, told);
    ASSERT_EQ(aclFinalize(), 0);
  }
  unsetenv("ASCEND_SIM_CANN");
  ASSERT_EQ(aclInit(nullptr), 0);
  EXPECT_EQ(ascend_sim::machine().cann, ascend_sim::kNewest);
}

TEST_F(RtRules, AWaitMayBeRefused) {
  start({{"FAULT", "value_wait"}});
  EXPECT_EQ(aclrtValueWrite(values_, 1, 0, stream_), 0);
  EXPECT_EQ(aclrtValueWait(values_, 1, 1, stream_), 207000);
  EXPECT_NE(last_text().find("value_wait"), std::string::npos);
}

TEST_F(RtRules, AnOldDriverTellsItsVersion) {
  start({{"FAULT", "old_driver"}});
  aclCANNPackageVersion version;
  EXPECT_EQ(aclsysGetCANNVersion(ACL_PKG_NAME_DRIVER, &version), 0);
  EXPECT_STREQ(version.version, "24.1.RC2");
  aclrtTaskGrp group = nullptr;
  record_group(stream_, values_, ascend_sim::Unit::Mixed, 1, &group);
  EXPECT_EQ(aclmdlRICaptureTaskUpdateBegin(stream2_, group), 207000);
  EXPECT_NE(last_text().find("old_driver"), std::string::npos);
}

TEST_F(RtRules, AnotherChip) {
  start({{"FAULT", "wrong_chip"}});
  EXPECT_STREQ(aclrtGetSocName(), "Ascend310P3");
}

TEST_F(RtRules, DeviceFilesOfOthers) {
  setenv("ASCEND_SIM_FAULT", "no_permission", 1);
  ASSERT_EQ(aclInit(nullptr), 0);
  EXPECT_EQ(aclrtSetDevice(0), 507899);
}

TEST_F(RtRules, AnotherProcessHoldsTheMemory) {
  start({{"FAULT", "free:4194304"}});
  size_t free = 0, total = 0;
  EXPECT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), 0);
  EXPECT_EQ(total, 1073741824u);
  EXPECT_LE(free, 4194304u);
  void* block = nullptr;
  EXPECT_EQ(aclrtMalloc(&block, 8 << 20, ACL_MEM_MALLOC_HUGE_FIRST), 207001);
  EXPECT_EQ(aclrtMalloc(&block, 1 << 20, ACL_MEM_MALLOC_HUGE_FIRST), 0) << last_text();
}

TEST_F(RtRules, FaultsReachTheOperators) {
  start({{"FAULT", "refuse:aclnnAdd:3,no_kernels"}});
  EXPECT_EQ(ascend_sim::machine().refuses, "aclnnAdd");
  EXPECT_EQ(ascend_sim::machine().refuses_at, 3);
  EXPECT_FALSE(ascend_sim::machine().has_kernels);
}

// Tens of megabytes of workspace cost no time before they are touched.
TEST_F(RtRules, LargeBlocksAreLazy) {
  start({{"HBM_BYTES", "68719476736"}});
  const std::clock_t begin = std::clock();
  for (int i = 0; i < 20; ++i) {
    void* block = nullptr;
    ASSERT_EQ(aclrtMalloc(&block, size_t{256} << 20, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    ASSERT_EQ(aclrtFree(block), 0);
  }
  // Five gigabytes that are touched take more than a second of a processor.
  EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC / 2);
}

}  // namespace

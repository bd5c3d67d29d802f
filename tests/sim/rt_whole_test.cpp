// Both halves of the simulator together: the library as a loader finds it, and an attention operator whose host lengths
// change at every replay of one graph.
#include <dlfcn.h>

#include <cmath>
#include <cstring>

#include "ascend/ops/acl_op.h"
#include "sim/rt_support.h"

using namespace sim_test;

namespace {

// The folder of the library that this program is linked with.
std::string linked_folder() {
  Dl_info info;
  EXPECT_NE(dladdr(reinterpret_cast<void*>(&aclInit), &info), 0);
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/'));
}

TEST(RtLibrary, EveryNameLeadsToTheSymbols) {
  const struct {
    const char* library;
    std::vector<const char*> symbols;
  } libraries[] = {
      {"libascendcl.so",
       {"aclInit",
        "aclFinalize",
        "aclGetRecentErrMsg",
        "aclsysGetCANNVersion",
        "aclsysGetVersionStr",
        "aclrtGetSocName",
        "aclrtGetDeviceCount",
        "aclrtSetDevice",
        "aclrtResetDevice",
        "aclrtGetMemInfo",
        "aclGetDeviceCapability",
        "aclrtGetCurrentContext",
        "aclrtSetCurrentContext",
        "aclrtSetSysParamOpt",
        "aclrtCreateStreamWithConfig",
        "aclrtDestroyStreamForce",
        "aclrtSynchronizeStream",
        "aclrtSynchronizeStreamWithTimeout",
        "aclrtStreamQuery",
        "aclrtSetStreamFailureMode",
        "aclrtSynchronizeDevice",
        "aclrtCreateEventExWithFlag",
        "aclrtCreateEventWithFlag",
        "aclrtDestroyEvent",
        "aclrtRecordEvent",
        "aclrtStreamWaitEvent",
        "aclrtResetEvent",
        "aclrtQueryEventStatus",
        "aclrtSynchronizeEvent",
        "aclrtEventElapsedTime",
        "aclrtMalloc",
        "aclrtFree",
        "aclrtMallocHost",
        "aclrtFreeHost",
        "aclrtMemcpy",
        "aclrtMemcpyAsync",
        "aclrtMemsetAsync",
        "aclrtLaunchHostFunc",
        "aclrtSubscribeReport",
        "aclrtUnSubscribeReport",
        "aclrtProcessReport",
        "aclrtLaunchCallback",
        "aclrtValueWait",
        "aclrtValueWrite",
        "aclrtReserveMemAddress",
        "aclrtReleaseMemAddress",
        "aclrtMallocPhysical",
        "aclrtFreePhysical",
        "aclrtMapMem",
        "aclrtUnmapMem",
        "aclrtMemGetAllocationGranularity",
        "aclmdlRICaptureBegin",
        "aclmdlRICaptureGetInfo",
        "aclmdlRICaptureEnd",
        "aclmdlRICaptureThreadExchangeMode",
        "aclmdlRICaptureTaskGrpBegin",
        "aclmdlRICaptureTaskGrpEnd",
        "aclmdlRICaptureTaskUpdateBegin",
        "aclmdlRICaptureTaskUpdateEnd",
        "aclmdlRIExecuteAsync",
        "aclmdlRIExecute",
        "aclmdlRIDestroy",
        "aclmdlRIDebugPrint",
        "aclmdlRIDebugJsonPrint"}},
      {"libnnopbase.so", {"aclCreateTensor", "aclSetAclOpExecutorRepeatable"}},
      {"libopapi.so", {"aclnnMatmulGetWorkspaceSize", "aclnnMatmul"}},
  };
  for (const auto& library : libraries) {
    const std::string path = linked_folder() + "/" + library.library;
    void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_GLOBAL);
    ASSERT_NE(handle, nullptr) << dlerror();
    for (const char* symbol : library.symbols) EXPECT_NE(dlsym(handle, symbol), nullptr) << symbol;
    EXPECT_EQ(dlsym(handle, "aclInit"), reinterpret_cast<void*>(&aclInit)) << "one library under each name";
    dlclose(handle);
  }
}

constexpr int64_t kRequests = 2, kHeads = 2, kWidth = 128, kPage = 128, kPages = 3, kRows = kPages * kPage;

uint16_t to_bf16(float value) {  // bf16, cut: the numbers of this test have few bits
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}
float from_bf16(uint16_t bf16) {
  const uint32_t bits = static_cast<uint32_t>(bf16) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Two requests of one new token each, with pages of keys and values; one head of those for two of the queries.
class RtWhole : public Runtime {
 protected:
  static constexpr aclDataType kBf16 = 27, kInt32 = 3;
  static constexpr aclFormat kPlain = 2;

  void* upload(const void* data, size_t bytes) {
    void* block = nullptr;
    EXPECT_EQ(aclrtMalloc(&block, bytes, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    EXPECT_EQ(aclrtMemcpy(block, bytes, data, bytes, ACL_MEMCPY_HOST_TO_DEVICE), 0) << last_text();
    return block;
  }
  aclTensor* tensor(void* data, const std::vector<int64_t>& shape, aclDataType dtype = kBf16) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    return aclCreateTensor(shape.data(), shape.size(), dtype, nullptr, 0, kPlain, &count, 1, data);
  }

  void SetUp() override {
    Runtime::SetUp();
    start({{"JITTER", "2"}, {"RACES", "1"}});
    const auto number = [](int64_t i) { return static_cast<float>((i * 37 + i / 11) % 17 - 8) / 16; };
    for (int64_t i = 0; i < kRequests * kHeads * kWidth; ++i) query_.push_back(to_bf16(number(i)));
    for (int64_t i = 0; i < kRequests * kRows * kWidth; ++i) {
      keys_.push_back(to_bf16(number(i + 5)));
      cached_.push_back(to_bf16(number(i * 3 + 1)));
    }
    std::vector<int32_t> table(kRequests * kPages);
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
    q_ = upload(query_.data(), query_.size() * 2);
    k_ = upload(keys_.data(), keys_.size() * 2);
    v_ = upload(cached_.data(), cached_.size() * 2);
    table_ = upload(table.data(), table.size() * 4);
    out_ = upload(query_.data(), query_.size() * 2);
  }

  // Both phases of one decode attention; in phase 2 the workspace of the longest lengths.
  int attend(aclrtStream stream, const std::vector<int64_t>& lengths) {
    aclTensor* query = tensor(q_, {kRequests, 1, kHeads, kWidth});
    aclTensor* out = tensor(out_, {kRequests, 1, kHeads, kWidth});
    aclTensor* unused = tensor(nullptr, {0}, 0);
    aclTensor* table = tensor(table_, {kRequests, kPages}, kInt32);
    aclTensor* key = tensor(k_, {kRequests * kPages, kPage, kWidth});
    aclTensor* value = tensor(v_, {kRequests * kPages, kPage, kWidth});
    aclTensorList* keys = aclCreateTensorList(&key, 1);
    aclTensorList* values = aclCreateTensorList(&value, 1);
    aclIntArray* kv_lengths = aclCreateIntArray(lengths.data(), lengths.size());
    char layout[] = "BSND";
    const auto phase1 = [&](auto function, uint64_t* bytes, aclOpExecutor** executor) {
      return function(query, keys, values, nullptr, nullptr, nullptr, kv_lengths, nullptr, nullptr, nullptr, nullptr,
                      nullptr, nullptr, nullptr, table, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                      nullptr, nullptr, nullptr, nullptr, nullptr, kHeads, 1 / std::sqrt(double{kWidth}), 2147483647, 0,
                      layout, 1, 0, 0, kPage, 0, false, 0, 0, out, unused, bytes, executor);
    };
    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    if (workspace_ == nullptr) {
      EXPECT_EQ(phase1(aclnnFusedInferAttentionScoreV3GetMaxWorkspaceSize, &bytes_, &executor), 0) << last_text();
      EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
      EXPECT_EQ(aclrtMalloc(&workspace_, bytes_ + 1, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    }
    int code = phase1(aclnnFusedInferAttentionScoreV3GetWorkspaceSize, &bytes, &executor);
    EXPECT_LE(bytes, bytes_);
    if (code == 0) code = aclnnFusedInferAttentionScoreV3(workspace_, bytes_, executor, stream);
    aclDestroyTensor(query);
    aclDestroyTensor(out);
    aclDestroyTensor(unused);
    aclDestroyTensor(table);
    aclDestroyTensorList(keys);
    aclDestroyTensorList(values);
    aclDestroyIntArray(kv_lengths);
    return code;
  }

  std::vector<uint16_t> result() {
    std::vector<uint16_t> bits(query_.size());
    EXPECT_EQ(aclrtMemcpy(bits.data(), bits.size() * 2, out_, bits.size() * 2, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    return bits;
  }

  // In double.
  std::vector<double> wanted(const std::vector<int64_t>& lengths) const {
    std::vector<double> all;
    for (int64_t r = 0; r < kRequests; ++r) {
      for (int64_t h = 0; h < kHeads; ++h) {
        std::vector<double> sums(kWidth, 0);
        double total = 0;
        for (int64_t j = 0; j < lengths[r]; ++j) {
          double dot = 0;
          for (int64_t d = 0; d < kWidth; ++d) {
            dot += from_bf16(query_[(r * kHeads + h) * kWidth + d]) * from_bf16(keys_[(r * kRows + j) * kWidth + d]);
          }
          const double weight = std::exp(dot / std::sqrt(double{kWidth}));
          total += weight;
          for (int64_t d = 0; d < kWidth; ++d) sums[d] += weight * from_bf16(cached_[(r * kRows + j) * kWidth + d]);
        }
        for (const double sum : sums) all.push_back(sum / total);
      }
    }
    return all;
  }

  std::vector<uint16_t> query_, keys_, cached_;
  void *q_ = nullptr, *k_ = nullptr, *v_ = nullptr, *table_ = nullptr, *out_ = nullptr, *workspace_ = nullptr;
  uint64_t bytes_ = 0;
};

TEST_F(RtWhole, LengthsChangeAtEveryReplay) {
  aclrtTaskGrp group = nullptr;
  const aclmdlRI graph = capture([&] {
    ASSERT_EQ(aclmdlRICaptureTaskGrpBegin(stream_), 0);
    ASSERT_EQ(attend(stream_, {1, 1}), 0) << last_text();
    ASSERT_EQ(aclmdlRICaptureTaskGrpEnd(stream_, &group), 0);
  });
  const aclrtEvent updated = new_event();
  std::vector<uint16_t> before;
  for (int step = 0; step < 12; ++step) {
    const std::vector<int64_t> lengths = {1 + step * 31, kRows - step * 17};
    ASSERT_EQ(attend(stream_, lengths), 0) << last_text();
    ASSERT_EQ(aclrtSynchronizeStream(stream_), 0) << last_text();
    const std::vector<uint16_t> eager = result();
    ASSERT_EQ(aclrtMemset(out_, eager.size() * 2, 0xFF, eager.size() * 2), 0);

    ASSERT_EQ(aclmdlRICaptureTaskUpdateBegin(stream2_, group), 0) << last_text();
    ASSERT_EQ(attend(stream2_, lengths), 0) << last_text();
    ASSERT_EQ(aclmdlRICaptureTaskUpdateEnd(stream2_), 0) << last_text();
    ASSERT_EQ(aclrtRecordEvent(updated, stream2_), 0);
    ASSERT_EQ(aclrtStreamWaitEvent(stream_, updated), 0);
    ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
    ASSERT_EQ(aclrtSynchronizeStream(stream_), 0) << last_text();
    const std::vector<uint16_t> replayed = result();
    EXPECT_EQ(replayed, eager) << "bit for bit, step " << step;
    EXPECT_NE(replayed, before) << "the lengths matter";
    before = replayed;
    const std::vector<double> want = wanted(lengths);
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(from_bf16(replayed[i]), want[i], 4e-3) << step << " " << i;
  }
  EXPECT_EQ(stat("graphs"), 1) << "one capture";
}

TEST_F(RtWhole, UpdatesCostTheHostLessThanNewShapes) {
  // In a thread of its own, whose cache of first phases is empty.
  std::thread([&] {
    ASSERT_EQ(aclrtSetDevice(0), 0);
    aclrtTaskGrp group = nullptr;
    double cold = ascendSimHostMicros();
    ASSERT_EQ(attend(stream_, {7, 9}), 0) << last_text();
    cold = ascendSimHostMicros() - cold;
    capture([&] {
      ASSERT_EQ(aclmdlRICaptureTaskGrpBegin(stream_), 0);
      ASSERT_EQ(attend(stream_, {1, 1}), 0);
      ASSERT_EQ(aclmdlRICaptureTaskGrpEnd(stream_, &group), 0);
    });
    double update = ascendSimHostMicros();
    ASSERT_EQ(aclmdlRICaptureTaskUpdateBegin(stream2_, group), 0);
    ASSERT_EQ(attend(stream2_, {8, 10}), 0);
    ASSERT_EQ(aclmdlRICaptureTaskUpdateEnd(stream2_), 0);
    update = ascendSimHostMicros() - update;
    EXPECT_NEAR(update, 20 + 6, 2);
    EXPECT_GT(cold, 60);
  }).join();
}

TEST_F(RtWhole, AStalePoolFaultsAtTheReplay) {
  const aclmdlRI graph = capture([&] { ASSERT_EQ(attend(stream_, {200, 300}), 0) << last_text(); });
  ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0) << last_text();
  ASSERT_EQ(aclrtFree(k_), 0);
  ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 507015);
  EXPECT_NE(last_text().find("aclnnFusedInferAttentionScoreV3"), std::string::npos);
}

}  // namespace

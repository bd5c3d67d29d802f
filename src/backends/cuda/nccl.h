// Nccl: NVIDIA's library that exchanges data between GPUs, opened at run time where it is installed; nothing is linked.
//
// The declarations are what Reprise uses of the library's public header (nccl.h of 2.14 and later, which keep them).
// Immutable once opened; its functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

struct CUstream_st;

namespace reprise::cuda {

using NcclComm = struct ncclComm*;

// ncclUniqueId: NCCL_UNIQUE_ID_BYTES.
struct NcclId {
  char internal[128];
};

// ncclConfig_t as 2.14 has it. Later libraries go by `version`, and take their own defaults for what came after it.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  uint32_t magic = 0xcafebeef;
  uint32_t version = 21400;
  int blocking = 1;
  int unused = INT32_MIN;  // NCCL_CONFIG_UNDEF_INT
};
static_assert(sizeof(NcclConfig) == 24);

// ncclResult_t, ncclDataType_t, ncclRedOp_t.
constexpr int kNcclSuccess = 0, kNcclInvalidUsage = 5, kNcclInProgress = 7;
constexpr int kNcclUint8 = 1, kNcclInt32 = 2;
constexpr int kNcclSum = 0;

// NEEDED and OPTIONAL (name, result, arguments).
#define REPRISE_NCCL_FUNCTIONS(NEEDED, OPTIONAL)                                             \
  NEEDED(ncclGetVersion, int, (int*))                                                        \
  NEEDED(ncclGetUniqueId, int, (NcclId*))                                                    \
  NEEDED(ncclCommInitRankConfig, int, (NcclComm*, int, NcclId, int, NcclConfig*))            \
  NEEDED(ncclCommDestroy, int, (NcclComm))                                                   \
  NEEDED(ncclCommAbort, int, (NcclComm))                                                     \
  NEEDED(ncclCommGetAsyncError, int, (NcclComm, int*))                                       \
  NEEDED(ncclGetErrorString, const char*, (int))                                             \
  NEEDED(ncclGroupStart, int, ())                                                            \
  NEEDED(ncclGroupEnd, int, ())                                                              \
  NEEDED(ncclSend, int, (const void*, size_t, int, int, NcclComm, CUstream_st*))             \
  NEEDED(ncclRecv, int, (void*, size_t, int, int, NcclComm, CUstream_st*))                   \
  NEEDED(ncclAllGather, int, (const void*, void*, size_t, int, NcclComm, CUstream_st*))      \
  NEEDED(ncclAllReduce, int, (const void*, void*, size_t, int, int, NcclComm, CUstream_st*)) \
  OPTIONAL(ncclGetLastError, const char*, (NcclComm)) /* 2.13 */

class Nccl {
 public:
  // `path` empty: where the system finds it.
  static Result<std::shared_ptr<const Nccl>> open(const std::string& path = "");
  const std::string& version() const { return version_; }
  // What the library says of a call that failed, in the thread that called.
  std::string words_of(int code) const;

#define REPRISE_NCCL_MEMBER(name, result, arguments) result(*name) arguments = nullptr;
  REPRISE_NCCL_FUNCTIONS(REPRISE_NCCL_MEMBER, REPRISE_NCCL_MEMBER)
#undef REPRISE_NCCL_MEMBER

 private:
  Nccl() = default;
  std::string version_;
};

}  // namespace reprise::cuda

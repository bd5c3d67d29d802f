// Library: CANN's shared libraries, opened at run time, and the functions found in them.
//
// One is shared by all devices of a process that name the same runtime; the last of them finalises it. What is not
// there is known by name: a missing required function is an error that lists all of them, a missing optional one is a
// null pointer, and operators are asked for when a kernel is chosen. Read-only after open(); usable from any thread,
// but a thread must attach() to the device before it calls the runtime.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/ascend/acl.h"
#include "backends/ascend/collectives.h"
#include "base/status.h"

namespace reprise::ascend {

// The runtime's functions: REQUIRED(name, result, arguments) and OPTIONAL likewise.
#define REPRISE_ACL_FUNCTIONS(REQUIRED, OPTIONAL)                                                                  \
  REQUIRED(aclInit, aclError, (const char*))                                                                       \
  REQUIRED(aclFinalize, aclError, ())                                                                              \
  REQUIRED(aclGetRecentErrMsg, const char*, ())                                                                    \
  REQUIRED(aclrtGetSocName, const char*, ())                                                                       \
  REQUIRED(aclrtGetDeviceCount, aclError, (uint32_t*))                                                             \
  REQUIRED(aclrtSetDevice, aclError, (int32_t))                                                                    \
  REQUIRED(aclrtResetDevice, aclError, (int32_t))                                                                  \
  REQUIRED(aclrtGetMemInfo, aclError, (int32_t, size_t*, size_t*))                                                 \
  REQUIRED(aclrtGetCurrentContext, aclError, (aclrtContext*))                                                      \
  REQUIRED(aclrtSetCurrentContext, aclError, (aclrtContext))                                                       \
  REQUIRED(aclrtCreateStreamWithConfig, aclError, (aclrtStream*, uint32_t, uint32_t))                              \
  REQUIRED(aclrtDestroyStreamForce, aclError, (aclrtStream))                                                       \
  REQUIRED(aclrtSynchronizeStream, aclError, (aclrtStream))                                                        \
  REQUIRED(aclrtSynchronizeStreamWithTimeout, aclError, (aclrtStream, int32_t))                                    \
  REQUIRED(aclrtSetStreamFailureMode, aclError, (aclrtStream, uint64_t))                                           \
  REQUIRED(aclrtCreateEventExWithFlag, aclError, (aclrtEvent*, uint32_t))                                          \
  REQUIRED(aclrtDestroyEvent, aclError, (aclrtEvent))                                                              \
  REQUIRED(aclrtRecordEvent, aclError, (aclrtEvent, aclrtStream))                                                  \
  REQUIRED(aclrtStreamWaitEvent, aclError, (aclrtStream, aclrtEvent))                                              \
  REQUIRED(aclrtSynchronizeEventWithTimeout, aclError, (aclrtEvent, int32_t))                                      \
  REQUIRED(aclrtEventElapsedTime, aclError, (float*, aclrtEvent, aclrtEvent))                                      \
  REQUIRED(aclrtMalloc, aclError, (void**, size_t, int32_t))                                                       \
  REQUIRED(aclrtFree, aclError, (void*))                                                                           \
  REQUIRED(aclrtMallocHost, aclError, (void**, size_t))                                                            \
  REQUIRED(aclrtFreeHost, aclError, (void*))                                                                       \
  REQUIRED(aclrtMemcpyAsync, aclError, (void*, size_t, const void*, size_t, int32_t, aclrtStream))                 \
  REQUIRED(aclrtMemsetAsync, aclError, (void*, size_t, int32_t, size_t, aclrtStream))                              \
  REQUIRED(aclmdlRICaptureBegin, aclError, (aclrtStream, int32_t))                                                 \
  REQUIRED(aclmdlRICaptureGetInfo, aclError, (aclrtStream, int32_t*, aclmdlRI*))                                   \
  REQUIRED(aclmdlRICaptureEnd, aclError, (aclrtStream, aclmdlRI*))                                                 \
  REQUIRED(aclmdlRICaptureTaskGrpBegin, aclError, (aclrtStream))                                                   \
  REQUIRED(aclmdlRICaptureTaskGrpEnd, aclError, (aclrtStream, aclrtTaskGrp*))                                      \
  REQUIRED(aclmdlRICaptureTaskUpdateBegin, aclError, (aclrtStream, aclrtTaskGrp))                                  \
  REQUIRED(aclmdlRICaptureTaskUpdateEnd, aclError, (aclrtStream))                                                  \
  REQUIRED(aclmdlRIExecuteAsync, aclError, (aclmdlRI, aclrtStream))                                                \
  REQUIRED(aclmdlRIDestroy, aclError, (aclmdlRI))                                                                  \
  REQUIRED(aclCreateTensor, aclTensor*,                                                                            \
           (const int64_t*, uint64_t, int32_t, const int64_t*, int64_t, int32_t, const int64_t*, uint64_t, void*)) \
  REQUIRED(aclCreateScalar, aclScalar*, (void*, int32_t))                                                          \
  REQUIRED(aclCreateIntArray, aclIntArray*, (const int64_t*, uint64_t))                                            \
  REQUIRED(aclCreateTensorList, aclTensorList*, (const aclTensor* const*, uint64_t))                               \
  REQUIRED(aclDestroyTensor, aclnnStatus, (const aclTensor*))                                                      \
  REQUIRED(aclDestroyScalar, aclnnStatus, (const aclScalar*))                                                      \
  REQUIRED(aclDestroyIntArray, aclnnStatus, (const aclIntArray*))                                                  \
  REQUIRED(aclDestroyTensorList, aclnnStatus, (const aclTensorList*))                                              \
  REQUIRED(aclDestroyAclOpExecutor, aclnnStatus, (aclOpExecutor*))                                                 \
  OPTIONAL(aclSetAclOpExecutorRepeatable, aclnnStatus, (aclOpExecutor*))                                           \
  OPTIONAL(aclsysGetCANNVersion, aclError, (int32_t, CannVersion*))                                                \
  OPTIONAL(aclrtSetSysParamOpt, aclError, (int32_t, int64_t))                                                      \
  OPTIONAL(aclrtGetStreamAvailableNum, aclError, (uint32_t*))                                                      \
  OPTIONAL(aclrtCmoAsync, aclError, (void*, size_t, int32_t, aclrtStream))                                         \
  OPTIONAL(aclGetDeviceCapability, aclError, (uint32_t, int32_t, int64_t*))                                        \
  OPTIONAL(aclrtValueWait, aclError, (void*, uint64_t, uint32_t, aclrtStream))                                     \
  OPTIONAL(aclrtValueWrite, aclError, (void*, uint64_t, uint32_t, aclrtStream))                                    \
  /* Only the simulator has these: the calling thread's modelled host time, and what the model assumes. */         \
  OPTIONAL(ascendSimHostMicros, double, ())                                                                        \
  OPTIONAL(ascendSimHostAdvanceTo, void, (double))                                                                 \
  OPTIONAL(ascendSimAssumptions, const char*, ())                                                                  \
  OPTIONAL(ascendSimComputes, int32_t, ())

class Library {
 public:
  // `runtime`: "system" (the loader's search path and ASCEND_HOME_PATH/lib64) or "sim" (the simulator's folder next to
  // the binary, or REPRISE_ASCEND_SIM_DIR). The error names what was not found, where it was looked for, and the way
  // out.
  static Result<std::shared_ptr<const Library>> open(const std::string& runtime);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

#define REPRISE_ACL_MEMBER(name, result, arguments) result(*name) arguments = nullptr;
  REPRISE_ACL_FUNCTIONS(REPRISE_ACL_MEMBER, REPRISE_ACL_MEMBER)
#undef REPRISE_ACL_MEMBER

  // Any symbol of any of the libraries; null where none has it.
  void* symbol(const std::string& name) const;
  bool simulated() const { return ascendSimHostMicros != nullptr; }
  bool computes() const { return !ascendSimComputes || ascendSimComputes() != 0; }  // a simulator may be asked not to
  const std::string& version() const { return version_; }  // of CANN, "unknown" where it does not tell
  const std::string& driver() const { return driver_; }    // its version, likewise
  const Collectives& collectives() const { return collectives_; }
  // Versions, paths and missing optional functions, a line each.
  const std::vector<std::string>& report() const { return report_; }

  // Ok, or the call's purpose, the code in words, the runtime's own text and the remedy.
  Status check(int code, std::string_view what) const;

 private:
  Library() = default;
  Status load(const std::string& runtime);

  std::vector<void*> handles_;
  Collectives collectives_;
  std::vector<std::string> report_;
  std::string version_ = "unknown", driver_ = "unknown";
  bool initialised_ = false;
};

// What a function or an operator is there for and what happens without it; for those that may be missing. "attention"
// of "aclnnFusedInferAttentionScoreV3".
std::string purpose_of(std::string_view symbol);

// The code in words, and what to do about it: "out of device memory (207001); ...".
std::string error_text(int code);
// After such a code nothing on the device goes on: what it computed since the last good synchronisation is worth
// nothing, and its streams are stuck or stopped.
bool loses_device(int code);

}  // namespace reprise::ascend

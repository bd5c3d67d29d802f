// The part of CANN's C interface that this backend calls: types, values and prototypes, written from its documentation.
//
// No vendor header is needed to build: every function is looked up by name at run time (library.h). Handles are opaque
// pointers; enumerations travel as int32_t, which is what the C ABI passes. Strides and offsets of tensors count
// elements.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reprise::ascend {

using aclError = int;
using aclnnStatus = int32_t;
using aclrtContext = void*;
using aclrtStream = void*;
using aclrtEvent = void*;
using aclrtTaskGrp = void*;
using aclmdlRI = void*;

struct aclTensor;
struct aclScalar;
struct aclIntArray;
struct aclBoolArray;
struct aclTensorList;
struct aclOpExecutor;

// aclDataType.
enum AclType : int32_t {
  ACL_FLOAT = 0,
  ACL_FLOAT16 = 1,
  ACL_INT8 = 2,
  ACL_INT32 = 3,
  ACL_UINT8 = 4,
  ACL_INT16 = 6,
  ACL_INT64 = 9,
  ACL_UINT64 = 10,
  ACL_DOUBLE = 11,
  ACL_BOOL = 12,
  ACL_BF16 = 27,
};

// aclFormat.
constexpr int32_t ACL_FORMAT_ND = 2;
constexpr int32_t ACL_FORMAT_FRACTAL_NZ = 29;

constexpr aclError ACL_SUCCESS = 0;
constexpr aclError ACL_ERROR_REPEAT_INITIALIZE = 100002;
constexpr aclError ACL_ERROR_RT_MEMORY_ALLOCATION = 207001;
constexpr aclError ACL_ERROR_RT_STREAM_SYNC_TIMEOUT = 507046;
constexpr aclError ACL_ERROR_RT_EVENT_SYNC_TIMEOUT = 507047;

constexpr int32_t ACL_MEM_MALLOC_HUGE_FIRST = 0;
constexpr int32_t ACL_MEMCPY_HOST_TO_DEVICE = 1;
constexpr int32_t ACL_MEMCPY_DEVICE_TO_HOST = 2;
constexpr int32_t ACL_MEMCPY_DEVICE_TO_DEVICE = 3;
constexpr uint32_t ACL_STREAM_FAST_LAUNCH = 1;
constexpr uint32_t ACL_STREAM_FAST_SYNC = 2;
constexpr uint32_t ACL_EVENT_SYNC = 1;
constexpr uint32_t ACL_EVENT_TIME_LINE = 8;
constexpr int32_t ACL_HBM_MEM = 1;
constexpr int32_t ACL_DEVICE_INFO_L2_SIZE = 2;
constexpr int32_t ACL_RT_CMO_TYPE_PREFETCH = 0;
constexpr int32_t ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL = 1;
constexpr int32_t ACL_MODEL_RI_CAPTURE_MODE_RELAXED = 2;
constexpr int32_t ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE = 1;
constexpr uint32_t ACL_STREAM_WAIT_VALUE_EQ = 1;

// aclCANNPackageVersion.
struct CannVersion {
  char version[128];
  char major[64], minor[64], release[64], patch[64];
  char reserved[128];
};
constexpr int32_t ACL_PKG_NAME_CANN = 0;
constexpr int32_t ACL_PKG_NAME_HCCL = 3;
constexpr int32_t ACL_PKG_NAME_DRIVER = 7;

}  // namespace reprise::ascend

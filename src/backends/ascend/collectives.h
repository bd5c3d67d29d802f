// Collectives: the functions of HCCL, which exchanges data between devices.
//
// They are looked up in every process, so that a report can say what an installation lacks before it is needed; a world
// of several ranks calls them (communicator.h). The newest CANN has communicators in a library of their own. Read-only
// after find().
#pragma once

#include <string>
#include <vector>

#include "backends/ascend/acl.h"

namespace reprise::ascend {

using HcclComm = void*;
struct HcclRootInfo {
  char internal[4108];
};

// OPTIONAL(name, result, arguments); types, reductions and results are int32_t.
#define REPRISE_HCCL_FUNCTIONS(OPTIONAL)                                                                              \
  OPTIONAL(HcclGetRootInfo, int32_t, (HcclRootInfo*))                                                                 \
  OPTIONAL(HcclCommInitRootInfo, int32_t, (uint32_t, const HcclRootInfo*, uint32_t, HcclComm*))                       \
  OPTIONAL(HcclCommDestroy, int32_t, (HcclComm))                                                                      \
  OPTIONAL(HcclGetCommName, int32_t, (HcclComm, char*))                                                               \
  OPTIONAL(HcclGetRankSize, int32_t, (HcclComm, uint32_t*))                                                           \
  OPTIONAL(HcclGetRankId, int32_t, (HcclComm, uint32_t*))                                                             \
  OPTIONAL(HcclGetCommAsyncError, int32_t, (HcclComm, int32_t*))                                                      \
  OPTIONAL(HcclGetErrorString, const char*, (int32_t))                                                                \
  OPTIONAL(HcclAllReduce, int32_t, (void*, void*, uint64_t, int32_t, int32_t, HcclComm, aclrtStream))                 \
  OPTIONAL(HcclBroadcast, int32_t, (void*, uint64_t, int32_t, uint32_t, HcclComm, aclrtStream))                       \
  OPTIONAL(HcclReduceScatter, int32_t, (void*, void*, uint64_t, int32_t, int32_t, HcclComm, aclrtStream))             \
  OPTIONAL(HcclAllGather, int32_t, (void*, void*, uint64_t, int32_t, HcclComm, aclrtStream))                          \
  OPTIONAL(HcclAlltoAll, int32_t,                                                                                     \
           (const void*, uint64_t, int32_t, const void*, uint64_t, int32_t, HcclComm, aclrtStream))                   \
  OPTIONAL(HcclAlltoAllV, int32_t,                                                                                    \
           (const void*, const void*, const void*, int32_t, const void*, const void*, const void*, int32_t, HcclComm, \
            aclrtStream))

class Library;

struct Collectives {
#define REPRISE_HCCL_MEMBER(name, result, arguments) result(*name) arguments = nullptr;
  REPRISE_HCCL_FUNCTIONS(REPRISE_HCCL_MEMBER)
#undef REPRISE_HCCL_MEMBER

  void find(const Library& library);
  // By name; all of them before find().
  std::vector<std::string> missing() const;
  // For people, a line each: the version or that there is none, and what is missing.
  std::vector<std::string> report(const std::string& version) const;
};

}  // namespace reprise::ascend

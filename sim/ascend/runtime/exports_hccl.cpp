// Collectives of one rank: each is a copy in the order of its stream, which captures record like any other.
//
// What several ranks would add (rendezvous, waiting for each other, streams of the library's own) is not simulated, and
// a communicator of more than one rank is refused.
#include <array>
#include <cstring>

#include "ascend/runtime/hccl.h"
#include "ascend/runtime/stream.h"

using namespace ascend_sim;

namespace {

const double kAsk = rate(Rate::HostCall);
const double kQueue = rate(Rate::HostAsyncCopy);

constexpr char kMark[] = "ascend-sim root";
constexpr size_t kNameRoom = 128;
constexpr size_t kBuffers = size_t{400} << 20;  // two of hcclBufferSize's default

// Codes of the runtime are not the library's own.
HcclResult hccl(const char* name, double host_micros, const std::function<int(World&, Lock&)>& body) {
  const int code = api(name, host_micros, body);
  return code >= kInvalidParam ? HCCL_E_RUNTIME : static_cast<HcclResult>(code);
}

int null_argument(const char* which) { return refuse(HCCL_E_PTR, std::string(which) + " is null"); }

int find_communicator(const World& world, HcclComm handle, const Communicator** found) {
  if (handle == nullptr) return null_argument("comm");
  auto it = world.communicators.find(handle);
  if (it == world.communicators.end()) return refuse(HCCL_E_PARA, "not a communicator, or one that was destroyed");
  *found = &it->second;
  return 0;
}

int check_type(HcclDataType type, size_t* bytes) {
  constexpr std::array<size_t, 12> kBytes{1, 2, 4, 2, 4, 8, 8, 1, 2, 4, 8, 2};
  const auto i = static_cast<size_t>(type);
  if (i >= kBytes.size())
    return refuse(HCCL_E_NOT_SUPPORT, "the data type is " + std::to_string(i) + "; simulated: 0 to 11");
  *bytes = kBytes[i];
  return 0;
}

// What A2 and A3 reduce.
int check_reduction(HcclDataType type, HcclReduceOp op) {
  if (op < HCCL_REDUCE_SUM || op > HCCL_REDUCE_MIN)
    return refuse(HCCL_E_PARA, "the reduction is " + std::to_string(op) + "; allowed: 0 to 3");
  const bool whole = type == HCCL_DATA_TYPE_INT8 || type == HCCL_DATA_TYPE_INT16 || type == HCCL_DATA_TYPE_INT32 ||
                     type == HCCL_DATA_TYPE_INT64;
  const bool real = type == HCCL_DATA_TYPE_FP16 || type == HCCL_DATA_TYPE_FP32 || type == HCCL_DATA_TYPE_BFP16;
  if (!whole && !real)
    return refuse(HCCL_E_NOT_SUPPORT, "the data type is " + std::to_string(type) +
                                          "; reduced are int8, int16, int32, int64, fp16, fp32 and bf16");
  if (op == HCCL_REDUCE_PROD && (type == HCCL_DATA_TYPE_INT16 || type == HCCL_DATA_TYPE_BFP16))
    return refuse(HCCL_E_NOT_SUPPORT, "there are no products of int16 and bf16");
  return 0;
}

struct Part {
  const void* at = nullptr;
  uint64_t first = 0, count = 0;  // elements
  HcclDataType type = HCCL_DATA_TYPE_INT8;
};

int collect(World& world, Lock& lock, const Part& from, const Part& to, HcclComm comm, aclrtStream stream) {
  if (from.at == nullptr) return null_argument("the buffer to send");
  if (to.at == nullptr) return null_argument("the buffer to receive");
  const Communicator* known = nullptr;
  ASCEND_SIM_TRY(find_communicator(world, comm, &known));
  size_t bytes = 0;
  ASCEND_SIM_TRY(check_type(from.type, &bytes));
  if (from.type != to.type || from.count != to.count)
    return refuse(HCCL_E_PARA, "what the only rank sends it receives: count and type must be the same");
  std::shared_ptr<Stream> found;
  ASCEND_SIM_TRY(find_stream(world, stream, &found));
  if (found->context->device != known->device)
    return refuse(HCCL_E_PARA, "the stream belongs to device " + std::to_string(found->context->device) +
                                   ", the communicator to " + std::to_string(known->device));
  if (from.count == 0) return 0;
  const auto place = [&](const Part& p) {
    return const_cast<uint8_t*>(static_cast<const uint8_t*>(p.at)) + p.first * bytes;
  };
  return submit(world, lock, found, Task{CopyTask{place(to), place(from), from.count * bytes}, 0});
}

}  // namespace

HcclResult HcclGetRootInfo(HcclRootInfo* rootInfo) {
  return hccl("HcclGetRootInfo", kAsk, [&](World&, Lock&) {
    if (rootInfo == nullptr) return null_argument("rootInfo");
    *rootInfo = {};
    std::memcpy(rootInfo->internal, kMark, sizeof kMark);
    return 0;
  });
}

HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank, HcclComm* comm) {
  return hccl("HcclCommInitRootInfo", rate(Rate::HostCreate), [&](World& world, Lock&) -> int {
    if (rootInfo == nullptr) return null_argument("rootInfo");
    if (comm == nullptr) return null_argument("comm");
    if (nRanks == 0 || rank >= nRanks)
      return refuse(HCCL_E_PARA, "rank " + std::to_string(rank) + " of " + std::to_string(nRanks));
    if (nRanks > 1)
      return refuse(HCCL_E_NOT_SUPPORT, std::to_string(nRanks) + " ranks; the simulator's collectives have one");
    if (std::memcmp(rootInfo->internal, kMark, sizeof kMark) != 0)
      return refuse(HCCL_E_PARA, "the root's information is not what HcclGetRootInfo wrote");
    std::shared_ptr<Context> context;
    ASCEND_SIM_TRY(current_context(world, &context));
    void* buffers = world.memory(context->device).allocate(kBuffers, 0);
    if (buffers == nullptr)
      return refuse(HCCL_E_MEMORY, "no device memory for the buffers: " + std::to_string(kBuffers) + " bytes");
    void* handle = world.new_handle();
    world.communicators[handle] = {context->device, "sim_group_" + std::to_string(world.communicators_made++), buffers};
    *comm = handle;
    return 0;
  });
}

HcclResult HcclCommDestroy(HcclComm comm) {
  return hccl("HcclCommDestroy", kAsk, [&](World& world, Lock&) {
    const Communicator* known = nullptr;
    ASCEND_SIM_TRY(find_communicator(world, comm, &known));
    world.memory(known->device).release(known->buffers);
    world.communicators.erase(comm);
    return 0;
  });
}

HcclResult HcclGetCommName(HcclComm comm, char* commName) {
  return hccl("HcclGetCommName", kAsk, [&](World& world, Lock&) {
    const Communicator* known = nullptr;
    ASCEND_SIM_TRY(find_communicator(world, comm, &known));
    if (commName == nullptr) return null_argument("commName");
    std::strncpy(commName, known->name.c_str(), kNameRoom);
    return 0;
  });
}

HcclResult HcclGetRankSize(HcclComm comm, uint32_t* rankSize) {
  return hccl("HcclGetRankSize", kAsk, [&](World& world, Lock&) {
    const Communicator* known = nullptr;
    ASCEND_SIM_TRY(find_communicator(world, comm, &known));
    if (rankSize == nullptr) return null_argument("rankSize");
    *rankSize = 1;
    return 0;
  });
}

HcclResult HcclGetRankId(HcclComm comm, uint32_t* rank) {
  return hccl("HcclGetRankId", kAsk, [&](World& world, Lock&) {
    const Communicator* known = nullptr;
    ASCEND_SIM_TRY(find_communicator(world, comm, &known));
    if (rank == nullptr) return null_argument("rank");
    *rank = 0;
    return 0;
  });
}

HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult* asyncError) {
  return hccl("HcclGetCommAsyncError", kAsk, [&](World& world, Lock&) {
    const Communicator* known = nullptr;
    ASCEND_SIM_TRY(find_communicator(world, comm, &known));
    if (asyncError == nullptr) return null_argument("asyncError");
    *asyncError = HCCL_SUCCESS;  // one rank has no link that could fail
    return 0;
  });
}

const char* HcclGetErrorString(HcclResult code) {
  switch (code) {
    case HCCL_SUCCESS: return "no error";
    case HCCL_E_PARA: return "parameter error";
    case HCCL_E_PTR: return "empty pointer";
    case HCCL_E_MEMORY: return "memory error";
    case HCCL_E_INTERNAL: return "internal error";
    case HCCL_E_NOT_SUPPORT: return "not supported";
    case HCCL_E_RUNTIME: return "error of the runtime";
  }
  return "unknown error";
}

HcclResult HcclAllReduce(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType, HcclReduceOp op,
                         HcclComm comm, aclrtStream stream) {
  return hccl("HcclAllReduce", kQueue, [&](World& world, Lock& lock) {
    ASCEND_SIM_TRY(check_reduction(dataType, op));
    return collect(world, lock, {sendBuf, 0, count, dataType}, {recvBuf, 0, count, dataType}, comm, stream);
  });
}

HcclResult HcclBroadcast(void* buf, uint64_t count, HcclDataType dataType, uint32_t root, HcclComm comm,
                         aclrtStream stream) {
  return hccl("HcclBroadcast", kQueue, [&](World& world, Lock& lock) {
    if (root > 0) return refuse(HCCL_E_PARA, "the root is rank " + std::to_string(root) + " of 1");
    return collect(world, lock, {buf, 0, count, dataType}, {buf, 0, count, dataType}, comm, stream);
  });
}

HcclResult HcclReduceScatter(void* sendBuf, void* recvBuf, uint64_t recvCount, HcclDataType dataType, HcclReduceOp op,
                             HcclComm comm, aclrtStream stream) {
  return hccl("HcclReduceScatter", kQueue, [&](World& world, Lock& lock) {
    ASCEND_SIM_TRY(check_reduction(dataType, op));
    return collect(world, lock, {sendBuf, 0, recvCount, dataType}, {recvBuf, 0, recvCount, dataType}, comm, stream);
  });
}

HcclResult HcclAllGather(void* sendBuf, void* recvBuf, uint64_t sendCount, HcclDataType dataType, HcclComm comm,
                         aclrtStream stream) {
  return hccl("HcclAllGather", kQueue, [&](World& world, Lock& lock) {
    return collect(world, lock, {sendBuf, 0, sendCount, dataType}, {recvBuf, 0, sendCount, dataType}, comm, stream);
  });
}

HcclResult HcclAlltoAll(const void* sendBuf, uint64_t sendCount, HcclDataType sendType, const void* recvBuf,
                        uint64_t recvCount, HcclDataType recvType, HcclComm comm, aclrtStream stream) {
  return hccl("HcclAlltoAll", kQueue, [&](World& world, Lock& lock) {
    if (sendBuf != nullptr && sendBuf == recvBuf)
      return refuse(HCCL_E_PARA, "the buffers to send and to receive are one");
    return collect(world, lock, {sendBuf, 0, sendCount, sendType}, {recvBuf, 0, recvCount, recvType}, comm, stream);
  });
}

HcclResult HcclAlltoAllV(const void* sendBuf, const void* sendCounts, const void* sdispls, HcclDataType sendType,
                         const void* recvBuf, const void* recvCounts, const void* rdispls, HcclDataType recvType,
                         HcclComm comm, aclrtStream stream) {
  return hccl("HcclAlltoAllV", kQueue, [&](World& world, Lock& lock) {
    for (const void* numbers : {sendCounts, sdispls, recvCounts, rdispls})
      if (numbers == nullptr) return null_argument("an array of counts or displacements");
    if (sendBuf != nullptr && sendBuf == recvBuf)
      return refuse(HCCL_E_PARA, "the buffers to send and to receive are one");
    const auto first = [](const void* numbers) { return *static_cast<const uint64_t*>(numbers); };  // of one rank
    return collect(world, lock, {sendBuf, first(sdispls), first(sendCounts), sendType},
                   {recvBuf, first(rdispls), first(recvCounts), recvType}, comm, stream);
  });
}

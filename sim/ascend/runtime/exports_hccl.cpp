// Collectives: of one rank a copy, of several a meeting (meeting.h), in the order of their stream, which captures
// record like any other.
//
// Ranks are devices of this host, of one process or of several. What is not simulated: several hosts, links that fail,
// and the streams that the library takes for itself.
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "ascend/runtime/hccl.h"
#include "ascend/runtime/meeting.h"
#include "ascend/runtime/stream.h"

using namespace ascend_sim;

namespace {

const double kAsk = rate(Rate::HostCall);
const double kQueue = rate(Rate::HostAsyncCopy);

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

// What every call checks.
int check_call(World& world, const Part& from, const Part& to, HcclComm comm, aclrtStream stream, size_t* bytes,
               const Communicator** known, std::shared_ptr<Stream>* found) {
  if (from.at == nullptr) return null_argument("the buffer to send");
  if (to.at == nullptr) return null_argument("the buffer to receive");
  ASCEND_SIM_TRY(find_communicator(world, comm, known));
  ASCEND_SIM_TRY(check_type(from.type, bytes));
  ASCEND_SIM_TRY(find_stream(world, stream, found));
  const int device = (*found)->context->device;
  if (device == (*known)->device) return 0;
  return refuse(HCCL_E_PARA, "the stream belongs to device " + std::to_string(device) + ", the communicator to " +
                                 std::to_string((*known)->device));
}

// One rank copies; several meet. `task` says the kind and what goes with it.
int collect(World& world, Lock& lock, CollectiveTask task, const Part& from, const Part& to, HcclComm comm,
            aclrtStream stream) {
  const Communicator* known = nullptr;
  std::shared_ptr<Stream> found;
  size_t bytes = 0;
  ASCEND_SIM_TRY(check_call(world, from, to, comm, stream, &bytes, &known, &found));
  if (from.type != to.type || from.count != to.count)
    return refuse(HCCL_E_PARA, "what a rank sends to each other one it receives: count and type must be the same");
  if (known->use == Communicator::Use::Experts && holds(Rule::DispatchAlone, world.config.cann))
    return refuse(HCCL_E_PARA,
                  refusal(Rule::DispatchAlone, known->name + " has run operators that send rows to experts"));
  known->use = Communicator::Use::Collectives;
  if (from.count == 0 && task.send_counts.empty()) return 0;
  const auto place = [&](const Part& p) {
    return const_cast<uint8_t*>(static_cast<const uint8_t*>(p.at)) + p.first * bytes;
  };
  if (!known->meeting)
    return from.count == 0 ? 0
                           : submit(world, lock, found, Task{CopyTask{place(to), place(from), from.count * bytes}, 0});
  task.meeting = known->meeting;
  task.from = from.at;
  task.to = const_cast<void*>(to.at);
  task.count = from.count;
  task.element = bytes;
  task.type = from.type;
  return submit(world, lock, found, Task{std::move(task), 0});
}

CollectiveTask of(CollectiveTask::Kind kind, int32_t reduction = -1, int32_t root = -1) {
  CollectiveTask task;
  task.kind = kind;
  task.reduction = reduction;
  task.root = root;
  return task;
}

using Kind = CollectiveTask::Kind;

// How long ranks wait for each other when a communicator is made: HCCL_CONNECT_TIMEOUT, 120 s by default
// (hicann/hccl docs/zh/user_guide/hccl_env/HCCL_CONNECT_TIMEOUT.md).
double connect_seconds() {
  const char* text = std::getenv("HCCL_CONNECT_TIMEOUT");
  return text && *text ? std::strtod(text, nullptr) : 120;
}

// Waits until all ranks have come.
int gather_ranks(World& world, Lock& lock, const std::shared_ptr<Meeting>& meeting) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  ++world.busy;
  lock.unlock();
  bool complete = false;
  while (!(complete = meeting->complete()) &&
         std::chrono::duration<double>(Clock::now() - begin).count() < connect_seconds())
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  lock.lock();
  --world.busy;
  meeting->close_door();
  if (complete) return 0;
  return refuse(HCCL_E_TIMEOUT, "not all " + std::to_string(meeting->size()) +
                                    " ranks came within HCCL_CONNECT_TIMEOUT (" +
                                    std::to_string(static_cast<int>(connect_seconds())) + " s)");
}

}  // namespace

Seat ascend_sim::seat_in(const std::string& group) {
  World& all = world();
  const Lock lock(all.mutex);
  for (const auto& [handle, known] : all.communicators)
    if (known.name == group) return {static_cast<int>(known.rank), static_cast<int>(known.size)};
  return {};
}

HcclResult HcclGetRootInfo(HcclRootInfo* rootInfo) {
  return hccl("HcclGetRootInfo", kAsk, [&](World&, Lock&) {
    if (rootInfo == nullptr) return null_argument("rootInfo");
    if (!Meeting::found(rootInfo->internal, sizeof rootInfo->internal))
      return refuse(HCCL_E_MEMORY, "the host gives no memory that ranks could share");
    return 0;
  });
}

HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank, HcclComm* comm) {
  return hccl("HcclCommInitRootInfo", rate(Rate::HostCreate), [&](World& world, Lock& lock) -> int {
    if (rootInfo == nullptr) return null_argument("rootInfo");
    if (comm == nullptr) return null_argument("comm");
    if (nRanks == 0 || rank >= nRanks)
      return refuse(HCCL_E_PARA, "rank " + std::to_string(rank) + " of " + std::to_string(nRanks));
    if (nRanks > Meeting::kMaxRanks)
      return refuse(HCCL_E_NOT_SUPPORT, std::to_string(nRanks) + " ranks; simulated are the devices of one server, " +
                                            std::to_string(Meeting::kMaxRanks) + " at most");
    std::shared_ptr<Context> context;
    ASCEND_SIM_TRY(current_context(world, &context));
    void* buffers = world.memory(context->device).allocate(kBuffers, 0);
    if (buffers == nullptr)
      return refuse(HCCL_E_MEMORY, "no device memory for the buffers: " + std::to_string(kBuffers) + " bytes");
    std::string problem;
    std::shared_ptr<Meeting> meeting =
        Meeting::join(rootInfo->internal, static_cast<int>(nRanks), static_cast<int>(rank), &problem);
    const int joined = !meeting ? refuse(HCCL_E_PARA, problem) : gather_ranks(world, lock, meeting);
    if (joined != 0) {
      world.memory(context->device).release(buffers);
      return joined;
    }
    void* handle = world.new_handle();
    if (nRanks == 1) meeting = nullptr;
    world.communicators[handle] = {context->device, "sim_group_" + std::to_string(world.communicators_made++),
                                   buffers,         std::move(meeting),
                                   nRanks,          rank};
    *comm = handle;
    return 0;
  });
}

HcclResult HcclCommDestroy(HcclComm comm) {
  return hccl("HcclCommDestroy", kAsk, [&](World& world, Lock&) {
    const Communicator* known = nullptr;
    ASCEND_SIM_TRY(find_communicator(world, comm, &known));
    world.memory(known->device).release(known->buffers);
    if (known->meeting) known->meeting->leave();
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
    *rankSize = known->size;
    return 0;
  });
}

HcclResult HcclGetRankId(HcclComm comm, uint32_t* rank) {
  return hccl("HcclGetRankId", kAsk, [&](World& world, Lock&) {
    const Communicator* known = nullptr;
    ASCEND_SIM_TRY(find_communicator(world, comm, &known));
    if (rank == nullptr) return null_argument("rank");
    *rank = known->rank;
    return 0;
  });
}

HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult* asyncError) {
  return hccl("HcclGetCommAsyncError", kAsk, [&](World& world, Lock&) {
    const Communicator* known = nullptr;
    ASCEND_SIM_TRY(find_communicator(world, comm, &known));
    if (asyncError == nullptr) return null_argument("asyncError");
    *asyncError = HCCL_SUCCESS;  // no link of these can fail
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
    case HCCL_E_TIMEOUT: return "timeout";
    case HCCL_E_RUNTIME: return "error of the runtime";
  }
  return "unknown error";
}

HcclResult HcclAllReduce(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType, HcclReduceOp op,
                         HcclComm comm, aclrtStream stream) {
  return hccl("HcclAllReduce", kQueue, [&](World& world, Lock& lock) {
    ASCEND_SIM_TRY(check_reduction(dataType, op));
    return collect(world, lock, of(Kind::AllReduce, op), {sendBuf, 0, count, dataType}, {recvBuf, 0, count, dataType},
                   comm, stream);
  });
}

HcclResult HcclBroadcast(void* buf, uint64_t count, HcclDataType dataType, uint32_t root, HcclComm comm,
                         aclrtStream stream) {
  return hccl("HcclBroadcast", kQueue, [&](World& world, Lock& lock) {
    const Communicator* known = nullptr;
    ASCEND_SIM_TRY(find_communicator(world, comm, &known));
    if (root >= known->size)
      return refuse(HCCL_E_PARA, "the root is rank " + std::to_string(root) + " of " + std::to_string(known->size));
    return collect(world, lock, of(Kind::Broadcast, -1, static_cast<int32_t>(root)), {buf, 0, count, dataType},
                   {buf, 0, count, dataType}, comm, stream);
  });
}

HcclResult HcclReduceScatter(void* sendBuf, void* recvBuf, uint64_t recvCount, HcclDataType dataType, HcclReduceOp op,
                             HcclComm comm, aclrtStream stream) {
  return hccl("HcclReduceScatter", kQueue, [&](World& world, Lock& lock) {
    ASCEND_SIM_TRY(check_reduction(dataType, op));
    return collect(world, lock, of(Kind::ReduceScatter, op), {sendBuf, 0, recvCount, dataType},
                   {recvBuf, 0, recvCount, dataType}, comm, stream);
  });
}

HcclResult HcclAllGather(void* sendBuf, void* recvBuf, uint64_t sendCount, HcclDataType dataType, HcclComm comm,
                         aclrtStream stream) {
  return hccl("HcclAllGather", kQueue, [&](World& world, Lock& lock) {
    return collect(world, lock, of(Kind::AllGather), {sendBuf, 0, sendCount, dataType},
                   {recvBuf, 0, sendCount, dataType}, comm, stream);
  });
}

HcclResult HcclAlltoAll(const void* sendBuf, uint64_t sendCount, HcclDataType sendType, const void* recvBuf,
                        uint64_t recvCount, HcclDataType recvType, HcclComm comm, aclrtStream stream) {
  return hccl("HcclAlltoAll", kQueue, [&](World& world, Lock& lock) {
    if (sendBuf != nullptr && sendBuf == recvBuf)
      return refuse(HCCL_E_PARA, "the buffers to send and to receive are one");
    return collect(world, lock, of(Kind::AllToAll), {sendBuf, 0, sendCount, sendType},
                   {recvBuf, 0, recvCount, recvType}, comm, stream);
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
    const Communicator* known = nullptr;
    ASCEND_SIM_TRY(find_communicator(world, comm, &known));
    const auto first = [](const void* numbers) { return *static_cast<const uint64_t*>(numbers); };
    if (!known->meeting)
      return collect(world, lock, {}, {sendBuf, first(sdispls), first(sendCounts), sendType},
                     {recvBuf, first(rdispls), first(recvCounts), recvType}, comm, stream);
    CollectiveTask task = of(Kind::AllToAllV);
    const auto all = [&](const void* numbers) {
      const auto* begin = static_cast<const uint64_t*>(numbers);
      return std::vector<uint64_t>(begin, begin + known->size);
    };
    task.send_counts = all(sendCounts);
    task.send_begins = all(sdispls);
    task.take_counts = all(recvCounts);
    task.take_begins = all(rdispls);
    return collect(world, lock, std::move(task), {sendBuf, 0, 0, sendType}, {recvBuf, 0, 0, recvType}, comm, stream);
  });
}

// What a stream or a graph runs, one after the other. Tasks of a stream belong to its queue; tasks of a graph live as
// long as the graph and run at every replay. The kernel of a graph's task is the only thing that ever changes (by task
// updates). Guarded by the World's mutex.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <variant>
#include <vector>

#include "ascend/kernel.h"
#include "ascend/runtime/acl_rt.h"
#include "ascend/runtime/order.h"
#include "ascend/runtime/sharing.h"

namespace ascend_sim {

class Meeting;
struct Graph;
struct Stream;
struct Task;

// What a record leaves behind and a wait looks for. Records of Ex events make a new one each; other events have one
// that is set and cleared like a bit of the device.
struct Mark {
  bool done = false;
  double stamp = 0;          // of the device's clock
  uint64_t lane = 0;         // that recorded
  int waiting = 0;           // waits queued and not yet over
  std::set<uint64_t> after;  // replays that come before it, as far as calls told
  Order order;
};

struct KernelTask {
  std::shared_ptr<const Kernel> kernel;
  std::shared_ptr<Meeting> meeting = nullptr;  // of a kernel that ranks run together
};
struct CopyTask {
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
};
// What the ranks of a communicator do together. `bytes` are those of one rank's part, or of the whole where all have
// it.
struct CollectiveTask {
  enum class Kind : uint8_t {
    AllReduce,
    Broadcast,
    ReduceScatter,
    AllGather,
    AllToAll,
    AllToAllV
  } kind = Kind::AllGather;
  std::shared_ptr<Meeting> meeting;
  const void* from = nullptr;
  void* to = nullptr;
  size_t count = 0;    // elements, as the call says
  size_t element = 1;  // bytes
  int32_t type = 0, reduction = -1, root = -1;
  // AllToAllV: elements of and for each rank, and where they begin.
  std::vector<uint64_t> send_counts, send_begins, take_counts, take_begins;

  const char* name() const;
  size_t sent_bytes() const;   // that this rank reads
  size_t taken_bytes() const;  // that it writes
};
struct FillTask {
  void* to = nullptr;
  int value = 0;
  size_t bytes = 0;
};
// Asks for bytes in the L2 cache; nothing reads or writes them.
struct PrefetchTask {
  const void* from = nullptr;
  size_t bytes = 0;
};
struct RecordTask {
  std::shared_ptr<Mark> mark;
};
struct WaitTask {
  std::shared_ptr<Mark> mark;
  int seconds = 0;  // 0: for ever
};
struct ResetTask {
  std::shared_ptr<Mark> mark;
};
struct ValueWriteTask {
  void* address = nullptr;
  uint64_t value = 0;
};
struct ValueWaitTask {
  void* address = nullptr;
  uint64_t value = 0;
  uint32_t flag = 0;
};
struct HostTask {
  aclrtHostFunc function = nullptr;
  void* arguments = nullptr;
};
// Runs on the thread that is subscribed to the stream.
struct CallbackTask {
  aclrtCallback function = nullptr;
  void* arguments = nullptr;
  bool blocks = false;
  uint64_t thread = 0;
};
struct GraphTask {
  std::shared_ptr<Graph> graph;
  uint64_t replay = 0;  // its number
};
// A task update on its way to the device.
struct RewriteTask {
  std::shared_ptr<Task> target;
  std::shared_ptr<const Kernel> kernel;
};

struct Task {
  std::variant<KernelTask, CopyTask, CollectiveTask, FillTask, PrefetchTask, RecordTask, WaitTask, ResetTask,
               ValueWriteTask, ValueWaitTask, HostTask, CallbackTask, GraphTask, RewriteTask>
      what;
  double launched = 0;                          // host clock when the call returned
  bool in_group = false;                        // an update may rewrite it
  std::shared_ptr<const Order> host = nullptr;  // what the host knew then; only where races are looked for

  bool is_kernel() const { return std::holds_alternative<KernelTask>(what); }
  std::string name() const;
};

// A sequence in the device with a clock of its own: a stream, or one captured stream of a replay.
struct Lane {
  uint64_t id = 0;
  double clock = 0;
  bool in_graph = false;
  bool busy_before = false;                  // something ran already, so that the next kernel starts after a gap
  std::vector<SharedStep>* steps = nullptr;  // of a graph with several streams: what it did, to be timed together
  Order order;
};

}  // namespace ascend_sim

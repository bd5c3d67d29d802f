// Captured graphs of the Ascend device: one model running instance each, and task groups for launches that can change.
//
// A launch with arguments on the host (attention's lengths) is recorded as a task group behind a wait for a word of
// device memory. A replay with patches clears the words of those launches on its own stream, starts the graph at once,
// and the UpdateWorker rewrites group after group on a stream of its own, setting each word when its group is done: the
// first layers compute while the last are still being updated, and nothing waits on the host. The worker's stream
// starts behind the clearing, which is behind the replay before, so no signal can be lost or come early. Words of
// launches that are not patched stay set, and a replay without patches needs no update at all. Where the runtime has no
// waits for memory (CANN 8.1), the updates come before the replay, ordered by an event.
//
// Streams of a recording are streams of the capture, which ordinary events pull in and join. Task groups open and close
// around one launch, so none is open while another stream is launched on.
#pragma once

#include <functional>
#include <memory>

#include "backends/ascend/queue_budget.h"
#include "backends/ascend/update_worker.h"
#include "device/graph.h"

namespace reprise::ascend {

// What graphs may hold of the chip's queues, and who updates them. Shared by all graphs of a device; they keep it
// alive.
class GraphResources {
 public:
  explicit GraphResources(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  const std::shared_ptr<Context>& context() const { return context_; }
  // Made on first use.
  Result<UpdateWorker*> worker();

  // Queues that a graph of so many tasks holds for its life, before those of collectives.
  static int queues_of(int64_t tasks) { return static_cast<int>(1 + (tasks - 1) / kTasksOfQueue); }
  // Busy, with the figures, when the graph would not fit next to the others.
  Status reserve(int queues);
  void release(int queues) { used_ -= queues; }
  // Asks the driver on first use.
  QueueBudget budget();

  // A captured stream goes on in a further queue after so many tasks.
  static constexpr int64_t kTasksOfQueue = 2013;
  // What is left of a chip's queues after those that streams and collectives take; drivers before 25.5 hold a graph's
  // queues for its life.
  static constexpr int kQueues = 1800;
  // More than the chip has, so the code that counts so many streams gives graphs numbers of streams, and queues while
  // they run. Then this many stay for streams, and one graph may have at most kQueuesOfRun.
  static constexpr uint32_t kMoreThanQueues = 2048;
  static constexpr int kSpareStreams = 1024;
  static constexpr int kQueuesOfRun = 1024;
  // What a communicator takes for itself, and streams that its collectives add to one of a graph: one where they run on
  // vector cores, else two (vllm-ascend vllm_ascend/utils.py, update_aclgraph_sizes()).
  static constexpr int kQueuesOfCommunicator = 40;
  int streams_of_each() const;

 private:
  std::shared_ptr<Context> context_;
  std::unique_ptr<UpdateWorker> worker_;
  std::optional<QueueBudget> budget_;
  int used_ = 0;
};

Result<std::unique_ptr<DeviceGraph>> capture_graph(const std::shared_ptr<GraphResources>& resources,
                                                   AscendStream& stream, const std::function<Status(Recorder&)>& body);

}  // namespace reprise::ascend

// QueueBudget and GraphQueues: what captured graphs hold of an NPU's queues, for reports. Plain values; the functions
// ask a device or a graph of any kind and answer nothing for other kinds.
#pragma once

#include <optional>

#include "device/device.h"

namespace reprise::ascend {

struct QueueBudget {
  bool held_for_life = true;  // else only numbers of streams are held, and queues while a graph runs
  int total = 0;              // for graphs
  int used = 0;
};

struct GraphQueues {
  int64_t tasks = 0;  // counted before the capture, never too few
  int queues = 0;
};

std::optional<QueueBudget> queue_budget(const Device& device);
std::optional<GraphQueues> queues_of(const DeviceGraph& graph);

}  // namespace reprise::ascend

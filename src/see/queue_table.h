// QueueTable: what the captured graphs of an engine hold of an NPU's hardware queues, by phase, and which sizes were
// left out for lack of them. Plain values; one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/ascend/queue_budget.h"
#include "base/json.h"
#include "engine/engine.h"

namespace reprise::see {

struct QueueRow {
  std::string phase, mode;
  size_t graphs = 0;          // of one size: pieces of all programs
  int64_t tasks = 0;          // of the longest of these graphs
  int queues = 0;             // of one size
  std::vector<int64_t> kept;  // captured sizes
  std::vector<engine::SizeRemark> left_out;

  int64_t held() const { return queues * static_cast<int64_t>(kept.size()); }
};

struct QueueTable {
  ascend::QueueBudget budget;
  std::vector<QueueRow> rows;
};

// Nothing where the device counts no queues.
std::optional<QueueTable> queue_table(engine::Engine& engine);

OrderedJson queue_json(const QueueTable& table);
std::string queue_text(const QueueTable& table);

}  // namespace reprise::see

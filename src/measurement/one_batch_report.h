// The report of `bench one-batch`: batches of several sizes measured in turn, and what each row says beside the limits
// of the machine. Plain functions; they drive the engine from the calling thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "measurement/machine_probe.h"
#include "measurement/one_batch.h"

namespace reprise::measurement {

// One row for each size, behind a short run that touches the memory and wakes the threads. With `plan.speculation`
// where the engine verifies drafts; where it does not, the rows are without, and the log says why. Sequences that do
// not fit the context are an error of the caller.
Result<std::vector<OneBatchRow>> measure_batches(engine::Engine& engine, const OneBatch& plan,
                                                 std::span<const int64_t> batch_sizes);

// What a row says besides its times.
struct RowSettings {
  std::string passes = "all";
  std::optional<int> ranks = {};  // where the model lies over several
};
// The times of a row as speeds, and these as shares of the limits: null where the device's time is modelled, or the
// machine was disturbed.
OrderedJson one_batch_json(engine::Engine& engine, const OneBatch& plan, const OneBatchRow& row,
                           const MachineSpeed& limits, const RowSettings& settings);

// The limits measured before and after the rows, and both together; a bandwidth that moved is a warning.
OrderedJson limits_json(Machine machine, const MachineSpeed& before, const MachineSpeed& after);

}  // namespace reprise::measurement

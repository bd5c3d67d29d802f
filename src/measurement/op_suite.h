// A suite of ops for `reprise bench ops`: which ops are measured, on the cases of which models, at which dtypes and in
// which order, and what came of it, with the limits of the machine. Plain functions; one thread, and no other work
// beside them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "measurement/extension_cases.h"
#include "measurement/op_bench.h"

namespace reprise::measurement {

// Those of `all` that `part` means: the op of that name alone, or every op whose name holds it; "": all of them.
std::vector<std::string> ops_named(std::string_view part, std::vector<std::string> all);

struct OpSelection {
  std::vector<std::string> ops;
  std::string model;  // whose cases (OpCase::model), examples besides; "": all
  std::vector<DType> dtypes;
  std::vector<int64_t> tokens;  // the sizes of a step; at least one
};

struct OpWork {
  OpCase op;
  DType dtype = DType::F32;
};

// What there is to do, and what was left out and why.
struct OpPlan {
  std::vector<OpWork> work;
  std::vector<int64_t> tokens;
  std::vector<std::string> refused;
};

OpPlan plan_ops(const OpSelection& selection, const nn::FusedOps& fused);
// The same for ops of extensions, at the sizes that they have in a model, or on their examples where its path is "".
// The model's dtype is that of the selection. An engine is opened for each dtype.
Result<OpPlan> plan_extension_ops(const OpSelection& selection, const nn::FusedOps& fused, ModelOfCases model);

struct OpRow {
  std::string op, model, detail, shape;
  DType dtype = DType::F32;
  int64_t tokens = 0;
  OpTimes times;
  OpLimit limit;
  bool same_bits = true;  // as its parts
};

struct OpReport {
  bool modelled = false;  // times are those of a device whose time is modelled: this machine has no limits for it
  MachineSpeed speed;
  CacheSpeeds caches;
  double launch_us = 0;  // what a launch costs by itself
  std::vector<OpRow> rows;
  std::vector<std::string> refused;
};

// The machine's limits, a launch by itself, then the plan. An error where nothing could be measured.
Result<OpReport> measure_ops(const OpPlan& plan, const Platform& platform, const nn::FusedOps& fused, int64_t repeat);

// Replays every op of the plan the given number of times and measures nothing, for programs that count instructions.
// `done` hears of each size with the calls that were made.
Status replay_ops(const OpPlan& plan, const Platform& platform, const nn::FusedOps& fused, int64_t times,
                  const std::function<void(const OpWork&, int64_t tokens, int64_t calls)>& done);

}  // namespace reprise::measurement

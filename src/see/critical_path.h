// CriticalPath: what the time of one step is made of when it is read backwards, and what its data would allow.
//
// Two paths of the same profile. The measured one goes from the end of the step shown back to its begin, always to what
// the last event had to wait for: a kernel on the same thread, or the thread that came last to a barrier of both. Only
// what lies on it makes the step shorter. The chain is of data alone: the longest row of launches in which each needs a
// result of the one before, with the median time of each. Launches off the chain have slack: they could run beside it.
// A plain value.
#pragma once

#include <string>
#include <vector>

#include "see/step_profile.h"

namespace reprise::see {

struct OpOnPath {
  std::string op;
  int events = 0;      // kernels of one thread, and of one part of a launch
  double seconds = 0;  // in kernels of this op, on the measured path
};

struct CriticalPath {
  // Parts of the measured path; their sum is the step shown.
  double kernel_s = 0;
  double barrier_s = 0;        // from the last thread's end of its share to the begin of what waited for it
  double gap_s = 0;            // between two events of one thread
  double host_s = 0;           // before the first event and after the last
  std::vector<OpOnPath> ops;   // the longest first
  std::vector<size_t> events;  // kernels on it, as numbered in StepProfile::events, the first first

  // Computed from how the data flows.
  double chain_s = 0;           // the least time of a step whose independent launches run side by side, barriers aside
  double launches_s = 0;        // one launch after the other
  std::vector<uint32_t> chain;  // nodes, in order
  std::vector<double> slack_s;  // for each of StepProfile::nodes: how much longer it could take; 0 on the chain
};

CriticalPath critical_path(const StepProfile& profile, const CompiledModel& model);

// Two lines for people.
std::string path_text(const CriticalPath& path);
OrderedJson path_json(const CriticalPath& path, const CompiledModel& model);

}  // namespace reprise::see

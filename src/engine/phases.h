// PhaseSpec: one kind of step that has programs, captured sizes and counters of its own. The list below is all that
// there is of phases: options, programs, runners, reports and files go by it. Constants; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

#include "engine/graph_options.h"
#include "engine/graph_sizes.h"
#include "engine/step_stage.h"

namespace reprise::engine {

struct PhaseSpec {
  std::string_view name;  // in flags, reports and files
  std::string_view unit;  // what its sizes count
  int64_t each = 0;       // tokens of every sequence of the step besides its drafts; 0: any number
  // Its options, and the sizes that are captured when these name none.
  GraphMode GraphOptions::*mode;
  std::vector<int64_t> GraphOptions::*sizes;
  bool GraphOptions::*learn;
  std::vector<int64_t> (*sizes_by_rule)(int64_t largest, SizeRule rule);

  bool takes(std::span<const StepItem> items) const {
    return each == 0 || std::all_of(items.begin(), items.end(), [&](const StepItem& i) {
             return i.own() == each && !i.sequence->shows(i.sequence->cached(), i.count);
           });
  }
  // Tokens of its largest step.
  int64_t largest(int64_t max_sequences, int64_t max_tokens) const {
    return each == 0 ? max_tokens : each * max_sequences;
  }
  // Sequences of a captured size. Where any number of tokens is allowed there is one sequence less than tokens: a step
  // of single tokens is another phase's, and a device whose operators differ could not tell its graph from that one's.
  int64_t sequences(int64_t size, int64_t max_sequences) const {
    return each == 0 ? std::clamp<int64_t>(size - 1, 1, max_sequences) : size / each;
  }
};

// A step is of the first phase that takes it; the last one takes every step.
inline constexpr PhaseSpec kPhases[] = {
    {"decode", "sequences", 1, &GraphOptions::decode, &GraphOptions::decode_sizes, &GraphOptions::learn_decode_sizes,
     decode_sizes},
    {"prefill", "tokens", 0, &GraphOptions::prefill, &GraphOptions::prefill_sizes, &GraphOptions::learn_prefill_sizes,
     [](int64_t largest, SizeRule) { return prefill_sizes(largest); }}};
constexpr size_t kPhaseCount = std::size(kPhases);
constexpr size_t kAnyPhase = kPhaseCount - 1;
static_assert(kPhases[kAnyPhase].each == 0);

inline size_t phase_of(std::span<const StepItem> items) {
  size_t p = 0;
  while (!kPhases[p].takes(items)) ++p;
  return p;
}

}  // namespace reprise::engine

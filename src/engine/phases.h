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
  bool drafts = false;  // some of its sequences bring drafts; its sizes are those of verify_sizes()

  // Whose settings it goes by: `graph_decode` and `graph_decode_sizes`, or those of prefill.
  std::string_view settings() const { return drafts ? "decode" : name; }

  bool takes(std::span<const StepItem> items) const {
    if (drafts && std::all_of(items.begin(), items.end(), [](const StepItem& i) { return i.drafts.empty(); }))
      return false;
    return each == 0 || std::all_of(items.begin(), items.end(), [&](const StepItem& i) {
             return i.own() == each && !i.sequence->shows(i.sequence->cached(), i.count);
           });
  }
  // Tokens of its largest step, but for drafts.
  int64_t largest(int64_t max_sequences, int64_t max_tokens) const {
    return each == 0 ? max_tokens : each * max_sequences;
  }
  // Sequences of a captured size. Where any number of tokens is allowed there is one sequence less than tokens: a step
  // of single tokens is another phase's, and a device whose operators differ could not tell its graph from that one's.
  int64_t sequences(int64_t size, int64_t max_sequences) const {
    return each == 0 || drafts ? std::clamp<int64_t>(size - 1, 1, max_sequences) : size / each;
  }
};

// A step that no other phase takes is of kAnyPhase. The last phase is there where graphs freeze sizes and drafts are
// verified; elsewhere a step with drafts is one of decode.
inline constexpr PhaseSpec kPhases[] = {
    {"decode", "sequences", 1, &GraphOptions::decode, &GraphOptions::decode_sizes, &GraphOptions::learn_decode_sizes,
     decode_sizes},
    {"prefill", "tokens", 0, &GraphOptions::prefill, &GraphOptions::prefill_sizes, &GraphOptions::learn_prefill_sizes,
     [](int64_t largest, SizeRule) { return prefill_sizes(largest); }},
    {"verify", "rows", 1, &GraphOptions::decode, &GraphOptions::decode_sizes, &GraphOptions::learn_decode_sizes,
     nullptr, true}};
constexpr size_t kPhaseCount = std::size(kPhases);
constexpr size_t kAnyPhase = 1, kVerifyPhase = 2;
static_assert(kPhases[kAnyPhase].each == 0 && kPhases[kVerifyPhase].drafts);

inline size_t phase_of(std::span<const StepItem> items, bool verify_apart) {
  if (verify_apart && kPhases[kVerifyPhase].takes(items)) return kVerifyPhase;
  return kPhases[0].takes(items) ? 0 : kAnyPhase;
}

}  // namespace reprise::engine

// StepTables: the integer arrays that tell attention which rows and pages belong to whom in one step.
//
// fill() writes the engine's fixed input buffers from a list of sequence parts; rows and columns beyond the batch get
// neutral values (slot -1 is "nowhere", page 0 is scratch, length 0), so nothing stale survives from the step before.
// For devices that know no "nowhere", rows beyond the batch go to the slots of the scratch page.
// No state; any thread.
#pragma once

#include <cstdint>
#include <span>

#include "kv/kv_pool.h"

namespace reprise::kv {

// One sequence's part of a step.
struct SequencePart {
  std::span<const int32_t> tokens;  // all tokens of the sequence so far
  std::span<const PageId> pages;    // hold at least cached + count tokens
  int64_t cached = 0;               // tokens already in the cache
  int64_t count = 0;                // the next ones, computed in this step
};

// The engine's input buffers at their bounds.
struct StepBuffers {
  std::span<int32_t> tokens, positions, slots;  // [T bound]
  std::span<int32_t> page_table;                // [R bound, columns]
  std::span<int32_t> context_lens;              // [R bound]
  std::span<int32_t> cu_seqlens;                // [R bound + 1]
  int64_t columns = 0;
  bool skips_negative_slots = true;  // DeviceInfo::skips_negative_slots
};

struct StepCounts {
  int64_t tokens = 0;
  int64_t sequences = 0;
};

// The cache slot of a row that belongs to no sequence.
int32_t slot_of_nobody(int64_t row, const StepBuffers& out);

// Errors: more tokens, sequences or pages than the buffers hold; pages that do not cover the tokens.
Result<StepCounts> fill(std::span<const SequencePart> parts, const StepBuffers& out);

}  // namespace reprise::kv

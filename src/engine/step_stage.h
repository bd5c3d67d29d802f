// StepStage: turns a list of step items into the staged inputs of one step.
//
// It points into the engine's Staging and owns nothing. fill() resets every row and column beyond the batch to a
// neutral value, so nothing stale survives from the step before. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "compile/compiled_model.h"
#include "compile/staging.h"
#include "engine/row_edits.h"
#include "engine/sequence.h"
#include "kv/step_tables.h"
#include "ops/draw.h"

namespace reprise::engine {

// One sequence's part of a step: the next `count` tokens of it. Its KV pages must exist (Engine::reserve).
struct StepItem {
  Sequence* sequence = nullptr;
  int64_t count = 0;              // tokens [sequence->cached(), + count) are computed and cached
  bool wants_logits = false;      // of the last of them
  bool wants_all_logits = false;  // of every one of them (perplexity, teacher forcing)
  std::optional<Draw> draw = {};  // in a step that samples: how the token behind the last of them is drawn
  RowEdits edits = {};            // with a Draw: what changes the logits first; views that submit() reads

  int64_t logit_rows() const { return wants_all_logits ? count : (wants_logits ? 1 : 0); }
};

// What a step returns for its logit rows: the head of the program that runs behind its body.
enum class StepOutput : uint8_t {
  Logits,
  NextTokens,  // the argmax of every row
  Sampled,     // a token for each item that brings a Draw; the logits of all rows are there besides
};
constexpr std::string_view kStepHeads[] = {"logits", "next_tokens", "sampled"};  // by StepOutput: head and output
constexpr HeadMask head_of(StepOutput output) {
  const HeadMask own = HeadMask{1} << static_cast<int>(output);
  return output == StepOutput::Sampled ? own | head_of(StepOutput::Logits) : own;
}
constexpr std::string_view output_name(StepOutput output) { return kStepHeads[static_cast<size_t>(output)]; }

// Whether a step of these sizes is a decode step: one token of each sequence.
bool is_decode(const LiveSizes& live);

class StepStage {
 public:
  // `columns` page-table columns; token ids must be below `vocab`. What padding rows are given is the device's choice.
  Status attach(Staging& staging, int64_t columns, int64_t vocab, const DeviceInfo& device, int slot = 0);

  // The sizes of the step. Errors name what does not fit. A token that the step in flight will give is staged as 0.
  Result<LiveSizes> fill(std::span<const StepItem> items, int64_t pool_pages);
  // Row `row` of the staged step belongs to no sequence any more: nothing is written for it.
  void drop_row(int64_t row);
  // Neutral everywhere, as for an empty batch.
  Status clear(int64_t pool_pages) { return fill({}, pool_pages).status(); }

  // Words that the rows' edits of one step have room in (RowEdits::words); 0: none.
  int64_t edit_words() const { return static_cast<int64_t>(edit_words_.size()); }
  const kv::StepBuffers& buffers() const { return buffers_; }
  std::span<int32_t> last_rows() const { return last_rows_; }
  int64_t columns() const { return buffers_.columns; }

 private:
  kv::StepBuffers buffers_;
  std::span<int32_t> last_rows_;
  std::span<int32_t> draws_;               // empty where the model draws no tokens
  std::span<int32_t> edits_, edit_words_;  // empty where it changes no logits
  std::vector<kv::SequencePart> parts_;    // kept to avoid allocating per step
  int64_t vocab_ = 0;
  Staging* staging_ = nullptr;
};

}  // namespace reprise::engine

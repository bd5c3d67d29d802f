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
#include "engine/sequence.h"
#include "models/model.h"

namespace reprise::engine {

// One sequence's part of a step: the next `count` tokens of it, of which the last ones may be drafts: guesses of what
// comes behind Sequence::tokens(), computed like tokens and never part of them. Its KV pages must exist, also for the
// drafts (Engine::reserve). The step advances the sequence by its own tokens; the caller judges the drafts and commits
// those that came true (Sequence::commit). A step of several parts (StepPlan::Split) keeps an item with drafts whole.
struct StepItem {
  Sequence* sequence = nullptr;
  int64_t count = 0;                     // tokens [sequence->cached(), + count) are computed and cached
  int64_t logits = 0;                    // of the last so many of them; of all of them: teacher forcing
  std::span<const int32_t> drafts = {};  // the last of the count; they live until the step was waited for
  bool certain = false;                  // all drafts are tokens of the text: the next one comes behind the last
  // In a step that samples: how the token behind the last of the sequence's own tokens is drawn. Behind draft number i
  // the same at position + i.
  std::optional<Draw> draw = {};
  RowEdits edits = {};      // with a Draw: what changes the logits of all these rows first; views that submit() reads
  bool logits_too = false;  // the logits of drawn rows are wanted as well
  // Where the rows are that a drafting head reads; null for other models. It lives until the step was submitted.
  const models::SourceRows* source = nullptr;
  int part = 0;  // of a world that shares out sequences: which has its pages; items are in this order

  int64_t own() const { return count - static_cast<int64_t>(drafts.size()); }  // tokens that are no drafts
  int64_t drawn_rows() const { return draw ? 1 + static_cast<int64_t>(drafts.size()) : 0; }
};

// What a step returns for its logit rows: the head of the program that runs behind its body.
enum class StepOutput : uint8_t {
  Logits,
  NextTokens,  // the argmax of every row
  Sampled,     // a token for each item that brings a Draw; the logits of all rows are there besides
  Pooled,      // fp32 numbers, of a model that does not generate
  Drawn,       // Sampled without the logits, which ranks would have to gather: Engine::submit() chooses it
};
constexpr std::string_view kStepHeads[] = {"logits", "next_tokens", "sampled",
                                           "pooled"};  // by StepOutput: head and output
constexpr bool is_sampled(StepOutput output) { return output == StepOutput::Sampled || output == StepOutput::Drawn; }
// Which of them gives it.
constexpr size_t head_index(StepOutput output) {
  return static_cast<size_t>(is_sampled(output) ? StepOutput::Sampled : output);
}
constexpr HeadMask head_of(StepOutput output) {
  const HeadMask own = HeadMask{1} << head_index(output);
  return output == StepOutput::Sampled ? own | head_of(StepOutput::Logits) : own;
}
constexpr std::string_view output_name(StepOutput output) { return kStepHeads[head_index(output)]; }

// What the pools hold, for the sizes that are theirs.
struct PoolSizes {
  int64_t pages = 0;         // that may be handed out
  int64_t slots = 0;         // all slots of states
  int64_t source_pages = 0;  // of the engine that a head drafts for
  int64_t scratch = 1;       // pages for rows of no sequence (kv/kv_pool.h)
  int64_t all_pages() const { return pages + scratch; }
};

class StepStage {
 public:
  // An input as it is staged, at its bounds.
  struct Input {
    const models::InputSpec* spec = nullptr;
    TensorView view;
  };

  // The inputs that the programs have of `step`, which outlives this; token ids must be below `vocab`. What padding
  // rows are given is the device's choice.
  Status attach(Staging& staging, const models::StepSpec& step, int64_t vocab, const DeviceInfo& device, int slot = 0);

  // The sizes of the step. Errors name what does not fit. A token that the step in flight will give is staged as 0.
  Result<LiveSizes> fill(std::span<const StepItem> items, const PoolSizes& pools);
  // Rows of sequence `r` of the step, tokens [first, first + count), belong to no sequence any more: nothing is
  // written.
  void drop(int64_t r, int64_t first, int64_t count);
  // Stages which rows of a step for all parts of a world are this part's; nothing to do where the device finds that out
  // itself. fill() does so for part 0, to which the front belongs.
  void see_part(int part, const PoolSizes& pools);
  // Neutral everywhere, as for an empty batch.
  Status clear(const PoolSizes& pools) { return fill({}, pools).status(); }

  std::span<const Input> inputs() const { return inputs_; }
  // The numbers of one input; empty where the model has no such input.
  std::span<int32_t> ints(std::string_view name) const;
  // Words that the rows' edits of one step have room in (RowEdits::words); 0: none.
  int64_t edit_words() const { return static_cast<int64_t>(ints(models::kEditWordsInput).size()); }

 private:
  Status check(size_t index, const models::StepPart& part) const;
  models::StepRows rows_of(std::span<const models::StepPart> parts) const;

  Staging* staging_ = nullptr;
  std::vector<Input> inputs_;
  std::vector<models::StepPart> parts_;  // kept to avoid allocating per step
  LiveSizes bounds_;                     // by the inputs that are sized so; 0: by none
  int64_t columns_ = 0;                  // of the page table; 0: there is none
  int64_t world_parts_ = 0;              // that share out sequences; 0: they do not
  int64_t token_shares_ = 1;
  int64_t vocab_ = 0, hidden_ = 0;
  PoolSizes pools_;  // of the step that is staged
  bool draws_ = false, keeps_drafts_ = false, skips_negative_slots_ = true;
};

}  // namespace reprise::engine

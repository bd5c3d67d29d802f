// Executor: what the code that schedules sequences needs of an engine: its bounds, its KV pages, and steps.
//
// A step is submitted and waited for apart. Where the device computes by itself (overlaps()) submit() returns as soon
// as the step is in the device's queue, and further ones may be submitted before the first is waited for: each may name
// tokens that the one before it has yet to give (Sequence::pending), which reach it on the device. Elsewhere submit()
// computes.
// Engine is the real one; tests of scheduling use one that computes tokens from what it finds in the pages. One thread
// drives it at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "engine/step_stage.h"
#include "kv/kv_pool.h"

namespace reprise::engine {

using Ticket = uint64_t;  // of a submitted step; never 0

// What a step gave, one row per wanted logits row, in the order of the items. Good until the next submit().
struct StepResult {
  // StepOutput::Logits, and Sampled where an item brought no Draw: [rows, vocab] fp32, writable.
  std::span<float> logits;
  // NextTokens: the argmax of each row, the smallest id on a tie. Sampled: what was drawn; of no meaning in the rows of
  // items without a Draw.
  std::span<const int32_t> tokens;
  // Sampled, where a Draw asked for log-probabilities: [rows] of the tokens, [rows, kMostTopTokens] of the best ones.
  std::span<const float> logprobs;
  std::span<const int32_t> top_tokens;
  std::span<const float> top_logprobs;
  std::span<const float> pooled;  // StepOutput::Pooled: [rows, pooled_size()]
  // How long the device had nothing to do between the step before and this one, on its own clock.
  std::optional<double> gap_us;
};

// What a step of so many rows costs, each a token of a sequence or a draft.
struct RowsCost {
  bool usual = false;             // it runs as smaller ones do: captured, unless nothing is
  std::optional<double> us = {};  // as far as it was measured
};

class Executor {
 public:
  virtual ~Executor() = default;

  virtual int64_t context_length() const = 0;
  virtual int64_t vocab_size() const = 0;
  virtual int64_t max_step_tokens() const = 0;
  virtual int64_t max_step_rows() const = 0;  // sequences, and rows with logits, of one step

  // Where the pages of sequences come from. The code that takes pages gives them back; steps that were submitted before
  // may still write to them, and those submitted later come after that.
  virtual kv::KvPool& kv_pool() = 0;
  // The keys and values of a whole page, in all layers, for the steps that are submitted from now on.
  virtual Status copy_page(kv::PageId from, kv::PageId to) = 0;

  // Whether sequences have states besides their pages: what pages hold of a prefix is then not enough to go on from.
  virtual bool has_states() const { return false; }
  // Where states can be kept for other sequences to begin with; null: nowhere.
  virtual kv::StatePool* kept_states() { return nullptr; }

  // Most rows that one image may have; 0: the model reads no images.
  virtual int64_t max_image_rows() const { return 0; }

  // Numbers of a row of StepOutput::Pooled, the only output of a model that does not generate; 0: it generates.
  virtual int64_t pooled_size() const { return 0; }
  // A prompt is computed in one step: its rows see those behind them, or are mixed at its end.
  virtual bool whole_prompts() const { return false; }

  virtual bool has_greedy_steps() const { return false; }   // StepOutput::NextTokens
  virtual bool has_sampled_steps() const { return false; }  // StepOutput::Sampled
  // Whether the device draws these; over several ranks their hosts may do so together.
  virtual bool draws_on_device() const { return has_sampled_steps(); }
  // Whether a step with this Draw may run beside the host: its token is known to the device.
  virtual bool draws_beside(const Draw& draw) const { return draws_on_device(); }
  // Words of StepItem::edits that a sampled step has room for; 0: its device changes no logits.
  virtual int64_t edit_words() const { return 0; }
  virtual bool overlaps() const { return false; }
  virtual int64_t max_in_flight() const { return 2; }  // steps that were submitted and not waited for
  // Speculation: the most rows, sequences and drafts together, of a step that verifies drafts (StepItem::drafts) as a
  // step of single tokens. 0: there are no such steps, and verify_refusal() says why.
  virtual int64_t max_verify_rows() const { return 0; }
  virtual std::string verify_refusal() const { return "the executor has no such steps"; }
  virtual int64_t max_drafts() const { return INT64_MAX; }  // of one sequence in such a step
  virtual RowsCost rows_cost(int64_t rows, int64_t sequences) const { return {}; }
  // Drafts of a request that is over, by place among those of a step: verified, and came true; who made them. For the
  // record of what is learned; not of drafts that were made for a measurement or a test.
  virtual void learn_drafts(std::string_view by, std::span<const int64_t> verified, std::span<const int64_t> accepted) {
  }
  // A second, smaller model of the same vocabulary that was loaded to draft for this one; null: there is none. The
  // thread that drives this executor drives it, in between.
  virtual Executor* draft() { return nullptr; }
  // Whether it drafts from hidden states of the other one, which its steps name (StepItem::source); and if its tokens
  // are few of that one's, the ids there.
  virtual bool reads_source() const { return false; }
  virtual std::span<const int32_t> target_ids() const { return {}; }
  // Advances each sequence's cached(); the sequences live until the step was waited for.
  virtual Result<Ticket> submit(std::span<const StepItem> items, StepOutput output) = 0;
  // Each step once, in the order of submission. An error is of the whole step; what was submitted after it is computed
  // none the less.
  virtual Result<StepResult> wait(Ticket ticket) = 0;

  // submit() and wait().
  Result<std::span<float>> step(std::span<const StepItem> items);
  Result<std::span<const int32_t>> step_greedy(std::span<const StepItem> items);
};

}  // namespace reprise::engine

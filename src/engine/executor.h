// Executor: what whoever schedules sequences needs of an engine: its bounds, its KV pages, and steps.
//
// Engine is the real one; tests of scheduling use one that computes tokens from what it finds in the pages. One thread
// drives it at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/status.h"
#include "engine/step_stage.h"
#include "kv/kv_pool.h"

namespace reprise::engine {

class Executor {
 public:
  virtual ~Executor() = default;

  virtual int64_t context_length() const = 0;
  virtual int64_t vocab_size() const = 0;
  virtual int64_t max_step_tokens() const = 0;
  virtual int64_t max_step_rows() const = 0;  // sequences, and rows with logits, of one step

  // Where the pages of sequences come from. Whoever takes pages gives them back.
  virtual kv::KvPool& kv_pool() = 0;
  // The keys and values of a whole page, in all layers. Done when it returns.
  virtual Status copy_page(kv::PageId from, kv::PageId to) = 0;

  // Runs one step. The returned rows are one per wanted logits row, in the order of the items: [rows, vocab] fp32,
  // valid (and writable) until the next step. Advances each sequence's cached().
  virtual Result<std::span<float>> step(std::span<const StepItem> items) = 0;
  virtual bool has_greedy_steps() const { return false; }
  // The same with the argmax of each row, taken on the device; the smallest id on a tie.
  virtual Result<std::span<const int32_t>> step_greedy(std::span<const StepItem> items);

  // `what` is called inside every step of a device that runs by itself, between the launch and the wait for what it
  // gives, on the thread that called the step. The step's sequences count their tokens as cached by then; their pages
  // must stay. Pages may be taken, and copied (which waits for the step). Ignored where the calling thread computes.
  virtual void set_while_running(std::function<void()>) {}
};

}  // namespace reprise::engine

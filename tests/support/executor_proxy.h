// ExecutorProxy: hands everything on to another executor; tests override what they watch or hide.
#pragma once

#include "engine/executor.h"

namespace reprise::testing_support {

class ExecutorProxy : public engine::Executor {
 public:
  explicit ExecutorProxy(engine::Executor& inner) : inner_(inner) {}
  int64_t context_length() const override { return inner_.context_length(); }
  int64_t vocab_size() const override { return inner_.vocab_size(); }
  int64_t max_step_tokens() const override { return inner_.max_step_tokens(); }
  int64_t max_step_rows() const override { return inner_.max_step_rows(); }
  kv::KvPool& kv_pool() override { return inner_.kv_pool(); }
  Status copy_page(kv::PageId from, kv::PageId to) override { return inner_.copy_page(from, to); }
  bool has_greedy_steps() const override { return inner_.has_greedy_steps(); }
  bool has_sampled_steps() const override { return inner_.has_sampled_steps(); }
  bool draws_on_device() const override { return inner_.draws_on_device(); }
  bool draws_beside(const Draw& draw) const override { return inner_.draws_beside(draw); }
  int64_t edit_words() const override { return inner_.edit_words(); }
  bool overlaps() const override { return inner_.overlaps(); }
  int64_t max_in_flight() const override { return inner_.max_in_flight(); }
  int64_t max_verify_rows() const override { return inner_.max_verify_rows(); }
  std::string verify_refusal() const override { return inner_.verify_refusal(); }
  int64_t max_drafts() const override { return inner_.max_drafts(); }
  engine::RowsCost rows_cost(int64_t rows, int64_t sequences) const override {
    return inner_.rows_cost(rows, sequences);
  }
  bool reads_source() const override { return inner_.reads_source(); }
  std::span<const int32_t> target_ids() const override { return inner_.target_ids(); }
  Result<engine::Ticket> submit(std::span<const engine::StepItem> items, engine::StepOutput output) override {
    return inner_.submit(items, output);
  }
  Result<engine::StepResult> wait(engine::Ticket ticket) override { return inner_.wait(ticket); }

 private:
  engine::Executor& inner_;
};

}  // namespace reprise::testing_support

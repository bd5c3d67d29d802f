#include "engine/shared_step.h"

#include <algorithm>

#include "ops/draw.h"

namespace reprise::engine {
namespace {

// What drafts for the requests of one part, with the pages of that part. Its rounds are steps of the whole world in
// which all other parts are idle: parts guess one after the other, before any of them waits for the common step.
class DraftSeat final : public Executor {
 public:
  DraftSeat(Engine& draft, int part) : draft_(draft), part_(part) {}

  int64_t context_length() const override { return draft_.context_length(); }
  int64_t vocab_size() const override { return draft_.vocab_size(); }
  int64_t max_step_tokens() const override { return draft_.max_step_tokens(); }
  int64_t max_step_rows() const override { return draft_.max_step_rows(); }
  int64_t edit_words() const override { return draft_.edit_words(); }
  kv::KvPool& kv_pool() override { return draft_.kv_pool_of(part_); }
  Status copy_page(kv::PageId from, kv::PageId to) override { return draft_.copy_page_of(part_, from, to); }
  bool has_greedy_steps() const override { return draft_.has_greedy_steps(); }
  bool has_sampled_steps() const override { return draft_.has_sampled_steps(); }
  bool draws_on_device() const override { return draft_.draws_on_device(); }
  bool draws_beside(const Draw& draw) const override { return draft_.draws_beside(draw); }
  int64_t max_verify_rows() const override { return draft_.max_verify_rows(); }
  std::string verify_refusal() const override { return draft_.verify_refusal(); }
  RowsCost rows_cost(int64_t rows, int64_t sequences) const override { return draft_.rows_cost(rows, sequences); }
  bool reads_source() const override { return draft_.reads_source(); }
  std::span<const int32_t> target_ids() const override { return draft_.target_ids(); }
  Result<Ticket> submit(std::span<const StepItem> items, StepOutput output) override {
    items_.assign(items.begin(), items.end());
    for (StepItem& item : items_) item.part = part_;
    return draft_.submit(items_, output);
  }
  Result<StepResult> wait(Ticket ticket) override { return draft_.wait(ticket); }

 private:
  Engine& draft_;
  int part_;
  std::vector<StepItem> items_;
};

}  // namespace

class SharedStep::Seat final : public Executor {
 public:
  Seat(SharedStep& all, int part) : all_(all), engine_(all.engine_), part_(part) {
    if (Engine* draft = engine_.draft()) draft_ = std::make_unique<DraftSeat>(*draft, part);
  }

  int64_t context_length() const override { return engine_.context_length(); }
  int64_t vocab_size() const override { return engine_.vocab_size(); }
  // What all parts submit fits in one step of the engine.
  int64_t max_step_tokens() const override { return std::max<int64_t>(1, engine_.max_step_tokens() / parts()); }
  int64_t max_step_rows() const override { return std::max<int64_t>(1, engine_.max_step_rows() / parts()); }
  int64_t edit_words() const override { return engine_.edit_words() / parts(); }
  kv::KvPool& kv_pool() override { return engine_.kv_pool_of(part_); }
  Status copy_page(kv::PageId from, kv::PageId to) override { return engine_.copy_page_of(part_, from, to); }
  bool has_states() const override { return engine_.has_states(); }
  bool has_greedy_steps() const override { return engine_.has_greedy_steps(); }
  bool has_sampled_steps() const override { return engine_.has_sampled_steps(); }
  bool draws_on_device() const override { return engine_.draws_on_device(); }
  bool draws_beside(const Draw& draw) const override { return engine_.draws_beside(draw); }

  int64_t max_verify_rows() const override { return engine_.max_verify_rows() / parts(); }
  std::string verify_refusal() const override {
    std::string why = engine_.verify_refusal();
    if (why.empty() && max_verify_rows() == 0)
      why = fmt::format("steps with drafts have {} rows for {} parts", engine_.max_verify_rows(), parts());
    return why;
  }
  int64_t max_drafts() const override { return engine_.max_drafts(); }
  Executor* draft() override { return draft_.get(); }
  // The other parts are taken to have as many rows.
  RowsCost rows_cost(int64_t rows, int64_t sequences) const override {
    return engine_.rows_cost(rows * parts(), sequences * parts());
  }
  void learn_drafts(std::string_view by, std::span<const int64_t> verified,
                    std::span<const int64_t> accepted) override {
    engine_.learn_drafts(by, verified, accepted);
  }

  Result<Ticket> submit(std::span<const StepItem> items, StepOutput output) override {
    if (state_ != State::Free) return error(Code::Internal, "part {} has a step in flight", part_);
    items_.assign(items.begin(), items.end());
    for (StepItem& item : items_) item.part = part_;
    output_ = output;
    state_ = State::Submitted;
    return ++ticket_;
  }
  Result<StepResult> wait(Ticket ticket) override {
    if (state_ == State::Free || ticket != ticket_)
      return error(Code::Internal, "step {} of part {} is not in flight", ticket, part_);
    if (state_ == State::Submitted) all_.run();
    state_ = State::Free;
    return std::move(result_);
  }

 private:
  friend class SharedStep;
  enum class State : uint8_t { Free, Submitted, Done };

  int64_t parts() const { return all_.parts(); }
  void take(Result<StepResult> result) {
    state_ = State::Done;
    result_ = std::move(result);
  }
  // Beyond the next step of the engine.
  void keep_result() {
    if (!result_.is_ok()) return;
    const auto keep = [](auto& span, auto& kept) {
      kept.assign(span.begin(), span.end());
      span = kept;
    };
    keep(result_->logits, kept_.logits);
    keep(result_->tokens, kept_.tokens);
    keep(result_->logprobs, kept_.logprobs);
    keep(result_->top_tokens, kept_.top_tokens);
    keep(result_->top_logprobs, kept_.top_logprobs);
  }

  SharedStep& all_;
  Engine& engine_;
  int part_;
  std::unique_ptr<Executor> draft_;  // a DraftSeat
  State state_ = State::Free;
  Ticket ticket_ = 0;
  std::vector<StepItem> items_;
  StepOutput output_ = StepOutput::Logits;
  std::vector<int32_t> tokens_;  // the largest logits' of its rows, where the step did not give them
  Result<StepResult> result_ = StepResult();
  struct {
    std::vector<float> logits, logprobs, top_logprobs;
    std::vector<int32_t> tokens, top_tokens;
  } kept_;
};

namespace {

// The largest one, the first on a tie; -1 where one is no number.
int32_t largest(std::span<const float> row) {
  size_t best = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] != row[i]) return -1;
    if (row[i] > row[best]) best = i;
  }
  return static_cast<int32_t>(best);
}

// Rows [first, first + rows) of a step's result.
StepResult rows_of(const StepResult& all, size_t first, size_t rows, size_t vocab) {
  const auto cut = [&](auto span, size_t width) {
    return span.empty() ? span : span.subspan(first * width, rows * width);
  };
  constexpr auto kTop = static_cast<size_t>(kMostTopTokens);
  return {.logits = cut(all.logits, vocab),
          .tokens = cut(all.tokens, 1),
          .logprobs = cut(all.logprobs, 1),
          .top_tokens = cut(all.top_tokens, kTop),
          .top_logprobs = cut(all.top_logprobs, kTop),
          .pooled = {},  // sequences of such models are not shared out
          .gap_us = all.gap_us};
}

}  // namespace

SharedStep::SharedStep(Engine& engine) : engine_(engine) {
  for (int part = 0; part < static_cast<int>(engine.options().sequence_parts); ++part)
    seats_.push_back(std::make_unique<Seat>(*this, part));
}
SharedStep::~SharedStep() = default;

Executor& SharedStep::part(int part) { return *seats_[static_cast<size_t>(part)]; }

// Programs that verify drafts take single tokens besides, and those of prompts have rows with logits for single tokens
// alone.
void SharedStep::run() {
  std::vector<Seat*> all, drafting, others;
  std::vector<StepItem> items;
  bool late = false;
  for (const auto& s : seats_) {
    late |= s->state_ == Seat::State::Done;
    if (s->state_ != Seat::State::Submitted) continue;
    const auto drafts = [](const StepItem& i) { return !i.drafts.empty(); };
    all.push_back(s.get());
    (std::any_of(s->items_.begin(), s->items_.end(), drafts) ? drafting : others).push_back(s.get());
    items.insert(items.end(), s->items_.begin(), s->items_.end());
  }
  if (late) {
    for (Seat* s : all) s->take(error(Code::Internal, "a part submits before all have waited"));
    return;
  }
  const bool apart = engine_.runner(kPhases[kVerifyPhase].name) != nullptr;
  if (!apart || drafting.empty() || phase_of(items, apart) == kVerifyPhase) return run_together(all);
  run_together(drafting);
  for (Seat* s : drafting) s->keep_result();
  run_together(others);
}

// One step has one kind of result. Where parts ask for different ones, those who want the largest logit draw it, or get
// the logits where another part does.
void SharedStep::run_together(const std::vector<Seat*>& seats) {
  std::vector<StepItem> items;
  bool all_argmax = true, drawn = false;
  for (const Seat* s : seats) {
    all_argmax &= s->output_ == StepOutput::NextTokens;
    drawn |= s->output_ == StepOutput::Sampled;
  }
  for (Seat* s : seats) {
    if (!all_argmax && s->output_ == StepOutput::NextTokens)
      for (StepItem& item : s->items_) item.draw = drawn && item.logits > 0 ? std::optional(Draw{}) : std::nullopt;
    items.insert(items.end(), s->items_.begin(), s->items_.end());
  }
  const StepOutput output = all_argmax ? StepOutput::NextTokens : drawn ? StepOutput::Sampled : StepOutput::Logits;
  const auto result = run_merged(output, items);
  size_t first = 0;
  const auto vocab = static_cast<size_t>(engine_.vocab_size());
  for (Seat* s : seats) {
    size_t rows = 0;
    for (const StepItem& item : s->items_) rows += static_cast<size_t>(item.logits);
    s->take(result.is_ok() ? Result<StepResult>(rows_of(*result, first, rows, vocab)) : result.status());
    first += rows;
    if (!result.is_ok() || output != StepOutput::Logits || s->output_ != StepOutput::NextTokens) continue;
    s->tokens_.clear();
    for (size_t r = 0; r < rows; ++r) s->tokens_.push_back(largest(s->result_->logits.subspan(r * vocab, vocab)));
    s->result_->tokens = s->tokens_;
  }
}

Result<StepResult> SharedStep::run_merged(StepOutput output, std::vector<StepItem>& items) {
  ASSIGN_OR_RETURN(const Ticket ticket, engine_.submit(items, output));
  return engine_.wait(ticket);
}

}  // namespace reprise::engine

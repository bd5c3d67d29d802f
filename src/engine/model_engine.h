// ModelEngine: the one implementation of Engine. Internal to this folder: engine.cpp opens it, engine_step.cpp runs a
// step, engine_flight.cpp keeps two of them going. One thread drives it at a time.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/host_copy.h"
#include "engine/engine.h"
#include "engine/faults.h"
#include "engine/flight.h"
#include "engine/programs.h"
#include "engine/replay_check.h"
#include "engine/step_stage.h"

namespace reprise::engine {

class ModelEngine final : public Engine {
 public:
  ModelEngine(EngineOptions options, Platform platform)
      : options_(std::move(options)), platform_(std::move(platform)) {}

  ~ModelEngine() override;

  Status open();

  const checkpoint::ModelConfigFields& config() const override { return config_.fields; }
  const checkpoint::Checkpoint* checkpoint() const override { return checkpoint_ ? &*checkpoint_ : nullptr; }
  const EngineOptions& options() const override { return options_; }
  Device& device() override { return *platform_.device; }
  StreamStats stream_stats() const override { return stream_->stats(); }
  MemoryReport memory() const override {
    return {params_.bytes(),
            pool_.bytes(),
            pool_.shape().page_bytes(),
            pool_.total_pages(),
            arena_.size() + staging_.bytes(),
            exchange_.size()};
  }
  LoadTimes load_times() const override { return times_; }
  int64_t context_length() const override { return options_.context_length; }
  int64_t max_step_tokens() const override { return options_.chunked_prefill_size; }
  int64_t max_step_rows() const override { return options_.max_running_requests; }
  DType dtype() const override { return *options_.dtype; }
  size_t weight_bytes_per_step() const override { return step_bytes_; }
  size_t expert_bytes() const override { return expert_bytes_; }
  size_t kv_bytes_per_token() const override { return pool_.shape().token_bytes(); }
  std::string graph_text() const override { return graph_text_; }
  const StepRunner* decode_runner() const override { return decode_.get(); }
  const StepRunner* prefill_runner() const override { return prefill_.get(); }
  const PipelineReport* decode_passes() const override { return &decode_passes_; }
  const PipelineReport* prefill_passes() const override { return &prefill_passes_; }

  const ExpertUse* expert_use() const override { return expert_use_.layers() > 0 ? &expert_use_ : nullptr; }

  Status reserve(Sequence& sequence, int64_t tokens) override;
  void release(Sequence& sequence) override {
    pool_.release(sequence.pages());
    sequence.pages().clear();
    sequence.set_cached(0);
  }
  Status follow() override;
  int64_t free_pages() const override { return pool_.free_pages(); }
  kv::KvPool& kv_pool() override { return pool_; }
  Status copy_page(kv::PageId from, kv::PageId to) override;
  bool has_greedy_steps() const override { return true; }
  bool has_sampled_steps() const override { return sampling_; }
  int64_t edit_words() const override { return stages_[0].edit_words(); }
  bool overlaps() const override;
  Result<Ticket> submit(std::span<const StepItem> items, StepOutput output) override;
  Result<StepResult> wait(Ticket ticket) override;
  Result<TensorView> hidden_states() const override;
  std::vector<std::string> output_names() const override;
  Result<TensorView> output(std::string_view name) const override { return result(name); }
  Status resize_kv(int64_t tokens) override;
  EngineCounters counters() const override;
  Status set_trace(Trace* trace) override { return stream_->set_trace(trace); }
  void set_step_hook(StepHook hook) override { hook_ = std::move(hook); }

 private:
  // Opening, in engine.cpp.
  Status check_options() const;
  Status read_config();
  Status open_checkpoint();
  Status choose_context();
  Status choose_numbers();
  Status prepare(ProgramBuilder& builder, models::TraceOptions trace);
  Status explain_head_size(const models::TraceOptions& trace, const Status& why) const;
  Result<models::TraceOptions> other_dtypes(const ProgramBuilder& builder, const models::TraceOptions& trace,
                                            bool any_dtype, bool any_kv_dtype, const Status& why) const;
  int usual_warmups() const;
  Status load(const ProgramBuilder& builder);
  Result<int64_t> choose_kv_pages(const kv::KvShape& shape) const;
  Status compile(ProgramBuilder& builder);
  void learn_sizes_from(const std::string& file);
  Status check_ranks() const;
  Status check_expert_ranks() const;
  bool front() const { return !options_.member || options_.member->world().front(); }
  std::unordered_map<std::string, void*> caches() const;

  // Steps in flight, in engine_flight.cpp.
  Flight* step_before(const Flight& f);
  Status run_alone(Flight& f);
  Status launch_beside(Flight& f);
  Status feed_tokens(Flight& f);
  Status ask_for_result(Flight& f);
  Status accept_result(const Flight& f);
  void finish(Flight& f);
  Status enqueue_copy(kv::PageId from, kv::PageId to);
  Status compute_again(Flight& f, const Status& failed);

  // The step over ranks, in engine_ranks.cpp.
  Status tell_followers(const ranks::StepMessage& message);
  Status run_on_all(const StepPlan& plan, const LiveSizes& live, StepOutput output);
  Status follow_step(const ranks::StepMessage& message);
  Status follow_resize(int64_t tokens);
  Status take_all_pages();
  Status obey(const ranks::StepMessage& message);

  // A step from its staging to its end, in engine_step.cpp.
  StepRunner& runner_of(const LiveSizes& live);
  StepStage& stage() { return stages_[static_cast<size_t>(staging_.selected())]; }
  Status run(std::span<const StepItem> items, StepOutput output);
  Status run_split(std::span<const StepItem> items, int64_t first, StepOutput output);
  Status run_captured(const StepPlan& plan, std::span<const StepItem> items, LiveSizes live, StepOutput output);
  Status run_with_fault(const Fault& fault, StepRunner& runner, const LiveSizes& live, StepOutput output);
  Status recover_mismatch(const ReplayDifference& difference, const StepPlan& plan, std::span<const StepItem> items,
                          StepOutput output, bool decode);
  Status rebind_if_moved();
  Status collect(StepOutput output);
  Status count_experts();
  // An output of the last step, in memory of the host. ask(): there once the stream is synchronized, if it is not yet.
  Result<TensorView> result(std::string_view name) const;
  Result<TensorView> ask(std::string_view name) const;
  Result<TensorView> latest(std::string_view name) const;  // of the last program alone
  Status arrived() const;

  EngineOptions options_;
  Platform platform_;  // outlives everything below, which holds its memory
  const models::ModelSpec* model_ = nullptr;
  models::ModelConfig config_;
  std::shared_ptr<const checkpoint::QuantPlan> quantisation_;
  std::optional<checkpoint::Checkpoint> checkpoint_;
  ParamStore params_;
  kv::KvPool pool_;
  uint64_t bound_generation_ = 0;  // of the pool that programs are bound to
  Buffer arena_, exchange_;
  uint32_t arena_epoch_ = 0;  // runs on it
  Staging staging_;
  std::unique_ptr<StepRunner> decode_, prefill_;
  std::unique_ptr<ReplayCheck> check_;
  FaultInjector faults_{{}};
  PipelineReport decode_passes_, prefill_passes_;
  std::unique_ptr<Stream> stream_;
  std::array<StepStage, 2> stages_;  // one per slot of the staging; a device that is not asynchronous has one slot
  std::array<Flight, 2> flights_;
  std::array<StepMarks, 4> marks_;                              // by ticket: those of a step outlive the two after it
  Ticket tickets_ = 0;                                          // the last one given out
  std::vector<std::pair<kv::PageId, kv::PageId>> page_copies_;  // of pages, asked for since the last submit()
  double finished_us_ = 0;                                      // when the last step was known to be done
  std::optional<double> gap_us_;                                // of the current step
  StepHook hook_;
  const CompiledModel* last_ = nullptr;  // whose outputs are the last step's, unless they were collected
  // Outputs of a batch that ran as several parts, by name.
  struct Collected {
    TensorView view;
    std::vector<uint8_t> bytes;
  };
  std::map<std::string, Collected, std::less<>> collected_;
  bool collecting_ = false;
  mutable std::map<std::string, HostCopy, std::less<>> copies_;  // of outputs, where the host does not see the device's
  EngineCounters counters_;
  ExpertUse expert_use_;
  // By program: where each layer's borders are.
  std::map<const CompiledModel*, std::vector<const GraphOutput*>> expert_starts_;
  double device_s_ = 0;  // of the current step
  LoadTimes times_;
  size_t step_bytes_ = 0, expert_bytes_ = 0;
  bool sampling_ = false;  // the device draws tokens
  std::string graph_text_, learned_file_;
};

}  // namespace reprise::engine

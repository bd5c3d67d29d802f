// Engine: one loaded model on one device, ready to run steps.
//
// It owns the device, the parameters, the compiled programs and the pools of KV pages and states. A step takes any mix
// of prefill chunks and decode rows and returns the logits of the rows that asked for them. Two engines with different
// models live side by side in one process. One thread drives an engine at a time. engine.cpp opens it, engine_step.cpp
// runs a step, engine_flight.cpp keeps several of them going, engine_ranks.cpp runs them on several ranks,
// engine_check.cpp checks replays.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/config.h"
#include "checkpoint/quantisation.h"
#include "engine/adapter_slots.h"
#include "engine/engine_options.h"
#include "engine/executor.h"
#include "engine/expert_use.h"
#include "engine/faults.h"
#include "engine/flight.h"
#include "engine/graph_options.h"
#include "engine/learned.h"
#include "engine/model_files.h"
#include "engine/phases.h"
#include "engine/programs.h"
#include "engine/rank_draws.h"
#include "engine/replay_check.h"
#include "engine/step_outputs.h"
#include "engine/tower.h"
#include "ops/platform.h"
#include "ranks/member.h"

namespace reprise::engine {

struct MemoryReport {
  size_t weight_bytes = 0;
  size_t kv_bytes = 0;  // whole pool, touched lazily
  size_t kv_page_bytes = 0;
  size_t state_bytes = 0;  // the pool of states
  int64_t kv_pages = 0;
  size_t activation_bytes = 0;  // arena and staging
  size_t adapter_bytes = 0;     // slots of LoRA adapters
  size_t exchange_bytes = 0;    // results of collectives, once for all ranks of a host
};

struct LoadTimes {
  double load_s = 0;
  double compile_s = 0;
  double capture_s = 0;
};

// What steps did besides computing.
struct EngineCounters {
  uint64_t steps = 0;
  double host_s = 0;             // in submit(), outside the device: staging, choosing, launching
  uint64_t captures = 0;         // device graphs recorded; the same at the end as when the engine was ready
  uint64_t checked = 0;          // replays run again by --verify-replay
  uint64_t differences = 0;      // of those, how many differed
  uint64_t rebinds = 0;          // times the KV pool had moved
  uint64_t logits_gathered = 0;  // rows of logits that ranks have gathered
  // By part of a world that shares out sequences: steps in which it had no rows.
  std::vector<uint64_t> idle_steps = {};
  std::string last_report = {};  // file written for the last difference
};

// A step whose inputs are staged and which is about to run; for checks, which may change all of it.
struct StagedStep {
  const StepStage& stage;
  std::span<const StepItem> items;
  const LiveSizes& live;
  size_t phase;              // of kPhases
  std::span<uint8_t> arena;  // addresses of the device, like those of the pool's pages
  const kv::KvPool& pool;
  const kv::StatePool& states;
  std::function<void(void* data, uint8_t value, size_t bytes)> fill;  // for both
};
using StepHook = std::function<void(const StagedStep&)>;

class Engine final : public Executor {
 public:
  // The platform comes from make_platform() (backends/all.h), which only programs and tests call.
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options, Platform platform);
  ~Engine() override;

  const checkpoint::ModelConfigFields& config() const { return files_.config.fields; }
  // The opened checkpoint (tokenizer metadata of a GGUF); null with dummy weights.
  const checkpoint::Checkpoint* checkpoint() const { return files_.checkpoint ? &*files_.checkpoint : nullptr; }
  const EngineOptions& options() const { return options_; }  // with the effective values filled in
  Device& device() { return *platform_.device; }
  StreamStats stream_stats() const { return stream_->stats(); }  // of all steps so far
  MemoryReport memory() const;
  LoadTimes load_times() const { return times_; }
  DType dtype() const { return *options_.dtype; }
  int64_t context_length() const override { return options_.context_length; }
  int64_t vocab_size() const override { return config().vocab_size; }
  int64_t max_step_tokens() const override { return options_.chunked_prefill_size; }
  int64_t max_step_rows() const override { return options_.max_running_requests; }
  // What one decode step must read: every weight once, and the KV bytes per cached token.
  size_t weight_bytes_per_step() const { return step_bytes_; }
  size_t expert_bytes() const { return expert_bytes_; }  // of those weights, what lies in stacks of experts
  size_t kv_bytes_per_token() const { return pool_.shape().token_bytes(); }
  const std::string& graph_text() const { return graph_text_; }
  // How a phase of kPhases runs and what it counted, and what the passes did to its graph. Null: there is no such
  // phase.
  const StepRunner* runner(std::string_view phase) const;
  // The phases that there are.
  std::span<const PhaseSpec> phases() const {
    return std::span(kPhases).first(verifies_apart() ? kPhaseCount : kVerifyPhase);
  }
  const PipelineReport* passes(std::string_view phase) const;
  // What went to which expert; null where that is not counted.
  const ExpertUse* expert_use() const { return expert_use_.layers() > 0 ? &expert_use_ : nullptr; }

  // On a rank that is not the front: runs what the front publishes until it stops. Ok when the front has ended in
  // order.
  Status follow();

  // KV pages for `tokens` tokens in total; OutOfMemory names the pool's size and what is asked. release() gives back
  // what the sequence holds.
  Status reserve(Sequence& sequence, int64_t tokens, int part = 0);
  void release(Sequence& sequence, int part = 0);
  int64_t free_pages() const { return pool_.free_pages(); }
  kv::KvPool& kv_pool() override { return pool_; }
  // The pages of a part of the world; of other parts than this rank's the ledger alone. The front's.
  kv::KvPool& kv_pool_of(int part) { return part == 0 ? pool_ : ledgers_[static_cast<size_t>(part) - 1]; }
  const kv::StatePool& state_pool() const { return states_; }
  bool has_states() const override { return states_.slots() > 0; }
  kv::StatePool* kept_states() override { return states_.most_kept() > 0 ? &states_ : nullptr; }
  Status copy_page(kv::PageId from, kv::PageId to) override { return copy_page_of(0, from, to); }
  Status copy_page_of(int part, kv::PageId from, kv::PageId to);

  // Adapters are loaded and unloaded between steps.
  AdapterSlots& adapters() { return adapters_; }

  int64_t max_image_rows() const override { return tower_ ? tower_->max_rows() : 0; }
  // What the tower makes of an image; between steps.
  Result<std::shared_ptr<const models::ImageRows>> image_rows(const ImageInput& image) { return tower_->rows(image); }
  const Tower* tower() const { return tower_.get(); }  // null: the model reads no images

  const checkpoint::PoolingFields& pooling() const { return files_.config.pooling; }
  int64_t pooled_size() const override { return pooled_size_; }
  bool whole_prompts() const override {
    return models::encodes(*files_.spec, files_.config.fields) ||
           files_.config.pooling.kind == checkpoint::PoolKind::Mean;
  }
  bool has_greedy_steps() const override { return pooled_size_ == 0; }
  // What drafts for another model drafts alike on one rank and on several: where the device draws, or not at all.
  bool has_sampled_steps() const override { return sampling_ || (rank_draws_ && !drafts_for_another_); }
  bool draws_on_device() const override { return sampling_; }
  const RankDraws* rank_draws() const { return rank_draws_.get(); }  // null: hosts of ranks draw nothing
  bool draws_beside(const Draw& draw) const override;
  int64_t edit_words() const override { return stages_[0].edit_words(); }
  bool overlaps() const override;
  // States alternate between slots, one more than steps in flight, of which there are few.
  int64_t max_in_flight() const override { return has_states() ? 2 : static_cast<int64_t>(flights_.most()); }
  int64_t max_verify_rows() const override;
  std::string verify_refusal() const override;
  int64_t max_drafts() const override;
  RowsCost rows_cost(int64_t rows, int64_t sequences) const override {
    return runners_[rows > sequences && verifies_apart() ? kVerifyPhase : 0]->cost(rows);
  }
  void learn_drafts(std::string_view by, std::span<const int64_t> verified,
                    std::span<const int64_t> accepted) override {
    if (options_.load_format != LoadFormat::Dummy) drafts_.add(by, verified, accepted);
  }
  // With what earlier runs learned, where that is kept.
  const DraftRecord& learned_drafts() const { return drafts_; }
  Engine* draft() override { return draft_.get(); }
  const Engine* draft() const { return draft_.get(); }
  // Whether it is a head, which drafts from the rows that another engine keeps; its steps name them (StepItem::source).
  bool reads_source() const override { return step_.has_source(); }
  // The model's id for each token of a head that knows only some of the model's tokens. Empty: ids are the model's.
  std::span<const int32_t> target_ids() const override { return files_.target_ids; }
  // Its pool becomes as large as this one's, in tokens (EngineOptions::beside); a head reads this one's rows. Where its
  // graphs were left for later they are captured now.
  Status set_draft(std::unique_ptr<Engine> draft);
  Result<Ticket> submit(std::span<const StepItem> items, StepOutput output) override;
  Result<StepResult> wait(Ticket ticket) override;

  // The outputs of the last step's program by name (none before the first step), and one of them in memory of the
  // host: "logits", "hidden" ([rows, hidden size] of the logit rows, in the model's dtype: what the head read), and
  // what observe_linears adds. Valid until the next step.
  std::vector<std::string> output_names() const { return outputs_.names(); }
  Result<TensorView> output(std::string_view name) const { return outputs_.get(name); }
  Result<TensorView> hidden_states() const { return output("hidden"); }

  // A KV pool for so many tokens; pages in use keep their content. Captured graphs are bound to the new place before
  // the next step.
  Status resize_kv(int64_t tokens);
  EngineCounters counters() const;
  void set_step_hook(StepHook hook) { hook_ = std::move(hook); }
  // Times the launches of the steps that follow (device/trace.h); null ends that. Events name nodes of the runner's
  // last program.
  Status set_trace(Trace* trace) { return stream_->set_trace(trace); }

 private:
  Engine(EngineOptions options, Platform platform) : options_(std::move(options)), platform_(std::move(platform)) {}
  Status open();

  // Opening, in engine.cpp.
  std::vector<void*> lent_params(std::span<const ParamPlan> params, const ProgramBuilder& builder);
  Status set_source(const Engine& source);
  void* kept_rows() const;
  Status choose_numbers();
  void note_dtype();
  Status prepare(ProgramBuilder& builder, models::TraceOptions trace);
  int usual_warmups() const;
  Status load(const ProgramBuilder& builder);
  int64_t scratch_pages(const ProgramBuilder& builder) const;
  Result<int64_t> choose_kv_pages(const kv::KvShape& shape, size_t state_bytes, int64_t scratch) const;
  Status make_caches(const ProgramBuilder& builder);
  Status check_tower() const;
  Status prepare_tower();
  Status compute_images(std::span<const StepItem> items);
  Status compile(std::unique_ptr<ProgramBuilder> builder);
  Status capture(ProgramBuilder& builder);
  void choose_streams();
  Status check_ranks() const;
  Status choose_adapters();
  Result<std::vector<kv::KvPool>> ledgers(int64_t pages) const;
  bool front() const { return !options_.member || options_.member->world().front(); }
  std::unordered_map<std::string, void*> caches() const;

  // Steps in flight, in engine_flight.cpp.
  Status run_alone(Flight& f);
  Status launch_beside(Flight& f);
  Status feed_tokens(Flight& f);
  void finish(Flight& f);
  void tell_no_times();
  Status enqueue_copy(kv::PageId from, kv::PageId to);
  Status compute_again(Flight& f, const Status& failed);

  // The step over ranks, in engine_ranks.cpp.
  Status publish(ranks::StepMessage message, std::span<const uint8_t> staged = {});
  Status tell_followers(const ranks::StepMessage& message);
  // `flip`: a bit that turns in one of its launches.
  Status run_on_all(const StepPlan& plan, size_t phase, const LiveSizes& live, StepOutput output,
                    const Fault* flip = nullptr);
  Status run_here(const StepPlan& plan, size_t phase, const LiveSizes& live, StepOutput output, const Fault* flip);
  Status launch_here(const StepPlan& plan, size_t phase, const LiveSizes& live, StepOutput output, const Fault* flip);
  // Tokens that the device of every rank has left to their hosts.
  Status draw_over_ranks(const LiveSizes& live, StepOutput output);
  bool drawn_by_hosts(const Flight& f) const;
  Status make_rank_draws(const ProgramBuilder& builder);
  Status tell_stop();
  Status tell_adapter(const PreparedAdapter* adapter, int32_t slot);
  Status follow_adapter(const ranks::StepMessage& message);
  Status tell_beside(const Flight& f, int slot);
  Status follow_step(const ranks::StepMessage& message);
  Status follow_beside(const ranks::StepMessage& message, const StepPlan& plan);
  Status feed_marked_tokens(const LiveSizes& live);
  Status follow_resize(int64_t tokens);
  Status resize_here(int64_t tokens);
  Status take_all_pages();
  Status obey(const ranks::StepMessage& message);

  // A step from its staging to its end, in engine_step.cpp.
  // Steps with drafts have programs of their own.
  bool verifies_apart() const { return runners_[kVerifyPhase] != nullptr; }
  size_t phase_of(std::span<const StepItem> items) const { return engine::phase_of(items, verifies_apart()); }
  StepRunner& runner_of(std::span<const StepItem> items) { return *runners_[phase_of(items)]; }
  PoolSizes pool_sizes() const {
    return {pool_.total_pages(), states_.slots(), source_ ? source_->pool_.total_pages() : 0, pool_.scratch_pages()};
  }
  StepStage& stage() { return stages_[static_cast<size_t>(staging_.selected())]; }
  Status hold_states(std::span<const StepItem> items);
  StepCaches caches_of_step() const { return {pool_, states_}; }
  Status run(std::span<const StepItem> items, StepOutput output);
  Status run_planned(std::span<const StepItem> items, const LiveSizes& live, StepOutput output);
  Status run_split(std::span<const StepItem> items, int64_t first, StepOutput output);
  Status run_captured(const StepPlan& plan, std::span<const StepItem> items, LiveSizes live, StepOutput output);
  Status run_with_fault(const Fault& fault, StepPlan plan, size_t phase, const LiveSizes& live, StepOutput output);
  Status run_with_flip(const Fault& flip, StepRunner& runner, const LiveSizes& live, StepOutput output);
  uint64_t source_generation() const;
  bool caches_moved() const;  // from where programs are bound to
  Status rebind_if_moved();

  // Checks of replays, in engine_check.cpp.
  Status begin_check(const StepPlan& plan, size_t phase, std::span<const StepItem> items, StepOutput output);
  Status end_check(const StepPlan& plan, size_t phase, std::span<const StepItem> items, StepOutput output);
  Status check_on_all(const CheckRun& run, const LiveSizes& live, std::span<const StepItem> items);
  Status check_here(const CheckRun& run, const LiveSizes& live, StepPlaces places);
  Result<std::optional<ReplayDifference>> compare_on_all(size_t phase, StepOutput output);
  Result<std::vector<std::string>> compare_here();
  Status retire_on_all(size_t phase, int64_t size, bool fusion, const std::string& reason);
  void retire_here(size_t phase, int64_t size, bool fusion, const std::string& reason);
  Status recover_mismatch(const ReplayDifference& difference, const CheckRun& replayed,
                          std::span<const StepItem> items);
  Status follow_check(const ranks::StepMessage& message);

  Status count_gathered(const LiveSizes& live, StepOutput output);

  EngineOptions options_;
  Platform platform_;  // outlives everything below, which holds its memory
  std::unique_ptr<Engine> draft_;
  bool drafts_for_another_ = false;  // that one's followers take the messages of this one, and it ends them
  const Engine* source_ = nullptr;   // of a head: whose rows it reads; until it is set, `no_source_` stands for them
  uint64_t bound_source_ = 0;        // generation of its pool that programs are bound to
  Buffer no_source_;
  ModelFiles files_;
  std::shared_ptr<const checkpoint::QuantPlan> quantisation_;
  std::vector<std::string> lends_;  // of its parameters, those that are rows of one tensor as it is stored
  ParamStore params_;
  models::StepSpec step_;
  kv::KvPool pool_;
  std::vector<kv::KvPool> ledgers_;  // of the parts behind this one: pages without memory
  kv::StatePool states_;
  AdapterSlots adapters_;
  uint64_t bound_generation_ = 0;  // of the pool that programs are bound to
  Buffer arena_, exchange_;
  uint32_t arena_epoch_ = 0;  // runs on it
  Staging staging_;
  std::unique_ptr<ProgramBuilder> uncaptured_;  // of an engine that captures later
  Runners runners_;                             // by phase; null: there is no such phase
  std::unique_ptr<ReplayCheck> check_;
  FaultInjector faults_{{}};
  std::array<PipelineReport, kPhaseCount> passes_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Tower> tower_;   // null: the model reads no images
  std::vector<StepStage> stages_;  // one per slot of the staging; a device that is not asynchronous has one slot
  Flights flights_;                // max_in_flight() of them
  TensorView fed_tokens_;          // a follower's: what the step before gives, on the device
  std::vector<std::pair<kv::PageId, kv::PageId>> page_copies_;  // of pages, asked for since the last submit()
  double finished_us_ = 0;                                      // when the last step was known to be done
  bool told_no_times_ = false;                                  // that marks gave none
  std::optional<double> gap_us_;                                // of the current step
  StepHook hook_;
  StepOutputs outputs_;
  EngineCounters counters_;
  ExpertUse expert_use_;
  double device_s_ = 0;  // of the current step
  LoadTimes times_;
  size_t step_bytes_ = 0, expert_bytes_ = 0;
  int64_t pooled_size_ = 0;
  bool sampling_ = false;                  // the device draws tokens
  bool tells_finite_ = false;              // and says whether what they come from is finite
  std::unique_ptr<RankDraws> rank_draws_;  // what it leaves to the hosts of all ranks; null: nothing
  std::string graph_text_, learned_file_;
  DraftRecord drafts_;
};

}  // namespace reprise::engine

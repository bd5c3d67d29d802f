// ProgramBuilder: from a traced model to the step runners of its phases (engine/phases.h).
//
// It traces the model at each phase's bounds, runs the passes, selects kernels and plans memory; then,
// once parameters and caches exist, binds everything into one shared arena and captures, largest size first. What
// cannot be captured degrades (sizes are dropped, then whole becomes piecewise, then eager) and keeps the reason,
// unless capturing is required. The engine makes one at start-up and uses it once, on the thread that opens the engine.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "engine/faults.h"
#include "engine/graph_options.h"
#include "engine/make_program.h"
#include "engine/phases.h"
#include "engine/step_runner.h"
#include "kv/kv_pool.h"
#include "models/model.h"

namespace reprise::engine {

class ProgramBuilder {
 public:
  ProgramBuilder(const models::ModelSpec& spec, const models::ModelConfig& config, const Platform& platform,
                 const GraphOptions& options)
      : spec_(spec), config_(config), platform_(platform), options_(options), plans_(options.plan_cache) {}

  // How many of kPhases there are: with the last one where graphs freeze sizes and drafts are to be verified.
  size_t phases() const { return verify_ ? kPhaseCount : kPhaseCount - 1; }

  // Halves the rows of steps with drafts, where these are what needs the most memory; `rows` are the options'. False:
  // they are not. Call prepare() again.
  bool cut_verify_rows(VerifyRows& rows) const;
  // Which steps with drafts there are, and what they take, in a line.
  std::string verify_summary() const;

  // Traces, rewrites and plans every phase. `trace` holds the bounds of all steps.
  Status prepare(const models::TraceOptions& trace);

  // Whether a decode step can be made with these options, which keeps nothing.
  Status try_decode(models::TraceOptions trace) const;

  // For --verify-replay: the same models with nothing fused but the same parameters. Call after prepare().
  Status prepare_shadows();

  // The parameters every program reads, in the layouts their kernels ask for.
  const std::vector<ParamPlan>& params() const { return params_; }
  // How the loader makes parameters that the passes derived from the checkpoint's.
  const std::vector<DerivedParam>& derived() const { return derived_; }
  // What the passes did to a phase's graph.
  const PipelineReport& report(size_t phase) const { return reports_[phase]; }
  // The graph's inputs that hold pages: what the pool of pages must hold.
  kv::KvShape caches() const;
  std::vector<kv::StateCache> states() const;  // and those that hold states
  // And those that hold LoRA adapters, with their types.
  std::vector<std::pair<std::string, TensorType>> adapters() const;
  size_t arena_bytes() const;
  size_t exchange_bytes() const;      // of what ranks exchange
  std::string exchange_text() const;  // where each result of a collective lies, the same on all ranks
  // Parameters that a decode step reads whole; of a table only a few rows are read.
  size_t bytes_per_step() const;
  size_t expert_bytes() const;  // of those, in stacks of experts
  // Whether the programs have this output: one that the device has no kernel for was left out.
  bool returns(std::string_view output) const;
  int64_t pooled_size() const;  // numbers of a row of the output "pooled"; 0: there is none
  // IR text of the decode program after all passes.
  const std::string& graph_text() const { return graph_text_; }
  const PlanCache& plans() const { return plans_; }

  struct Bindings {
    const ParamStore* params = nullptr;
    std::unordered_map<std::string, void*> external;
    void* arena = nullptr;
    void* exchange = nullptr;
    uint32_t* arena_epoch = nullptr;
    Staging* staging = nullptr;
    Stream* stream = nullptr;
    FaultInjector* faults = nullptr;
    PoolSizes pools;
    bool progress = false;
  };
  // Rows that a captured step may have beyond those of its sequences.
  int64_t most_padding() const;
  void declare_inputs(Staging& staging, const std::unordered_map<std::string, void*>& external) const;
  // Call once per phase, after the parameters exist and the staged inputs are neutral.
  Result<std::unique_ptr<StepRunner>> build(size_t phase, const Bindings& bindings);
  // The unfused, eager model of prepare_shadows().
  Result<std::unique_ptr<CompiledModel>> build_shadow(size_t phase, const Bindings& bindings);

 private:
  // Fused: as the options say. Plain: the same without the fusions, for sizes above fused_decode_max. Shadow: nothing
  // optional, the answer key of --verify-replay.
  enum class Kind : uint8_t { Fused, Plain, Shadow };
  struct Prepared {
    size_t phase;
    Kind kind;
    Graph graph;
    KernelSelection selection;
    MemoryPlan plan;
  };
  Status prepare_all();
  PipelineOptions pipeline_for(size_t phase, Kind kind) const;
  Status check_split_ops() const;
  Status add(size_t phase, Kind kind, PipelineReport* report);
  // All programs read one set of parameters. The unfused one may want vectors besides, which fusions have made others
  // of.
  Status join_params(const Program& program, Kind kind, size_t phase);
  Result<std::unique_ptr<CompiledModel>> compile(size_t phase, Kind kind, const Bindings& bindings);
  // The limit of fused sizes is one of decode steps.
  bool has_plain(size_t phase) const {
    return phase == 0 && options_.fused_decode_max > 0 && options_.fused_decode_max < bound(phase);
  }
  std::vector<int64_t> sizes_of(size_t phase) const;
  // What a capture of `size` fixes.
  LiveSizes frozen(size_t phase, int64_t size, const PoolSizes& pools) const;
  int64_t bound(size_t phase) const {
    return kPhases[phase].drafts ? verify_list_.back()
                                 : kPhases[phase].largest(trace_.max_sequences, trace_.max_tokens);
  }
  std::vector<int64_t> verify_list() const;
  // An error where the graphs of this phase take more memory of the device than they may.
  Status check_graph_memory(const StepRunnerParts& parts) const;
  // Captures every size; those that fail are left out and remarked.
  Status capture_all(size_t phase, StepRunnerParts& parts, const Bindings& bindings) const;
  Status capture_size(size_t phase, int64_t size, StepRunnerParts& parts, const Bindings& bindings) const;

  const models::ModelSpec& spec_;
  const models::ModelConfig& config_;
  const Platform& platform_;
  const GraphOptions& options_;
  PlanCache plans_;
  models::TraceOptions trace_;
  bool verify_ = false;
  std::vector<int64_t> verify_list_;  // rows of its captures, as prepare() found them
  std::vector<Prepared> prepared_;
  size_t built_ = 0, graph_bytes_ = 0;  // phases, and what their graphs take
  std::string graph_text_;
  std::vector<ParamPlan> params_;
  std::vector<DerivedParam> derived_;
  std::array<PipelineReport, kPhaseCount> reports_;
};

}  // namespace reprise::engine

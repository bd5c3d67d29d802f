// ProgramBuilder: from a traced model to the step runners of both phases.
//
// It traces the model at each phase's bounds, runs the passes, selects kernels and plans memory; then, once parameters
// and caches exist, binds everything into one shared arena and captures, largest size first. When a capture fails it
// degrades (whole, then piecewise, then eager) and keeps the reason, unless capturing is required. Used once, at
// start-up.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/graph_options.h"
#include "engine/make_program.h"
#include "engine/step_runner.h"
#include "models/model.h"

namespace reprise::engine {

enum class Phase : uint8_t { Decode, Prefill };
std::string_view phase_name(Phase phase);

class ProgramBuilder {
 public:
  ProgramBuilder(const models::ModelSpec& spec, const models::ModelConfig& config, const Platform& platform,
                 const GraphOptions& options)
      : spec_(spec), config_(config), platform_(platform), options_(options), plans_(options.plan_cache) {}

  // Traces, rewrites and plans both phases. `trace` holds the prefill bounds; decode steps have at most max_sequences
  // tokens.
  Status prepare(const models::TraceOptions& trace);

  // The parameters every program reads, in the layouts their kernels ask for.
  const std::vector<ParamPlan>& params() const { return prepared_.front().selection.params; }
  // How the loader fills parameters that the passes packed.
  const std::vector<PackedParam>& packed() const { return packed_; }
  // What the passes did to the decode and the prefill graph.
  const PipelineReport& report(Phase phase) const { return phase == Phase::Decode ? decode_report_ : prefill_report_; }
  size_t arena_bytes() const;
  // IR text of the decode program after all passes.
  const std::string& graph_text() const { return graph_text_; }
  const PlanCache& plans() const { return plans_; }

  struct Bindings {
    const ParamStore* params = nullptr;
    std::unordered_map<std::string, void*> external;
    void* arena = nullptr;
    Staging* staging = nullptr;
    bool progress = false;
  };
  void declare_inputs(Staging& staging, const std::unordered_map<std::string, void*>& external) const;
  // Call once per phase, after the parameters exist; leaves the builder without that phase's programs.
  Result<std::unique_ptr<StepRunner>> build(Phase phase, const Bindings& bindings);

 private:
  struct Prepared {
    Phase phase;
    int64_t size;
    Graph graph;
    KernelSelection selection;
    MemoryPlan plan;
  };
  Status prepare_all(const models::TraceOptions& trace);
  // The passes of a program: above fused_decode_max without the fusions.
  PipelineOptions pipeline_for(Phase phase, int64_t bound) const;
  Result<Prepared> prepare_phase(Phase phase, int64_t bound, PipelineReport* report);
  Status add(Phase phase, int64_t bound, PipelineReport* report);
  Result<std::unique_ptr<CompiledModel>> compile_degrading(Prepared prepared, GraphMode& mode, std::string& reason,
                                                           const Bindings& bindings);

  const models::ModelSpec& spec_;
  const models::ModelConfig& config_;
  const Platform& platform_;
  const GraphOptions& options_;
  PlanCache plans_;
  models::TraceOptions trace_;
  std::vector<Prepared> prepared_;
  std::vector<int64_t> decode_sizes_, prefill_sizes_;
  std::string graph_text_;
  std::vector<PackedParam> packed_;
  PipelineReport decode_report_, prefill_report_;
};

}  // namespace reprise::engine

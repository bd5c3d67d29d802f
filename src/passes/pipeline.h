// The pipeline: which passes a model goes through, in which order. Plain functions; thread-compatible.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/quantisation.h"
#include "passes/house_passes.h"
#include "passes/pass_file.h"
#include "passes/pass_manager.h"
#include "passes/rewrite.h"
#include "passes/shard_over_ranks.h"

namespace reprise {

struct PipelineOptions {
  PassOptions passes;
  std::optional<PassFile> pass_file = {};  // its rewrites are applied before the house's fusions
  bool observe_linears = false;  // every linear's input becomes an output "observed:<weight>", for calibration
  bool observe_experts = false;  // the borders of experts' rows become outputs "expert_starts:<layer>", to be counted
  bool expand_latents = false;   // prompts' attention over latents with keys and values expanded where that is cheaper
  bool greedy = false;           // return "next_tokens", the argmax of the logits, besides the logits
  bool finite_rows = false;      // and with the tokens whether what they come from is finite
  std::shared_ptr<const checkpoint::QuantPlan> quantisation{};  // null: the model's floats
  RankShare ranks{};                                            // of how many this one is; one: nothing is cut
  PartInputs part_inputs{};                                     // where ranks share out sequences
  LoraSlots lora{};                                             // none: the graph is the model's alone
  int streams = 1;              // of a recorded graph for its branches; kSideStream is the second
  int64_t prefetch_bytes = 0;   // of weights that are read ahead at a time, at most; 0: none are
  int64_t prefetch_keys = 512;  // of each row's context, by which it is judged whether that pays
};

struct PipelineReport {
  std::string traced;  // IR text before all passes, with PassOptions::keep_graphs
  std::vector<PassReport> passes;
  std::vector<DerivedParam> derived;  // how the loader makes parameters that are not one tensor as it stands
};

// Every declarative rewrite of the house, for the tests that compare both sides.
std::vector<Rewrite> house_rewrites(const OpRegistry& ops);

// `extensions` as the platform holds them; what they bring runs before the fusions of the house.
Result<PassManager> make_pipeline(const PipelineOptions& options, const OpRegistry& ops,
                                  std::span<const std::shared_ptr<const Extension>> extensions = {});

// Rewrites the graph in place for the platform, whose registry must know the fused ops (nn/fused.h).
Result<PipelineReport> run_pipeline(Graph& graph, const PipelineOptions& options, const Platform& platform);

}  // namespace reprise

// PhaseView: the compiled graph of one phase with all that is known about it; what `reprise graph` shows. Points into
// the engine.
#pragma once

#include <string>

#include "base/json.h"
#include "engine/engine.h"
#include "see/graph_doc.h"

namespace reprise::see {

struct PhaseView {
  std::string phase;  // "decode" or "prefill"
  const engine::StepRunner* runner = nullptr;
  const PipelineReport* passes = nullptr;

  const CompiledModel* program = nullptr;  // of the largest size, which the passes' report is about

  const CompiledModel& model() const { return *program; }
};

Result<PhaseView> view_of_phase(engine::Engine& engine, const std::string& phase);

// The words with repeated stretches folded: "embedding (rms_norm linear*2)*28 argmax".
std::string folded_words(const std::vector<std::string>& words);

// The launches of a piece, folded.
// The heads that a piece is for, by name; empty for the body.
std::string heads_of(const CompiledModel& m, const Piece& piece);
// For a step that returns logits.
size_t launches_of_step(const CompiledModel& m);
std::string ops_of(const CompiledModel& model, const Piece& piece);

// The graph as a document, for everything that works on those.
Result<GraphDoc> doc_of(const CompiledModel& model);

// The whole dump: graph, nodes, pieces, memory, passes.
OrderedJson dump_json(engine::Engine& engine, const PhaseView& view);
OrderedJson passes_json(const PipelineReport& report);
OrderedJson pieces_json(const CompiledModel& model);

// For graphviz: one box a node, one cluster a layer; parameters stand in the boxes that use them.
std::string dump_dot(const CompiledModel& model);

}  // namespace reprise::see

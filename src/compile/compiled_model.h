// CompiledModel: a graph bound to a device and ready to run, at any live size up to the bounds.
//
// The graph's calls are bound once to thunks that point into an arena, the parameters and the staged inputs. How they
// then run is the mode: eager launches one by one (the answer key); whole replays one captured graph; piecewise replays
// the stretches between split ops and launches those ops themselves. All modes use the same thunks, so they give the
// same bits. Inputs are fixed buffers that the caller fills before a run; outputs are views into the arena, good until
// the next run on it, in the device's memory. Nothing is allocated in a run. One thread at a time; parameters, arena,
// staging and caches must outlive it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/tensor_view.h"
#include "compile/binding.h"
#include "compile/memory_plan.h"
#include "compile/param_store.h"
#include "compile/staging.h"
#include "device/device.h"

namespace reprise {

enum class GraphMode : uint8_t { Eager, Whole, Piecewise };
std::string_view graph_mode_name(GraphMode mode);  // "eager", "whole", "piecewise"

struct CompileRequest {
  const Platform* platform = nullptr;
  const ParamStore* params = nullptr;
  Staging* staging = nullptr;  // every input that is not external
  // Inputs that live elsewhere, by name (the KV caches).
  std::unordered_map<std::string, void*> external;
  void* arena = nullptr;  // at least the plan's arena_bytes
  GraphMode mode = GraphMode::Eager;
  // Ops at which piecewise graphs are cut, besides those with the split flag; names of ops.
  std::vector<std::string> split_ops;
  // Runs of the whole graph before the capture, so that kernels which load or tune themselves have done so.
  int warmups = 0;
};

// One stretch of launches; captured ones replay as a unit.
struct Piece {
  std::vector<Thunk> thunks;
  bool captured = false;
  std::unique_ptr<DeviceGraph> graph;
};

struct RunCounters {
  uint64_t replays = 0;   // captured pieces replayed
  uint64_t launches = 0;  // thunks launched one by one
  uint64_t warmups = 0;   // runs before the capture
};

class CompiledModel {
 public:
  // Takes the graph over. `plan` is plan_memory's for it. Captures what the mode asks for; an error of the device's
  // capture is returned as it is, and the caller decides on another mode.
  static Result<std::unique_ptr<CompiledModel>> compile(Graph graph, const KernelSelection& selection, MemoryPlan plan,
                                                        const CompileRequest& request);

  GraphMode mode() const { return mode_; }
  const Graph& graph() const { return graph_; }
  const MemoryPlan& plan() const { return plan_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  const RunCounters& counters() const { return counters_; }
  size_t launches() const;  // thunks per step
  // By Thunk::node. The kernel is null for sources and views.
  const Node* node(uint32_t number) const { return nodes_[number]; }
  const KernelEntry* kernel(uint32_t number) const { return kernels_[number]; }

  // Runs as compiled; `eagerly` launches one by one whatever the mode (same bits).
  Status run(const LiveSizes& live, Stream& stream, bool eagerly = false);
  // The output at the sizes of the last run.
  Result<TensorView> output(std::string_view name) const;

 private:
  explicit CompiledModel(Graph graph) : graph_(std::move(graph)) {}
  void place(const CompileRequest& request);
  Result<std::vector<Thunk>> bind(const KernelSelection& selection, const CompileRequest& request);
  void mark_dependencies(std::vector<Thunk>& thunks) const;
  Status cut_and_capture(std::vector<Thunk> thunks, const CompileRequest& request);

  Graph graph_;
  MemoryPlan plan_;
  GraphMode mode_ = GraphMode::Eager;
  std::vector<Piece> pieces_;
  std::unordered_map<const Value*, void*> address_;  // of storage roots
  std::vector<const Node*> nodes_;                   // by number
  std::vector<const KernelEntry*> kernels_;          // likewise; they belong to the platform
  RunCounters counters_;
  LiveSizes live_;
  const Staging* staging_ = nullptr;
};

}  // namespace reprise

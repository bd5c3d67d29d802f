#include "backends/cuda/cuda_graph.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backends/cuda/runtime.h"

namespace reprise::cuda {
namespace {

using Nodes = std::vector<cudaGraphNode_t>;

// A cudaGraph_t and its end.
class OwnedGraph {
 public:
  OwnedGraph() = default;
  explicit OwnedGraph(cudaGraph_t graph) : graph_(graph) {}
  OwnedGraph(OwnedGraph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  OwnedGraph& operator=(OwnedGraph&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  ~OwnedGraph() {
    if (graph_) (void)cudaGraphDestroy(graph_);
  }
  cudaGraph_t get() const { return graph_; }

 private:
  cudaGraph_t graph_ = nullptr;
};

Result<Nodes> nodes_of(cudaGraph_t graph) {
  size_t count = 0;
  RETURN_IF_ERROR(check(cudaGraphGetNodes(graph, nullptr, &count), "count a graph's nodes"));
  Nodes nodes(count);
  if (count) RETURN_IF_ERROR(check(cudaGraphGetNodes(graph, nodes.data(), &count), "list a graph's nodes"));
  return nodes;
}

Result<bool> is_kernel(cudaGraphNode_t node) {
  cudaGraphNodeType type{};
  RETURN_IF_ERROR(check(cudaGraphNodeGetType(node, &type), "ask for a node's type"));
  return type == cudaGraphNodeTypeKernel;
}

struct Patchable {
  Thunk thunk;                     // as recorded or last patched
  cudaGraphNode_t node = nullptr;  // null: not patchable
  bool enabled = true;
};

class CudaGraph final : public DeviceGraph {
 public:
  ~CudaGraph() override {
    if (exec_) (void)cudaGraphExecDestroy(exec_);
  }

  Status begin(const LiveSizes& live) {
    live_ = live;
    cudaGraph_t graph = nullptr;
    RETURN_IF_ERROR(check(cudaGraphCreate(&graph, 0), "make a graph"));
    graph_ = OwnedGraph(graph);
    ASSIGN_OR_RETURN(scratch_, CudaStream::make());
    return Status::ok();
  }

  Status replay(Stream& stream, std::span<const Patch> patches) override {
    if (!patches.empty()) RETURN_IF_ERROR(apply(patches));
    auto& on = static_cast<CudaStream&>(stream);
    RETURN_IF_ERROR(check(cudaGraphLaunch(exec_, on.native()), "replay"));
    on.count_replay();
    ++stats_.replays;
    return Status::ok();
  }
  GraphStats stats() const override { return stats_; }

 private:
  friend class CudaRecorder;

  // The kernel a patch turns a launch into. No node: with these arguments there is nothing to launch.
  struct Change {
    Patchable* target;
    OwnedGraph recorded;
    cudaGraphNode_t node = nullptr;
    cudaKernelNodeParams params{};
  };

  // Everything is looked at before anything is changed.
  Status apply(std::span<const Patch> patches) {
    for (const Patch& p : patches) {
      if (p.id >= launches_.size() || !launches_[p.id].node)
        return invalid("launch {} of this graph is not patchable", p.id);
      if (!p.args) return invalid("the patch of launch {} carries no arguments", p.id);
    }
    std::vector<Change> changes;
    for (const Patch& p : patches) {
      ASSIGN_OR_RETURN(Change change, prepare(p));
      changes.push_back(std::move(change));
    }
    for (const Change& c : changes) {
      if (c.node) RETURN_IF_ERROR(check(cudaGraphExecKernelNodeSetParams(exec_, c.target->node, &c.params), "patch"));
      if (c.target->enabled != (c.node != nullptr)) {
        c.target->enabled = c.node != nullptr;
        RETURN_IF_ERROR(
            check(cudaGraphNodeSetEnabled(exec_, c.target->node, c.target->enabled ? 1 : 0), "switch a launch"));
      }
    }
    return Status::ok();
  }

  Result<Change> prepare(const Patch& patch) {
    Change change;
    change.target = &launches_[patch.id];
    Thunk thunk = change.target->thunk;
    thunk.args = *patch.args;
    RETURN_IF_ERROR(check(cudaStreamBeginCapture(scratch_->native(), cudaStreamCaptureModeThreadLocal), "patch"));
    const Status launched = launch_phases(thunk, live_, scratch_->native());
    cudaGraph_t graph = nullptr;
    const Status ended = check(cudaStreamEndCapture(scratch_->native(), &graph), "patch");
    change.recorded = OwnedGraph(graph);
    RETURN_IF_ERROR(launched);
    RETURN_IF_ERROR(ended);
    ASSIGN_OR_RETURN(const Nodes nodes, nodes_of(graph));
    if (nodes.empty()) return change;
    cudaKernelNodeParams before{};
    RETURN_IF_ERROR(check(cudaGraphKernelNodeGetParams(change.target->node, &before), "patch"));
    ASSIGN_OR_RETURN(const bool kernel, is_kernel(nodes[0]));
    if (kernel && nodes.size() == 1)
      RETURN_IF_ERROR(check(cudaGraphKernelNodeGetParams(nodes[0], &change.params), "patch"));
    if (nodes.size() != 1 || !kernel || change.params.func != before.func)
      return error(Code::Unsupported, "with the patch's arguments launch {} is another kernel than the one recorded",
                   patch.id);
    change.node = nodes[0];
    return change;
  }

  Status finish() {
    ASSIGN_OR_RETURN(const Nodes nodes, nodes_of(graph_.get()));
    for (cudaGraphNode_t node : nodes) {
      cudaGraphNodeType type{};
      RETURN_IF_ERROR(check(cudaGraphNodeGetType(node, &type), "ask for a node's type"));
      if (type != cudaGraphNodeTypeMemcpy) continue;
      cudaMemcpy3DParms copy{};
      RETURN_IF_ERROR(check(cudaGraphMemcpyNodeGetParams(node, &copy), "ask for a copy's direction"));
      stats_.copies_to_host += copy.kind == cudaMemcpyDeviceToHost ? 1 : 0;
    }
    stats_.launches = launches_.size();
    stats_.bytes = launches_.capacity() * sizeof(Patchable);  // the runtime does not tell what it holds itself
    return check(cudaGraphInstantiate(&exec_, graph_.get(), 0), "instantiate the graph");
  }

  OwnedGraph graph_;  // names the nodes of exec_
  cudaGraphExec_t exec_ = nullptr;
  LiveSizes live_;  // of the capture
  std::vector<Patchable> launches_;
  std::unique_ptr<CudaStream> scratch_;  // only records
  GraphStats stats_;
};

class CudaRecorder final : public Recorder {
 public:
  CudaRecorder(CudaGraph& graph, cudaStream_t stream) : graph_(graph), stream_(stream) {}

  Status launch(const Thunk& thunk) override {
    ASSIGN_OR_RETURN(const Nodes last, record(thunk));
    graph_.launches_.push_back({thunk, nullptr, true});
    return Status::ok();
  }

  Result<PatchId> launch_patchable(const Thunk& thunk) override {
    ASSIGN_OR_RETURN(const Nodes last, record(thunk));
    const size_t id = graph_.launches_.size();
    bool alone = last.size() == 1;
    if (alone) {
      ASSIGN_OR_RETURN(alone, is_kernel(last[0]));
      size_t edges = 0;
      RETURN_IF_ERROR(check(cudaGraphNodeGetDependencies(last[0], nullptr, nullptr, &edges), "ask for dependencies"));
      alone = alone && edges == before_.size();  // else another node of this launch stands between
    }
    if (!alone) return error(Code::Unsupported, "launch {} is not one kernel, so it cannot be patched", id);
    graph_.launches_.push_back({thunk, last[0], true});
    return static_cast<PatchId>(id);
  }

  Status finish() { return graph_.finish(); }

 private:
  // The nodes that end the launch; none when it launched nothing.
  Result<Nodes> record(const Thunk& thunk) {
    // What depends waits for all launches since the last that did; the others only for what that one waited for.
    if (thunk.depends && !open_.empty()) {
      before_ = std::move(open_);
      open_.clear();
      ++graph_.stats_.barriers;
    }
    RETURN_IF_ERROR(check(cudaStreamBeginCaptureToGraph(stream_, graph_.graph_.get(), before_.data(), nullptr,
                                                        before_.size(), cudaStreamCaptureModeThreadLocal),
                          "begin to capture"));
    Status status = launch_phases(thunk, graph_.live_, stream_);
    Nodes last;
    if (status.is_ok()) {
      cudaStreamCaptureStatus state{};
      const cudaGraphNode_t* nodes = nullptr;
      size_t count = 0;
      status = check(cudaStreamGetCaptureInfo(stream_, &state, nullptr, nullptr, &nodes, nullptr, &count),
                     "ask for the captured nodes");
      if (status.is_ok()) last.assign(nodes, nodes + count);
    }
    cudaGraph_t same = nullptr;
    const Status ended = check(cudaStreamEndCapture(stream_, &same), "end to capture");
    RETURN_IF_ERROR(status);
    RETURN_IF_ERROR(ended);
    auto known = [&](cudaGraphNode_t n) { return std::find(before_.begin(), before_.end(), n) != before_.end(); };
    std::erase_if(last, known);
    open_.insert(open_.end(), last.begin(), last.end());
    return last;
  }

  CudaGraph& graph_;
  cudaStream_t stream_;
  Nodes before_, open_;
};

}  // namespace

Result<std::unique_ptr<DeviceGraph>> capture_graph(CudaStream& stream, const std::function<Status(Recorder&)>& body) {
  auto graph = std::make_unique<CudaGraph>();
  RETURN_IF_ERROR(graph->begin(stream.live_sizes()));
  CudaRecorder recorder(*graph, stream.native());
  RETURN_IF_ERROR(body(recorder));
  RETURN_IF_ERROR(recorder.finish());
  return std::unique_ptr<DeviceGraph>(std::move(graph));
}

}  // namespace reprise::cuda

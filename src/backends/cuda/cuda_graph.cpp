#include "backends/cuda/cuda_graph.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "backends/cuda/communicator.h"
#include "backends/cuda/runtime.h"
#include "device/recorded_order.h"

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

// The kernels of a graph that is one chain, from the first to the last; nothing where it is anything else.
Result<Nodes> kernel_chain(cudaGraph_t graph) {
  ASSIGN_OR_RETURN(const Nodes nodes, nodes_of(graph));
  if (nodes.empty()) return Nodes{};
  size_t count = 0;
  RETURN_IF_ERROR(check(cudaGraphGetRootNodes(graph, nullptr, &count), "count a graph's roots"));
  Nodes chain(count);
  if (count != 1) return Nodes{};
  RETURN_IF_ERROR(check(cudaGraphGetRootNodes(graph, chain.data(), &count), "list a graph's roots"));
  while (true) {
    ASSIGN_OR_RETURN(const bool kernel, is_kernel(chain.back()));
    size_t behind = 0;
    RETURN_IF_ERROR(
        check(cudaGraphNodeGetDependentNodes(chain.back(), nullptr, nullptr, &behind), "ask for dependents"));
    if (!kernel || behind > 1) return Nodes{};
    if (behind == 0) break;
    cudaGraphNode_t next = nullptr;
    RETURN_IF_ERROR(check(cudaGraphNodeGetDependentNodes(chain.back(), &next, nullptr, &behind), "ask for dependents"));
    chain.push_back(next);
  }
  return chain.size() == nodes.size() ? chain : Nodes{};
}

struct Patchable {
  Thunk thunk;  // as recorded or last patched
  Nodes nodes;  // its kernels, in order; none: not patchable
  bool enabled = true;
};

class CudaGraph final : public DeviceGraph {
 public:
  ~CudaGraph() override {
    if (exec_) (void)cudaGraphExecDestroy(exec_);
  }

  Status begin(const LiveSizes& live, const LaunchContext& context) {
    live_ = live;
    cudaGraph_t graph = nullptr;
    RETURN_IF_ERROR(check(cudaGraphCreate(&graph, 0), "make a graph"));
    graph_ = OwnedGraph(graph);
    ASSIGN_OR_RETURN(scratch_, CudaStream::make(context));
    return Status::ok();
  }

  Status replay(Stream& stream, std::span<const Patch> patches) override {
    auto& on = static_cast<CudaStream&>(stream);
    RETURN_IF_ERROR(on.context().attach());
    if (!patches.empty()) RETURN_IF_ERROR(apply(patches));
    if (on.traced()) return replay_timed(on);
    RETURN_IF_ERROR(check(cudaGraphLaunch(exec_, on.native()), "replay"));
    on.count_replay();
    ++stats_.replays;
    return Status::ok();
  }
  GraphStats stats() const override { return stats_; }

 private:
  friend class CudaRecorder;

  // The kernels a patch turns a launch into. None: with these arguments there is nothing to launch.
  struct Change {
    Patchable* target;
    LaunchArgs args;
    OwnedGraph recorded;  // what params points into
    std::vector<cudaKernelNodeParams> params;
  };

  // The launches one by one, each between two events: the graph's own order in one queue.
  Status replay_timed(CudaStream& stream) {
    stream.count_replay();
    ++stats_.replays;
    for (const Patchable& l : launches_)
      if (l.enabled) RETURN_IF_ERROR(stream.launch_timed(l.thunk, live_));
    return Status::ok();
  }

  // Everything is looked at before anything is changed.
  Status apply(std::span<const Patch> patches) {
    for (const Patch& p : patches) {
      if (p.id >= launches_.size() || launches_[p.id].nodes.empty())
        return invalid("launch {} of this graph is not patchable", p.id);
      if (!p.args) return invalid("the patch of launch {} carries no arguments", p.id);
    }
    std::vector<Change> changes;
    for (const Patch& p : patches) {
      ASSIGN_OR_RETURN(Change change, prepare(p));
      changes.push_back(std::move(change));
    }
    for (const Change& c : changes) {
      const Nodes& nodes = c.target->nodes;
      for (size_t i = 0; i < c.params.size(); ++i)
        RETURN_IF_ERROR(check(cudaGraphExecKernelNodeSetParams(exec_, nodes[i], &c.params[i]), "patch"));
      c.target->thunk.args = c.args;
      const bool enabled = !c.params.empty();
      if (c.target->enabled == enabled) continue;
      c.target->enabled = enabled;
      for (cudaGraphNode_t node : nodes)
        RETURN_IF_ERROR(check(cudaGraphNodeSetEnabled(exec_, node, enabled ? 1 : 0), "switch a launch"));
    }
    return Status::ok();
  }

  Result<Change> prepare(const Patch& patch) {
    Change change;
    change.target = &launches_[patch.id];
    Thunk thunk = change.target->thunk;
    thunk.args = *patch.args;
    change.args = *patch.args;
    RETURN_IF_ERROR(check(cudaStreamBeginCapture(scratch_->native(), cudaStreamCaptureModeThreadLocal), "patch"));
    const Status launched = launch_parts(thunk, live_, scratch_->native(), scratch_->context());
    cudaGraph_t graph = nullptr;
    const Status ended = check(cudaStreamEndCapture(scratch_->native(), &graph), "patch");
    change.recorded = OwnedGraph(graph);
    RETURN_IF_ERROR(launched);
    RETURN_IF_ERROR(ended);
    ASSIGN_OR_RETURN(const Nodes all, nodes_of(graph));
    if (all.empty()) return change;
    ASSIGN_OR_RETURN(const Nodes nodes, kernel_chain(graph));
    bool same = nodes.size() == change.target->nodes.size();
    for (size_t i = 0; same && i < nodes.size(); ++i) {
      cudaKernelNodeParams before{}, after{};
      RETURN_IF_ERROR(check(cudaGraphKernelNodeGetParams(change.target->nodes[i], &before), "patch"));
      RETURN_IF_ERROR(check(cudaGraphKernelNodeGetParams(nodes[i], &after), "patch"));
      same = before.func == after.func;
      change.params.push_back(after);
    }
    if (!same)
      return error(Code::Unsupported, "with the patch's arguments launch {} is another kernel than the one recorded",
                   patch.id);
    return change;
  }

  static Result<size_t> free_memory() {
    size_t free = 0, total = 0;
    RETURN_IF_ERROR(check(cudaMemGetInfo(&free, &total), "ask for the device's free memory"));
    return free;
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
    ASSIGN_OR_RETURN(const size_t before, free_memory());
    RETURN_IF_ERROR(check(cudaGraphInstantiate(&exec_, graph_.get(), 0), "instantiate the graph"));
    // Else the first replay pays for it.
    RETURN_IF_ERROR(check(cudaGraphUpload(exec_, scratch_->native()), "upload the graph"));
    RETURN_IF_ERROR(scratch_->synchronize());
    // The runtime does not tell what a graph takes. It takes memory in pieces for several graphs, and others may use
    // the GPU meanwhile, so one graph's number is rough, and the sum of many is near.
    ASSIGN_OR_RETURN(const size_t after, free_memory());
    stats_.bytes = before > after ? before - after : 0;
    return Status::ok();
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
  CudaRecorder(CudaGraph& graph, const CudaStream& stream)
      : graph_(graph), stream_(stream.native()), context_(stream.context()) {}

  Status launch(const Thunk& thunk) override {
    ASSIGN_OR_RETURN(const Nodes last, capture(thunk));
    graph_.launches_.push_back({thunk, {}, true});
    return Status::ok();
  }

  Result<PatchId> launch_patchable(const Thunk& thunk) override {
    ASSIGN_OR_RETURN(const Nodes last, capture(thunk));
    const size_t id = graph_.launches_.size();
    Nodes chain;
    if (last.size() == 1) {
      ASSIGN_OR_RETURN(chain, chain_to(last[0], branches_[thunk.stream].before));
    }
    if (chain.empty())
      return error(Code::Unsupported, "launch {} is not a chain of kernels, so it cannot be patched", id);
    graph_.launches_.push_back({thunk, std::move(chain), true});
    return static_cast<PatchId>(id);
  }

  // What an event that is recorded and waited for does in a stream capture: the nodes that the marked stream ends in
  // become dependencies of what follows.
  Status record(uint8_t stream, uint32_t mark) override {
    RETURN_IF_ERROR(order_.record(stream, mark));
    marks_[mark] = branches_[stream].end();
    return Status::ok();
  }
  Status wait(uint8_t stream, uint32_t mark) override {
    RETURN_IF_ERROR(order_.wait(stream, mark));
    Branch& b = branches_[stream];
    b.before = b.end();
    b.open.clear();
    for (cudaGraphNode_t n : marks_.at(mark))
      if (std::find(b.before.begin(), b.before.end(), n) == b.before.end()) b.before.push_back(n);
    return Status::ok();
  }

  Status finish() {
    RETURN_IF_ERROR(order_.finish());
    graph_.stats_.waits = order_.waits();
    return graph_.finish();
  }

 private:
  // A stream of the recording: what its next launch follows, and what was recorded since.
  struct Branch {
    Nodes before, open;
    const Nodes& end() const { return open.empty() ? before : open; }
  };

  // The kernels of the launch that ends in `last`, in order; none where it has other nodes or is no chain.
  static Result<Nodes> chain_to(cudaGraphNode_t last, const Nodes& before) {
    auto known = [&](cudaGraphNode_t n) { return std::find(before.begin(), before.end(), n) != before.end(); };
    Nodes chain{last};
    while (true) {
      ASSIGN_OR_RETURN(const bool kernel, is_kernel(chain.back()));
      size_t edges = 0;
      RETURN_IF_ERROR(
          check(cudaGraphNodeGetDependencies(chain.back(), nullptr, nullptr, &edges), "ask for dependencies"));
      Nodes on(edges);
      if (edges)
        RETURN_IF_ERROR(
            check(cudaGraphNodeGetDependencies(chain.back(), on.data(), nullptr, &edges), "ask for dependencies"));
      if (!kernel) return Nodes{};
      if (edges == before.size() && std::all_of(on.begin(), on.end(), known)) break;
      if (edges != 1) return Nodes{};
      chain.push_back(on[0]);
    }
    std::reverse(chain.begin(), chain.end());
    return chain;
  }

  // The nodes that end the launch; none when it launched nothing.
  Result<Nodes> capture(const Thunk& thunk) {
    RETURN_IF_ERROR(order_.launch(thunk.stream));
    RETURN_IF_ERROR(context_.attach());
    auto& [before, open] = branches_[thunk.stream];
    // What depends waits for all launches since the last that did; the others only for what that one waited for.
    if (thunk.depends && !open.empty()) {
      before = std::move(open);
      open.clear();
      ++graph_.stats_.barriers;
    }
    // All ranks run collectives in one order, also those that nothing else orders.
    const bool collective = context_.ranks && thunk.args.constant == static_cast<const Exchange*>(context_.ranks);
    Nodes behind = before;
    if (collective)
      for (cudaGraphNode_t n : last_collective_)
        if (std::find(behind.begin(), behind.end(), n) == behind.end()) behind.push_back(n);
    RETURN_IF_ERROR(check(cudaStreamBeginCaptureToGraph(stream_, graph_.graph_.get(), behind.data(), nullptr,
                                                        behind.size(), cudaStreamCaptureModeThreadLocal),
                          "begin to capture"));
    Status status = launch_parts(thunk, graph_.live_, stream_, context_);
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
    std::erase_if(last, [&](cudaGraphNode_t n) { return std::find(behind.begin(), behind.end(), n) != behind.end(); });
    if (collective && !last.empty()) last_collective_ = last;
    open.insert(open.end(), last.begin(), last.end());
    return last;
  }

  CudaGraph& graph_;
  cudaStream_t stream_;
  const LaunchContext& context_;
  std::array<Branch, kMaxGraphStreams> branches_;
  std::map<uint32_t, Nodes> marks_;
  Nodes last_collective_;  // that it ends in
  RecordedOrder order_;
};

}  // namespace

Result<std::unique_ptr<DeviceGraph>> capture_graph(CudaStream& stream, const std::function<Status(Recorder&)>& body) {
  auto graph = std::make_unique<CudaGraph>();
  RETURN_IF_ERROR(graph->begin(stream.live_sizes(), stream.context()));
  CudaRecorder recorder(*graph, stream);
  RETURN_IF_ERROR(body(recorder));
  RETURN_IF_ERROR(recorder.finish());
  return std::unique_ptr<DeviceGraph>(std::move(graph));
}

}  // namespace reprise::cuda

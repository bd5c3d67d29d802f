// CompiledModel: a graph bound to a device and ready to run, at any live size up to the bounds.
//
// The graph's calls are bound once to thunks that point into an arena, the parameters and the staged inputs. cut()
// groups them by the mode: whole is one captured piece; piecewise captures the stretches between split ops and launches
// those ops themselves; eager captures nothing (the answer key). Kernels that read operands on the host are patched at
// every replay, or launched themselves in every mode where the device has no patches. capture() then records the pieces
// once per size; on a device whose graphs read live sizes one capture serves all of them. Launched or replayed, the
// thunks are the same, so they give the same bits. The streams of a plan are recorded; what is launched runs on one, in
// the order of the graph, so that it can be the answer key, and because a launch costs the host more than a second
// stream would save; hints are not launched at all. A program may have several heads (logits, the next tokens): what
// only they need is captured apart from the body and runs when asked for, so that the body is captured once; where
// sizes are frozen at capture, heads are launched, at the live rows instead of padded ones. Inputs are fixed buffers
// that the caller fills before a run; outputs are views into the arena, good until the next run on it. Nothing is
// allocated in a run. One thread at a time; parameters, arena, staging and caches must outlive it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/tensor_view.h"
#include "compile/binding.h"
#include "compile/memory_plan.h"
#include "compile/param_store.h"
#include "compile/recording.h"
#include "compile/staging.h"
#include "device/device.h"

namespace reprise {

// Which heads of a program a run computes: bit i for entry i of CompileRequest::heads.
using HeadMask = uint32_t;
constexpr HeadMask kAllHeads = ~HeadMask{0};

enum class GraphMode : uint8_t { Eager, Whole, Piecewise };
std::string_view graph_mode_name(GraphMode mode);  // "eager", "whole", "piecewise"

struct CompileRequest {
  const Platform* platform = nullptr;
  const ParamStore* params = nullptr;
  Staging* staging = nullptr;  // every input that is not external
  // Inputs that live elsewhere, by name (the KV caches).
  std::unordered_map<std::string, void*> external;
  void* arena = nullptr;     // at least the plan's arena_bytes
  void* exchange = nullptr;  // at least its exchange_bytes, at the same offset on all ranks
  // Counts the runs of everything that shares the arena, so that a view of an older run is not taken for a new one.
  // Null: the model has the arena to itself.
  uint32_t* arena_epoch = nullptr;
  GraphMode mode = GraphMode::Eager;
  // Ops at which piecewise graphs are cut, besides those with the split flag; names of ops.
  std::vector<std::string> split_ops;
  // Symbols that a captured size fixes (a decode size fixes tokens and sequences, a prefill size only tokens). Where
  // sizes are frozen at capture, piecewise graphs launch what depends on any other symbol.
  std::vector<SymbolId> size_symbols;
  // Outputs that are only computed when a run asks for them, by name up to the first '.'. What no other output needs is
  // a head: pieces of its own behind the body. A head that the graph does not have is never asked for.
  std::vector<std::string> heads;
};

// One stretch of launches; captured ones replay as a unit.
struct Piece {
  std::vector<Thunk> thunks;
  bool captured = false;
  HeadMask heads = kAllHeads;  // runs when one of these is asked for; the body always does
};

struct RunCounters {
  uint64_t replays = 0;   // captured pieces replayed
  uint64_t launches = 0;  // thunks launched one by one
  uint64_t captures = 0;  // device graphs recorded; constant once an engine is ready
};

class CompiledModel {
 public:
  // Takes the graph over. `plan` is plan_memory's for it. Binds and cuts for request.mode; captures nothing.
  static Result<std::unique_ptr<CompiledModel>> compile(Graph graph, const KernelSelection& selection, MemoryPlan plan,
                                                        const CompileRequest& request);

  GraphMode mode() const { return mode_; }
  Device& device() const { return *device_; }
  const Graph& graph() const { return graph_; }
  const MemoryPlan& plan() const { return plan_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  const RunCounters& counters() const { return counters_; }
  size_t launches(HeadMask heads = kAllHeads) const;  // thunks per step, without hints
  // The heads that want a launch; kAllHeads in the body.
  HeadMask heads_of(uint32_t number) const { return heads_of_[number]; }
  const std::vector<std::string>& heads() const { return heads_; }
  // A piece's graph in the first capture, the largest; null where there is none.
  const DeviceGraph* graph_of(const Piece& piece) const;
  GraphStats graph_stats() const;            // of all captures together
  size_t capture_bytes(int64_t size) const;  // of the graphs of one; 0 where there is none
  // By Thunk::node. The kernel is null for sources and views.
  const Node* node(uint32_t number) const { return nodes_[number]; }
  const KernelEntry* kernel(uint32_t number) const { return kernels_[number]; }

  // Groups the launches anew and forgets every capture.
  void cut(GraphMode mode);
  // Whether captures have several streams.
  bool has_streams() const { return streams_; }
  // From now on captures have one stream, in the order of the graph; why is kept for reports.
  void use_one_stream(std::string why) {
    streams_ = false;
    stream_times_.clear();
    one_stream_reason_ = std::move(why);
  }
  // How long a replay of a size takes, and so which streams captures of it have, and of sizes below it down to the next
  // that was measured. A time of 0 was not asked for.
  struct StreamTimes {
    int64_t size = 0;
    double several_us = 0;  // with all streams of the plan
    double plain_us = 0;    // without what is read ahead
    double one_us = 0;
    RecordedStreams streams = RecordedStreams::All;
  };
  void set_stream_times(const StreamTimes& times);
  const std::vector<StreamTimes>& stream_times() const { return stream_times_; }  // largest first
  const StreamTimes* stream_times_of(int64_t size) const;                         // null: captures have all
  const std::string& one_stream_reason() const { return one_stream_reason_; }
  // Records every captured piece for `size`. An error of the device leaves that size uncaptured.
  Status capture(int64_t size, const LiveSizes& live);
  bool has_capture(int64_t size) const { return find(size) != nullptr; }
  void drop_capture(int64_t size);

  // Launches node by node, without waiting: what is launched has failed or succeeded once the stream is synchronized.
  Status launch(const LiveSizes& live, Stream& stream, HeadMask heads = kAllHeads);
  // The same, as captured for `size`; uncaptured pieces run at the live sizes. Same bits in every row of the batch.
  Status replay(int64_t size, const LiveSizes& live, Stream& stream, HeadMask heads = kAllHeads);
  // launch(), and waits. `after` is called after each launch, with the device idle; for checks.
  using AfterLaunch = std::function<void(const Thunk& thunk, const Node& node)>;
  Status run(const LiveSizes& live, Stream& stream, HeadMask heads = kAllHeads, const AfterLaunch& after = {});
  // External inputs have moved: launches read the new addresses from now on, recorded ones through patches, or
  // recorded anew where the device has none, there with those of the sizes in `now` that are not 0.
  Status rebind(const std::unordered_map<std::string, void*>& external, const LiveSizes& now = {});

  // The output at the sizes of the last run. An error once something else has run on the arena, and for a head that the
  // last run left out.
  Result<TensorView> output(std::string_view name) const;
  HeadMask heads_of_output(std::string_view name) const;  // kAllHeads: every run gives it
  bool computed(std::string_view output) const { return (heads_of_output(output) & last_heads_) != 0; }
  // A value's bytes at the live sizes of the last run; empty for values without storage.
  TensorView view(const Value* value) const;

 private:
  // Patches of one graph: launches that read on the host, patched at every replay, then those whose addresses may move.
  struct Patches {
    std::vector<Patch> all;
    size_t always = 0;
    bool moved = false;  // external inputs have moved since the last replay
    // What is sent while the host's values lie in another slot of the staging than the first.
    std::vector<LaunchArgs> shifted_args;
    std::vector<Patch> shifted;
  };
  // The graphs of one size, one per captured piece.
  struct Capture {
    int64_t size = 0;
    LiveSizes live;
    std::vector<std::unique_ptr<DeviceGraph>> graphs;
    std::vector<Patches> patches;  // per graph
  };

  explicit CompiledModel(Graph graph) : graph_(std::move(graph)) {}
  void place(const CompileRequest& request);
  Status bind_host_operands(const Node& node, const KernelEntry& entry, LaunchArgs& args) const;
  Result<std::vector<Thunk>> bind(const KernelSelection& selection, const CompileRequest& request);
  void find_heads();
  void mark_dependencies(std::vector<Thunk>& thunks) const;
  bool splits(const Thunk& thunk) const;
  bool external(const Thunk& thunk) const;
  bool reads_on_host(const Thunk& thunk) const;
  Status check(const LiveSizes& live) const;
  RecordedStreams streams_of(int64_t size) const;
  Status record(const Piece& piece, int64_t size, const LiveSizes& live, Patches& patches, std::vector<Patch>& moving,
                Recorder& recorder) const;
  Status begin(const LiveSizes& live, Stream& stream, HeadMask heads);
  Status launch(const Thunk& thunk, Stream& stream) const;
  Status launch(const Piece& piece, Stream& stream);
  // An error of a launch names op, node, kernel and sizes.
  Status located(Status launched, const Thunk& t, const LiveSizes& live) const;
  // Where an error of a captured piece belongs.
  std::string replay_place(const Piece& piece, int64_t size, const LiveSizes& live) const;
  std::span<const Patch> patches_to_send(Patches& patches) const;
  const Capture* find(int64_t size) const;

  Graph graph_;
  MemoryPlan plan_;
  GraphMode mode_ = GraphMode::Eager;
  Device* device_ = nullptr;
  std::vector<std::string> split_ops_;
  std::vector<SymbolId> size_symbols_;
  std::vector<Piece> pieces_;
  std::vector<Capture> captures_;
  std::unordered_map<const Value*, void*> address_;  // of storage roots
  std::unordered_map<std::string, void*> external_;
  std::vector<const Node*> nodes_;           // by number
  std::vector<const KernelEntry*> kernels_;  // likewise; they belong to the platform
  std::vector<HeadMask> heads_of_;           // likewise
  std::vector<std::string> heads_;
  bool streams_ = false;
  std::string one_stream_reason_;
  std::vector<StreamTimes> stream_times_;
  const Staging* staging_ = nullptr;
  RunCounters counters_;
  LiveSizes live_;
  uint32_t* arena_epoch_ = nullptr;
  uint32_t own_epoch_ = 0;   // where arena_epoch_ points without a shared arena
  uint32_t last_epoch_ = 0;  // of the last run
  HeadMask last_heads_ = kAllHeads;
};

}  // namespace reprise

#include "compile/compiled_model.h"

#include <algorithm>
#include <utility>

#include "compile/recording.h"
#include "graph/streams.h"

namespace reprise {
namespace {

// The bytes that one launch reads or writes: a range, or a whole parameter, input or cache.
struct Access {
  const uint8_t* begin = nullptr;
  const uint8_t* end = nullptr;
  bool write = false;
};

// Arguments name the host's values in slot 0 of the staging.
void move_host_operands(LaunchArgs& args, size_t offset) {
  for (const void*& p : args.host)
    if (p) p = static_cast<const uint8_t*>(p) + offset;
}

// " at T = 4, S = 2"
std::string sizes_text(const Graph& graph, const LiveSizes& live) {
  std::string sizes;
  for (size_t i = 0; i < graph.symbols().size(); ++i)
    sizes += fmt::format("{}{} = {}", i ? ", " : " at ", graph.symbols()[i].name, live.value[i + 1]);
  return sizes;
}

// "linear %12 (cuda.linear.bf16) at T = 4": which launch an error is about.
std::string place_of(const Node& n, const KernelEntry& entry, const Graph& graph, const LiveSizes& live) {
  return fmt::format("{} {} ({}){}", n.op->name, node_label(n), entry.name, sizes_text(graph, live));
}

// Whether a launch was recorded with other sizes than it has now. Kernels find the pages of a cache by a step's tables
// and do not ask how many there are; where rows of a cache are read as those of a matrix, their number bounds them.
bool works_with_other_sizes(const Node& n, const LiveSizes& recorded, const LiveSizes& now) {
  const auto other = [&](const Value* v) {
    for (const Dim& d : v->type.shape.dims())
      if (now.value[d.symbol] != 0 && now.value[d.symbol] != recorded.value[d.symbol]) return true;
    return false;
  };
  for (size_t i = 0; i < n.in.size(); ++i)
    if (n.op->operands[i].role != OperandRole::Cache && other(n.in[i])) return true;
  return false;
}

bool conflict(const Access& a, const Access& b) { return (a.write || b.write) && a.begin < b.end && b.begin < a.end; }

}  // namespace

std::string_view graph_mode_name(GraphMode mode) {
  switch (mode) {
    case GraphMode::Eager: return "eager";
    case GraphMode::Whole: return "whole";
    case GraphMode::Piecewise: return "piecewise";
  }
  return "?";
}

void CompiledModel::place(const CompileRequest& request) {
  for (const Node* n = graph_.first(); n; n = n->next) {
    nodes_.push_back(n);
    if (n->is_param()) address_[n->result()] = request.params->data(n->attrs.text("name"));
    if (!n->is_input()) continue;
    const std::string& name = n->attrs.text("name");
    auto it = request.external.find(name);
    address_[n->result()] = it != request.external.end() ? it->second : request.staging->address(name);
  }
  for (const PlannedStorage& s : plan_.storages)
    if (s.root) address_[s.root] = static_cast<uint8_t*>(s.exchanged ? request.exchange : request.arena) + s.offset;
}

Status CompiledModel::bind_host_operands(const Node& n, const KernelEntry& entry, LaunchArgs& args) const {
  if (entry.host_operands.size() > args.host.size())
    return error(Code::Internal, "{} reads {} operands on the host; a launch carries at most {}", entry.name,
                 entry.host_operands.size(), args.host.size());
  for (size_t k = 0; k < entry.host_operands.size(); ++k) {
    const auto i = static_cast<size_t>(entry.host_operands[k]);
    if (i >= n.in.size()) continue;  // an optional operand that is left out
    const Node* root = storage_root(n.in[i])->def;
    const bool input = root->is_input();
    const std::string name = input ? root->attrs.text("name") : std::string();
    if (!input || external_.contains(name))
      return error(
          Code::Unsupported,
          "{} reads operand {} of %{} ({}) on the host, so that must be an input which is staged before every "
          "step; here it is {}",
          entry.name, n.op->operands[i].name, n.result()->id, n.op->name,
          input ? fmt::format("\"{}\", which lives elsewhere", name) : fmt::format("the result of {}", root->op->name));
    args.host[k] = staging_->host_address(name);
  }
  return Status::ok();
}

Result<std::vector<Thunk>> CompiledModel::bind(const KernelSelection& selection, const CompileRequest& request) {
  std::vector<Thunk> thunks;
  kernels_.resize(nodes_.size(), nullptr);
  for (uint32_t number = 0; number < nodes_.size(); ++number) {
    const Node* n = nodes_[number];
    auto it = selection.kernel.find(n);
    if (it == selection.kernel.end()) continue;
    const KernelEntry& entry = *it->second;
    kernels_[number] = &entry;
    if (n->op->operands.size() + n->out.size() > LaunchArgs::kMaxPointers)
      return error(Code::Internal, "{} has more operands and results than a launch carries", n->op->name);
    const auto in = n->in_types(), out = n->out_types();
    OpCall call{n->op, in, out, &n->attrs, {}};
    Thunk t;
    t.node = number;
    t.stream = n->stream;
    t.part = entry.part;
    for (size_t i = 0; i < n->in.size(); ++i) {
      t.args.ptr[i] = address_.at(storage_root(n->in[i]));
      if (!n->in[i]->def->is_param() || !n->op->operands[i].has_own_layout()) continue;
      const ParamPlan& p = selection.params[selection.param_index.at(n->in[i]->def->attrs.text("name"))];
      call.param_layout = p.layout ? std::string_view(p.layout->name) : std::string_view("row_major");
    }
    for (size_t i = 0; i < n->out.size(); ++i)
      t.args.ptr[n->op->operands.size() + i] = address_.at(storage_root(n->result(i)));
    if (auto w = plan_.workspace_of.find(n); w != plan_.workspace_of.end()) {
      t.args.workspace = static_cast<uint8_t*>(request.arena) + plan_.storages[w->second].offset;
      t.args.workspace_bytes = plan_.storages[w->second].bytes;
    }
    RETURN_IF_ERROR(bind_host_operands(*n, entry, t.args));
    entry.bind(call, t.args);
    thunks.push_back(t);
  }
  return thunks;
}

HeadMask CompiledModel::heads_of_output(std::string_view name) const {
  const auto it = std::find(heads_.begin(), heads_.end(), name.substr(0, name.find('.')));
  return it == heads_.end() ? kAllHeads : HeadMask{1} << (it - heads_.begin());
}

// A node belongs to the heads whose outputs it leads to. What is written in place stays behind a run: part of the body.
void CompiledModel::find_heads() {
  std::unordered_map<const Value*, HeadMask> of_output;
  for (const GraphOutput& o : graph_.outputs()) of_output[o.value] |= heads_of_output(o.name);
  std::unordered_map<const Node*, HeadMask> of_node;
  for (auto n = nodes_.rbegin(); n != nodes_.rend(); ++n) {
    HeadMask heads = (*n)->op->pure() ? 0 : kAllHeads;
    for (auto& v : (*n)->out) {
      if (auto it = of_output.find(v.get()); it != of_output.end()) heads |= it->second;
      for (const Use& u : v->uses) heads |= of_node.at(u.user);
    }
    of_node[*n] = heads != 0 ? heads : kAllHeads;  // what leads nowhere runs, too
  }
  for (const Node* n : nodes_) heads_of_.push_back(of_node.at(n));
}

// A launch depends on those before it when it touches bytes that one of them writes, or writes bytes that one of them
// touches. Only launches since the last dependency matter: everything before that has been waited for. Streams are
// marked each by itself, and a wait for another counts as a dependency: so the marks also hold where all launches are
// in one queue, as one of them always stands between two that conflict.
void CompiledModel::mark_dependencies(std::vector<Thunk>& thunks) const {
  const LiveSizes bounds = graph_.bounds();
  std::array<std::vector<Access>, kMaxGraphStreams> open_of;
  HeadMask heads = kAllHeads;
  for (Thunk& t : thunks) {
    const Node* n = nodes_[t.node];
    std::vector<Access>& open = open_of[n->stream];
    // What ran before the first launch of a head is not the same in every run.
    const bool first = std::exchange(heads, heads_of_[t.node]) != heads_of_[t.node];
    std::vector<Access> mine;
    auto add = [&](const Value* v, bool write) {
      const Value* root = storage_root(v);
      if (root->def->is_param()) return;  // nothing writes those
      const auto* begin = static_cast<const uint8_t*>(address_.at(root));
      // Inputs and caches lie apart from each other, so their first byte stands for all.
      const bool outside = root->def->is_input();
      const auto bytes = static_cast<size_t>(root->type.shape.elements(bounds)) * size_of(root->type.dtype);
      mine.push_back({begin, begin + (outside ? 1 : bytes), write});
    };
    for (const Value* v : n->in) add(v, false);
    for (auto& v : n->out) add(v.get(), true);
    if (auto w = plan_.workspace_of.find(n); w != plan_.workspace_of.end()) {
      const auto* begin = static_cast<const uint8_t*>(t.args.workspace);
      mine.push_back({begin, begin + plan_.storages[w->second].bytes, true});
    }
    t.depends = first || !n->waits.empty() || std::any_of(mine.begin(), mine.end(), [&](const Access& a) {
                  return std::any_of(open.begin(), open.end(), [&](const Access& b) { return conflict(a, b); });
                });
    if (t.depends) open.clear();
    open.insert(open.end(), mine.begin(), mine.end());
  }
}

bool CompiledModel::splits(const Thunk& t) const {
  const Node* n = nodes_[t.node];
  if (n->op->has(op_trait::kSplitPoint) ||
      std::find(split_ops_.begin(), split_ops_.end(), n->op->name) != split_ops_.end())
    return true;
  if (device_->info().live_sizes) return false;
  // Sizes freeze at capture: what depends on a size that the capture does not fix must be launched.
  auto foreign = [&](const Value* v) {
    if (storage_root(v)->def->is_input() && external_.contains(storage_root(v)->def->attrs.text("name")))
      return false;  // a cache's own size does not change from step to step
    const auto dims = v->type.shape.dims();
    return std::any_of(dims.begin(), dims.end(), [&](const Dim& d) {
      return !d.is_constant() && std::find(size_symbols_.begin(), size_symbols_.end(), d.symbol) == size_symbols_.end();
    });
  };
  return std::any_of(n->in.begin(), n->in.end(), foreign) ||
         std::any_of(n->out.begin(), n->out.end(), [&](auto& v) { return foreign(v.get()); });
}

bool CompiledModel::external(const Thunk& t) const {
  const Node* n = nodes_[t.node];
  return std::any_of(n->in.begin(), n->in.end(), [&](const Value* v) {
    const Node* root = storage_root(v)->def;
    return root->is_input() && external_.contains(root->attrs.text("name"));
  });
}

bool CompiledModel::reads_on_host(const Thunk& t) const { return !kernels_[t.node]->host_operands.empty(); }

void CompiledModel::cut(GraphMode mode) {
  mode_ = mode;
  captures_.clear();
  stream_times_.clear();
  std::vector<Thunk> thunks;
  for (Piece& p : pieces_) thunks.insert(thunks.end(), p.thunks.begin(), p.thunks.end());
  pieces_.clear();
  // Hints open no piece of their own: they are for what is launched behind them.
  std::vector<Thunk> hints;
  for (const Thunk& t : thunks) {
    if (nodes_[t.node]->is_hint()) {
      hints.push_back(t);
      continue;
    }
    // What the host reads at a launch would stay as it was at capture.
    const bool fixed = reads_on_host(t) && !device_->info().patches;
    const HeadMask heads = heads_of_[t.node];
    const bool head = heads != kAllHeads && !device_->info().live_sizes;
    const bool captured = !fixed && !head && (mode == GraphMode::Whole || (mode == GraphMode::Piecewise && !splits(t)));
    if (pieces_.empty() || pieces_.back().captured != captured || pieces_.back().heads != heads)
      pieces_.push_back({{}, captured, heads});
    std::vector<Thunk>& piece = pieces_.back().thunks;
    piece.insert(piece.end(), hints.begin(), hints.end());
    hints.clear();
    piece.push_back(t);
  }
  if (!pieces_.empty()) pieces_.back().thunks.insert(pieces_.back().thunks.end(), hints.begin(), hints.end());
}

const CompiledModel::Capture* CompiledModel::find(int64_t size) const {
  auto it = std::find_if(captures_.begin(), captures_.end(), [&](const Capture& c) { return c.size == size; });
  return it == captures_.end() ? nullptr : &*it;
}

void CompiledModel::drop_capture(int64_t size) {
  std::erase_if(captures_, [&](const Capture& c) { return c.size == size; });
  std::erase_if(stream_times_, [&](const StreamTimes& t) { return t.size == size; });
}

void CompiledModel::set_stream_times(const StreamTimes& times) {
  std::erase_if(stream_times_, [&](const StreamTimes& t) { return t.size == times.size; });
  const auto at = std::find_if(stream_times_.begin(), stream_times_.end(),
                               [&](const StreamTimes& t) { return t.size < times.size; });
  stream_times_.insert(at, times);
}

const CompiledModel::StreamTimes* CompiledModel::stream_times_of(int64_t size) const {
  const StreamTimes* found = nullptr;
  for (const StreamTimes& t : stream_times_)
    if (t.size >= size) found = &t;
  return found;
}

RecordedStreams CompiledModel::streams_of(int64_t size) const {
  const StreamTimes* times = stream_times_of(size);
  if (!streams_) return RecordedStreams::One;
  return times ? times->streams : RecordedStreams::All;
}

Status CompiledModel::record(const Piece& piece, int64_t size, const LiveSizes& live, Patches& patches,
                             std::vector<Patch>& moving, Recorder& recorder) const {
  for (const RecordingStep& step : recording_of(piece.thunks, nodes_, streams_of(size), size)) {
    if (step.kind == RecordingStep::Kind::Record) {
      RETURN_IF_ERROR(recorder.record(step.stream, step.number));
      continue;
    }
    if (step.kind == RecordingStep::Kind::Wait) {
      RETURN_IF_ERROR(recorder.wait(step.stream, step.number));
      continue;
    }
    const Thunk& bound = piece.thunks[step.number];
    Thunk t = bound;
    t.stream = step.stream;
    const bool on_host = reads_on_host(t);
    const bool moves = external(t) && device_->info().free_patches;
    if (!device_->info().patches || (!moves && !on_host)) {
      RETURN_IF_ERROR(located(recorder.launch(t), t, live));
      continue;
    }
    const Result<PatchId> id = recorder.launch_patchable(t);
    if (!id.is_ok()) return located(id.status(), t, live);
    (on_host ? patches.all : moving).push_back({*id, &bound.args});
  }
  return Status::ok();
}

Status CompiledModel::capture(int64_t size, const LiveSizes& live) {
  RETURN_IF_ERROR(check(live));
  std::erase_if(captures_, [&](const Capture& c) { return c.size == size; });
  ASSIGN_OR_RETURN(auto stream, device_->make_stream());
  stream->set_live_sizes(live);
  Capture c;
  c.size = size;
  c.live = live;
  for (Piece& p : pieces_) {
    if (!p.captured) continue;
    Patches patches;
    std::vector<Patch> moving;
    const auto body = [&](Recorder& recorder) { return record(p, size, live, patches, moving, recorder); };
    ASSIGN_OR_RETURN(auto graph, device_->capture(*stream, body));
    patches.always = patches.all.size();
    patches.all.insert(patches.all.end(), moving.begin(), moving.end());
    c.graphs.push_back(std::move(graph));
    c.patches.push_back(std::move(patches));
    ++counters_.captures;
  }
  captures_.push_back(std::move(c));
  return Status::ok();
}

Result<std::unique_ptr<CompiledModel>> CompiledModel::compile(Graph graph, const KernelSelection& selection,
                                                              MemoryPlan plan, const CompileRequest& request) {
  std::unique_ptr<CompiledModel> model(new CompiledModel(std::move(graph)));
  RETURN_IF_ERROR(check_plan(model->graph_, plan));
  model->plan_ = std::move(plan);
  model->device_ = request.platform->device.get();
  model->split_ops_ = request.split_ops;
  model->size_symbols_ = request.size_symbols;
  model->external_ = request.external;
  model->staging_ = request.staging;
  model->arena_epoch_ = request.arena_epoch ? request.arena_epoch : &model->own_epoch_;
  model->heads_ = request.heads;
  model->streams_ = has_side_streams(model->graph_);
  model->place(request);
  model->find_heads();
  ASSIGN_OR_RETURN(auto thunks, model->bind(selection, request));
  model->mark_dependencies(thunks);
  model->pieces_.push_back({std::move(thunks), false});
  model->cut(request.mode);
  return model;
}

size_t CompiledModel::launches(HeadMask heads) const {
  size_t n = 0;
  for (auto& p : pieces_)
    if ((p.heads & heads) != 0)
      n += static_cast<size_t>(
          std::count_if(p.thunks.begin(), p.thunks.end(), [&](const Thunk& t) { return !nodes_[t.node]->is_hint(); }));
  return n;
}

const DeviceGraph* CompiledModel::graph_of(const Piece& piece) const {
  if (captures_.empty() || !piece.captured) return nullptr;
  size_t index = 0;
  for (const Piece& p : pieces_) {
    if (&p == &piece) return captures_.front().graphs[index].get();
    index += p.captured ? 1 : 0;
  }
  return nullptr;
}

size_t CompiledModel::capture_bytes(int64_t size) const {
  size_t sum = 0;
  if (const Capture* c = find(size))
    for (auto& g : c->graphs) sum += g->stats().bytes;
  return sum;
}

GraphStats CompiledModel::graph_stats() const {
  GraphStats sum;
  for (const Capture& c : captures_) {
    for (auto& g : c.graphs) {
      const GraphStats one = g->stats();
      sum.launches += one.launches;
      sum.barriers += one.barriers;
      sum.waits += one.waits;
      sum.bytes += one.bytes;
      sum.replays += one.replays;
      sum.copies_to_host += one.copies_to_host;
    }
  }
  return sum;
}

Status CompiledModel::check(const LiveSizes& live) const {
  const auto& symbols = graph_.symbols();
  for (size_t i = 0; i < symbols.size(); ++i)
    if (live.value[i + 1] < 0 || live.value[i + 1] > symbols[i].bound)
      return invalid("{} = {} is out of range; at most {}", symbols[i].name, live.value[i + 1], symbols[i].bound);
  return Status::ok();
}

Status CompiledModel::begin(const LiveSizes& live, Stream& stream, HeadMask heads) {
  RETURN_IF_ERROR(check(live));
  live_ = live;
  last_heads_ = heads;
  last_epoch_ = ++*arena_epoch_;
  stream.set_live_sizes(live);
  return staging_->upload(stream);
}

Status CompiledModel::launch(const Thunk& t, Stream& stream) const {
  const size_t offset = staging_->host_offset();
  if (offset == 0 || !reads_on_host(t)) return located(stream.launch(t), t, live_);
  Thunk moved = t;
  move_host_operands(moved.args, offset);
  return located(stream.launch(moved), t, live_);
}

// On one stream a hint is worth nothing.
Status CompiledModel::launch(const Piece& p, Stream& stream) {
  for (const Thunk& t : p.thunks) {
    if (nodes_[t.node]->is_hint()) continue;
    RETURN_IF_ERROR(launch(t, stream));
    ++counters_.launches;
  }
  return Status::ok();
}

Status CompiledModel::located(Status launched, const Thunk& t, const LiveSizes& live) const {
  if (launched.is_ok()) return launched;
  return launched.at(place_of(*nodes_[t.node], *kernels_[t.node], graph_, live));
}

// "the replay of decode for 4, linear %2 to add %5, at T = 3". Which of the launches failed is not known: the device
// runs a graph as a unit.
std::string CompiledModel::replay_place(const Piece& p, int64_t size, const LiveSizes& live) const {
  const auto label = [&](const Thunk& t) {
    return fmt::format("{} {}", nodes_[t.node]->op->name, node_label(*nodes_[t.node]));
  };
  return fmt::format("the replay of {} for {}, {} to {},{}", graph_.name(), size, label(p.thunks.front()),
                     label(p.thunks.back()), sizes_text(graph_, live));
}

Status CompiledModel::launch(const LiveSizes& live, Stream& stream, HeadMask heads) {
  RETURN_IF_ERROR(begin(live, stream, heads));
  for (Piece& p : pieces_) {
    if ((p.heads & heads) == 0) continue;
    RETURN_IF_ERROR(launch(p, stream));
  }
  return Status::ok();
}

Status CompiledModel::run(const LiveSizes& live, Stream& stream, HeadMask heads, const AfterLaunch& after) {
  if (!after) {
    RETURN_IF_ERROR(launch(live, stream, heads));
    return stream.synchronize();
  }
  RETURN_IF_ERROR(begin(live, stream, heads));
  for (Piece& p : pieces_) {
    if ((p.heads & heads) == 0) continue;
    for (const Thunk& t : p.thunks) {
      if (nodes_[t.node]->is_hint()) continue;
      RETURN_IF_ERROR(launch(t, stream));
      RETURN_IF_ERROR(stream.synchronize());
      after(t, *nodes_[t.node]);
      ++counters_.launches;
    }
  }
  return Status::ok();
}

std::span<const Patch> CompiledModel::patches_to_send(Patches& known) const {
  const size_t sent = known.moved ? known.all.size() : known.always, offset = staging_->host_offset();
  if (offset == 0 || known.always == 0) return {known.all.data(), sent};
  known.shifted_args.resize(known.always);
  known.shifted = known.all;
  for (size_t i = 0; i < known.always; ++i) {
    known.shifted_args[i] = *known.all[i].args;
    move_host_operands(known.shifted_args[i], offset);
    known.shifted[i].args = &known.shifted_args[i];
  }
  return {known.shifted.data(), sent};
}

Status CompiledModel::replay(int64_t size, const LiveSizes& live, Stream& stream, HeadMask heads) {
  auto* capture = const_cast<Capture*>(find(size));
  if (!capture) return error(Code::Internal, "size {} of {} is not captured", size, graph_.name());
  RETURN_IF_ERROR(begin(live, stream, heads));
  size_t next = 0;
  for (Piece& p : pieces_) {
    const size_t graph = next;
    next += p.captured ? 1 : 0;
    if ((p.heads & heads) == 0) continue;
    if (p.captured) {
      Patches& patches = capture->patches[graph];
      const Status replayed = capture->graphs[graph]->replay(stream, patches_to_send(patches));
      if (!replayed.is_ok()) return replayed.at(replay_place(p, size, live));
      patches.moved = false;
      ++counters_.replays;
      continue;
    }
    RETURN_IF_ERROR(launch(p, stream));
  }
  return Status::ok();
}

Status CompiledModel::rebind(const std::unordered_map<std::string, void*>& external, const LiveSizes& now) {
  for (auto& [name, address] : external)
    if (!external_.contains(name)) return error(Code::Internal, "{} has no external input \"{}\"", graph_.name(), name);
  for (auto& [name, address] : external) external_[name] = address;
  for (const Node* n : nodes_) {
    if (!n->is_input()) continue;
    if (auto it = external.find(n->attrs.text("name")); it != external.end()) address_[n->result()] = it->second;
  }
  for (Piece& p : pieces_) {
    for (Thunk& t : p.thunks) {
      const Node* n = nodes_[t.node];
      for (size_t i = 0; i < n->in.size(); ++i) t.args.ptr[i] = address_.at(storage_root(n->in[i]));
      for (size_t i = 0; i < n->out.size(); ++i)
        t.args.ptr[n->op->operands.size() + i] = address_.at(storage_root(n->result(i)));
    }
  }
  for (Capture& c : captures_)
    for (Patches& patches : c.patches) patches.moved = true;
  const bool patched = device_->info().patches && device_->info().free_patches;
  std::vector<std::pair<int64_t, LiveSizes>> again;
  for (const Capture& c : captures_) {
    const auto changed = [&](const Node* n) { return n->is_launched() && works_with_other_sizes(*n, c.live, now); };
    if (patched && (device_->info().live_sizes || std::none_of(nodes_.begin(), nodes_.end(), changed))) continue;
    LiveSizes& live = again.emplace_back(c.size, c.live).second;
    for (size_t s = 0; s < std::size(live.value); ++s)
      if (now.value[s] != 0) live.value[s] = now.value[s];
  }
  for (auto& [size, live] : again) RETURN_IF_ERROR(capture(size, live));
  return Status::ok();
}

Result<TensorView> CompiledModel::output(std::string_view name) const {
  if (last_epoch_ != *arena_epoch_)
    return error(Code::Internal, "the outputs of {} are gone: something else has run on its arena", graph_.name());
  for (auto& o : graph_.outputs()) {
    if (o.name != name) continue;
    if (!computed(name)) return error(Code::NotFound, "the last run of {} did not compute \"{}\"", graph_.name(), name);
    TensorView v = view_of(o.value->type, live_, address_.at(storage_root(o.value)));
    v.generation = last_epoch_;
    return v;
  }
  return error(Code::NotFound, "the graph has no output \"{}\"", name);
}

TensorView CompiledModel::view(const Value* value) const {
  auto it = address_.find(storage_root(value));
  return it == address_.end() ? TensorView() : view_of(value->type, live_, it->second);
}

}  // namespace reprise

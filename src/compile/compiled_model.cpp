#include "compile/compiled_model.h"

#include <algorithm>

namespace reprise {
namespace {

// The bytes that one launch reads or writes: a range, or a whole parameter, input or cache.
struct Access {
  const uint8_t* begin = nullptr;
  const uint8_t* end = nullptr;
  bool write = false;
};

bool conflict(const Access& a, const Access& b) { return (a.write || b.write) && a.begin < b.end && b.begin < a.end; }

bool layout_operand(const OpSchema& op, size_t operand) {
  return op.has(op_flag::kParamLayout) &&
         (op.operands[operand].name == "weight" || op.operands[operand].name == "table");
}

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
    if (n->op->name == "param") address_[n->result()] = request.params->data(n->attrs.text("name"));
    if (n->op->name != "input") continue;
    const std::string& name = n->attrs.text("name");
    auto it = request.external.find(name);
    address_[n->result()] = it != request.external.end() ? it->second : request.staging->address(name);
  }
  for (const PlannedStorage& s : plan_.storages)
    if (s.root) address_[s.root] = static_cast<uint8_t*>(request.arena) + s.offset;
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
    t.phase = entry.phase;
    for (size_t i = 0; i < n->in.size(); ++i) {
      t.args.ptr[i] = address_.at(storage_root(n->in[i]));
      if (n->in[i]->def->op->name != "param" || !layout_operand(*n->op, i)) continue;
      const ParamPlan& p = selection.params[selection.param_index.at(n->in[i]->def->attrs.text("name"))];
      call.param_layout = p.layout ? std::string_view(p.layout->name) : std::string_view("row_major");
    }
    for (size_t i = 0; i < n->out.size(); ++i)
      t.args.ptr[n->op->operands.size() + i] = address_.at(storage_root(n->result(i)));
    if (auto w = plan_.workspace_of.find(n); w != plan_.workspace_of.end())
      t.args.workspace = static_cast<uint8_t*>(request.arena) + plan_.storages[w->second].offset;
    entry.bind(call, t.args);
    thunks.push_back(t);
  }
  return thunks;
}

// A launch depends on those before it when it touches bytes that one of them writes, or writes bytes that one of them
// touches. Only launches since the last dependency matter: everything before that has been waited for.
void CompiledModel::mark_dependencies(std::vector<Thunk>& thunks) const {
  const LiveSizes bounds = graph_.bounds();
  std::vector<Access> open;
  for (Thunk& t : thunks) {
    const Node* n = nodes_[t.node];
    std::vector<Access> mine;
    auto add = [&](const Value* v, bool write) {
      const Value* root = storage_root(v);
      if (root->def->op->name == "param") return;  // nobody writes those
      const auto* begin = static_cast<const uint8_t*>(address_.at(root));
      // Inputs and caches lie apart from each other, so their first byte stands for all.
      const bool outside = root->def->op->name == "input";
      const auto bytes = static_cast<size_t>(root->type.shape.elements(bounds)) * size_of(root->type.dtype);
      mine.push_back({begin, begin + (outside ? 1 : bytes), write});
    };
    for (const Value* v : n->in) add(v, false);
    for (auto& v : n->out) add(v.get(), true);
    if (auto w = plan_.workspace_of.find(n); w != plan_.workspace_of.end()) {
      const auto* begin = static_cast<const uint8_t*>(t.args.workspace);
      mine.push_back({begin, begin + plan_.storages[w->second].bytes, true});
    }
    t.depends = std::any_of(mine.begin(), mine.end(), [&](const Access& a) {
      return std::any_of(open.begin(), open.end(), [&](const Access& b) { return conflict(a, b); });
    });
    if (t.depends) open.clear();
    open.insert(open.end(), mine.begin(), mine.end());
  }
}

Status CompiledModel::cut_and_capture(std::vector<Thunk> thunks, const CompileRequest& request) {
  const bool pieces = mode_ == GraphMode::Piecewise;
  auto is_split = [&](const Thunk& t) {
    const OpSchema& op = *nodes_[t.node]->op;
    return op.has(op_flag::kSplitPoint) ||
           std::find(request.split_ops.begin(), request.split_ops.end(), op.name) != request.split_ops.end();
  };
  for (Thunk& t : thunks) {
    const bool captured = mode_ != GraphMode::Eager && !(pieces && is_split(t));
    if (pieces_.empty() || pieces_.back().captured != captured) {
      pieces_.emplace_back();
      pieces_.back().captured = captured;
    }
    pieces_.back().thunks.push_back(t);
  }
  if (mode_ == GraphMode::Eager) return Status::ok();
  ASSIGN_OR_RETURN(auto stream, request.platform->device->make_stream());
  stream->set_live_sizes(graph_.bounds());  // where a graph keeps the sizes of its capture, it serves its bounds
  // The staged inputs are all zero here: token 0, scratch page, sequences of length 0.
  for (; counters_.warmups < static_cast<uint64_t>(request.warmups); ++counters_.warmups) {
    for (const Piece& p : pieces_)
      for (const Thunk& t : p.thunks) RETURN_IF_ERROR(stream->launch(t));
    RETURN_IF_ERROR(stream->synchronize());
  }
  for (Piece& p : pieces_) {
    if (!p.captured) continue;
    ASSIGN_OR_RETURN(p.graph, request.platform->device->capture(*stream, [&](Recorder& recorder) -> Status {
      for (const Thunk& t : p.thunks) RETURN_IF_ERROR(recorder.launch(t));
      return Status::ok();
    }));
  }
  return Status::ok();
}

Result<std::unique_ptr<CompiledModel>> CompiledModel::compile(Graph graph, const KernelSelection& selection,
                                                              MemoryPlan plan, const CompileRequest& request) {
  std::unique_ptr<CompiledModel> model(new CompiledModel(std::move(graph)));
  RETURN_IF_ERROR(check_plan(model->graph_, plan));
  model->plan_ = std::move(plan);
  model->mode_ = request.mode;
  model->staging_ = request.staging;
  model->place(request);
  ASSIGN_OR_RETURN(auto thunks, model->bind(selection, request));
  model->mark_dependencies(thunks);
  RETURN_IF_ERROR(model->cut_and_capture(std::move(thunks), request));
  return model;
}

size_t CompiledModel::launches() const {
  size_t n = 0;
  for (auto& p : pieces_) n += p.thunks.size();
  return n;
}

Status CompiledModel::run(const LiveSizes& live, Stream& stream, bool eagerly) {
  const auto& symbols = graph_.symbols();
  for (size_t i = 0; i < symbols.size(); ++i)
    if (live.value[i + 1] < 0 || live.value[i + 1] > symbols[i].bound)
      return invalid("{} = {} is out of range; at most {}", symbols[i].name, live.value[i + 1], symbols[i].bound);
  live_ = live;
  stream.set_live_sizes(live);
  RETURN_IF_ERROR(staging_->upload(stream));
  for (Piece& p : pieces_) {
    if (p.graph && !eagerly) {
      RETURN_IF_ERROR(p.graph->replay(stream));
      ++counters_.replays;
      continue;
    }
    for (const Thunk& t : p.thunks) RETURN_IF_ERROR(stream.launch(t));
    counters_.launches += p.thunks.size();
  }
  return stream.synchronize();
}

Result<TensorView> CompiledModel::output(std::string_view name) const {
  for (auto& o : graph_.outputs())
    if (o.name == name) return view_of(o.value->type, live_, address_.at(storage_root(o.value)));
  return error(Code::NotFound, "the graph has no output \"{}\"", name);
}

}  // namespace reprise

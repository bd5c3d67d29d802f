#include "compile/compiled_model.h"

namespace reprise {
namespace {

TensorView view_of(const TensorType& type, const LiveSizes& live, void* data) {
  TensorView v;
  v.data = data;
  v.dtype = type.dtype;
  for (Dim d : type.shape.dims()) v.size[v.rank++] = d.value(live);
  int64_t step = 1;
  for (int i = v.rank - 1; i >= 0; --i) {
    v.stride[i] = step;
    step *= v.size[i];
  }
  return v;
}

class EagerModel final : public CompiledModel {
 public:
  explicit EagerModel(Graph graph) : graph_(std::move(graph)) {}

  Status build(const KernelSelection& selection, const CompileRequest& request);

  std::string_view mode() const override { return "eager"; }

  Status run(const LiveSizes& live, Stream& stream) override {
    const LiveSizes bounds = graph_.bounds();
    for (size_t i = 0; i < graph_.symbols().size(); ++i)
      if (live.value[i + 1] < 0 || live.value[i + 1] > bounds.value[i + 1])
        return invalid("{} = {} is out of range; at most {}", graph_.symbols()[i].name, live.value[i + 1],
                       bounds.value[i + 1]);
    live_ = live;
    stream.set_live_sizes(live);
    for (const Thunk& t : thunks_) RETURN_IF_ERROR(stream.launch(t));
    return stream.synchronize();
  }

  Result<TensorView> input(std::string_view name) const override {
    auto it = inputs_.find(std::string(name));
    if (it == inputs_.end()) return error(Code::NotFound, "the graph has no staged input \"{}\"", name);
    return it->second;
  }

  Result<TensorView> output(std::string_view name) const override {
    for (auto& o : graph_.outputs())
      if (o.name == name) return view_of(o.value->type, live_, address_.at(storage_root(o.value)));
    return error(Code::NotFound, "the graph has no output \"{}\"", name);
  }

  size_t arena_bytes() const override { return plan_.arena_bytes; }
  size_t staging_bytes() const override { return staging_.size(); }
  size_t launches() const override { return thunks_.size(); }

 private:
  Status place_inputs(const CompileRequest& request);
  Status bind(const KernelSelection& selection);

  Graph graph_;
  MemoryPlan plan_;
  Buffer arena_, staging_;
  std::vector<Thunk> thunks_;
  std::unordered_map<std::string, TensorView> inputs_;
  std::unordered_map<const Value*, void*> address_;  // of storage roots
  LiveSizes live_;
};

Status EagerModel::place_inputs(const CompileRequest& request) {
  const LiveSizes bounds = graph_.bounds();
  std::vector<std::pair<const Node*, size_t>> staged;
  size_t total = 0;
  for (const Node* n = graph_.first(); n; n = n->next) {
    if (n->op->name == "param") address_[n->result()] = request.params->data(n->attrs.text("name"));
    if (n->op->name != "input") continue;
    const std::string& name = n->attrs.text("name");
    if (auto it = request.external.find(name); it != request.external.end()) {
      address_[n->result()] = it->second;
      continue;
    }
    staged.emplace_back(n, total);
    const size_t bytes = static_cast<size_t>(n->result()->type.shape.elements(bounds)) * size_of(n->result()->type.dtype);
    total += (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  }
  ASSIGN_OR_RETURN(staging_, request.platform->device->pool().allocate(total, "staging"));
  for (auto& [n, offset] : staged) {
    void* at = staging_.as<uint8_t>() + offset;
    address_[n->result()] = at;
    inputs_[n->attrs.text("name")] = view_of(n->result()->type, bounds, at);
  }
  return Status::ok();
}

Status EagerModel::bind(const KernelSelection& selection) {
  uint32_t number = 0;
  for (const Node* n = graph_.first(); n; n = n->next, ++number) {
    auto it = selection.kernel.find(n);
    if (it == selection.kernel.end()) continue;
    const KernelEntry& entry = *it->second;
    const auto in = n->in_types(), out = n->out_types();
    OpCall call{n->op, in, out, &n->attrs, {}};
    Thunk t;
    t.node = number;
    t.phase = entry.phase;
    size_t slot = 0;
    if (n->op->operands.size() + n->out.size() > LaunchArgs::kMaxPointers)
      return error(Code::Internal, "{} has more operands and results than a launch carries", n->op->name);
    for (size_t i = 0; i < n->op->operands.size(); ++i, ++slot) {
      if (i >= n->in.size()) continue;  // an optional operand left out stays null
      t.args.ptr[slot] = address_.at(storage_root(n->in[i]));
      if (n->in[i]->def->op->name == "param" && n->op->has(op_flag::kParamLayout)) {
        const ParamPlan& p = selection.params[selection.param_index.at(n->in[i]->def->attrs.text("name"))];
        if (n->op->operands[i].name == "weight" || n->op->operands[i].name == "table")
          call.param_layout = p.layout ? std::string_view(p.layout->name) : std::string_view("row_major");
      }
    }
    for (auto& v : n->out) t.args.ptr[slot++] = address_.at(storage_root(v.get()));
    if (auto w = plan_.workspace_of.find(n); w != plan_.workspace_of.end())
      t.args.workspace = arena_.as<uint8_t>() + plan_.storages[w->second].offset;
    entry.bind(call, t.args);
    thunks_.push_back(t);
  }
  return Status::ok();
}

Status EagerModel::build(const KernelSelection& selection, const CompileRequest& request) {
  plan_ = plan_memory(graph_, selection.workspace);
  RETURN_IF_ERROR(check_plan(graph_, plan_));
  ASSIGN_OR_RETURN(arena_, request.platform->device->pool().allocate(plan_.arena_bytes, "activations"));
  RETURN_IF_ERROR(place_inputs(request));
  for (const PlannedStorage& s : plan_.storages)
    if (s.root) address_[s.root] = arena_.as<uint8_t>() + s.offset;
  return bind(selection);
}

}  // namespace

Result<std::unique_ptr<CompiledModel>> compile_eager(Graph graph, const KernelSelection& selection,
                                                     const CompileRequest& request) {
  auto model = std::make_unique<EagerModel>(std::move(graph));
  RETURN_IF_ERROR(model->build(selection, request));
  return std::unique_ptr<CompiledModel>(std::move(model));
}

}  // namespace reprise

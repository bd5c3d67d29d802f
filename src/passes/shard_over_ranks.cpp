#include "passes/shard_over_ranks.h"

#include <algorithm>

#include "passes/sharder.h"

namespace reprise {

std::string_view Sharder::word_of(const Node& n) {
  const AttrValue* word = n.attrs.find("shard");
  return word ? std::string_view(std::get<std::string>(*word)) : std::string_view("none");
}

Status Sharder::run() {
  for (const Symbol& s : g_.symbols()) RETURN_IF_ERROR(out_.add_symbol(s.name, s.bound).status());
  for (const Node* n = g_.first(); n; n = n->next)
    if (n->op->has(op_trait::kHeads)) {
      find_groups(*n);
      find_states(*n);
    } else if (n->op->has(op_trait::kColumns)) {
      find_gates(*n);
    }
  find_drawing();
  if (parted()) RETURN_IF_ERROR(find_part());
  for (Node* n = g_.first(); n; n = n->next) RETURN_IF_ERROR(visit(*n));
  for (const GraphOutput& o : g_.outputs()) {
    if (own_logits_ && o.value->def == drawing_) continue;  // the hosts'
    ASSIGN_OR_RETURN(Value * v, whole(o.value));
    RETURN_IF_ERROR(out_.add_output(o.name, v));
  }
  if (merged_) RETURN_IF_ERROR(out_.add_output(own_logits_ ? "sampled" : std::string(kMergedDraws), merged_));
  if (own_logits_) RETURN_IF_ERROR(out_.add_output(std::string(kOwnLogits), own_logits_));
  // How parameters are made that this rank has no use for, or only a part of.
  std::erase_if(c_.derived(), [&](const DerivedParam& p) { return !p.elsewhere && !out_.find_param(p.name); });
  g_ = std::move(out_);
  return Status::ok();
}

Status Sharder::visit(Node& n) {
  if (n.is_param()) return Status::ok();  // made where it is read
  if (n.is_input()) return input(n);
  if (drawing_ && n.result() == drawing_->in[2] && draws_here(n.in[0])) return edit(n);
  if (&n == drawing_ && draws_here(n.in[0])) return draw(n);
  if (share_.experts > 1 && n.op->has(op_trait::kDispatches)) return route(n);
  if (n.op->has(op_trait::kGathers))
    if (const auto sent = sent_.find(n.in[n.op->first(OperandRole::Index)]); sent != sent_.end())
      return gather_sent(n, sent->second);
  if (n.op->has(op_trait::kCombines) && sent_.contains(n.in[n.op->first(OperandRole::Index)]->def->result()))
    return combine_sent(n);
  if (n.op->has(op_trait::kGathers) && own_rows_.contains(n.in[n.op->first(OperandRole::Index)])) return own_rows(n);
  if (n.op->has(op_trait::kCombines) && own_rows_.contains(n.in[n.op->first(OperandRole::Index)]->def->result()))
    return combine(n);
  if (share_.experts > 1 && n.op->has(OperandRole::Starts))
    return n.op->has(op_trait::kColumns) ? group_columns(n) : groups(n);
  if (n.op->has(op_trait::kCombines) && placed(n.in[0]).partial) return combine_parts(n);
  if (parted() && n.op->has(op_trait::kGathers) && is_cache(*storage_root(n.in[0]))) return rows_of_cache(n);
  if (n.op->has(op_trait::kRowScales) && stays_cut(n)) return add(n, {placed(n.in[0]).value}, placed(n.in[0]).cut);
  ASSIGN_OR_RETURN(const bool kept, keep_rows(n));
  if (kept) return Status::ok();
  if (parted() && n.op->has(op_trait::kHeads)) return per_head_of_part(n);
  for (const Value* v : n.in) RETURN_IF_ERROR(gather_rows(v));
  return by_traits(n);
}

Status Sharder::by_traits(Node& n) {
  if (states_.contains(&n)) return continue_state(n);
  if (n.op->has(op_trait::kLinear)) return linear(n);
  if (n.op->has(OperandRole::Table)) return embedding(n);
  if (n.op->has(op_trait::kHeads)) return per_head(n);
  if (const size_t stack = stack_of(n); stack < n.in.size()) return add_stack(n, stack);
  if (n.op->has(op_trait::kColumns)) return columns(n);
  if (n.is_view()) return view(n);
  if (n.op->has(op_trait::kVectors) && n.in[0]->type.shape.rank() == 3) return vectors(n);
  ASSIGN_OR_RETURN(std::vector<Value*> in, all_whole(n));
  return add(n, std::move(in), std::nullopt);
}

// A parameter has numbers for a vector, or for that of every head.
Status Sharder::vectors(const Node& n) {
  const std::optional<Cut> cut = placed(n.in[0]).cut;
  std::vector<Value*> in{placed(n.in[0]).value};
  for (size_t i = 1; i < n.in.size(); ++i) {
    const bool by_head = cut && n.in[i]->def->is_param() && n.in[i]->type.shape.rank() == 2;
    ASSIGN_OR_RETURN(Value * operand, by_head ? param_part(n.in[i], 0, 1, 1, *cut) : whole(n.in[i]));
    in.push_back(operand);
  }
  return add(n, std::move(in), cut);
}

Status Sharder::input(const Node& n) {
  if (is_stack(*n.result())) return Status::ok();  // made where it is read
  TensorType type = n.result()->type;
  const std::string& name = n.attrs.text("name");
  if (const Node* known = out_.find_input(name)) {
    at_[n.result()] = {known->result(), std::nullopt};
    return Status::ok();
  }
  if (is_cache(*n.result()) && is_cut_cache(*n.result()))
    type.shape[2] = Dim(share_of_heads(type.shape[2].factor, type.shape[2].factor, share_.heads()).count);
  if (const auto state = state_sizes_.find(n.result()); state != state_sizes_.end())
    type.shape[state->second.first] = Dim(state->second.second);
  ASSIGN_OR_RETURN(Node * made, out_.add_source(*n.op, name, type, n.made_by));
  at_[n.result()] = {made->result(), std::nullopt};
  return Status::ok();
}

Status Sharder::add(const Node& n, std::vector<Value*> in, const std::optional<Cut>& cut, Value* groups) {
  ASSIGN_OR_RETURN(Node * made, out_.add(*n.op, std::move(in), n.attrs, n.made_by));
  for (size_t i = 0; i < n.out.size(); ++i) at_[n.result(i)] = {made->result(i), cut, nullptr, groups};
  return Status::ok();
}

Result<Node*> Sharder::call(std::string_view name, std::vector<Value*> in, Attrs attrs) {
  const OpSchema* op = c_.ops().find(name);
  if (!op) return error(Code::Unsupported, "there is no op {}", name);
  return out_.add(*op, std::move(in), std::move(attrs), kPass);
}

Result<Value*> Sharder::whole(const Value* old) {
  if (old->def->is_param()) return param(old);
  RETURN_IF_ERROR(gather_rows(old));
  Placed& p = placed(old);
  if (!p.pieces.empty()) return refuse(*old->def, "columns of this rank's heads alone are asked for by all");
  if (p.partial) {
    ASSIGN_OR_RETURN(Node * sum, sum_over_ranks(p.value, {}, p.value->type.dtype));
    c_.applied(*sum, fmt::format("%{} is a part of a sum here; the sums of {} ranks are added", old->id, share_.size));
    p = {sum->result(), std::nullopt};
  }
  if (!p.cut) return p.value;
  if (p.gathered) return p.gathered;
  if (p.cut->repeated) return refuse(*old->def, "several ranks have the same heads, and all are asked for");
  const Shape& shape = p.value->type.shape;
  const bool heads = shape.rank() == 3;
  Value* mine = p.value;
  Cut cut = *p.cut;
  if (heads) {
    cut = cut.times(shape[2].factor);
    ASSIGN_OR_RETURN(Node * flat, call("flatten", {mine}, {}));
    mine = flat->result();
  }
  ASSIGN_OR_RETURN(Node * made,
                   call("all_gather", {mine}, {{"first", cut.first}, {"of", cut.of}, {"even", int64_t{cut.even}}}));
  c_.applied(*made,
             fmt::format("{} of {} columns of %{} are here; all ranks' are gathered", cut.count, cut.of, old->id));
  Value* all = made->result();
  if (heads) {
    ASSIGN_OR_RETURN(Node * again, call("heads", {all}, {{"size", shape[2].factor}}));
    all = again->result();
  }
  return placed(old).gathered = all;
}

Result<std::vector<Value*>> Sharder::all_whole(const Node& n, size_t from) {
  std::vector<Value*> in(n.in.size());
  for (size_t i = from; i < in.size(); ++i) {
    if (!n.in[i]->def->is_param() && n.op->operands[i].role == OperandRole::Cache && is_cut_cache(*n.in[i]))
      return refuse(n, "it works on a whole cache of keys and values, and every rank has its own heads of it");
    const bool own = parted() && n.op->has(OperandRole::Cache);
    ASSIGN_OR_RETURN(in[i], own ? beside_cache(n, i) : whole(n.in[i]));
  }
  return in;
}

bool Sharder::has_columns(const Node& n, size_t i) {
  const Value* v = n.in[i];
  const Shape& s = v->type.shape;
  return v->def->is_param() && s.rank() > 1 && !n.op->operands[i].is_index() &&
         same_dim(s.back(), n.result()->type.shape.back());
}

Status Sharder::columns(const Node& n) {
  const auto carries = [&](size_t i) {
    const Shape& s = n.in[i]->type.shape;
    return s.rank() > 1 && !n.op->operands[i].is_index() && !n.in[i]->def->is_param() &&
           same_dim(s.back(), n.result()->type.shape.back());
  };
  std::optional<Cut> cut;
  bool first = true, same = true;
  for (size_t i = 0; i < n.in.size(); ++i) {
    if (carries(i)) {
      const std::optional<Cut>& mine = placed(n.in[i]).cut;
      same = same && (first || mine == cut);
      cut = first ? mine : cut;
      first = false;
    } else if (has_columns(n, i)) {
      same = same && takes_columns(n.in[i]);
    } else if (n.in[i]->type.shape.rank() == 1 && !n.op->operands[i].is_index()) {
      same = same && n.in[i]->type.shape[0].factor == 1;  // a number for each column would be cut as well
    }
  }
  if (!same) cut.reset();
  std::vector<Value*> in(n.in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    if (cut && carries(i)) {
      in[i] = placed(n.in[i]).value;
    } else if (cut && has_columns(n, i)) {
      ASSIGN_OR_RETURN(in[i], column_part(n.in[i], *cut));
    } else {
      ASSIGN_OR_RETURN(in[i], whole(n.in[i]));
    }
  }
  return add(n, std::move(in), cut);
}

Status Sharder::view(const Node& n) {
  const Value* x = n.in[0];
  if (x->def->is_param() || !placed(x).cut) {
    ASSIGN_OR_RETURN(Value * v, whole(x));
    return add(n, {v}, std::nullopt);
  }
  const Cut& cut = *placed(x).cut;
  const int from = x->type.shape.rank(), to = n.result()->type.shape.rank();
  if (from == 3 && to == 2) return add(n, {placed(x).value}, cut.times(x->type.shape[2].factor));
  const int64_t size = to == 3 ? n.result()->type.shape[2].factor : 0;
  if (from == 2 && size > 0 && cut.first % size == 0 && cut.count % size == 0)
    return add(n, {placed(x).value}, Cut{cut.first / size, cut.count / size, cut.of / size, cut.repeated, cut.even});
  ASSIGN_OR_RETURN(Value * v, whole(x));
  return add(n, {v}, std::nullopt);
}

Pass shard_over_ranks(RankShare share, PartInputs inputs) {
  return {Sharder::kPass, true,
          [share, inputs](Graph& g, PassContext& c) { return Sharder(g, c, share, inputs).run(); }};
}

}  // namespace reprise

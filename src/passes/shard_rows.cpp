// Values of which a rank has the rows of its own experts, or of its own sequences, alone.
#include "passes/sharder.h"

namespace reprise {

Status Sharder::gather_rows(const Value* old) {
  if (old->def->is_param() || is_stack(*old) || !placed(old).groups) return Status::ok();
  Placed& p = placed(old);
  if (packed_.contains(p.groups)) return refuse(*old->def, "rows of this rank's experts alone are asked for by all");
  const Shape shape = p.value->type.shape;
  const bool heads = shape.rank() == 3;
  const int64_t width = heads ? shape[1].factor : shape.back().factor;
  const int parts = p.groups == part_ ? share_.sequences : share_.experts;
  if (!p.cut && parts < share_.size) return refuse(*old->def, "several ranks have the same rows");
  Cut cut = p.cut.value_or(Cut{0, width, width});
  if (cut.repeated) return refuse(*old->def, "several ranks have the same heads, and all are asked for");
  Value* mine = p.value;
  if (heads) {
    cut = cut.times(shape[2].factor);
    ASSIGN_OR_RETURN(Node * flat, call("flatten", {mine}, {}));
    mine = flat->result();
  }
  const bool marked = staged_part_ && p.groups == part_;
  ASSIGN_OR_RETURN(Node * made, call(marked ? "gather_marked" : "gather_groups", {mine, p.groups},
                                     {{"first", cut.first}, {"of", cut.of}}));
  const std::string rows = p.groups == part_
                               ? fmt::format("rows of part {} of {} of %{}", share_.part(), parts, old->id)
                               : fmt::format("rows of {} groups of %{}", p.groups->type.shape[0].factor - 1, old->id);
  c_.applied(*made, fmt::format("{} are here, {} of {} columns; all ranks' are gathered", rows, cut.count, cut.of));
  Value* all = made->result();
  if (heads) {
    ASSIGN_OR_RETURN(Node * again, call("heads", {all}, {{"size", shape[2].factor}}));
    all = again->result();
  }
  p = {all, std::nullopt};
  return Status::ok();
}

Result<bool> Sharder::keep_rows(const Node& n) {
  Value* groups = nullptr;
  std::optional<Cut> cut;
  if (n.is_view()) return keep_rows_flat(n);
  for (size_t i = 0; i < n.in.size(); ++i) {
    if (is_one_number(n, i)) continue;
    if (n.in[i]->def->is_param()) return false;
    const Placed& p = placed(n.in[i]);
    const bool by_rows = n.op->operands[i].role == OperandRole::Rows || (i == 0 && n.op->has(op_trait::kVectors));
    if (!p.groups || !by_rows || (groups && (p.groups != groups || p.cut != cut))) return false;
    groups = p.groups;
    cut = p.cut;
  }
  const bool gathers = cut && !n.op->has(op_trait::kColumns);
  if (!groups || (gathers && !packed_.contains(groups))) return false;
  std::vector<Value*> in;
  for (size_t i = 0; i < n.in.size(); ++i) {
    ASSIGN_OR_RETURN(Value * v, is_one_number(n, i) ? param(n.in[i])
                                : gathers           ? own_columns(n.in[i])
                                                    : placed(n.in[i]).value);
    in.push_back(v);
  }
  if (gathers) cut.reset();
  RETURN_IF_ERROR(add(n, std::move(in), cut, groups));
  return true;
}

Result<Value*> Sharder::own_columns(const Value* old) {
  Placed& p = placed(old);
  if (!p.cut) return p.value;
  if (p.gathered) return p.gathered;
  std::vector<double> borders{0};
  for (int way = 0; way < ways(); ++way) {
    const Cut cut = columns_of(way, p.cut->of);
    borders.push_back(static_cast<double>(cut.first + cut.count));
  }
  const auto way = int64_t{share_.rank % ways()};
  if (borders[static_cast<size_t>(way)] != static_cast<double>(p.cut->first))
    return refuse(*old->def, "its columns are not cut as others are");
  ASSIGN_OR_RETURN(Node * made, call("gather_columns", {p.value}, {{"way", way}, {"borders", borders}}));
  c_.applied(*made, fmt::format("{} of {} columns of %{} are here; those of the {} ranks with the same experts are "
                                "gathered",
                                p.cut->count, p.cut->of, old->id, ways()));
  return p.gathered = made->result();
}

Result<bool> Sharder::keep_rows_flat(const Node& n) {
  const Value* x = n.in[0];
  if (x->def->is_param() || !placed(x).groups) return false;
  if (x->type.shape.rank() != 3 || n.result()->type.shape.rank() != 2) return false;
  const Placed p = placed(x);
  const int64_t size = x->type.shape[2].factor;
  RETURN_IF_ERROR(add(n, {p.value}, p.cut ? std::optional(p.cut->times(size)) : std::nullopt, p.groups));
  return true;
}

Result<Value*> Sharder::early_input(std::string_view name) {
  if (const Node* known = out_.find_input(name)) return known->result();
  for (const Node* n = g_.first(); n; n = n->next) {
    if (!n->is_input() || n->attrs.text("name") != name) continue;
    ASSIGN_OR_RETURN(Node * made, out_.add_source(*n->op, n->attrs.text("name"), n->result()->type, n->made_by));
    return made->result();
  }
  return static_cast<Value*>(nullptr);
}

Status Sharder::find_part() {
  ASSIGN_OR_RETURN(Value * all, early_input(inputs_.part_rows));
  if (!all)
    return error(Code::Internal, "the step has no input \"{}\", by which sequences are shared out", inputs_.part_rows);
  if (!inputs_.own_rows.empty()) {
    ASSIGN_OR_RETURN(part_, early_input(inputs_.own_rows));
  }
  staged_part_ = part_ != nullptr;
  if (staged_part_) return Status::ok();
  ASSIGN_OR_RETURN(Node * mine, call("own_groups", {all}, {{"first", int64_t{share_.part()}}, {"count", int64_t{1}}}));
  part_ = mine->result();
  return Status::ok();
}

Result<Value*> Sharder::beside_cache(const Node& n, size_t i) {
  const Value* old = n.in[i];
  ASSIGN_OR_RETURN(Value * all, whole(old));
  if (!old->def->is_input()) return all;
  const std::string& name = old->def->attrs.text("name");
  const bool cu_seqlens = name == inputs_.cu_seqlens;
  // What a cache is written at are slots, whichever input has them.
  if (!cu_seqlens && (n.op->pure() || n.op->operands[i].role != OperandRole::Index)) return all;
  Value*& mine = own_indices_[old];
  if (mine) return mine;
  if (staged_part_) {
    const std::string staged = cu_seqlens              ? std::string(inputs_.own_cu_seqlens)
                               : name == inputs_.slots ? std::string(inputs_.own_slots)
                                                       : fmt::format("own_{}", name);
    ASSIGN_OR_RETURN(mine, early_input(staged));
    if (!mine) return error(Code::Internal, "the step has no {}, which are {} of a part alone", staged, name);
    return mine;
  }
  ASSIGN_OR_RETURN(Node * made, call(cu_seqlens ? "own_cu_seqlens" : "own_slots", {all, part_}, {}));
  c_.applied(*made, fmt::format("rows of the sequences of part {} of {}", share_.part(), share_.sequences));
  return mine = made->result();
}

// The caches of all parts have as many pages, so every slot of another part is one here as well. What is read there is
// no row of that part, and is dropped when the rows of all parts are put together. The ranks of a part have the same
// rows, and each brings a share of the columns.
Status Sharder::rows_of_cache(const Node& n) {
  ASSIGN_OR_RETURN(std::vector<Value*> in, all_whole(n));
  RETURN_IF_ERROR(add(n, std::move(in), std::nullopt, part_));
  Placed& p = placed(n.result());
  c_.applied(*p.value->def, fmt::format("rows of part {} of {} are in this cache", share_.part(), share_.sequences));
  const RankShare ranks = share_.heads();
  if (ranks.size == 1) return Status::ok();
  p.cut = share_of_columns(p.value->type.shape.back().factor, ranks);
  if (p.cut->count == 0) return refuse(n, "its rows have fewer numbers than a part has ranks");
  ASSIGN_OR_RETURN(Node * mine, call("slice", {p.value}, {{"begin", p.cut->first}, {"size", p.cut->count}}));
  p.value = mine->result();
  return Status::ok();
}

}  // namespace reprise

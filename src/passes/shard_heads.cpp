// What works head by head: attention, its cache, and what makes heads of heads.
#include <algorithm>

#include "passes/sharder.h"

namespace reprise {

bool Sharder::is_by_head(const Node& n, size_t i) {
  return n.op->operands[i].role == OperandRole::Tensor && n.in[i]->def->is_param() && n.in[i]->type.shape.rank() == 1;
}

bool Sharder::carries_heads(const Node& n, size_t i) {
  const OperandRole role = n.op->operands[i].role;
  return role != OperandRole::Cache && role != OperandRole::Weight && !n.op->operands[i].is_index() &&
         n.in[i]->type.shape.rank() == 3;
}

namespace {

// Whether both are of the same heads, where `b` is of a smaller number, each of which several of `a` share.
bool goes_with(const Cut& a, const Cut& b) {
  if (a == b) return true;
  if (b.of <= 0 || a.of <= b.of || a.of % b.of != 0 || a.count <= 0) return false;
  const int64_t each = a.of / b.of;
  return a.first / each == b.first && (a.first + a.count - 1) / each == b.first + b.count - 1 &&
         (b.count == 1 || (a.first % each == 0 && a.count % each == 0));
}

}  // namespace

void Sharder::find_groups(const Node& n) {
  std::optional<int64_t> groups;
  // Without a cache the keys are an operand, with a head for each group of the queries'.
  for (size_t i = 0; i < n.in.size() && !n.op->has(OperandRole::Cache); ++i)
    if (carries_heads(n, i)) groups = std::min(groups.value_or(INT64_MAX), n.in[i]->type.shape[1].factor);
  for (size_t i = 0; i < n.in.size(); ++i)
    if (n.op->operands[i].role == OperandRole::Cache && is_cut_cache(*n.in[i])) groups = n.in[i]->type.shape[2].factor;
  for (size_t i = 0; i < n.in.size(); ++i) {
    if (!carries_heads(n, i)) continue;
    const Value* v = n.in[i];
    const int64_t mine = groups.value_or(v->type.shape[1].factor);
    int64_t head_size = 0;
    while (v->def->is_view() || v->def->op->has(op_trait::kVectors)) {
      if (v->def->is_view() && v->type.shape.rank() == 3) head_size = v->type.shape[2].factor;
      v = v->def->in[0];
    }
    if (stack_of(*v->def) < v->def->in.size()) v = v->def->in[static_cast<size_t>(v->def->op->mutated_operand())];
    if (v->def->op->has(op_trait::kLinear) && head_size > 0) groups_[v->def] = {mine, head_size};
  }
}

Result<std::optional<Cut>> Sharder::heads_here(const Node& n) {
  std::optional<Cut> cut, of_cache;
  for (size_t i = 0; i < n.in.size(); ++i) {
    if (n.op->operands[i].role != OperandRole::Cache || !is_cut_cache(*n.in[i])) continue;
    const int64_t groups = n.in[i]->type.shape[2].factor;
    for (size_t k = 0; k < n.in.size(); ++k)
      if (carries_heads(n, k)) of_cache = share_of_heads(n.in[k]->type.shape[1].factor, groups, share_.heads());
  }
  bool whole = false;
  for (size_t i = 0; i < n.in.size(); ++i) {
    if (!carries_heads(n, i)) continue;
    const std::optional<Cut>& mine = placed(n.in[i]).cut;
    whole |= !mine;
    if (mine && cut && !goes_with(*cut, *mine)) return refuse(n, "its operands have different heads on one rank");
    if (mine && !cut) cut = mine;
  }
  if (!whole) return cut;
  // Norms over whole rows have brought all heads here; of these the own ones are taken again.
  if (!cut) cut = of_cache;
  if (cut && of_cache && cut->first == of_cache->first && cut->count == of_cache->count) return cut;
  if (cut) return refuse(n, "its operands have different heads on one rank");
  return cut;
}

Status Sharder::per_head(const Node& n) {
  ASSIGN_OR_RETURN(const std::optional<Cut> cut, heads_here(n));
  if (!cut) {
    ASSIGN_OR_RETURN(std::vector<Value*> in, all_whole(n));
    return add(n, std::move(in), std::nullopt);
  }
  std::vector<Value*> in(n.in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    const Value* v = n.in[i];
    const OperandRole role = n.op->operands[i].role;
    if (role == OperandRole::Weight && v->def->is_param()) {
      ASSIGN_OR_RETURN(in[i], param_part(v, 0, 1, v->type.shape[1].factor, *cut));
    } else if (is_by_head(n, i)) {
      ASSIGN_OR_RETURN(in[i], param_part(v, 0, 1, 1, *cut));
    } else if (carries_heads(n, i)) {
      in[i] = placed(v).value;
      if (!placed(v).cut) {
        ASSIGN_OR_RETURN(in[i], own_heads(v, *cut));
      }
    } else if (role == OperandRole::Cache) {
      in[i] = placed(v).value;
      const int64_t groups = is_cut_cache(*v) ? in[i]->type.shape[2].factor : 1;
      if (cut->count % groups != 0) return refuse(n, fmt::format("{} heads for {} of the cache", cut->count, groups));
    } else {
      ASSIGN_OR_RETURN(in[i], whole(v));
    }
  }
  const bool heads = n.result()->type.shape.rank() == 3 && !is_cache(*storage_root(n.result()));
  return add(n, std::move(in), heads ? cut : std::nullopt);
}

Status Sharder::per_head_of_part(const Node& n) {
  const auto cache = std::find_if(n.op->operands.begin(), n.op->operands.end(),
                                  [](const OperandSchema& o) { return o.role == OperandRole::Cache; });
  if (cache == n.op->operands.end()) {
    for (size_t i = 0; i < n.in.size(); ++i)
      if (carries_heads(n, i) && placed(n.in[i]).groups) return heads_of_own_rows(n);
    return per_head(n);
  }
  const Value* kept = n.in[static_cast<size_t>(cache - n.op->operands.begin())];
  std::optional<Cut> cut;
  std::vector<Value*> in(n.in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    if (n.op->operands[i].role == OperandRole::Cache) {
      in[i] = placed(n.in[i]).value;
    } else if (carries_heads(n, i)) {
      const int64_t heads = n.in[i]->type.shape[1].factor;
      cut = share_of_heads(heads, is_cut_cache(*kept) ? kept->type.shape[2].factor : heads, share_.heads());
      ASSIGN_OR_RETURN(in[i], own_heads(n.in[i], *cut));
    } else if (cut && is_by_head(n, i)) {
      ASSIGN_OR_RETURN(in[i], param_part(n.in[i], 0, 1, 1, *cut));
    } else {
      ASSIGN_OR_RETURN(in[i], beside_cache(n, i));
    }
  }
  if (is_cache(*storage_root(n.result()))) return add(n, std::move(in), std::nullopt);
  if (cut && cut->count == cut->of) cut.reset();
  return add(n, std::move(in), cut, part_);
}

Status Sharder::heads_of_own_rows(const Node& n) {
  std::vector<Value*> in(n.in.size());
  const Placed* p = nullptr;
  for (size_t i = 0; i < in.size(); ++i)
    if (carries_heads(n, i)) p = &placed(n.in[i]);
  const std::optional<Cut> cut = p->cut;
  for (size_t i = 0; i < in.size(); ++i) {
    const Value* v = n.in[i];
    if (carries_heads(n, i)) {
      if (placed(v).groups != part_ || placed(v).cut != cut)
        return refuse(n, "its operands have different rows or heads on one rank");
      in[i] = placed(v).value;
    } else if (cut && n.op->operands[i].role == OperandRole::Weight && v->def->is_param()) {
      ASSIGN_OR_RETURN(in[i], param_part(v, 0, 1, v->type.shape[1].factor, *cut));
    } else {
      ASSIGN_OR_RETURN(in[i], whole(v));
    }
  }
  return add(n, std::move(in), cut, part_);
}

Result<Value*> Sharder::own_heads(const Value* v, const Cut& cut) {
  ASSIGN_OR_RETURN(Value * all, whole(v));
  if (cut.count == cut.of) return all;
  const int64_t size = v->type.shape[2].factor;
  ASSIGN_OR_RETURN(Node * flat, call("flatten", {all}, {}));
  ASSIGN_OR_RETURN(Node * mine,
                   call("slice", {flat->result()}, {{"begin", cut.first * size}, {"size", cut.count * size}}));
  ASSIGN_OR_RETURN(Node * heads, call("heads", {mine->result()}, {{"size", size}}));
  return heads->result();
}

}  // namespace reprise

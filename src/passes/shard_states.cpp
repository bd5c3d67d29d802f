// Layers with a state for each sequence: states are cut by heads, and what meets them by the columns of those heads,
// which lie in several pieces side by side.
#include <algorithm>

#include "ops/recurrent.h"
#include "passes/sharder.h"

namespace reprise {
namespace {

size_t cache_of(const Node& n) { return n.op->first(OperandRole::Cache); }

// What some rows were taken of.
const Value* behind_rows(const Value* v) {
  while (v->def->op->has(op_trait::kGathers)) v = v->def->in[0];
  return v;
}

// What a chain of ops that work on each head alone begins with.
const Value* behind_views(const Value* v) {
  while (v->def->is_view() || v->def->op->has(op_trait::kVectors)) v = behind_rows(v->def->in[0]);
  return v;
}

}  // namespace

// What a chain of ops that work on each column alone begins with.
const Value* Sharder::behind_columns(const Value* v) {
  v = behind_rows(v);
  while (v->def->op->has(op_trait::kColumns) && (v->def->in.size() == 1 || stack_of(*v->def) < v->def->in.size()))
    v = behind_rows(v->def->in[static_cast<size_t>(std::max(0, v->def->op->mutated_operand()))]);
  return v;
}

void Sharder::find_states(const Node& n) {
  const std::vector<TensorType> types = n.in_types();
  const std::vector<HeadColumns> blocks = head_columns({n.op, types, {}, &n.attrs, {}});
  if (blocks.empty() || parted()) return;
  const Value* state = n.in[cache_of(n)];
  const int64_t heads = state->type.shape[1].factor, groups = blocks.front().heads;
  // A head of values that several ranks have would be asked for by all of them.
  if (share_.size > groups && (share_.size % groups != 0 || share_.size > heads)) return;
  StateCut mine{share_of_heads(heads, groups, share_), 0, groups, std::vector<std::vector<Cut>>(n.in.size())};
  std::vector<int64_t> begin(n.in.size());
  for (const HeadColumns& b : blocks) {
    const int64_t each = heads / b.heads, first = mine.heads.first / each,
                  last = (mine.heads.first + mine.heads.count - 1) / each;
    mine.columns[b.operand].push_back(
        {begin[b.operand] + first * b.size, (last + 1 - first) * b.size, types[b.operand].shape[1].factor});
    begin[b.operand] += b.heads * b.size;
    if (b.heads == groups) mine.groups = last + 1 - first;
  }
  state_sizes_[storage_root(state)] = {1, mine.heads.count};
  for (size_t i = 0; i < n.in.size(); ++i)
    if (!mine.columns[i].empty()) find_columns(n.in[i], mine.columns[i]);
  states_[&n] = std::move(mine);
}

void Sharder::find_columns(const Value* v, const std::vector<Cut>& pieces) {
  const Node& n = *v->def;
  if (v->uses.size() != 1 || !v->outputs.empty()) return;  // others may read it whole
  if (stack_of(n) < n.in.size()) return find_columns(n.in[static_cast<size_t>(n.op->mutated_operand())], pieces);
  if (n.op->has(op_trait::kColumns) && n.op->has(OperandRole::Cache)) {
    StateCut mine{{}, 0, 0, std::vector<std::vector<Cut>>(n.in.size())};
    const int64_t width = v->type.shape[1].factor;
    const size_t cache = cache_of(n);
    for (size_t i = 0; i < n.in.size(); ++i) {
      const Shape& s = n.in[i]->type.shape;
      const bool rows = n.in[i]->def->is_param() && s[0].is_constant() && s[0].factor == width;
      const bool columns = s.rank() == 2 && !n.op->operands[i].is_index() && s[1].factor == width;
      if (i != cache && (rows || columns)) mine.columns[i] = pieces;
      if (i != cache && columns) find_columns(n.in[i], pieces);
    }
    const Value* root = storage_root(n.in[cache]);
    state_sizes_[root] = {root->type.shape.rank() - 1, count_of(pieces)};
    states_[&n] = std::move(mine);
  } else if (n.op->has(op_trait::kLinear) && word_of(n) != "none") {
    for (size_t i = n.op->first(OperandRole::Weight); i < n.in.size(); ++i)
      if (!n.in[i]->def->is_param()) return;
    products_[&n] = pieces;
  }
}

// A product that heads side by side are multiplied with, as a gate, is cut as they are. In the last layer rows may have
// been chosen before the gate.
void Sharder::find_gates(const Node& n) {
  if (parted() || n.in.size() < 2) return;
  for (const Value* v : n.in) {
    if (v->type.shape.rank() != 2 || !behind_rows(v)->def->is_view()) continue;
    const Value* made = behind_views(behind_rows(v));
    if (made->type.shape.rank() != 3 || !made->def->op->has(op_trait::kHeads)) continue;
    const Value* cache = made->def->op->has(OperandRole::Cache) ? made->def->in[cache_of(*made->def)] : nullptr;
    int64_t groups = 0;
    if (const auto state = states_.find(made->def); state != states_.end())
      groups = state->second.of_groups;
    else if (cache && is_cut_cache(*cache))
      groups = cache->type.shape[2].factor;
    if (groups == 0) continue;
    for (const Value* other : n.in) {
      const Node* product = behind_columns(other)->def;
      if (other != v && product->op->has(op_trait::kLinear) && same_dim(other->type.shape[1], v->type.shape[1]))
        groups_.try_emplace(product, HeadGroups{groups, made->type.shape[2].factor});
    }
  }
}

Status Sharder::continue_state(const Node& n) {
  const StateCut& mine = states_.at(&n);
  std::vector<Value*> in(n.in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    const Value* v = n.in[i];
    if (n.op->operands[i].role == OperandRole::Cache) {
      in[i] = placed(v).value;
    } else if (!mine.columns[i].empty()) {
      ASSIGN_OR_RETURN(in[i], v->def->is_param() ? param_pieces(v, mine.columns[i]) : own_columns(v, mine.columns[i]));
    } else if (mine.heads.count > 0 && is_by_head(n, i)) {
      ASSIGN_OR_RETURN(in[i], param_part(v, 0, 1, 1, mine.heads));
    } else {
      ASSIGN_OR_RETURN(in[i], whole(v));
    }
  }
  Attrs attrs = n.attrs;
  if (mine.groups > 0) set_key_heads(attrs, mine.groups);
  ASSIGN_OR_RETURN(Node * made, out_.add(*n.op, std::move(in), std::move(attrs), n.made_by));
  at_[n.result(0)] = {made->result(0), std::nullopt};
  if (mine.heads.count > 0) {
    at_[n.result(1)] = {made->result(1), mine.heads};
    c_.applied(*made, fmt::format("{} of {} heads of the states are here", mine.heads.count, mine.heads.of));
  } else {
    at_[n.result(1)] = {made->result(1), std::nullopt};
    const auto columns = std::find_if(mine.columns.begin(), mine.columns.end(), [](auto& c) { return !c.empty(); });
    placed(n.result(1)).pieces = *columns;
    c_.applied(*made, fmt::format("{} of {} columns of the states are here", count_of(*columns), columns->front().of));
  }
  return Status::ok();
}

Status Sharder::linear_in_pieces(const Node& n, const std::vector<Cut>& pieces) {
  c_.count_tried();
  (void)c_.may_apply(n);
  const size_t weight = n.op->first(OperandRole::Weight);
  std::vector<Value*> in(n.in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    ASSIGN_OR_RETURN(in[i], i < weight ? whole(n.in[i]) : param_pieces(n.in[i], pieces));
  }
  RETURN_IF_ERROR(add(n, std::move(in), std::nullopt));
  placed(n.result()).pieces = pieces;
  return Status::ok();
}

Result<Value*> Sharder::own_columns(const Value* v, const std::vector<Cut>& pieces) {
  if (placed(v).pieces == pieces) return placed(v).value;
  ASSIGN_OR_RETURN(Value * all, whole(v));
  Value* mine = nullptr;
  for (const Cut& piece : pieces) {
    ASSIGN_OR_RETURN(Node * some, call("slice", {all}, {{"begin", piece.first}, {"size", piece.count}}));
    if (!mine) {
      mine = some->result();
      continue;
    }
    ASSIGN_OR_RETURN(Node * more, call("concat", {mine, some->result()}, {}));
    mine = more->result();
  }
  return mine;
}

}  // namespace reprise

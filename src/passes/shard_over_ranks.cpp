#include "passes/shard_over_ranks.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "nn/experts.h"
#include "ops/addends.h"
#include "passes/rank_cut.h"

namespace reprise {
namespace {

constexpr const char* kShardOverRanks = "shard_over_ranks";

class Sharder {
 public:
  Sharder(Graph& g, PassContext& c, RankShare share, PartInputs inputs)
      : g_(g), c_(c), share_(share), inputs_(inputs), out_(g.name()) {}

  Status run() {
    for (const Symbol& s : g_.symbols()) RETURN_IF_ERROR(out_.add_symbol(s.name, s.bound).status());
    for (const Node* n = g_.first(); n; n = n->next)
      if (n->op->has(op_trait::kHeads)) find_groups(*n);
    if (parted()) RETURN_IF_ERROR(find_part());
    for (Node* n = g_.first(); n; n = n->next) RETURN_IF_ERROR(visit(*n));
    for (const GraphOutput& o : g_.outputs()) {
      ASSIGN_OR_RETURN(Value * v, whole(o.value));
      RETURN_IF_ERROR(out_.add_output(o.name, v));
    }
    // How parameters are made that this rank has no use for, or only a part of.
    std::erase_if(c_.derived(), [&](const DerivedParam& p) { return !p.elsewhere && !out_.find_param(p.name); });
    g_ = std::move(out_);
    return Status::ok();
  }

 private:
  // A value of the old graph in the new one: whole, or this rank's columns (of [T, N]) or heads (of [T, H, D]).
  struct Placed {
    Value* value = nullptr;
    std::optional<Cut> cut;
    Value* gathered = nullptr;
    Value* groups =
        nullptr;           // borders of the groups, or of the part, of which this rank has the rows; null: it has all
    bool partial = false;  // it is a part of a sum that all ranks have parts of
  };
  struct Groups {
    int64_t groups = 0, head_size = 0;
  };

  static std::string text(const Node& n) { return fmt::format("%{} ({})", n.result()->id, n.op->name); }
  static Status refuse(const Node& n, std::string_view why) {
    return error(Code::Unsupported, "{} cannot be cut over ranks: {}", text(n), why);
  }
  static bool is_cut_cache(const Value& v) { return v.type.shape.rank() == 5; }
  // A parameter with a number for every head.
  static bool is_by_head(const Node& n, size_t i) {
    return n.op->operands[i].role == OperandRole::Tensor && n.in[i]->def->is_param() && n.in[i]->type.shape.rank() == 1;
  }
  // A parameter of one number, as a scale that serves all.
  static bool is_one_number(const Node& n, size_t i) {
    const Shape& s = n.in[i]->type.shape;
    return n.in[i]->def->is_param() && s.rank() == 1 && s[0].is_constant() && s[0].factor == 1;
  }
  bool carries_heads(const Node& n, size_t i) const {
    const OperandRole role = n.op->operands[i].role;
    return role != OperandRole::Cache && role != OperandRole::Weight && !n.op->operands[i].is_index() &&
           n.in[i]->type.shape.rank() == 3;
  }

  // Products whose columns are heads: how many of these stay together follows from what reads them.
  void find_groups(const Node& n) {
    std::optional<int64_t> groups;
    for (size_t i = 0; i < n.in.size(); ++i)
      if (n.op->operands[i].role == OperandRole::Cache && is_cut_cache(*n.in[i]))
        groups = n.in[i]->type.shape[2].factor;
    for (size_t i = 0; i < n.in.size(); ++i) {
      if (!carries_heads(n, i)) continue;
      const Value* v = n.in[i];
      const int64_t mine = groups.value_or(v->type.shape[1].factor);
      int64_t head_size = 0;
      while (v->def->is_view() || v->def->op->has(op_trait::kVectors)) {
        if (v->def->is_view() && v->type.shape.rank() == 3) head_size = v->type.shape[2].factor;
        v = v->def->in[0];
      }
      if (v->def->op->has(op_trait::kLinear) && head_size > 0) groups_[v->def] = {mine, head_size};
    }
  }

  Status visit(Node& n) {
    if (n.is_param()) return Status::ok();  // made where it is read
    if (n.is_input()) return input(n);
    if (share_.experts > 1 && n.op == route_) return route(n);
    if (n.op == index_select_ && own_rows_.contains(n.in[1])) return own_rows(n);
    if (n.op == combine_ && own_rows_.contains(n.in[2]->def->result())) return combine(n);
    if (share_.experts > 1 && n.op->has(OperandRole::Starts)) return groups(n);
    if (n.op == combine_ && placed(n.in[0]).partial) return combine_parts(n);
    if (n.op == quantise_ && stays_cut(n)) return add(n, {placed(n.in[0]).value}, placed(n.in[0]).cut);
    ASSIGN_OR_RETURN(const bool kept, keep_rows(n));
    if (kept) return Status::ok();
    if (parted() && n.op->has(op_trait::kHeads)) return per_head_of_part(n);
    for (const Value* v : n.in) RETURN_IF_ERROR(settle(v));
    if (n.op->has(op_trait::kLinear)) return linear(n);
    if (n.op->has(OperandRole::Table)) return embedding(n);
    if (n.op->has(op_trait::kHeads)) return per_head(n);
    if (n.op->has(op_trait::kColumns)) return columns(n);
    if (n.is_view()) return view(n);
    if (n.op->has(op_trait::kVectors) && n.in[0]->type.shape.rank() == 3) {
      ASSIGN_OR_RETURN(std::vector<Value*> in, all_whole(n, 1));
      in[0] = placed(n.in[0]).value;
      return add(n, std::move(in), placed(n.in[0]).cut);
    }
    ASSIGN_OR_RETURN(std::vector<Value*> in, all_whole(n));
    return add(n, std::move(in), std::nullopt);
  }

  Status input(const Node& n) {
    TensorType type = n.result()->type;
    const std::string& name = n.attrs.text("name");
    if (const Node* known = out_.find_input(name)) {
      at_[n.result()] = {known->result(), std::nullopt};
      return Status::ok();
    }
    if (is_cache(*n.result()) && is_cut_cache(*n.result()))
      type.shape[2] = Dim(share_of_heads(type.shape[2].factor, type.shape[2].factor, share_.heads()).count);
    ASSIGN_OR_RETURN(Node * made, out_.add_source(*n.op, name, type, n.made_by));
    at_[n.result()] = {made->result(), std::nullopt};
    return Status::ok();
  }

  bool parted() const { return share_.sequences > 1; }

  // As what works on the part's cache is given it: slots and borders are those of its rows.
  Result<Value*> beside_cache(const Value* old) {
    ASSIGN_OR_RETURN(Value * all, whole(old));
    if (!old->def->is_input()) return all;
    const std::string& name = old->def->attrs.text("name");
    if (name != inputs_.slots && name != inputs_.borders) return all;
    Value*& mine = own_indices_[old];
    if (mine) return mine;
    ASSIGN_OR_RETURN(Node * made, call(name == inputs_.slots ? "own_slots" : "own_borders", {all, part_}, {}));
    c_.applied(*made, fmt::format("rows of the sequences of part {} of {}", share_.part(), share_.sequences));
    return mine = made->result();
  }

  // The borders of the part's rows come first: other inputs are made by them.
  Status find_part() {
    for (const Node* n = g_.first(); n; n = n->next) {
      if (!n->is_input() || n->attrs.text("name") != inputs_.part_rows) continue;
      ASSIGN_OR_RETURN(Node * all, out_.add_source(*n->op, n->attrs.text("name"), n->result()->type, n->made_by));
      ASSIGN_OR_RETURN(Node * mine,
                       call("own_groups", {all->result()}, {{"first", int64_t{share_.part()}}, {"count", int64_t{1}}}));
      part_ = mine->result();
      return Status::ok();
    }
    return error(Code::Internal, "the step has no input \"{}\", by which sequences are shared out", inputs_.part_rows);
  }

  Placed& placed(const Value* v) { return at_.at(v); }

  // The call with these operands; what it gives is cut so.
  Status add(const Node& n, std::vector<Value*> in, const std::optional<Cut>& cut, Value* groups = nullptr) {
    ASSIGN_OR_RETURN(Node * made, out_.add(*n.op, std::move(in), n.attrs, n.made_by));
    for (size_t i = 0; i < n.out.size(); ++i) at_[n.result(i)] = {made->result(i), cut, nullptr, groups};
    return Status::ok();
  }

  Result<Node*> call(std::string_view name, std::vector<Value*> in, Attrs attrs) {
    const OpSchema* op = c_.ops().find(name);
    if (!op) return error(Code::Unsupported, "there is no op {}", name);
    return out_.add(*op, std::move(in), std::move(attrs), kShardOverRanks);
  }

  Result<Value*> whole(const Value* old) {
    if (old->def->is_param()) return param(old);
    RETURN_IF_ERROR(settle(old));
    Placed& p = placed(old);
    if (p.partial) {
      ASSIGN_OR_RETURN(Node * sum, sum_over_ranks(p.value, {}, p.value->type.dtype));
      c_.applied(*sum,
                 fmt::format("%{} is a part of a sum here; the sums of {} ranks are added", old->id, share_.size));
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

  // Rows of other ranks' groups come here.
  Status settle(const Value* old) {
    if (old->def->is_param() || !placed(old).groups) return Status::ok();
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
    ASSIGN_OR_RETURN(Node * made, call("gather_groups", {mine, p.groups}, {{"first", cut.first}, {"of", cut.of}}));
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

  // Rows of own groups stay alone through an op that works row by row.
  Result<bool> keep_rows(const Node& n) {
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
    if (!groups || (cut && !n.op->has(op_trait::kColumns))) return false;
    std::vector<Value*> in;
    for (size_t i = 0; i < n.in.size(); ++i) {
      ASSIGN_OR_RETURN(Value * v, is_one_number(n, i) ? param(n.in[i]) : placed(n.in[i]).value);
      in.push_back(v);
    }
    RETURN_IF_ERROR(add(n, std::move(in), cut, groups));
    return true;
  }

  // Heads of own rows, side by side.
  Result<bool> keep_rows_flat(const Node& n) {
    const Value* x = n.in[0];
    if (x->def->is_param() || !placed(x).groups) return false;
    if (x->type.shape.rank() != 3 || n.result()->type.shape.rank() != 2) return false;
    const Placed p = placed(x);
    const int64_t size = x->type.shape[2].factor;
    RETURN_IF_ERROR(add(n, {p.value}, p.cut ? std::optional(p.cut->times(size)) : std::nullopt, p.groups));
    return true;
  }

  // Operands from `from` on, whole; those before it stay empty.
  Result<std::vector<Value*>> all_whole(const Node& n, size_t from = 0) {
    std::vector<Value*> in(n.in.size());
    for (size_t i = from; i < in.size(); ++i) {
      if (!n.in[i]->def->is_param() && n.op->operands[i].role == OperandRole::Cache && is_cut_cache(*n.in[i]))
        return refuse(n, "it works on a whole cache of keys and values, and every rank has its own heads of it");
      const bool own = parted() && n.op->has(OperandRole::Cache);
      ASSIGN_OR_RETURN(in[i], own ? beside_cache(n.in[i]) : whole(n.in[i]));
    }
    return in;
  }

  Result<Value*> param(const Value* old) {
    const std::string& name = old->def->attrs.text("name");
    if (Node* known = out_.find_param(name)) return known->result();
    ASSIGN_OR_RETURN(Node * made, out_.add_source(*old->def->op, name, old->type, old->def->made_by));
    return made->result();
  }

  // This rank's part of a parameter that is `matrices` times cut.of units of `unit` rows, along its size `dim`.
  Result<Value*> param_part(const Value* old, int dim, int64_t matrices, int64_t unit, const Cut& cut) {
    const std::string& whole_name = old->def->attrs.text("name");
    const std::string name = fmt::format("{}[{}+{}/{}]", whole_name, cut.first, cut.count, cut.of);
    if (Node* known = out_.find_param(name)) return known->result();
    const std::vector<ParamPart> parts = parts_of(old);
    DerivedParam mine{name, {}};
    for (int64_t m = 0; m < matrices; ++m)
      cut_parts(parts, (m * cut.of + cut.first) * unit, (m * cut.of + cut.first + cut.count) * unit, mine.parts);
    TensorType type = old->type;
    type.shape[dim] = Dim(type.shape.rank() == 1 ? matrices * cut.count : cut.count);
    return add_part(old, type, std::move(mine));
  }

  Result<Value*> add_part(const Value* old, const TensorType& type, DerivedParam mine) {
    ASSIGN_OR_RETURN(Node * made, out_.add_source(*old->def->op, mine.name, type, kShardOverRanks));
    c_.derived().push_back(std::move(mine));
    return made->result();
  }

  std::vector<ParamPart> parts_of(const Value* old) const {
    const std::string& name = old->def->attrs.text("name");
    const auto entry =
        std::find_if(c_.derived().begin(), c_.derived().end(), [&](const DerivedParam& p) { return p.name == name; });
    return entry != c_.derived().end() ? entry->parts : parts_of_name(name, old->type.shape);
  }

  // What a parameter has for this rank's groups: of a matrix only the rows of `cut`, if there is one.
  Result<Value*> group_part(const Value* old, const Cut& groups, const std::optional<Cut>& cut) {
    std::string name = fmt::format("{}[{}+{}/{}]", old->def->attrs.text("name"), groups.first, groups.count, groups.of);
    if (cut) name += fmt::format("[{}+{}/{}]", cut->first, cut->count, cut->of);
    if (Node* known = out_.find_param(name)) return known->result();
    const std::vector<ParamPart> parts = parts_of(old);
    const int64_t each = rows_of(old->type.shape) / groups.of, first = cut ? cut->first : 0,
                  count = cut ? cut->count : each;
    DerivedParam mine{name, {}}, others{name + " elsewhere", {}, true};
    cut_parts(parts, 0, groups.first * each, others.parts);
    cut_parts(parts, (groups.first + groups.count) * each, groups.of * each, others.parts);
    c_.derived().push_back(std::move(others));
    for (int64_t m = groups.first; m < groups.first + groups.count; ++m)
      cut_parts(parts, m * each + first, m * each + first + count, mine.parts);
    TensorType type = old->type;
    const int rank = type.shape.rank();
    type.shape[0] = Dim(groups.count * (rank == 1 ? count : 1));
    if (rank == 3) type.shape[1] = Dim(count);
    return add_part(old, type, std::move(mine));
  }

  // Only this rank's groups: their rows, with their matrices or whatever each group has. Further ranks with the same
  // groups have other columns.
  Status groups(Node& n) {
    const size_t starts = n.op->first(OperandRole::Starts);
    const bool linear = n.op->has(op_trait::kLinear);
    const int ways = share_.size / share_.experts;
    const int64_t all = n.in[starts]->type.shape[0].factor - 1;
    const int64_t rows = linear ? n.in[n.op->first(OperandRole::Weight)]->type.shape[1].factor : ways;
    bool params = true;
    for (size_t i = starts + 1; i < n.in.size(); ++i) params = params && n.in[i]->def->is_param();
    c_.count_tried();
    if (!params || rows < ways) {
      ASSIGN_OR_RETURN(std::vector<Value*> in, all_whole(n));
      return add(n, std::move(in), std::nullopt);
    }
    (void)c_.may_apply(n);
    ASSIGN_OR_RETURN(const nn::ExpertRange here, nn::expert_range(all, share_.rank / ways, share_.experts));
    const Cut mine{here.first, here.count, all};
    std::optional<Cut> cut;
    if (linear && ways > 1) cut = share_of_columns(rows, {share_.rank % ways, ways});
    ASSIGN_OR_RETURN(Value * borders, own_borders(n.in[starts], mine));
    std::vector<Value*> in(n.in.size());
    for (size_t i = 0; i < starts; ++i) {
      if (placed(n.in[i]).groups == borders && !placed(n.in[i]).cut) {
        in[i] = placed(n.in[i]).value;
      } else {
        ASSIGN_OR_RETURN(in[i], whole(n.in[i]));
      }
    }
    in[starts] = borders;
    for (size_t i = starts + 1; i < in.size(); ++i) {
      ASSIGN_OR_RETURN(in[i], group_part(n.in[i], mine, cut));
    }
    return add(n, std::move(in), cut, borders);
  }

  // The combining op of a choice of experts, where the device cannot gather rows of groups, whose borders it alone
  // knows, but combines over ranks.
  const Node* combined_over_ranks(const Node& n, const Cut& mine) {
    const Node* found = nullptr;
    for (const Use& u : n.result(1)->uses)
      if (u.user->op == combine_ && u.operand == 2 && !found) found = u.user;
    if (!found || share_.experts != share_.size || n.result(1)->uses.size() != 1) return nullptr;
    for (const Use& u : n.result(0)->uses)
      if (u.user->op != index_select_ || u.operand != 1) return nullptr;
    const OpSchema* op = c_.ops().find("combine_over_ranks");
    if (!op) return nullptr;
    const TensorType &chosen = n.in[0]->type, &y = found->in[0]->type;
    const Dim tokens = chosen.shape[0],
              rows(tokens.factor * std::min(chosen.shape[1].factor, mine.count), tokens.symbol);
    const std::vector<TensorType> types{
        {y.dtype, {rows, y.shape[1]}}, found->in[1]->type, n.result(1)->type, chosen, n.result(2)->type};
    const std::vector<TensorType> gathered{y, {n.result(2)->type.dtype, {Dim(mine.count + 1)}}};
    if (c_.has_kernel(*c_.ops().find("gather_groups"), gathered, {{"first", int64_t{0}}, {"of", y.shape[1].factor}})
            .is_ok())
      return nullptr;
    const Attrs attrs{{"first", mine.first}, {"count", mine.count}};
    return c_.has_kernel(*op, types, attrs).is_ok() ? found : nullptr;
  }

  // All ranks choose and sort alike. Where the device combines over ranks, a rank goes on with the rows of its experts
  // alone: there is room for the most that there can be, and none is dropped.
  Status route(const Node& n) {
    ASSIGN_OR_RETURN(std::vector<Value*> in, all_whole(n));
    RETURN_IF_ERROR(add(n, std::move(in), std::nullopt));
    const int64_t all = n.result(2)->type.shape[0].factor - 1;
    const int ways = share_.size / share_.experts;
    ASSIGN_OR_RETURN(const nn::ExpertRange here, nn::expert_range(all, share_.rank / ways, share_.experts));
    const Cut mine{here.first, here.count, all};
    if (!combined_over_ranks(n, mine)) return Status::ok();
    ASSIGN_OR_RETURN(Node * own,
                     call("own_rows", {placed(n.result(0)).value, placed(n.result(2)).value},
                          {{"first", mine.first}, {"count", mine.count}, {"top_k", n.in[0]->type.shape[1].factor}}));
    c_.applied(*own, fmt::format("rows of {} of {} experts are here", mine.count, mine.of));
    own_rows_[n.result()] = own->result();
    borders_[n.result(2)] = own->result(1);
    packed_.insert(own->result(1));
    return Status::ok();
  }

  Status own_rows(const Node& n) {
    ASSIGN_OR_RETURN(Value * x, whole(n.in[0]));
    Value* mine = own_rows_.at(n.in[1]);
    return add(n, {x, mine}, std::nullopt, mine->def->result(1));
  }

  Status combine(const Node& n) {
    const Node& route = *n.in[2]->def;
    const Placed& y = placed(n.in[0]);
    const Value* own = own_rows_.at(route.result());
    if (y.groups != own->def->result(1) || y.cut) return refuse(n, "its rows are not those of this rank's experts");
    std::vector<Value*> in{y.value};
    for (const Value* v : {n.in[1], n.in[2], route.in[0], route.result(2)}) {
      ASSIGN_OR_RETURN(Value * all, whole(v));
      in.push_back(all);
    }
    const Attrs& range = own->def->attrs;
    ASSIGN_OR_RETURN(Node * made, call("combine_over_ranks", std::move(in),
                                       {{"first", range.integer("first")}, {"count", range.integer("count")}}));
    c_.applied(*made, "each rank adds the choices of its share of tokens; all ranks' are gathered");
    at_[n.result()] = {made->result(), std::nullopt};
    return Status::ok();
  }

  Result<Value*> own_borders(const Value* starts, const Cut& mine) {
    if (const auto known = borders_.find(starts); known != borders_.end()) return known->second;
    ASSIGN_OR_RETURN(Value * all, whole(starts));
    ASSIGN_OR_RETURN(Node * made, call("own_groups", {all}, {{"first", mine.first}, {"count", mine.count}}));
    return borders_[starts] = made->result();
  }

  // This rank's columns of a matrix.
  Result<Value*> column_part(const Value* old, const Cut& cut) {
    const std::string name = fmt::format("{}:[{}+{}/{}]", old->def->attrs.text("name"), cut.first, cut.count, cut.of);
    if (Node* known = out_.find_param(name)) return known->result();
    DerivedParam mine{name, parts_of(old)};
    for (ParamPart& part : mine.parts) {
      part.column = cut.first;
      part.all_columns = cut.of;
    }
    TensorType type = old->type;
    type.shape[type.shape.rank() - 1] = Dim(cut.count);
    return add_part(old, type, std::move(mine));
  }

  // What is added to a sum that all ranks have parts of: rank 0 adds it, the others nothing.
  Result<Value*> added_once(const Value* old) {
    if (share_.rank == 0) return whole(old);
    const std::string name = old->def->attrs.text("name") + " of rank 0";
    if (Node* known = out_.find_param(name)) return known->result();
    c_.derived().push_back({name + " elsewhere", parts_of(old), true});
    return add_part(old, old->type, {name, {{.rows = rows_of(old->type.shape), .recipe = Recipe::Zeros}}});
  }

  // Parts of the sums of a token's experts are added by the weights of its choice as sums are.
  Status combine_parts(const Node& n) {
    ASSIGN_OR_RETURN(std::vector<Value*> in, all_whole(n, 1));
    in[0] = placed(n.in[0]).value;
    RETURN_IF_ERROR(add(n, std::move(in), std::nullopt));
    placed(n.result()).partial = true;
    return Status::ok();
  }

  // Whether rows that are quantised as they come are, on each rank, over its own columns alone: all that reads them
  // gives parts of sums, each in the scale of its rank.
  bool stays_cut(const Node& n) {
    if (!share_.reduce || adds_wide_parts() || n.in[0]->def->is_param() || !placed(n.in[0]).cut) return false;
    for (size_t r = 0; r < n.out.size(); ++r)
      for (const Use& u : n.result(r)->uses) {
        const AttrValue* word = u.user->attrs.find("shard");
        if (u.operand != r || !u.user->op->has(op_trait::kLinear) || !word || std::get<std::string>(*word) != "row" ||
            !why_not_reduced(*u.user, placed(n.in[0])).empty())
          return false;
      }
    return true;
  }

  // Why a product cannot give parts of sums; empty: it can.
  std::string why_not_reduced(const Node& n) {
    if (n.in[0]->def->is_param()) return "its input is a parameter";
    return why_not_reduced(n, placed(n.in[0]));
  }
  std::string why_not_reduced(const Node& n, const Placed& x) {
    const size_t weight = n.op->first(OperandRole::Weight);
    const Value* w = n.in[weight];
    const bool stack = w->type.shape.rank() == 3;
    if (n.in[0]->def->op == quantise_ && adds_wide_parts())
      return "its rows are quantised as they come, each over all of its numbers";
    if (!w->def->is_param()) return "its weight is computed";
    if (stack && (share_.experts > 1 || adds_wide_parts())) return "its weight is a stack of matrices";
    if (!x.cut || x.cut->repeated || x.groups) return "its input is not cut by columns";
    if (x.cut->of != w->type.shape.back().factor) return "its weight lies in blocks, which are cut by rows alone";
    if (!stack && !n.attrs.find("out")) return "it has no results in fp32";
    for (const ParamPart& part : parts_of(w))
      if (part.recipe != Recipe::Converted && part.recipe != Recipe::QuantisedRows &&
          part.recipe != Recipe::Dequantised)
        return fmt::format("its weight is made by the recipe {}", recipe_name(part.recipe));
    for (size_t i = weight + 1; i < n.in.size(); ++i) {
      if (!n.in[i]->def->is_param()) return "it adds or scales by what is computed";
      if (stack && is_addend(*n.op, i)) return "something is added to a stack of matrices' results";
    }
    return {};
  }

  // Whether the device adds parts in fp32, which all ranks lay side by side before. Else its own all_reduce takes them
  // as its products make them, in the type of the result.
  bool adds_wide_parts() const {
    const std::vector<TensorType> parts{{DType::F32, {Dim(1), Dim(share_.size)}}};
    const Attrs attrs{{"parts", int64_t{share_.size}}, {"out", std::string(dtype_name(DType::F32))}};
    return c_.has_kernel(*c_.ops().find("sum_parts"), parts, attrs).is_ok();
  }

  Result<Node*> sum_over_ranks(Value* part, std::vector<Value*> added, DType type) {
    if (!adds_wide_parts()) {
      added.insert(added.begin(), part);
      return call("all_reduce", std::move(added), {});
    }
    const int64_t width = part->type.shape[1].factor;
    ASSIGN_OR_RETURN(Node * all,
                     call("all_gather", {part},
                          {{"first", width * share_.rank}, {"of", width * share_.size}, {"even", int64_t{1}}}));
    added.insert(added.begin(), all->result());
    return call("sum_parts", std::move(added),
                {{"parts", int64_t{share_.size}}, {"out", std::string(dtype_name(type))}});
  }

  // This rank's part of each sum, and the sum of all ranks' in their order. A last operand that is added and may be
  // left out is added behind it (the row-parallel rule of biases, F56).
  Status reduced(Node& n) {
    const size_t weight = n.op->first(OperandRole::Weight);
    (void)c_.may_apply(n);
    const Cut cut = *placed(n.in[0]).cut;
    std::vector<Value*> in{placed(n.in[0]).value}, added;
    for (size_t i = 1; i < weight; ++i) {
      const bool scale = n.in[i]->def->op == quantise_;  // that of this rank's columns
      ASSIGN_OR_RETURN(Value * v, scale ? placed(n.in[i]).value : whole(n.in[i]));
      in.push_back(v);
    }
    ASSIGN_OR_RETURN(Value * mine, column_part(n.in[weight], cut));
    in.push_back(mine);
    for (size_t i = weight + 1; i < n.in.size(); ++i) {
      const bool last = i + 1 == n.in.size() && n.op->operands[i].optional && is_addend(*n.op, i);
      ASSIGN_OR_RETURN(Value * v, !last && is_addend(*n.op, i) ? added_once(n.in[i]) : whole(n.in[i]));
      (last ? added : in).push_back(v);
    }
    Attrs attrs = n.attrs;
    const DType type = n.result()->type.dtype;
    if (attrs.find("out")) attrs.set("out", std::string(dtype_name(adds_wide_parts() ? DType::F32 : type)));
    ASSIGN_OR_RETURN(Node * part, out_.add(*n.op, std::move(in), std::move(attrs), n.made_by));
    if (n.in[weight]->type.shape.rank() == 3) {  // a row for each choice of a token: these are added first
      at_[n.result()] = {part->result(), std::nullopt, nullptr, nullptr, true};
      return Status::ok();
    }
    ASSIGN_OR_RETURN(Node * sum, sum_over_ranks(part->result(), std::move(added), type));
    c_.applied(*sum, fmt::format("{} of {} columns of its weight are here; the sums of {} ranks are added", cut.count,
                                 cut.of, share_.size));
    at_[n.result()] = {sum->result(), std::nullopt};
    return Status::ok();
  }

  Status linear(Node& n) {
    c_.count_tried();
    const size_t weight = n.op->first(OperandRole::Weight);
    const AttrValue* word = n.attrs.find("shard");
    const bool asked = word && std::get<std::string>(*word) != "none";
    std::string why;
    if (share_.reduce && asked && std::get<std::string>(*word) == "row") {
      why = why_not_reduced(n);
      if (why.empty()) return reduced(n);
    }
    const Shape& shape = n.in[weight]->type.shape;
    const int row_dim = shape.rank() == 3 ? 1 : 0;
    const int64_t matrices = shape.rank() == 3 ? shape[0].factor : 1, rows = shape[row_dim].factor;
    bool params = true;
    for (size_t i = weight; i < n.in.size(); ++i) params = params && n.in[i]->def->is_param();
    if (!asked || !params || rows < share_.size) {
      ASSIGN_OR_RETURN(std::vector<Value*> in, all_whole(n));
      return add(n, std::move(in), std::nullopt);
    }
    (void)c_.may_apply(n);
    Cut cut = share_of_columns(rows, share_);
    if (const auto heads = groups_.find(&n); heads != groups_.end()) {
      const int64_t size = heads->second.head_size, count = rows / size;
      // Where attention has other ranks' rows, its heads are gathered: what they stay together with does not matter.
      if (!parted())
        cut = share_of_heads(count, heads->second.groups, share_).times(size);
      else if (count >= share_.size)
        cut = share_of(count, share_).times(size);
    }
    std::vector<Value*> in(n.in.size());
    for (size_t i = 0; i < weight; ++i) {
      ASSIGN_OR_RETURN(in[i], whole(n.in[i]));
    }
    for (size_t i = weight; i < in.size(); ++i) {
      ASSIGN_OR_RETURN(in[i], param_part(n.in[i], i == weight ? row_dim : 0, matrices, 1, cut));
    }
    RETURN_IF_ERROR(add(n, std::move(in), cut));
    if (!why.empty())
      c_.applied(*placed(n.result()).value->def, fmt::format("it is cut by rows and its result gathered: {}", why));
    return Status::ok();
  }

  // The rows of a token are written by the rank that has them.
  Status embedding(Node& n) {
    const size_t table = n.op->first(OperandRole::Table), index = n.op->first(OperandRole::Index);
    const AttrValue* word = n.attrs.find("shard");
    const Value* rows = n.in[table];
    ASSIGN_OR_RETURN(std::vector<Value*> in, all_whole(n, std::max(table, index) + 1));
    ASSIGN_OR_RETURN(in[index], whole(n.in[index]));
    if (!word || std::get<std::string>(*word) == "none" || !rows->def->is_param() ||
        rows->type.shape[0].factor < share_.size) {
      ASSIGN_OR_RETURN(in[table], whole(rows));
      return add(n, std::move(in), std::nullopt);
    }
    c_.count_tried();
    (void)c_.may_apply(n);
    const std::vector<TensorType> row_types{n.result()->type, n.in[index]->type};
    const Cut cut = share_of_columns(rows->type.shape[0].factor, share_);
    const Attrs part{{"first", cut.first}, {"count", cut.count}, {"of", cut.of}};
    const bool marks = c_.has_kernel(*c_.ops().find("gather_owned"), row_types, {}).is_ok();
    // Where the device's lookup takes no negative ids, the owner is told by the ids themselves.
    const Status finds = c_.has_kernel(*c_.ops().find("gather_found"), row_types, part);
    if (!marks && !finds.is_ok()) {
      ASSIGN_OR_RETURN(in[table], whole(rows));
      RETURN_IF_ERROR(add(n, std::move(in), std::nullopt));
      c_.applied(*placed(n.result()).value->def,
                 fmt::format("the table stays whole on every rank: {}", finds.message()));
      return Status::ok();
    }
    ASSIGN_OR_RETURN(in[table], param_part(rows, 0, 1, 1, cut));
    Value* asked = in[index];
    ASSIGN_OR_RETURN(Node * ids, marks ? call("local_ids", {asked}, {{"first", cut.first}, {"count", cut.count}})
                                       : call("found_ids", {asked}, part));
    in[index] = ids->result();
    ASSIGN_OR_RETURN(Node * mine, out_.add(*n.op, std::move(in), n.attrs, n.made_by));
    ASSIGN_OR_RETURN(Node * all, marks ? call("gather_owned", {mine->result(), ids->result()}, {})
                                       : call("gather_found", {mine->result(), asked}, part));
    c_.applied(*all,
               fmt::format("{} of {} rows of the table are here; a token's owner writes its row", cut.count, cut.of));
    at_[n.result()] = {all->result(), std::nullopt};
    return Status::ok();
  }

  // The heads that an op works on here: those of its operands, or else of the cache beside them.
  Result<std::optional<Cut>> heads_here(const Node& n) {
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
      if (mine && cut && mine != cut) return refuse(n, "its operands have different heads on one rank");
      if (mine) cut = mine;
    }
    if (!whole) return cut;
    // Norms over whole rows have brought all heads here; of these the own ones are taken again.
    if (!cut) cut = of_cache;
    if (cut && of_cache && cut->first == of_cache->first && cut->count == of_cache->count) return cut;
    if (cut) return refuse(n, "its operands have different heads on one rank");
    return cut;
  }

  Status per_head(const Node& n) {
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

  // Attention meets the rows of its part alone, with its share of the heads. What makes heads of heads does so where
  // they are.
  Status per_head_of_part(const Node& n) {
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
        ASSIGN_OR_RETURN(in[i], beside_cache(n.in[i]));
      }
    }
    if (is_cache(*storage_root(n.result()))) return add(n, std::move(in), std::nullopt);
    if (cut && cut->count == cut->of) cut.reset();
    return add(n, std::move(in), cut, part_);
  }

  Status heads_of_own_rows(const Node& n) {
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

  // Some heads of a value in three sizes, of which all ranks have all.
  Result<Value*> own_heads(const Value* v, const Cut& cut) {
    ASSIGN_OR_RETURN(Value * all, whole(v));
    if (cut.count == cut.of) return all;
    const int64_t size = v->type.shape[2].factor;
    ASSIGN_OR_RETURN(Node * flat, call("flatten", {all}, {}));
    ASSIGN_OR_RETURN(Node * mine,
                     call("slice", {flat->result()}, {{"begin", cut.first * size}, {"size", cut.count * size}}));
    ASSIGN_OR_RETURN(Node * heads, call("heads", {mine->result()}, {{"size", size}}));
    return heads->result();
  }

  // Operands with the result's columns are cut as it is, or all are whole.
  Status columns(const Node& n) {
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
      } else if (n.in[i]->type.shape.rank() == 1 && !n.op->operands[i].is_index()) {
        same = same && n.in[i]->type.shape[0].factor == 1;  // a number for each column would be cut as well
      }
    }
    if (!same) cut.reset();
    std::vector<Value*> in(n.in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      if (cut && carries(i)) {
        in[i] = placed(n.in[i]).value;
      } else {
        ASSIGN_OR_RETURN(in[i], whole(n.in[i]));
      }
    }
    return add(n, std::move(in), cut);
  }

  Status view(const Node& n) {
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

  Graph& g_;
  PassContext& c_;
  RankShare share_;
  PartInputs inputs_;
  Graph out_;
  Value* part_ = nullptr;  // borders of the rows of this rank's part; null: there is one part
  std::unordered_map<const Value*, Placed> at_;
  std::unordered_map<const Node*, Groups> groups_;
  std::unordered_map<const Value*, Value*> own_indices_;  // of an input, those of this rank's part
  std::unordered_map<const Value*, Value*> borders_;      // of all groups, and of this rank's
  std::unordered_map<const Value*, Value*> own_rows_;     // rows sorted by expert, and of these this rank's alone
  std::unordered_set<const Value*> packed_;               // borders of rows that are here alone, from 0 on
  const OpSchema *route_ = c_.ops().find("moe_route"), *combine_ = c_.ops().find("moe_combine"),
                 *index_select_ = c_.ops().find("index_select"), *quantise_ = c_.ops().find("quantize_dynamic");
};

}  // namespace

Pass shard_over_ranks(RankShare share, PartInputs inputs) {
  return {kShardOverRanks, true,
          [share, inputs](Graph& g, PassContext& c) { return Sharder(g, c, share, inputs).run(); }};
}

}  // namespace reprise

// Products, cut by the rows of their weights or, in the form that adds sums, by the columns; and lookups in tables.
#include <algorithm>

#include "ops/addends.h"
#include "passes/sharder.h"

namespace reprise {

Status Sharder::linear(Node& n) {
  if (const auto pieces = products_.find(&n); pieces != products_.end()) return linear_in_pieces(n, pieces->second);
  c_.count_tried();
  const size_t weight = n.op->first(OperandRole::Weight);
  const bool asked = word_of(n) != "none";
  std::string why;
  if (share_.reduce && word_of(n) == "row") {
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
  Cut cut = share_of_rows(rows);
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

Status Sharder::embedding(Node& n) {
  const size_t table = n.op->first(OperandRole::Table), index = n.op->first(OperandRole::Index);
  const Value* rows = n.in[table];
  ASSIGN_OR_RETURN(std::vector<Value*> in, all_whole(n, std::max(table, index) + 1));
  ASSIGN_OR_RETURN(in[index], whole(n.in[index]));
  if (word_of(n) == "none" || !rows->def->is_param() || rows->type.shape[0].factor < share_.size) {
    ASSIGN_OR_RETURN(in[table], whole(rows));
    return add(n, std::move(in), std::nullopt);
  }
  c_.count_tried();
  (void)c_.may_apply(n);
  const std::vector<TensorType> row_types{n.result()->type, n.in[index]->type};
  const Cut cut = share_of_rows(rows->type.shape[0].factor);
  const Attrs part{{"first", cut.first}, {"count", cut.count}, {"of", cut.of}};
  const bool marks = c_.has_kernel(*c_.ops().find("gather_owned"), row_types, {}).is_ok();
  // Where the device's lookup takes no negative ids, the owner is told by the ids themselves.
  const Status finds = c_.has_kernel(*c_.ops().find("gather_found"), row_types, part);
  if (!marks && !finds.is_ok()) {
    ASSIGN_OR_RETURN(in[table], whole(rows));
    RETURN_IF_ERROR(add(n, std::move(in), std::nullopt));
    c_.applied(*placed(n.result()).value->def, fmt::format("the table stays whole on every rank: {}", finds.message()));
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

Status Sharder::reduced(Node& n) {
  const size_t weight = n.op->first(OperandRole::Weight);
  (void)c_.may_apply(n);
  const Cut cut = *placed(n.in[0]).cut;
  std::vector<Value*> in{placed(n.in[0]).value}, added;
  for (size_t i = 1; i < weight; ++i) {
    const bool scale = n.in[i]->def->op->has(op_trait::kRowScales);  // that of this rank's columns
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

std::string Sharder::why_not_reduced(const Node& n) {
  if (n.in[0]->def->is_param()) return "its input is a parameter";
  return why_not_reduced(n, placed(n.in[0]));
}

std::string Sharder::why_not_reduced(const Node& n, const Placed& x) {
  const size_t weight = n.op->first(OperandRole::Weight);
  const Value* w = n.in[weight];
  const bool stack = w->type.shape.rank() == 3;
  if (n.in[0]->def->op->has(op_trait::kRowScales) && adds_wide_parts())
    return "its rows are quantised as they come, each over all of its numbers";
  if (!w->def->is_param()) return "its weight is computed";
  if (stack && (share_.experts > 1 || adds_wide_parts())) return "its weight is a stack of matrices";
  if (!x.cut || x.cut->repeated || x.groups) return "its input is not cut by columns";
  if (x.cut->of != w->type.shape.back().factor) return "its weight lies in blocks, which are cut by rows alone";
  if (!stack && !n.attrs.find("out")) return "it has no results in fp32";
  for (const ParamPart& part : parts_of(w))
    if (part.recipe != Recipe::Converted && part.recipe != Recipe::QuantisedRows && part.recipe != Recipe::Dequantised)
      return fmt::format("its weight is made by the recipe {}", recipe_name(part.recipe));
  for (size_t i = weight + 1; i < n.in.size(); ++i) {
    if (!n.in[i]->def->is_param()) return "it adds or scales by what is computed";
    if (stack && is_addend(*n.op, i)) return "something is added to a stack of matrices' results";
  }
  return {};
}

bool Sharder::stays_cut(const Node& n) {
  if (!share_.reduce || adds_wide_parts() || n.in[0]->def->is_param() || !placed(n.in[0]).cut) return false;
  for (size_t r = 0; r < n.out.size(); ++r)
    for (const Use& u : n.result(r)->uses) {
      if (u.operand != r || !u.user->op->has(op_trait::kLinear) || word_of(*u.user) != "row" ||
          !why_not_reduced(*u.user, placed(n.in[0])).empty())
        return false;
    }
  return true;
}

bool Sharder::adds_wide_parts() const {
  const std::vector<TensorType> parts{{DType::F32, {Dim(1), Dim(share_.size)}}, {DType::F32, {Dim(1), Dim(1)}}};
  const Attrs attrs{
      {"parts", int64_t{share_.size}}, {"place", int64_t{0}}, {"out", std::string(dtype_name(DType::F32))}};
  return c_.has_kernel(*c_.ops().find("sum_parts"), parts, attrs).is_ok();
}

Result<Node*> Sharder::sum_over_ranks(Value* part, std::vector<Value*> added, DType type) {
  if (!adds_wide_parts()) {
    added.insert(added.begin(), part);
    return call("all_reduce", std::move(added), {});
  }
  const int64_t width = part->type.shape[1].factor;
  ASSIGN_OR_RETURN(
      Node * all,
      call("all_gather", {part}, {{"first", width * share_.rank}, {"of", width * share_.size}, {"even", int64_t{1}}}));
  added.insert(added.begin(), {all->result(), part});
  return call(
      "sum_parts", std::move(added),
      {{"parts", int64_t{share_.size}}, {"place", int64_t{share_.rank}}, {"out", std::string(dtype_name(type))}});
}

}  // namespace reprise

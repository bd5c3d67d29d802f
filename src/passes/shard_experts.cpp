// Whole experts that are shared out over parts of the ranks.
#include <algorithm>

#include "nn/experts.h"
#include "ops/collectives.h"
#include "passes/sharder.h"

namespace reprise {

Status Sharder::groups(Node& n) {
  const size_t starts = n.op->first(OperandRole::Starts);
  const bool linear = n.op->has(op_trait::kLinear);
  const int64_t all = n.in[starts]->type.shape[0].factor - 1;
  const int64_t rows = linear ? n.in[n.op->first(OperandRole::Weight)]->type.shape[1].factor : ways();
  bool params = true;
  for (size_t i = starts + 1; i < n.in.size(); ++i) params = params && n.in[i]->def->is_param();
  c_.count_tried();
  if (!params || rows < ways()) {
    ASSIGN_OR_RETURN(std::vector<Value*> in, all_whole(n));
    return add(n, std::move(in), std::nullopt);
  }
  (void)c_.may_apply(n);
  ASSIGN_OR_RETURN(const nn::ExpertRange here, nn::expert_range(all, share_.rank / ways(), share_.experts));
  const Cut mine{here.first, here.count, all};
  std::optional<Cut> cut;
  ASSIGN_OR_RETURN(Value * borders, own_starts(n.in[starts], mine));
  const int way = share_.rank % ways();
  if (linear && ways() > 1)
    cut = packed_.contains(borders) ? columns_of(way, rows) : share_of_columns(rows, {way, ways()});
  std::vector<Value*> in(n.in.size());
  for (size_t i = 0; i < starts; ++i) {
    const Placed& p = placed(n.in[i]);
    if (p.groups == borders && (!p.cut || packed_.contains(borders))) {
      ASSIGN_OR_RETURN(in[i], own_columns(n.in[i]));
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

Status Sharder::group_columns(const Node& n) {
  const size_t starts = n.op->first(OperandRole::Starts);
  const int64_t all = n.in[starts]->type.shape[0].factor - 1;
  const auto own = borders_.find(n.in[starts]);
  bool here = own != borders_.end() && placed(n.in[0]).groups == own->second;
  for (size_t i = 1; i < n.in.size(); ++i)
    here = here && (i == starts || (has_columns(n, i) && takes_columns(n.in[i])));
  std::vector<Value*> in(n.in.size());
  if (!here) {
    ASSIGN_OR_RETURN(in, all_whole(n));
    return add(n, std::move(in), std::nullopt);
  }
  ASSIGN_OR_RETURN(const nn::ExpertRange mine, nn::expert_range(all, share_.rank / ways(), share_.experts));
  const std::optional<Cut> cut = placed(n.in[0]).cut;
  in[0] = placed(n.in[0]).value;
  in[starts] = own->second;
  for (size_t i = 1; i < in.size(); ++i)
    if (i != starts) {
      ASSIGN_OR_RETURN(in[i], group_part(n.in[i], {mine.first, mine.count, all}, cut, true));
    }
  return add(n, std::move(in), cut, own->second);
}

const Node* Sharder::combined_over_ranks(const Node& n, const Cut& mine) {
  const Node* found = nullptr;
  for (const Use& u : n.result(1)->uses)
    if (u.user->op->has(op_trait::kCombines) && u.declared().role == OperandRole::Index && !found) found = u.user;
  if (!found || n.result(1)->uses.size() != 1) return nullptr;
  for (const Use& u : n.result(0)->uses)
    if (!u.user->op->has(op_trait::kGathers) || u.declared().role != OperandRole::Index) return nullptr;
  const OpSchema* op = c_.ops().find("combine_over_ranks");
  if (!op) return nullptr;
  const TensorType& chosen = n.in[0]->type;
  TensorType y = found->in[0]->type;
  if (y.shape[1].factor % ways() != 0) return nullptr;
  y.shape[1] = Dim(y.shape[1].factor / ways());
  const Dim tokens = chosen.shape[0], rows(tokens.factor * std::min(chosen.shape[1].factor, mine.count), tokens.symbol);
  const std::vector<TensorType> types{
      {y.dtype, {rows, y.shape[1]}}, found->in[1]->type, n.result(1)->type, chosen, n.result(2)->type};
  const std::vector<TensorType> gathered{y, {n.result(2)->type.dtype, {Dim(mine.count + 1)}}};
  if (c_.has_kernel(*c_.ops().find("gather_groups"), gathered, {{"first", int64_t{0}}, {"of", y.shape[1].factor}})
          .is_ok())
    return nullptr;
  const Attrs attrs{{"first", mine.first}, {"count", mine.count}, {"ways", int64_t{ways()}}};
  return c_.has_kernel(*op, types, attrs).is_ok() ? found : nullptr;
}

std::string Sharder::find_rows(const Node& n, Sending& s) {
  for (const Use& u : n.result(0)->uses) {
    if (!u.user->op->has(op_trait::kGathers) || u.declared().role != OperandRole::Index)
      return "rows are sorted in more than one place";
    s.sorted.push_back(u.user->in[0]);
  }
  if (s.sorted.empty()) return "rows do not come back";
  s.x = s.sorted[0];
  if (s.sorted.size() == 1) return "";
  const Node* made = s.x->def;
  const bool pair = s.sorted.size() == 2 && made->op->has(op_trait::kRowScales) && s.sorted[1]->def == made;
  if (!pair) return "rows are sorted in more than one place";
  s.quantise = made;
  s.sorted = {made->result(0), made->result(1)};
  s.x = made->in[0];
  return "";
}

Sharder::Sending Sharder::sending(const Node& n, const Cut& mine) {
  Sending s;
  const auto no = [&](std::string_view why) {
    s.combine = nullptr;
    s.why = why;
    return s;
  };
  if (ways() > 1) return no("several ranks have the same experts");
  if (mine.of % share_.experts != 0) return no("ranks have unequal numbers of experts");
  if (const std::string why = find_rows(n, s); !why.empty()) return no(why);
  for (const Use& u : n.result(1)->uses) {
    if (s.combine || !u.user->op->has(op_trait::kCombines) || u.declared().role != OperandRole::Index)
      return no("rows are asked for in more than one place");
    s.combine = u.user;
  }
  for (const Use& u : n.result(2)->uses)
    if (u.declared().role != OperandRole::Starts) return no("the borders of experts are asked for");
  if (!s.combine) return no("rows do not come back");
  const TensorType &chosen = n.in[0]->type, &y = s.combine->in[0]->type;
  if (s.x->type.dtype == DType::I8) return no("rows are int8 in a scale that all of them have");
  if (!same_dim(y.shape[1], s.x->type.shape[1])) return no("rows do not come back as wide as they are sent");
  const auto symbol = static_cast<SymbolId>(share_.sent_tokens);
  const Dim rows(std::min(chosen.shape[1].factor, mine.count), symbol);
  const Attrs range{{"first", mine.first}, {"count", mine.count}, {"groups", mine.of}, {"symbol", int64_t{symbol}}};
  const OpSchema *there = c_.ops().find(sends(s)), *back = c_.ops().find("combine_dispatched");
  if (!there || !back) return no("there are no such ops");
  const std::vector<TensorType> sent{s.x->type, chosen};
  const std::vector<TensorType> came{{y.dtype, {rows, y.shape[1]}},
                                     s.combine->in[1]->type,
                                     chosen,
                                     {DType::I32, {rows, Dim(kSentRowWords)}},
                                     {DType::I32, {Dim(mine.of)}}};
  if (Status takes = c_.has_kernel(*there, sent, range); !takes.is_ok()) return no(takes.message());
  if (Status takes = c_.has_kernel(*back, came, {}); !takes.is_ok()) return no(takes.message());
  return s;
}

Status Sharder::send(const Node& n, const Sending& s, const Cut& mine) {
  ASSIGN_OR_RETURN(Value * x, whole(s.x));
  ASSIGN_OR_RETURN(Value * chosen, whole(n.in[0]));
  ASSIGN_OR_RETURN(Node * made, call(sends(s), {x, chosen},
                                     {{"first", mine.first},
                                      {"count", mine.count},
                                      {"groups", mine.of},
                                      {"symbol", int64_t{share_.sent_tokens}}}));
  c_.applied(*made, fmt::format("{} are sent to the ranks of their experts; {} of {} are here",
                                s.quantise ? "int8 rows" : "rows", mine.count, mine.of));
  const SentRows& sent = sent_[n.result()] = {made, s.sorted};
  borders_[n.result(2)] = sent.borders();
  packed_.insert(sent.borders());
  return Status::ok();
}

Status Sharder::gather_sent(const Node& n, const SentRows& rows) {
  const auto which = std::find(rows.sorted.begin(), rows.sorted.end(), n.in[0]) - rows.sorted.begin();
  at_[n.result()] = {rows.call->result(static_cast<size_t>(which)), std::nullopt, nullptr, rows.borders()};
  return Status::ok();
}

Status Sharder::combine_sent(const Node& n) {
  const Node& route = *n.in[n.op->first(OperandRole::Index)]->def;
  const SentRows& sent = sent_.at(route.result());
  const Placed& y = placed(n.in[0]);
  if (y.groups != sent.borders() || y.cut) return refuse(n, "its rows are not those of this rank's experts");
  ASSIGN_OR_RETURN(Value * weights, whole(n.in[1]));
  ASSIGN_OR_RETURN(Node * made,
                   call("combine_dispatched", {y.value, weights, sent.call->in[1], sent.words(), sent.counts()}, {}));
  c_.applied(*made, "each rank adds the rows that come back for its share of tokens; all ranks' are gathered");
  at_[n.result()] = {made->result(), std::nullopt};
  return Status::ok();
}

Status Sharder::route(const Node& n) {
  const int64_t all = n.result(2)->type.shape[0].factor - 1;
  ASSIGN_OR_RETURN(const nn::ExpertRange here, nn::expert_range(all, share_.rank / ways(), share_.experts));
  const Cut mine{here.first, here.count, all};
  std::string kept;
  if (share_.sent_tokens > 0) {
    const Sending sends = sending(n, mine);
    if (sends.why.empty()) return send(n, sends, mine);
    kept = fmt::format("; they are not sent to the ranks of their experts: {}", sends.why);
  }
  ASSIGN_OR_RETURN(std::vector<Value*> in, all_whole(n));
  RETURN_IF_ERROR(add(n, std::move(in), std::nullopt));
  if (!combined_over_ranks(n, mine)) {
    if (!kept.empty()) c_.applied(*placed(n.result()).value->def, "all ranks have all rows" + kept);
    return Status::ok();
  }
  ASSIGN_OR_RETURN(Node * own,
                   call("own_rows", {placed(n.result(0)).value, placed(n.result(2)).value},
                        {{"first", mine.first}, {"count", mine.count}, {"top_k", n.in[0]->type.shape[1].factor}}));
  c_.applied(*own, fmt::format("rows of {} of {} experts are here{}", mine.count, mine.of, kept));
  own_rows_[n.result()] = own->result();
  borders_[n.result(2)] = own->result(1);
  packed_.insert(own->result(1));
  return Status::ok();
}

Status Sharder::own_rows(const Node& n) {
  ASSIGN_OR_RETURN(Value * x, whole(n.in[0]));
  Value* mine = own_rows_.at(n.in[n.op->first(OperandRole::Index)]);
  return add(n, {x, mine}, std::nullopt, mine->def->result(1));
}

Status Sharder::combine(const Node& n) {
  const Node& route = *n.in[n.op->first(OperandRole::Index)]->def;
  const Placed& y = placed(n.in[0]);
  const Value* own = own_rows_.at(route.result());
  const bool even = ways() == 1 ? !y.cut : y.cut && y.cut->count * ways() == y.cut->of;
  if (y.groups != own->def->result(1) || !even) return refuse(n, "its rows are not those of this rank's experts");
  std::vector<Value*> in{y.value};
  for (const Value* v : {n.in[1], n.in[2], route.in[0], route.result(2)}) {
    ASSIGN_OR_RETURN(Value * all, whole(v));
    in.push_back(all);
  }
  const Attrs& range = own->def->attrs;
  ASSIGN_OR_RETURN(
      Node * made,
      call("combine_over_ranks", std::move(in),
           {{"first", range.integer("first")}, {"count", range.integer("count")}, {"ways", int64_t{ways()}}}));
  c_.applied(*made, "each rank adds the choices of its share of tokens; all ranks' are gathered");
  at_[n.result()] = {made->result(), std::nullopt};
  return Status::ok();
}

Status Sharder::combine_parts(const Node& n) {
  ASSIGN_OR_RETURN(std::vector<Value*> in, all_whole(n, 1));
  in[0] = placed(n.in[0]).value;
  RETURN_IF_ERROR(add(n, std::move(in), std::nullopt));
  placed(n.result()).partial = true;
  return Status::ok();
}

Result<Value*> Sharder::own_starts(const Value* starts, const Cut& mine) {
  if (const auto known = borders_.find(starts); known != borders_.end()) return known->second;
  ASSIGN_OR_RETURN(Value * all, whole(starts));
  ASSIGN_OR_RETURN(Node * made, call("own_groups", {all}, {{"first", mine.first}, {"count", mine.count}}));
  return borders_[starts] = made->result();
}

}  // namespace reprise

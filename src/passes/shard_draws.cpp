// Tokens that ranks draw from their own columns of the logits (ops/draws.h).
#include "ops/draw_parts.h"
#include "passes/sharder.h"

namespace reprise {
void Sharder::find_drawing() {
  for (const GraphOutput& o : g_.outputs()) {
    if (o.name != "sampled" || o.value->def->in.size() < 3) continue;
    const Node& n = *o.value->def;
    if (n.in[2]->def->in.size() < 3) return;
    const TensorType& logits = n.in[0]->type;
    const int64_t vocabulary = logits.shape[1].factor;
    // As many blocks that one rank has one more hardly counts.
    if (logits.dtype != DType::F32 || vocabulary < 2 * draw::kBlock * share_.size) return;
    const Cut cut = drawn_columns(vocabulary, share_);
    const TensorType own{DType::F32, {logits.shape[0], Dim(cut.count)}};
    const std::vector<TensorType> gathered{own, {DType::I32, {logits.shape[0]}}}, drawn{own, n.in[1]->type};
    gathers_rows_ =
        c_.has_kernel(*c_.ops().find("gather_undecided"), gathered, {{"first", cut.first}, {"of", cut.of}}).is_ok();
    drawn_here_ = c_.has_kernel(*c_.ops().find("draw_tops"), drawn, {}).is_ok();
    drawing_ = &n;
    vocabulary_ = vocabulary;
  }
}

Cut drawn_columns(int64_t vocabulary, RankShare share) { return share_of(vocabulary, draw::kBlock, share); }

Cut Sharder::share_of_rows(int64_t rows) const {
  return rows == vocabulary_ ? drawn_columns(rows, share_) : share_of_columns(rows, share_);
}

bool Sharder::draws_here(const Value* logits) {
  if (logits->def->is_param() || placed(logits).partial || placed(logits).groups) return false;
  const std::optional<Cut>& cut = placed(logits).cut;
  return cut && *cut == drawn_columns(vocabulary_, share_);
}

Status Sharder::edit(Node& n) {
  if (!drawn_here_) return Status::ok();  // the hosts do that
  const Placed own = placed(n.in[0]);
  std::vector<Value*> in{own.value};
  for (size_t i = 1; i < n.in.size(); ++i) {
    ASSIGN_OR_RETURN(Value * v, whole(n.in[i]));
    in.push_back(v);
  }
  ASSIGN_OR_RETURN(Node * made, call("mask_own_logits", std::move(in), {{"first", own.cut->first}}));
  at_[n.result()] = {made->result(), own.cut};
  return Status::ok();
}

Status Sharder::draw(Node& n) {
  c_.count_tried();
  (void)c_.may_apply(n);
  const Placed own = placed(n.in[0]);
  const Cut cut = *own.cut;
  if (!drawn_here_)
    return give_own_logits(
        n, fmt::format("the hosts of all ranks draw from their own; they {}, and logits only", kDrawnByRanks));
  ASSIGN_OR_RETURN(Node * merged, draw_parts(n));
  merged_ = merged->result();
  if (!gathers_rows_)
    return give_own_logits(n, fmt::format("ranks {}, and their hosts exchange logits only", kDrawnByRanks));
  ASSIGN_OR_RETURN(Node * rows,
                   call("gather_undecided", {own.value, merged->result()}, {{"first", cut.first}, {"of", cut.of}}));
  // Changes are made in the whole rows once more.
  const Node& changes = *n.in[2]->def;
  ASSIGN_OR_RETURN(Value * draws, whole(n.in[1]));
  ASSIGN_OR_RETURN(Value * edits, whole(changes.in[1]));
  ASSIGN_OR_RETURN(Value * list, whole(changes.in[2]));
  ASSIGN_OR_RETURN(Node * rest, call("sample_undecided", {rows->result(), draws, merged->result(), edits, list}, {}));
  c_.applied(*rest, fmt::format("{} of {} columns of %{} are here; ranks {}, and logits only where these do not decide",
                                cut.count, cut.of, n.in[0]->id, kDrawnByRanks));
  for (size_t i = 0; i < n.out.size(); ++i) at_[n.result(i)] = {rest->result(i), std::nullopt};
  return Status::ok();
}

Status Sharder::give_own_logits(const Node& n, std::string_view what) {
  const Placed own = placed(n.in[0]);
  own_logits_ = own.value;
  c_.applied(*own.value->def, fmt::format("{} of {} columns of %{} are here; {} where these do not decide",
                                          own.cut->count, own.cut->of, n.in[0]->id, what));
  return Status::ok();
}

Result<Node*> Sharder::draw_parts(const Node& n) {
  const Placed own = placed(n.in[0]);
  const Cut cut = *own.cut;
  Value* edited = placed(n.in[2]).value;
  ASSIGN_OR_RETURN(Value * draws, whole(n.in[1]));
  // What each rank has found, side by side on all.
  const auto gather = [&](Node* mine, int64_t first, int64_t of, bool even) -> Result<Value*> {
    ASSIGN_OR_RETURN(Node * all,
                     call("all_gather", {mine->result()}, {{"first", first}, {"of", of}, {"even", int64_t{even}}}));
    return all->result();
  };
  ASSIGN_OR_RETURN(Node * top, call("draw_tops", {own.value, draws, edited}, {}));
  ASSIGN_OR_RETURN(Value * tops, gather(top, share_.rank, share_.size, true));
  ASSIGN_OR_RETURN(Node * sum, call("draw_sums", {own.value, draws, tops, edited}, {{"of", cut.of}}));
  const int64_t blocks = draw::blocks(cut.of, draw::kBlock);
  ASSIGN_OR_RETURN(Value * sums, gather(sum, cut.first / draw::kBlock, blocks, blocks % share_.size == 0));
  constexpr int64_t words = 2 + 2 * draw::kMostCandidates;
  ASSIGN_OR_RETURN(Node * best, call("draw_best", {own.value, draws, tops, sums, edited},
                                     {{"first", cut.first}, {"of", cut.of}, {"most", draw::kMostCandidates}}));
  ASSIGN_OR_RETURN(Value * all, gather(best, words * share_.rank, words * share_.size, true));
  return call("merge_draws", {draws, tops, sums, all}, {{"of", cut.of}});
}

}  // namespace reprise

// Entries by which rows go to the ranks of their experts and come back as sums: MoeDistributeDispatchV2 and its
// counterpart, over a communicator of their own.
//
// Each rank sends its share of the tokens, each row to the ranks that have an expert of its choices, and gets the rows
// that chose its own, in the order of experts: there is room for as many as all ranks could send, so a captured graph
// needs no update, and none is dropped. Their number stays on the device. On the way back each rank adds the choices of
// its tokens, the best first, in fp32; then all ranks' sums are gathered. Rows that experts read as int8 are sent so:
// the operator quantises them as aclnnDynamicQuant does (OT-2608 moe_distribute_dispatch_a2.h:427-458 and
// moe_distribute_dispatch_v2_quant.h:178-214; NN dynamic_quant.h:155-179), in half of the bytes. A rank whose share
// goes beyond the tokens fills it with rows of zeros, for the operators take as many of each.
#include <algorithm>
#include <numeric>

#include "backends/ascend/entries.h"
#include "ops/args/collectives.h"
#include "ops/collectives.h"

namespace reprise::ascend {
namespace {

constexpr int64_t kMostChoices = 16;  // and the numbers of the constant

struct ExpertGroup {
  const Communicator* ranks;
  const void* numbers;  // i32: 0, 1, 2, ...
};

// The rank's share of the tokens of a step.
class Share {
 public:
  Share(Dim tokens, Launch& l)
      : group_(*static_cast<const ExpertGroup*>(l.constant())),
        l_(l),
        tokens_(l.size(tokens)),
        size_(group_.ranks->size()),
        count_((tokens_ + size_ - 1) / size_) {
    const int64_t begin = group_.ranks->member().world().rank * count_;
    first_ = std::min(begin, tokens_);
    have_ = std::min(count_, tokens_ - first_);
  }

  const Communicator& ranks() const { return *group_.ranks; }
  int64_t count() const { return count_; }
  int64_t all() const { return count_ * size_; }
  int64_t tokens() const { return tokens_; }
  // At the bound as for fewer tokens.
  bool filled() const { return have_ < count_ || l_.at_bounds(); }
  // The share of a matrix with a row for each token; what no token fills is zero, or choices of different experts.
  Result<aclTensor*> rows(const void* data, DType type, int64_t width, bool choices) const {
    const auto row = width * static_cast<int64_t>(size_of(type));
    const auto* mine = static_cast<const uint8_t*>(data) + first_ * row;
    if (!filled()) return l_.tensor(mine, type, {count_, width});
    void* to = l_.scratch(static_cast<size_t>(count_ * row));
    aclTensor* all = l_.tensor(to, type, {count_, width});
    // No token has an expert twice, nor have the rows of no token.
    if (choices)
      RETURN_IF_ERROR(l_.run(l_.ops().copy, all, l_.tensor(group_.numbers, type, {1, width})));
    else
      RETURN_IF_ERROR(l_.run(l_.ops().zero, all));
    if (have_ == 0) return all;
    RETURN_IF_ERROR(l_.run(l_.ops().copy, l_.view(to, type, {have_, width}, {width, 1}, 0, count_ * width),
                           l_.tensor(mine, type, {have_, width})));
    return all;
  }

 private:
  const ExpertGroup& group_;
  Launch& l_;
  int64_t tokens_, size_, count_, first_ = 0, have_ = 0;
};

// How rows are sent: as they are, or as the int8 numbers and scales that aclnnDynamicQuant would make of them.
constexpr int64_t kAsTheyAre = 0, kQuantised = 2;

Status dispatch(const auto& a, const void* scales, Launch& l) {
  const Share share(a.tokens, l);
  const Communicator& ranks = share.ranks();
  if (!l.probing() && l.size(a.shared) != share.all())
    return error(Code::Internal, "rows of {} tokens over {} ranks, and room for {}", share.tokens(), ranks.size(),
                 l.size(a.shared));
  const int64_t rows = share.all() * std::min(a.top_k, a.count);
  ASSIGN_OR_RETURN(aclTensor * x, share.rows(a.x, a.type, a.width, false));
  ASSIGN_OR_RETURN(aclTensor * experts, share.rows(a.experts, DType::I32, a.top_k, true));
  aclTensor* ends = l.tensor(l.scratch(static_cast<size_t>(a.count) * sizeof(int64_t)), DType::I64, {a.count});
  RETURN_IF_ERROR(l.run(l.ops().dispatch, x, experts, nullptr, nullptr, nullptr, ranks.experts().c_str(), ranks.size(),
                        ranks.member().world().rank, a.groups, "", 0, 0, 0, 0, 0, scales ? kQuantised : kAsTheyAre,
                        share.all(), 0, "", l.tensor(a.rows, scales ? DType::I8 : a.type, {rows, a.width}),
                        scales ? l.tensor(scales, DType::F32, {rows}) : nullptr,
                        l.tensor(a.sent, DType::I32, {rows * kSentRowWords}), ends,
                        l.tensor(a.counts, DType::I32, {a.groups}), nullptr, nullptr));
  RETURN_IF_ERROR(l.run(l.ops().zero, l.view(a.starts, DType::I32, {1}, {1}, 0, a.count + 1)));
  return l.run(l.ops().cast, ends, ACL_INT32, l.view(a.starts, DType::I32, {a.count}, {1}, 1, a.count + 1));
}

Status dispatch_rows(const DispatchOverRanksArgs& a, Launch& l) { return dispatch(a, nullptr, l); }
Status dispatch_quantised(const DispatchQuantisedArgs& a, Launch& l) { return dispatch(a, a.scale.data, l); }

Status combine_dispatched(const CombineDispatchedArgs& a, Launch& l) {
  const Share share(a.tokens, l);
  const Communicator& ranks = share.ranks();
  const int64_t rows = share.all() * a.rows.factor, element = static_cast<int64_t>(size_of(a.type));
  if (!l.probing() && l.size(a.rows) != rows)
    return error(Code::Internal, "combine_dispatched: {} rows, expected are {}", l.size(a.rows), rows);
  ASSIGN_OR_RETURN(aclTensor * experts, share.rows(a.experts, DType::I32, a.top_k, true));
  ASSIGN_OR_RETURN(aclTensor * weights, share.rows(a.weights, DType::F32, a.top_k, false));
  const int64_t bytes = share.count() * a.width * element;
  void* sums = l.scratch(static_cast<size_t>(bytes));
  RETURN_IF_ERROR(l.run(l.ops().combine_dispatched, l.tensor(a.y, a.type, {rows, a.width}), experts,
                        l.tensor(a.sent, DType::I32, {rows * kSentRowWords}),
                        l.tensor(a.counts, DType::I32, {a.groups}), weights, nullptr, nullptr, nullptr, nullptr,
                        nullptr, nullptr, nullptr, ranks.experts().c_str(), ranks.size(), ranks.member().world().rank,
                        a.groups, "", 0, 0, 0, 0, 0, share.all(), 0, 0, 0, "",
                        l.tensor(sums, a.type, {share.count(), a.width})));
  const bool more = share.all() != share.tokens() || l.at_bounds();
  void* all = more ? l.scratch(static_cast<size_t>(bytes * ranks.size())) : a.out.data;
  RETURN_IF_ERROR(l.enqueue([&](aclrtStream s) { return ranks.all_gather(sums, all, bytes, s); }));
  if (!more) return Status::ok();
  return l.run(l.ops().copy, l.tensor(a.out, a.type, {share.tokens(), a.width}),
               l.tensor(all, a.type, {share.tokens(), a.width}));
}

}  // namespace

void register_dispatch(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  if (!context->communicator() || context->communicator()->experts().empty()) return;
  const auto group = std::make_shared<ExpertGroup>(ExpertGroup{context->communicator(), nullptr});
  const auto bind = [context, group](const OpCall&, LaunchArgs& args) {
    group->numbers = context->constant("choices of no token", kMostChoices * sizeof(int32_t), [](void* to) {
      std::iota(static_cast<int32_t*>(to), static_cast<int32_t*>(to) + kMostChoices, 0);
    });
    args.constant = group.get();
  };
  // Choices are operand 1 of the one and 2 of the other.
  const auto accepts = [](size_t choices) {
    return [choices](const OpCall& c) -> Status {
      if (c.in[choices].shape[1].factor <= kMostChoices) return Status::ok();
      return error(Code::Unsupported, "at most {} choices of a token, unlike {}", kMostChoices, describe(c));
    };
  };
  add(kernels, context,
      {.op = "dispatch_over_ranks", .kernel = kernel<dispatch_rows>, .bind = bind, .accepts = accepts(1)});
  add(kernels, context,
      {.op = "dispatch_quantised", .kernel = kernel<dispatch_quantised>, .bind = bind, .accepts = accepts(1)});
  add(kernels, context,
      {.op = "combine_dispatched", .kernel = kernel<combine_dispatched>, .bind = bind, .accepts = accepts(2)});
}

}  // namespace reprise::ascend

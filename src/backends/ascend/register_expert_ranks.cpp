// Entries of experts that are shared out over ranks: the rows of a rank's own experts, and the sums over the choices of
// a token wherever they are.
//
// All ranks have all rows and choose alike, so nothing is sent to the experts. Their results go to the ranks that add
// them: each rank has its share of the tokens, and gets a row of every other one for every choice (HcclAlltoAll). How
// many rows an expert has is known to the device alone, so the exchange has room for all, and a captured graph needs no
// update. The order of additions is that of one card: the choices of a token, the best first.
#include <algorithm>
#include <map>
#include <numeric>

#include "backends/ascend/entries.h"
#include "ops/args/collectives.h"

namespace reprise::ascend {
namespace {

// In device memory: for each expert 1 if it is here, the rank that has it, then the numbers from 0 on.
struct ExpertShares {
  const Communicator* ranks;
  const void* table;

  static int64_t numbers(int64_t experts) { return 2 * experts + Context::kRows; }
};

void fill_shares(const Communicator& ranks, int64_t experts, int32_t* to) {
  const ranks::World& world = ranks.member().world();
  for (int64_t r = 0; r < world.size; ++r) {
    for (int64_t e = experts * r / world.size; e < experts * (r + 1) / world.size; ++e) {
      to[e] = r == world.rank ? 1 : 0;
      to[experts + e] = static_cast<int32_t>(r);
    }
  }
  std::iota(to + 2 * experts, to + ExpertShares::numbers(experts), 0);
}

// What the operators are given as they work on a share of the experts.
class Shares {
 public:
  Shares(int64_t experts, int64_t first, Launch& l)
      : shares_(*static_cast<const ExpertShares*>(l.constant())), experts_(experts), first_(first), l_(l) {}

  const Communicator& ranks() const { return *shares_.ranks; }
  aclTensor* here() const { return part(0, experts_); }
  aclTensor* owners() const { return part(experts_, experts_); }
  aclTensor* numbers(int64_t n) const { return part(2 * experts_, n); }
  aclTensor* first_row(const void* starts) const { return l_.view(starts, DType::I32, {1}, {1}, first_, experts_ + 1); }
  Status enough_numbers(const char* op, int64_t n) const {
    if (n <= Context::kRows) return Status::ok();
    return error(Code::Unsupported, "{}: {} rows in one step, at most {}", op, n, Context::kRows);
  }

 private:
  aclTensor* part(int64_t offset, int64_t n) const {
    return l_.view(shares_.table, DType::I32, {n}, {1}, offset, ExpertShares::numbers(experts_));
  }

  const ExpertShares& shares_;
  int64_t experts_, first_;
  Launch& l_;
};

// They lie together in the sorted rows, from a place on that only the device knows. Behind the rows there is room, so
// that as many as there can be are read from any place.
Status own_rows(const OwnRowsArgs& a, Launch& l) {
  const Shares shares(a.groups, a.first, l);
  const int64_t places = l.size(a.places), rows = l.size(a.rows), all = places + rows;
  RETURN_IF_ERROR(shares.enough_numbers("own_rows", rows));
  void* room = l.scratch(static_cast<size_t>(all) * sizeof(int32_t));
  aclTensor* index = l.tensor(l.scratch(static_cast<size_t>(rows) * sizeof(int32_t)), DType::I32, {rows});
  aclTensor* begin = shares.first_row(a.starts);
  RETURN_IF_ERROR(
      l.run(l.ops().copy, l.view(room, DType::I32, {places}, {1}, 0, all), l.tensor(a.token, DType::I32, {places})));
  RETURN_IF_ERROR(l.run(l.ops().zero, l.view(room, DType::I32, {rows}, {1}, places, all)));
  RETURN_IF_ERROR(l.run(l.ops().add, shares.numbers(rows), begin, l.whole(1), index));
  RETURN_IF_ERROR(
      l.run(l.ops().index_select, l.tensor(room, DType::I32, {all}), 0, index, l.tensor(a.own, DType::I32, {rows})));
  return l.run(l.ops().add, l.view(a.starts, DType::I32, {a.count + 1}, {1}, a.first, a.groups + 1), begin, l.whole(-1),
               l.tensor(a.borders, DType::I32, {a.count + 1}));
}

// Tokens in equal shares for all ranks; what no token fills is zero.
class TokenShares {
 public:
  TokenShares(const CombineOverRanksArgs& a, int64_t ranks, Launch& l)
      : tokens_(l.size(a.tokens)), share_((tokens_ + ranks - 1) / ranks), all_(share_ * ranks), l_(l) {}

  int64_t share() const { return share_; }
  int64_t all() const { return all_; }
  // At the bound of tokens as for others, which may not be divided by the ranks.
  bool filled() const { return all_ != tokens_ || l_.at_bounds(); }
  // `width` numbers of four bytes for each token.
  Result<const void*> fill(const void* data, DType type, int64_t width) const {
    if (!filled()) return data;
    const int64_t given = tokens_ * width, all = all_ * width;
    void* to = l_.scratch(static_cast<size_t>(all) * 4);
    RETURN_IF_ERROR(l_.run(l_.ops().zero, l_.tensor(to, type, {all})));
    RETURN_IF_ERROR(l_.run(l_.ops().copy, l_.view(to, type, {given}, {1}, 0, all), l_.tensor(data, type, {given})));
    return to;
  }

 private:
  int64_t tokens_, share_, all_;
  Launch& l_;
};

// For each choice its row where it is here, and any other row where it is not: nobody reads that one.
Result<const void*> rows_of_choices(const CombineOverRanksArgs& a, const Shares& shares, const void* experts,
                                    const void* place, int64_t choices, Launch& l) {
  const auto numbers = [&] { return l.scratch(static_cast<size_t>(choices) * sizeof(int32_t)); };
  aclTensor *here = l.tensor(numbers(), DType::I32, {choices}), *row = l.tensor(numbers(), DType::I32, {choices});
  void* out = l.scratch(static_cast<size_t>(choices * a.width) * size_of(a.type));
  RETURN_IF_ERROR(l.run(l.ops().index_select, shares.here(), 0, l.tensor(experts, DType::I32, {choices}), here));
  RETURN_IF_ERROR(
      l.run(l.ops().add, l.tensor(place, DType::I32, {choices}), shares.first_row(a.starts), l.whole(-1), row));
  RETURN_IF_ERROR(l.run(l.ops().mul, row, here, row));
  RETURN_IF_ERROR(l.run(l.ops().index_select, l.tensor(a.y, a.type, {l.size(a.rows), a.width}), 0, row,
                        l.tensor(out, a.type, {choices, a.width})));
  return out;
}

// What has come: of every rank a row for every choice of the own tokens. Those of the ranks that have the experts are
// added.
Status add_choices(const CombineOverRanksArgs& a, const Shares& shares, const TokenShares& tokens, const void* came,
                   const void* experts, const void* weights, void* sums, Launch& l) {
  constexpr int64_t kSortedByRows = 2;
  const int64_t n = tokens.share(), k = a.top_k, rows = n * k, ranks = shares.ranks().size(),
                begin = shares.ranks().member().world().rank * rows;
  aclTensor* row = l.tensor(l.scratch(static_cast<size_t>(rows) * sizeof(int32_t)), DType::I32, {rows});
  aclTensor* chosen =
      l.tensor(l.scratch(static_cast<size_t>(rows * a.width) * size_of(a.type)), a.type, {rows, a.width});
  RETURN_IF_ERROR(l.run(l.ops().index_select, shares.owners(), 0,
                        l.view(experts, DType::I32, {rows}, {1}, begin, rows * ranks), row));
  RETURN_IF_ERROR(l.run(l.ops().muls, row, l.whole(rows), row));
  RETURN_IF_ERROR(l.run(l.ops().add, row, shares.numbers(rows), l.whole(1), row));
  RETURN_IF_ERROR(l.run(l.ops().index_select, l.tensor(came, a.type, {rows * ranks, a.width}), 0, row, chosen));
  return l.run(l.ops().finalize_routing, chosen, shares.numbers(rows), nullptr, nullptr, nullptr,
               l.view(weights, DType::F32, {n, k}, {k, 1}, begin, rows * ranks), nullptr, kSortedByRows,
               l.tensor(sums, a.type, {n, a.width}));
}

Status combine_over_ranks(const CombineOverRanksArgs& a, Launch& l) {
  const Shares shares(a.groups, a.first, l);
  const Communicator& ranks = shares.ranks();
  const TokenShares tokens(a, ranks.size(), l);
  const int64_t row = a.width * static_cast<int64_t>(size_of(a.type)), choices = tokens.all() * a.top_k;
  const int64_t sent = tokens.share() * a.top_k * row, added = tokens.share() * row;
  RETURN_IF_ERROR(shares.enough_numbers("combine_over_ranks", tokens.share() * a.top_k));
  ASSIGN_OR_RETURN(const void* experts, tokens.fill(a.experts, DType::I32, a.top_k));
  ASSIGN_OR_RETURN(const void* place, tokens.fill(a.place, DType::I32, a.top_k));
  ASSIGN_OR_RETURN(const void* weights, tokens.fill(a.weights, DType::F32, a.top_k));
  ASSIGN_OR_RETURN(const void* mine, rows_of_choices(a, shares, experts, place, choices, l));
  void *came = l.scratch(static_cast<size_t>(choices * row)), *sums = l.scratch(static_cast<size_t>(added));
  RETURN_IF_ERROR(l.enqueue([&](aclrtStream s) { return ranks.all_to_all(mine, came, sent, s); }));
  RETURN_IF_ERROR(add_choices(a, shares, tokens, came, experts, weights, sums, l));
  void* out = tokens.filled() ? l.scratch(static_cast<size_t>(tokens.all() * row)) : a.out.data;
  RETURN_IF_ERROR(l.enqueue([&](aclrtStream s) { return ranks.all_gather(sums, out, added, s); }));
  if (!tokens.filled()) return Status::ok();
  const int64_t n = l.size(a.tokens);
  return l.run(l.ops().copy, l.tensor(a.out, a.type, {n, a.width}), l.tensor(out, a.type, {n, a.width}));
}

}  // namespace

void register_expert_ranks(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  if (!context->communicator()) return;
  const auto known = std::make_shared<std::map<int64_t, ExpertShares>>();
  const auto bind = [context, known](size_t starts) {
    return [context, known, starts](const OpCall& c, LaunchArgs& args) {
      const int64_t experts = c.in[starts].shape[0].factor - 1;
      const Communicator& ranks = *context->communicator();
      void* table = context->constant(fmt::format("shares of {} experts", experts),
                                      static_cast<size_t>(ExpertShares::numbers(experts)) * sizeof(int32_t),
                                      [&](void* to) { fill_shares(ranks, experts, static_cast<int32_t*>(to)); });
      args.constant = &((*known)[experts] = ExpertShares{&ranks, table});
    };
  };
  const auto accepts = [context](size_t starts) {
    return [context, starts](const OpCall& c) -> Status {
      const int64_t experts = c.in[starts].shape[0].factor - 1;
      const ranks::World& world = context->communicator()->member().world();
      const int64_t first = experts * world.rank / world.size;
      if (c.attrs->integer("first") == first &&
          c.attrs->integer("count") == experts * (world.rank + 1) / world.size - first)
        return Status::ok();
      return error(Code::Unsupported, "each rank has its even share of the experts, unlike {}", describe(c));
    };
  };
  add(kernels, context, {.op = "own_rows", .kernel = kernel<own_rows>, .bind = bind(1), .accepts = accepts(1)});
  add(kernels, context,
      {.op = "combine_over_ranks", .kernel = kernel<combine_over_ranks>, .bind = bind(4), .accepts = accepts(4)});
}

}  // namespace reprise::ascend

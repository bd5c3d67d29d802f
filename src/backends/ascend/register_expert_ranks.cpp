// Entries of experts that are shared out over ranks: the rows of a rank's own experts, and the sums over the choices of
// a token wherever they are.
//
// All ranks have all rows and choose alike, so nothing is sent to the experts. Of few rows all results are gathered,
// and every rank adds those of each token. Of many, results go to the ranks that add them: each rank has its share of
// the tokens, and gets a row of every other one for every choice (HcclAlltoAll). How many rows an expert has is known
// to the device alone, so the exchange has room for all, and a captured graph needs no update. The order of additions
// is that of one card: the choices of a token, the best first.
//
// Several ranks may have the same experts, each some of their columns. Then a choice has a row on each of these, and
// the columns of each are added by themselves.
#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "backends/ascend/entries.h"
#include "ops/args/collectives.h"

namespace reprise::ascend {
namespace {

// In device memory: for each expert 1 if it is here, the first rank that has it, and that one's first expert; then the
// numbers from 0 on.
struct ExpertShares {
  const Communicator* ranks;
  const void* table;

  static int64_t numbers(int64_t experts) { return 3 * experts + Context::kRows; }
};

void fill_shares(const Communicator& ranks, int64_t experts, int64_t ways, int32_t* to) {
  const ranks::World& world = ranks.member().world();
  const int64_t parts = world.size / ways;
  for (int64_t p = 0; p < parts; ++p) {
    for (int64_t e = experts * p / parts; e < experts * (p + 1) / parts; ++e) {
      to[e] = p == world.rank / ways ? 1 : 0;
      to[experts + e] = static_cast<int32_t>(p * ways);
      to[2 * experts + e] = static_cast<int32_t>(experts * p / parts);
    }
  }
  std::iota(to + 3 * experts, to + ExpertShares::numbers(experts), 0);
}

// What the operators are given as they work on a share of the experts.
class Shares {
 public:
  Shares(int64_t experts, int64_t first, Launch& l)
      : shares_(*static_cast<const ExpertShares*>(l.constant())), experts_(experts), first_(first), l_(l) {}

  const Communicator& ranks() const { return *shares_.ranks; }
  aclTensor* here() const { return part(0, experts_); }
  aclTensor* owners() const { return part(experts_, experts_); }
  aclTensor* firsts() const { return part(2 * experts_, experts_); }
  aclTensor* numbers(int64_t n) const { return part(3 * experts_, n); }
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

// For each choice its row where it is here, and any other row where it is not: that one is not read.
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

// Where sums go: all columns of so many tokens.
struct Rows {
  void* sums;
  int64_t tokens;
};

// The rows that `place` names, in the order of choices, times their weights. Columns that one rank has alone.
Status add_rows(const CombineOverRanksArgs& a, const Shares& shares, const void* rows, int64_t count, aclTensor* place,
                aclTensor* weights, const Rows& to, Launch& l) {
  constexpr int64_t kSortedByRows = 2;
  const int64_t choices = to.tokens * a.top_k;
  aclTensor* chosen =
      l.tensor(l.scratch(static_cast<size_t>(choices * a.width) * size_of(a.type)), a.type, {choices, a.width});
  RETURN_IF_ERROR(l.run(l.ops().index_select, l.tensor(rows, a.type, {count, a.width}), 0, place, chosen));
  return l.run(l.ops().finalize_routing, chosen, shares.numbers(choices), nullptr, nullptr, nullptr, weights, nullptr,
               kSortedByRows, l.tensor(to.sums, a.type, {to.tokens, a.width}));
}

// The same of the ranks that have other columns, whose rows lie `step` rows behind each other's.
Status add_columns(const CombineOverRanksArgs& a, const Shares& shares, const void* rows, int64_t count, int64_t step,
                   aclTensor* place, aclTensor* weights, const Rows& to, Launch& l) {
  if (a.ways == 1) return add_rows(a, shares, rows, count, place, weights, to, l);
  const int64_t all = a.width * a.ways;
  void* sums = l.scratch(static_cast<size_t>(to.tokens * a.width) * size_of(a.type));
  for (int64_t way = 0; way < a.ways; ++way) {
    if (way > 0) RETURN_IF_ERROR(l.run(l.ops().adds, place, l.whole(step), l.whole(1), place));
    RETURN_IF_ERROR(add_rows(a, shares, rows, count, place, weights, {sums, to.tokens}, l));
    RETURN_IF_ERROR(l.run(l.ops().copy,
                          l.view(to.sums, a.type, {to.tokens, a.width}, {all, 1}, way * a.width, to.tokens * all),
                          l.tensor(sums, a.type, {to.tokens, a.width})));
  }
  return Status::ok();
}

// From so many bytes of a rank's rows on, what each rank need not receive takes longer than a second meeting and the
// operators around it: at 28 GB/s a meeting of 10 us is 280 KB (docs/ascend.md, both assumed).
constexpr int64_t kRowsWorthAMeeting = 280 << 10;

// The rows of each rank's experts lie one rank's behind the other's, and a choice's is as far behind the first of its
// rank as in the sorted rows.
Status combine_few(const CombineOverRanksArgs& a, const Shares& shares, int64_t tokens, int64_t most, Launch& l) {
  const Communicator& ranks = shares.ranks();
  const int64_t choices = tokens * a.top_k, row = a.width * static_cast<int64_t>(size_of(a.type));
  void* all = l.scratch(static_cast<size_t>(ranks.size() * most * row));
  const auto numbers = [&] {
    return l.tensor(l.scratch(static_cast<size_t>(choices) * sizeof(int32_t)), DType::I32, {choices});
  };
  aclTensor *first = numbers(), *begin = numbers(), *place = numbers();
  aclTensor *experts = l.tensor(a.experts, DType::I32, {choices}), *sorted = l.tensor(a.place, DType::I32, {choices}),
            *starts = l.tensor(a.starts, DType::I32, {a.groups + 1});
  RETURN_IF_ERROR(l.enqueue([&](aclrtStream s) { return ranks.all_gather(a.y, all, most * row, s); }));
  RETURN_IF_ERROR(l.run(l.ops().index_select, shares.firsts(), 0, experts, first));
  RETURN_IF_ERROR(l.run(l.ops().index_select, starts, 0, first, begin));
  RETURN_IF_ERROR(l.run(l.ops().index_select, shares.owners(), 0, experts, place));
  RETURN_IF_ERROR(l.run(l.ops().muls, place, l.whole(most), place));
  RETURN_IF_ERROR(l.run(l.ops().add, place, sorted, l.whole(1), place));
  RETURN_IF_ERROR(l.run(l.ops().add, place, begin, l.whole(-1), place));
  return add_columns(a, shares, all, ranks.size() * most, most, place,
                     l.tensor(a.weights, DType::F32, {tokens, a.top_k}), {a.out.data, tokens}, l);
}

// What has come: of every rank a row for every choice of the own tokens. Those of the ranks that have the experts are
// added.
Status add_choices(const CombineOverRanksArgs& a, const Shares& shares, const TokenShares& tokens, const void* came,
                   const void* experts, const void* weights, void* sums, Launch& l) {
  const int64_t n = tokens.share(), k = a.top_k, rows = n * k, ranks = shares.ranks().size(),
                begin = shares.ranks().member().world().rank * rows;
  aclTensor* row = l.tensor(l.scratch(static_cast<size_t>(rows) * sizeof(int32_t)), DType::I32, {rows});
  RETURN_IF_ERROR(l.run(l.ops().index_select, shares.owners(), 0,
                        l.view(experts, DType::I32, {rows}, {1}, begin, rows * ranks), row));
  RETURN_IF_ERROR(l.run(l.ops().muls, row, l.whole(rows), row));
  RETURN_IF_ERROR(l.run(l.ops().add, row, shares.numbers(rows), l.whole(1), row));
  return add_columns(a, shares, came, rows * ranks, rows, row,
                     l.view(weights, DType::F32, {n, k}, {k, 1}, begin, rows * ranks), {sums, n}, l);
}

Status combine_many(const CombineOverRanksArgs& a, const Shares& shares, Launch& l) {
  const Communicator& ranks = shares.ranks();
  const TokenShares tokens(a, ranks.size(), l);
  const int64_t row = a.width * static_cast<int64_t>(size_of(a.type)), choices = tokens.all() * a.top_k;
  const int64_t sent = tokens.share() * a.top_k * row, all = a.width * a.ways, added = tokens.share() * row * a.ways;
  ASSIGN_OR_RETURN(const void* experts, tokens.fill(a.experts, DType::I32, a.top_k));
  ASSIGN_OR_RETURN(const void* place, tokens.fill(a.place, DType::I32, a.top_k));
  ASSIGN_OR_RETURN(const void* weights, tokens.fill(a.weights, DType::F32, a.top_k));
  ASSIGN_OR_RETURN(const void* mine, rows_of_choices(a, shares, experts, place, choices, l));
  void *came = l.scratch(static_cast<size_t>(choices * row)), *sums = l.scratch(static_cast<size_t>(added));
  RETURN_IF_ERROR(l.enqueue([&](aclrtStream s) { return ranks.all_to_all(mine, came, sent, s); }));
  RETURN_IF_ERROR(add_choices(a, shares, tokens, came, experts, weights, sums, l));
  void* out = tokens.filled() ? l.scratch(static_cast<size_t>(tokens.all() * row * a.ways)) : a.out.data;
  RETURN_IF_ERROR(l.enqueue([&](aclrtStream s) { return ranks.all_gather(sums, out, added, s); }));
  if (!tokens.filled()) return Status::ok();
  const int64_t n = l.size(a.tokens);
  return l.run(l.ops().copy, l.tensor(a.out, a.type, {n, all}), l.tensor(out, a.type, {n, all}));
}

Status combine_over_ranks(const CombineOverRanksArgs& a, Launch& l) {
  const Shares shares(a.groups, a.first, l);
  const int64_t tokens = l.size(a.tokens), parts = shares.ranks().size() / a.ways, rows = l.size(a.rows);
  // Gathered rows have equal room on all ranks, though one may have an expert more than another.
  const int64_t least_experts = a.groups / parts, each = std::min(a.top_k, least_experts);
  const bool equal = a.groups % parts == 0 || a.top_k <= least_experts;
  const int64_t few = equal ? kRowsWorthAMeeting / (each * a.width * static_cast<int64_t>(size_of(a.type))) : 0;
  RETURN_IF_ERROR(shares.enough_numbers("combine_over_ranks", tokens * a.top_k));
  if (!l.at_bounds()) return tokens <= few ? combine_few(a, shares, tokens, rows, l) : combine_many(a, shares, l);
  // The most that any number of tokens up to this one needs.
  const int64_t least = std::min(tokens, few);
  if (least > 0) RETURN_IF_ERROR(combine_few(a, shares, least, least * each, l));
  return tokens <= few ? Status::ok() : combine_many(a, shares, l);
}

// Parts come one rank's after the other's, then go into their columns.
Status gather_columns(const GatherColumnsArgs& a, Launch& l) {
  const auto& ranks = *static_cast<const Communicator*>(l.constant());
  const int64_t rows = l.size(a.rows), element = static_cast<int64_t>(size_of(a.type));
  const auto border = [&](int64_t way) { return static_cast<int64_t>(a.borders[way]); };
  const int64_t all = border(a.ways);
  std::vector<int64_t> bytes;
  for (int64_t way = 0; way < a.ways; ++way) bytes.push_back(rows * element * (border(way + 1) - border(way)));
  auto* parts = static_cast<uint8_t*>(l.scratch(static_cast<size_t>(rows * all * element)));
  RETURN_IF_ERROR(l.enqueue([&](aclrtStream s) { return ranks.gather_among(a.x, parts, bytes, s); }));
  for (int64_t way = 0; way < a.ways; ++way) {
    const int64_t width = border(way + 1) - border(way);
    RETURN_IF_ERROR(l.run(l.ops().copy, l.view(a.out, a.type, {rows, width}, {all, 1}, border(way), rows * all),
                          l.tensor(parts + rows * border(way) * element, a.type, {rows, width})));
  }
  return Status::ok();
}

}  // namespace

void register_expert_ranks(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  if (!context->communicator()) return;
  const auto known = std::make_shared<std::map<std::pair<int64_t, int64_t>, ExpertShares>>();
  const auto bind = [context, known](size_t starts) {
    return [context, known, starts](const OpCall& c, LaunchArgs& args) {
      const int64_t experts = c.in[starts].shape[0].factor - 1;
      const int64_t ways = c.attrs->find("ways") ? c.attrs->integer("ways") : 1;  // own_rows takes numbers alone
      const Communicator& ranks = *context->communicator();
      void* table =
          context->constant(fmt::format("shares of {} experts over {} ranks, {} each", experts, ranks.size(), ways),
                            static_cast<size_t>(ExpertShares::numbers(experts)) * sizeof(int32_t),
                            [&](void* to) { fill_shares(ranks, experts, ways, static_cast<int32_t*>(to)); });
      args.constant = &((*known)[{experts, ways}] = ExpertShares{&ranks, table});
    };
  };
  const auto accepts = [context](const OpCall& c) -> Status {
    const int64_t experts = c.in[4].shape[0].factor - 1, ways = c.attrs->integer("ways");
    const ranks::World& world = context->communicator()->member().world();
    const int64_t parts = world.size / ways, part = world.rank / ways, first = experts * part / parts;
    if (world.size % ways == 0 && c.attrs->integer("first") == first &&
        c.attrs->integer("count") == experts * (part + 1) / parts - first)
      return Status::ok();
    return error(Code::Unsupported, "each rank has its even share of the experts, unlike {}", describe(c));
  };
  add(kernels, context, {.op = "own_rows", .kernel = kernel<own_rows>, .bind = bind(1)});
  add(kernels, context,
      {.op = "combine_over_ranks", .kernel = kernel<combine_over_ranks>, .bind = bind(4), .accepts = accepts});
  add(kernels, context,
      {.op = "gather_columns",
       .kernel = kernel<gather_columns>,
       .bind = [context](const OpCall&, LaunchArgs& args) { args.constant = context->communicator(); },
       .accepts = [context](const OpCall& c) -> Status {
         const ranks::World& world = context->communicator()->member().world();
         const auto ways = static_cast<int>(c.attrs->numbers("borders").size()) - 1;
         RETURN_IF_ERROR(context->communicator()->can_gather_among());
         if (world.size % ways == 0 && c.attrs->integer("way") == world.rank % ways) return Status::ok();
         return error(Code::Unsupported, "the rank is not one of {} in order, unlike {}", ways, describe(c));
       }});
}

}  // namespace reprise::ascend

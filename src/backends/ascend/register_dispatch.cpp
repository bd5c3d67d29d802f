// Entries by which rows go to the ranks of their experts and come back as sums: MoeDistributeDispatchV2 and its
// counterpart, over a communicator of their own.
//
// Each rank sends its share of the tokens, each row to the ranks that have an expert of its choices, and gets the rows
// that chose its own, in the order of experts: there is room for as many as all ranks could send, so a captured graph
// needs no update, and none is dropped. Their number stays on the device. On the way back each rank adds the choices of
// its tokens, the best first, in fp32; then all ranks' sums are gathered. A rank whose share goes beyond the tokens
// fills it with rows of zeros, for the operators take as many of each.
//
// Rows that experts read as int8 are sent so: the operator quantises them as aclnnDynamicQuant does (OT-2608
// moe_distribute_dispatch_a2.h:427-458 and moe_distribute_dispatch_v2_quant.h:178-214; NN dynamic_quant.h:155-179), in
// half of the bytes.
//
// A share of more tokens than the operators take at a time goes in several rounds of as many tokens each, the last with
// what is left. The rows of all rounds are sorted by expert once more, so that products read each expert's matrices
// once, and go back to their rounds before they are sent back.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>

#include "backends/ascend/entries.h"
#include "backends/ascend/expert_rounds.h"
#include "ops/args/collectives.h"
#include "ops/collectives.h"

namespace reprise::ascend {
namespace {

constexpr int64_t kMostChoices = 16;  // and the numbers of the constant

// The operators on this chip, and constants in device memory.
struct ExpertGroup {
  const Communicator* ranks;
  RoundLimits limits;
  const void* choices;   // i32: 0, 1, 2, ...
  const void* numbers;   // f32: 0, 1, 2, ..., kRows of them
  const void* counters;  // i64, likewise
  const void* ones;      // f32, likewise
  const void* groups;    // group_numbers
};

// The groups of the rows of a round: each expert's, and what lies behind them. A row times its group's matrix is that
// group's number, and 1 where it is an expert's.
int64_t group_numbers(int64_t experts) { return 2 * (experts + 1); }
void fill_groups(int64_t experts, float* to) {
  for (int64_t e = 0; e <= experts; ++e) {
    to[2 * e] = static_cast<float>(e);
    to[2 * e + 1] = e < experts ? 1 : 0;
  }
}

const ExpertGroup& group_of(const Launch& l) { return *static_cast<const ExpertGroup*>(l.constant()); }

// The rank's share of the tokens of a step.
class Share {
 public:
  Share(Dim tokens, Launch& l)
      : group_(group_of(l)),
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
  Result<const uint8_t*> rows(const void* data, DType type, int64_t width, bool choices) const {
    const auto row = width * static_cast<int64_t>(size_of(type));
    const auto* mine = static_cast<const uint8_t*>(data) + first_ * row;
    if (!filled()) return mine;
    auto* to = static_cast<uint8_t*>(l_.scratch(static_cast<size_t>(count_ * row)));
    aclTensor* all = l_.tensor(to, type, {count_, width});
    // No token has an expert twice, nor have the rows of no token.
    if (choices)
      RETURN_IF_ERROR(l_.run(l_.ops().copy, all, l_.tensor(group_.choices, type, {1, width})));
    else
      RETURN_IF_ERROR(l_.run(l_.ops().zero, all));
    if (have_ == 0) return to;
    RETURN_IF_ERROR(l_.run(l_.ops().copy, l_.view(to, type, {have_, width}, {width, 1}, 0, count_ * width),
                           l_.tensor(mine, type, {have_, width})));
    return to;
  }

 private:
  const ExpertGroup& group_;
  Launch& l_;
  int64_t tokens_, size_, count_, first_ = 0, have_ = 0;
};

uint8_t* at(const void* data, int64_t bytes) { return const_cast<uint8_t*>(static_cast<const uint8_t*>(data)) + bytes; }

// How rows are sent: as they are, or as the int8 numbers and scales that aclnnDynamicQuant would make of them.
constexpr int64_t kAsTheyAre = 0, kQuantised = 2;

// What a round of sending reads and writes; `scales` is null where rows are sent as they are.
struct Received {
  const void* rows;
  const void* scales;
  const void* words;   // kAssistWords for each row
  const void* counts;  // i32 [experts]
  const void* ends;    // i64 [experts of this rank]
};

Status send_round(const auto& a, const Round& r, const uint8_t* x, const uint8_t* experts, const Received& to,
                  Launch& l) {
  const Communicator& ranks = *group_of(l).ranks;
  const int64_t rows = r.most * ranks.size() * std::min(a.top_k, a.count);
  x += r.first * a.width * static_cast<int64_t>(size_of(a.type));
  experts += r.first * a.top_k * static_cast<int64_t>(sizeof(int32_t));
  return l.run(l.ops().dispatch, l.tensor(x, a.type, {r.tokens, a.width}),
               l.tensor(experts, DType::I32, {r.tokens, a.top_k}), nullptr, nullptr, nullptr, ranks.experts().c_str(),
               ranks.size(), ranks.member().world().rank, a.groups, "", 0, 0, 0, 0, 0,
               to.scales ? kQuantised : kAsTheyAre, r.most * ranks.size(), 0, "",
               l.tensor(to.rows, to.scales ? DType::I8 : a.type, {rows, a.width}),
               to.scales ? l.tensor(to.scales, DType::F32, {rows}) : nullptr,
               l.tensor(to.words, DType::I32, {rows * kAssistWords}), l.tensor(to.ends, DType::I64, {a.count}),
               l.tensor(to.counts, DType::I32, {a.groups}), nullptr, nullptr);
}

Status send_at_once(const auto& a, const void* scales, int64_t tokens, const uint8_t* x, const uint8_t* experts,
                    Launch& l) {
  void* ends = l.scratch(static_cast<size_t>(a.count) * sizeof(int64_t));
  RETURN_IF_ERROR(send_round(a, {0, tokens, tokens}, x, experts, {a.rows, scales, a.sent, a.counts, ends}, l));
  RETURN_IF_ERROR(l.run(l.ops().zero, l.view(a.starts, DType::I32, {1}, {1}, 0, a.count + 1)));
  return l.run(l.ops().cast, l.tensor(ends, DType::I64, {a.count}), ACL_INT32,
               l.view(a.starts, DType::I32, {a.count}, {1}, 1, a.count + 1));
}

// For each row of all rounds its expert, and 1 where it is one's; behind the rows of a round lie others up to its room.
// `ends`: of the groups of each round, but for the last one, whose end is that room.
Result<const void*> groups_of_rows(int64_t experts, int64_t rounds, int64_t room, const void* ends, Launch& l) {
  const ExpertGroup& g = group_of(l);
  const int64_t groups = experts + 1;
  RETURN_IF_ERROR(l.run(l.ops().copy, l.view(ends, DType::I64, {rounds, 1}, {groups, 1}, experts, rounds * groups),
                        l.view(g.counters, DType::I64, {1, 1}, {1, 1}, room, Context::kRows)));
  void* found = l.scratch(static_cast<size_t>(2 * rounds * room) * sizeof(float));
  const auto list = [&](const void* data, Launch::Sizes sizes) { return l.list(l.tensor(data, DType::F32, sizes)); };
  for (int64_t r = 0; r < rounds; ++r)
    RETURN_IF_ERROR(l.run(l.ops().grouped_matmul, list(g.ones, {room, 1}), list(g.groups, {groups, 1, 2}), nullptr,
                          nullptr, nullptr, nullptr, nullptr, nullptr,
                          l.tensor(at(ends, r * groups * 8), DType::I64, {groups}), nullptr, nullptr, nullptr, 2, 0, 0,
                          0, list(at(found, 2 * r * room * 4), {room, 2}), nullptr, nullptr));
  return found;
}

// Where the rows of several rounds lie in what dispatch tells combine: the operator's words of all rounds, the counts
// of each, and for each row its place among the sorted ones.
struct SentWords {
  const void* data;
  int64_t rounds, rows, experts;  // rows: room of a round

  const void* words(int64_t round) const { return at(data, round * rows * kAssistWords * 4); }
  const void* counts(int64_t round) const { return at(data, (rounds * rows * kAssistWords + round * experts) * 4); }
  const void* places() const {
    return at(data, (rounds * rows * kAssistWords + (rounds * experts + 15) / 16 * 16) * 4);
  }
  Status fit(int64_t room) const {
    const int64_t needed = rounds * rows * (kAssistWords + 1) + (rounds * experts + 15) / 16 * 16;
    if (needed <= room * kSentRowWords) return Status::ok();
    return error(Code::Internal, "rows in {} rounds have room for {} words of {}", rounds, room * kSentRowWords,
                 needed);
  }
};

// Sorts the rows of all rounds by expert: those of no expert come last. A row that no expert has leads back to row 0.
Status sort_rounds(const auto& a, const void* found, const SentWords& sent, const Received& from, const void* scales,
                   int64_t room, Launch& l) {
  const ExpertGroup& g = group_of(l);
  const int64_t all = sent.rounds * sent.rows, groups = a.count + 1;
  const auto words = [&](int64_t n) { return l.scratch(static_cast<size_t>(n) * sizeof(int32_t)); };
  const auto column = [&](int64_t i) { return l.view(found, DType::F32, {all, 1}, {2, 1}, i, 2 * all); };
  void *keys = words(all), *kept = words(all), *sorted = words(all), *index = words(all), *ends = words(groups);
  aclTensor* places = l.tensor(sent.places(), DType::I32, {all});
  RETURN_IF_ERROR(l.run(l.ops().cast, column(0), ACL_INT32, l.tensor(keys, DType::I32, {all, 1})));
  RETURN_IF_ERROR(l.run(l.ops().cast, column(1), ACL_INT32, l.tensor(kept, DType::I32, {all, 1})));
  RETURN_IF_ERROR(l.run(l.ops().init_routing, l.tensor(g.numbers, DType::F32, {all, 1}),
                        l.tensor(keys, DType::I32, {all, 1}), 0, 0, groups, 0, 1, false,
                        l.tensor(sorted, DType::F32, {all, 1}), places, l.tensor(ends, DType::I32, {groups}),
                        l.tensor(words(groups), DType::I32, {groups})));
  RETURN_IF_ERROR(l.run(l.ops().mul, places, l.tensor(kept, DType::I32, {all}), places));
  RETURN_IF_ERROR(
      l.run(l.ops().cast, l.tensor(sorted, DType::F32, {all}), ACL_INT32, l.tensor(index, DType::I32, {all})));
  aclTensor* first = l.tensor(index, DType::I32, {room});
  const DType type = scales ? DType::I8 : a.type;
  RETURN_IF_ERROR(l.run(l.ops().index_select, l.tensor(from.rows, type, {all, a.width}), 0, first,
                        l.tensor(a.rows, type, {room, a.width})));
  if (scales)
    RETURN_IF_ERROR(l.run(l.ops().index_select, l.tensor(from.scales, DType::F32, {all}), 0, first,
                          l.tensor(scales, DType::F32, {room})));
  RETURN_IF_ERROR(l.run(l.ops().zero, l.view(a.starts, DType::I32, {1}, {1}, 0, a.count + 1)));
  return l.run(l.ops().copy, l.view(a.starts, DType::I32, {a.count}, {1}, 1, a.count + 1),
               l.tensor(ends, DType::I32, {a.count}));
}

Status send_in_rounds(const auto& a, const void* scales, const Rounds& rounds, int64_t room, const uint8_t* x,
                      const uint8_t* experts, Launch& l) {
  const int64_t each = rounds.most() * group_of(l).ranks->size() * std::min(a.top_k, a.count), n = rounds.count(),
                groups = a.count + 1, row = a.width * (scales ? 1 : static_cast<int64_t>(size_of(a.type)));
  if (n * each > Context::kRows)
    return error(Code::Unsupported, "room for {} rows of experts in one step, at most {}", n * each, Context::kRows);
  const SentWords sent{a.sent, n, each, a.groups};
  RETURN_IF_ERROR(sent.fit(room));
  void *rows = l.scratch(static_cast<size_t>(n * each * row)), *ends = l.scratch(static_cast<size_t>(n * groups) * 8);
  void* steps = scales ? l.scratch(static_cast<size_t>(n * each) * sizeof(float)) : nullptr;
  for (int64_t r = 0; r < n; ++r)
    RETURN_IF_ERROR(send_round(a, rounds.at(r), x, experts,
                               {at(rows, r * each * row), steps ? at(steps, r * each * 4) : nullptr, sent.words(r),
                                sent.counts(r), at(ends, r * groups * 8)},
                               l));
  ASSIGN_OR_RETURN(const void* found, groups_of_rows(a.count, n, each, ends, l));
  return sort_rounds(a, found, sent, {rows, steps, nullptr, nullptr, nullptr}, scales, room, l);
}

SentShape shape_of(const auto& a, int64_t experts, const Launch& l) {
  return {group_of(l).ranks->size(), experts, a.top_k, a.width};
}

Rounds rounds_of(int64_t tokens, const SentShape& shape, const Launch& l) {
  return {tokens, shape.tokens_at_once(group_of(l).limits), shape.rows_of_token(), Context::kRows};
}

Status dispatch(const auto& a, const void* scales, Launch& l) {
  const Share share(a.tokens, l);
  if (!l.probing() && l.size(a.shared) != share.all())
    return error(Code::Internal, "rows of {} tokens over {} ranks, and room for {}", share.tokens(),
                 share.ranks().size(), l.size(a.shared));
  const SentShape shape = shape_of(a, a.count, l);
  const Rounds rounds = rounds_of(share.count(), shape, l);
  ASSIGN_OR_RETURN(const uint8_t* x, share.rows(a.x, a.type, a.width, false));
  ASSIGN_OR_RETURN(const uint8_t* experts, share.rows(a.experts, DType::I32, a.top_k, true));
  if (rounds.count() == 1) return send_at_once(a, scales, share.count(), x, experts, l);
  // The most that any number of tokens up to this one needs.
  if (l.at_bounds()) RETURN_IF_ERROR(send_at_once(a, scales, shape.tokens_at_once(group_of(l).limits), x, experts, l));
  return send_in_rounds(a, scales, rounds, share.count() * shape.rows_of_token(), x, experts, l);
}

Status dispatch_rows(const DispatchOverRanksArgs& a, Launch& l) { return dispatch(a, nullptr, l); }
Status dispatch_quantised(const DispatchQuantisedArgs& a, Launch& l) { return dispatch(a, a.scale.data, l); }

// What a round of coming back reads.
struct Returned {
  const void* rows;
  const void* words;
  const void* counts;
};

// Sums of the tokens of a round, in their place among those of the share.
Status add_round(const CombineDispatchedArgs& a, const Round& r, const Returned& from, const uint8_t* experts,
                 const uint8_t* weights, void* sums, Launch& l) {
  const Communicator& ranks = *group_of(l).ranks;
  const int64_t rows = r.most * ranks.size() * a.rows.factor, chosen = r.first * a.top_k * 4;
  return l.run(
      l.ops().combine_dispatched, l.tensor(from.rows, a.type, {rows, a.width}),
      l.tensor(experts + chosen, DType::I32, {r.tokens, a.top_k}),
      l.tensor(from.words, DType::I32, {rows * kAssistWords}), l.tensor(from.counts, DType::I32, {a.groups}),
      l.tensor(weights + chosen, DType::F32, {r.tokens, a.top_k}), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
      nullptr, ranks.experts().c_str(), ranks.size(), ranks.member().world().rank, a.groups, "", 0, 0, 0, 0, 0,
      r.most * ranks.size(), 0, 0, 0, "",
      l.tensor(at(sums, r.first * a.width * static_cast<int64_t>(size_of(a.type))), a.type, {r.tokens, a.width}));
}

// Rows go back to the places that they came to in their round.
Status add_rounds(const CombineDispatchedArgs& a, const Rounds& rounds, int64_t room, const uint8_t* experts,
                  const uint8_t* weights, void* sums, Launch& l) {
  const int64_t each = rounds.most() * group_of(l).ranks->size() * a.rows.factor, n = rounds.count();
  const SentWords sent{a.sent, n, each, a.groups};
  void* rows = l.scratch(static_cast<size_t>(each * a.width) * size_of(a.type));
  for (int64_t r = 0; r < n; ++r) {
    RETURN_IF_ERROR(l.run(l.ops().index_select, l.tensor(a.y, a.type, {room, a.width}), 0,
                          l.tensor(at(sent.places(), r * each * 4), DType::I32, {each}),
                          l.tensor(rows, a.type, {each, a.width})));
    RETURN_IF_ERROR(add_round(a, rounds.at(r), {rows, sent.words(r), sent.counts(r)}, experts, weights, sums, l));
  }
  return Status::ok();
}

Status combine_dispatched(const CombineDispatchedArgs& a, Launch& l) {
  const Share share(a.tokens, l);
  const Communicator& ranks = share.ranks();
  const SentShape shape = shape_of(a, a.groups / ranks.size(), l);
  const int64_t rows = share.count() * shape.rows_of_token(), element = static_cast<int64_t>(size_of(a.type));
  if (!l.probing() && l.size(a.rows) != rows)
    return error(Code::Internal, "combine_dispatched: {} rows, expected are {}", l.size(a.rows), rows);
  const Rounds rounds = rounds_of(share.count(), shape, l);
  ASSIGN_OR_RETURN(const uint8_t* experts, share.rows(a.experts, DType::I32, a.top_k, true));
  ASSIGN_OR_RETURN(const uint8_t* weights, share.rows(a.weights, DType::F32, a.top_k, false));
  const int64_t bytes = share.count() * a.width * element;
  void* sums = l.scratch(static_cast<size_t>(bytes));
  const int64_t once = rounds.count() == 1 ? share.count() : shape.tokens_at_once(group_of(l).limits);
  if (rounds.count() == 1 || l.at_bounds())
    RETURN_IF_ERROR(add_round(a, {0, once, once}, {a.y, a.sent, a.counts}, experts, weights, sums, l));
  if (rounds.count() > 1) RETURN_IF_ERROR(add_rounds(a, rounds, rows, experts, weights, sums, l));
  const bool more = share.all() != share.tokens() || l.at_bounds();
  void* all = more ? l.scratch(static_cast<size_t>(bytes * ranks.size())) : a.out.data;
  RETURN_IF_ERROR(l.enqueue([&](aclrtStream s) { return ranks.all_gather(sums, all, bytes, s); }));
  if (!more) return Status::ok();
  return l.run(l.ops().copy, l.tensor(a.out, a.type, {share.tokens(), a.width}),
               l.tensor(all, a.type, {share.tokens(), a.width}));
}

// The sizes of a call: its choices, the numbers of a row and the experts of a rank.
struct SentCall {
  int64_t choices, width, experts;

  static SentCall there(const OpCall& c) {
    return {c.in[1].shape[1].factor, c.in[0].shape[1].factor, c.attrs->integer("count")};
  }
  static SentCall back(const OpCall& c, int64_t ranks) {
    return {c.in[2].shape[1].factor, c.in[0].shape[1].factor, c.in[4].shape[0].factor / ranks};
  }
};

}  // namespace

void register_dispatch(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  const Communicator* ranks = context->communicator();
  if (!ranks || ranks->experts().empty()) return;
  const RoundLimits limits = RoundLimits::of(context->soc(), std::getenv("HCCL_BUFFSIZE"));
  const auto known = std::make_shared<std::map<int64_t, ExpertGroup>>();  // by experts of a rank
  const auto bind = [context, ranks, limits, known](int64_t experts, LaunchArgs& args) {
    const auto numbers = [&](const std::string& key, int64_t count, const auto& fill) {
      return context->constant(key, static_cast<size_t>(count) * 4, fill);
    };
    const auto from_zero = [](auto* to, int64_t count) { std::iota(to, to + count, 0); };
    args.constant = &((*known)[experts] =
                          ExpertGroup{ranks, limits,
                                      numbers("choices of no token", kMostChoices,
                                              [&](void* to) { from_zero(static_cast<int32_t*>(to), kMostChoices); }),
                                      numbers("row numbers in f32", Context::kRows,
                                              [&](void* to) { from_zero(static_cast<float*>(to), Context::kRows); }),
                                      context->row_numbers(), context->ones(),
                                      numbers(fmt::format("groups of {} experts", experts), group_numbers(experts),
                                              [&](void* to) { fill_groups(experts, static_cast<float*>(to)); })});
  };
  const auto accepts = [ranks, limits](const OpCall& c, const SentCall& call) -> Status {
    if (call.choices > kMostChoices)
      return error(Code::Unsupported, "at most {} choices of a token, unlike {}", kMostChoices, describe(c));
    return SentShape{ranks->size(), call.experts, call.choices, call.width}.fits(limits);
  };
  const auto there = [&](const char* op, AscendKernel kernel) {
    add(kernels, context,
        {.op = op,
         .kernel = kernel,
         .bind = [bind](const OpCall& c, LaunchArgs& args) { bind(SentCall::there(c).experts, args); },
         .accepts = [accepts](const OpCall& c) { return accepts(c, SentCall::there(c)); }});
  };
  there("dispatch_over_ranks", kernel<dispatch_rows>);
  there("dispatch_quantised", kernel<dispatch_quantised>);
  const int64_t size = ranks->size();
  add(kernels, context,
      {.op = "combine_dispatched",
       .kernel = kernel<combine_dispatched>,
       .bind = [bind, size](const OpCall& c, LaunchArgs& args) { bind(SentCall::back(c, size).experts, args); },
       .accepts = [accepts, size](const OpCall& c) { return accepts(c, SentCall::back(c, size)); }});
}

}  // namespace reprise::ascend

// Ops over ranks: what a rank hands to the others, and what is made of what they hand out.
//
// NCCL moves the bytes (exchange.h). Parts of equal size are gathered one rank after the other and laid into their
// columns by a kernel. Other parts of a result that a rank has (uneven columns, rows of its tokens or experts) are put
// among zeros, and the bits of all ranks are merged as integers. Sums of floats are made here, in the order of ranks,
// so that a row's bits follow neither from the size of the exchange nor from the library.
#pragma once

#include "backends/cuda/exchange.h"
#include "backends/cuda/kernels/elementwise.h"
#include "backends/cuda/rank_kernels.h"
#include "ops/args/collectives.h"

namespace reprise::cuda {

template <class Word, class L>
DEV void copy_words(L& lane, char* to, const char* from, int64_t bytes) {
  const Word* source = words_at<Word>(from);
  Word* target = words_at<Word>(to);
  const int64_t words = bytes / static_cast<int64_t>(sizeof(Word));
  for (int64_t i = lane.thread(); i < words; i += lane.threads()) target[i] = source ? source[i] : Word{};
}

// Copies `bytes`, or clears them where there is nothing to copy. `places`: what the addresses are multiples of, bit by
// bit.
template <class L>
DEV void copy_or_clear(L& lane, char* to, const char* from, int64_t bytes, int64_t places) {
  if ((bytes | places) % 16 == 0)
    copy_words<Sixteen>(lane, to, from, bytes);
  else if ((bytes | places) % 4 == 0)
    copy_words<uint32_t>(lane, to, from, bytes);
  else if ((bytes | places) % 2 == 0)
    copy_words<uint16_t>(lane, to, from, bytes);
  else
    copy_words<uint8_t>(lane, to, from, bytes);
}

// Row i of `out` is row i of each rank's part, side by side; sizes in bytes. One block a row.
struct LayColumns {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const char* parts;
  char* out;
  int64_t rows, width, ranks;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t row = lane.block();
    for (int64_t r = 0; r < ranks; ++r)
      copy_or_clear(lane, out + (row * ranks + r) * width, parts + (r * rows + row) * width, width, width);
  }
};

// Row i of `out` has row i of `x` from byte `first` on and zeros around it, or zeros alone where the row is another
// rank's: its id is negative, or it lies outside the groups. One block a row.
struct PutOwn {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const char* x;
  const int32_t* ids;     // null: every row is here
  const int32_t* starts;  // null: likewise
  char* out;
  int64_t groups, width, first, of;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t row = lane.block();
    const bool mine = (!ids || ids[row] >= 0) && (!starts || (row >= starts[0] && row < starts[groups]));
    const int64_t behind = first + width;
    char* to = out + row * of;
    copy_or_clear(lane, to, nullptr, first, of);
    copy_or_clear(lane, to + first, mine ? x + row * width : nullptr, width, first | of);
    copy_or_clear(lane, to + behind, nullptr, of - behind, behind | of);
  }
};

// The sum of all ranks' parts from rank 0 on (+ bias), in fp32, rounded once. Eight numbers a thread, or one where rows
// are no multiple of eight.
template <class E>
struct AddParts {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const typename E::Type* parts;
  const typename E::Type* bias;  // null: none
  typename E::Type* out;
  int64_t rows, width, ranks;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t unit = static_cast<int64_t>(lane.block()) * lane.threads() + lane.thread(), n = rows * width;
    if (width % 8 == 0) {
      const int64_t i = unit * 8;
      if (i >= n) return;
      float sum[8], next[8];
      load_eight<E>(parts + i, sum);
      for (int64_t r = 1; r < ranks; ++r) {
        load_eight<E>(parts + r * n + i, next);
        UNROLL
        for (int j = 0; j < 8; ++j) sum[j] = sum[j] + next[j];
      }
      if (bias) {
        load_eight<E>(bias + i % width, next);
        UNROLL
        for (int j = 0; j < 8; ++j) sum[j] = sum[j] + next[j];
      }
      store_eight<E>(out + i, sum);
    } else if (unit < n) {
      float sum = E::load(parts[unit]);
      for (int64_t r = 1; r < ranks; ++r) sum = sum + E::load(parts[r * n + unit]);
      if (bias) sum = sum + E::load(bias[unit % width]);
      out[unit] = E::store(sum);
    }
  }
};

// One thread a number.
template <class F>
struct EachNumber {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  int64_t n;
  F number;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t i = static_cast<int64_t>(lane.block()) * lane.threads() + lane.thread();
    if (i < n) number(i);
  }
};

struct LocalId {
  const int32_t* ids;
  int32_t* out;
  int64_t first, count;
  DEV void operator()(int64_t i) const {
    const int64_t local = ids[i] - first;
    out[i] = local >= 0 && local < count ? static_cast<int32_t>(local) : -1;
  }
};
struct OwnBorder {
  const int32_t* starts;
  int32_t* out;
  int64_t first;
  DEV void operator()(int64_t i) const { out[i] = starts[first + i]; }
};
// A row's slot, or none where the row is another part's.
struct OwnSlot {
  const int32_t* slots;
  const int32_t* rows;
  int32_t* out;
  DEV void operator()(int64_t i) const { out[i] = i >= rows[0] && i < rows[1] ? slots[i] : -1; }
};
// The borders of sequences, those of other parts without rows.
struct OwnRow {
  const int32_t* borders;
  const int32_t* rows;
  int32_t* out;
  DEV void operator()(int64_t i) const {
    const int32_t b = borders[i] < rows[1] ? borders[i] : rows[1];
    out[i] = b > rows[0] ? b : rows[0];
  }
};
struct ArgmaxPair {
  const float* x;
  const int32_t* ids;
  int32_t* out;
  int64_t width, first;
  DEV void operator()(int64_t i) const {
    out[2 * i] = static_cast<int32_t>(bits_of(x[i * width + ids[i]]));
    out[2 * i + 1] = static_cast<int32_t>(first + ids[i]);
  }
};
// The first of the largest; NaN is never larger.
struct MergePairs {
  const int32_t* pairs;
  int32_t* out;
  int64_t ranks;
  DEV void operator()(int64_t i) const {
    const int32_t* row = pairs + 2 * ranks * i;
    int64_t best = 0;
    float largest = -__builtin_huge_valf();
    for (int64_t r = 0; r < ranks; ++r)
      if (const float value = float_of(static_cast<uint32_t>(row[2 * r])); value > largest) {
        largest = value;
        best = r;
      }
    out[i] = row[2 * best + 1];
  }
};

template <class F, class L>
void run_each(L& launch, int64_t n, const F& number) {
  launch.run(blocks_for(n, kElementThreads), kElementThreads, 0, EachNumber<F>{n, number});
}

// The other ranks, as a launch reaches them. What a launch does behind a call that failed is of no use, and does no
// harm.
template <class L>
class Others {
 public:
  Others(const LaunchArgs& args, L& launch)
      : exchange_(*const_cast<Exchange*>(static_cast<const Exchange*>(args.constant))),
        ranks_(args.way),
        launch_(launch) {}
  int64_t ranks() const { return ranks_; }
  int64_t rank() const { return exchange_.rank(); }
  int64_t worth_a_meeting() const { return exchange_.worth_a_meeting(); }
  void deal(const void* from, void* to, int64_t bytes, int64_t share) const {
    told(exchange_.deal(from, to, bytes, share, launch_.stream()));
  }
  void merge(void* data, int64_t bytes) const { told(exchange_.merge(data, bytes, launch_.stream())); }
  void gather(const void* from, void* to, int64_t bytes) const {
    told(exchange_.all_gather(from, to, bytes, launch_.stream()));
  }

 private:
  void told(const char* words) const {
    if (words) launch_.fail(words);
  }
  Exchange& exchange_;
  int64_t ranks_;
  L& launch_;
};

// A body void(const Args&, const Others<L>&, L&) as a CudaKernel.
template <class A, class L>
void enter_over_ranks(void (*body)(const A&, const Others<L>&, L&), const LaunchArgs& args, L& launch) {
  body(args.as<A>(), Others<L>(args, launch), launch);
}
template <class L, auto kBody>
void over_ranks(const LaunchArgs& args, const LiveSizes& live, Launch& launch) {
  launch.begin(args, live);
  enter_over_ranks(kBody, args, static_cast<L&>(launch));
}

template <class L>
void run_all_gather(const AllGatherArgs& a, const Others<L>& others, L& launch) {
  const int64_t rows = launch.size(a.rows);
  if (!a.even) {
    launch.run(rows, kElementThreads, 0, PutOwn{a.x, nullptr, nullptr, a.out, 0, a.width, a.first, a.of});
    return others.merge(a.out.data, rows * a.of);
  }
  if (rows == 1) return others.gather(a.x.data, a.out.data, a.width);  // lies right at once
  others.gather(a.x.data, launch.workspace, rows * a.width);
  launch.run(rows, kElementThreads, 0,
             LayColumns{static_cast<const char*>(launch.workspace), a.out, rows, a.width, a.of / a.width});
}

template <class L>
void run_gather_owned(const GatherOwnedArgs& a, const Others<L>& others, L& launch) {
  const int64_t rows = launch.size(a.rows);
  launch.run(rows, kElementThreads, 0, PutOwn{a.x, a.ids, nullptr, a.out, 0, a.width, 0, a.width});
  others.merge(a.out.data, rows * a.width);
}

template <class L>
void run_gather_groups(const GatherGroupsArgs& a, const Others<L>& others, L& launch) {
  const int64_t rows = launch.size(a.rows);
  launch.run(rows, kElementThreads, 0, PutOwn{a.x, nullptr, a.starts, a.out, a.groups, a.width, a.first, a.of});
  others.merge(a.out.data, rows * a.of);
}

template <class E, class L>
void add_parts(const AllReduceArgs& a, int64_t ranks, const typename E::Type* parts, typename E::Type* out,
               int64_t rows, L& launch) {
  launch.run(blocks_for(rows * a.width, kElementThreads * (a.width % 8 == 0 ? 8 : 1)), kElementThreads, 0,
             AddParts<E>{parts, a.bias, out, rows, a.width, ranks});
}

// With few rows every rank gets all parts and adds all rows. With many rows each rank adds its share of them, and the
// sums are gathered: the same additions, elsewhere.
template <class E, class L>
void run_all_reduce(const AllReduceArgs& a, const Others<L>& others, L& launch) {
  using T = typename E::Type;
  constexpr auto kElement = static_cast<int64_t>(sizeof(T));
  const int64_t rows = launch.size(a.rows), n = rows * a.width, ranks = others.ranks();
  auto* parts = static_cast<T*>(launch.workspace);
  T* out = a.out;
  if (rows < ranks || n * kElement * (ranks - 1) * (ranks - 2) < others.worth_a_meeting() * ranks) {
    others.gather(a.x.data, parts, n * kElement);
    return add_parts<E>(a, ranks, parts, out, rows, launch);
  }
  const int64_t share = (rows + ranks - 1) / ranks, first = share * others.rank();
  const int64_t mine = first >= rows ? 0 : rows - first < share ? rows - first : share;
  others.deal(a.x.data, parts, n * kElement, share * a.width * kElement);
  // Shares that are not equal are gathered beside the parts, with rubbish at the end.
  const int64_t behind = (ranks * share * a.width * kElement + 15) / 16 * 16;  // they are read in words of 16 bytes
  T* sums = rows % ranks == 0 ? out : parts + behind / kElement;
  add_parts<E>(a, ranks, parts, sums + first * a.width, mine, launch);
  others.gather(sums + first * a.width, sums, share * a.width * kElement);
  if (sums == out) return;
  launch.run(blocks_for(n * kElement, kElementThreads * 16), kElementThreads, 0,
             CopyBytes{reinterpret_cast<const char*>(sums), reinterpret_cast<char*>(out), n * kElement});
}

template <class L>
void run_local_ids(const LocalIdsArgs& a, L& launch) {
  run_each(launch, launch.size(a.rows), LocalId{a.ids, a.out, a.first, a.count});
}
template <class L>
void run_own_groups(const OwnGroupsArgs& a, L& launch) {
  run_each(launch, a.count + 1, OwnBorder{a.starts, a.out, a.first});
}
template <class L>
void run_own_slots(const OwnIndicesArgs& a, L& launch) {
  run_each(launch, launch.size(a.count), OwnSlot{a.indices, a.rows, a.out});
}
template <class L>
void run_own_cu_seqlens(const OwnIndicesArgs& a, L& launch) {
  run_each(launch, launch.size(a.count), OwnRow{a.indices, a.rows, a.out});
}
template <class L>
void run_argmax_pairs(const ArgmaxPairsArgs& a, L& launch) {
  run_each(launch, launch.size(a.rows), ArgmaxPair{a.x, a.ids, a.out, a.width, a.first});
}
template <class L>
void run_merge_argmax(const MergeArgmaxArgs& a, L& launch) {
  run_each(launch, launch.size(a.rows), MergePairs{a.pairs, a.out, a.ranks});
}

template <class L>
void fill_ranks_of(RankKernels& table) {
  table.all_reduce = {over_ranks<L, run_all_reduce<F32, L>>, over_ranks<L, run_all_reduce<BF16, L>>,
                      over_ranks<L, run_all_reduce<F16, L>>};
  table.all_gather = over_ranks<L, run_all_gather<L>>;
  table.gather_owned = over_ranks<L, run_gather_owned<L>>;
  table.gather_groups = over_ranks<L, run_gather_groups<L>>;
  table.local_ids = erased<L, run_local_ids<L>>;
  table.own_groups = erased<L, run_own_groups<L>>;
  table.own_slots = erased<L, run_own_slots<L>>;
  table.own_cu_seqlens = erased<L, run_own_cu_seqlens<L>>;
  table.argmax_pairs = erased<L, run_argmax_pairs<L>>;
  table.merge_argmax = erased<L, run_merge_argmax<L>>;
}

}  // namespace reprise::cuda

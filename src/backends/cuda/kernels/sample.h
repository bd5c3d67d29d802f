// Kernels that draw tokens: the steps of ops/draw_rule.h with the arithmetic of ops/draw_math.h, so that a row, seed
// and position give the CPU's token; and `mask_logits` by ops/logit_edit.h, with the CPU's bits.
//
// A block draws a row. What adds up in a fixed order is added by one thread; everything else is shared out. Candidates
// are sorted whole, in shared memory where they are few: a row of which top-p keeps most tokens takes milliseconds.
#pragma once

#include "backends/cuda/kernel_table.h"
#include "backends/cuda/kernels/elementwise.h"
#include "backends/cuda/kernels/lane.h"
#include "backends/cuda/kernels/sample_sizes.h"
#include "ops/args/elements.h"
#include "ops/draw_math.h"
#include "ops/logit_edit.h"

namespace reprise::cuda {

constexpr int kSampleThreads = 512, kSampleWarps = kSampleThreads / 32;
constexpr int64_t kSortedInShared = 2048;  // candidates

inline size_t sample_shared_bytes(int64_t columns) {
  const int64_t floats = draw::blocks(columns, draw::kPeakBlock) + draw::blocks(columns, draw::kBlock);
  return static_cast<size_t>(kSampleWarps) * 16 + static_cast<size_t>(kSortedInShared) * sizeof(draw::Candidate) +
         static_cast<size_t>(floats) * sizeof(float);
}

// A row in the hands of a block. Functions are called by all threads together, and return the same in all.
template <class L>
class RowOfBlock {
 public:
  DEV RowOfBlock(L& lane, int64_t columns, draw::Candidate* global)
      : lane_(lane),
        n_(columns),
        peak_count_(draw::blocks(columns, draw::kPeakBlock)),
        sum_count_(draw::blocks(columns, draw::kBlock)),
        slots_(lane.shared()),
        near_(reinterpret_cast<draw::Candidate*>(lane.shared() + kSampleWarps * 16)),
        far_(global),
        peaks_(reinterpret_cast<float*>(near_ + kSortedInShared)),
        sums_(peaks_ + peak_count_) {}

  DEV int32_t token(const float* row, const Draw& d) {
    const draw::Candidate best = largest(row);
    if (best.token < 0 || d.scale == 0 || d.top_k == 1) return best.token;
    const double number = draw::uniform(d.seed, d.position);
    return draw::draws_among_all(d, n_) ? among_all(row, best.value, d, number)
                                        : among_best(row, best.value, d, number);
  }

  // The largest logit and the first place where it stands, -1 where one is no number (then it is NaN) or none is left
  // (-infinity); the peaks.
  DEV draw::Candidate largest(const float* row) {
    uint64_t best = 0;
    for (int64_t first = warp() * kPeaks; first < peak_count_; first += kSampleWarps * kPeaks) {
      float v[2 * kPeaks];
      UNROLL
      for (int k = 0; k < 2 * kPeaks; ++k) v[k] = at(row, first * draw::kPeakBlock + k * 32 + lane_.thread() % 32);
      UNROLL
      for (int k = 0; k < kPeaks; ++k) {
        const float peak = warp_max(lane_, v[2 * k + 1] > v[2 * k] ? v[2 * k + 1] : v[2 * k]);
        if (lane_.thread() % 32 == 0 && first + k < peak_count_) peaks_[first + k] = peak;
      }
      UNROLL
      for (int k = 0; k < 2 * kPeaks; ++k)
        best = greater(best, key_of(v[k], first * draw::kPeakBlock + k * 32 + lane_.thread() % 32));
    }
    best = over_block(best, [](uint64_t a, uint64_t b) { return greater(a, b); });
    if (best == kWrong || best == 0) return {best == 0 ? draw::kNone : float_of(0x7fc00000u), -1};
    const auto token = static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(best));
    return {row[token], token};
  }

  // The sum of all weights; sums_ gets those of the blocks. Those below the least count nothing.
  DEV double weigh(const float* row, float top, float scale, float least) {
    const int lane = lane_.thread() % draw::kLanes;
    for (int64_t first = 0; first < sum_count_; first += kSampleThreads / draw::kLanes) {
      const int64_t block = first + lane_.thread() / draw::kLanes;
      float v[draw::kBlock / draw::kLanes], sum = 0;
      UNROLL
      for (int k = 0; k < draw::kBlock / draw::kLanes; ++k)
        v[k] = at(row, block * draw::kBlock + k * draw::kLanes + lane);
      UNROLL
      for (int k = 0; k < draw::kBlock / draw::kLanes; ++k) {
        const float w = draw::weight(v[k], top, scale);
        sum = sum + (w >= least ? w : 0.0f);
      }
      UNROLL
      for (int mask = draw::kLanes / 2; mask > 0; mask /= 2) sum = sum + lane_.shuffle_xor(sum, mask);
      if (lane == 0 && block < sum_count_) sums_[block] = sum;
    }
    lane_.sync();
    return by_first([&] { return draw::sum_of(sum_count_, [&](int64_t b) { return sums_[b]; }); });
  }

  DEV float sum_of_block(int64_t block) const { return sums_[block]; }

  // The place in a block of the row, which begins at `begin`, where the sum of the weights, from `before` on, passes
  // `goal`.
  DEV int64_t pick_of_block(const float* row, int64_t begin, float top, const Draw& d, double goal, double before) {
    const int64_t count = smaller(n_ - begin, draw::kBlock);
    for (int64_t k = lane_.thread(); k < count; k += kSampleThreads) {
      const float w = draw::weight(row[begin + k], top, d.scale);
      near_[k].value = w < d.min_p ? 0.0f : w;
    }
    lane_.sync();
    return by_first([&] { return draw::pick(goal, before, count, [&](int64_t k) { return near_[k].value; }); });
  }

  // Candidates that reach `count` peaks' logit, best first; how many there are. The peaks are largest()'s.
  DEV int64_t best_of(const float* row, float limit) {
    int64_t mine = 0;
    each_reaching(row, limit, [&](int64_t, float) { ++mine; });
    int64_t total = 0, place = before_mine(mine, total);
    list_ = total <= kSortedInShared ? near_ : far_;
    each_reaching(row, limit, [&](int64_t i, float v) { list_[place++] = {v, static_cast<int32_t>(i)}; });
    lane_.sync();
    sort(total);
    return total;
  }
  DEV float reached_by(int64_t count) {
    return draw::reached_by(count, peak_count_, [&](int64_t key) {
      int64_t mine = 0;
      for (int64_t b = lane_.thread(); b < peak_count_; b += kSampleThreads) mine += draw::ordered(peaks_[b]) >= key;
      return over_block(mine, [](int64_t a, int64_t b) { return a + b; });
    });
  }
  DEV const draw::Candidate& candidate(int64_t i) const { return list_[i]; }

  // f() in one thread, told to all.
  template <class F>
  DEV auto by_first(const F& f) {
    using T = decltype(f());
    static_assert(sizeof(T) <= 16);
    if (lane_.thread() == 0) *reinterpret_cast<T*>(slots_) = f();
    lane_.sync();
    const T result = *reinterpret_cast<T*>(slots_);
    lane_.sync();
    return result;
  }

 private:
  static constexpr int kPeaks = 8;  // of a warp at once: so many loads are under way
  static constexpr uint64_t kWrong = ~uint64_t{0};

  DEV int64_t warp() const { return lane_.thread() / 32; }
  DEV float at(const float* row, int64_t i) const { return i < n_ ? row[i] : draw::kNone; }

  // In the order of logits, the smaller id on a tie; what is no number above all, -infinity and what is beyond below.
  DEV uint64_t key_of(float v, int64_t i) const {
    if (i >= n_ || v == draw::kNone) return 0;
    if (!(v < draw::kInfinity)) return kWrong;
    return static_cast<uint64_t>(static_cast<uint32_t>(draw::ordered(v)) ^ 0x80000000u) << 32 |
           (0xffffffffu - static_cast<uint32_t>(i));
  }

  template <class T, class F>
  DEV T over_block(T v, const F& join) {
    UNROLL
    for (int mask = 16; mask > 0; mask >>= 1) v = join(v, lane_.shuffle_xor(v, mask));
    T* slots = reinterpret_cast<T*>(slots_);
    if (lane_.thread() % 32 == 0) slots[warp()] = v;
    lane_.sync();
    v = slots[0];
    for (int w = 1; w < kSampleWarps; ++w) v = join(v, slots[w]);
    lane_.sync();
    return v;
  }

  // What the threads before this one have, and what all have.
  DEV int64_t before_mine(int64_t mine, int64_t& total) {
    const int lane = lane_.thread() % 32;
    int64_t sum = mine;
    UNROLL
    for (int step = 1; step < 32; step *= 2) {
      const int64_t other = lane_.shuffle(sum, greater(lane - step, 0));
      if (lane >= step) sum += other;
    }
    auto* slots = reinterpret_cast<int64_t*>(slots_);
    if (lane == 31) slots[warp()] = sum;
    lane_.sync();
    int64_t before = sum - mine;
    total = 0;
    for (int w = 0; w < kSampleWarps; ++w) {
      if (w < warp()) before += slots[w];
      total += slots[w];
    }
    lane_.sync();
    return before;
  }

  // f(i, logit) of this thread's tokens that reach the limit.
  template <class F>
  DEV void each_reaching(const float* row, float limit, const F& f) {
    for (int64_t b = warp(); b < peak_count_; b += kSampleWarps) {
      if (!(peaks_[b] >= limit)) continue;
      for (int64_t i = b * draw::kPeakBlock + lane_.thread() % 32; i < (b + 1) * draw::kPeakBlock; i += 32)
        if (const float v = at(row, i); v >= limit && v != draw::kNone) f(i, v);
    }
  }

  // Bitonic, each stage in one direction, so that places behind the last one would stay where they are.
  DEV void sort(int64_t count) {
    for (int64_t half = 1; half < count; half *= 2) {
      exchange(count, half, [&](int64_t p) { return 2 * half - 1 - 2 * (p & (half - 1)); });
      for (int64_t step = half / 2; step > 0; step /= 2) exchange(count, step, [&](int64_t) { return step; });
    }
  }
  // Pairs of a place in a lower half of `half` and the one that is so far behind it.
  template <class F>
  DEV void exchange(int64_t count, int64_t half, const F& distance) {
    for (int64_t p = lane_.thread();; p += kSampleThreads) {
      const int64_t i = (p & ~(half - 1)) * 2 + (p & (half - 1)), j = i + distance(p);
      if (i >= count) break;
      if (j >= count || !draw::better(list_[j], list_[i])) continue;
      const draw::Candidate other = list_[i];
      list_[i] = list_[j];
      list_[j] = other;
    }
    lane_.sync();
  }

  DEV int32_t among_all(const float* row, float top, const Draw& d, double number) {
    const double goal = number * weigh(row, top, d.scale, d.min_p);
    const draw::Place at =
        by_first([&] { return draw::place_of(goal, sum_count_, [&](int64_t b) { return sums_[b]; }); });
    const int64_t begin = at.block * draw::kBlock, i = pick_of_block(row, begin, top, d, goal, at.before);
    return i < 0 ? -1 : static_cast<int32_t>(begin + i);
  }

  DEV int32_t among_best(const float* row, float top, const Draw& d, double number) {
    constexpr int64_t kMore = -2;
    const bool by_count = draw::draws_by_count(d, n_);
    const double all = by_count ? 0 : weigh(row, top, d.scale, 0);
    for (int round = 0;; ++round) {
      const float limit = by_count     ? reached_by(d.top_k)
                          : round == 0 ? reached_by(smaller<int64_t>(64, peak_count_))
                          : round == 1 ? reached_by(512)
                                       : draw::kNone;
      const int64_t found = best_of(row, limit), count = by_count ? smaller<int64_t>(found, d.top_k) : found;
      for (int64_t i = lane_.thread(); i < count; i += kSampleThreads)
        list_[i].value = draw::weight(list_[i].value, top, d.scale);
      lane_.sync();
      const int64_t i = by_first([&] {
        const auto weight_of = [&](int64_t k) { return list_[k].value; };
        const double total = by_count ? draw::sum_of(count, weight_of) : all;
        const int64_t kept = draw::nucleus(d.top_p, total, count, weight_of);
        if (kept > count && !by_count && limit != draw::kNone) return kMore;
        return draw::among(smaller(kept, count), d, number, weight_of);
      });
      if (i != kMore) return i < 0 ? -1 : list_[i].token;
    }
  }

  L& lane_;
  int64_t n_, peak_count_, sum_count_;
  char* slots_;                      // a word for each warp
  draw::Candidate *near_, *far_;     // of shared memory; of the block's scratch memory
  draw::Candidate* list_ = nullptr;  // best_of()'s
  float *peaks_, *sums_;             // of the blocks of the row
};

struct SampleRows {
  static constexpr int kThreads = kSampleThreads, kBlocks = 1;
  const float* logits;
  const float* edited;
  const int32_t* draws;
  int32_t* token;
  float* logprob;
  int32_t* top_tokens;
  float* top_logprobs;
  int64_t rows, columns;
  draw::Candidate* scratch;

  template <class L>
  DEV void operator()(L& lane) const {
    RowOfBlock<L> block(lane, columns, scratch + lane.block() * columns);
    for (int64_t r = lane.block(); r < rows; r += lane.blocks()) {
      const Draw d = draw::of_row(draws, r);
      const float* row = logits + r * columns;
      const int32_t drawn = block.token(d.edited > 0 ? edited + (d.edited - 1) * columns : row, d);
      if (lane.thread() == 0) token[r] = drawn;
      tell(lane, block, r, row, drawn, drawn < 0 ? -1 : d.logprobs);
    }
  }

 private:
  // Log-probabilities, of the row as the model gave it.
  template <class L>
  DEV void tell(L& lane, RowOfBlock<L>& block, int64_t r, const float* row, int32_t drawn, int32_t asked) const {
    double sum = 0;
    float top = 0;
    int64_t shown = 0;
    if (asked >= 0) {
      top = block.largest(row).value;
      const double total = block.weigh(row, top, 1, 0);
      sum = block.by_first([&] { return ::log(total); });
      shown = smaller<int64_t>(asked, kMostTopTokens);
      if (shown > 0) shown = smaller(shown, block.best_of(row, block.reached_by(shown)));
    }
    if (lane.thread() == 0) logprob[r] = asked < 0 ? 0 : draw::logprob(row[drawn], top, sum);
    if (const int64_t i = lane.thread(); i < kMostTopTokens) {
      const int64_t to = r * kMostTopTokens + i;
      top_tokens[to] = i < shown ? block.candidate(i).token : -1;
      top_logprobs[to] = i < shown ? draw::logprob(block.candidate(i).value, top, sum) : 0;
    }
    lane.sync();
  }
};

// The row that is edited, with the bits of its mask; block_y is the row of the result. Rows begin at column `first` of
// the vocabulary, and have `columns` of it.
struct MaskRows {
  static constexpr int kThreads = kElementThreads, kBlocks = 1, kEach = 4;
  const float* logits;
  const int32_t* edits;
  const int32_t* words;
  float* out;
  int64_t columns, first;

  template <class L>
  DEV void operator()(L& lane) const {
    const LogitEdit e = edit::of_row(edits, lane.block_y());
    const float* from = logits + e.row * columns;
    float* to = out + lane.block_y() * columns;
    const auto* mask = reinterpret_cast<const uint32_t*>(words) + e.mask;
    UNROLL
    for (int k = 0; k < kEach; ++k) {
      const int64_t i = (static_cast<int64_t>(lane.block()) * kEach + k) * lane.threads() + lane.thread();
      if (i < columns) to[i] = e.mask < 0 || edit::allows(mask, first + i) ? from[i] : edit::forbidden(from[i]);
    }
  }
};

// Biases, then penalties; a block a row. Rows are as MaskRows has them.
struct EditRows {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const int32_t* edits;
  const int32_t* words;
  float* out;
  int64_t columns, first;

  template <class L>
  DEV void operator()(L& lane) const {
    const LogitEdit e = edit::of_row(edits, lane.block());
    float* row = out + lane.block() * columns;
    for (int64_t k = lane.thread(); k < e.bias_count; k += lane.threads())
      edit::add_bias(row, first, columns, e, words, k);
    lane.sync();
    for (int64_t k = lane.thread(); k < e.count_count; k += lane.threads())
      edit::penalise(row, first, columns, e, words, k);
  }
};

template <class L>
void run_sample(const SampleArgs& a, L& launch) {
  const int64_t rows = launch.size(a.rows);
  launch.run(smaller(rows, kSampleBlocks), kSampleThreads, sample_shared_bytes(a.columns),
             SampleRows{a.logits, a.edited, a.draws, a.token, a.logprob, a.top_tokens, a.top_logprobs, rows, a.columns,
                        static_cast<draw::Candidate*>(launch.workspace)});
}

// Edits whole rows, or a rank's columns of them.
template <class A, class L>
void run_edits(const A& a, int64_t first, L& launch) {
  const int64_t rows = launch.size(a.rows);
  launch.run(blocks_for(a.columns, kElementThreads * MaskRows::kEach), kElementThreads, 0,
             MaskRows{a.logits, a.edits, a.words, a.out, a.columns, first}, rows);
  launch.run(rows, kElementThreads, 0, EditRows{a.edits, a.words, a.out, a.columns, first});
}

template <class L>
void run_mask_logits(const MaskLogitsArgs& a, L& launch) {
  run_edits(a, 0, launch);
}

template <class L>
void fill_sample_of(KernelTable& table) {
  table.sample = erased<L, run_sample<L>>;
  table.mask_logits = erased<L, run_mask_logits<L>>;
}

}  // namespace reprise::cuda

// Kernels that draw tokens from rows of logits whose columns ranks share out (ops/draws.h): the steps of
// ops/draw_parts.h as sample.h takes them, so that what a rank sends has the CPU's bits. What was sent decides a token
// by ops/draw_merge.h, in one thread a row: candidates are looked at best first, and few are needed.
#pragma once

#include "backends/cuda/kernels/sample.h"
#include "ops/args/draws.h"
#include "ops/draw_merge.h"

namespace reprise::cuda {

// Rows of this rank's columns, and of those that were edited.
struct OwnRows {
  const float* logits;
  const float* edited;
  const int32_t* draws;
  int64_t rows, columns;

  DEV const float* at(int64_t r, const Draw& d) const {
    return d.edited > 0 ? edited + (d.edited - 1) * columns : logits + r * columns;
  }
};

// f(block, r) of the rows of a block; candidates that shared memory does not hold lie in `far`.
template <class L, class F>
DEV void each_row(L& lane, const OwnRows& own, draw::Candidate* far, const F& f) {
  RowOfBlock<L> block(lane, own.columns, far ? far + lane.block() * own.columns : nullptr);
  for (int64_t r = lane.block(); r < own.rows; r += lane.blocks()) f(block, r);
}

struct FindTops {
  static constexpr int kThreads = kSampleThreads, kBlocks = 1;
  OwnRows own;
  float* out;

  template <class L>
  DEV void operator()(L& lane) const {
    each_row(lane, own, nullptr, [&](RowOfBlock<L>& block, int64_t r) {
      const float top = block.largest(own.at(r, draw::of_row(own.draws, r))).value;
      if (lane.thread() == 0) out[r] = top;
    });
  }
};

struct SumBlocks {
  static constexpr int kThreads = kSampleThreads, kBlocks = 1;
  OwnRows own;
  const float* tops;
  float* out;
  int64_t of, ranks;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t count = draw::blocks(own.columns, draw::kBlock);
    each_row(lane, own, nullptr, [&](RowOfBlock<L>& block, int64_t r) {
      const Draw d = draw::of_row(own.draws, r);
      const draw::Need need = draw::need_of(d, of);
      float top = 0;
      const bool wanted =
          (need == draw::Need::Sums || need == draw::Need::Share) && draw::top_of(tops + r * ranks, ranks, top);
      if (wanted) (void)block.weigh(own.at(r, d), top, d.scale, need == draw::Need::Sums ? d.min_p : 0.0f);
      for (int64_t b = lane.thread(); b < count; b += lane.threads())
        out[r * count + b] = wanted ? block.sum_of_block(b) : 0.0f;
      lane.sync();
    });
  }
};

struct FindBest {
  static constexpr int kThreads = kSampleThreads, kBlocks = 1;
  OwnRows own;
  const float* tops;
  const float* sums;
  int32_t* out;
  int64_t first, of, ranks, most;
  draw::Candidate* scratch;

  // How many candidates are sent (-1: of more than were looked at), and whether there are more.
  struct Sent {
    int32_t count, more;
  };

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t words = 2 + 2 * most;
    each_row(lane, own, scratch, [&](RowOfBlock<L>& block, int64_t r) {
      const Draw d = draw::of_row(own.draws, r);
      int32_t* to = out + r * words;
      float top = 0;
      const Sent sent = draw::top_of(tops + r * ranks, ranks, top) ? send(lane, block, d, r, top, to + 2) : Sent{0, 0};
      for (int64_t i = 2 + 2 * int64_t{sent.count} + lane.thread(); i < words; i += lane.threads()) to[i] = 0;
      if (lane.thread() == 0) to[0] = sent.count, to[1] = sent.more;
      lane.sync();
    });
  }

 private:
  template <class L>
  DEV Sent send(L& lane, RowOfBlock<L>& block, const Draw& d, int64_t r, float top, int32_t* to) const {
    const float* row = own.at(r, d);
    const float* weights = sums + r * draw::blocks(of, draw::kBlock);
    switch (draw::need_of(d, of)) {
      case draw::Need::Largest: return send_largest(lane, block.largest(row), top, to);
      case draw::Need::Sums: return send_of_block(lane, block, d, row, top, weights, to);
      case draw::Need::Count: return send_count(lane, block, d, row, to);
      case draw::Need::Share: return send_share(lane, block, d, row, top, weights, to);
      case draw::Need::Row: break;
    }
    return {0, 0};
  }

  DEV void put(int32_t* to, int64_t i, const draw::Candidate& c) const {
    to[2 * i] = static_cast<int32_t>(bits_of(c.value));
    to[2 * i + 1] = static_cast<int32_t>(first) + c.token;
  }

  template <class L>
  DEV Sent send_largest(L& lane, const draw::Candidate& best, float top, int32_t* to) const {
    if (best.token < 0 || best.value != top) return {0, 0};
    if (lane.thread() == 0) put(to, 0, best);
    return {1, 0};
  }

  // Every rank finds the block; the one that has it finds the token.
  template <class L>
  DEV Sent send_of_block(L& lane, RowOfBlock<L>& block, const Draw& d, const float* row, float top,
                         const float* weights, int32_t* to) const {
    const int64_t count = draw::blocks(of, draw::kBlock);
    const auto weight_of = [&](int64_t b) { return weights[b]; };
    const double goal =
        block.by_first([&] { return draw::uniform(d.seed, d.position) * draw::sum_of(count, weight_of); });
    const draw::Place at = block.by_first([&] { return draw::place_of(goal, count, weight_of); });
    const int64_t begin = at.block * draw::kBlock - first;
    if (begin < 0 || begin >= own.columns) return {0, 0};
    const int64_t i = block.pick_of_block(row, begin, top, d, goal, at.before);
    if (lane.thread() == 0) {
      to[0] = 0;
      to[1] = i < 0 ? -1 : static_cast<int32_t>(first + begin + i);
    }
    return {1, 0};
  }

  template <class L>
  DEV Sent send_count(L& lane, RowOfBlock<L>& block, const Draw& d, const float* row, int32_t* to) const {
    (void)block.largest(row);  // for the peaks
    const float limit = block.reached_by(d.top_k);
    const int64_t found = block.best_of(row, limit), asked = smaller<int64_t>(most, d.top_k);
    const int64_t count = smaller(found, asked);
    for (int64_t i = lane.thread(); i < count; i += lane.threads()) put(to, i, block.candidate(i));
    return {static_cast<int32_t>(count), found > asked || limit != draw::kNone ? 1 : 0};
  }

  // Until the rank's own tokens alone are the share.
  template <class L>
  DEV Sent send_share(L& lane, RowOfBlock<L>& block, const Draw& d, const float* row, float top, const float* weights,
                      int32_t* to) const {
    const int64_t peaks = draw::blocks(own.columns, draw::kPeakBlock);
    (void)block.largest(row);
    const double goal = block.by_first([&] {
      return static_cast<double>(d.top_p) *
             draw::sum_of(draw::blocks(of, draw::kBlock), [&](int64_t b) { return weights[b]; });
    });
    for (int round = 0;; ++round) {
      const float limit = round == 0   ? block.reached_by(smaller<int64_t>(64, peaks))
                          : round == 1 ? block.reached_by(512)
                                       : draw::kNone;
      const int64_t found = block.best_of(row, limit);
      const Sent sent = block.by_first([&] {
        double sum = 0;
        for (int64_t i = 0; i < found; ++i) {
          if (i == most) return Sent{static_cast<int32_t>(i), 1};
          sum += static_cast<double>(draw::weight(block.candidate(i).value, top, d.scale));
          if (sum >= goal) return Sent{static_cast<int32_t>(i + 1), 1};
        }
        return limit == draw::kNone ? Sent{static_cast<int32_t>(found), 0} : Sent{-1, 0};
      });
      if (sent.count < 0) continue;
      for (int64_t i = lane.thread(); i < sent.count; i += lane.threads()) put(to, i, block.candidate(i));
      return sent;
    }
  }
};

// A warp a row, of which one thread works.
struct MergeDraws {
  static constexpr int kThreads = 32, kBlocks = 1;
  const int32_t* draws;
  const float* tops;
  const float* sums;
  const int32_t* best;
  int32_t* out;
  int64_t rows, of, ranks, most;
  draw::Candidate* scratch;

  template <class L>
  DEV void operator()(L& lane) const {
    if (lane.thread() != 0) return;
    const int64_t words = ranks * (2 + 2 * most), count = draw::blocks(of, draw::kBlock);
    for (int64_t r = lane.block(); r < rows; r += lane.blocks())
      out[r] = draw::merged_token(draw::of_row(draws, r), of, tops + r * ranks, sums + r * count,
                                  {best + r * words, ranks, most}, scratch + lane.block() * ranks * most);
  }
};

template <class L>
void run_mask_own_logits(const MaskOwnLogitsArgs& a, L& launch) {
  run_edits(a, a.first, launch);
}

template <class L>
void run_draw_tops(const DrawTopsArgs& a, L& launch) {
  const int64_t rows = launch.size(a.rows);
  launch.run(smaller(rows, kSampleBlocks), kSampleThreads, sample_shared_bytes(a.columns),
             FindTops{{a.logits, a.edited, a.draws, rows, a.columns}, a.out});
}

template <class L>
void run_draw_sums(const DrawSumsArgs& a, L& launch) {
  const int64_t rows = launch.size(a.rows);
  launch.run(smaller(rows, kSampleBlocks), kSampleThreads, sample_shared_bytes(a.columns),
             SumBlocks{{a.logits, a.edited, a.draws, rows, a.columns}, a.tops, a.out, a.of, a.ranks});
}

template <class L>
void run_draw_best(const DrawBestArgs& a, L& launch) {
  const int64_t rows = launch.size(a.rows);
  launch.run(smaller(rows, kSampleBlocks), kSampleThreads, sample_shared_bytes(a.columns),
             FindBest{{a.logits, a.edited, a.draws, rows, a.columns},
                      a.tops,
                      a.sums,
                      a.out,
                      a.first,
                      a.of,
                      a.ranks,
                      a.most,
                      static_cast<draw::Candidate*>(launch.workspace)});
}

template <class L>
void run_merge_draws(const MergeDrawsArgs& a, L& launch) {
  const int64_t rows = launch.size(a.rows);
  launch.run(smaller(rows, kSampleBlocks), MergeDraws::kThreads, 0,
             MergeDraws{a.draws, a.tops, a.sums, a.best, a.out, rows, a.of, a.ranks, a.most,
                        static_cast<draw::Candidate*>(launch.workspace)});
}

template <class L>
void fill_draw_parts_of(KernelTable& table) {
  table.mask_own_logits = erased<L, run_mask_own_logits<L>>;
  table.draw_tops = erased<L, run_draw_tops<L>>;
  table.draw_sums = erased<L, run_draw_sums<L>>;
  table.draw_best = erased<L, run_draw_best<L>>;
  table.merge_draws = erased<L, run_merge_draws<L>>;
}

}  // namespace reprise::cuda

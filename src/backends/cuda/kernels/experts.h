// Mixtures of experts: which experts a token goes to, how rows get to them and back, and products in which every group
// of rows has a matrix of its own.
//
// Choice, routes and the way back have the CPU's bits. A row of a grouped product has the bits of `linear` on this
// device, because its sum is the same chain (linear.h). Grids depend on sizes alone: there are as many blocks as any
// borders of the groups may need, each finds its tile from the borders, and those left over end at once.
#pragma once

#include "backends/cuda/kernels/linear_w8a8.h"
#include "backends/cuda/kernels/norm.h"
#include "backends/cuda/kernels/quantise.h"
#include "ops/args/experts.h"

namespace reprise::cuda {

// The sum of the warp's lanes with a smaller number, and with all up to this one's.
template <class L>
DEV int32_t sum_up_to(L& lane, int32_t v) {
  const int me = lane.thread() % 32;
  UNROLL
  for (int step = 1; step < 32; step <<= 1) {
    const int32_t other = lane.shuffle(v, me >= step ? me - step : me);
    if (me >= step) v += other;
  }
  return v;
}

// How moe_gate scores and weighs.
struct GateRule {
  int64_t experts, top_k, groups, top_groups;
  float scale, eps;
  bool sigmoid, normalise, by_two;
};

// One warp a token. Softmax takes the CPU's steps: sixteen partial sums over e % 16, folded by 8, 4, 2, 1.
struct MoeGate {
  static constexpr int kThreads = 32, kBlocks = 1;
  const float* logits;
  const int32_t* slots;
  const float* bias;
  float* weights;
  int32_t* chosen;
  GateRule rule;

  // Scores, what is chosen by, the best of each group, groups taken, experts taken.
  static size_t shared_bytes(const GateRule& r) {
    return static_cast<size_t>(2 * r.experts + 2 * r.groups + r.top_k) * sizeof(float);
  }

  template <class L>
  DEV void softmax(L& lane, const float* row, float* scores) const {
    const int me = lane.thread();
    float top = -__builtin_huge_valf();
    for (int64_t e = me; e < rule.experts; e += 32) top = row[e] > top ? row[e] : top;
    top = warp_max(lane, top);
    float sum = 0;
    if (me < 16)
      for (int64_t e = me; e < rule.experts; e += 16) {
        scores[e] = exp_of(row[e] - top);
        sum = sum + scores[e];
      }
    UNROLL
    for (int mask = 8; mask > 0; mask >>= 1) sum = sum + lane.shuffle_xor(sum, mask);
    sum = lane.shuffle(sum, 0);
    lane.warp_sync();
    for (int64_t e = me; e < rule.experts; e += 32) scores[e] = divide(scores[e], sum);
  }

  // The index of the largest that is not among the first `count` of `taken`, which are -inf; NaN is never larger.
  template <class L>
  static DEV int32_t best_left(L& lane, const float* values, int64_t n, const int32_t* taken, int64_t count) {
    Largest top = none_yet();
    for (int64_t i = lane.thread(); i < n; i += 32) take_larger(top, values[i], static_cast<int32_t>(i));
    UNROLL
    for (int mask = 16; mask > 0; mask >>= 1) {
      const float value = lane.shuffle_xor(top.value, mask);
      const int32_t index = lane.shuffle_xor(top.index, mask);
      take_larger(top, value, index);
    }
    if (top.index != kNoColumn) return top.index;
    for (int32_t i = 0;; ++i) {
      bool is_taken = false;
      for (int64_t j = 0; j < count; ++j) is_taken = is_taken || taken[j] == i;
      if (!is_taken) return i;
    }
  }

  // What is chosen by becomes -inf in all but the best groups.
  template <class L>
  DEV void keep_groups(L& lane, float* choice, float* best, int32_t* taken) const {
    const int64_t each = rule.experts / rule.groups;
    for (int64_t g = lane.thread(); g < rule.groups; g += 32) {
      float first = -__builtin_huge_valf(), second = first;
      for (int64_t i = 0; i < each; ++i) {
        const float v = choice[g * each + i];
        if (v > first)
          second = first, first = v;
        else if (v > second)
          second = v;
      }
      best[g] = rule.by_two ? first + second : first;
    }
    lane.warp_sync();
    for (int64_t j = 0; j < rule.top_groups; ++j) {
      const int32_t g = best_left(lane, best, rule.groups, taken, j);
      lane.warp_sync();
      if (lane.thread() == 0) taken[j] = g, best[g] = -__builtin_huge_valf();
      lane.warp_sync();
    }
    for (int64_t e = lane.thread(); e < rule.experts; e += 32) {
      bool stays = false;
      for (int64_t j = 0; j < rule.top_groups; ++j) stays = stays || taken[j] == e / each;
      if (!stays) choice[e] = -__builtin_huge_valf();
    }
    lane.warp_sync();
  }

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t t = lane.block(), n = rule.experts, k = rule.top_k;
    float* w = weights + t * k;
    int32_t* to = chosen + t * k;
    if (slots[t] < 0) {
      for (int64_t j = lane.thread(); j < k; j += 32) w[j] = 0, to[j] = static_cast<int32_t>(n);
      return;
    }
    auto* scores = reinterpret_cast<float*>(lane.shared());
    float* choice = scores + n;
    float* best = choice + n;
    auto* groups = reinterpret_cast<int32_t*>(best + rule.groups);
    int32_t* taken = groups + rule.groups;
    const float* row = logits + t * n;
    if (rule.sigmoid)
      for (int64_t e = lane.thread(); e < n; e += 32) scores[e] = SigmoidOf::apply(row[e]);
    else
      softmax(lane, row, scores);
    lane.warp_sync();
    for (int64_t e = lane.thread(); e < n; e += 32) choice[e] = bias ? scores[e] + bias[e] : scores[e];
    lane.warp_sync();
    if (rule.groups > 1) keep_groups(lane, choice, best, groups);
    float sum = 0;
    for (int64_t j = 0; j < k; ++j) {
      const int32_t e = best_left(lane, choice, n, taken, j);
      lane.warp_sync();
      if (lane.thread() == 0) taken[j] = e, choice[e] = -__builtin_huge_valf();
      lane.warp_sync();
      sum = sum + scores[e];
    }
    for (int64_t j = lane.thread(); j < k; j += 32) {
      float v = scores[taken[j]];
      if (rule.normalise) v = divide(v, sum + rule.eps);
      w[j] = v * rule.scale;
      to[j] = taken[j];
    }
  }
};

// A block an expert, and one more for what goes to none of them. Each counts the choices before its own; then it
// places its own in their order. That reads the choices twice in every block, which is little, and needs no other
// block's numbers.
struct MoeRoute {
  static constexpr int kThreads = 256, kBlocks = 1;
  static constexpr int kRun = 8;  // choices of one thread, one after another
  static constexpr size_t kSharedBytes = kThreads / 32 * sizeof(int32_t);
  const int32_t* experts;
  int32_t* token;
  int32_t* place;
  int32_t* starts;
  int64_t choices, k, first, count;

  // The sum over the threads before this one, and over all.
  template <class L>
  DEV int32_t before(L& lane, int32_t mine, int32_t& all) const {
    auto* of_warps = reinterpret_cast<int32_t*>(lane.shared());
    const int warp = lane.thread() / 32;
    const int32_t up_to = sum_up_to(lane, mine);
    if (lane.thread() % 32 == 31) of_warps[warp] = up_to;
    lane.sync();
    int32_t sum = up_to - mine;
    all = 0;
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w < warp) sum += of_warps[w];
      all += of_warps[w];
    }
    lane.sync();
    return sum;
  }

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t expert = lane.block();  // counted from the first; `count` stands for none
    int32_t smaller_ones = 0, start = 0;
    for (int64_t i = lane.thread(); i < choices; i += kThreads) {
      const int64_t e = experts[i] - first;
      smaller_ones += e >= 0 && e < count && e < expert ? 1 : 0;
    }
    (void)before(lane, smaller_ones, start);
    if (lane.thread() == 0) starts[expert] = start;
    if (expert == count) {
      for (int64_t i = start + lane.thread(); i < choices; i += kThreads) token[i] = -1;
      for (int64_t i = lane.thread(); i < choices; i += kThreads) {
        const int64_t e = experts[i] - first;
        if (e < 0 || e >= count) place[i] = -1;
      }
      return;
    }
    for (int64_t base = 0; base < choices; base += kThreads * kRun) {
      const int64_t from = base + lane.thread() * kRun;
      int32_t mine = 0, all = 0;
      UNROLL
      for (int i = 0; i < kRun; ++i) mine += from + i < choices && experts[from + i] - first == expert ? 1 : 0;
      int32_t at = start + before(lane, mine, all);
      for (int64_t i = from; mine > 0 && i < from + kRun; ++i) {
        if (i >= choices || experts[i] - first != expert) continue;
        place[i] = at;
        token[at++] = static_cast<int32_t>(i / k);
      }
      start += all;
    }
  }
};

// Eight columns of a token a thread.
template <class E>
struct MoeCombine {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const typename E::Type* y;
  const float* weights;
  const int32_t* place;
  typename E::Type* out;
  int64_t tokens, k, columns;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t chunks = (columns + 7) / 8, unit = static_cast<int64_t>(lane.block()) * kThreads + lane.thread();
    if (unit >= tokens * chunks) return;
    const int64_t t = unit / chunks, c = unit % chunks * 8, rows = tokens * k;
    float sum[8];
    UNROLL
    for (int i = 0; i < 8; ++i) sum[i] = 0;
    for (int64_t j = t * k; j < (t + 1) * k; ++j) {
      const int64_t row = place[j];
      if (row < 0 || row >= rows) continue;
      float v[8];
      load_chunk<E>(y + row * columns, c, columns, v);
      UNROLL
      for (int i = 0; i < 8; ++i) sum[i] = fma(weights[j], v[i], sum[i]);
    }
    store_chunk<E>(out + t * columns, c, columns, sum);
  }
};

// Rows [first, last) of one tile, all of one group; `group` is the number of groups for rows of none.
struct TileOfGroup {
  int32_t group, first, last;
};

// The borders of groups of rows, made ascending and kept inside the rows.
struct Groups {
  const int32_t* starts;
  int64_t count, rows;

  // Tiles that any borders may need, those of rows of no group among them.
  HOST_DEV int64_t most_tiles(int64_t tile_rows) const { return smaller(rows, rows / tile_rows + count + 2); }

  // The group of a row, `count` for none; whole warps take part. With borders made ascending, it is the first that ends
  // behind the row; none begins before the first border.
  template <class L>
  DEV int32_t of_row(L& lane, int64_t row) const {
    int32_t group = static_cast<int32_t>(count);
    for (int g = lane.thread() % 32; g < count; g += 32)
      if (starts[g + 1] > row) group = smaller(group, g);
    UNROLL
    for (int mask = 16; mask > 0; mask >>= 1) group = smaller(group, lane.shuffle_xor(group, mask));
    return row < starts[0] ? static_cast<int32_t>(count) : group;
  }

  // Whole blocks take part; the tiles of no group come first and last, and those behind all rows are empty.
  template <class L>
  DEV TileOfGroup tile(L& lane, int tile_rows, int index) const {
    auto* found = reinterpret_cast<TileOfGroup*>(lane.shared());
    if (lane.thread() < 32) {
      const int me = lane.thread(), groups = static_cast<int>(count), all = static_cast<int>(rows);
      const int run = (groups + 31) / 32, from = smaller(groups, me * run), to = smaller(groups, from + run);
      const int32_t first = smaller(all, greater(0, starts[0]));
      const int lead = (first + tile_rows - 1) / tile_rows, wanted = index - lead;
      int32_t top = first;
      for (int g = from; g < to; ++g) top = greater(top, starts[g + 1]);
      UNROLL
      for (int step = 1; step < 32; step <<= 1) {
        const int32_t other = lane.shuffle(top, me >= step ? me - step : me);
        top = greater(top, other);
      }
      const int32_t used = smaller(all, lane.shuffle(top, 31));
      const int32_t previous = lane.shuffle(top, me > 0 ? me - 1 : 0);
      const int32_t begin = me > 0 ? smaller(all, previous) : first;
      int32_t at = begin, tiles = 0;
      for (int g = from; g < to; ++g) {
        const int32_t end = smaller(all, greater(at, starts[g + 1]));
        tiles += (end - at + tile_rows - 1) / tile_rows;
        at = end;
      }
      const int32_t up_to = sum_up_to(lane, tiles), total = lane.shuffle(up_to, 31);
      if (me == 0 && wanted < 0) *found = {groups, index * tile_rows, first};
      if (me == 0 && wanted >= total)
        *found = {groups, static_cast<int32_t>(smaller<int64_t>(all, used + int64_t{wanted - total} * tile_rows)), all};
      int32_t first_tile = up_to - tiles;
      at = begin;
      for (int g = from; g < to && wanted >= first_tile && wanted < up_to; ++g) {
        const int32_t end = smaller(all, greater(at, starts[g + 1])), here = (end - at + tile_rows - 1) / tile_rows;
        if (wanted < first_tile + here) {
          *found = {g, at + (wanted - first_tile) * tile_rows, end};
          break;
        }
        first_tile += here;
        at = end;
      }
    }
    lane.sync();
    const TileOfGroup result = *found;
    lane.sync();
    return result;
  }
};

// Row i of the product is row list[i] of x, or row i itself where there is no list.
struct ListedRows {
  const int32_t* list;
  int64_t count;  // rows of x
  DEV int64_t at(int64_t i) const {
    const int64_t row = list ? list[i] : i;
    return row < count ? row : -1;
  }
};

// The grid's columns are those of the product, its rows tiles of rows. Finish: from a sum to the number that is
// rounded.
template <class E, class Out, class Finish, int kTokens, int kWarps, int kStages>
struct GroupedProduct {
  static constexpr int kThreads = kWarps * 32, kBlocks = 1;
  using Tile = ProductTile<E, kTokens, kWarps, kStages, 128,
                           std::conditional_t<sizeof(typename E::Type) == 1, RowsInOrder, ListedRows>>;
  Tile tile;  // with the first group's matrix
  Groups groups;
  Finish finish;
  typename Out::Type* out;

  template <class L>
  DEV void operator()(L& lane) const {
    const TileOfGroup of = groups.tile(lane, kTokens, lane.block_y());
    if (of.first >= of.last) return;
    const int64_t first_column = static_cast<int64_t>(lane.block()) * Tile::kColumns;
    const bool nothing = of.group >= groups.count;
    typename Tile::Sum d[kTokens / 16][4];
    Tile mine = tile;
    mine.tokens = of.last;
    if (!nothing) {
      mine.weight += of.group * tile.columns * tile.row_bytes();
      mine.sums(lane, first_column, of.first, d);
    }
    const int warp = lane.thread() / 32, me = lane.thread() % 32;
    const int64_t column = first_column + warp * 8 + me % 4 * 2;
    UNROLL
    for (int m = 0; m < kTokens / 16; ++m) UNROLL
    for (int i = 0; i < 4; ++i) {
      const int64_t t = of.first + m * 16 + me / 4 + i / 2 * 8, c = column + i % 2;
      if (t >= of.last || c >= tile.columns) continue;
      out[t * tile.columns + c] = Out::store(nothing ? 0.0f : finish.of(d[m][i], t, of.group * tile.columns + c));
    }
  }
};

struct GroupedProductF32 {
  using Tile = ChainTile<NumbersOf<F32, ListedRows>, NumbersOf<F32>>;
  static constexpr int kThreads = Tile::kThreads, kBlocks = 1;
  Tile tile;
  Groups groups;
  float* out;

  template <class L>
  DEV void operator()(L& lane) const {
    const TileOfGroup of = groups.tile(lane, Tile::kTokens, lane.block_y());
    if (of.first >= of.last) return;
    const int64_t first_column = static_cast<int64_t>(lane.block()) * Tile::kColumns;
    Tile mine = tile;
    mine.tokens = of.last;
    float sum[2] = {0, 0};
    if (of.group < groups.count) {
      mine.weight.p += of.group * tile.columns * tile.depth;
      mine.sums(lane, first_column, of.first, sum);
    }
    mine.each(lane.thread(), first_column, of.first, sum,
              [&](int64_t t, int64_t c, float v) { out[t * tile.columns + c] = v; });
  }
};

// A block a row.
template <class E>
struct QuantizeGroups {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const typename E::Type* x;
  Groups groups;
  const float* scale;
  const float* offset;
  int8_t* out;
  int64_t columns;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t row = lane.block();
    const int32_t group = groups.of_row(lane, row);
    const bool nothing = group >= groups.count;
    const StaticScale by{scale + group, offset + group, 0, 0};
    for (int64_t c = lane.thread(); c < columns; c += kThreads)
      out[row * columns + c] = nothing ? int8_t{0} : by.apply(E::load(x[row * columns + c]), 0);
  }
};

// A block a row.
template <class E>
struct AddGroups {
  static constexpr int kThreads = kElementThreads, kBlocks = 1;
  const typename E::Type* x;
  Groups groups;
  const typename E::Type* bias;
  typename E::Type* out;
  int64_t columns;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t row = lane.block();
    const int32_t group = groups.of_row(lane, row);
    for (int64_t c = lane.thread() * 8; c < columns; c += kThreads * 8) {
      float v[8] = {}, b[8];
      if (group < groups.count) {
        load_chunk<E>(x + row * columns, c, columns, v);
        load_chunk<E>(bias + group * columns, c, columns, b);
        UNROLL
        for (int i = 0; i < 8; ++i) v[i] = v[i] + b[i];
      }
      store_chunk<E>(out + row * columns, c, columns, v);
    }
  }
};

template <class L>
void run_moe_gate(const MoeGateArgs& a, L& launch) {
  const GateRule rule{
      a.count,   a.top_k,     a.groups, a.top_groups, static_cast<float>(a.scale), static_cast<float>(a.eps),
      a.sigmoid, a.normalise, a.top_two};
  launch.run(launch.size(a.tokens), MoeGate::kThreads, MoeGate::shared_bytes(rule),
             MoeGate{a.logits, a.slots, a.bias, a.weights, a.experts, rule});
}

template <class L>
void run_moe_route(const MoeRouteArgs& a, L& launch) {
  launch.run(
      a.count + 1, MoeRoute::kThreads, MoeRoute::kSharedBytes,
      MoeRoute{a.experts, a.token, a.place, a.starts, launch.size(a.tokens) * a.top_k, a.top_k, a.first, a.count});
}

template <class E, class L>
void run_moe_combine(const MoeCombineArgs& a, L& launch) {
  const int64_t tokens = launch.size(a.tokens);
  launch.run(blocks_for(tokens * blocks_for(a.width, 8), kElementThreads), kElementThreads, 0,
             MoeCombine<E>{a.y, a.weights, a.place, a.out, tokens, a.top_k, a.width});
}

// Operands of a grouped product. `list` may be null, `rows` are those of x.
struct GroupedCall {
  ProductSizes z;
  const void* x;
  const int32_t* list;
  int64_t rows;
  Groups groups;
  const void* weight;
  void* out;
};

template <class E, class Out, int kTokens, int kWarps, int kStages, class Finish, class L>
void launch_grouped(const GroupedCall& c, const Finish& finish, L& launch) {
  using K = GroupedProduct<E, Out, Finish, kTokens, kWarps, kStages>;
  K k{{static_cast<const uint8_t*>(c.x), static_cast<const uint8_t*>(c.weight), c.z.tokens, c.z.depth, c.z.columns},
      c.groups,
      finish,
      static_cast<typename Out::Type*>(c.out)};
  if constexpr (sizeof(typename E::Type) > 1) k.tile.rows = {c.list, c.rows};
  launch.run(blocks_for(c.z.columns, K::Tile::kColumns), K::kThreads, K::Tile::kSharedBytes, k,
             c.groups.most_tiles(kTokens));
}
// The host knows how many rows a group has on average at most, which is enough to choose a tile.
constexpr int64_t kManyRows = 32;
template <class E, class Out, class Finish, class L>
void grouped_product(const GroupedCall& c, const Finish& finish, L& launch) {
  if (c.z.tokens <= kManyRows * c.groups.count)
    launch_grouped<E, Out, 16, 4, 8>(c, finish, launch);
  else
    launch_grouped<E, Out, 64, 8, 5>(c, finish, launch);
}

template <class E, class L>
void grouped_of_floats(const GroupedCall& c, L& launch) {
  if (c.z.tokens == 0) return;
  if constexpr (sizeof(typename E::Type) == 4) {
    using Tile = GroupedProductF32::Tile;
    launch.run(blocks_for(c.z.columns, Tile::kColumns), GroupedProductF32::kThreads, Tile::kSharedBytes,
               GroupedProductF32{{{static_cast<const float*>(c.x), c.z.depth, {c.list, c.rows}},
                                  {static_cast<const float*>(c.weight), c.z.depth},
                                  c.z.tokens,
                                  c.z.depth,
                                  c.z.columns},
                                 c.groups,
                                 static_cast<float*>(c.out)},
               c.groups.most_tiles(Tile::kTokens));
  } else {
    grouped_product<E, E>(c, AsItIs{}, launch);
  }
}

// `list` and `rows` as in GroupedCall.
template <class A, class L>
GroupedCall grouped_call(const A& a, const int32_t* list, int64_t rows, const L& launch) {
  const ProductSizes z = product_sizes(a.shape, launch);
  return {z, a.x, list, list ? rows : z.tokens, {a.starts, a.groups, z.tokens}, a.weight, a.out};
}

template <class E, class L>
void run_grouped_linear(const GroupedLinearArgs& a, L& launch) {
  grouped_of_floats<E>(grouped_call(a, nullptr, 0, launch), launch);
}
template <class E, class L>
void run_grouped_linear_rows(const GroupedLinearRowsArgs& a, L& launch) {
  grouped_of_floats<E>(grouped_call(a, a.token, launch.size(a.x_rows), launch), launch);
}

template <class Out, class L>
void run_grouped_w8a8_static(const GroupedW8a8StaticArgs& a, L& launch) {
  grouped_product<I8, Out>(grouped_call(a, nullptr, 0, launch), StaticScales{a.scale, a.bias}, launch);
}
template <class Out, class L>
void run_grouped_w8a8_dynamic(const GroupedW8a8DynamicArgs& a, L& launch) {
  grouped_product<I8, Out>(grouped_call(a, nullptr, 0, launch), DynamicScales{a.scale, a.x_scale}, launch);
}

template <class E, class L>
void run_quantize_groups(const QuantizeGroupsArgs& a, L& launch) {
  const int64_t rows = launch.size(a.rows);
  launch.run(rows, kElementThreads, 0,
             QuantizeGroups<E>{a.x, {a.starts, a.groups, rows}, a.scale, a.offset, a.values, a.width});
}

template <class E, class L>
void run_add_groups(const AddGroupsArgs& a, L& launch) {
  const int64_t rows = launch.size(a.rows);
  launch.run(rows, kElementThreads, 0, AddGroups<E>{a.x, {a.starts, a.groups, rows}, a.bias, a.out, a.width});
}

template <class L>
void fill_experts_of(KernelTable& table) {
  table.moe_gate = erased<L, run_moe_gate<L>>;
  table.moe_route = erased<L, run_moe_route<L>>;
  table.moe_combine = REPRISE_CUDA_PER_TYPE(run_moe_combine, L);
  table.grouped_linear = REPRISE_CUDA_PER_TYPE(run_grouped_linear, L);
  table.grouped_linear_rows = REPRISE_CUDA_PER_TYPE(run_grouped_linear_rows, L);
  table.add_groups = REPRISE_CUDA_PER_TYPE(run_add_groups, L);
  table.quantize_groups = REPRISE_CUDA_PER_TYPE(run_quantize_groups, L);
  table.grouped_w8a8_static = REPRISE_CUDA_PER_TYPE(run_grouped_w8a8_static, L);
  table.grouped_w8a8_dynamic = REPRISE_CUDA_PER_TYPE(run_grouped_w8a8_dynamic, L);
}

}  // namespace reprise::cuda

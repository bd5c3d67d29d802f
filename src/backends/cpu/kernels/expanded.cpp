// latent_forms: which sequences of a step have their keys and values expanded, and expanded_latent_attention, which
// does it: page by page the keys and values of one head are made of the latents, laid out as a page of the ordinary
// cache, and attended to as attention.cpp does.
//
// A thread has whole (head, sequence) pairs, the sequences of a head behind one another: the head's matrix is turned
// round once for all of them.
#include "backends/cpu/kernels/attention_tile.h"
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/expanded_shape.h"
#include "backends/cpu/kernels/kv_run.h"
#include "backends/cpu/kernels/packed_rows.h"
#include "backends/cpu/kernels/sums.h"
#include "ops/args/attention.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <typename E, typename P, typename W>
struct ExpandedCall {
  using T = typename E::Type;
  using Cell = typename P::Cell;
  static constexpr bool kPairs = P::kStep == 2;

  ExpandedCall(const ExpandedLatentArgs& a, const Launch& l)
      : out(a.out),
        q(a.q),
        q_rope(a.q_rope),
        c_kv(a.c_kv),
        k_pe(a.k_pe),
        key_weight(a.weight),
        value_weight(a.value_weight),
        page_table(a.page_table),
        context_lens(a.context_lens),
        cu_seqlens(a.cu_seqlens),
        heads(a.heads),
        sequences(l.size(a.sequences)),
        columns(l.size(a.columns)),
        scale(static_cast<float>(a.scale)),
        z{.latent = a.latent, .rope = a.rope, .nope = a.nope, .value = a.value, .tokens = l.size(a.tokens)} {
    float* at = static_cast<float*>(l.workspace) + l.thread * z.thread_floats();
    const auto take = [&](int64_t floats) { return (at += floats) - floats; };
    turned = reinterpret_cast<T*>(take(z.weight_floats()));
    wide_x = take(z.x_floats());
    key_rows = reinterpret_cast<T*>(take(z.page_floats()));
    value_rows = key_rows + kKvTokens * z.key();
    keys = reinterpret_cast<Cell*>(value_rows + kKvTokens * z.value);
    values = keys + kKvTokens * z.key() / P::kStep;
    state.m = take(z.state_floats());
    state.l = state.m + z.tokens;
    state.o = state.l + z.tokens;
    tile = take(z.tile_floats());
    query = reinterpret_cast<T*>(take(z.query_floats()));
  }

  // Elements of a head's matrix in panels of 64 columns.
  static int64_t panels_of(int64_t columns) { return (columns + kPanelColumns - 1) / kPanelColumns; }
  static int64_t panel_elems(int64_t k) { return (k + W::kDepth - 1) / W::kDepth * kStepElems<W>; }
  // The keys' matrix of the head has latents as columns, for the queries; here they are its inner size. Columns behind
  // the last hold older bytes: no result of them is kept.
  void turn_weight(int64_t head) const {
    const int64_t from_panel = panel_elems(z.nope), to_panel = panel_elems(z.latent);
    const T* from = key_weight + head * panels_of(z.latent) * from_panel;
    for (int64_t c0 = 0; c0 < z.latent; c0 += kPanelColumns, from += from_panel) {
      const int64_t count = std::min<int64_t>(kPanelColumns, z.latent - c0);
      for (int64_t n = 0; n < z.nope; n += W::kDepth) {
        const T* row = from + n / W::kDepth * kStepElems<W>;
        T* to = turned + n / kPanelColumns * to_panel + c0 / W::kDepth * kStepElems<W> + n % kPanelColumns * W::kDepth;
        for (int64_t c = 0; c < count; c += W::kDepth, row += W::kDepth * W::kDepth, to += kStepElems<W>) {
          to[0] = row[0];
          if constexpr (W::kDepth == 2) {  // two columns of two numbers become two numbers of two columns
            const bool both = c + 1 < count;
            to[1] = both ? row[2] : T{};
            to[2] = row[1];
            to[3] = both ? row[3] : T{};
          }
        }
      }
    }
  }

  // Rows of latents times a matrix in panels, rounded: rows of `stride` numbers.
  void expand(Tile<E, P>& by, const T* x, int64_t tokens, const T* weight, int64_t n, T* to, int64_t stride) const {
    if constexpr (P::kUnit)
      expand_on_unit(by.unit(), x, tokens, weight, n, to, stride);
    else
      expand_in_registers(x, tokens, weight, n, to, stride);
  }
#ifdef REPRISE_TILES
  void expand_on_unit(TileUnit& unit, const T* x, int64_t tokens, const T* weight, int64_t n, T* to,
                      int64_t stride) const {
    const int64_t block = linear_row_block(tokens), panel = panel_elems(z.latent), bytes = 2 * z.latent;
    auto* packed = reinterpret_cast<uint8_t*>(wide_x);
    Scratch scratch;
    unit.shape(kUnitRows, kUnitRows, kUnitRows);
    for (int64_t m = 0; m < tokens; m += block) {
      const int64_t rows = std::min(block, tokens - m);
      pack_unit_rows(rows, bytes, packed, [&](int64_t i) { return x + (m + i) * z.latent; });
      for (int64_t p = 0; p < panels_of(n); ++p) {
        const int64_t column = p * kPanelColumns;
        const int columns_here = static_cast<int>(std::min<int64_t>(kPanelColumns, n - column));
        unit_panel<UnitBf16>(unit, {packed, rows, (z.latent + 1) / 2},
                             reinterpret_cast<const uint8_t*>(weight + p * panel), 0, columns_here, scratch.c,
                             [&](Sums<float> sums, int64_t row, int64_t of_panel) {
                               round_sums<E, E>(sums, nullptr, to + (m + row) * stride + column + of_panel, stride);
                             });
      }
    }
  }
#endif
  void expand_in_registers(const T* x, int64_t tokens, const T* weight, int64_t n, T* to, int64_t stride) const {
    const int64_t block = linear_row_block(tokens), panel = panel_elems(z.latent);
    Scratch scratch;
    for (int64_t m = 0; m < tokens; m += block) {
      const int64_t rows = std::min(block, tokens - m);
      const TileRows<W> from = rows_as_they_lie<E, W>(x + m * z.latent, z.latent, rows, z.latent, wide_x);
      for (int64_t p = 0; p < panels_of(n); ++p) {
        const int64_t column = p * kPanelColumns;
        const int columns_here = static_cast<int>(std::min<int64_t>(kPanelColumns, n - column));
        panel_product<W>(from.x, from.ldx, rows, weight + p * panel, 0, z.latent, (columns_here + 15) / 16 * 16,
                         scratch);
        round_sums<E, E>({scratch.c, rows, kPanelColumns, columns_here}, nullptr, to + m * stride + column, stride);
      }
    }
  }

  // The first `tokens` of a page as keys and values of the head; on tile registers by the unit that attends.
  void make_page(Tile<E, P>& by, int64_t page, int64_t tokens, int64_t head) const {
    const int64_t key = z.key(), first = page * kKvTokens;
    const T* x = c_kv + first * z.latent;
    expand(by, x, tokens, turned, z.nope, key_rows, key);
    for (int64_t t = 0; t < tokens; ++t)
      std::memcpy(key_rows + t * key + z.nope, k_pe + (first + t) * z.rope, static_cast<size_t>(z.rope) * sizeof(T));
    for (int64_t t = 0; t < tokens; t += kKeyRun)
      put_keys<Cell>(key_rows + t * key, key * static_cast<int64_t>(sizeof(T)), key / P::kStep, t,
                     std::min(kKeyRun, tokens - t), keys);
    const T* up = value_weight + head * panels_of(z.value) * panel_elems(z.latent);
    if constexpr (!kPairs) {
      expand(by, x, tokens, up, z.value, reinterpret_cast<T*>(values), z.value);
    } else {
      expand(by, x, tokens, up, z.value, value_rows, z.value);
      // The last pair's second token may be missing: readers of the pair mask it.
      for (int64_t t = 0; t < tokens; t += 2)
        put_value_pair(value_rows + t * z.value, value_rows + std::min(t + 1, tokens - 1) * z.value, z.value,
                       reinterpret_cast<uint16_t*>(values) + t * z.value);
    }
  }

  // All tokens of the step of one sequence, for one head.
  void attend(int64_t sequence, int64_t head) const {
    const int64_t first = cu_seqlens[sequence], count = cu_seqlens[sequence + 1] - first;
    const int64_t context = context_lens[sequence], before = context - count;
    const int32_t* table = page_table + sequence * columns;
    constexpr int64_t kRows = AttentionSizes::kTileRows;
    Tile<E, P> rows(tile, kRows, z.key(), z.value, scale);
    for (int64_t p = 0; p * kKvTokens < context; ++p) {
      make_page(rows, table[p], std::min(kKvTokens, context - p * kKvTokens), head);
      // Rows before these see nothing of this page.
      const int64_t low = std::max(p * kKvTokens - before, int64_t{0});
      for (int64_t r0 = low / kRows * kRows; r0 < count; r0 += kRows) {
        const int64_t here = std::min(kRows, count - r0);
        rows.set_rows(here);
        for (int64_t r = 0; r < here; ++r) {
          const int64_t i = (first + r0 + r) * heads + head;
          std::memcpy(query, q + i * z.nope, static_cast<size_t>(z.nope) * sizeof(T));
          std::memcpy(query + z.nope, q_rope + i * z.rope, static_cast<size_t>(z.rope) * sizeof(T));
          rows.set_row(r, query, 0, before + r0 + r + 1);
        }
        const Partial all{state.m + r0, state.l + r0, state.o + r0 * z.value};
        rows.attend(keys, values, p, p == 0 ? all : rows.page_scratch(), {});
        if (p > 0) rows.merge_page(all);
      }
    }
    for (int64_t r = 0; r < count; ++r)
      finish_row<E>(share_of(state.l[r]), state.o + r * z.value, out + ((first + r) * heads + head) * z.value, z.value);
  }

  int64_t cost(int64_t sequence) const {
    const int64_t count = cu_seqlens[sequence + 1] - cu_seqlens[sequence], context = context_lens[sequence];
    return count > 0 && context > 0 ? context * (z.latent + count) : 0;
  }

  T* out;
  const T* q;
  const T* q_rope;
  const T* c_kv;
  const T* k_pe;
  const T* key_weight;  // from queries to latents
  const T* value_weight;
  const int32_t* page_table;
  const int32_t* context_lens;
  const int32_t* cu_seqlens;
  int64_t heads, sequences, columns;
  float scale;
  ExpandedSizes z;
  T* turned;
  float* wide_x;
  T* key_rows;
  T* value_rows;
  Cell* keys;
  Cell* values;
  Partial state;
  float* tile;
  T* query;
};

// A pair belongs to the thread that has the middle of its stretch of the line of costs.
template <typename E, typename P, typename W>
__attribute__((noinline)) void walk(const ExpandedCall<E, P, W>& call, int thread, int threads) {
  int64_t of_head = 0;
  for (int64_t s = 0; s < call.sequences; ++s) of_head += call.cost(s);
  if (of_head == 0) return;
  const Range mine = share(of_head * call.heads, thread, threads);
  for (int64_t h = mine.begin / of_head; h < call.heads && h * of_head < mine.end; ++h) {
    bool turned = false;
    int64_t at = h * of_head;
    for (int64_t s = 0; s < call.sequences; ++s) {
      const int64_t cost = call.cost(s), middle = at + cost / 2;
      at += cost;
      if (cost == 0 || middle < mine.begin || middle >= mine.end) continue;
      if (!turned) call.turn_weight(h);
      turned = true;
      call.attend(s, h);
    }
  }
}

template <typename E, typename P, typename W>
void attend_expanded(const ExpandedLatentArgs& a, const Launch& l) {
  const Flush<P> flush;
  walk(ExpandedCall<E, P, W>(a, l), l.thread, l.threads);
}

// bf16 on tile registers in their order, else by the faster of two ways with the same bits.
void attend_expanded_bf16(const ExpandedLatentArgs& a, const Launch& l) {
#ifdef REPRISE_TILES
  attend_expanded<Bf16, PanelUnit, WeightBf16>(a, l);
#else
#if defined(__AVX512BF16__)
  if (l.way != 0) return attend_expanded<Bf16, PanelBf16Dot, WeightBf16Dot>(a, l);
#endif
  attend_expanded<Bf16, PanelBf16, WeightBf16>(a, l);
#endif
}

#ifndef REPRISE_TILES

// Fewer new tokens than these of a sequence are never worth turning a head's matrix and expanding a page.
constexpr int64_t kFewestExpanded = 32;

// The rule is that of the op's description (ops/latent.cpp).
void forms(const LatentFormsArgs& a, const Launch& l) {
  if (l.thread != 0) return;
  const int32_t *lengths = a.context_lens, *starts = a.cu_seqlens;
  int32_t *rows = a.rows, *absorbed = a.absorbed, *expanded = a.expanded;
  const int64_t tokens = l.size(a.tokens), sequences = l.size(a.sequences);
  const int64_t latent = a.latent, sizes = a.nope + a.value;
  int64_t count = 0;
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t n = starts[s + 1] - starts[s], context = lengths[s];
    const int64_t pairs = n * context - n * (n - 1) / 2;
    const bool expand = n >= kFewestExpanded && pairs * (2 * latent - sizes) > (context - n) * latent * sizes;
    absorbed[s] = expand ? 0 : static_cast<int32_t>(context);
    expanded[s] = expand ? static_cast<int32_t>(context) : 0;
    for (int64_t t = starts[s]; !expand && t < starts[s + 1] && count < tokens; ++t)
      rows[count++] = static_cast<int32_t>(t);
  }
  for (; count < tokens; ++count) rows[count] = -1;
}
#endif

}  // namespace

REPRISE_KERNEL(expanded_latent_attention_bf16, attend_expanded_bf16)
#ifndef REPRISE_TILES
REPRISE_KERNEL(latent_forms, forms)
REPRISE_KERNEL(expanded_latent_attention_f32, attend_expanded<F32, PanelF32, WeightF32>)
REPRISE_KERNEL(expanded_latent_attention_f16, attend_expanded<F16, PanelF16, WeightF16>)
#endif

}  // namespace reprise::cpu::REPRISE_ISA

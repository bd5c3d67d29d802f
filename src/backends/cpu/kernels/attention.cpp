#include "ops/args/attention.h"
#include "backends/cpu/kernels/attention_tile.h"
#include "backends/cpu/kernels/attention_walk.h"
#include "backends/cpu/kernels/define.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <typename E, typename P>
struct Call : AttentionCall<E> {
  using T = typename E::Type;

  Call(const PagedAttentionArgs& a, const Launch& l)
      : q(a.q), kv(a.kv), scale(static_cast<float>(a.scale)), cap(static_cast<float>(a.softcap)) {
    this->page_table = a.page_table;
    this->context_lens = a.context_lens;
    this->cu_seqlens = a.cu_seqlens;
    this->sinks = a.sinks;
    this->out = a.out;
    this->workspace = static_cast<float*>(l.workspace);
    AttentionSizes& z = this->sizes;
    z.heads = a.heads;
    z.kv_heads = a.kv_heads;
    z.size = a.size;
    z.sequences = l.size(a.sequences);
    z.columns = l.size(a.columns);
    z.window = a.window;
    z.chunk = a.chunk;
    this->thread_floats = z.thread_floats(l.threads);
  }

  // A block of the cache as the cells of P.
  const typename P::Cell* block(int64_t page, bool values, int64_t head) const {
    using Stored = std::conditional_t<P::kScaled, int8_t, T>;
    const AttentionSizes& z = this->sizes;
    const auto* cells =
        static_cast<const Stored*>(kv) + kv_block(page, values, head, z.kv_heads, kv_row_of(z.size, P::kScaled));
    return reinterpret_cast<const typename P::Cell*>(cells);
  }

  void attend(const AttentionItem& item, PageRange pages, int thread) const;

  const T* q;
  const void* kv;
  float scale, cap;
};

template <typename E, typename P>
void Call<E, P>::attend(const AttentionItem& item, PageRange pages, int thread) const {
  const AttentionSizes& z = this->sizes;
  float* scratch = this->scratch(thread);
  Tile<E, P> tile(scratch, AttentionSizes::kTileRows, z.size, z.size, scale, cap);
  tile.set_rows(item.rows);
  RowPlace row = this->place_of(item, 0);
  for (int64_t r = 0; r < item.rows; ++r, row.next()) {
    const int64_t high = item.context - item.tokens + row.token + 1;
    const int64_t low = z.oldest(high - 1);
    const T* from = q + this->index(item, row) * z.size;
    // A group's rows of a token are neighbours, those of the next token far away.
    for (int64_t b = 0; row.token + 4 < item.tokens && b < z.size; b += 64 / static_cast<int64_t>(sizeof(T)))
      fetch_first_level(from + 4 * z.heads * z.size + b);
    tile.set_row(r, from, low, high);
  }
  Partial state{scratch + Tile<E, P>::scratch_floats(AttentionSizes::kTileRows, z.size, z.size), nullptr, nullptr};
  state.l = state.m + AttentionSizes::kTileRows;
  state.o = state.l + AttentionSizes::kTileRows;
  const int32_t* table = this->page_table + item.sequence * z.columns + item.first_page;
  attend_pages(
      *this, item, pages, thread, state, tile.page_scratch(),
      [&](int64_t p, const Partial& to) {
        // What this thread will probably read after this page, if it belongs to the same sequence.
        typename Tile<E, P>::Ahead next;
        const int64_t next_column = p + 1 < pages.end ? p + 1 : 0;
        const int64_t next_head = p + 1 < pages.end ? item.kv_head : item.kv_head + 1;
        if (next_head < z.kv_heads) {
          next.block = block(table[next_column], false, next_head);
          next.tokens = item.context - (item.first_page + next_column) * kKvTokens;
        }
        tile.attend(block(table[p], false, item.kv_head), block(table[p], true, item.kv_head), item.first_page + p, to,
                    next);
      },
      [&](const Partial& to) { tile.merge_page(to); });
}

template <typename E, typename P>
void attend(const PagedAttentionArgs& a, const Launch& l) {
  const Flush<P> flush;
  attend_items(Call<E, P>(a, l), l);
}

// bf16 on tile registers in their order, else by the faster of two ways with the same bits.
void attend_bf16(const PagedAttentionArgs& a, const Launch& l) {
#if defined(REPRISE_TILES)
  return attend<Bf16, PanelUnit>(a, l);
#elif defined(__AVX512BF16__)
  if (l.way != 0) return attend<Bf16, PanelBf16Dot>(a, l);
#endif
#ifndef REPRISE_TILES
  attend<Bf16, PanelBf16>(a, l);
#endif
}

#ifndef REPRISE_TILES
template <typename E, typename P>
void merge(const PagedAttentionArgs& a, const Launch& l) {
  if (l.threads == 1) return;
  const Flush<P> flush;
  merge_items<E>(Call<E, P>(a, l), l.thread, l.threads);
}
#endif

}  // namespace

REPRISE_KERNEL(attention_bf16, attend_bf16)
#ifndef REPRISE_TILES
REPRISE_KERNEL(attention_f32, attend<F32, PanelF32>)
REPRISE_KERNEL(attention_f16, attend<F16, PanelF16>)
REPRISE_KERNEL(attention_i8_f32, attend<F32, PanelI8>)
REPRISE_KERNEL(attention_i8_bf16, attend<Bf16, PanelI8>)
REPRISE_KERNEL(attention_i8_f16, attend<F16, PanelI8>)
REPRISE_KERNEL(attention_merge_f32, merge<F32, PanelF32>)
REPRISE_KERNEL(attention_merge_bf16, merge<Bf16, PanelBf16>)
REPRISE_KERNEL(attention_merge_f16, merge<F16, PanelF16>)
REPRISE_KERNEL(attention_merge_bf16_i8, merge<Bf16, PanelI8>)
#endif

}  // namespace reprise::cpu::REPRISE_ISA

// Attention over latents (multi-head latent attention in its absorbed form), and the write into their caches.
//
// A cache is [P, 128, width], row behind row as rows come: both products of attention want it so (latent_tile.h).
#include "backends/cpu/kernels/attention_walk.h"
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/latent_tile.h"
#include "ops/args/attention.h"
#include "ops/args/rotation.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <typename E, typename P>
struct LatentCall : AttentionCall<E> {
  using T = typename E::Type;

  LatentCall(const LatentAttentionArgs& a, const Launch& l)
      : q(a.q), q_rope(a.q_rope), c_kv(a.c_kv), k_pe(a.k_pe), rope_size(a.rope), scale(static_cast<float>(a.scale)) {
    this->page_table = a.page_table;
    this->context_lens = a.context_lens;
    this->cu_seqlens = a.cu_seqlens;
    this->out = a.out;
    this->workspace = static_cast<float*>(l.workspace);
    AttentionSizes& z = this->sizes;
    z.heads = a.heads;
    z.kv_heads = 1;
    z.size = a.latent;
    z.key_size = z.size + rope_size;
    z.sequences = l.size(a.sequences);
    z.columns = l.size(a.columns);
    this->thread_floats = z.thread_floats(l.threads);
  }

  void attend(const AttentionItem& item, PageRange pages, int thread) const {
    const AttentionSizes& z = this->sizes;
    LatentTile<E, P> tile(this->scratch(thread), z, scale);
    RowPlace row = this->place_of(item, 0);
    tile.set_rows(item.rows, row.head);
    for (int64_t r = 0; r < item.rows; ++r, row.next()) {
      const int64_t i = this->index(item, row);
      tile.set_row(r, q + i * z.size, q_rope + i * rope_size, item.context - item.tokens + row.token + 1);
    }
    const int32_t* table = this->page_table + item.sequence * z.columns + item.first_page;
    attend_pages(
        *this, item, pages, thread, tile.state(), tile.page_scratch(),
        [&](int64_t p, const Partial& to) {
          const int64_t first = table[p] * kKvTokens;
          typename LatentTile<E, P>::Stored next;
          if (p + 1 < pages.end) {
            const int64_t at = table[p + 1] * kKvTokens, left = item.context - (item.first_page + p + 1) * kKvTokens;
            next = {c_kv + at * z.size, k_pe + at * rope_size, left < kKvTokens ? left : kKvTokens};
          }
          tile.attend(c_kv + first * z.size, k_pe + first * rope_size, item.first_page + p, to, next);
        },
        [&](const Partial& to) { tile.merge_page(to); });
  }

  const T* q;
  const T* q_rope;
  const T* c_kv;
  const T* k_pe;
  int64_t rope_size;
  float scale;
};

template <typename E, typename P>
void attend_latent(const LatentAttentionArgs& a, const Launch& l) {
  const Flush<P> flush;
  attend_items(LatentCall<E, P>(a, l), l);
}

#ifdef REPRISE_TILES
void attend_latent_bf16(const LatentAttentionArgs& a, const Launch& l) { attend_latent<Bf16, PanelUnit>(a, l); }
#else
template <typename E, typename P>
void merge_latent(const LatentAttentionArgs& a, const Launch& l) {
  if (l.threads == 1) return;
  const Flush<P> flush;
  merge_items<E>(LatentCall<E, P>(a, l), l.thread, l.threads);
}

// bf16: with the set's dot instruction, by the faster of two ways with the same bits.
#if defined(__AVX512BF16__)
using Bf16Merge = PanelBf16;
void attend_latent_bf16(const LatentAttentionArgs& a, const Launch& l) {
  if (l.way != 0) return attend_latent<Bf16, PanelBf16Dot>(a, l);
  attend_latent<Bf16, PanelBf16>(a, l);
}
#else
using Bf16Merge = PanelF32;
void attend_latent_bf16(const LatentAttentionArgs& a, const Launch& l) { attend_latent<Bf16, PanelF32>(a, l); }
#endif

// Negative slots are skipped.
void write_rows(const RowWriteArgs& a, const Launch& l) {
  char* cache = a.cache;
  const char* rows = a.rows;
  const int32_t* slots = a.slots;
  const int64_t bytes = a.width * a.element;
  const Range mine = l.share(l.size(a.tokens));
  for (int64_t t = mine.begin; t < mine.end; ++t)
    if (slots[t] >= 0) std::memcpy(cache + slots[t] * bytes, rows + t * bytes, static_cast<size_t>(bytes));
}
#endif

}  // namespace

REPRISE_KERNEL(latent_attention_bf16, attend_latent_bf16)
#ifndef REPRISE_TILES
REPRISE_KERNEL(row_write, write_rows)
REPRISE_KERNEL(latent_attention_f32, attend_latent<F32, PanelF32>)
REPRISE_KERNEL(latent_attention_f16, attend_latent<F16, PanelF32>)
REPRISE_KERNEL(latent_attention_merge_f32, merge_latent<F32, PanelF32>)
REPRISE_KERNEL(latent_attention_merge_bf16, merge_latent<Bf16, Bf16Merge>)
REPRISE_KERNEL(latent_attention_merge_f16, merge_latent<F16, PanelF32>)
#endif

}  // namespace reprise::cpu::REPRISE_ISA

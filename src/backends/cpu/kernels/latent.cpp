// Attention over latents (multi-head latent attention in its absorbed form), and the write into their caches.
//
// A cache is [P, 128, width], row behind row as rows come: both products of attention want it so (latent_tile.h).
#include "backends/cpu/kernels/attention_walk.h"
#include "backends/cpu/kernels/latent_tile.h"
#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// ptr: q, q_rope, latents, ropes, page_table, context_lens, query_starts, out. dim: heads, latent size, rope size,
// sequences, columns of the page table, use of vdpbf16ps (avx512 only). scalar: scale.
template <typename E, typename P>
struct LatentCall : AttentionCall<E> {
  using T = typename E::Type;

  LatentCall(const LaunchArgs& args, const LiveSizes& live, int ranks)
      : q(static_cast<const T*>(args.ptr[0])),
        q_rope(static_cast<const T*>(args.ptr[1])),
        latents(static_cast<const T*>(args.ptr[2])),
        ropes(static_cast<const T*>(args.ptr[3])),
        rope_size(args.dim[2].value(live)),
        scale(static_cast<float>(args.scalar[0])) {
    this->page_table = static_cast<const int32_t*>(args.ptr[4]);
    this->context_lens = static_cast<const int32_t*>(args.ptr[5]);
    this->query_starts = static_cast<const int32_t*>(args.ptr[6]);
    this->out = static_cast<T*>(args.ptr[7]);
    this->workspace = static_cast<float*>(args.workspace);
    AttentionSizes& z = this->sizes;
    z.heads = args.dim[0].value(live);
    z.kv_heads = 1;
    z.size = args.dim[1].value(live);
    z.key_size = z.size + rope_size;
    z.sequences = args.dim[3].value(live);
    z.columns = args.dim[4].value(live);
    this->rank_floats = z.rank_floats(ranks);
  }

  void attend(const AttentionItem& item, PageRange pages, int rank) const {
    const AttentionSizes& z = this->sizes;
    LatentTile<E, P> tile(this->scratch(rank), z, scale);
    RowPlace row = this->place_of(item, 0);
    tile.set_rows(item.rows, row.head);
    for (int64_t r = 0; r < item.rows; ++r, row.next()) {
      const int64_t i = this->index(item, row);
      tile.set_row(r, q + i * z.size, q_rope + i * rope_size, item.context - item.tokens + row.token + 1);
    }
    const int32_t* table = this->page_table + item.sequence * z.columns + item.first_page;
    attend_pages(
        *this, item, pages, rank, tile.state(), tile.page_scratch(),
        [&](int64_t p, const Partial& to) {
          const int64_t first = table[p] * kKvTokens;
          typename LatentTile<E, P>::Stored next;
          if (p + 1 < pages.end) {
            const int64_t at = table[p + 1] * kKvTokens, left = item.context - (item.first_page + p + 1) * kKvTokens;
            next = {latents + at * z.size, ropes + at * rope_size, left < kKvTokens ? left : kKvTokens};
          }
          tile.attend(latents + first * z.size, ropes + first * rope_size, item.first_page + p, to, next);
        },
        [&](const Partial& to) { tile.merge_page(to); });
  }

  const T* q;
  const T* q_rope;
  const T* latents;
  const T* ropes;
  int64_t rope_size;
  float scale;
};

template <typename E, typename P>
void attend(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const Flush<P> flush;
  attend_items(LatentCall<E, P>(args, live, ranks), rank, ranks);
}

template <typename E, typename P>
void merge(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  if (ranks == 1) return;
  const Flush<P> flush;
  merge_items<E>(LatentCall<E, P>(args, live, ranks), rank, ranks);
}

// bf16: with the set's dot instruction, by the faster of two ways with the same bits.
#if defined(__AVX512BF16__)
using Bf16Merge = PanelBf16;
void attend_bf16(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  if (args.dim[5].factor != 0) return attend<Bf16, PanelBf16Dot>(args, live, rank, ranks);
  attend<Bf16, PanelBf16>(args, live, rank, ranks);
}
#else
using Bf16Merge = PanelF32;
void attend_bf16(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  attend<Bf16, PanelF32>(args, live, rank, ranks);
}
#endif

}  // namespace

// ptr: cache, rows, slots. dim: tokens, bytes of a row. Negative slots are skipped.
void row_write(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  auto* cache = static_cast<char*>(args.ptr[0]);
  const auto* rows = static_cast<const char*>(args.ptr[1]);
  const auto* slots = static_cast<const int32_t*>(args.ptr[2]);
  const int64_t bytes = args.dim[1].value(live);
  const Range mine = share(args.dim[0].value(live), rank, ranks);
  for (int64_t t = mine.begin; t < mine.end; ++t)
    if (slots[t] >= 0) std::memcpy(cache + slots[t] * bytes, rows + t * bytes, static_cast<size_t>(bytes));
}

REPRISE_KERNEL(latent_attention_f32, attend<F32, PanelF32>)
REPRISE_KERNEL(latent_attention_bf16, attend_bf16)
REPRISE_KERNEL(latent_attention_f16, attend<F16, PanelF32>)
REPRISE_KERNEL(latent_attention_merge_f32, merge<F32, PanelF32>)
REPRISE_KERNEL(latent_attention_merge_bf16, merge<Bf16, Bf16Merge>)
REPRISE_KERNEL(latent_attention_merge_f16, merge<F16, PanelF32>)

}  // namespace reprise::cpu::REPRISE_ISA

// Attention over latents (multi-head latent attention in its absorbed form), and the write into their caches.
//
// A cache is [P, 128, width], row behind row as rows come: both products of attention want it so (latent_tile.h).
#include "backends/cpu/kernels/attention_walk.h"
#include "backends/cpu/kernels/latent_tile.h"
#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// ptr: q, q_rope, latents, ropes, page_table, context_lens, query_starts, out. dim: heads, latent size, rope size,
// sequences, columns of the page table. scalar: scale.
template <typename E>
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
    LatentTile<E> tile(this->scratch(rank), z, scale);
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
          tile.attend(latents + first * z.size, ropes + first * rope_size, item.first_page + p, to);
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

template <typename E>
void attend(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const Flush<PanelWide> flush;
  attend_items(LatentCall<E>(args, live, ranks), rank, ranks);
}

template <typename E>
void merge(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  if (ranks == 1) return;
  const Flush<PanelWide> flush;
  merge_items<E>(LatentCall<E>(args, live, ranks), rank, ranks);
}

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

REPRISE_KERNELS(latent_attention, attend)
REPRISE_KERNELS(latent_attention_merge, merge)

}  // namespace reprise::cpu::REPRISE_ISA

#include "backends/cpu/kernels/attention_plan.h"
#include "backends/cpu/kernels/attention_tile.h"
#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// A row as a token of the step and a head of the group, without a division for every next one.
struct RowPlace {
  int64_t token, head, per_group;
  void next() {
    if (++head < per_group) return;
    head = 0;
    ++token;
  }
};

// ptr: q, kv, page_table, context_lens, query_starts, out. dim: query heads, key/value heads, head size, sequences,
// columns of the page table, window, use of vdpbf16ps (avx512 only). scalar: scale.
template <typename E>
struct Call {
  using T = typename E::Type;

  Call(const LaunchArgs& args, const LiveSizes& live, int ranks)
      : q(static_cast<const T*>(args.ptr[0])),
        kv(args.ptr[1]),
        page_table(static_cast<const int32_t*>(args.ptr[2])),
        context_lens(static_cast<const int32_t*>(args.ptr[3])),
        query_starts(static_cast<const int32_t*>(args.ptr[4])),
        out(static_cast<T*>(args.ptr[5])),
        workspace(static_cast<float*>(args.workspace)),
        scale(static_cast<float>(args.scalar[0])) {
    sizes.heads = args.dim[0].value(live);
    sizes.kv_heads = args.dim[1].value(live);
    sizes.size = args.dim[2].value(live);
    sizes.sequences = args.dim[3].value(live);
    sizes.columns = args.dim[4].value(live);
    sizes.window = args.dim[5].value(live);
    rank_floats = sizes.rank_floats(ranks);
  }

  // Where row r of the item lies in q and in the output.
  RowPlace place_of(const AttentionItem& item, int64_t r) const {
    const int64_t row = item.first_row + r, per_group = sizes.per_group();
    return {row / per_group, row % per_group, per_group};
  }
  int64_t offset(const AttentionItem& item, const RowPlace& row) const {
    const int64_t token = query_starts[item.sequence] + row.token;
    return (token * sizes.heads + item.kv_head * row.per_group + row.head) * sizes.size;
  }

  // Slot 0 of a rank is the state of the item it began, slot 1 + i the i-th partial of the item it continues.
  Partial slot(int rank, int64_t i) const {
    float* p = workspace + rank * rank_floats + sizes.scratch_floats() + i * sizes.slot_floats();
    return {p, p + sizes.split_rows(), p + 2 * sizes.split_rows()};
  }

  const T* q;
  const void* kv;
  const int32_t* page_table;
  const int32_t* context_lens;
  const int32_t* query_starts;
  T* out;
  float* workspace;
  float scale;
  AttentionSizes sizes;
  int64_t rank_floats;
};

// A block of the cache as the cells of P.
template <typename E, typename P>
const typename P::Cell* block_of(const Call<E>& call, int64_t page, bool values, int64_t head) {
  using Stored = std::conditional_t<P::kScaled, int8_t, typename E::Type>;
  const AttentionSizes& z = call.sizes;
  const auto* block =
      static_cast<const Stored*>(call.kv) + kv_block(page, values, head, z.kv_heads, kv_row_of(z.size, P::kScaled));
  return reinterpret_cast<const typename P::Cell*>(block);
}

template <typename E, typename P>
void attend_item(const Call<E>& call, const AttentionItem& item, PageRange pages, int rank) {
  using T = typename E::Type;
  const AttentionSizes& z = call.sizes;
  float* scratch = call.workspace + rank * call.rank_floats;
  Tile<E, P> tile(scratch, AttentionSizes::kTileRows, z.size, call.scale);
  tile.set_rows(item.rows);
  RowPlace row = call.place_of(item, 0);
  for (int64_t r = 0; r < item.rows; ++r, row.next()) {
    const int64_t high = item.context - item.tokens + row.token + 1;
    const int64_t low = z.window > 0 && high > z.window ? high - z.window : 0;
    const T* q = call.q + call.offset(item, row);
    // A group's rows of a token are neighbours, those of the next token far away.
    for (int64_t b = 0; row.token + 4 < item.tokens && b < z.size; b += 64 / static_cast<int64_t>(sizeof(T)))
      _mm_prefetch(reinterpret_cast<const char*>(q + 4 * z.heads * z.size + b), _MM_HINT_T0);
    tile.set_row(r, q, low, high);
  }
  Partial state{scratch + Tile<E, P>::scratch_floats(AttentionSizes::kTileRows, z.size), nullptr, nullptr};
  state.l = state.m + AttentionSizes::kTileRows;
  state.o = state.l + AttentionSizes::kTileRows;
  const bool continues = pages.begin > 0, whole = !continues && pages.end >= item.pages;
  if (!continues && !whole) state = call.slot(rank, 0);
  if (item.pages == 0)
    for (int64_t r = 0; r < item.rows; ++r) state.l[r] = 0;
  const int32_t* table = call.page_table + item.sequence * z.columns + item.first_page;
  for (int64_t p = pages.begin; p < pages.end; ++p) {
    const auto* keys = block_of<E, P>(call, table[p], false, item.kv_head);
    const auto* values = block_of<E, P>(call, table[p], true, item.kv_head);
    // What this rank will probably read after this page, if it belongs to the same sequence.
    typename Tile<E, P>::Ahead next;
    const int64_t next_column = p + 1 < pages.end ? p + 1 : 0;
    const int64_t next_head = p + 1 < pages.end ? item.kv_head : item.kv_head + 1;
    if (next_head < z.kv_heads) {
      next.block = block_of<E, P>(call, table[next_column], false, next_head);
      next.tokens = item.context - (item.first_page + next_column) * kKvTokens;
    }
    if (continues) {
      tile.attend(keys, values, item.first_page + p, call.slot(rank, 1 + p - pages.begin), next);
    } else if (p == 0) {
      tile.attend(keys, values, item.first_page, state, next);
    } else {
      tile.attend(keys, values, item.first_page + p, tile.page_scratch(), next);
      tile.merge_page(state);
    }
  }
  if (!whole) return;
  row = call.place_of(item, 0);
  for (int64_t r = 0; r < item.rows; ++r, row.next())
    finish_row<E>(state.l[r], state.o + r * z.size, call.out + call.offset(item, row), z.size);
}

// A function of its own, so that no arithmetic moves across the change of mode.
template <typename E, typename P>
__attribute__((noinline)) void attend_flushed(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const Call<E> call(args, live, ranks);
  const int64_t length =
      walk_items(call.sizes, call.context_lens, call.query_starts, 0, 0, [](const AttentionItem&) {});
  const Range mine = share(length, rank, ranks);
  walk_items(call.sizes, call.context_lens, call.query_starts, mine.begin, mine.end, [&](const AttentionItem& item) {
    const PageRange pages = pages_of(item, mine.begin, mine.end);
    if (pages.end >= pages.begin && (pages.end > pages.begin || item.pages == 0))
      attend_item<E, P>(call, item, pages, rank);
  });
}

template <typename E, typename P>
void attend(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const Flush<P> flush;
  attend_flushed<E, P>(args, live, rank, ranks);
}

// bf16 by the faster of two ways with the same bits.
void attend_bf16(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
#if defined(__AVX512BF16__)
  if (args.dim[6].factor != 0) return attend<Bf16, PanelBf16Dot>(args, live, rank, ranks);
#endif
  attend<Bf16, PanelBf16>(args, live, rank, ranks);
}

// Merges the items that a border cut. Every rank takes a share of the rows of each.
template <typename E>
__attribute__((noinline)) void merge_flushed(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  if (ranks == 1) return;
  const Call<E> call(args, live, ranks);
  const AttentionSizes& z = call.sizes;
  const int64_t length = walk_items(z, call.context_lens, call.query_starts, 0, 0, [](const AttentionItem&) {});
  for (int owner = 0; owner + 1 < ranks; ++owner) {
    const Range r = share(length, owner, ranks);
    walk_items(z, call.context_lens, call.query_starts, r.begin, r.end, [&](const AttentionItem& item) {
      PageRange pages = pages_of(item, r.begin, r.end);
      if (!item.divisible || pages.begin > 0 || pages.end == 0 || pages.end >= item.pages) return;
      const Partial state = call.slot(owner, 0);
      const Range mine = share(item.rows, rank, ranks);
      for (int next = owner + 1; next < ranks && pages.end < item.pages; ++next) {
        const Range s = share(length, next, ranks);
        const PageRange more = pages_of(item, s.begin, s.end);
        for (int64_t p = more.begin; p < more.end; ++p) {
          const Partial page = call.slot(next, 1 + p - more.begin);
          merge_rows({state.m + mine.begin, state.l + mine.begin, state.o + mine.begin * z.size},
                     {page.m + mine.begin, page.l + mine.begin, page.o + mine.begin * z.size}, mine.end - mine.begin,
                     z.size);
        }
        pages.end = more.end;
      }
      RowPlace row = call.place_of(item, mine.begin);
      for (int64_t r = mine.begin; r < mine.end; ++r, row.next())
        finish_row<E>(state.l[r], state.o + r * z.size, call.out + call.offset(item, row), z.size);
    });
  }
}

template <typename E, typename P>
void merge(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const Flush<P> flush;
  merge_flushed<E>(args, live, rank, ranks);
}

}  // namespace

#define REPRISE_KERNEL(name, body) \
  void name(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) { body(args, live, rank, ranks); }
REPRISE_KERNEL(attention_f32, (attend<F32, PanelF32>))
REPRISE_KERNEL(attention_bf16, attend_bf16)
REPRISE_KERNEL(attention_f16, (attend<F16, PanelF16>))
REPRISE_KERNEL(attention_f32_i8, (attend<F32, PanelI8>))
REPRISE_KERNEL(attention_bf16_i8, (attend<Bf16, PanelI8>))
REPRISE_KERNEL(attention_f16_i8, (attend<F16, PanelI8>))
REPRISE_KERNEL(attention_merge_f32, (merge<F32, PanelF32>))
REPRISE_KERNEL(attention_merge_bf16, (merge<Bf16, PanelBf16>))
REPRISE_KERNEL(attention_merge_f16, (merge<F16, PanelF16>))
REPRISE_KERNEL(attention_merge_bf16_i8, (merge<Bf16, PanelI8>))
#undef REPRISE_KERNEL

}  // namespace reprise::cpu::REPRISE_ISA

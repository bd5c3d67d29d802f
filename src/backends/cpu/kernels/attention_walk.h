// What attention over grouped heads and over latents share: where the rows of an item lie, the walk over a thread's
// items and their pages, and the merging of items that a border cut. attention_plan.h says how the work is divided.
#pragma once

#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/kernels/attention_plan.h"
#include "backends/cpu/kernels/attention_softmax.h"
#include "backends/cpu/kernels/parts.h"

namespace reprise::cpu::REPRISE_ISA {

// A row as a token of the step and a head of the group, without a division for every next one.
struct RowPlace {
  int64_t token, head, per_group;
  void next() {
    if (++head < per_group) return;
    head = 0;
    ++token;
  }
};

// One call: tables, result and workspace. A kernel's own call adds what it reads, and attend(item, pages, thread).
template <typename E>
struct AttentionCall {
  using T = typename E::Type;

  // Where row r of the item lies in the queries and in the output.
  RowPlace place_of(const AttentionItem& item, int64_t r) const {
    const int64_t row = item.first_row + r, per_group = sizes.per_group();
    return {row / per_group, row % per_group, per_group};
  }
  // The number of the row among those of all tokens and heads.
  int64_t index(const AttentionItem& item, const RowPlace& row) const {
    const int64_t token = cu_seqlens[item.sequence] + row.token;
    return token * sizes.heads + item.kv_head * row.per_group + row.head;
  }

  // Slot 0 of a thread is the state of the item it began, slot 1 + i the i-th partial of the item it continues.
  Partial slot(int thread, int64_t i) const {
    float* p = scratch(thread) + sizes.scratch_floats() + i * sizes.slot_floats();
    return {p, p + sizes.split_rows(), p + 2 * sizes.split_rows()};
  }
  float* scratch(int thread) const { return workspace + thread * thread_floats; }

  const int32_t* page_table;
  const int32_t* context_lens;
  const int32_t* cu_seqlens;
  const float* sinks = nullptr;  // of every query head, or null
  T* out;
  float* workspace;
  AttentionSizes sizes;
  int64_t thread_floats;
};

template <typename E>
inline void finish_rows(const AttentionCall<E>& call, const AttentionItem& item, Range rows, const Partial& state) {
  const int64_t size = call.sizes.size;
  RowPlace row = call.place_of(item, rows.begin);
  for (int64_t r = rows.begin; r < rows.end; ++r, row.next()) {
    float share = share_of(state.l[r]);
    if (call.sinks && share != 0.0f)
      share = share_beside_sink(state.m[r], state.l[r], call.sinks[item.kv_head * row.per_group + row.head]);
    finish_row<E>(share, state.o + r * size, call.out + call.index(item, row) * size, size);
  }
}

// The pages of an item that are this thread's: page(p, to, merge) computes page p of the item into `to`, and merge()
// adds the page in `scratch` to the state. `state` is the thread's own place for the item's result.
template <typename E, typename Page, typename Merge>
inline void attend_pages(const AttentionCall<E>& call, const AttentionItem& item, PageRange pages, int thread,
                         Partial state, const Partial& scratch, const Page& page, const Merge& merge) {
  const bool continues = pages.begin > 0, whole = !continues && pages.end >= item.pages;
  if (!continues && !whole) state = call.slot(thread, 0);
  if (item.pages == 0)
    for (int64_t r = 0; r < item.rows; ++r) state.l[r] = 0;
  for (int64_t p = pages.begin; p < pages.end; ++p) {
    if (continues) {
      page(p, call.slot(thread, 1 + p - pages.begin));
    } else if (p == 0) {
      page(p, state);
    } else {
      page(p, scratch);
      merge(state);
    }
  }
  if (whole) finish_rows(call, item, {0, item.rows}, state);
}

// Calls visit(item, pages) for the items of a thread's share, and which of their pages are in it.
template <typename E, typename Visit>
inline void each_item(const AttentionCall<E>& call, int64_t length, int thread, int threads, const Visit& visit) {
  const Range of = share(length, thread, threads);
  walk_items(call.sizes, call.context_lens, call.cu_seqlens, of.begin, of.end, [&](const AttentionItem& item) {
    const PageRange pages = pages_of(item, of.begin, of.end);
    if (pages.end >= pages.begin && (pages.end > pages.begin || item.pages == 0)) visit(item, pages);
  });
}

// The items of this thread's share. In steps with prompts those that are not divided may be computed by any thread
// (parts.h); the others read memory for the most part. A function of its own, so that no arithmetic moves across a
// change of the floating-point mode.
template <typename Call>
__attribute__((noinline)) void attend_items(const Call& call, const Launch& l) {
  const AttentionSizes& z = call.sizes;
  const int64_t length = walk_items(z, call.context_lens, call.cu_seqlens, 0, 0, [](const AttentionItem&) {});
  const bool helps = call.cu_seqlens[z.sequences] > kAlone * z.sequences;
  each_item(call, length, l.thread, l.threads, [&](const AttentionItem& item, PageRange pages) {
    if (!helps || item.divisible) call.attend(item, pages, l.thread);
  });
  if (!helps) return;
  Helper helper(l, true);
  do {
    int64_t count = 0, at = 0;
    each_item(call, length, helper.owner(), l.threads,
              [&](const AttentionItem& item, PageRange) { count += !item.divisible; });
    int64_t part = helper.next(count);
    if (part < 0) continue;
    each_item(call, length, helper.owner(), l.threads, [&](const AttentionItem& item, PageRange pages) {
      if (item.divisible || at++ != part) return;
      call.attend(item, pages, l.thread);
      part = helper.next(count);
    });
  } while (helper.next_owner());
}

// Merges the items that a border cut; there are some where there are several threads. Every thread takes a share of the
// rows of each.
template <typename E>
__attribute__((noinline)) void merge_items(const AttentionCall<E>& call, int thread, int threads) {
  const AttentionSizes& z = call.sizes;
  const int64_t length = walk_items(z, call.context_lens, call.cu_seqlens, 0, 0, [](const AttentionItem&) {});
  for (int owner = 0; owner + 1 < threads; ++owner) {
    const Range r = share(length, owner, threads);
    walk_items(z, call.context_lens, call.cu_seqlens, r.begin, r.end, [&](const AttentionItem& item) {
      PageRange pages = pages_of(item, r.begin, r.end);
      if (!item.divisible || pages.begin > 0 || pages.end == 0 || pages.end >= item.pages) return;
      const Partial state = call.slot(owner, 0);
      const Range mine = share(item.rows, thread, threads);
      for (int next = owner + 1; next < threads && pages.end < item.pages; ++next) {
        const Range s = share(length, next, threads);
        const PageRange more = pages_of(item, s.begin, s.end);
        for (int64_t p = more.begin; p < more.end; ++p) {
          const Partial page = call.slot(next, 1 + p - more.begin);
          merge_rows({state.m + mine.begin, state.l + mine.begin, state.o + mine.begin * z.size},
                     {page.m + mine.begin, page.l + mine.begin, page.o + mine.begin * z.size}, mine.end - mine.begin,
                     z.size);
        }
        pages.end = more.end;
      }
      finish_rows(call, item, mine, state);
    });
  }
}

}  // namespace reprise::cpu::REPRISE_ISA

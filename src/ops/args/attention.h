// Launch arguments of attention over paged caches, of keys and values and of latents.
//
// `tokens` of the step belong to `sequences`, whose rows of the page table have `columns`. Caches have `pages`. Filled
// in attention.cpp.
#pragma once

#include "device/thunk.h"

namespace reprise {

struct OpCall;
class Status;
enum class DType : uint8_t;

// For the devices whose attention cannot cap scores, for those that know no sinks, and no chunks.
Status want_no_softcap(const OpCall& call);
Status want_no_chunk(const OpCall& call);
Status want_no_sinks(const OpCall& call);

struct PagedAttentionArgs {
  In q, kv, page_table, context_lens, cu_seqlens, sinks;
  Out out;
  Dim tokens, sequences, columns;
  int64_t heads, kv_heads, size, window, chunk;
  double scale, softcap;

  void fill(const OpCall& call);
};

// The same on keys and values in caches of rows.
struct PagedAttentionRowsArgs {
  In q, keys, values, page_table, context_lens, cu_seqlens, sinks;
  Out out;
  Dim tokens, sequences, columns, pages;
  int64_t heads, kv_heads, size, window;
  double scale;
  DType type;

  void fill(const OpCall& call);
};

struct LatentAttentionArgs {
  In q, q_rope, c_kv, k_pe, page_table, context_lens, cu_seqlens;
  Out out;
  Dim tokens, sequences, columns, pages;
  int64_t heads, latent, rope;
  double scale;
  DType type;

  void fill(const OpCall& call);
};

// `nope` and `value`: sizes of a head's query without its rotated part, and of its result.
struct ExpandedLatentArgs {
  Out out;
  In q, q_rope, c_kv, k_pe, weight, value_weight, page_table, context_lens, cu_seqlens;
  Out same;
  Dim tokens, sequences, columns;
  int64_t heads, latent, rope, nope, value;
  double scale;

  void fill(const OpCall& call);
};

struct LatentFormsArgs {
  In slots, context_lens, cu_seqlens;
  Out rows, absorbed, expanded;
  Dim tokens, sequences;
  int64_t latent, nope, value;

  void fill(const OpCall& call);
};

}  // namespace reprise

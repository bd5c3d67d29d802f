// Entries of the key/value cache and of attention over it.
//
// Keys and values lie in caches of their own, [pages, 128, heads * head size]: the one layout that the writing operator
// and every form of the fused attention take. Lengths are host arrays.
#include <algorithm>
#include <cmath>

#include "backends/ascend/attention_plan.h"
#include "backends/ascend/entries.h"
#include "ops/args/attention.h"
#include "ops/args/rotation.h"
#include "ops/core.h"

namespace reprise::ascend {
namespace {

// rows [T, N] to slots of the cache [P, 128, N]. Keys and values are written one after the other, so there is no value:
// tensors without dimensions, as null is refused or read (aclnnScatterPaKvCache.md:367 and
// scatter_pa_kv_cache_tiling.cpp:532 of ops-transformer 57781440; the same in its commit e05d98c2 of December 2025).
Status row_write(const RowWriteArgs& a, Launch& l) {
  const int64_t pages = l.size(a.pages), t = l.size(a.tokens);
  return l.run(l.ops().scatter_kv, l.tensor(a.rows, a.type, {t, 1, a.width}),
               l.tensor(a.cache, a.type, {pages, kPageTokens, 1, a.width}), l.tensor(a.slots, DType::I32, {t}),
               l.none(a.rows, a.type), l.none(a.cache, a.type), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
               nullptr);
}

// The same for CANN 8.1, which has no operator for caches.
Status row_write_scattered(const RowWriteArgs& a, Launch& l) {
  const int64_t pages = l.size(a.pages), t = l.size(a.tokens);
  return l.run(l.ops().scatter_nd, l.tensor(a.cache, a.type, {pages * kPageTokens, a.width}),
               l.tensor(a.slots, DType::I32, {t, 1}), l.tensor(a.rows, a.type, {t, a.width}));
}

// Query [T, H, D], keys and values [P, 128, G * D], page table [R, C], lengths on the host.
//
// Sinks go with joined tokens alone (c29bc106, fused_infer_attention_score_tiling.cpp:1226-1230), in the type of the
// query. Windows are bands of joined tokens (TND, sparseMode 4) in steps, too: the form with a batch ignores mask and
// mode where every request has one row, joined tokens do not (ops-transformer 57781440,
// flash_attention_regular.h:578-614; c29bc106, prompt_flash_attention_tiling.cpp:4905-4986). A row at position p sees
// the keys from p - preTokens on (fused_block_epilogue_online_softmax_operator.inc.hpp:439-448), so preTokens is the
// window without the own token.
struct Attention {
  int64_t tokens, heads, head_size, pages, kv_heads, sequences, columns;
  bool joined;
  AttentionPlan plan;
};

Attention plan_of(const PagedAttentionRowsArgs& a, Launch& l) {
  Attention s{
      l.size(a.tokens),        a.heads, a.size, l.size(a.pages), a.kv_heads, l.size(a.sequences), l.size(a.columns),
      a.window > 0 || a.sinks, {}};
  const int32_t *lens = l.host(0), *starts = l.host(1);
  if (!l.probing() || (lens && starts)) {
    const auto rows = static_cast<size_t>(s.sequences);
    s.plan =
        AttentionPlan::of(s.tokens, s.sequences, s.columns * kPageTokens, {lens, rows}, {starts, rows + 1}, s.joined);
    return s;
  }
  // A probe has no lengths: the longest ones, so that the workspace is enough for all.
  const bool each = s.tokens == s.sequences && !s.joined;
  s.plan = AttentionPlan::longest(s.tokens, s.sequences, s.columns * kPageTokens, each);
  return s;
}

Status fused_of(const Attention& s, const AttentionPlan& plan, const PagedAttentionRowsArgs& a, Launch& l) {
  const int64_t width = s.kv_heads * s.head_size;
  const bool each = plan.one_row_each;
  auto rows = [&](const void* all) {
    const void* data = behind(all, plan.first_token * s.heads * s.head_size * static_cast<int64_t>(size_of(a.type)));
    return each ? l.tensor(data, a.type, {plan.tokens, 1, s.heads, s.head_size})
                : l.tensor(data, a.type, {plan.tokens, s.heads, s.head_size});
  };
  const void* table = behind(a.page_table, plan.first_sequence * s.columns * static_cast<int64_t>(sizeof(int32_t)));
  auto pool = [&](const void* data) { return l.list(l.tensor(data, a.type, {s.pages, kPageTokens, width})); };
  static char batch[] = "BSND", tokens[] = "TND";
  char* layout = each ? batch : tokens;
  const bool band = a.window > 0;
  const int64_t before = band ? std::min(a.window - 1, kNoLimit) : kNoLimit, after = band ? 0 : kNoLimit;
  const int64_t sparse = each ? 0 : band ? 4 : 3;
  aclTensor* mask = each ? nullptr : l.tensor(l.constant(), ACL_BOOL, {Context::kMask, Context::kMask});
  aclIntArray *ends = each ? nullptr : l.integers(plan.query_end), *lengths = l.integers(plan.lengths);
  aclTensor *pages = l.tensor(table, DType::I32, {plan.sequences, s.columns}), *none = l.tensor(a.out, ACL_FLOAT, {0});
  if (a.sinks)
    return l.run(l.ops().sunk_attention, rows(a.q), pool(a.keys), pool(a.values), nullptr, mask, ends, lengths, nullptr,
                 nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, pages, nullptr, nullptr, nullptr, nullptr,
                 nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                 l.tensor(a.sinks, a.type, {s.heads}), s.heads, a.scale, before, after, layout, s.kv_heads, sparse, 0,
                 kPageTokens, 0, false, 0, 0, 0, rows(a.out), none);
  return l.run(l.ops().fused_attention, rows(a.q), pool(a.keys), pool(a.values), nullptr, mask, ends, lengths, nullptr,
               nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, pages, nullptr, nullptr, nullptr, nullptr, nullptr,
               nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, s.heads, a.scale, before, after, layout,
               s.kv_heads, sparse, 0, kPageTokens, 0, false, 0, 0, rows(a.out), none);
}

// The forms that a kernel must take before it is chosen: prompts and steps. A decode graph's steps may come as prompts,
// and a batch of prompts of one row each comes as a step.
Status probe_fused(const Attention& s, bool prompts, const PagedAttentionRowsArgs& a, Launch& l) {
  const int64_t context = s.columns * kPageTokens, both = std::min(s.tokens, s.sequences);
  if (prompts) RETURN_IF_ERROR(fused_of(s, AttentionPlan::longest(s.tokens, s.sequences, context, false), a, l));
  RETURN_IF_ERROR(fused_of(s, AttentionPlan::longest(both, both, context, !s.joined), a, l));
  if (!l.at_bounds()) return Status::ok();
  for (const AttentionPlan& plan : AttentionPlan::cut_over_cores(s.tokens, s.sequences, context))
    if (plan.one_row_each ? !s.joined : prompts) RETURN_IF_ERROR(fused_of(s, plan, a, l));
  return Status::ok();
}

bool without_lengths(const Launch& l) { return l.probing() && !(l.host(0) && l.host(1)); }

Status fused(const PagedAttentionRowsArgs& a, Launch& l) {
  const Attention s = plan_of(a, l);
  if (without_lengths(l) && l.group() == Launch::Group::None) return probe_fused(s, true, a, l);
  if (!s.plan.empty()) return fused_of(s, s.plan, a, l);
  // A task group needs its task even where no row belongs to a sequence.
  if (l.group() == Launch::Group::None) return Status::ok();
  return fused_of(s, AttentionPlan::dummy(s.tokens, s.sequences, s.columns * kPageTokens, s.joined), a, l);
}

// Before the fused operator there was one for steps, and one for prompts that knows no pages: each sequence's keys and
// values are gathered first.
Status pair_step(const Attention& s, const PagedAttentionRowsArgs& a, Launch& l) {
  static char batch[] = "BSND";
  auto pool = [&](const void* data) {
    return l.list(l.tensor(data, a.type, {s.pages, kPageTokens, s.kv_heads * s.head_size}));
  };
  auto query = [&](const void* data) { return l.tensor(data, a.type, {s.plan.tokens, 1, s.heads, s.head_size}); };
  return l.run(l.ops().decode_attention, query(a.q), pool(a.keys), pool(a.values), nullptr, nullptr,
               l.integers(s.plan.lengths), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
               l.tensor(a.page_table, DType::I32, {s.plan.sequences, s.columns}), nullptr, s.heads, a.scale, batch,
               s.kv_heads, kPageTokens, 1, query(a.out));
}

Status pair_prompts(const Attention& s, const PagedAttentionRowsArgs& a, Launch& l) {
  const DType type = a.type;
  const std::array<const void*, 2> caches{a.keys.data, a.values.data};
  const int64_t width = s.kv_heads * s.head_size, row = s.heads * s.head_size;
  static char rows[] = "BSH";
  const size_t bytes = static_cast<size_t>(s.columns * kPageTokens * width) * size_of(type);
  const std::array<void*, 2> gathered{l.scratch(bytes), l.scratch(bytes)};
  int64_t first = 0;
  for (int64_t r = 0; r < s.plan.sequences; ++r) {
    const int64_t end = s.plan.query_end[static_cast<size_t>(r)], n = end - first;
    const int64_t keys = s.plan.lengths[static_cast<size_t>(r)], used = (keys + kPageTokens - 1) / kPageTokens;
    if (n > 0) {
      std::array<aclTensor*, 2> kv{};
      for (size_t i : {0, 1}) {
        RETURN_IF_ERROR(l.run(l.ops().index_select, l.tensor(caches[i], type, {s.pages, kPageTokens * width}), 0,
                              l.view(a.page_table, DType::I32, {used}, {1}, (s.plan.first_sequence + r) * s.columns,
                                     s.sequences * s.columns),
                              l.tensor(gathered[i], type, {used, kPageTokens * width})));
        kv[i] = l.tensor(gathered[i], type, {1, keys, width});
      }
      auto query = [&](const void* data) {
        const int64_t before = (s.plan.first_token + first) * row;
        return l.tensor(behind(data, before * static_cast<int64_t>(size_of(type))), type, {1, n, row});
      };
      // A single row sees every key, and the operator would want a mask of its own shape for it.
      aclTensor* mask = n > 1 ? l.tensor(l.constant(), ACL_BOOL, {Context::kMask, Context::kMask}) : nullptr;
      RETURN_IF_ERROR(l.run(l.ops().prompt_attention, query(a.q), kv[0], kv[1], nullptr, mask, nullptr, nullptr,
                            nullptr, nullptr, nullptr, nullptr, nullptr, s.heads, a.scale, kNoLimit, kNoLimit, rows,
                            s.kv_heads, n > 1 ? 3 : 0, 1, query(a.out)));
    }
    first = end;
  }
  return Status::ok();
}

// Prompts by the older operator, one by one; steps by the fused one where there is such (`Fused`), else by the other
// older one. For what the fused operator refuses in prompts: CANN 8.1 has no pages there, and before CANN 9 its rows
// are bf16 and its heads of 64, 128 or 192 (ops-transformer c29bc106, prompt_flash_attention_tiling.cpp:
// CheckInputShapeWhenLayoutIsTND).
template <bool Fused>
Status prompts_one_by_one(const PagedAttentionRowsArgs& a, Launch& l) {
  Attention s = plan_of(a, l);
  const int64_t context = s.columns * kPageTokens;
  const bool as_many = s.tokens == s.sequences, grouped = l.group() != Launch::Group::None;
  const auto step = [&] { return Fused ? fused_of(s, s.plan, a, l) : pair_step(s, a, l); };
  if (l.group() == Launch::Group::Record) s.plan = AttentionPlan::longest(s.tokens, s.sequences, context, true);
  if (grouped && s.plan.empty()) s.plan = AttentionPlan::dummy(s.tokens, s.sequences, context);
  if (grouped && !(as_many && s.plan.one_row_each))
    return error(Code::Unsupported,
                 "attention of prompts by the operator before the fused one runs once per prompt, which no graph can "
                 "hold");
  if (without_lengths(l) && !grouped) {
    const int64_t both = std::min(s.tokens, s.sequences);
    if (Fused) {
      RETURN_IF_ERROR(probe_fused(s, false, a, l));
    } else {
      s.plan = AttentionPlan::longest(both, both, context, true);
      RETURN_IF_ERROR(pair_step(s, a, l));
    }
    // One prompt of all tokens takes the most room.
    s.plan = AttentionPlan::longest(s.tokens, 1, context, false);
    return pair_prompts(s, a, l);
  }
  if (s.plan.empty()) return Status::ok();
  return s.plan.one_row_each ? step() : pair_prompts(s, a, l);
}

Status accepts_attention(const OpCall& c) {
  RETURN_IF_ERROR(want_constant_rows(c));
  if (c.in[0].dtype != DType::F16 && c.in[0].dtype != DType::BF16)
    return error(Code::Unsupported, "the vendor's attention takes f16 and bf16, not {}", describe(c));
  RETURN_IF_ERROR(want_no_chunk(c));
  return want_no_softcap(c);
}

Status want_no_row_sinks(const OpCall& c) {
  if (c.in.size() > 6)
    return error(Code::Unsupported,
                 "attention with sinks: of the vendor's operators FusedInferAttentionScoreV4 alone knows them");
  return Status::ok();
}

// Where prompts are not joined tokens, steps are not, either.
Status accepts_apart(const OpCall& c) {
  RETURN_IF_ERROR(accepts_attention(c));
  RETURN_IF_ERROR(want_no_row_sinks(c));
  if (const int64_t window = c.attrs->integer("window"); window > 0)
    return error(Code::Unsupported,
                 "a sliding window of {} tokens: in steps of one token the vendor's attention knows windows of joined "
                 "tokens (TND) alone",
                 window);
  return Status::ok();
}

}  // namespace

Status fused_attention_rows(const LaunchArgs& args, const LiveSizes& live, Launch& launch) {
  return kernel<fused>(args, live, launch);
}

void register_attention(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  add(kernels, context, {"row_write", kernel<row_write>, {}, want_constant_rows});
  add(kernels, context, {"row_write", kernel<row_write_scattered>, {}, want_constant_rows, {}, ".scattered", 50});
  const auto mask = [context](const OpCall&, LaunchArgs& args) { args.constant = context->causal_mask(); };
  const auto attention = [&](AscendKernel run, const char* variant, int score) {
    const auto accepts = score == 100 ? accepts_attention : accepts_apart;
    Entry e{"paged_attention_rows", run, mask, accepts, {4, 5}, variant, score};
    e.announced = true;
    add(kernels, context, std::move(e));
  };
  if (context->fused_attention()) {
    attention(kernel<fused>, "", 100);
    attention(kernel<prompts_one_by_one<true>>, ".prompts_one_by_one", 75);
  }
  attention(kernel<prompts_one_by_one<false>>, ".pair", 50);
}

}  // namespace reprise::ascend

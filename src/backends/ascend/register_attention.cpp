// Entries of the key/value cache and of attention over it.
//
// Keys and values lie in caches of their own, [pages, 128, heads * head size]: the one layout that the writing operator
// and every form of the fused attention take. Lengths are host arrays.
#include <algorithm>
#include <cmath>

#include "backends/ascend/attention_plan.h"
#include "backends/ascend/entries.h"
#include "ops/core.h"

namespace reprise::ascend {
namespace {

constexpr int64_t kNoLimit = 2147483647;

int64_t size(const LaunchArgs& args, int i, const LiveSizes& live) {
  return args.dim[static_cast<size_t>(i)].value(live);
}

// rows [T, N] to slots of the cache [P, 128, N]. Keys and values are written one after the other, so there is no value:
// tensors without dimensions, as null is refused or read (aclnnScatterPaKvCache.md:367 and
// scatter_pa_kv_cache_tiling.cpp:532 of ops-transformer 57781440; the same in its commit e05d98c2 of December 2025).
Status row_write(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t pages = size(a, 0, live), width = size(a, 1, live), t = size(a, 2, live);
  const DType type = type_of(a, 0);
  return l.run(l.ops().scatter_kv, l.tensor(a.ptr[1], type, {t, 1, width}),
               l.tensor(a.ptr[0], type, {pages, kPageTokens, 1, width}), l.tensor(a.ptr[2], type_of(a, 2), {t}),
               l.none(a.ptr[1], type), l.none(a.ptr[0], type), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
               nullptr);
}

// The same for CANN 8.1, which has no operator for caches.
Status row_write_scattered(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t pages = size(a, 0, live), width = size(a, 1, live), t = size(a, 2, live);
  const DType type = type_of(a, 0);
  return l.run(l.ops().scatter_nd, l.tensor(a.ptr[0], type, {pages * kPageTokens, width}),
               l.tensor(a.ptr[2], type_of(a, 2), {t, 1}), l.tensor(a.ptr[1], type, {t, width}));
}

void bind_row_write(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[0].shape[2];
  args.dim[2] = c.in[1].shape[0];
}

// Query [T, H, D], keys and values [P, 128, G * D], page table [R, C], lengths on the host.
struct Attention {
  int64_t tokens, heads, head_size, pages, kv_heads, sequences, columns;
  AttentionPlan plan;
};

Attention plan_of(const LaunchArgs& a, const LiveSizes& live, const Launch& l) {
  Attention s{size(a, 0, live), size(a, 1, live), size(a, 2, live), size(a, 3, live),
              size(a, 4, live), size(a, 5, live), size(a, 6, live), {}};
  const auto* lens = static_cast<const int32_t*>(a.host[0]);
  const auto* starts = static_cast<const int32_t*>(a.host[1]);
  if (!l.probing() || (lens && starts)) {
    const auto rows = static_cast<size_t>(s.sequences);
    s.plan = AttentionPlan::of(s.tokens, s.sequences, s.columns * kPageTokens, {lens, rows}, {starts, rows + 1});
    return s;
  }
  // A probe has no lengths: the longest ones, so that the workspace is enough for all.
  s.plan = AttentionPlan::longest(s.tokens, s.sequences, s.columns * kPageTokens, s.tokens == s.sequences);
  return s;
}

Status fused_of(const Attention& s, const AttentionPlan& plan, const LaunchArgs& a, Launch& l) {
  const DType type = type_of(a, 0);
  const int64_t width = s.kv_heads * s.head_size;
  const bool each = plan.one_row_each;
  auto rows = [&](void* data) {
    return each ? l.tensor(data, type, {plan.tokens, 1, s.heads, s.head_size})
                : l.tensor(data, type, {plan.tokens, s.heads, s.head_size});
  };
  auto pool = [&](void* data) { return l.list(l.tensor(data, type, {s.pages, kPageTokens, width})); };
  static char batch[] = "BSND", tokens[] = "TND";
  aclTensor* mask = each ? nullptr : l.tensor(a.ptr[7], ACL_BOOL, {Context::kMask, Context::kMask});
  return l.run(l.ops().fused_attention, rows(a.ptr[0]), pool(a.ptr[1]), pool(a.ptr[2]), nullptr, mask,
               each ? nullptr : l.integers(plan.query_end), l.integers(plan.lengths), nullptr, nullptr, nullptr,
               nullptr, nullptr, nullptr, nullptr, l.tensor(a.ptr[3], type_of(a, 3), {plan.sequences, s.columns}),
               nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
               nullptr, s.heads, a.scalar[0], kNoLimit, kNoLimit, each ? batch : tokens, s.kv_heads, each ? 0 : 3, 0,
               kPageTokens, 0, false, 0, 0, rows(a.ptr[6]), l.tensor(a.ptr[6], ACL_FLOAT, {0}));
}

// The forms that a kernel must take before it is chosen: prompts and steps. A decode graph's steps may come as prompts,
// and a batch of prompts of one row each comes as a step.
Status probe_fused(const Attention& s, bool prompts, const LaunchArgs& a, Launch& l) {
  const int64_t context = s.columns * kPageTokens, both = std::min(s.tokens, s.sequences);
  if (prompts) RETURN_IF_ERROR(fused_of(s, AttentionPlan::longest(s.tokens, s.sequences, context, false), a, l));
  RETURN_IF_ERROR(fused_of(s, AttentionPlan::longest(both, both, context, true), a, l));
  if (!l.at_bounds()) return Status::ok();
  for (const AttentionPlan& plan : AttentionPlan::cut_over_cores(s.tokens, s.sequences, context))
    if (prompts || plan.one_row_each) RETURN_IF_ERROR(fused_of(s, plan, a, l));
  return Status::ok();
}

bool without_lengths(const LaunchArgs& a, const Launch& l) {
  return l.probing() && (a.host[0] == nullptr || a.host[1] == nullptr);
}

Status fused(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const Attention s = plan_of(a, live, l);
  if (without_lengths(a, l) && l.group() == Launch::Group::None) return probe_fused(s, true, a, l);
  if (!s.plan.empty()) return fused_of(s, s.plan, a, l);
  // A task group wants its task even where no row belongs to anybody.
  if (l.group() == Launch::Group::None) return Status::ok();
  return fused_of(s, AttentionPlan::nobody(s.tokens, s.sequences, s.columns * kPageTokens), a, l);
}

// Before the fused operator there was one for steps, and one for prompts that knows no pages: each sequence's keys and
// values are gathered first.
Status pair_step(const Attention& s, const LaunchArgs& a, Launch& l) {
  const DType type = type_of(a, 0), index = type_of(a, 3);
  static char batch[] = "BSND";
  auto pool = [&](void* data) {
    return l.list(l.tensor(data, type, {s.pages, kPageTokens, s.kv_heads * s.head_size}));
  };
  auto query = [&](void* data) { return l.tensor(data, type, {s.plan.tokens, 1, s.heads, s.head_size}); };
  return l.run(l.ops().decode_attention, query(a.ptr[0]), pool(a.ptr[1]), pool(a.ptr[2]), nullptr, nullptr,
               l.integers(s.plan.lengths), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
               l.tensor(a.ptr[3], index, {s.plan.sequences, s.columns}), nullptr, s.heads, a.scalar[0], batch,
               s.kv_heads, kPageTokens, 1, query(a.ptr[6]));
}

Status pair_prompts(const Attention& s, const LaunchArgs& a, Launch& l) {
  const DType type = type_of(a, 0), index = type_of(a, 3);
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
        RETURN_IF_ERROR(l.run(l.ops().index_select, l.tensor(a.ptr[1 + i], type, {s.pages, kPageTokens * width}), 0,
                              l.view(a.ptr[3], index, {used}, {1}, r * s.columns, s.sequences * s.columns),
                              l.tensor(gathered[i], type, {used, kPageTokens * width})));
        kv[i] = l.tensor(gathered[i], type, {1, keys, width});
      }
      auto query = [&](void* data) {
        return l.tensor(static_cast<uint8_t*>(data) + static_cast<size_t>(first * row) * size_of(type), type,
                        {1, n, row});
      };
      // A single row sees every key, and the operator would want a mask of its own shape for it.
      aclTensor* mask = n > 1 ? l.tensor(a.ptr[7], ACL_BOOL, {Context::kMask, Context::kMask}) : nullptr;
      RETURN_IF_ERROR(l.run(l.ops().prompt_attention, query(a.ptr[0]), kv[0], kv[1], nullptr, mask, nullptr, nullptr,
                            nullptr, nullptr, nullptr, nullptr, nullptr, s.heads, a.scalar[0], kNoLimit, kNoLimit, rows,
                            s.kv_heads, n > 1 ? 3 : 0, 1, query(a.ptr[6])));
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
Status prompts_one_by_one(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  Attention s = plan_of(a, live, l);
  const int64_t context = s.columns * kPageTokens;
  const bool as_many = s.tokens == s.sequences, grouped = l.group() != Launch::Group::None;
  const auto step = [&] { return Fused ? fused_of(s, s.plan, a, l) : pair_step(s, a, l); };
  if (l.group() == Launch::Group::Record) s.plan = AttentionPlan::longest(s.tokens, s.sequences, context, true);
  if (grouped && s.plan.empty()) s.plan = AttentionPlan::nobody(s.tokens, s.sequences, context);
  if (grouped && !(as_many && s.plan.one_row_each))
    return error(Code::Unsupported,
                 "attention of prompts by the operator before the fused one runs once per prompt, which no graph can "
                 "hold");
  if (without_lengths(a, l) && !grouped) {
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
  if (const int64_t window = c.attrs->integer("window"); window > 0)
    return error(Code::Unsupported,
                 "a sliding window of {} tokens: the vendor's attention knows windows in prompts, but ignores them in "
                 "steps of one token",
                 window);
  return Status::ok();
}

}  // namespace

Status fused_attention_rows(const LaunchArgs& args, const LiveSizes& live, Launch& launch) {
  return fused(args, live, launch);
}

void register_attention(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  add(kernels, context, {"row_write", row_write, bind_row_write, want_constant_rows});
  add(kernels, context, {"row_write", row_write_scattered, bind_row_write, want_constant_rows, {}, ".scattered", 50});
  auto bind = [context](const OpCall& c, LaunchArgs& args) {
    args.dim[0] = c.in[0].shape[0];
    args.dim[1] = c.in[0].shape[1];
    args.dim[2] = c.in[0].shape[2];
    args.dim[3] = c.in[1].shape[0];
    args.dim[4] = Dim(c.in[1].shape[2].factor / c.in[0].shape[2].factor);
    args.dim[5] = c.in[3].shape[0];
    args.dim[6] = c.in[3].shape[1];
    args.scalar[0] = c.attrs->number("scale");
    args.ptr[7] = context->causal_mask();
  };
  const auto attention = [&](AscendKernel kernel, const char* variant, int score) {
    Entry e{"paged_attention_rows", kernel, bind, accepts_attention, {4, 5}, variant, score};
    e.announced = true;
    add(kernels, context, std::move(e));
  };
  if (context->fused_attention()) {
    attention(fused, "", 100);
    attention(prompts_one_by_one<true>, ".prompts_one_by_one", 75);
  }
  attention(prompts_one_by_one<false>, ".pair", 50);
}

}  // namespace reprise::ascend

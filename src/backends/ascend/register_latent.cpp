// Entries of multi-head latent attention: products per head, and attention of all heads over one latent per token.
//
// The fused attention takes a query and keys in two parts, one of them rotated, with latents as keys and values alike;
// of a sequence it takes at most 16 rows, so longer prompts are cut into pieces that share their pages. Before CANN 9
// prompts want 32, 64 or 128 heads (ops-transformer c29bc106, aclnnFusedInferAttentionScoreV3.md); those of other
// models are cut into single rows, which are steps to the operator.
#include "backends/ascend/angles.h"
#include "backends/ascend/attention_plan.h"
#include "ops/args/attention.h"
#include "ops/args/products.h"
#include "ops/args/rotation.h"
#include "ops/core.h"

namespace reprise::ascend {
namespace {

constexpr int64_t kMostRows = 16;  // of one sequence

// x [T, H, K], weight [H, N, K], result [T, H, N].
Status per_head_matmul(const PerHeadMatmulArgs& a, Launch& l) {
  const int64_t t = l.size(a.shape.rows), h = a.heads, k = a.shape.depth, n = a.shape.columns;
  constexpr int64_t turned[] = {1, 0, 2}, transposed[] = {0, 2, 1};
  return l.run(l.ops().transpose_batch_matmul, l.tensor(a.x, a.type, {t, h, k}), l.tensor(a.weight, a.type, {h, n, k}),
               nullptr, nullptr, l.integers(turned), l.integers(transposed), l.integers(turned), kKeepType, 1,
               l.tensor(a.out, a.type, {t, h, n}));
}

// For CANN 8.1 and for rows too long for the former: heads are the batch, and what lies token after token is described
// by strides.
Status per_head_matmul_strided(const PerHeadMatmulArgs& a, Launch& l) {
  const int64_t t = l.size(a.shape.rows), h = a.heads, k = a.shape.depth, n = a.shape.columns;
  return l.run(l.ops().batch_matmul, l.view(a.x, a.type, {h, t, k}, {k, h * k, 1}, 0, t * h * k),
               l.view(a.weight, a.type, {h, k, n}, {n * k, 1, k}, 0, h * n * k),
               l.view(a.out, a.type, {h, t, n}, {n, h * n, 1}, 0, t * h * n), kKeepType);
}

// What tokens leave in the caches: norm of the latent, rotation of the rest, both writes in one operator. It puts the
// rotated pairs apart, as rope does (ops-transformer 57781440, kv_rms_norm_rope_cache_b16_mtp.h RopeK), skips negative
// slots (ScatterUpdate of ..._b16_b1sd.h), and takes rows of 512 and 64 on these chips (..._ds_tiling.cpp). Its two
// results by rows are not asked for, but their tensors may not be null.
Status latent_rows(const LatentRowsArgs& a, Launch& l) {
  const int64_t t = l.size(a.tokens), pages = l.size(a.pages);
  ASSIGN_OR_RETURN(const AnglePlanes angles, planes_of_angles({.data = a.table.data,
                                                               .stored = a.table_type,
                                                               .type = a.type,
                                                               .tokens = t,
                                                               .rotated = a.rotated,
                                                               .planes = a.planes},
                                                              l));
  aclTensor* slots = l.tensor(a.slots, a.slot_type, {t});
  if (a.slot_type != DType::I64) {
    aclTensor* wide = l.tensor(l.scratch(static_cast<size_t>(t) * sizeof(int64_t)), DType::I64, {t});
    RETURN_IF_ERROR(l.run(l.ops().cast, slots, ACL_INT64, wide));
    slots = wide;
  }
  const auto rows = [&](const void* data, int64_t n) { return l.tensor(data, a.type, {t, 1, 1, n}); };
  const auto pool = [&](const void* data, int64_t n) { return l.tensor(data, a.type, {pages, kPageTokens, 1, n}); };
  const auto unused = [&](int64_t n) { return rows(l.scratch(static_cast<size_t>(t * n) * size_of(a.type)), n); };
  static char by_slots[] = "PA";
  return l.run(l.ops().latent_rows, rows(a.kv, a.width + a.rotated), l.tensor(a.weight, a.type, {a.width}), angles.cos,
               angles.sin, slots, pool(a.k_pe.data, a.rotated), pool(a.c_kv.data, a.width), nullptr, nullptr, nullptr,
               nullptr, a.eps, by_slots, false, unused(a.rotated), unused(a.width));
}

Status accepts_latent_rows(const OpCall& c) {
  RETURN_IF_ERROR(want_constant_rows(c));
  if (c.in[4].dtype == DType::F32 || are_planes(c, 4, c.in[2].shape[0])) return Status::ok();
  return error(Code::Unsupported, "KvRmsNormRopeCache takes cosines and sines apart");
}

// Query [T, H, C] and its rotated part [T, H, D], latents [P, 128, C], rotated keys [P, 128, D], page table [R, W].
struct Latents {
  int64_t tokens, heads, width, rotated, pages, sequences, columns;
};

Latents latents_of(const LatentAttentionArgs& a, Launch& l) {
  return {l.size(a.tokens), a.heads, a.latent, a.rope, l.size(a.pages), l.size(a.sequences), l.size(a.columns)};
}

Status attend(const Latents& s, const AttentionPlan& plan, const void* table, const LatentAttentionArgs& a, Launch& l) {
  const DType type = a.type;
  const bool each = plan.one_row_each;
  auto rows = [&](const void* all, int64_t width) {
    const void* data = behind(all, plan.first_token * s.heads * width * static_cast<int64_t>(size_of(type)));
    return each ? l.tensor(data, type, {plan.tokens, 1, s.heads, width})
                : l.tensor(data, type, {plan.tokens, s.heads, width});
  };
  auto pool = [&](const void* data, int64_t width) { return l.tensor(data, type, {s.pages, kPageTokens, width}); };
  static char batch[] = "BSND", tokens[] = "TND";
  const int64_t before = plan.first_sequence * s.columns * static_cast<int64_t>(sizeof(int32_t));
  aclTensor* mask = each ? nullptr : l.tensor(l.constant(), ACL_BOOL, {Context::kMask, Context::kMask});
  return l.run(l.ops().fused_attention, rows(a.q, s.width), l.list(pool(a.c_kv, s.width)),
               l.list(pool(a.c_kv, s.width)), nullptr, mask, each ? nullptr : l.integers(plan.query_end),
               l.integers(plan.lengths), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
               l.tensor(behind(table, before), DType::I32, {plan.sequences, s.columns}), nullptr, nullptr, nullptr,
               nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, rows(a.q_rope, s.rotated), pool(a.k_pe, s.rotated),
               nullptr, s.heads, a.scale, kNoLimit, kNoLimit, each ? batch : tokens, 1, each ? 0 : 3, 0, kPageTokens, 0,
               false, 0, 0, rows(a.out, s.width), l.tensor(a.out, ACL_FLOAT, {0}));
}

// In pieces of at most `most` rows, over a table of their own. Pieces of one row are steps to the operator.
Status attend_cut(const Latents& s, CutPlan cut, int64_t most, const LatentAttentionArgs& a, Launch& l) {
  constexpr DType index = DType::I32;
  const int64_t spare = CutPlan::most_sequences(s.tokens, s.sequences, most), rows = spare + 1;
  void* table = l.scratch(static_cast<size_t>(rows * s.columns) * size_of(index));
  auto copy = [&](int64_t to, int64_t count, int64_t from, int64_t sources) {
    return l.run(
        l.ops().copy, l.view(table, index, {count, s.columns}, {s.columns, 1}, to * s.columns, rows * s.columns),
        l.view(a.page_table, index, {sources, s.columns}, {s.columns, 1}, from * s.columns, s.sequences * s.columns));
  };
  for (const CutPlan::Copy& c : cut.copies) RETURN_IF_ERROR(copy(c.to, c.count, c.from, c.repeated ? 1 : c.count));
  // In a graph as many as any other prompt of this size needs.
  const int64_t copies = CutPlan::most_copies(s.tokens, s.sequences, most);
  if (l.group() != Launch::Group::None)
    for (auto n = static_cast<int64_t>(cut.copies.size()); n < copies; ++n) RETURN_IF_ERROR(copy(spare, 1, 0, 1));
  cut.plan.one_row_each = most == 1;
  return attend(s, cut.plan, table, a, l);
}

// A plan of these sizes for what has none yet: a probe, which must see the longest lengths of both forms so that the
// workspace is enough, and a launch that is recorded, whose lengths come with the first replay.
Status stand_in(const Latents& s, bool each, int64_t most, const LatentAttentionArgs& a, Launch& l) {
  const int64_t context = s.columns * kPageTokens;
  const AttentionPlan plan = AttentionPlan::longest(s.tokens, s.sequences, context, each);
  if (each || (most > 1 && s.tokens <= most)) return attend(s, plan, a.page_table, a, l);
  CutPlan cut = CutPlan::of(plan, most);
  cut.plan.lengths.assign(cut.plan.lengths.size(), context);
  return attend_cut(s, std::move(cut), most, a, l);
}

// `Most` rows of one sequence at a time: kMostRows, or 1 where the operator refuses prompts of this many heads.
template <int64_t Most>
Status latent_attention(const LatentAttentionArgs& a, Launch& l) {
  const Latents s = latents_of(a, l);
  const int32_t *lens = l.host(0), *starts = l.host(1);
  const int64_t context = s.columns * kPageTokens;
  const bool as_many = s.tokens == s.sequences;  // in a graph: a decode step
  if (l.group() == Launch::Group::Record) return stand_in(s, as_many, Most, a, l);
  if (l.probing() && !(lens && starts)) {
    const int64_t both = std::min(s.tokens, s.sequences);
    RETURN_IF_ERROR(attend(s, AttentionPlan::longest(both, both, context, true), a.page_table, a, l));
    if (l.at_bounds())
      for (const AttentionPlan& plan : AttentionPlan::cut_over_cores(s.tokens, s.sequences, context))
        if (Most > 1 || plan.one_row_each) RETURN_IF_ERROR(attend(s, plan, a.page_table, a, l));
    return stand_in(s, false, Most, a, l);
  }
  const auto rows = static_cast<size_t>(s.sequences);
  AttentionPlan plan = AttentionPlan::of(s.tokens, s.sequences, context, {lens, rows}, {starts, rows + 1});
  if (plan.empty() && l.group() != Launch::Group::None) plan = AttentionPlan::dummy(s.tokens, s.sequences, context);
  if (plan.empty()) return Status::ok();
  if (plan.one_row_each || (Most > 1 && s.tokens <= Most)) return attend(s, plan, a.page_table, a, l);
  if (l.group() == Launch::Group::Update && as_many)
    return error(Code::Internal, "latent_attention: a prompt in a graph of {} tokens of as many sequences", s.tokens);
  return attend_cut(s, CutPlan::of(plan, Most), Most, a, l);
}

Status accepts_latent(const OpCall& c, bool fused) {
  RETURN_IF_ERROR(want_constant_rows(c));
  if (c.in[0].dtype != DType::F16 && c.in[0].dtype != DType::BF16)
    return error(Code::Unsupported, "the vendor's attention takes f16 and bf16, not {}", describe(c));
  if (!fused)
    return error(Code::Unsupported, "the operators that ASCEND_USE_FIA=false asks for have no latents, as in {}",
                 describe(c));
  return Status::ok();
}

}  // namespace

void register_latent(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  add(kernels, context, {"per_head_matmul", kernel<per_head_matmul>, {}, want_constant_rows});
  add(kernels, context,
      {"per_head_matmul", kernel<per_head_matmul_strided>, {}, want_constant_rows, {}, ".strided", 50});
  add(kernels, context,
      {.op = "latent_rows", .kernel = kernel<latent_rows>, .accepts = accepts_latent_rows, .exact = false});
  const auto mask = [context](const OpCall&, LaunchArgs& args) { args.constant = context->causal_mask(); };
  const auto attention = [&](AscendKernel run, const char* variant, int score) {
    Entry e{"latent_attention",
            run,
            mask,
            [fused = context->fused_attention()](const OpCall& c) { return accepts_latent(c, fused); },
            {5, 6},
            variant,
            score};
    e.announced = true;
    add(kernels, context, std::move(e));
  };
  attention(kernel<latent_attention<kMostRows>>, "", 100);
  attention(kernel<latent_attention<1>>, ".row_by_row", 50);
}

}  // namespace reprise::ascend

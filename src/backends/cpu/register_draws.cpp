// Entries of the ops that draw tokens from rows of logits: whole ones, and those whose columns ranks share out.
#include "backends/cpu/register.h"
#include "ops/args/draws.h"
#include "ops/args/elements.h"
#include "ops/draw_math.h"

namespace reprise::cpu {
namespace {

// A thread's scratch memory holds a candidate for every column.
size_t sample_bytes(const SampleArgs& a, const LiveSizes&, int threads) {
  return static_cast<size_t>(a.columns * threads) * sizeof(DrawCandidate);
}
size_t tops_bytes(const DrawTopsArgs& a, const LiveSizes&, int threads) {
  return static_cast<size_t>(draw::blocks(a.columns, draw::kPeakBlock) * threads) * sizeof(DrawCandidate);
}
size_t best_of_columns_bytes(const DrawBestArgs& a, const LiveSizes&, int threads) {
  return static_cast<size_t>(a.columns * threads) * sizeof(DrawCandidate);
}
size_t merge_bytes(const MergeDrawsArgs& a, const LiveSizes&, int threads) {
  return static_cast<size_t>(a.ranks * a.most * threads) * sizeof(DrawCandidate);
}
size_t rest_bytes(const SampleUndecidedArgs& a, const LiveSizes&, int threads) {
  return static_cast<size_t>(a.columns * threads) * (sizeof(DrawCandidate) + sizeof(float));
}

}  // namespace

void register_draws(KernelRegistry& kernels, Isa isa) {
  const KernelTable& k = kernel_table(isa);
  Entries entries(kernels, isa);
  entries.add("sample", k.sample, {.scratch = scratch(sample_bytes)});
  entries.add("mask_logits", k.mask_logits, {.any_second = k.mask_logits_lists});
  entries.add("mask_own_logits", k.mask_own_logits, {.any_second = k.mask_own_logits_lists});
  entries.add("draw_tops", k.draw_tops, {.scratch = scratch(tops_bytes)});
  entries.add("draw_sums", k.draw_sums);
  entries.add("draw_best", k.draw_best, {.scratch = scratch(best_of_columns_bytes)});
  entries.add("merge_draws", k.merge_draws, {.scratch = scratch(merge_bytes)});
  entries.add("sample_undecided", k.sample_undecided, {.scratch = scratch(rest_bytes)});
}

}  // namespace reprise::cpu

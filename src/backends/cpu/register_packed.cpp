// Entries of the ops on weights in GGUF blocks: one per format and dtype, because each format has a layout of its own;
// and others where activations are rounded to int8.
#include <algorithm>

#include "backends/cpu/kernels/argmax_shape.h"
#include "backends/cpu/kernels/byte_shape.h"
#include "backends/cpu/kernels/linear_shape.h"
#include "backends/cpu/kernels/unit_blocks_shape.h"
#include "backends/cpu/layout.h"
#include "backends/cpu/register.h"
#include "ops/args/products.h"
#include "ops/block_activations.h"

namespace reprise::cpu {
namespace {

// For bf16, whether its dot instruction is the faster way. For other types, up to how many rows every tile unpacks the
// weights in registers; above, they are unpacked once for all rows, through scratch memory (as measured in turn).
int64_t way_of(Isa isa, DType x) {
  if (x == DType::BF16) return bf16_dot_is_fast();
  return is_avx512(isa) ? 9 : 4;
}

// On tile registers bf16 has scratch memory of its own, and the others those of the set without (unit_blocks_shape.h).
template <bool kTiles>
size_t each_bytes(int64_t rows, int64_t k) {
  const size_t plain = packed_thread_bytes(rows, k);
  return kTiles ? std::max(plain, unit_blocks_thread_bytes(rows, k)) : plain;
}
template <bool kTiles, class A>
size_t all_bytes(const A& a, const LiveSizes& bound, int threads) {
  return static_cast<size_t>(threads) * each_bytes<kTiles>(a.shape.rows.value(bound), a.shape.depth);
}
template <bool kTiles>
size_t packed_head_bytes(const LmHeadBlocksArgs& a, const LiveSizes& bound, int threads) {
  return all_bytes<kTiles>(a, bound, threads) + best_bytes(a.shape.rows.value(bound), threads);
}

template <class A>
size_t all_rows_bytes(const A& a, const LiveSizes& bound, int threads) {
  return byte_rows_bytes(a.shape.rows.value(bound), a.shape.depth, threads);
}

Status accepts_blocks(const OpCall& call, const BlockFormatInfo& info, bool int8) {
  if (const std::string& format = call.attrs->text("format"); format != info.name)
    return error(Code::Unsupported, "takes {} blocks; the call has {}", info.name, format);
  if (has_int8_activations(*call.attrs) != int8)
    return error(Code::Unsupported, "takes activations {}; the call has {}", activations_attr(int8),
                 activations_attr(!int8));
  return Status::ok();
}

// Activations in int8: every set with the products of the one that it is based on, whose bits are those of all. The
// first part of linears prepares the rows; the head, whose second part is taken, prepares them in every thread.
void add_bytes(Entries& entries, const KernelTable& k, const BlockFormatInfo& info) {
  using enum DType;
  const std::string name = fmt::format("{}_int8", info.name);
  Extras linear{.second = k.linear_blocks,
                .accepts = [&info](const OpCall& call) { return accepts_blocks(call, info, true); },
                .scratch = scratch(all_rows_bytes<LinearBlocksArgs>),
                .layouts = {packed_layout(info.format)},
                .variant = name};
  Extras grouped = linear, head = linear, f32_of_bf16 = linear, f32_of_f16 = linear;
  grouped.second = k.grouped_linear_blocks;
  grouped.scratch = scratch(all_rows_bytes<GroupedLinearBlocksArgs>);
  const CpuKernel merge = k.lm_head_argmax_blocks_merge;
  head.second = {merge, merge, merge};
  head.scratch = scratch(packed_head_bytes<false>);
  f32_of_bf16.any_second = k.linear_blocks_bf16_f32;
  f32_of_f16.any_second = k.linear_blocks_f16_f32;
  entries.add("linear_blocks", k.linear_blocks_rows, linear);
  entries.add("linear_blocks", EntryTypes(BF16, F32), k.linear_blocks_rows.bf16, f32_of_bf16);
  entries.add("linear_blocks", EntryTypes(F16, F32), k.linear_blocks_rows.f16, f32_of_f16);
  entries.add("grouped_linear_blocks", k.grouped_linear_blocks_rows, grouped);
  entries.add("lm_head_argmax_blocks", k.lm_head_argmax_blocks, head);
}

template <bool kTiles>
void add_format(Entries& entries, const KernelTable& k, Isa isa, const BlockFormatInfo& info) {
  using enum DType;
  Extras linear{.accepts = [&info](const OpCall& call) { return accepts_blocks(call, info, false); },
                .layouts = {packed_layout(info.format)},
                .way = [isa](const OpCall& call) { return way_of(isa, call.in[0].dtype); },
                .variant = info.name};
  Extras head = linear, embedding = linear, grouped = linear;
  grouped.scratch = scratch(all_bytes<kTiles, GroupedLinearBlocksArgs>);
  grouped.f32_scratch = false;
  linear.scratch = scratch(all_bytes<kTiles, LinearBlocksArgs>);
  linear.f32_scratch = false;
  head.scratch = scratch(packed_head_bytes<kTiles>);
  // The second part finds the results where the first part of the same set put them.
  const CpuKernel merge = kernel_table(base_of(isa)).lm_head_argmax_blocks_merge;
  head.second = {merge, k.lm_head_argmax_blocks_merge, merge};
  entries.add("linear_blocks", k.linear_blocks, linear);
  entries.add("linear_blocks", EntryTypes(BF16, F32), k.linear_blocks_bf16_f32, linear);
  entries.add("linear_blocks", EntryTypes(F16, F32), k.linear_blocks_f16_f32, linear);
  entries.add("grouped_linear_blocks", k.grouped_linear_blocks, grouped);
  entries.add("lm_head_argmax_blocks", k.lm_head_argmax_blocks, head);
  entries.add("embedding_blocks", k.embedding_blocks, embedding);
}

}  // namespace

void register_packed(KernelRegistry& kernels, Isa isa) {
  Entries entries(kernels, isa);
  const KernelTable& k = kernel_table(isa);
  for (const BlockFormatInfo& info : kBlockFormats) {
    has_block_tiles(isa) ? add_format<true>(entries, k, isa, info) : add_format<false>(entries, k, isa, info);
    add_bytes(entries, kernel_table(base_of(isa)), info);
  }
}

}  // namespace reprise::cpu

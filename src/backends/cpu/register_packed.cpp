// Entries of the ops on weights in GGUF blocks: one per format and dtype, because each format has a layout of its own.
#include "backends/cpu/kernels/argmax_shape.h"
#include "backends/cpu/kernels/linear_shape.h"
#include "backends/cpu/layout.h"
#include "backends/cpu/register.h"
#include "ops/args/products.h"

namespace reprise::cpu {
namespace {

// Of bf16: whether its dot instruction is the faster way. Else up to this many rows the weights are unpacked in
// registers by every tile, and above once for all rows, through scratch memory (as measured in turn).
int64_t way_of(Isa isa, DType x) {
  if (x == DType::BF16) return bf16_dot_is_fast();
  return is_avx512(isa) ? 9 : 4;
}

size_t linear_bytes(const LinearBlocksArgs& a, const LiveSizes& bound, int threads) {
  return static_cast<size_t>(threads) * packed_thread_bytes(a.shape.rows.value(bound), a.shape.depth);
}
size_t grouped_bytes(const GroupedLinearBlocksArgs& a, const LiveSizes& bound, int threads) {
  return static_cast<size_t>(threads) * packed_thread_bytes(a.shape.rows.value(bound), a.shape.depth);
}
size_t packed_head_bytes(const LmHeadBlocksArgs& a, const LiveSizes& bound, int threads) {
  const int64_t rows = a.shape.rows.value(bound);
  return static_cast<size_t>(threads) * packed_thread_bytes(rows, a.shape.depth) + best_bytes(rows, threads);
}

void add_format(Entries& entries, const KernelTable& k, Isa isa, const BlockFormatInfo& info) {
  using enum DType;
  Extras linear{.accepts = [&info](const OpCall& call) -> Status {
                  if (const std::string& format = call.attrs->text("format"); format != info.name)
                    return error(Code::Unsupported, "takes {} blocks; the call has {}", info.name, format);
                  return Status::ok();
                },
                .layouts = {packed_layout(info.format)},
                .way = [isa](const OpCall& call) { return way_of(isa, call.in[0].dtype); },
                .variant = info.name};
  Extras head = linear, embedding = linear, grouped = linear;
  grouped.scratch = scratch(grouped_bytes);
  grouped.f32_scratch = false;
  linear.scratch = scratch(linear_bytes);
  linear.f32_scratch = false;
  head.scratch = scratch(packed_head_bytes);
  head.any_second = k.lm_head_argmax_blocks_merge;
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
  for (const BlockFormatInfo& info : kBlockFormats) add_format(entries, kernel_table(isa), isa, info);
}

}  // namespace reprise::cpu

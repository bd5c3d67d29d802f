// Entries of what works number by number, of copies of rows, norms, rotation, cache writes, and of int8 rows.
#include "backends/cuda/kernels/rotation_limits.h"
#include "backends/cuda/kernels/sample_sizes.h"
#include "backends/cuda/register.h"
#include "ops/args/draws.h"
#include "ops/args/elements.h"
#include "ops/core.h"
#include "ops/draw.h"

namespace reprise::cuda {
namespace {

Status accepts_position_scale(const OpCall& c) {
  if (const size_t count = c.attrs->numbers("factors").size(); count > kMaxScaleFactors)
    return error(Code::Unsupported, "takes up to {} factors, not {}", kMaxScaleFactors, count);
  return Status::ok();
}

Status accepts_rope_table(const OpCall& c) {
  if (const int64_t dim = c.attrs->integer("dim"); dim / 2 > kMaxRotatedHalf)
    return error(Code::Unsupported, "takes dim up to {}, not {}", 2 * kMaxRotatedHalf, dim);
  return Status::ok();
}

Status accepts_axes(const OpCall& c) {
  if (const size_t half = c.attrs->numbers("inv_freq").size(); half > static_cast<size_t>(kMaxRotatedHalf))
    return error(Code::Unsupported, "takes up to {} frequencies, not {}", kMaxRotatedHalf, half);
  if (const int64_t columns = c.in[0].shape[1].factor; columns > 256)
    return error(Code::Unsupported, "takes up to 256 positions a token, not {}", columns);
  return Status::ok();
}

Status accepts_split(const OpCall& c) {
  RETURN_IF_ERROR(want_table_in_f32<1>(c));
  return want_head(c, c.in[0].shape[1].factor / (c.attrs->integer("heads") + 2 * c.attrs->integer("kv_heads")));
}

Status accepts_cache(const OpCall& c) { return want_head(c, kv_head_size(c.in[0])); }

Status accepts_split_kv(const OpCall& c) {
  RETURN_IF_ERROR(want_table_in_f32<2>(c));
  return accepts_cache(c);
}

Status accepts_sample(const OpCall& c) {
  if (const int64_t columns = c.in[0].shape[1].factor; columns > kMostSampleColumns)
    return error(Code::Unsupported, "takes vocabularies up to {}, not {}", kMostSampleColumns, columns);
  return Status::ok();
}

// A block's scratch memory holds a candidate for every column.
size_t sample_bytes(const SampleArgs& a, const LiveSizes& bound, int) {
  return static_cast<size_t>(std::min(a.rows.value(bound), kSampleBlocks) * a.columns) * sizeof(DrawCandidate);
}

size_t best_bytes(const DrawBestArgs& a, const LiveSizes& bound, int) {
  return static_cast<size_t>(std::min(a.rows.value(bound), kSampleBlocks) * a.columns) * sizeof(DrawCandidate);
}
// All candidates of a row.
size_t merge_bytes(const MergeDrawsArgs& a, const LiveSizes& bound, int) {
  return static_cast<size_t>(std::min(a.rows.value(bound), kSampleBlocks) * a.ranks * a.most) * sizeof(DrawCandidate);
}

Status accepts_row_write(const OpCall& c) {
  if (size_of(c.in[1].dtype) % 2 == 0) return Status::ok();
  return error(Code::Unsupported, "takes numbers of two or four bytes, not {}", describe(c));
}

}  // namespace

void register_elements(KernelRegistry& kernels, const KernelTable& table) {
  Entries entries(kernels);
  entries.add("add", table.add);
  entries.add("mul", table.mul);
  entries.add("silu", table.silu);
  entries.add("sigmoid", table.sigmoid);
  entries.add("reciprocal", table.reciprocal);
  entries.add("finite_rows", table.finite_rows);
  entries.add("gelu", table.gelu);
  entries.add("gelu_tanh", table.gelu_tanh);
  entries.add("relu_squared", table.relu_squared);
  entries.add("scale", table.scale);
  entries.add("softcap", table.softcap);
  entries.add("swiglu_clamped", table.swiglu_clamped);
  entries.add("widen", table.widen);
  entries.add("concat", table.concat);
  entries.add("silu_mul", table.silu_mul);
  entries.add("scale_rows", table.scale_rows);
  entries.add("slice", table.slice);
  entries.add("copy", table.copy);
  entries.add("index_select", table.rows);
  entries.add("embedding", table.embedding);
  entries.add("prefetch", table.prefetch);
  entries.add("sample", table.sample, {.accepts = accepts_sample, .scratch = scratch(sample_bytes)});
  entries.add("mask_logits", table.mask_logits);
  entries.add("mask_own_logits", table.mask_own_logits);
  entries.add("draw_tops", table.draw_tops, {.accepts = accepts_sample});
  entries.add("draw_sums", table.draw_sums, {.accepts = accepts_sample});
  entries.add("draw_best", table.draw_best, {.accepts = accepts_sample, .scratch = scratch(best_bytes)});
  entries.add("merge_draws", table.merge_draws, {.scratch = scratch(merge_bytes)});
  entries.add("rms_norm", table.rms_norm);
  entries.add("rms_norm_centred", table.rms_norm_centred);
  entries.add("unit_rms_norm", table.unit_rms_norm);
  entries.add("layer_norm", table.layer_norm);
  entries.add("add_rms_norm", table.add_rms_norm);
  entries.add("quantize_static", table.quantize_static);
  entries.add("quantize_dynamic", table.quantize_dynamic);
  entries.add("quantize_groups", table.quantize_groups);
  entries.add("silu_mul_quant", table.silu_mul_quant);
  entries.add("silu_mul_quant_static", table.silu_mul_quant_static);
  entries.add("add_rms_norm_quant_static", table.add_rms_norm_quant_static);
  entries.add("add_rms_norm_quant_dynamic", table.add_rms_norm_quant_dynamic);
}

void register_rotation(KernelRegistry& kernels, const KernelTable& table) {
  Entries entries(kernels);
  entries.add("rope", table.rope, {.accepts = want_table_in_f32<1>});
  entries.add("position_scale", table.position_scale, {.accepts = accepts_position_scale});
  entries.add("rope_table", table.rope_table, {.accepts = accepts_rope_table});
  entries.add("rope_table_axes", table.rope_table_axes, {.accepts = accepts_axes});
  entries.add("split_qk_norm_rope", table.split_qk_norm_rope, {.accepts = accepts_split});
  entries.add("split_qk_norm_rope_kv", table.split_qk_norm_rope_kv, {.accepts = accepts_split_kv});
  entries.add("split_qk_norm_rope_kv", table.split_qk_norm_rope_kv_i8,
              {.other = DType::I8, .accepts = accepts_split_kv});
  entries.add("kv_write", table.kv_write, {.accepts = accepts_cache});
  entries.add("kv_write", table.kv_write_i8, {.other = DType::I8, .accepts = accepts_cache});
  entries.add("row_write", table.row_write, {.accepts = accepts_row_write});
}

}  // namespace reprise::cuda

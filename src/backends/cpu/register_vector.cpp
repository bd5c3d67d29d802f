// Entries of the vector ops: norms, rotation, elementwise, int8, argmax, slice, copy, rows, and the fused ops
// (nn/fused.h) other than those around a matrix product. A fused kernel gives the bits of the op's meaning run with the
// kernels of its parts.
#include "backends/cpu/kernels/argmax_shape.h"
#include "backends/cpu/kernels/quantize_shape.h"
#include "backends/cpu/register.h"
#include "ops/args/elements.h"
#include "ops/args/norms.h"
#include "ops/args/quantise.h"

namespace reprise::cpu {
namespace {

size_t argmax_bytes(const UnaryArgs& a, const LiveSizes& bound, int threads) {
  return best_bytes(a.rows.value(bound), threads);
}
size_t quantised_norm_bytes(const AddRmsNormQuantDynamicArgs& a, const LiveSizes&, int threads) {
  return static_cast<size_t>(threads * row_scratch_bytes(a.width, static_cast<int64_t>(size_of(a.type))));
}
size_t silu_mul_bytes(const SiluMulQuantArgs& a, const LiveSizes&, int threads) {
  return SiluMulShape(a.width, static_cast<int64_t>(size_of(a.type)), threads).bytes();
}

Status accepts_split_kv(const OpCall& c) {
  RETURN_IF_ERROR(want_table_in_f32<2>(c));
  return want_cache(c, 0);
}

}  // namespace

void register_vector(KernelRegistry& kernels, Isa isa) {
  const KernelTable& k = kernel_table(isa);
  Entries entries(kernels, isa);
  entries.add("rms_norm", k.rms_norm);
  entries.add("rms_norm_centred", k.rms_norm_centred);
  entries.add("layer_norm", k.layer_norm);
  entries.add("rope", k.rope, {.accepts = want_table_in_f32<1>});
  entries.add("position_scale", k.position_scale);
  entries.add("rope_table", k.rope_table);
  entries.add("rope_table_axes", k.rope_table_axes);
  entries.add("add", k.add);
  entries.add("mul", k.mul);
  entries.add("silu", k.silu);
  entries.add("gelu", k.gelu);
  entries.add("gelu_tanh", k.gelu_tanh);
  entries.add("relu_squared", k.relu_squared);
  entries.add("scale", k.scale);
  entries.add("softcap", k.softcap);
  entries.add("swiglu_clamped", k.swiglu_clamped);
  entries.add("sigmoid", k.sigmoid);
  entries.add("reciprocal", k.reciprocal);
  entries.add("scale_rows", k.scale_rows);
  entries.add("argmax", k.argmax, {.any_second = k.argmax_merge, .scratch = scratch(argmax_bytes)});
  entries.add("slice", k.slice);
  entries.add("copy", k.copy);
  entries.add("index_select", k.rows);
  entries.add("quantize_static", k.quantize_static);
  entries.add("quantize_dynamic", k.quantize_dynamic);
  entries.add("quantize_groups", k.quantize_groups);
  entries.add("silu_mul", k.silu_mul);
  entries.add("silu_mul_quant_static", k.silu_mul_quant_static);
  entries.add("silu_mul_quant", k.silu_mul_quant,
              {.second = k.silu_mul_quant_finish, .scratch = scratch(silu_mul_bytes)});
  entries.add("add_rms_norm", k.add_rms_norm);
  entries.add("add_rms_norm_quant_static", k.add_rms_norm_quant_static);
  entries.add("add_rms_norm_quant_dynamic", k.add_rms_norm_quant_dynamic, {.scratch = scratch(quantised_norm_bytes)});
  entries.add("split_qk_norm_rope", k.split_qk_norm_rope, {.accepts = want_table_in_f32<1>});
  entries.add("split_qk_norm_rope_kv", k.split_qk_norm_rope_kv, {.accepts = accepts_split_kv});
  entries.add("split_qk_norm_rope_kv", k.split_qk_norm_rope_kv_i8, {.other = DType::I8, .accepts = accepts_split_kv});
}

}  // namespace reprise::cpu

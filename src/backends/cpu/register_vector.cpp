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
  // Their ops have the same names.
#define REPRISE_ADD_PLAIN(name) entries.add(#name, k.name);
  REPRISE_CPU_PLAIN_KERNELS(REPRISE_ADD_PLAIN)
#undef REPRISE_ADD_PLAIN
  entries.add("rope", k.rope, {.accepts = want_table_in_f32<1>});
  entries.add("position_scale", k.position_scale);
  entries.add("rope_table", k.rope_table);
  entries.add("rope_table_axes", k.rope_table_axes);
  entries.add("argmax", k.argmax, {.any_second = k.argmax_merge, .scratch = scratch(argmax_bytes)});
  entries.add("slice", k.slice);
  entries.add("copy", k.copy);
  entries.add("index_select", k.rows);
  entries.add("silu_mul_quant", k.silu_mul_quant,
              {.second = k.silu_mul_quant_finish, .scratch = scratch(silu_mul_bytes)});
  entries.add("add_rms_norm_quant_dynamic", k.add_rms_norm_quant_dynamic, {.scratch = scratch(quantised_norm_bytes)});
  entries.add("split_qk_norm_rope", k.split_qk_norm_rope, {.accepts = want_table_in_f32<1>});
  entries.add("split_qk_norm_rope_kv", k.split_qk_norm_rope_kv, {.accepts = accepts_split_kv});
  entries.add("split_qk_norm_rope_kv", k.split_qk_norm_rope_kv_i8, {.other = DType::I8, .accepts = accepts_split_kv});
}

}  // namespace reprise::cpu

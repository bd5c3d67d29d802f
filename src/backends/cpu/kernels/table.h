// KernelTable: the CPU kernels of one instruction set as plain function pointers.
//
// The files of this folder define the functions that are listed here (define.h). Entries, guards and binding live in
// backends/cpu/register_*.cpp, compiled for the plain processor.
#pragma once

#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/isa.h"

namespace reprise::cpu {

// One name per kernel that there is for f32, bf16 and f16: NAME_f32, NAME_bf16, NAME_f16. A new kernel is one new line.
// The op of these has the same name, and its table of launch arguments (ops/args) says all that an entry needs:
// register_vector.cpp adds their entries.
#define REPRISE_CPU_PLAIN_KERNELS(X) \
  X(rms_norm)                        \
  X(rms_norm_centred)                \
  X(unit_rms_norm)                   \
  X(layer_norm)                      \
  X(add)                             \
  X(mul)                             \
  X(silu)                            \
  X(gelu)                            \
  X(gelu_tanh)                       \
  X(relu_squared)                    \
  X(scale)                           \
  X(softcap)                         \
  X(swiglu_clamped)                  \
  X(sigmoid)                         \
  X(reciprocal)                      \
  X(finite_rows)                     \
  X(scale_rows)                      \
  X(quantize_static)                 \
  X(quantize_dynamic)                \
  X(quantize_groups)                 \
  X(silu_mul)                        \
  X(silu_mul_quant_static)           \
  X(add_rms_norm)                    \
  X(add_rms_norm_quant_static)
#define REPRISE_CPU_TYPED_KERNELS(X) \
  REPRISE_CPU_PLAIN_KERNELS(X)       \
  X(linear)                          \
  X(linear_add)                      \
  X(linear_w8a8_static)              \
  X(linear_w8a8_dynamic)             \
  X(lm_head_argmax)                  \
  X(lm_head_argmax_merge)            \
  X(per_head_matmul)                 \
  X(per_head_matmul_rows)            \
  X(linear_blocks)                   \
  X(lm_head_argmax_blocks)           \
  X(embedding_blocks)                \
  X(kv_write)                        \
  X(kv_write_i8)                     \
  X(attention)                       \
  X(attention_i8)                    \
  X(attention_merge)                 \
  X(latent_attention)                \
  X(latent_attention_merge)          \
  X(expanded_latent_attention)       \
  X(rope)                            \
  X(argmax)                          \
  X(silu_mul_quant)                  \
  X(silu_mul_quant_finish)           \
  X(add_rms_norm_quant_dynamic)      \
  X(split_qk_norm_rope)              \
  X(split_qk_norm_rope_kv)           \
  X(split_qk_norm_rope_kv_i8)        \
  X(moe_combine)                     \
  X(add_groups)                      \
  X(grouped_linear)                  \
  X(grouped_linear_rows)             \
  X(grouped_linear_blocks)           \
  X(linear_blocks_rows)              \
  X(grouped_linear_blocks_rows)      \
  X(grouped_linear_w8a8_static)      \
  X(grouped_linear_w8a8_dynamic)     \
  X(lora_shrink)                     \
  X(lora_expand)                     \
  X(segment_attention)               \
  X(pool_rows)                       \
  X(widen)                           \
  X(causal_conv)                     \
  X(causal_conv_biased)              \
  X(gated_delta)                     \
  X(state_space)                     \
  X(rms_norm_gated)
// The others.
#define REPRISE_CPU_OTHER_KERNELS(X) \
  X(linear_bf16_f32)                 \
  X(linear_f16_f32)                  \
  X(linear_blocks_bf16_f32)          \
  X(linear_blocks_f16_f32)           \
  X(lm_head_argmax_blocks_merge)     \
  X(lm_head_argmax_w8a8)             \
  X(lm_head_argmax_w8a8_merge)       \
  X(embedding)                       \
  X(attention_merge_bf16_i8)         \
  X(latent_forms)                    \
  X(row_write)                       \
  X(position_scale)                  \
  X(rope_table)                      \
  X(rope_table_axes)                 \
  X(argmax_merge)                    \
  X(sample)                          \
  X(mask_logits)                     \
  X(mask_logits_lists)               \
  X(mask_own_logits)                 \
  X(mask_own_logits_lists)           \
  X(draw_tops)                       \
  X(draw_sums)                       \
  X(draw_best)                       \
  X(merge_draws)                     \
  X(sample_undecided)                \
  X(slice)                           \
  X(copy)                            \
  X(rows)                            \
  X(moe_gate)                        \
  X(moe_route)                       \
  X(l2_normalize)                    \
  X(sum_parts)                       \
  X(concat)

// Products on tile registers, of which sets with those have their own: of bf16, and of int8 with each type of result.
#define REPRISE_CPU_TILE_PRODUCTS(X) \
  X(attention)                       \
  X(latent_attention)                \
  X(expanded_latent_attention)       \
  X(linear)                          \
  X(linear_add)                      \
  X(lm_head_argmax)                  \
  X(lm_head_argmax_merge)            \
  X(grouped_linear)                  \
  X(grouped_linear_rows)             \
  X(per_head_matmul)                 \
  X(per_head_matmul_rows)
#define REPRISE_CPU_TILE_TYPED(X) \
  X(linear_w8a8_static)           \
  X(linear_w8a8_dynamic)          \
  X(grouped_linear_w8a8_static)   \
  X(grouped_linear_w8a8_dynamic)
#define REPRISE_CPU_TILE_OTHER(X) \
  X(linear_bf16_f32)              \
  X(lm_head_argmax_w8a8)          \
  X(lm_head_argmax_w8a8_merge)
// Those of GGUF blocks, which sets may leave out: of bf16, and others.
#define REPRISE_CPU_TILE_BLOCK_PRODUCTS(X) \
  X(linear_blocks)                         \
  X(lm_head_argmax_blocks)                 \
  X(grouped_linear_blocks)
#define REPRISE_CPU_TILE_BLOCK_OTHER(X) \
  X(linear_blocks_bf16_f32)             \
  X(lm_head_argmax_blocks_merge)

#define REPRISE_DECLARE(name) void name(const LaunchArgs& args, const LiveSizes& live, int thread, int threads);
#define REPRISE_DECLARE_TYPED(name) \
  REPRISE_DECLARE(name##_f32)       \
  REPRISE_DECLARE(name##_bf16)      \
  REPRISE_DECLARE(name##_f16)
#define REPRISE_DECLARE_SET(isa, set)              \
  namespace set {                                  \
  REPRISE_CPU_TYPED_KERNELS(REPRISE_DECLARE_TYPED) \
  REPRISE_CPU_OTHER_KERNELS(REPRISE_DECLARE)       \
  }
REPRISE_CPU_ISAS(REPRISE_DECLARE_SET)
#undef REPRISE_DECLARE_SET
#define REPRISE_DECLARE_BF16(name) REPRISE_DECLARE(name##_bf16)
#define REPRISE_DECLARE_SET(isa, set)                   \
  namespace set {                                       \
  REPRISE_CPU_TILE_PRODUCTS(REPRISE_DECLARE_BF16)       \
  REPRISE_CPU_TILE_TYPED(REPRISE_DECLARE_TYPED)         \
  REPRISE_CPU_TILE_OTHER(REPRISE_DECLARE)               \
  REPRISE_CPU_TILE_BLOCK_PRODUCTS(REPRISE_DECLARE_BF16) \
  REPRISE_CPU_TILE_BLOCK_OTHER(REPRISE_DECLARE)         \
  bool unit_works();                                    \
  }
REPRISE_CPU_TILE_ISAS(REPRISE_DECLARE_SET)
#undef REPRISE_DECLARE_SET
#undef REPRISE_DECLARE_BF16
#undef REPRISE_DECLARE_TYPED
#undef REPRISE_DECLARE

struct PerType {
  CpuKernel f32 = nullptr, bf16 = nullptr, f16 = nullptr;
};

struct KernelTable {
#define REPRISE_TYPED_MEMBER(name) PerType name;
  REPRISE_CPU_TYPED_KERNELS(REPRISE_TYPED_MEMBER)
#undef REPRISE_TYPED_MEMBER
#define REPRISE_MEMBER(name) CpuKernel name;
  REPRISE_CPU_OTHER_KERNELS(REPRISE_MEMBER)
#undef REPRISE_MEMBER
};

const KernelTable& kernel_table(Isa isa);

// Whether the tile registers of a set that has them compute what they should; false where this program has none of it.
bool unit_works(Isa isa);

}  // namespace reprise::cpu

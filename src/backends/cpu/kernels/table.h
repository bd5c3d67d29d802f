// KernelTable: the CPU kernels of one instruction set as plain function pointers.
//
// Files in this folder are compiled once per set and define the functions listed here in the namespace of that set.
// They hold nothing but kernels: no containers, strings or other inline library code, because the linker keeps one copy
// of an inline function for the whole program and it might keep the AVX-512 one. Entries, guards and binding live in
// backends/cpu/register_*.cpp, compiled for the plain processor.
#pragma once

#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/isa.h"

namespace reprise::cpu {

// One name per kernel; a new kernel is one new line here.
#define REPRISE_CPU_LINEAR_KERNELS(X) \
  X(linear_f32)                       \
  X(linear_bf16)                      \
  X(linear_bf16_f32)                  \
  X(linear_f16)                       \
  X(linear_f16_f32)                   \
  X(linear_add_f32)                   \
  X(linear_add_bf16)                  \
  X(linear_add_f16)                   \
  X(linear_w8a8_static_f32)           \
  X(linear_w8a8_static_bf16)          \
  X(linear_w8a8_static_f16)           \
  X(linear_w8a8_dynamic_f32)          \
  X(linear_w8a8_dynamic_bf16)         \
  X(linear_w8a8_dynamic_f16)          \
  X(lm_head_argmax_w8a8)              \
  X(lm_head_argmax_w8a8_merge)        \
  X(lm_head_argmax_f32)               \
  X(lm_head_argmax_bf16)              \
  X(lm_head_argmax_f16)               \
  X(lm_head_argmax_merge)             \
  X(embedding)                        \
  X(head_linear_f32)                  \
  X(head_linear_bf16)                 \
  X(head_linear_f16)
#define REPRISE_CPU_PACKED_KERNELS(X) \
  X(linear_packed_f32)                \
  X(linear_packed_bf16)               \
  X(linear_packed_bf16_f32)           \
  X(linear_packed_f16)                \
  X(linear_packed_f16_f32)            \
  X(lm_head_argmax_packed_f32)        \
  X(lm_head_argmax_packed_bf16)       \
  X(lm_head_argmax_packed_f16)        \
  X(embedding_packed_f32)             \
  X(embedding_packed_bf16)            \
  X(embedding_packed_f16)
#define REPRISE_CPU_ATTENTION_KERNELS(X) \
  X(kv_write_f32)                        \
  X(kv_write_bf16)                       \
  X(kv_write_f16)                        \
  X(kv_write_f32_i8)                     \
  X(kv_write_bf16_i8)                    \
  X(kv_write_f16_i8)                     \
  X(attention_f32)                       \
  X(attention_bf16)                      \
  X(attention_f16)                       \
  X(attention_f32_i8)                    \
  X(attention_bf16_i8)                   \
  X(attention_f16_i8)                    \
  X(attention_merge_f32)                 \
  X(attention_merge_bf16)                \
  X(attention_merge_f16)                 \
  X(attention_merge_bf16_i8)             \
  X(row_write)                           \
  X(latent_attention_f32)                \
  X(latent_attention_bf16)               \
  X(latent_attention_f16)                \
  X(latent_attention_merge_f32)          \
  X(latent_attention_merge_bf16)         \
  X(latent_attention_merge_f16)          \
  X(latent_forms)                        \
  X(expanded_latent_attention_f32)       \
  X(expanded_latent_attention_bf16)      \
  X(expanded_latent_attention_f16)
#define REPRISE_CPU_VECTOR_KERNELS(X) \
  X(rms_norm_f32)                     \
  X(rms_norm_bf16)                    \
  X(rms_norm_f16)                     \
  X(rope_table)                       \
  X(rope_f32)                         \
  X(rope_bf16)                        \
  X(rope_f16)                         \
  X(add_f32)                          \
  X(add_bf16)                         \
  X(add_f16)                          \
  X(mul_f32)                          \
  X(mul_bf16)                         \
  X(mul_f16)                          \
  X(silu_f32)                         \
  X(silu_bf16)                        \
  X(silu_f16)                         \
  X(reciprocal_f32)                   \
  X(reciprocal_bf16)                  \
  X(reciprocal_f16)                   \
  X(quantize_static_f32)              \
  X(quantize_static_bf16)             \
  X(quantize_static_f16)              \
  X(quantize_dynamic_f32)             \
  X(quantize_dynamic_bf16)            \
  X(quantize_dynamic_f16)             \
  X(argmax_f32)                       \
  X(argmax_bf16)                      \
  X(argmax_f16)                       \
  X(argmax_merge)                     \
  X(sample)                           \
  X(slice)                            \
  X(copy)                             \
  X(rows)
#define REPRISE_CPU_FUSED_KERNELS(X) \
  X(silu_mul_f32)                    \
  X(silu_mul_bf16)                   \
  X(silu_mul_f16)                    \
  X(silu_mul_quant_f32)              \
  X(silu_mul_quant_bf16)             \
  X(silu_mul_quant_f16)              \
  X(silu_mul_quant_finish_f32)       \
  X(silu_mul_quant_finish_bf16)      \
  X(silu_mul_quant_finish_f16)       \
  X(silu_mul_quant_static_f32)       \
  X(silu_mul_quant_static_bf16)      \
  X(silu_mul_quant_static_f16)       \
  X(add_rms_norm_f32)                \
  X(add_rms_norm_bf16)               \
  X(add_rms_norm_f16)                \
  X(add_rms_norm_quant_static_f32)   \
  X(add_rms_norm_quant_static_bf16)  \
  X(add_rms_norm_quant_static_f16)   \
  X(add_rms_norm_quant_dynamic_f32)  \
  X(add_rms_norm_quant_dynamic_bf16) \
  X(add_rms_norm_quant_dynamic_f16)  \
  X(split_qk_norm_rope_f32)          \
  X(split_qk_norm_rope_bf16)         \
  X(split_qk_norm_rope_f16)          \
  X(split_qk_norm_rope_kv_f32)       \
  X(split_qk_norm_rope_kv_bf16)      \
  X(split_qk_norm_rope_kv_f16)       \
  X(split_qk_norm_rope_kv_f32_i8)    \
  X(split_qk_norm_rope_kv_bf16_i8)   \
  X(split_qk_norm_rope_kv_f16_i8)
#define REPRISE_CPU_EXPERT_KERNELS(X) \
  X(moe_gate)                         \
  X(moe_route)                        \
  X(moe_combine_f32)                  \
  X(moe_combine_bf16)                 \
  X(moe_combine_f16)                  \
  X(scale_rows_f32)                   \
  X(scale_rows_bf16)                  \
  X(scale_rows_f16)                   \
  X(sigmoid_f32)                      \
  X(sigmoid_bf16)                     \
  X(sigmoid_f16)                      \
  X(grouped_linear_f32)               \
  X(grouped_linear_bf16)              \
  X(grouped_linear_f16)               \
  X(grouped_linear_w8a8_static_f32)   \
  X(grouped_linear_w8a8_static_bf16)  \
  X(grouped_linear_w8a8_static_f16)   \
  X(grouped_linear_w8a8_dynamic_f32)  \
  X(grouped_linear_w8a8_dynamic_bf16) \
  X(grouped_linear_w8a8_dynamic_f16)  \
  X(quantize_groups_f32)              \
  X(quantize_groups_bf16)             \
  X(quantize_groups_f16)
#define REPRISE_CPU_KERNELS(X)     \
  REPRISE_CPU_LINEAR_KERNELS(X)    \
  REPRISE_CPU_PACKED_KERNELS(X)    \
  REPRISE_CPU_ATTENTION_KERNELS(X) \
  REPRISE_CPU_VECTOR_KERNELS(X)    \
  REPRISE_CPU_FUSED_KERNELS(X)     \
  REPRISE_CPU_EXPERT_KERNELS(X)

// The sets of this program, as built_isas() and the CMake file have them: X(Isa's name, namespace).
#if defined(__x86_64__)
#define REPRISE_CPU_ISAS(X) X(Baseline, baseline) X(Avx2, avx2) X(Avx512, avx512)
#elif defined(__aarch64__)
#define REPRISE_CPU_ISAS(X) X(Baseline, baseline) X(DotProd, dotprod)
#endif

#define REPRISE_DECLARE(name) void name(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks);
#define REPRISE_DECLARE_SET(isa, set)  \
  namespace set {                      \
  REPRISE_CPU_KERNELS(REPRISE_DECLARE) \
  }
REPRISE_CPU_ISAS(REPRISE_DECLARE_SET)
#undef REPRISE_DECLARE_SET
#undef REPRISE_DECLARE

struct KernelTable {
#define REPRISE_MEMBER(name) CpuKernel name;
  REPRISE_CPU_KERNELS(REPRISE_MEMBER)
#undef REPRISE_MEMBER
};

const KernelTable& kernel_table(Isa isa);

// Defines a kernel by what it calls, which may be a template's name with its arguments.
#define REPRISE_KERNEL(name, ...)                                                 \
  void name(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) { \
    __VA_ARGS__(args, live, rank, ranks);                                         \
  }
// Defines NAME_f32, NAME_bf16 and NAME_f16 by a template over the storage types of elements.h; what follows its name
// are its other arguments.
#define REPRISE_KERNELS(name, body, ...)                             \
  REPRISE_KERNEL(name##_f32, body<F32 __VA_OPT__(, ) __VA_ARGS__>)   \
  REPRISE_KERNEL(name##_bf16, body<Bf16 __VA_OPT__(, ) __VA_ARGS__>) \
  REPRISE_KERNEL(name##_f16, body<F16 __VA_OPT__(, ) __VA_ARGS__>)

}  // namespace reprise::cpu

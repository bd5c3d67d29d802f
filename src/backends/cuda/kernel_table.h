// KernelTable: the host functions behind the entries of register.cpp, once as the GPU's and once as the SIMT
// executor's.
//
// Each family of kernels is a header with templates over the Launch and fills its part of a table; the .cu file next to
// it does so for a GPU, sim/simt for the host.
#pragma once

#include "backends/cuda/cuda_kernel.h"

namespace reprise::cuda {

// One function per dtype of the operands.
struct PerType {
  CudaKernel f32 = nullptr, bf16 = nullptr, f16 = nullptr;
};

struct KernelTable {
  // elementwise.h
  PerType add, mul, silu, sigmoid, reciprocal, silu_mul, scale_rows, gelu, gelu_tanh, relu_squared, scale, softcap,
      swiglu_clamped, widen, finite_rows;
  CudaKernel concat = nullptr, slice = nullptr, copy = nullptr, rows = nullptr, embedding = nullptr, prefetch = nullptr;
  // sample.h
  CudaKernel sample = nullptr, mask_logits = nullptr;
  // draw_parts.h
  CudaKernel mask_own_logits = nullptr, draw_tops = nullptr, draw_sums = nullptr, draw_best = nullptr,
             merge_draws = nullptr;
  // norm.h
  PerType rms_norm, rms_norm_centred, unit_rms_norm, layer_norm, add_rms_norm;
  // rotation.h
  PerType rope, split_qk_norm_rope, split_qk_norm_rope_kv, split_qk_norm_rope_kv_i8, kv_write, kv_write_i8;
  CudaKernel position_scale = nullptr, rope_table = nullptr, rope_table_axes = nullptr, row_write = nullptr;
  // linear.h; `wide`: fp32 results
  PerType linear, linear_wide, linear_add, lm_head_argmax, argmax;
  // linear_silu_mul.h; not of f32
  PerType linear_silu_mul;
  // attention.h
  PerType attention, attention_i8;
  // quantise.h
  PerType quantize_static, quantize_dynamic, silu_mul_quant, silu_mul_quant_static, add_rms_norm_quant_static,
      add_rms_norm_quant_dynamic;
  // linear_w8a8.h; the type is that of the result
  PerType linear_w8a8_static, linear_w8a8_dynamic;
  CudaKernel lm_head_argmax_w8a8 = nullptr;
  // experts.h
  CudaKernel moe_gate = nullptr, moe_route = nullptr;
  PerType moe_combine, grouped_linear, grouped_linear_rows, quantize_groups, add_groups;
  PerType grouped_w8a8_static, grouped_w8a8_dynamic;  // the type is that of the result
  // latent.h
  PerType per_head_matmul, per_head_matmul_rows, latent_attention;
  // packed.h; `wide`: fp32 results; of the embedding, the type is that of the result
  PerType linear_blocks, linear_blocks_wide, lm_head_argmax_blocks, embedding_blocks;
  // grouped_blocks.h
  PerType grouped_linear_blocks;
  // recurrent.h
  PerType causal_conv, causal_conv_biased, gated_delta, state_space, rms_norm_gated;
  // encoder.h
  PerType segment_attention, pool_rows;
  CudaKernel l2_normalize = nullptr;
  // lora.h
  PerType lora_shrink, lora_expand;
};

// For a template of functions over (element, launch): the three of them, as the table wants them.
#define REPRISE_CUDA_PER_TYPE(function, launch)                                   \
  ::reprise::cuda::PerType {                                                      \
    ::reprise::cuda::erased<launch, function<::reprise::cuda::F32, launch>>,      \
        ::reprise::cuda::erased<launch, function<::reprise::cuda::BF16, launch>>, \
        ::reprise::cuda::erased<launch, function<::reprise::cuda::F16, launch>>   \
  }

template <class A, class L>
void enter(void (*body)(const A&, L&), const LaunchArgs& args, L& launch) {
  body(args.as<A>(), launch);
}
// A body void(const Args&, L&) as a CudaKernel.
template <class L, auto kBody>
void erased(const LaunchArgs& args, const LiveSizes& live, Launch& launch) {
  launch.begin(args, live);
  enter(kBody, args, static_cast<L&>(launch));
}

// For a GPU: each in its .cu file.
void fill_elementwise(KernelTable& table);
void fill_sample(KernelTable& table);
void fill_draw_parts(KernelTable& table);
void fill_norm(KernelTable& table);
void fill_rotation(KernelTable& table);
void fill_linear(KernelTable& table);
void fill_linear_silu_mul(KernelTable& table);
void fill_attention(KernelTable& table);
void fill_quantise(KernelTable& table);
void fill_linear_w8a8(KernelTable& table);
void fill_experts(KernelTable& table);
void fill_latent(KernelTable& table);
void fill_packed(KernelTable& table);
void fill_grouped_blocks(KernelTable& table);
void fill_recurrent(KernelTable& table);
void fill_encoder(KernelTable& table);
void fill_lora(KernelTable& table);

}  // namespace reprise::cuda

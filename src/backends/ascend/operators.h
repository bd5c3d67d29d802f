// Operators: the vendor's operators this backend uses, looked up once. The prototypes are those that are the same in
// CANN 8.1.RC1 and today; what is younger is marked, may be missing, and has a way around it in the kernel that wants
// it.
#pragma once

#include "backends/ascend/launch.h"

namespace reprise::ascend {

using T = const aclTensor*;
using MT = aclTensor*;
using TL = const aclTensorList*;
using MTL = aclTensorList*;
using IA = const aclIntArray*;
using MIA = aclIntArray*;
using S = const aclScalar*;
using i64 = int64_t;

struct Operators {
  // Dense.
  Operator<T, T, T> embedding{"aclnnEmbedding"};
  Operator<T, i64, T, MT> index_select{"aclnnIndexSelect"};
  Operator<T, T, double, T, T> rms_norm{"aclnnRmsNorm"};
  Operator<T, T, T, double, MT, MT, MT> add_rms_norm{"aclnnAddRmsNorm"};
  Operator<T, T, MT, int8_t> matmul{"aclnnMatmul"};
  Operator<T, T, MT, int8_t> matmul_nz{"aclnnMatmulWeightNz"};  // after 8.1
  Operator<T, T, T, S, S, MT, int8_t> addmm{"aclnnAddmm"};
  Operator<T, T, MT, int8_t> batch_matmul{"aclnnBatchMatMul"};
  Operator<T, T, T, T, IA, IA, IA, int8_t, int32_t, MT> transpose_batch_matmul{
      "aclnnTransposeBatchMatMul"};  // after 8.1
  Operator<T, T, S, MT> add{"aclnnAdd"};
  Operator<T, S, S, MT> adds{"aclnnAdds"};
  Operator<T, T, MT> mul{"aclnnMul"};
  Operator<T, S, MT> muls{"aclnnMuls"};
  Operator<T, MT> silu{"aclnnSilu"};
  Operator<T, MT> reciprocal{"aclnnReciprocal"};
  Operator<T, MT> cos{"aclnnCos"};
  Operator<T, MT> sin{"aclnnSin"};
  Operator<T, MT> tanh{"aclnnTanh"};
  Operator<T, i64, MT> gelu{"aclnnGeluV2"};
  Operator<T, IA, T, T, double, MT, MT, MT> layer_norm{"aclnnLayerNorm"};
  Operator<T, IA, bool, int32_t, MT> sum{"aclnnReduceSum"};
  Operator<T, i64, int32_t, MT> running_sum{"aclnnCumsum"};
  Operator<T, MT> exp{"aclnnExp"};
  Operator<T, S, MT> clamp_min{"aclnnClampMin"};
  Operator<T, S, S, MT> softplus{"aclnnSoftplus"};
  Operator<T, i64, T> swiglu{"aclnnSwiGlu"};
  Operator<T, int32_t, MT> cast{"aclnnCast"};
  Operator<MT, T> copy{"aclnnInplaceCopy"};
  Operator<T, i64, bool, MT> argmax{"aclnnArgMax"};
  Operator<T, i64, T, MT> gather{"aclnnGather"};

  // Rotation, caches, attention.
  Operator<T, T, T, T, IA, i64, bool, MT, MT> rope_cache{"aclnnRopeWithSinCosCache"};
  Operator<T, MT, T, T, MT, T, T, T, char*, char*, IA, IA> scatter_kv{"aclnnScatterPaKvCache"};  // after 8.1
  Operator<MT, T, T> scatter_nd{"aclnnScatterNdUpdate"};
  Operator<T, T, T, MT> interleave_rope{"aclnnInterleaveRope"};  // after 8.1
  Operator<T, T, T, T, T, MT, MT, T, T, T, T, double, char*, bool, T, T> latent_rows{
      "aclnnKvRmsNormRopeCache"};  // after 8.1
  Operator<T, TL, TL, T, T, IA, IA, T, T, T, T, T, T, T, T, T, T, T, T, T, T, T, T, IA, T, T, T, i64, double, i64, i64,
           char*, i64, i64, i64, i64, i64, bool, i64, i64, T, T>
      fused_attention{"aclnnFusedInferAttentionScoreV3"};
  Operator<T, TL, TL, T, T, IA, IA, T, T, T, T, T, T, T, T, T, T, T, T, T, T, T, T, IA, T, T, T, T, T, i64, double, i64,
           i64, char*, i64, i64, i64, i64, i64, bool, i64, i64, i64, T, T>
      sunk_attention{"aclnnFusedInferAttentionScoreV4"};  // with sinks; after 8.2
  Operator<T, TL, TL, T, T, IA, T, T, T, T, T, T, T, T, T, i64, double, char*, i64, i64, i64, T> decode_attention{
      "aclnnIncreFlashAttentionV4"};
  Operator<T, T, T, T, T, IA, IA, T, T, T, T, T, i64, double, i64, i64, char*, i64, i64, i64, T> prompt_attention{
      "aclnnPromptFlashAttentionV3"};
  Operator<T, T, T, T, T, T, T, IA, IA, IA, double, double, i64, i64, i64, char*, i64, i64, T, T, T, T>
      segment_attention{"aclnnFlashAttentionVarLenScore"};

  // States of sequences.
  Operator<T, T, T, T, MT, T, T, T, T, T, float, MT> delta_rule{"aclnnRecurrentGatedDeltaRule"};  // after 8.5

  // Quantised.
  Operator<T, T, T, bool, const char*, int32_t, int32_t, T> quantize{"aclnnAscendQuantV3"};
  Operator<T, T, T, T> dynamic_quantize{"aclnnDynamicQuant"};
  Operator<T, T, T, T, T, T, bool, bool, T> quant_matmul{"aclnnQuantMatmulV4"};
  Operator<T, T, T, T, T, T, T, T, T, bool, bool, i64, MT> quant_matmul_nz{"aclnnQuantMatmulWeightNz"};
  Operator<T, T, T, T, T, T, T, i64, double, bool, MT, MT, MT> add_rms_norm_quant{"aclnnAddRmsNormQuant"};
  Operator<T, T, T, T, T, double, MT, MT, MT, MT, MT> add_rms_norm_dynamic_quant{"aclnnAddRmsNormDynamicQuant"};

  Operator<T, T, T, T, T, T, T, bool, char*, T, T> dequant_swiglu_quant{"aclnnDequantSwigluQuant"};

  // Experts.
  Operator<T, MT> sigmoid{"aclnnSigmoid"};
  Operator<MT> zero{"aclnnInplaceZero"};
  Operator<T, T, i64, i64, i64, i64, i64, i64, bool, double, double, T, T, T> gating{
      "aclnnMoeGatingTopK"};  // after 8.1
  Operator<T, T, i64, i64, bool, T, T, T> gating_softmax{"aclnnMoeGatingTopKSoftmaxV2"};
  Operator<T, T, i64, i64, i64, i64, i64, bool, T, T, T, T> init_routing{"aclnnMoeInitRoutingV2"};
  Operator<TL, TL, TL, TL, TL, TL, TL, TL, T, TL, TL, TL, i64, i64, i64, i64, MTL, MTL, MTL> grouped_matmul{
      "aclnnGroupedMatmulV4"};
  Operator<T, T, T, T, T, T, T, MT, MT, MT> grouped_swiglu_quant{"aclnnGroupedMatmulSwigluQuant"};
  Operator<T, T, T, T, T, T, T, MT, MT, MT> grouped_swiglu_quant_nz{
      "aclnnGroupedMatmulSwigluQuantWeightNZ"};  // after 8.1
  Operator<T, T, T, T, T, T, T, i64, T> finalize_routing{"aclnnMoeFinalizeRoutingV2"};
  Operator<T, T, T, T, T, const char*, i64, i64, i64, const char*, i64, i64, i64, i64, i64, i64, i64, i64, const char*,
           MT, MT, MT, MT, MT, MT, MT>
      dispatch{"aclnnMoeDistributeDispatchV2"};  // after 8.1
  Operator<T, T, T, T, T, T, T, T, T, T, T, T, const char*, i64, i64, i64, const char*, i64, i64, i64, i64, i64, i64,
           i64, i64, i64, const char*, MT>
      combine_dispatched{"aclnnMoeDistributeCombineV2"};  // after 8.1

  void find(const Library& library);
  // One line for each that is not there.
  std::vector<std::string> missing() const;
};

}  // namespace reprise::ascend

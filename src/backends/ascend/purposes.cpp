// What functions and operators that may be missing are there for.
#include "backends/ascend/library.h"

namespace reprise::ascend {
namespace {

struct Purpose {
  std::string_view symbol, words;
};

constexpr Purpose kPurposes[] = {
    {"aclsysGetCANNVersion", "versions in reports; nothing else needs it"},
    {"aclrtSetSysParamOpt", "operators that add in one order; nothing asks for it yet"},
    {"aclrtGetStreamAvailableNum", "whether graphs hold queues for life; without it they are taken to"},
    {"aclrtCmoAsync", "weights that are read ahead into the L2 cache; products read memory without it"},
    {"aclGetDeviceCapability", "the size of the L2 cache; the smallest of the known chips is assumed without it"},
    {"aclrtValueWait", "updates beside a replay; without it they come before the replay"},
    {"aclrtValueWrite", "updates beside a replay; without it they come before the replay"},
    {"aclSetAclOpExecutorRepeatable", "eager launches that are planned once; without it each is planned anew"},
    {"aclnnEmbedding", "rows of tokens; no model runs without it"},
    {"aclnnIndexSelect", "rows with logits; no model runs without it"},
    {"aclnnRmsNorm", "norms; no model runs without it"},
    {"aclnnAddRmsNorm", "the fusion of a sum and a norm; its parts run instead"},
    {"aclnnMatmul", "linear layers; no model runs without it"},
    {"aclnnMatmulWeightNz", "weights of linear layers in FRACTAL_NZ; they stay row-major without it"},
    {"aclnnAddmm", "linear layers with a bias (Qwen2)"},
    {"aclnnBatchMatMul", "one matrix per head (latent attention)"},
    {"aclnnTransposeBatchMatMul", "one matrix per head (latent attention) without copies"},
    {"aclnnQuantMatmulWeightNz", "W8A8 weights in FRACTAL_NZ; they stay row-major without it"},
    {"aclnnAdd", "sums; no model runs without it"},
    {"aclnnAdds", "tests of the device"},
    {"aclnnMul", "products; rotation by its parts"},
    {"aclnnMuls", "tables of scaled rotations"},
    {"aclnnSilu", "unfused gates"},
    {"aclnnReciprocal", "unfused static quantisation"},
    {"aclnnCos", "tables of rotations; no model runs without it"},
    {"aclnnSin", "tables of rotations; no model runs without it"},
    {"aclnnTanh", "scores of BERT; caps on logits"},
    {"aclnnGeluV2", "encoders, vision towers and models with GELU"},
    {"aclnnLayerNorm", "encoders, vision towers and models with layer norms"},
    {"aclnnReduceSum", "vectors that are the mean of a text's rows"},
    {"aclnnCumsum", "prompts of layers that keep a state for each sequence (Qwen3-Next)"},
    {"aclnnExp", "the gated delta rule and the state-space step"},
    {"aclnnClampMin", "squared ReLU (Nemotron-H); limits of the state-space step"},
    {"aclnnSoftplus", "the gated delta rule and the state-space step"},
    {"aclnnSwiGlu", "the fusion of gate and product; its parts run instead"},
    {"aclnnCast", "tables of rotations, fp32 logits; no model runs without it"},
    {"aclnnInplaceCopy", "slices and copies; no model runs without it"},
    {"aclnnArgMax", "greedy tokens"},
    {"aclnnGather", "greedy tokens over several cards; the logits of all of them are gathered instead"},
    {"aclnnRopeWithSinCosCache", "rotation in one operator; its parts run instead"},
    {"aclnnInterleaveRope", "rotation of latent attention's queries; a copy and RopeWithSinCosCache do it instead"},
    {"aclnnKvRmsNormRopeCache", "what a token leaves in the caches of latent attention; its parts run instead"},
    {"aclnnScatterPaKvCache", "writing keys and values; ScatterNdUpdate does it instead"},
    {"aclnnScatterNdUpdate", "writing keys and values on CANN 8.1"},
    {"aclnnFusedInferAttentionScoreV3", "attention; ASCEND_USE_FIA=false runs the pair before it"},
    {"aclnnFusedInferAttentionScoreV3GetMaxWorkspaceSize",
     "the most workspace attention can need; several forms of a step are asked about instead"},
    {"aclnnFusedInferAttentionScoreV4", "attention with sinks (gpt-oss)"},
    {"aclnnFusedInferAttentionScoreV4GetMaxWorkspaceSize",
     "the most workspace attention with sinks can need; several forms of a step are asked about instead"},
    {"aclnnIncreFlashAttentionV4", "attention of decode steps where the fused operator is not there or not wanted"},
    {"aclnnPromptFlashAttentionV3", "attention of prompts that the fused operator refuses"},
    {"aclnnFlashAttentionVarLenScore", "attention of encoders and vision towers"},
    {"aclnnRecurrentGatedDeltaRule", "layers that keep a state for each sequence (Qwen3-Next, Granite 4, Nemotron-H)"},
    {"aclnnAscendQuantV3", "W8A8 static"},
    {"aclnnDynamicQuant", "W8A8 dynamic"},
    {"aclnnQuantMatmulV4", "W8A8"},
    {"aclnnAddRmsNormQuant", "a fusion of W8A8 static; its parts run instead"},
    {"aclnnAddRmsNormDynamicQuant", "a fusion of W8A8 dynamic; its parts run instead"},
    {"aclnnDequantSwigluQuant", "a fusion of W8A8 dynamic; its parts run instead"},
    {"aclnnSigmoid", "mixtures of experts with shared ones (Qwen2)"},
    {"aclnnInplaceZero", "mixtures of experts"},
    {"aclnnMoeGatingTopK", "choosing experts; MoeGatingTopKSoftmaxV2 does it where scores are softmax"},
    {"aclnnMoeGatingTopKSoftmaxV2", "choosing experts on CANN 8.1"},
    {"aclnnMoeInitRoutingV2", "mixtures of experts"},
    {"aclnnGroupedMatmulV4", "mixtures of experts"},
    {"aclnnGroupedMatmulSwigluQuant", "a fusion of W8A8 dynamic experts; its parts run instead"},
    {"aclnnGroupedMatmulSwigluQuantWeightNZ", "the same fusion; the older entry takes the blocks in another form"},
    {"aclnnMoeFinalizeRoutingV2", "mixtures of experts"},
    {"aclnnMoeDistributeDispatchV2", "rows to the cards of their experts (`moe_a2a_backend` deepep)"},
    {"aclnnMoeDistributeCombineV2", "the same; collectives do it instead"},
};

}  // namespace

std::string purpose_of(std::string_view symbol) {
  for (const Purpose& p : kPurposes)
    if (p.symbol == symbol) return std::string(p.words);
  return "see `reprise graph explain`";
}

}  // namespace reprise::ascend

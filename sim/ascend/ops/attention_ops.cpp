// The attention operators: which arguments each of them has.
#include "ascend/ops/attention.h"

namespace ascend_sim {

namespace {

int finish_attention(Operator& op, Attention& a, bool bound) {
  check_attention(op, a);
  op.once("its lengths are host arrays");
  op.varies();
  if (bound) op.only_bound();
  op.obeys(Rule::AttentionMaxJoined, !bound || !a.joined() || a.width == 512, "inputLayout is " + a.layout);
  if (!op.ok()) return op.status();
  const double operations = attention_operations(a), bytes = attention_bytes(op, a);
  const uint64_t scratch = attention_workspace(op, a, bound);
  return op.finish(
      Unit::Mixed, operations, [a](const Operands& v) { compute_attention(a, v); }, bytes, scratch);
}

void note_attributes(Operator& op, const Attention& a) {
  op.attributes({a.heads, a.kv_heads, a.before, a.after, a.sparse, a.precise, a.page, a.wants_lse});
  op.attribute(a.scale);
}

// What the versions of FusedInferAttentionScore have; null where an older one lacks it.
struct Fused {
  Tensor query;
  Tensors key, value;
  Tensor mask;
  Ints lengths, kv_lengths;
  Tensor table, query_rope, key_rope, sinks;
  const char* layout;
  Tensor out, lse;
};

// Executors of attention cannot be repeated, so nothing addresses the operands by the places they have here.
int fused(const char* name, const Fused& f, Attention& a, bool bound, std::initializer_list<const void*> unmodelled,
          uint64_t* size, aclOpExecutor** executor, Since since) {
  Operator op(name, size, executor, since);
  a.query = op.in("query", f.query);
  a.keys = op.list("key", f.key, Walk::Packed, true);
  a.values = op.list("value", f.value, Walk::Packed, true);
  a.mask = op.maybe_in("attenMaskOptional", f.mask);
  a.lengths = op.ints("actualSeqLengthsOptional", f.lengths, false);
  a.kv_lengths = op.ints("actualSeqLengthsKvOptional", f.kv_lengths, false);
  a.table = op.maybe_in("blockTableOptional", f.table);
  a.query_rope = op.maybe_in("queryRopeOptional", f.query_rope);
  a.key_rope = op.maybe_in("keyRopeOptional", f.key_rope);
  a.sinks = op.maybe_in("learnableSinkOptional", f.sinks);
  a.layout = op.text(f.layout);
  a.out = op.out("attentionOut", f.out);
  a.lse = op.out("softmaxLse", f.lse);  // a tensor without elements where it is not asked for
  note_attributes(op, a);
  for (const void* handle : unmodelled) {
    op.tiled(handle == nullptr,
             "shifts of positions, quantised keys and values, padding and shared prefixes are not "
             "simulated: their arguments must be null");
  }
  return finish_attention(op, a, bound);
}

}  // namespace

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

// Both functions of a version are asked about the same arguments. V3 has the turned parts of queries and keys besides,
// V4 sinks and what quantised queries need.
#define FIA(version, since, kind, bound, parts, modes, query_rope, key_rope, sinks, ...)                             \
  aclnnStatus version##kind(                                                                                         \
      Tensor query, Tensors key, Tensors value, Tensor pseShiftOptional, Tensor attenMaskOptional,                   \
      Ints actualSeqLengthsOptional, Ints actualSeqLengthsKvOptional, Tensor deqScale1Optional,                      \
      Tensor quantScale1Optional, Tensor deqScale2Optional, Tensor quantScale2Optional, Tensor quantOffset2Optional, \
      Tensor antiquantScaleOptional, Tensor antiquantOffsetOptional, Tensor blockTableOptional,                      \
      Tensor queryPaddingSizeOptional, Tensor kvPaddingSizeOptional, Tensor keyAntiquantScaleOptional,               \
      Tensor keyAntiquantOffsetOptional, Tensor valueAntiquantScaleOptional, Tensor valueAntiquantOffsetOptional,    \
      Tensor keySharedPrefixOptional, Tensor valueSharedPrefixOptional, Ints actualSharedPrefixLenOptional,          \
      parts int64_t numHeads, double scaleValue, int64_t preTokens, int64_t nextTokens, char* inputLayout,           \
      int64_t numKeyValueHeads, int64_t sparseMode, int64_t innerPrecise, int64_t blockSize, int64_t antiquantMode,  \
      bool softmaxLseFlag, int64_t keyAntiquantMode, int64_t valueAntiquantMode, modes Tensor attentionOut,          \
      Tensor softmaxLse, uint64_t* workspaceSize, aclOpExecutor** executor) {                                        \
    const Fused f{query,                                                                                             \
                  key,                                                                                               \
                  value,                                                                                             \
                  attenMaskOptional,                                                                                 \
                  actualSeqLengthsOptional,                                                                          \
                  actualSeqLengthsKvOptional,                                                                        \
                  blockTableOptional,                                                                                \
                  query_rope,                                                                                        \
                  key_rope,                                                                                          \
                  sinks,                                                                                             \
                  inputLayout,                                                                                       \
                  attentionOut,                                                                                      \
                  softmaxLse};                                                                                       \
    Attention a;                                                                                                     \
    a.heads = numHeads, a.kv_heads = numKeyValueHeads, a.scale = scaleValue, a.before = preTokens,                   \
    a.after = nextTokens;                                                                                            \
    a.sparse = sparseMode, a.precise = innerPrecise, a.page = blockSize, a.wants_lse = softmaxLseFlag;               \
    return fused(#version, f, a, bound,                                                                              \
                 {pseShiftOptional, deqScale1Optional, quantScale1Optional, deqScale2Optional, quantScale2Optional,  \
                  quantOffset2Optional, antiquantScaleOptional, antiquantOffsetOptional, queryPaddingSizeOptional,   \
                  kvPaddingSizeOptional, keyAntiquantScaleOptional, keyAntiquantOffsetOptional,                      \
                  valueAntiquantScaleOptional, valueAntiquantOffsetOptional, keySharedPrefixOptional,                \
                  valueSharedPrefixOptional, actualSharedPrefixLenOptional __VA_OPT__(, ) __VA_ARGS__},              \
                 workspaceSize, executor, since);                                                                    \
  }
#define FIA_ROPES Tensor queryRopeOptional, Tensor keyRopeOptional, Tensor keyRopeAntiquantScaleOptional,
#define FIA_SINKS FIA_ROPES Tensor dequantScaleQueryOptional, Tensor learnableSinkOptional,
#define FIA_MODES int64_t,

FIA(aclnnFusedInferAttentionScoreV2, Since::Cann81, GetWorkspaceSize, false, , , nullptr, nullptr, nullptr)
FIA(aclnnFusedInferAttentionScoreV2, Since::Cann81, GetMaxWorkspaceSize, true, , , nullptr, nullptr, nullptr)
ACLNN_PHASE2(aclnnFusedInferAttentionScoreV2);

FIA(aclnnFusedInferAttentionScoreV3, Since::Cann81, GetWorkspaceSize, false, FIA_ROPES, , queryRopeOptional,
    keyRopeOptional, nullptr, keyRopeAntiquantScaleOptional)
FIA(aclnnFusedInferAttentionScoreV3, Since::Cann81, GetMaxWorkspaceSize, true, FIA_ROPES, , queryRopeOptional,
    keyRopeOptional, nullptr, keyRopeAntiquantScaleOptional)
ACLNN_PHASE2(aclnnFusedInferAttentionScoreV3);

// The mode of quantised queries means nothing without their scales.
FIA(aclnnFusedInferAttentionScoreV4, Since::Cann85, GetWorkspaceSize, false, FIA_SINKS, FIA_MODES, queryRopeOptional,
    keyRopeOptional, learnableSinkOptional, keyRopeAntiquantScaleOptional, dequantScaleQueryOptional)
FIA(aclnnFusedInferAttentionScoreV4, Since::Cann85, GetMaxWorkspaceSize, true, FIA_SINKS, FIA_MODES, queryRopeOptional,
    keyRopeOptional, learnableSinkOptional, keyRopeAntiquantScaleOptional, dequantScaleQueryOptional)
ACLNN_PHASE2(aclnnFusedInferAttentionScoreV4);

aclnnStatus aclnnIncreFlashAttentionV4GetWorkspaceSize(
    Tensor query, Tensors key, Tensors value, Tensor pseShift, Tensor attenMask, Ints actualSeqLengths,
    Tensor dequantScale1, Tensor quantScale1, Tensor dequantScale2, Tensor quantScale2, Tensor quantOffset2,
    Tensor antiquantScale, Tensor antiquantOffset, Tensor blocktable, Tensor kvPaddingSize, int64_t numHeads,
    double scaleValue, char* inputLayout, int64_t numKeyValueHeads, int64_t blockSize, int64_t innerPrecise,
    Tensor attentionOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnIncreFlashAttentionV4", workspaceSize, executor);
  Attention a;
  a.one_token = true;
  a.heads = numHeads, a.kv_heads = numKeyValueHeads, a.scale = scaleValue, a.precise = innerPrecise, a.page = blockSize;
  a.query = op.in("query", query);
  a.keys = op.list("key", key, Walk::Packed, true);
  a.values = op.list("value", value, Walk::Packed, true);
  a.mask = op.maybe_in("attenMask", attenMask);
  a.kv_lengths = op.ints("actualSeqLengths", actualSeqLengths, false);
  a.table = op.maybe_in("blocktable", blocktable);
  a.layout = op.text(inputLayout);
  a.out = op.out("attentionOut", attentionOut);
  a.lse = a.query_rope = a.key_rope = a.sinks = op.maybe_in("", nullptr);
  note_attributes(op, a);
  for (const void* handle :
       std::initializer_list<const void*>{pseShift, dequantScale1, quantScale1, dequantScale2, quantScale2,
                                          quantOffset2, antiquantScale, antiquantOffset, kvPaddingSize}) {
    op.tiled(handle == nullptr,
             "shifts of positions, quantisation and padding are not simulated: their arguments must be null");
  }
  return finish_attention(op, a, false);
}
ACLNN_PHASE2(aclnnIncreFlashAttentionV4);

aclnnStatus aclnnPromptFlashAttentionV3GetWorkspaceSize(Tensor query, Tensor key, Tensor value, Tensor pseShift,
                                                        Tensor attenMask, Ints actualSeqLengths,
                                                        Ints actualSeqLengthsKv, Tensor deqScale1, Tensor quantScale1,
                                                        Tensor deqScale2, Tensor quantScale2, Tensor quantOffset2,
                                                        int64_t numHeads, double scaleValue, int64_t preTokens,
                                                        int64_t nextTokens, char* inputLayout, int64_t numKeyValueHeads,
                                                        int64_t sparseMode, int64_t innerPrecise, Tensor attentionOut,
                                                        uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnPromptFlashAttentionV3", workspaceSize, executor);
  Attention a;
  a.has_pages = false;
  a.heads = numHeads, a.kv_heads = numKeyValueHeads, a.scale = scaleValue, a.before = preTokens, a.after = nextTokens;
  a.sparse = sparseMode, a.precise = innerPrecise;
  a.query = op.in("query", query);
  a.keys = {op.in("key", key)};
  a.values = {op.in("value", value)};
  a.mask = op.maybe_in("attenMask", attenMask);
  a.lengths = op.ints("actualSeqLengths", actualSeqLengths, false);
  a.kv_lengths = op.ints("actualSeqLengthsKv", actualSeqLengthsKv, false);
  a.layout = op.text(inputLayout);
  a.out = op.out("attentionOut", attentionOut);
  a.lse = a.query_rope = a.key_rope = a.sinks = a.table = op.maybe_in("", nullptr);
  note_attributes(op, a);
  for (const void* handle :
       std::initializer_list<const void*>{pseShift, deqScale1, quantScale1, deqScale2, quantScale2, quantOffset2}) {
    op.tiled(handle == nullptr, "shifts of positions and quantisation are not simulated: their arguments must be null");
  }
  return finish_attention(op, a, false);
}
ACLNN_PHASE2(aclnnPromptFlashAttentionV3);

}  // extern "C"

// The C symbols of libnnopbase and libopapi that the simulator has: types, the meta API, both phases of each operator.
//
// Transcribed from the public prototypes for the simulator alone; the engine's backend has its own transcription.
// Enums are plain integers here, as a caller may pass any value. Any thread may call any of these.
#pragma once

#include <cstddef>
#include <cstdint>

using aclnnStatus = int32_t;
using aclDataType = int32_t;
using aclFormat = int32_t;
using aclrtStream = void*;

struct aclTensor;
struct aclScalar;
struct aclIntArray;
struct aclFloatArray;
struct aclBoolArray;
struct aclTensorList;
struct aclScalarList;
struct aclOpExecutor;

#define ACLNN_OPERATOR(name, ...)                                                                     \
  aclnnStatus name##GetWorkspaceSize(__VA_ARGS__, uint64_t* workspaceSize, aclOpExecutor** executor); \
  aclnnStatus name(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream)

// An operator with a third function of the first one's arguments: the bound of its workspace over all lengths. The
// executor that this function makes can only be destroyed.
#define ACLNN_BOUNDED_OPERATOR(name, ...) \
  ACLNN_OPERATOR(name, __VA_ARGS__);      \
  aclnnStatus name##GetMaxWorkspaceSize(__VA_ARGS__, uint64_t* workspaceSize, aclOpExecutor** executor)

#pragma GCC visibility push(default)
extern "C" {

aclnnStatus aclnnInit(const char* configPath);
aclnnStatus aclnnFinalize();

aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType, const int64_t* stride,
                           int64_t offset, aclFormat format, const int64_t* storageDims, uint64_t storageDimsNum,
                           void* tensorData);
aclnnStatus aclInitTensor(aclTensor* tensor, const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType,
                          const int64_t* stride, int64_t offset, aclFormat format, const int64_t* storageDims,
                          uint64_t storageDimsNum, void* tensorDataAddr);
aclScalar* aclCreateScalar(void* value, aclDataType dataType);
aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size);
aclFloatArray* aclCreateFloatArray(const float* value, uint64_t size);
aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size);
aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size);
aclScalarList* aclCreateScalarList(const aclScalar* const* value, uint64_t size);
aclnnStatus aclDestroyTensor(const aclTensor* tensor);
aclnnStatus aclDestroyScalar(const aclScalar* scalar);
aclnnStatus aclDestroyIntArray(const aclIntArray* array);
aclnnStatus aclDestroyFloatArray(const aclFloatArray* array);
aclnnStatus aclDestroyBoolArray(const aclBoolArray* array);
aclnnStatus aclDestroyTensorList(const aclTensorList* array);
aclnnStatus aclDestroyScalarList(const aclScalarList* array);
aclnnStatus aclGetViewShape(const aclTensor* tensor, int64_t** viewDims, uint64_t* viewDimsNum);
aclnnStatus aclGetStorageShape(const aclTensor* tensor, int64_t** storageDims, uint64_t* storageDimsNum);
aclnnStatus aclGetViewStrides(const aclTensor* tensor, int64_t** stridesValue, uint64_t* stridesNum);
aclnnStatus aclGetViewOffset(const aclTensor* tensor, int64_t* offset);
aclnnStatus aclGetFormat(const aclTensor* tensor, aclFormat* format);
aclnnStatus aclGetDataType(const aclTensor* tensor, aclDataType* dataType);
aclnnStatus aclGetIntArraySize(const aclIntArray* array, uint64_t* size);
aclnnStatus aclGetTensorListSize(const aclTensorList* tensorList, uint64_t* size);
aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor);
aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor);
aclnnStatus aclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr);
aclnnStatus aclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr);
aclnnStatus aclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr);
aclnnStatus aclSetDynamicInputTensorAddr(aclOpExecutor* executor, size_t irIndex, const size_t relativeIndex,
                                         aclTensorList* tensors, void* addr);
aclnnStatus aclSetDynamicOutputTensorAddr(aclOpExecutor* executor, size_t irIndex, const size_t relativeIndex,
                                          aclTensorList* tensors, void* addr);
aclnnStatus aclSetDynamicTensorAddr(aclOpExecutor* executor, size_t irIndex, const size_t relativeIndex,
                                    aclTensorList* tensors, void* addr);
aclnnStatus aclSetRawTensorAddr(aclTensor* tensor, void* addr);
aclnnStatus aclGetRawTensorAddr(const aclTensor* tensor, void** addr);

// Only the simulator has these: what is still alive of the objects above (one line each, cut at `size` bytes; the
// answer is their number), and where its operators choose among sources that disagree or say nothing.
int64_t ascendSimLiveObjects(char* text, size_t size);
const char* ascendSimOperatorNotes();

aclnnStatus aclnnCalculateMatmulWeightSize(const aclIntArray* tensorShape, uint64_t* weightTensorSize);
aclnnStatus aclnnCalculateMatmulWeightSizeV2(const aclIntArray* tensorShape, aclDataType dataType,
                                             uint64_t* weightTensorSize);

// Gathers.
ACLNN_OPERATOR(aclnnEmbedding, const aclTensor* weight, const aclTensor* indices, const aclTensor* out);
ACLNN_OPERATOR(aclnnIndexSelect, const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out);
ACLNN_OPERATOR(aclnnGather, const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out);
ACLNN_OPERATOR(aclnnGatherV2, const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out);

// Norms and activations.
ACLNN_OPERATOR(aclnnRmsNorm, const aclTensor* x, const aclTensor* gamma, double epsilon, const aclTensor* yOut,
               const aclTensor* rstdOut);
ACLNN_OPERATOR(aclnnAddRmsNorm, const aclTensor* x1, const aclTensor* x2, const aclTensor* gamma, double epsilon,
               aclTensor* yOut, aclTensor* rstdOut, aclTensor* xOut);
ACLNN_OPERATOR(aclnnInplaceAddRmsNorm, aclTensor* x1Ref, aclTensor* x2Ref, const aclTensor* gamma, double epsilon,
               const aclTensor* rstdOut);
ACLNN_OPERATOR(aclnnLayerNorm, const aclTensor* input, const aclIntArray* normalizedShape,
               const aclTensor* weightOptional, const aclTensor* biasOptional, double eps, aclTensor* out,
               aclTensor* meanOutOptional, aclTensor* rstdOutOptional);
ACLNN_OPERATOR(aclnnGeluV2, const aclTensor* x, int64_t approximate, aclTensor* y);
ACLNN_OPERATOR(aclnnSwiGlu, const aclTensor* x, int64_t dim, const aclTensor* out);
ACLNN_OPERATOR(aclnnSilu, const aclTensor* self, aclTensor* out);

// Matrix products.
ACLNN_OPERATOR(aclnnMm, const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType);
ACLNN_OPERATOR(aclnnMatmul, const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType);
ACLNN_OPERATOR(aclnnBatchMatMul, const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType);
ACLNN_OPERATOR(aclnnMatmulWeightNz, const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType);
ACLNN_OPERATOR(aclnnAddmm, const aclTensor* self, const aclTensor* mat1, const aclTensor* mat2, const aclScalar* beta,
               const aclScalar* alpha, aclTensor* out, int8_t cubeMathType);
ACLNN_OPERATOR(aclnnTransMatmulWeight, aclTensor* mmWeightRef);
ACLNN_OPERATOR(aclnnTransposeBatchMatMul, const aclTensor* x1, const aclTensor* x2, const aclTensor* bias,
               const aclTensor* scale, const aclIntArray* permX1, const aclIntArray* permX2, const aclIntArray* permY,
               int8_t cubeMathType, const int32_t batchSplitFactor, aclTensor* out);

// Rotary positions.
ACLNN_OPERATOR(aclnnApplyRotaryPosEmb, aclTensor* queryRef, aclTensor* keyRef, const aclTensor* cos,
               const aclTensor* sin, int64_t layout);
ACLNN_OPERATOR(aclnnRotaryPositionEmbedding, const aclTensor* x, const aclTensor* cos, const aclTensor* sin,
               int64_t mode, aclTensor* out);
ACLNN_OPERATOR(aclnnRopeWithSinCosCache, const aclTensor* positions, const aclTensor* queryIn, const aclTensor* keyIn,
               const aclTensor* cosSinCache, const aclIntArray* mropeSection, int64_t headSize, bool isNeoxStyle,
               aclTensor* queryOut, aclTensor* keyOut);
ACLNN_OPERATOR(aclnnInterleaveRope, const aclTensor* x, const aclTensor* cos, const aclTensor* sin, aclTensor* out);

// Cache writes.
ACLNN_OPERATOR(aclnnScatterPaKvCache, const aclTensor* key, aclTensor* keyCacheRef, const aclTensor* slotMapping,
               const aclTensor* value, aclTensor* valueCacheRef, const aclTensor* compressLensOptional,
               const aclTensor* compressSeqOffsetOptional, const aclTensor* seqLensOptional, char* cacheModeOptional,
               char* scatterModeOptional, const aclIntArray* stridesOptional, const aclIntArray* offsetsOptional);
ACLNN_OPERATOR(aclnnScatterNdUpdate, aclTensor* varRef, const aclTensor* indices, const aclTensor* updates);
ACLNN_OPERATOR(aclnnKvRmsNormRopeCache, const aclTensor* kv, const aclTensor* gamma, const aclTensor* cos,
               const aclTensor* sin, const aclTensor* index, aclTensor* kCacheRef, aclTensor* ckvCacheRef,
               const aclTensor* kRopeScaleOptional, const aclTensor* cKvScaleOptional,
               const aclTensor* kRopeOffsetOptional, const aclTensor* cKvOffsetOptional, double epsilon,
               char* cacheModeOptional, bool isOutputKv, const aclTensor* kRopeOut, const aclTensor* cKvOut);

// Attention.
ACLNN_BOUNDED_OPERATOR(aclnnFusedInferAttentionScoreV2, const aclTensor* query, const aclTensorList* key,
                       const aclTensorList* value, const aclTensor* pseShiftOptional,
                       const aclTensor* attenMaskOptional, const aclIntArray* actualSeqLengthsOptional,
                       const aclIntArray* actualSeqLengthsKvOptional, const aclTensor* deqScale1Optional,
                       const aclTensor* quantScale1Optional, const aclTensor* deqScale2Optional,
                       const aclTensor* quantScale2Optional, const aclTensor* quantOffset2Optional,
                       const aclTensor* antiquantScaleOptional, const aclTensor* antiquantOffsetOptional,
                       const aclTensor* blockTableOptional, const aclTensor* queryPaddingSizeOptional,
                       const aclTensor* kvPaddingSizeOptional, const aclTensor* keyAntiquantScaleOptional,
                       const aclTensor* keyAntiquantOffsetOptional, const aclTensor* valueAntiquantScaleOptional,
                       const aclTensor* valueAntiquantOffsetOptional, const aclTensor* keySharedPrefixOptional,
                       const aclTensor* valueSharedPrefixOptional, const aclIntArray* actualSharedPrefixLenOptional,
                       int64_t numHeads, double scaleValue, int64_t preTokens, int64_t nextTokens, char* inputLayout,
                       int64_t numKeyValueHeads, int64_t sparseMode, int64_t innerPrecise, int64_t blockSize,
                       int64_t antiquantMode, bool softmaxLseFlag, int64_t keyAntiquantMode, int64_t valueAntiquantMode,
                       const aclTensor* attentionOut, const aclTensor* softmaxLse);
ACLNN_BOUNDED_OPERATOR(aclnnFusedInferAttentionScoreV3, const aclTensor* query, const aclTensorList* key,
                       const aclTensorList* value, const aclTensor* pseShiftOptional,
                       const aclTensor* attenMaskOptional, const aclIntArray* actualSeqLengthsOptional,
                       const aclIntArray* actualSeqLengthsKvOptional, const aclTensor* deqScale1Optional,
                       const aclTensor* quantScale1Optional, const aclTensor* deqScale2Optional,
                       const aclTensor* quantScale2Optional, const aclTensor* quantOffset2Optional,
                       const aclTensor* antiquantScaleOptional, const aclTensor* antiquantOffsetOptional,
                       const aclTensor* blockTableOptional, const aclTensor* queryPaddingSizeOptional,
                       const aclTensor* kvPaddingSizeOptional, const aclTensor* keyAntiquantScaleOptional,
                       const aclTensor* keyAntiquantOffsetOptional, const aclTensor* valueAntiquantScaleOptional,
                       const aclTensor* valueAntiquantOffsetOptional, const aclTensor* keySharedPrefixOptional,
                       const aclTensor* valueSharedPrefixOptional, const aclIntArray* actualSharedPrefixLenOptional,
                       const aclTensor* queryRopeOptional, const aclTensor* keyRopeOptional,
                       const aclTensor* keyRopeAntiquantScaleOptional, int64_t numHeads, double scaleValue,
                       int64_t preTokens, int64_t nextTokens, char* inputLayout, int64_t numKeyValueHeads,
                       int64_t sparseMode, int64_t innerPrecise, int64_t blockSize, int64_t antiquantMode,
                       bool softmaxLseFlag, int64_t keyAntiquantMode, int64_t valueAntiquantMode,
                       const aclTensor* attentionOut, const aclTensor* softmaxLse);
ACLNN_BOUNDED_OPERATOR(aclnnFusedInferAttentionScoreV4, const aclTensor* query, const aclTensorList* key,
                       const aclTensorList* value, const aclTensor* pseShiftOptional,
                       const aclTensor* attenMaskOptional, const aclIntArray* actualSeqLengthsOptional,
                       const aclIntArray* actualSeqLengthsKvOptional, const aclTensor* deqScale1Optional,
                       const aclTensor* quantScale1Optional, const aclTensor* deqScale2Optional,
                       const aclTensor* quantScale2Optional, const aclTensor* quantOffset2Optional,
                       const aclTensor* antiquantScaleOptional, const aclTensor* antiquantOffsetOptional,
                       const aclTensor* blockTableOptional, const aclTensor* queryPaddingSizeOptional,
                       const aclTensor* kvPaddingSizeOptional, const aclTensor* keyAntiquantScaleOptional,
                       const aclTensor* keyAntiquantOffsetOptional, const aclTensor* valueAntiquantScaleOptional,
                       const aclTensor* valueAntiquantOffsetOptional, const aclTensor* keySharedPrefixOptional,
                       const aclTensor* valueSharedPrefixOptional, const aclIntArray* actualSharedPrefixLenOptional,
                       const aclTensor* queryRopeOptional, const aclTensor* keyRopeOptional,
                       const aclTensor* keyRopeAntiquantScaleOptional, const aclTensor* dequantScaleQueryOptional,
                       const aclTensor* learnableSinkOptional, int64_t numHeads, double scaleValue, int64_t preTokens,
                       int64_t nextTokens, char* inputLayout, int64_t numKeyValueHeads, int64_t sparseMode,
                       int64_t innerPrecise, int64_t blockSize, int64_t antiquantMode, bool softmaxLseFlag,
                       int64_t keyAntiquantMode, int64_t valueAntiquantMode, int64_t queryQuantMode,
                       const aclTensor* attentionOut, const aclTensor* softmaxLse);
ACLNN_OPERATOR(aclnnIncreFlashAttentionV4, const aclTensor* query, const aclTensorList* key, const aclTensorList* value,
               const aclTensor* pseShift, const aclTensor* attenMask, const aclIntArray* actualSeqLengths,
               const aclTensor* dequantScale1, const aclTensor* quantScale1, const aclTensor* dequantScale2,
               const aclTensor* quantScale2, const aclTensor* quantOffset2, const aclTensor* antiquantScale,
               const aclTensor* antiquantOffset, const aclTensor* blocktable, const aclTensor* kvPaddingSize,
               int64_t numHeads, double scaleValue, char* inputLayout, int64_t numKeyValueHeads, int64_t blockSize,
               int64_t innerPrecise, const aclTensor* attentionOut);
ACLNN_OPERATOR(aclnnPromptFlashAttentionV3, const aclTensor* query, const aclTensor* key, const aclTensor* value,
               const aclTensor* pseShift, const aclTensor* attenMask, const aclIntArray* actualSeqLengths,
               const aclIntArray* actualSeqLengthsKv, const aclTensor* deqScale1, const aclTensor* quantScale1,
               const aclTensor* deqScale2, const aclTensor* quantScale2, const aclTensor* quantOffset2,
               int64_t numHeads, double scaleValue, int64_t preTokens, int64_t nextTokens, char* inputLayout,
               int64_t numKeyValueHeads, int64_t sparseMode, int64_t innerPrecise, const aclTensor* attentionOut);
ACLNN_OPERATOR(aclnnFlashAttentionVarLenScore, const aclTensor* query, const aclTensor* key, const aclTensor* value,
               const aclTensor* realShiftOptional, const aclTensor* dropMaskOptional,
               const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
               const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,
               const aclIntArray* actualSeqKvLenOptional, double scaleValue, double keepProb, int64_t preTokens,
               int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode,
               const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut, const aclTensor* softmaxOutOut,
               const aclTensor* attentionOutOut);

// States of sequences.
ACLNN_OPERATOR(aclnnRecurrentGatedDeltaRule, const aclTensor* query, const aclTensor* key, const aclTensor* value,
               const aclTensor* beta, aclTensor* stateRef, const aclTensor* actualSeqLengths,
               const aclTensor* ssmStateIndices, const aclTensor* g, const aclTensor* gk,
               const aclTensor* numAcceptedTokens, float scaleValue, aclTensor* out);

// Element by element.
ACLNN_OPERATOR(aclnnAdd, const aclTensor* self, const aclTensor* other, const aclScalar* alpha, aclTensor* out);
ACLNN_OPERATOR(aclnnInplaceAdd, const aclTensor* selfRef, const aclTensor* other, const aclScalar* alpha);
ACLNN_OPERATOR(aclnnAdds, const aclTensor* self, const aclScalar* other, const aclScalar* alpha, aclTensor* out);
ACLNN_OPERATOR(aclnnMul, const aclTensor* self, const aclTensor* other, aclTensor* out);
ACLNN_OPERATOR(aclnnMuls, const aclTensor* self, const aclScalar* other, aclTensor* out);
ACLNN_OPERATOR(aclnnCos, const aclTensor* self, aclTensor* out);
ACLNN_OPERATOR(aclnnSin, const aclTensor* self, aclTensor* out);
ACLNN_OPERATOR(aclnnSigmoid, const aclTensor* self, aclTensor* out);
ACLNN_OPERATOR(aclnnTanh, const aclTensor* self, aclTensor* out);
ACLNN_OPERATOR(aclnnExp, const aclTensor* self, aclTensor* out);
ACLNN_OPERATOR(aclnnSoftplus, const aclTensor* self, const aclScalar* beta, const aclScalar* threshold, aclTensor* out);
ACLNN_OPERATOR(aclnnReciprocal, const aclTensor* self, aclTensor* out);
ACLNN_OPERATOR(aclnnClampMin, const aclTensor* self, const aclScalar* min, aclTensor* out);
ACLNN_OPERATOR(aclnnInplaceCopy, aclTensor* selfRef, const aclTensor* src);
ACLNN_OPERATOR(aclnnCast, const aclTensor* self, const aclDataType dtype, aclTensor* out);
ACLNN_OPERATOR(aclnnInplaceZero, aclTensor* selfRef);
ACLNN_OPERATOR(aclnnInplaceFillScalar, aclTensor* selfRef, const aclScalar* value);

// Along one dimension.
ACLNN_OPERATOR(aclnnArgMax, const aclTensor* self, int64_t dim, bool keepdim, aclTensor* out);
ACLNN_OPERATOR(aclnnTopk, const aclTensor* self, int64_t k, int64_t dim, bool largest, bool sorted,
               aclTensor* valuesOut, aclTensor* indicesOut);
ACLNN_OPERATOR(aclnnSort, const aclTensor* self, bool stable, int64_t dim, bool descending, aclTensor* valuesOut,
               aclTensor* indicesOut);
ACLNN_OPERATOR(aclnnSoftmax, const aclTensor* self, int64_t dim, aclTensor* out);
ACLNN_OPERATOR(aclnnCumsum, const aclTensor* self, int64_t dim, aclDataType dtype, aclTensor* out);
ACLNN_OPERATOR(aclnnReduceSum, const aclTensor* self, const aclIntArray* dims, bool keepDims, aclDataType dtype,
               aclTensor* out);

// Shapes.
ACLNN_OPERATOR(aclnnPermute, const aclTensor* self, const aclIntArray* dims, aclTensor* out);
ACLNN_OPERATOR(aclnnCat, const aclTensorList* tensors, int64_t dim, aclTensor* out);
ACLNN_OPERATOR(aclnnSlice, const aclTensor* self, int64_t dim, int64_t start, int64_t end, int64_t step,
               aclTensor* out);

// Int8.
ACLNN_OPERATOR(aclnnAscendQuant, const aclTensor* x, const aclTensor* scale, const aclTensor* offset, bool sqrtMode,
               const char* roundMode, int32_t dstType, const aclTensor* y);
ACLNN_OPERATOR(aclnnAscendQuantV3, const aclTensor* x, const aclTensor* scale, const aclTensor* offset, bool sqrtMode,
               const char* roundMode, int32_t dstType, int32_t axis, const aclTensor* y);
ACLNN_OPERATOR(aclnnDynamicQuant, const aclTensor* x, const aclTensor* smoothScalesOptional, const aclTensor* yOut,
               const aclTensor* scaleOut);
ACLNN_OPERATOR(aclnnQuantMatmulV3, const aclTensor* x1, const aclTensor* x2, const aclTensor* scale,
               const aclTensor* offset, const aclTensor* bias, bool transposeX1, bool transposeX2,
               const aclTensor* out);
ACLNN_OPERATOR(aclnnQuantMatmulV4, const aclTensor* x1, const aclTensor* x2, const aclTensor* scale,
               const aclTensor* offset, const aclTensor* pertokenScaleOptional, const aclTensor* bias, bool transposeX1,
               bool transposeX2, const aclTensor* out);
ACLNN_OPERATOR(aclnnQuantMatmulV5, const aclTensor* x1, const aclTensor* x2, const aclTensor* x1Scale,
               const aclTensor* x2Scale, const aclTensor* yScale, const aclTensor* x1Offset, const aclTensor* x2Offset,
               const aclTensor* yOffset, const aclTensor* bias, bool transposeX1, bool transposeX2, int64_t groupSize,
               aclTensor* out);
ACLNN_OPERATOR(aclnnQuantMatmulWeightNz, const aclTensor* x1, const aclTensor* x2, const aclTensor* x1Scale,
               const aclTensor* x2Scale, const aclTensor* yScale, const aclTensor* x1Offset, const aclTensor* x2Offset,
               const aclTensor* yOffset, const aclTensor* bias, bool transposeX1, bool transposeX2, int64_t groupSize,
               aclTensor* out);
ACLNN_OPERATOR(aclnnTransQuantParamV2, const aclTensor* scale, const aclTensor* offset, const aclTensor* out);
ACLNN_OPERATOR(aclnnAddRmsNormQuant, const aclTensor* x1, const aclTensor* x2, const aclTensor* gamma,
               const aclTensor* scales1, const aclTensor* scales2Optional, const aclTensor* zeroPoints1Optional,
               const aclTensor* zeroPoints2Optional, int64_t axis, double epsilon, bool divMode, aclTensor* y1Out,
               aclTensor* y2Out, aclTensor* xOut);
ACLNN_OPERATOR(aclnnAddRmsNormDynamicQuant, const aclTensor* x1, const aclTensor* x2, const aclTensor* gamma,
               const aclTensor* smoothScale1Optional, const aclTensor* smoothScale2Optional, double epsilon,
               aclTensor* y1Out, aclTensor* y2Out, aclTensor* xOut, aclTensor* scale1Out, aclTensor* scale2Out);
ACLNN_OPERATOR(aclnnDequantSwigluQuant, const aclTensor* x, const aclTensor* weightScaleOptional,
               const aclTensor* activationScaleOptional, const aclTensor* biasOptional,
               const aclTensor* quantScaleOptional, const aclTensor* quantOffsetOptional,
               const aclTensor* groupIndexOptional, bool activateLeft, char* quantModeOptional, const aclTensor* yOut,
               const aclTensor* scaleOut);

// Experts.
ACLNN_OPERATOR(aclnnMoeGatingTopKSoftmaxV2, const aclTensor* x, const aclTensor* finishedOptional, int64_t k,
               int64_t renorm, bool outputSoftmaxResultFlag, const aclTensor* yOut, const aclTensor* expertIdxOut,
               const aclTensor* softmaxResultOutOptional);
ACLNN_OPERATOR(aclnnMoeGatingTopK, const aclTensor* x, const aclTensor* biasOptional, int64_t k, int64_t kGroup,
               int64_t groupCount, int64_t groupSelectMode, int64_t renorm, int64_t normType, bool outFlag,
               double routedScalingFactor, double eps, const aclTensor* yOut, const aclTensor* expertIdxOut,
               const aclTensor* normOut);
ACLNN_OPERATOR(aclnnMoeInitRoutingV2, const aclTensor* x, const aclTensor* expertIdx, int64_t activeNum,
               int64_t expertCapacity, int64_t expertNum, int64_t dropPadMode, int64_t expertTokensCountOrCumsumFlag,
               bool expertTokensBeforeCapacityFlag, const aclTensor* expandedXOut, const aclTensor* expandedRowIdxOut,
               const aclTensor* expertTokensCountOrCumsumOut, const aclTensor* expertTokensBeforeCapacityOut);
ACLNN_OPERATOR(aclnnMoeInitRoutingV3, const aclTensor* x, const aclTensor* expertIdx, const aclTensor* scaleOptional,
               const aclTensor* offsetOptional, int64_t activeNum, int64_t expertCapacity, int64_t expertNum,
               int64_t dropPadMode, int64_t expertTokensNumType, bool expertTokensNumFlag, int64_t quantMode,
               const aclIntArray* activeExpertRangeOptional, int64_t rowIdxType, const aclTensor* expandedXOut,
               const aclTensor* expandedRowIdxOut, const aclTensor* expertTokensCountOrCumsumOut,
               const aclTensor* expandedScaleOut);
ACLNN_OPERATOR(aclnnGroupedMatmulV4, const aclTensorList* x, const aclTensorList* weight,
               const aclTensorList* biasOptional, const aclTensorList* scaleOptional,
               const aclTensorList* offsetOptional, const aclTensorList* antiquantScaleOptional,
               const aclTensorList* antiquantOffsetOptional, const aclTensorList* perTokenScaleOptional,
               const aclTensor* groupListOptional, const aclTensorList* activationInputOptional,
               const aclTensorList* activationQuantScaleOptional, const aclTensorList* activationQuantOffsetOptional,
               int64_t splitItem, int64_t groupType, int64_t groupListType, int64_t actType, aclTensorList* out,
               aclTensorList* activationFeatureOutOptional, aclTensorList* dynQuantScaleOutOptional);
ACLNN_OPERATOR(aclnnGroupedMatmulV5, const aclTensorList* x, const aclTensorList* weight,
               const aclTensorList* biasOptional, const aclTensorList* scaleOptional,
               const aclTensorList* offsetOptional, const aclTensorList* antiquantScaleOptional,
               const aclTensorList* antiquantOffsetOptional, const aclTensorList* perTokenScaleOptional,
               const aclTensor* groupListOptional, const aclTensorList* activationInputOptional,
               const aclTensorList* activationQuantScaleOptional, const aclTensorList* activationQuantOffsetOptional,
               int64_t splitItem, int64_t groupType, int64_t groupListType, int64_t actType,
               aclIntArray* tuningConfigOptional, aclTensorList* out, aclTensorList* activationFeatureOutOptional,
               aclTensorList* dynQuantScaleOutOptional);
ACLNN_OPERATOR(aclnnGroupedMatmulSwigluQuant, const aclTensor* x, const aclTensor* weight, const aclTensor* bias,
               const aclTensor* offset, const aclTensor* weightScale, const aclTensor* xScale,
               const aclTensor* groupList, aclTensor* output, aclTensor* outputScale, aclTensor* outputOffset);
ACLNN_OPERATOR(aclnnGroupedMatmulSwigluQuantWeightNZ, const aclTensor* x, const aclTensor* weight,
               const aclTensor* bias, const aclTensor* offset, const aclTensor* weightScale, const aclTensor* xScale,
               const aclTensor* groupList, aclTensor* output, aclTensor* outputScale, aclTensor* outputOffset);
ACLNN_OPERATOR(aclnnMoeFinalizeRoutingV2, const aclTensor* expandedX, const aclTensor* expandedRowIdx,
               const aclTensor* x1Optional, const aclTensor* x2Optional, const aclTensor* biasOptional,
               const aclTensor* scalesOptional, const aclTensor* expertIdxOptional, int64_t dropPadMode,
               const aclTensor* out);
ACLNN_OPERATOR(aclnnMoeDistributeDispatchV2, const aclTensor* x, const aclTensor* expertIds,
               const aclTensor* scalesOptional, const aclTensor* xActiveMaskOptional,
               const aclTensor* expertScalesOptional, const char* groupEp, int64_t epWorldSize, int64_t epRankId,
               int64_t moeExpertNum, const char* groupTp, int64_t tpWorldSize, int64_t tpRankId,
               int64_t expertShardType, int64_t sharedExpertNum, int64_t sharedExpertRankNum, int64_t quantMode,
               int64_t globalBS, int64_t expertTokenNumsType, const char* commAlg, aclTensor* expandXOut,
               aclTensor* dynamicScalesOut, aclTensor* assistInfoForCombineOut, aclTensor* expertTokenNumsOut,
               aclTensor* epRecvCountsOut, aclTensor* tpRecvCountsOut, aclTensor* expandScalesOut);
ACLNN_OPERATOR(aclnnMoeDistributeCombineV2, const aclTensor* expandX, const aclTensor* expertIds,
               const aclTensor* assistInfoForCombine, const aclTensor* epSendCounts, const aclTensor* expertScales,
               const aclTensor* tpSendCountsOptional, const aclTensor* xActiveMaskOptional,
               const aclTensor* activationScaleOptional, const aclTensor* weightScaleOptional,
               const aclTensor* groupListOptional, const aclTensor* expandScalesOptional,
               const aclTensor* sharedExpertXOptional, const char* groupEp, int64_t epWorldSize, int64_t epRankId,
               int64_t moeExpertNum, const char* groupTp, int64_t tpWorldSize, int64_t tpRankId,
               int64_t expertShardType, int64_t sharedExpertNum, int64_t sharedExpertRankNum, int64_t globalBS,
               int64_t outDtype, int64_t commQuantMode, int64_t groupListType, const char* commAlg, aclTensor* xOut);

}  // extern "C"
#pragma GCC visibility pop

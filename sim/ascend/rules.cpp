#include "ascend/rules.h"

#include <array>
#include <atomic>

namespace ascend_sim {
namespace {

constexpr unsigned kV81 = 1, kV85 = 2, kV91 = 4, kAll = kV81 | kV85 | kV91;
constexpr auto kRules = static_cast<size_t>(Rule::Count);

// Sources: OPB is hicann/opbase @ aa3cd74b (2026-07-22), NN hicann/ops-nn @ e5c3fa93 (2026-08-22), OT-2511
// hicann/ops-transformer @ c29bc106 (2025-11-15), MATH hicann/ops-math @ c4193324 and RT hicann/runtime @ 681ef761
// (2026-08-22), OT-2608 libochao-huawei/ops-transformer @ 57781440 (2026-08-21), 8.1
// the headers and kernels of CANN 8.1.RC1 in leideng/CANN-8.1.RC1 @ 551ed27c, HCCL hicann/hccl @ 09300b70 (2026-08-22).
constexpr std::array<RuleText, kRules> kTable = {{
    {Rule::SymbolOf85, "symbol-of-8.5", "Operators that 8.1.RC1 has no header for are not there.",
     "8.1: aclnnop headers; OT-2511: the operators' op_api folders", kV81, 561003,
     "sim_ops.Rules.YoungOperatorsAreAbsent"},
    {Rule::SymbolOf91, "symbol-of-9.1", "Operators that the sources of November 2025 lack are not there.",
     "OT-2511: attention/ has no recurrent_gated_delta_rule", kV81 | kV85, 561003, "sim_ops.Rules.TheDeltaRuleIsYoung"},
    {Rule::TensorsOutliveExecutor, "tensors-outlive-executor",
     "A repeatable executor runs only while the tensors of its phase 1 live.",
     "OPB op_executor.cpp:165,215-217, common_types.cpp:385-394", kAll, 161002,
     "sim_ops.Executors.ARepeatedOneNeedsItsTensors"},
    {Rule::AttentionWorkspace, "attention-workspace",
     "Attention needs the workspace of its own lengths, which shorter lengths may raise.",
     "OT-2608 fused_infer_attention_score_tiling.cpp:1440-1495,1657-1684, fia_tiling_nonquant.cpp:597-645", kAll,
     161002, "sim_ops.Workspace.ShorterLengthsMayNeedMore"},
    {Rule::AttentionMaxJoined, "attention-max-joined",
     "GetMaxWorkspaceSize takes joined tokens (TND, NTD) only with heads of 512.",
     "OT-2511 prompt_flash_attention_tiling.cpp:3688-3691, aclnn_fused_infer_attention_score_v3.cpp", kV85, 561002,
     "sim_ops.Workspace.TheMaximumOfJoinedTokens"},
    {Rule::AttentionJoinedPages, "attention-joined-pages", "Joined tokens (TND) and a blockTable do not go together.",
     "8.1 prompt_flash_attention_var_len_score_sab.h", kV81, 561002, "sim_ops.Rules.JoinedTokensHadNoPages"},
    {Rule::AttentionJoinedBf16, "attention-joined-bf16", "Joined tokens (TND) need bf16, unless heads are of 512.",
     "8.1 prompt_flash_attention.cpp:397-400; OT-2511 prompt_flash_attention_tiling.cpp:3814", kV81 | kV85, 561002,
     "sim_ops.Rules.JoinedTokensWereBf16"},
    {Rule::AttentionJoinedWidth, "attention-joined-width",
     "Joined tokens (TND) need heads of 64, 128 or 192, or 192 beside values of 128.",
     "OT-2511 prompt_flash_attention_tiling.cpp:3796-3805", kV85, 561002, "sim_ops.Rules.JoinedTokensHadThreeWidths"},
    {Rule::AttentionJoinedTokens, "attention-joined-tokens", "Joined tokens (TND) are at most 1048576.",
     "OT-2511 prompt_flash_attention_tiling.cpp:150,3729-3736; OT-2608 ..._tiling_constants.h:29", kV85 | kV91, 561002,
     "sim_ops.Rules.JoinedTokensEndAtAMillion"},
    {Rule::AttentionRatio, "attention-ratio", "At most 64 query heads share a key head, unless heads are of 512.",
     "OT-2511 prompt_flash_attention_tiling.cpp:1844,6131, incre_flash_attention_tiling_check.cpp:328", kV85, 561002,
     "sim_ops.Rules.SixtyFourHeadsShareOne"},
    {Rule::AttentionCausalLength, "attention-causal-length",
     "In sparseMode 3 no request has more query tokens than keys.",
     "OT-2511 aclnnFusedInferAttentionScoreV3.md:974; OT-2608 ..._tiling_check_feature.cpp:369", kV85 | kV91, 561002,
     "sim_ops.Rules.CausalNeedsAsManyKeys"},
    {Rule::AttentionBand, "attention-band",
     "The band of sparseMode 4 over joined tokens (TND) is not empty: preTokens + nextTokens >= 0.",
     "OT-2511 prompt_flash_attention_tiling.cpp:3876; OT-2608 fused_infer_attention_score_tiling.cpp:1015", kV85 | kV91,
     561002, "sim_ops.Rules.BandsOfJoinedTokens"},
    {Rule::AttentionBandWidth, "attention-band-width",
     "SparseMode 4 over joined tokens (TND) needs values of 64 or 128.",
     "OT-2511 prompt_flash_attention_tiling.cpp:2213,4919-4921", kV85, 561002, "sim_ops.Rules.BandsOfJoinedTokens"},
    {Rule::AttentionSinkType, "attention-sink-type", "Sinks have the type of the query.",
     "OT-2511 prompt_flash_attention_s1s2_bns1_mla_baseapi.h:376; OT-2608 ..._attention_score_tiling.cpp:1157",
     kV85 | kV91, 561002, "sim_ops.Rules.SinksOfHeads"},
    {Rule::AttentionSinkJoined, "attention-sink-joined", "Sinks go with joined tokens (TND, NTD_TND) alone.",
     "OT-2511 fused_infer_attention_score_tiling.cpp:1226-1230", kV85, 561002, "sim_ops.Rules.SinksOfHeads"},
    {Rule::AttentionSinkWidth, "attention-sink-width", "Sinks need heads of 64 or 128.",
     "OT-2511 prompt_flash_attention_tiling.cpp:3668-3671, fused_infer_attention_score_tiling.cpp:1226-1230", kV85,
     561002, "sim_ops.Rules.SinksOfHeads"},
    {Rule::VarlenHeads, "varlen-heads", "FlashAttentionVarLenScore takes heads of at most 512 numbers.",
     "MiracleDrawer/cann_ops_adv @ 5f95f56a aclnn_flash_attention_score.cpp:39,347-350", kV81 | kV85, 161002,
     "sim_ops.Rules.HeadsOfSequences"},
    {Rule::VarlenSequences, "varlen-sequences", "FlashAttentionVarLenScore takes at most 2048 sequences.",
     "hicann/ops-transformer @ 36c13d05 aclnnFlashAttentionVarLenScore.md: actualSeqQLenOptional", kAll, 561002,
     "sim_ops.Rules.NumbersOfSequences"},
    {Rule::LatentHeads, "latent-heads", "Absorbed heads (512) of joined tokens are 32, 64 or 128.",
     "OT-2511 aclnnFusedInferAttentionScoreV3.md:732", kV85, 561002, "sim_ops.Rules.AbsorbedHeadsOfJoinedTokens"},
    {Rule::LatentPages, "latent-pages", "Absorbed heads (512) need pages of 16 or 128, fractal ones of 128.",
     "OT-2511 aclnnFusedInferAttentionScoreV3.md:761", kV85, 561002, "sim_ops.Rules.PagesOfAbsorbedHeads"},
    {Rule::LatentRows, "latent-rows", "Absorbed heads (512) take 1 to 16 query tokens of a request.",
     "OT-2511 aclnnFusedInferAttentionScoreV3.md:731,757; OT-2608 ditto :782,:826", kV85 | kV91, 561002,
     "sim_ops.Rules.RowsOfAbsorbedHeads"},
    {Rule::LatentRowSizes, "latent-row-sizes",
     "KvRmsNormRopeCache takes latents of 512 and rotated parts of 64 on these chips.",
     "OT-2608 kv_rms_norm_rope_cache_ds_tiling.cpp:21-23,198-226", kV91, 561002, "sim_ops.Rules.SizesOfLatentRows"},
    {Rule::DeltaSizes, "delta-sizes",
     "RecurrentGatedDeltaRule takes up to 256 heads of up to 512 numbers, those of values a multiple of those of keys.",
     "OT-2608 recurrent_gated_delta_rule_tiling.cpp:294-318", kV91, 561002, "sim_ops.Rules.SizesOfTheDeltaRule"},
    {Rule::DeltaStates, "delta-states", "RecurrentGatedDeltaRule has no more rows than there are states.",
     "OT-2608 recurrent_gated_delta_rule_tiling.cpp:319-324", kV91, 561002, "sim_ops.Rules.StatesOfTheDeltaRule"},
    {Rule::DeltaRows, "delta-rows", "RecurrentGatedDeltaRule takes 1 to 8 rows of a sequence.",
     "OT-2608 aclnnRecurrentGatedDeltaRule.md:322,326, recurrent_gated_delta_rule_arch22.h:28,107-112", kV91, 507015,
     "sim_ops.Rules.RowsOfTheDeltaRule"},
    {Rule::GroupedScale, "grouped-scale",
     "Grouped INT8 products pair BF16 scales with BF16 and FLOAT scales with FP16.",
     "OT-2511 aclnn_grouped_matmul.cpp:642-672; OT-2608 ditto :940-973", kV85 | kV91, 161002,
     "sim_ops.Rules.GroupedScalesFitTheResult"},
    {Rule::GroupedFractalAlign, "grouped-fractal-align",
     "Fractal stacks have K % 16 = 0 and N % 32 = 0 (16-bit: N % 16), transposed INT8 ones the other way round.",
     "OT-2608 aclnn_grouped_matmul.cpp:2408-2442", kV91, 161002, "sim_ops.Rules.FractalStacksAreWhole"},
    {Rule::GroupedRows, "grouped-rows", "Rows of x and of the weights of grouped products have at most 65535 elements.",
     "OT-2511 aclnn_grouped_matmul.cpp:1271-1282; OT-2608 ditto :2126-2147", kV85 | kV91, 161002,
     "sim_ops.Rules.RowsOfGroupedProducts"},
    {Rule::GatedProductView, "gated-product-view",
     "GroupedMatmulSwigluQuant sees a fractal weight as [E, N/32, K/16, 16, 32]; ...WeightNZ takes [E, K, N].",
     "OT-2511 aclnn_grouped_matmul_swiglu_quant.cpp:114,179; OT-2608 ditto :127-132,195", kV85 | kV91, 161002,
     "sim_ops.Rules.TheViewOfTheGatedProduct"},
    {Rule::GateRenorm, "gate-renorm", "MoeGatingTopK takes no renorm but 0.", "OT-2511 moe_gating_top_k_tiling.cpp:200",
     kV85, 561002, "sim_ops.Rules.GatesWereNotRenormalised"},
    {Rule::DispatchSizes, "dispatch-sizes",
     "Rows for experts: 32 n up to 10240 numbers, 256 tokens a rank (A2), 1024 to 8192 and 512 (A3); 16 choices.",
     "OT-2608 ..._dispatch_v2_tiling_arch22.cpp:475-498, ..._dispatch_v2_tiling.cpp:981,1067,1097", kV91, 561002,
     "sim_ops.Rules.RowsForExpertsHaveLimits"},
    {Rule::DispatchExperts, "dispatch-experts", "Experts that rows are sent to are in equal shares, at most 1024.",
     "OT-2608 moe_distribute_dispatch_v2_tiling_arch22.cpp:290, aclnnMoeDistributeDispatchV2.md:264", kV91, 561002,
     "sim_ops.Rules.RowsForExpertsHaveLimits"},
    {Rule::DispatchQuant, "dispatch-quant",
     "Rows go to experts as they are (quantMode 0) or as INT8 with one FLOAT scale each in one dimension (2).",
     "OT-2511 ..._dispatch_v2_tiling.cpp:231,326,519,1024; OT-2608 ditto :136-148, ..._arch22.cpp:311-318,688-714",
     kV85 | kV91, 561002, "sim_ops.Rules.RowsForExpertsMayBeInt8"},
    {Rule::DispatchRoom, "dispatch-room", "There is room for as many rows as all ranks could send to one.",
     "OT-2608 aclnnMoeDistributeDispatchV2.md:629", kV91, 561002, "sim_ops.Rules.RowsForExpertsHaveLimits"},
    {Rule::DispatchBuffer, "dispatch-buffer", "On A3 the rows of all ranks fit into HCCL_BUFFSIZE.",
     "OT-2608 moe_distribute_check_win_size.h:64-110,160", kV91, 561002, "sim_ops.Rules.RowsForExpertsHaveLimits"},
    {Rule::DispatchAlone, "dispatch-alone", "A communicator by which rows are sent to experts runs nothing else.",
     "OT-2608 aclnnMoeDistributeDispatchV2.md:716", kV91, 561002,
     "sim.RtHcclRanks.CommunicatorsForExpertsRunNothingElse"},
    {Rule::SwigluBuffer, "swiglu-buffer",
     "DequantSwigluQuant: 10 rows of x, the scales and the bias, and 1/40 of the row scales stay below 192 KB.",
     "NN aclnnDequantSwigluQuant.md:361", kV91, 561002, "sim_ops.Rules.RowsOfSwigluFitTheBuffer"},
    {Rule::CacheValueNull, "cache-value-null",
     "ScatterPaKvCache without values needs tensors without dimensions, in view and storage, not null.",
     "OT-2608 aclnnScatterPaKvCache.md:367, scatter_pa_kv_cache_tiling.cpp:532; OT-2512 ditto :140, :367", kV85 | kV91,
     161001, "sim_ops.Rules.NullValuesOfTheCache"},
    {Rule::CacheNotRepeated, "cache-not-repeated",
     "ScatterPaKvCache's executor cannot be repeated: it copies the cache onto itself.",
     "OT-2608 aclnn_scatter_pa_kv_cache.cpp:483-488; MATH contiguous.cpp:684; OPB op_executor.cpp:154-157,275-283",
     kV91, 161002, "sim_ops.Rules.CacheWritersAreNotRepeated"},
    {Rule::CacheSlotTwice, "cache-slot-twice", "ScatterPaKvCache writes no slot twice.",
     "OT-2608 aclnnScatterPaKvCache.md:437", kV85 | kV91, 507015, "sim_ops.Rules.NoSlotTwice"},
    {Rule::CacheStrides, "cache-strides",
     "In the mode Nct of ScatterPaKvCache strides and offsets have two numbers, of keys and of values.",
     "OT-2608 scatter_pa_kv_cache_tiling.cpp:576-594", kV85 | kV91, 561002, "sim_ops.Rules.StridesOfTheCache"},
    {Rule::RopeStrides, "rope-strides",
     "RopeWithSinCosCache walks rows by their first stride: they have no gaps and lie at multiples of 32 bytes.",
     "OT-2511 rope_with_sin_cos_cache_f_bf16.h:160-164; OT-2608 ditto :286-290,:387-391", kV81 | kV85 | kV91, 561002,
     "sim_ops.Rules.StridesOfRotatedRows"},
    {Rule::PageableInCapture, "pageable-in-capture", "A capture takes no asynchronous copy of pageable host memory.",
     "RT api_error.cc:2256-2259", kAll, 107000, "sim.RtRules.NoPageableCopyInACapture"},
    {Rule::CmoPrefetchOnly, "cmo-prefetch-only", "aclrtCmoAsync takes ACL_RT_CMO_TYPE_PREFETCH alone.",
     "hicann/runtime @ 06531b19 docs/api_docs/aclrtCmoAsync.md: cmoType", kAll, 207000,
     "sim.RtRules.OnlyPrefetchesOfTheOwnMemory"},
    {Rule::CmoOwnMemory, "cmo-own-memory", "aclrtCmoAsync takes memory of the stream's own device.",
     "hicann/runtime @ 06531b19 docs/api_docs/aclrtCmoAsync.md: src", kAll, 107000,
     "sim.RtRules.OnlyPrefetchesOfTheOwnMemory"},
    {Rule::GroupKernelsOnly, "group-kernels-only", "A task group takes kernels only, when it is recorded and updated.",
     "RT stream.cc:4746-4758,5189-5196", kAll, 507009, "sim.RtRules.TaskGroupsTakeKernels"},
    {Rule::GroupAiCpu, "group-ai-cpu", "A task group takes no kernel of the AI CPU, as those of rare data types are.",
     "RT stream.cc:5189-5196; MATH cast.cpp:61-108, topk.cpp:55, sort.cpp:28-52, cumsum.cpp:34", kV91, 507009,
     "sim.RtRules.TaskGroupsTakeNoAiCpu"},
    {Rule::UpdateSameClass, "update-same-class", "A task update launches kernels of the class of the recorded ones.",
     "RT aix_stars.cc:164-190", kAll, 507000, "sim.RtRules.UpdatesKeepTheClass"},
    {Rule::UpdateAllTasks, "update-all-tasks", "A task update launches as many kernels as its group has, in order.",
     "RT stream.cc:4714-4719, context_aclgraph.cc:890-897", kAll, 507000, "sim.RtRules.UpdatesLaunchAllTasks"},
    {Rule::UpdateMixedOnly, "update-mixed-only",
     "On old firmware (fault old_firmware) only kernels of mixed type, as attention, are updated.",
     "RT aix_stars.cc:191-199, errcode_manage.cc:101-103", kAll, 207019, "sim.RtRules.OldFirmwareUpdatesMixedKernels"},
    {Rule::OneOperatorLibrary, "one-operator-library",
     "libopapi.so and libopapi_math/nn/transformer.so exclude each other.", "MATH docs/zh/op_api_list.md:12",
     kV85 | kV91, 100000, "sim.RtRules.OneSetOfOperatorLibraries"},
    {Rule::CollectiveSame, "collective-same", "All ranks run the same collective, with the same count and type.",
     "HCCL docs/zh/api_ref/comm_op_interface/HcclAllGather.md, HcclAllReduce.md: constraints", kAll, 507015,
     "sim.RtHcclRanks.WhatDiffersIsTold"},
}};

std::array<std::atomic<uint64_t>, kRules>& counters() {
  static std::array<std::atomic<uint64_t>, kRules> all{};
  return all;
}

std::string versions_text(unsigned versions) {
  std::string text;
  for (const Cann version : {Cann::V8_1, Cann::V8_5, Cann::V9_1})
    if ((versions >> static_cast<int>(version) & 1) != 0)
      text += (text.empty() ? "" : ", ") + std::string(name_of(version));
  return text;
}

}  // namespace

const RuleText& text_of(Rule rule) { return kTable[static_cast<size_t>(rule)]; }

const char* name_of(Cann version) {
  constexpr const char* kNames[] = {"8.1", "8.5", "9.1"};
  return kNames[static_cast<size_t>(version)];
}

uint64_t times_refused(Rule rule) { return counters()[static_cast<size_t>(rule)]; }

std::string refusal(Rule rule, const std::string& found) {
  ++counters()[static_cast<size_t>(rule)];
  const RuleText& text = text_of(rule);
  return "rule " + std::string(text.id) + ": " + text.statement + (found.empty() ? "" : " Here: " + found);
}

std::string rules_page() {
  std::string page;
  for (const RuleText& rule : kTable) {
    page += "* **" + std::string(rule.id) + "** (" + versions_text(rule.versions) + "; " + std::to_string(rule.code) +
            ")\n  " + rule.statement + "\n  Source: " + rule.source + ".\n  Test: `" + rule.test + "`.\n";
  }
  return page;
}

}  // namespace ascend_sim

// Architectures that people have and that are not here, for the error that refuses them: the family that comes nearest,
// and what it lacks. Plain data; any thread.
#pragma once

#include <span>

#include "checkpoint/family.h"

namespace reprise::models {

namespace missing {

inline constexpr std::string_view kLlama = "LlamaForCausalLM", kStarcoder = "Starcoder2ForCausalLM",
                                  kHybrid = "GraniteMoeHybridForCausalLM", kPhi = "Phi3ForCausalLM",
                                  kGemma = "Gemma3ForCausalLM", kDeepSeek = "DeepseekV3ForCausalLM",
                                  kGlm = "Glm4ForCausalLM", kBert = "BertModel",
                                  kVision = "Qwen3VLForConditionalGeneration";
inline constexpr std::string_view
    kIndexer = "the indexer of sparse attention",
    kNoPostNorms = "layers without norms behind their branches", kMamba = "layers of the first Mamba",
    kSideBySide = "attention and MLP side by side, an MLP without a gate",
    kGemma3n = "several streams beside each other, embeddings by layer, caches that layers share",
    kGemma4 = "embeddings by layer, caches that layers share", kLightning = "layers of lightning attention",
    kFusedRows = "query, key and value rows in one tensor", kTower = "its vision tower";
inline constexpr checkpoint::MissingFamily kMissing[] = {
    {"MllamaForConditionalGeneration", "mllama", kLlama, "layers that attend to pictures"},
    {"BitNetForCausalLM", "bitnet", kLlama, "squared ReLU, norms within the branches", "bitnet"},
    {"InternLM2ForCausalLM", "internlm2", kLlama, kFusedRows, "internlm2"},
    {"BaichuanForCausalLM", "baichuan", kLlama, kFusedRows, "baichuan"},
    {"ExaoneForCausalLM", "exaone", kLlama, "its names of tensors and fields", "exaone"},
    {"DeciLMForCausalLM", "nemotron-nas", kLlama, "layers of different sizes", "deci"},
    {"NemotronForCausalLM", "nemotron", kLlama, "squared ReLU, a centred layer norm", "nemotron"},
    {"MambaForCausalLM", "mamba", kLlama, "state-space layers", "mamba"},
    {"KimiLinearForCausalLM", "kimi_linear", kDeepSeek, "Kimi delta attention layers", "kimi-linear"},
    {"DeepseekV32ForCausalLM", "deepseek_v32", kDeepSeek, kIndexer},
    {"GlmMoeDsaForCausalLM", "glm_moe_dsa", kDeepSeek, kIndexer, "glm-dsa"},
    {"ChatGLMModel", "chatglm", "GlmForCausalLM", "its names of tensors and fields", "chatglm"},
    {"Glm4vForConditionalGeneration", "glm4v", kGlm, "its vision tower, positions of three parts"},
    {"Glm4vMoeForConditionalGeneration", "glm4v_moe", "Glm4MoeForCausalLM",
     "its vision tower, positions of three parts"},
    {"Gemma3nForCausalLM", "gemma3n_text", kGemma, kGemma3n, "gemma3n"},
    {"Gemma3nForConditionalGeneration", "gemma3n", kGemma, kGemma3n},
    {"Gemma4ForCausalLM", "gemma4_text", kGemma, kGemma4, "gemma4"},
    {"Gemma4ForConditionalGeneration", "gemma4", kGemma, kGemma4},
    {"RecurrentGemmaForCausalLM", "recurrent_gemma", "Gemma2ForCausalLM", "gated linear recurrent layers"},
    {"OlmoForCausalLM", "olmo", "Olmo2ForCausalLM", "layer norms without weights", "olmo"},
    {"PhiForCausalLM", "phi", kPhi, kSideBySide, "phi2"},
    {"PhimoeForCausalLM", "phimoe", kPhi, "experts chosen by sparse mixing, layer norms", "phimoe"},
    {"Phi4MMForCausalLM", "phi4mm", kPhi, "towers of pictures and of sound"},
    {"Phi4MultimodalForCausalLM", "phi4_multimodal", kPhi, "towers of pictures and of sound"},
    {"ApertusForCausalLM", "apertus", "Qwen3ForCausalLM", "xIELU, an MLP without a gate", "apertus"},
    {"Lfm2ForCausalLM", "lfm2", "Qwen3ForCausalLM", "gated short convolutions", "lfm2"},
    {"Lfm2MoeForCausalLM", "lfm2_moe", "Qwen3MoeForCausalLM", "gated short convolutions", "lfm2moe"},
    {"Dots1ForCausalLM", "dots1", "Qwen3MoeForCausalLM", "experts chosen by sigmoids and a bias", "dots1"},
    {"ExaoneMoeForCausalLM", "exaone_moe", "Exaone4ForCausalLM", "experts", "exaone-moe"},
    {"DbrxForCausalLM", "dbrx", "MixtralForCausalLM", "layer norms, query, key and value rows that are clipped",
     "dbrx"},
    {"MiniMaxForCausalLM", "minimax", "MiniMaxM2ForCausalLM", kLightning},
    {"MiniMaxText01ForCausalLM", "minimax_text_01", "MiniMaxM2ForCausalLM", kLightning},
    {"MiniMaxM1ForCausalLM", "minimax_m1", "MiniMaxM2ForCausalLM", kLightning},
    {"StableLmForCausalLM", "stablelm", kStarcoder, "a gated MLP between layer norms", "stablelm"},
    {"GPT2LMHeadModel", "gpt2", kStarcoder, "learned positions", "gpt2"},
    {"OPTForCausalLM", "opt", kStarcoder, "learned positions, ReLU"},
    {"GPTNeoXForCausalLM", "gpt_neox", kStarcoder, kSideBySide, "gptneox"},
    {"GPTJForCausalLM", "gptj", kStarcoder, kSideBySide, "gptj"},
    {"FalconForCausalLM", "falcon", kStarcoder, kSideBySide, "falcon"},
    {"BloomForCausalLM", "bloom", kStarcoder, "ALiBi in place of rotated positions", "bloom"},
    {"MptForCausalLM", "mpt", kStarcoder, "ALiBi in place of rotated positions", "mpt"},
    {"JambaForCausalLM", "jamba", kHybrid, kMamba, "jamba"},
    {"FalconMambaForCausalLM", "falcon_mamba", kHybrid, kMamba},
    {"Mamba2ForCausalLM", "mamba2", kHybrid, "its names of tensors and fields", "mamba2"},
    {"BambaForCausalLM", "bamba", kHybrid, "its names of tensors, heads that turn in part"},
    {"FalconH1ForCausalLM", "falcon_h1", kHybrid, "attention and a state side by side in each layer", "falcon-h1"},
    {"Qwen2VLForConditionalGeneration", "qwen2_vl", "Qwen2_5_VLForConditionalGeneration",
     "a tower without windows, with layer norms and quick GELU"},
    {"InternVLChatModel", "internvl_chat", kVision, kTower},
    {"InternVLForConditionalGeneration", "internvl", kVision, kTower},
    {"LlavaForConditionalGeneration", "llava", kVision, kTower},
    {"ModernBertModel", "modernbert", kBert, "rotated positions, windows, gated layers", "modern-bert"},
    {"NomicBertModel", "nomic_bert", kBert, "rotated positions, gated layers", "nomic-bert"},
    {"DistilBertModel", "distilbert", kBert, "its names of tensors and fields"},
    {"BertForMaskedLM", "bert", kBert, "a head that fills in words"},
};

}  // namespace missing

inline std::span<const checkpoint::MissingFamily> missing_families() { return missing::kMissing; }

}  // namespace reprise::models

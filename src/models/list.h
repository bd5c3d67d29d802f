// The list of models: X(NAME, SPEC) is a ModelSpec that models/NAME.cpp defines in its own namespace, models::NAME.
// Errors list them in this order.
#pragma once

#include "models/model.h"

#define REPRISE_MODELS(X)           \
  X(llama, kLlama)                  \
  X(llama, kInternLm3)              \
  X(llama4, kLlama4)                \
  X(mistral, kMistral)              \
  X(mistral, kMinistral3)           \
  X(qwen2, kQwen2)                  \
  X(qwen3, kQwen3)                  \
  X(mixtral, kMixtral)              \
  X(qwen_moe, kQwen2Moe)            \
  X(qwen_moe, kQwen3Moe)            \
  X(deepseek, kDeepseekV2)          \
  X(deepseek, kDeepseekV3)          \
  X(arcee, kArcee)                  \
  X(gemma, kGemma)                  \
  X(gemma, kGemma2)                 \
  X(gemma, kGemma3)                 \
  X(phi3, kPhi3)                    \
  X(glm4, kGlm)                     \
  X(glm4, kGlm4)                    \
  X(glm4_moe, kGlm4Moe)             \
  X(olmo, kOlmo2)                   \
  X(olmo, kOlmo3)                   \
  X(olmo, kOlmoe)                   \
  X(granite, kGranite)              \
  X(granite, kGraniteMoe)           \
  X(granite_hybrid, kGraniteHybrid) \
  X(smollm3, kSmolLm3)              \
  X(cohere, kCohere)                \
  X(cohere, kCohere2)               \
  X(starcoder2, kStarcoder2)        \
  X(exaone4, kExaone4)              \
  X(ernie, kErnie)                  \
  X(ernie, kErnieMoe)               \
  X(seed_oss, kSeedOss)             \
  X(hunyuan, kHunyuan)              \
  X(hunyuan, kHunyuanMoe)           \
  X(minimax_m2, kMiniMaxM2)         \
  X(gpt_oss, kGptOss)               \
  X(qwen3_next, kQwen3Next)         \
  X(qwen3_next, kQwen35)            \
  X(qwen3_next, kQwen35Moe)         \
  X(nemotron_h, kNemotronH)         \
  X(qwen_vl, kQwen25Vl)             \
  X(qwen_vl, kQwen3Vl)              \
  X(qwen_vl, kQwen3VlMoe)           \
  X(bert, kBert)                    \
  X(bert, kBertScores)              \
  X(bert, kRoberta)                 \
  X(bert, kRobertaScores)           \
  X(bert, kXlmRoberta)              \
  X(bert, kXlmRobertaScores)        \
  X(llama, kLlamaBidirectional)

namespace reprise::models {

#define REPRISE_DECLARE(family, spec) \
  namespace family {                  \
  extern const ModelSpec spec;        \
  }
REPRISE_MODELS(REPRISE_DECLARE)
#undef REPRISE_DECLARE

}  // namespace reprise::models

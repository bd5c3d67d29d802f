// The list of models: one entry a family, which models/NAME.cpp defines. Errors list them in this order.
#pragma once

#include "models/model.h"

#define REPRISE_MODELS(X) \
  X(kLlama)               \
  X(kMistral)             \
  X(kQwen2)               \
  X(kQwen3)               \
  X(kMixtral)             \
  X(kQwen2Moe)            \
  X(kQwen3Moe)            \
  X(kDeepseekV2)          \
  X(kDeepseekV3)          \
  X(kGemma2)              \
  X(kGemma3)              \
  X(kPhi3)                \
  X(kGlm4)                \
  X(kGlm4Moe)             \
  X(kOlmo2)               \
  X(kOlmo3)               \
  X(kGranite)             \
  X(kGraniteMoe)          \
  X(kSmolLm3)             \
  X(kCohere)              \
  X(kCohere2)             \
  X(kStarcoder2)          \
  X(kExaone4)             \
  X(kErnie)               \
  X(kErnieMoe)            \
  X(kSeedOss)             \
  X(kHunyuan)             \
  X(kMiniMaxM2)           \
  X(kGptOss)              \
  X(kQwen3Next)           \
  X(kQwen35)              \
  X(kQwen35Moe)           \
  X(kQwen25Vl)            \
  X(kQwen3Vl)             \
  X(kQwen3VlMoe)          \
  X(kBert)                \
  X(kBertScores)          \
  X(kRoberta)             \
  X(kRobertaScores)

namespace reprise::models {

#define REPRISE_DECLARE(spec) extern const ModelSpec spec;
REPRISE_MODELS(REPRISE_DECLARE)
#undef REPRISE_DECLARE

}  // namespace reprise::models

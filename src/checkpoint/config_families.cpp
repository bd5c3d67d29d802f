#include "checkpoint/config_families.h"

namespace reprise::checkpoint {
namespace {

constexpr FamilyDefaults kFamilies[] = {
    {"LlamaForCausalLM", "llama", 32000, 4096, 11008, 32, 32, 0, 0, 2048, 0},
    {"MistralForCausalLM", "mistral", 32000, 4096, 14336, 32, 32, 8, 0, 131072, 4096, 1e-6, 1e4, "ministral"},
    {"Qwen2ForCausalLM", "qwen2", 151936, 4096, 22016, 32, 32, 32, 0, 32768, 4096},
    {"Qwen3ForCausalLM", "qwen3", 151936, 4096, 22016, 32, 32, 32, 128, 32768, 4096},
    {"DeepseekV2ForCausalLM", "deepseek_v2", 102400, 4096, 11008, 32, 32, 0, 64, 2048, 0},
    {"DeepseekV3ForCausalLM", "deepseek_v3", 129280, 7168, 18432, 61, 128, 0, 64, 4096, 0, 1e-6, 1e4, "kimi_k2"},
    {"MixtralForCausalLM", "mixtral", 32000, 4096, 14336, 32, 32, 8, 0, 131072, 0, 1e-5, 1e6},
    {"Qwen2MoeForCausalLM", "qwen2_moe", 151936, 2048, 5632, 24, 16, 16, 0, 32768, 4096},
    {"Qwen3MoeForCausalLM", "qwen3_moe", 151936, 2048, 6144, 24, 32, 4, 0, 32768, 4096},
};

}  // namespace

const FamilyDefaults* family_defaults(std::string_view architecture) {
  for (const FamilyDefaults& f : kFamilies)
    if (f.architecture == architecture) return &f;
  return nullptr;
}

const FamilyDefaults* family_of_model_type(std::string_view model_type) {
  for (const FamilyDefaults& f : kFamilies)
    if (!model_type.empty() && (f.model_type == model_type || f.other_model_type == model_type)) return &f;
  return nullptr;
}

}  // namespace reprise::checkpoint

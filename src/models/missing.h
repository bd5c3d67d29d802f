// Architectures that people have and that are not here, for the error that refuses them: the family that comes nearest,
// and what it lacks. Plain data; any thread.
#pragma once

#include <span>

#include "checkpoint/family.h"

namespace reprise::models {

inline std::span<const checkpoint::MissingFamily> missing_families() {
  static constexpr checkpoint::MissingFamily kMissing[] = {
      {"Llama4ForCausalLM", "llama4_text", "LlamaForCausalLM",
       "attention in chunks, a temperature of queries, experts weighted at their input"},
      {"Llama4ForConditionalGeneration", "llama4", "LlamaForCausalLM",
       "attention in chunks, a temperature of queries, experts weighted at their input"},
      {"KimiLinearForCausalLM", "kimi_linear", "DeepseekV3ForCausalLM", "Kimi delta attention layers"},
      {"NemotronForCausalLM", "nemotron", "LlamaForCausalLM", "squared ReLU, a centred layer norm"},
      {"DeepseekV32ForCausalLM", "deepseek_v32", "DeepseekV3ForCausalLM", "the indexer of sparse attention"},
      {"GlmMoeDsaForCausalLM", "glm_moe_dsa", "DeepseekV3ForCausalLM", "the indexer of sparse attention"},
      {"GlmForCausalLM", "glm", "Glm4ForCausalLM", "layers without norms behind their branches"},
      {"GemmaForCausalLM", "gemma", "Gemma2ForCausalLM", "layers without norms behind their branches"},
      {"OlmoForCausalLM", "olmo", "Olmo2ForCausalLM", "layer norms without weights"},
      {"OlmoeForCausalLM", "olmoe", "Olmo2ForCausalLM", "experts behind norms of whole query rows"},
      {"PhimoeForCausalLM", "phimoe", "Phi3ForCausalLM", "experts chosen by sparse mixing, layer norms"},
      {"StableLmForCausalLM", "stablelm", "Starcoder2ForCausalLM", "a gated MLP between layer norms"},
      {"GPT2LMHeadModel", "gpt2", "Starcoder2ForCausalLM", "learned positions"},
      {"MambaForCausalLM", "mamba", "LlamaForCausalLM", "state-space layers"},
      {"ModernBertModel", "modernbert", "BertModel", "rotated positions, windows, gated layers"},
      {"NomicBertModel", "nomic_bert", "BertModel", "rotated positions, gated layers"},
      {"DistilBertModel", "distilbert", "BertModel", "its names of tensors and fields"},
      {"BertForMaskedLM", "bert", "BertModel", "a head that fills in words"},
  };
  return kMissing;
}

}  // namespace reprise::models

// What GGUF metadata says of experts and of latent attention, in config.json's words. Pure functions.
#pragma once

#include <string>

#include "base/json.h"
#include "checkpoint/gguf.h"

namespace reprise::checkpoint {

// The architecture that a family with so many experts is: "llama" with experts is Mixtral, "deepseek2" is DeepSeek-V3
// where experts are chosen by sigmoids. Others as they are given.
struct GgufFamily {
  std::string architecture, model_type;
};
Result<GgufFamily> family_with_experts(const GgufFile& file, const std::string& arch, GgufFamily family);

// Adds the fields of experts, where the file has any, and of latent attention, where the architecture has it.
Status add_experts_from_gguf(const GgufFile& file, const std::string& arch, Json& out);
Status add_latent_from_gguf(const GgufFile& file, const std::string& arch, Json& out);

}  // namespace reprise::checkpoint

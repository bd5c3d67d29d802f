#include "models/model.h"

namespace reprise::models {

std::vector<const ModelSpec*> all_models() {
  return {&kLlama, &kMistral, &kQwen2, &kQwen3, &kMixtral, &kQwen2Moe, &kQwen3Moe, &kDeepseekV2, &kDeepseekV3};
}

std::vector<std::string_view> architectures() {
  std::vector<std::string_view> out;
  for (const ModelSpec* m : all_models()) out.push_back(m->architecture);
  return out;
}

Result<const ModelSpec*> find_model(std::string_view architecture) {
  for (const ModelSpec* m : all_models())
    if (m->architecture == architecture) return m;
  return error(Code::Unsupported, "architecture \"{}\" is not known; known: {}", architecture,
               fmt::join(architectures(), ", "));
}

}  // namespace reprise::models

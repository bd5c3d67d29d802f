#include "models/model.h"

namespace reprise::models {

std::vector<const ModelSpec*> all_models() {
  return {&kLlama, &kMistral, &kQwen2, &kQwen3, &kMixtral, &kQwen2Moe, &kQwen3Moe, &kDeepseekV2, &kDeepseekV3};
}

Result<const ModelSpec*> find_model(std::string_view architecture) {
  std::string known;
  for (const ModelSpec* m : all_models()) {
    if (m->architecture == architecture) return m;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", m->architecture);
  }
  return error(Code::Unsupported, "architecture \"{}\" is not known; known: {}", architecture, known);
}

}  // namespace reprise::models

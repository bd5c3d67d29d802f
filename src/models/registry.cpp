#include "models/list.h"
#include "models/missing.h"

namespace reprise::models {

const std::vector<const ModelSpec*>& all_models() {
#define REPRISE_LIST(family, spec) &family::spec,
  static const std::vector<const ModelSpec*> models{REPRISE_MODELS(REPRISE_LIST)};
#undef REPRISE_LIST
  return models;
}

std::vector<std::string_view> architectures() {
  std::vector<std::string_view> out;
  for (const ModelSpec* m : all_models()) out.push_back(m->family.architecture);
  return out;
}

checkpoint::Families families(bool others) {
  static const std::vector<const checkpoint::Family*> list = [] {
    std::vector<const checkpoint::Family*> out;
    for (const ModelSpec* m : all_models()) out.push_back(&m->family);
    return out;
  }();
  return {list, others, missing_families()};
}

Result<const ModelSpec*> find_model(std::string_view architecture) {
  for (const ModelSpec* m : all_models())
    if (m->family.architecture == architecture) return m;
  return error(Code::Unsupported, "architecture \"{}\" is not known; known: {}", architecture,
               fmt::join(architectures(), ", "));
}

}  // namespace reprise::models

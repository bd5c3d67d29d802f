#include "checkpoint/family.h"

namespace reprise::checkpoint {

const Family* Families::find(std::string_view architecture) const {
  for (const Family* f : list)
    if (f->architecture == architecture) return f;
  for (const Family* f : list)
    if (!architecture.empty() && (f->wrapper == architecture || f->other_architecture == architecture)) return f;
  return nullptr;
}

const Family* Families::of_model_type(std::string_view model_type) const {
  for (const Family* f : list)
    if (!model_type.empty() && (f->model_type == model_type || f->other_model_type == model_type)) return f;
  return nullptr;
}

}  // namespace reprise::checkpoint

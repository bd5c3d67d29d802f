#include "common/chosen_adapter.h"

namespace reprise::apps {

Result<ChosenAdapter> ChosenAdapter::open(const ModelFlags& flags, engine::Engine& engine) {
  ChosenAdapter out;
  if (engine.adapters().slots() == 0) return out;
  out.table_ = std::make_unique<sched::AdapterTable>(engine.adapters());
  RETURN_IF_ERROR(api::load_adapters(flags, *out.table_));
  ASSIGN_OR_RETURN(const std::string name, flags.chosen_adapter());
  if (!name.empty()) out.adapter_ = out.table_->find(name);
  return out;
}

}  // namespace reprise::apps

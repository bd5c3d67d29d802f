// ChosenAdapter: the LoRA adapter that every request of a command goes through: `--adapter`, or the one that
// `--lora-modules` names alone. Owns the table of what was loaded, so it outlives the requests. Main thread.
#pragma once

#include <memory>

#include "common/model_flags.h"
#include "sched/adapter_table.h"

namespace reprise::apps {

class ChosenAdapter {
 public:
  // Loads what `--lora-modules` names.
  static Result<ChosenAdapter> open(const ModelFlags& flags, engine::Engine& engine);

  const sched::AdapterPtr& get() const { return adapter_; }  // null: the model alone

 private:
  std::unique_ptr<sched::AdapterTable> table_;  // null: the engine has no slots
  sched::AdapterPtr adapter_;
};

}  // namespace reprise::apps

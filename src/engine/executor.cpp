#include "engine/executor.h"

namespace reprise::engine {

Result<std::span<const int32_t>> Executor::step_greedy(std::span<const StepItem>) {
  return error(Code::Unsupported, "this engine has no greedy steps");
}

}  // namespace reprise::engine

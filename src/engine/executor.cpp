#include "engine/executor.h"

namespace reprise::engine {

Result<std::span<float>> Executor::step(std::span<const StepItem> items) {
  ASSIGN_OR_RETURN(const Ticket ticket, submit(items, StepOutput::Logits));
  ASSIGN_OR_RETURN(const StepResult result, wait(ticket));
  return result.logits;
}

Result<std::span<const int32_t>> Executor::step_greedy(std::span<const StepItem> items) {
  ASSIGN_OR_RETURN(const Ticket ticket, submit(items, StepOutput::NextTokens));
  ASSIGN_OR_RETURN(const StepResult result, wait(ticket));
  return result.tokens;
}

}  // namespace reprise::engine

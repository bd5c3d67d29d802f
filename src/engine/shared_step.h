// SharedStep: one engine over a world that shares out sequences, as an executor for each part of it.
//
// Each part has a scheduler of its own, with the pages of its part. Their batches become one step: the first wait() of
// a round runs what all parts have submitted, and a part that submitted nothing is idle in it. Where drafts are
// verified by programs of their own, a round of drafts in one part and a prompt in another one is two steps. One thread
// drives all parts: it submits for every part, then waits for every part, before it submits again. The engine outlives
// it.
#pragma once

#include <memory>
#include <vector>

#include "engine/engine.h"

namespace reprise::engine {

class SharedStep {
 public:
  explicit SharedStep(Engine& engine);
  ~SharedStep();
  SharedStep(const SharedStep&) = delete;
  SharedStep& operator=(const SharedStep&) = delete;

  int parts() const { return static_cast<int>(seats_.size()); }
  Executor& part(int part);

 private:
  class Seat;

  void run();
  void run_together(const std::vector<Seat*>& seats);
  Result<StepResult> run_merged(StepOutput output, std::vector<StepItem>& items);

  Engine& engine_;
  std::vector<std::unique_ptr<Seat>> seats_;
};

}  // namespace reprise::engine

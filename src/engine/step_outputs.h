// StepOutputs: what the last step gave, by the names of its program's outputs.
//
// Engine owns one and tells it which program ran. It points at that program and at the engine's device and stream, and
// owns the copies in memory of the host: of outputs that the host does not see where they are, of a batch that ran as
// several parts, and of rows that hosts of ranks have drawn. Views are good until the next step. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/tensor_view.h"
#include "compile/compiled_model.h"
#include "device/host_copy.h"
#include "engine/rank_draws.h"
#include "engine/step_stage.h"

namespace reprise::engine {

class StepOutputs {
 public:
  // Both outlive it.
  void open(Device& device, Stream& stream);

  // A step begins: nothing of the one before is kept.
  void begin();
  // The parts of an earlier step are given up; its last program's outputs stay.
  void drop_parts() { parts_.clear(); }
  // The step runs as several parts, of which each is added once it has run.
  void expect_parts() { in_parts_ = true; }
  bool in_parts() const { return in_parts_; }
  Status add_part(StepOutput output);

  // The program that ran last; null before the first step.
  void ran(const CompiledModel* program) { program_ = program; }
  const CompiledModel* program() const { return program_; }
  // Rows that hosts of ranks drew in this step.
  DrawnRows& drawn() { return drawn_; }

  // What can be asked for; none before the first step.
  std::vector<std::string> names() const;
  // An output of the step, in memory of the host once arrived() is ok. NotFound: the step has none of that name.
  Result<TensorView> ask(std::string_view name) const;
  // The same of the last program alone, without the parts before it.
  Result<TensorView> of_program(std::string_view name) const;
  Result<TensorView> of_program(const GraphOutput& output) const;  // one of its graph
  // Waits for what was asked for.
  Status arrived() const;
  // ask() and arrived().
  Result<TensorView> get(std::string_view name) const;

 private:
  // Whether the host reads what a step gives where it lies, once the step has run.
  bool in_place() const;
  Result<TensorView> fetch(std::string_view name, TensorView view) const;

  // Rows of the parts so far.
  struct Parts {
    TensorView view;
    std::vector<uint8_t> bytes;
  };

  Device* device_ = nullptr;
  Stream* stream_ = nullptr;
  const CompiledModel* program_ = nullptr;
  std::map<std::string, Parts, std::less<>> parts_;
  bool in_parts_ = false;
  mutable std::map<std::string, HostCopy, std::less<>> copies_;
  DrawnRows drawn_;
};

}  // namespace reprise::engine

// CompiledModel: a graph bound to a device and ready to run, at any live size up to the bounds.
//
// Inputs are fixed buffers that the caller fills before a run; outputs are views into the arena, good until the next run. Nothing is allocated in a run. One thread
// at a time; the parameters and caches it was bound to must outlive it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/tensor_view.h"
#include "compile/binding.h"
#include "compile/memory_plan.h"
#include "compile/param_store.h"
#include "device/device.h"

namespace reprise {

struct CompileRequest {
  const Platform* platform = nullptr;
  const ParamStore* params = nullptr;
  // Inputs that live elsewhere, by name (the KV caches); all others get a staging buffer of their own.
  std::unordered_map<std::string, void*> external;
};

class CompiledModel {
 public:
  virtual ~CompiledModel() = default;
  virtual std::string_view mode() const = 0;  // "eager"
  virtual Status run(const LiveSizes& live, Stream& stream) = 0;
  // The whole staging buffer of an input, at its bound.
  virtual Result<TensorView> input(std::string_view name) const = 0;
  // The output at the sizes of the last run.
  virtual Result<TensorView> output(std::string_view name) const = 0;
  virtual size_t arena_bytes() const = 0;
  virtual size_t staging_bytes() const = 0;
  virtual size_t launches() const = 0;  // per step
};

// Node by node, in order, through the same kernels and team as any other mode: the answer key. Takes the graph over.
Result<std::unique_ptr<CompiledModel>> compile_eager(Graph graph, const KernelSelection& selection,
                                                     const CompileRequest& request);

}  // namespace reprise

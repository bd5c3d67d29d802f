// ExpertUse: how many rows went to each expert of each layer with experts, since the start.
//
// The engine owns it and adds after every step, on the thread that steps; any thread may read at any time. Layers and
// experts are fixed before the first step.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/step_outputs.h"

namespace reprise::engine {

class ExpertUse {
 public:
  // The layers of a program's graph that have experts, and over how many parts of the ranks whole experts are shared
  // out. Before the first step.
  void open(const Graph& graph, int64_t parts);
  // The layer's place in the model, "model.layers.3.mlp".
  void add_layer(std::string place, int64_t experts) {
    layers_.push_back({std::move(place), Counts(static_cast<size_t>(experts))});
  }

  size_t layers() const { return layers_.size(); }
  // The number of the place, "3", or all of it where it has none.
  std::string layer_name(size_t layer) const;
  const std::string& place(size_t layer) const { return layers_[layer].place; }
  int64_t experts(size_t layer) const { return static_cast<int64_t>(layers_[layer].rows.size()); }
  uint64_t rows(size_t layer, int64_t expert) const {
    return layers_[layer].rows[static_cast<size_t>(expert)].load(std::memory_order_relaxed);
  }

  void share_out(int64_t parts) { parts_ = parts; }
  int64_t parts() const { return parts_; }
  // Rows of the part that has most, over the mean of all parts; 1 before the first row.
  double imbalance(size_t layer) const;

  // One step: the first row of every expert, and one number more, as moe_route gives them.
  void add(size_t layer, std::span<const int32_t> starts);
  // The step that ran last, of a program that open() knows the layers of.
  Status add_step(const StepOutputs& outputs);

 private:
  using Counts = std::vector<std::atomic<uint64_t>>;
  struct Layer {
    std::string place;
    Counts rows;
  };
  std::vector<Layer> layers_;
  int64_t parts_ = 1;
  std::map<const CompiledModel*, std::vector<const GraphOutput*>> starts_;  // by program, in the order of layers
};

}  // namespace reprise::engine

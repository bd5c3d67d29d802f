// Staging: the fixed buffers of a model's inputs, shared by every program compiled from it.
//
// Each input has one address for good, sized for the largest bound it occurs with; the engine writes there before a
// step and replays read from there. Where the host cannot write device memory it writes a copy of its own, and upload()
// sends all of it in one piece. Declared first, then allocated once. One thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/tensor_view.h"
#include "device/device.h"
#include "graph/graph.h"

namespace reprise {

class Staging {
 public:
  // Notes the graph's inputs, except those named in `external`; the largest bound counts.
  void declare(const Graph& graph, const std::unordered_map<std::string, void*>& external);
  Status allocate(Device& device);

  // What the host writes, at its bound.
  Result<TensorView> input(std::string_view name) const;
  // Where the device reads it; CHECKs that it exists.
  void* address(const std::string& name) const;
  // Where the host writes and reads it; CHECKs likewise.
  const void* host_address(const std::string& name) const;
  // Sends what the host wrote, where that is not what the device reads; part of every run.
  Status upload(Stream& stream) const;
  size_t bytes() const { return buffer_.size(); }

 private:
  struct Entry {
    TensorView view;  // sizes at the bound
    size_t bytes = 0;
    size_t offset = 0;
  };
  std::unordered_map<std::string, Entry> entries_;
  Buffer buffer_;
  Buffer host_;  // empty where the host writes buffer_
};

// A dense view of `data` with the type's shape at these sizes.
TensorView view_of(const TensorType& type, const LiveSizes& live, void* data);

}  // namespace reprise

// Staging: the fixed buffers of a model's inputs, shared by every program compiled from it.
//
// Each input has one address on the device for good, sized for the largest bound it occurs with; replays read from
// there. Where the host cannot write device memory, or work runs behind its back, the host writes slots of its own and
// upload() sends one of them in one piece. An asynchronous device has two slots or more: the host fills one while the
// device may still read the others. Declared first, then allocated once. One thread at a time.
#pragma once

#include <span>
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
  Status allocate(Device& device, int slots_beside = 2);  // the number on an asynchronous device
  // For a program that one rank of a world runs alone: no other rank sees these inputs, and the host writes what the
  // device reads.
  Status allocate_alone(Device& device);

  int slots() const { return slots_; }
  // The slot that upload() sends from now on; forgets what was fed.
  void select(int slot);
  int selected() const { return selected_; }
  // Elements [at, at + count) of an input come from `source`, memory of the device, instead of from the slot; the copy
  // follows the upload. `source` holds until that is done.
  void feed(std::string_view name, int64_t at, const void* source, int64_t count);

  // What the host writes, at its bound.
  Result<TensorView> input(std::string_view name, int slot = 0) const;
  // Where the device reads it; CHECKs that it exists.
  void* address(const std::string& name) const;
  // Where the host writes and reads it in slot 0; CHECKs likewise.
  const void* host_address(const std::string& name) const;
  // From an address in slot 0 to the same in the selected slot, in bytes.
  size_t host_offset() const { return static_cast<size_t>(selected_) * slot_bytes_; }
  // A step uses only so many elements of this input, the first ones: upload() sends no more of it where it lies last,
  // as the largest does. Until select().
  void use(std::string_view name, int64_t count);
  // Sends what the host wrote, where that is not what the device reads; part of every run.
  Status upload(Stream& stream) const;
  // Whether ranks have a copy each of what the host writes (Device::between_ranks()). Then the front shows the selected
  // slot to the others, which take it into theirs, between two steps that all of them run.
  bool is_copied() const { return static_cast<bool>(between_); }
  void show() const;
  void take();
  size_t bytes() const { return buffer_.size(); }
  // What all ranks of this host see of what the front wrote, for those of other hosts; empty where that is nothing.
  std::span<const uint8_t> shared() const;

 private:
  size_t place();  // where each input lies; how many bytes all are
  struct Entry {
    TensorView view;  // sizes at the bound
    size_t bytes = 0;
    size_t offset = 0;
    size_t used = 0;  // bytes; all of them but for use()
  };
  struct Feed {
    void* to = nullptr;
    const void* source = nullptr;
    size_t bytes = 0;
  };
  std::unordered_map<std::string, Entry> entries_;
  Buffer buffer_;
  Buffer host_;     // all slots; empty where the host writes buffer_
  Buffer between_;  // one slot that all ranks see; empty where that is buffer_, or there is one rank
  int slots_ = 1, selected_ = 0;
  size_t slot_bytes_ = 0;
  std::vector<Feed> feeds_;
};

// A dense view of `data` with the type's shape at these sizes.
TensorView view_of(const TensorType& type, const LiveSizes& live, void* data);

}  // namespace reprise

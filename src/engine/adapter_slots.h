// AdapterSlots: the memory of LoRA adapters that rows of a step may go through.
//
// A fixed number of slots, each with room for an adapter of a fixed rank at every linear layer that takes them:
// captured graphs hold the addresses, so nothing moves and a slot is written between steps. Slot ids begin at 1; 0 is
// no adapter. What a slot holds where its adapter has no weights is a rank of 0, which leaves the layer's rows as they
// are. A rank of a world has the columns that its part of a layer gives; the front tells the others what it loads.
// Owned by the engine and changed by its thread alone; prepare() may run on any thread meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/shape.h"
#include "base/status.h"
#include "checkpoint/lora.h"
#include "device/memory.h"
#include "device/stream.h"
#include "passes/rank_cut.h"

namespace reprise::engine {

// An adapter as a slot holds it: the bytes of every layer that it has weights for.
struct PreparedAdapter {
  struct Layer {
    size_t target = 0;
    int32_t rank = 0;
    float scale = 1;
    std::vector<uint8_t> a, b;  // [rank, in], [rank, out]: this rank's columns of the latter
  };
  std::string source, base_model;
  int64_t rank = 0;  // the largest of all layers
  std::vector<Layer> layers;
};

class AdapterSlots {
 public:
  AdapterSlots() = default;
  // `inputs` are those of the graph that the pass add_lora made; `stream` is the one that steps run on, and lives
  // longer.
  static Result<AdapterSlots> create(MemoryPool& memory, Stream& stream,
                                     std::span<const std::pair<std::string, TensorType>> inputs, int64_t slots,
                                     int64_t rank);

  int64_t slots() const { return static_cast<int64_t>(used_.size()); }  // 0: the engine takes no adapters
  int64_t rank() const { return rank_; }
  int64_t loaded() const;
  size_t bytes() const { return buffer_.size(); }
  // The layers that take adapters.
  std::vector<std::string> modules() const;
  // Where the graph's inputs lie.
  std::unordered_map<std::string, void*> addresses() const;

  // Checks the adapter against the model's layers and converts its numbers.
  Result<PreparedAdapter> prepare(const checkpoint::LoraAdapter& adapter) const;
  // Tells the other ranks of what was loaded into a slot, or with none, that it is free. Their error is load()'s.
  using Tell = std::function<Status(const PreparedAdapter* adapter, int32_t slot)>;
  void tell_by(Tell tell) { tell_ = std::move(tell); }
  bool holds(int32_t slot) const { return slot >= 1 && slot <= slots() && used_[static_cast<size_t>(slot) - 1]; }
  // Writes a free slot and says which; Busy without one. No step may be in flight.
  Result<int32_t> load(const PreparedAdapter& adapter);
  // The slot is free afterwards. No sequence may name it.
  Status unload(int32_t slot);

 private:
  struct Target {
    int64_t out() const { return columns.empty() ? b.shape[2].factor : columns.front().of; }

    std::string module, b_input;
    TensorType a, b;           // [slots, rank, in], [slots, rank, out]
    std::vector<Cut> columns;  // of all that the layer gives; empty: b has them all
    size_t a_at = 0, b_at = 0, ranks_at = 0, scales_at = 0;
  };
  template <class T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(buffer_.as<uint8_t>() + offset);
  }
  Status copy_layers(const PreparedAdapter& adapter, size_t slot);
  Status clear_ranks(size_t slot);
  Result<size_t> find(const checkpoint::LoraAdapter& adapter, const checkpoint::LoraModule& module) const;

  std::vector<Target> targets_;  // by module
  std::vector<bool> used_;       // slot i + 1
  int64_t rank_ = 0;
  Tell tell_;
  Stream* stream_ = nullptr;
  Buffer buffer_;
};

}  // namespace reprise::engine

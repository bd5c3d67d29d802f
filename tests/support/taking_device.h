// TakingDevice: the strict null device, made to take host operands as accelerators do: a launch that is recorded keeps
// the values that the host had then, and a replay sees new ones only where it patches that launch. Counts both. For
// tests; plain, one thread.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "backends/null/null_device.h"

namespace reprise::testing_support {

struct Taken {
  int recorded = 0;  // launches with host operands
  size_t patches = 0;
  size_t graphs = 0;                          // alive
  std::vector<uint32_t>* launched = nullptr;  // where launches are noted as they run
  int64_t ran = 0, fail_at = -1;              // launches that ran; the number of the one that fails
};

struct TakingOptions {
  bool patches = true;
  bool free_patches = true;
  bool skips_negative_slots = true;
  size_t room = SIZE_MAX;  // for so many graphs
  // Where it is not 0, graphs take memory of the device, of which there is so much, and each of them kGraphBytes.
  size_t memory_bytes = 0;
  static constexpr size_t kGraphBytes = 1000;
};

// So much is taken of every operand; staged inputs are at least that far apart.
using HostValues = std::array<std::byte, 64>;

class TakingGraph final : public DeviceGraph {
 public:
  TakingGraph(Taken& counts, bool takes_memory) : counts_(counts), takes_memory_(takes_memory) { ++counts_.graphs; }
  ~TakingGraph() override { --counts_.graphs; }

  Thunk take(Thunk t) {
    if (!t.args.host[0]) return t;
    ++counts_.recorded;
    for (const void*& p : t.args.host) p = p ? keep(p) : p;
    return t;
  }

  Status replay(Stream& stream, std::span<const Patch> patches) override {
    counts_.patches += patches.size();
    std::vector<LaunchArgs> args(patches.size());
    std::vector<Patch> mine;
    for (size_t i = 0; i < patches.size(); ++i) {
      args[i] = *patches[i].args;
      // Values of its own: the replay before this one may not have run yet.
      for (const void*& p : args[i].host) p = p ? keep(p) : p;
      mine.push_back({patches[i].id, &args[i]});
    }
    return inner->replay(stream, mine);
  }
  GraphStats stats() const override {
    GraphStats s = inner->stats();
    if (takes_memory_) s.bytes = TakingOptions::kGraphBytes;
    return s;
  }

  std::unique_ptr<DeviceGraph> inner;

 private:
  const void* keep(const void* values) {
    values_.push_back(std::make_unique<HostValues>());
    std::memcpy(values_.back().get(), values, sizeof(HostValues));
    return values_.back().get();
  }

  Taken& counts_;
  bool takes_memory_;
  std::vector<std::unique_ptr<HostValues>> values_;
};

class TakingRecorder final : public Recorder {
 public:
  TakingRecorder(Recorder& inner, TakingGraph& graph) : inner_(inner), graph_(graph) {}
  Status launch(const Thunk& thunk) override { return inner_.launch(graph_.take(thunk)); }
  Result<PatchId> launch_patchable(const Thunk& thunk) override { return inner_.launch_patchable(graph_.take(thunk)); }
  Status record(uint8_t stream, uint32_t mark) override { return inner_.record(stream, mark); }
  Status wait(uint8_t stream, uint32_t mark) override { return inner_.wait(stream, mark); }

 private:
  Recorder& inner_;
  TakingGraph& graph_;
};

class TakingDevice final : public Device {
 public:
  TakingDevice(const TakingOptions& options, Taken& counts) : counts_(counts), room_(options.room) {
    null::NullDeviceOptions strict;
    strict.host_visible = false;
    strict.deferred = true;
    strict.launched = counts.launched;
    strict.call = [&counts](OpaqueKernel part, const LaunchArgs& args, const LiveSizes& live) -> Status {
      if (++counts.ran == counts.fail_at) return error(Code::Device, "launch {} has failed", counts.ran);
      reinterpret_cast<null::NullKernel>(part)(args, live);
      return Status::ok();
    };
    inner_ = null::make_null_device(strict);
    info_ = inner_->info();
    info_.patches = options.patches;
    info_.free_patches = options.free_patches;
    info_.skips_negative_slots = options.skips_negative_slots;
    info_.memory_bytes = options.memory_bytes;
    info_.graphs_take_memory = options.memory_bytes > 0;
  }
  const DeviceInfo& info() const override { return info_; }
  MemoryPool& pool() override { return inner_->pool(); }
  MemoryPool& host_pool() override { return inner_->host_pool(); }
  Result<std::unique_ptr<Stream>> make_stream() override { return inner_->make_stream(); }
  Result<std::unique_ptr<Event>> make_event() override { return inner_->make_event(); }
  Result<std::unique_ptr<DeviceGraph>> capture(Stream& stream, const std::function<Status(Recorder&)>& body) override {
    if (counts_.graphs >= room_) return error(Code::Busy, "{} graphs are alive", counts_.graphs);
    auto graph = std::make_unique<TakingGraph>(counts_, info_.graphs_take_memory);
    ASSIGN_OR_RETURN(graph->inner, inner_->capture(stream, [&](Recorder& recorder) {
      TakingRecorder mine(recorder, *graph);
      return body(mine);
    }));
    return std::unique_ptr<DeviceGraph>(std::move(graph));
  }

 private:
  std::unique_ptr<Device> inner_;
  DeviceInfo info_;
  Taken& counts_;
  size_t room_;
};

}  // namespace reprise::testing_support

#include "backends/null/null_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace reprise::null {
namespace {

class NullPool final : public MemoryPool {
 public:
  Result<Buffer> allocate(size_t bytes, std::string_view label) override {
    if (bytes == 0) return Buffer();
    void* p = std::calloc(bytes, 1);
    if (!p) return error(Code::OutOfMemory, "{}: {} bytes could not be allocated", label, bytes);
    stats_.live_bytes += bytes;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
    stats_.live_by_label[std::string(label)] += bytes;
    return Buffer(p, bytes, [this, name = std::string(label)](void* data, size_t size) {
      std::free(data);
      stats_.live_bytes -= size;
      stats_.live_by_label[name] -= size;
    });
  }
  PoolStats stats() const override { return stats_; }

 private:
  PoolStats stats_;
};

class NullEvent final : public Event {};

class NullStream final : public Stream {
 public:
  explicit NullStream(std::vector<uint32_t>* launched) : launched_(launched) {}
  void set_live_sizes(const LiveSizes&) override {}
  Status launch(const Thunk& thunk) override {
    if (launched_) launched_->push_back(thunk.node);
    return Status::ok();
  }
  Status copy(void* dst, const void* src, size_t bytes) override {
    std::memcpy(dst, src, bytes);
    return Status::ok();
  }
  Status record(Event&) override { return Status::ok(); }
  Status wait(const Event&) override { return Status::ok(); }
  Status synchronize() override { return Status::ok(); }

 private:
  std::vector<uint32_t>* launched_;
};

// Replays by launching each recorded thunk on the stream again.
class NullGraph final : public DeviceGraph, public Recorder {
 public:
  Status launch(const Thunk& thunk) override {
    thunks_.push_back(thunk);
    return Status::ok();
  }
  Result<PatchId> launch_patchable(const Thunk& thunk) override {
    thunks_.push_back(thunk);
    patchable_.push_back(thunks_.size() - 1);
    return static_cast<PatchId>(thunks_.size() - 1);
  }
  Status replay(Stream& stream, std::span<const Patch> patches) override {
    for (const Patch& p : patches) {
      if (std::find(patchable_.begin(), patchable_.end(), p.id) == patchable_.end())
        return invalid("launch {} of this graph is not patchable", p.id);
      thunks_[p.id].args = *p.args;
    }
    ++replays_;
    for (const Thunk& t : thunks_) RETURN_IF_ERROR(stream.launch(t));
    return Status::ok();
  }
  GraphStats stats() const override { return {thunks_.size(), 0, thunks_.capacity() * sizeof(Thunk), replays_}; }

 private:
  std::vector<Thunk> thunks_;
  std::vector<size_t> patchable_;
  uint64_t replays_ = 0;
};

class NullDevice final : public Device {
 public:
  explicit NullDevice(const NullDeviceOptions& options) : options_(options) {
    info_.kind = DeviceKind::Null;
    info_.name = "null";
    info_.isa = "none";
  }
  const DeviceInfo& info() const override { return info_; }
  MemoryPool& pool() override { return pool_; }
  Result<std::unique_ptr<Stream>> make_stream() override {
    return std::unique_ptr<Stream>(std::make_unique<NullStream>(options_.launched));
  }
  Result<std::unique_ptr<Event>> make_event() override { return std::unique_ptr<Event>(std::make_unique<NullEvent>()); }
  Result<std::unique_ptr<DeviceGraph>> capture(Stream&, const std::function<Status(Recorder&)>& body) override {
    auto graph = std::make_unique<NullGraph>();
    RETURN_IF_ERROR(body(*graph));
    return std::unique_ptr<DeviceGraph>(std::move(graph));
  }

 private:
  NullDeviceOptions options_;
  DeviceInfo info_;
  NullPool pool_;
};

void nothing() {}

}  // namespace

std::unique_ptr<Device> make_null_device(const NullDeviceOptions& options) {
  return std::make_unique<NullDevice>(options);
}

void register_null(KernelRegistry& kernels, const OpRegistry& ops) {
  for (const OpSchema* op : ops.all()) {
    if (op->has(op_flag::kSource) || op->has(op_flag::kView)) continue;
    KernelEntry e;
    e.name = "null." + op->name;
    e.op = op->name;
    e.device = DeviceKind::Null;
    e.accepts = [](const OpCall&) { return Status::ok(); };
    e.bind = [](const OpCall&, LaunchArgs&) {};
    e.phase[0] = nothing;
    kernels.add(std::move(e));
  }
}

}  // namespace reprise::null

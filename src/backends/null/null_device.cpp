#include "backends/null/null_device.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "backends/shared_pool.h"
#include "device/pool_ledger.h"
#include "device/recorded_order.h"

namespace reprise::null {
namespace {

// The upper sixteen bits of addresses that the host may not touch: no processor maps them. No size is so large and no
// scalar so small, so that those among a launch's arguments are not taken for addresses.
constexpr uintptr_t kRemote = uintptr_t{1} << 54;

bool is_remote(const void* p) { return (reinterpret_cast<uintptr_t>(p) >> 48) == (kRemote >> 48); }
void* remote(void* p) { return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(p) | kRemote); }
void* local(void* p) { return is_remote(p) ? reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(p) ^ kRemote) : p; }
const void* local(const void* p) { return local(const_cast<void*>(p)); }

class NullPool final : public MemoryPool {
 public:
  explicit NullPool(bool host_visible) : host_visible_(host_visible) {}

  Result<Buffer> allocate(size_t bytes, std::string_view label) override {
    if (bytes == 0) return Buffer();
    constexpr size_t kLarge = size_t{2} << 20;
    const size_t alignment = bytes >= kLarge ? kLarge : 256;
    // No address space is larger; calloc under a sanitizer ends the program instead of saying no.
    void* raw = bytes >> 47 ? nullptr : std::calloc(bytes + alignment, 1);
    if (!raw) return error(Code::OutOfMemory, "{}: {} bytes could not be allocated", label, bytes);
    void* data = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(raw) + alignment) & ~(alignment - 1));
    std::string name(label);
    ledger_.add(name, bytes);
    return Buffer(host_visible_ ? data : remote(data), bytes, [this, raw, name](void*, size_t size) {
      std::free(raw);
      ledger_.remove(name, size);
    });
  }
  PoolStats stats() const override { return ledger_.stats(); }

 private:
  bool host_visible_;
  PoolLedger ledger_;
};

// Tasks in order. An event may make another stream run this one's, so both own it.
class Queue {
 public:
  void push(std::function<void()> task) {
    tasks_.push_back(std::move(task));
    ++asked_;
  }
  uint64_t asked() const { return asked_; }
  void drop_all() {
    tasks_.clear();
    started_ = asked_;
  }
  void run_until(uint64_t mark) {
    while (started_ < mark) {
      ++started_;
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }

 private:
  std::deque<std::function<void()>> tasks_;
  uint64_t asked_ = 0, started_ = 0;
};

struct NullEvent final : Event {
  std::shared_ptr<Queue> queue;
  uint64_t mark = 0;
};

class NullStream final : public Stream {
 public:
  explicit NullStream(const NullDeviceOptions& options) : options_(options), queue_(std::make_shared<Queue>()) {}
  ~NullStream() override { queue_->run_until(queue_->asked()); }

  void set_live_sizes(const LiveSizes& live) override { live_ = live; }
  const LiveSizes& live_sizes() const { return live_; }

  Status launch(const Thunk& thunk) override {
    ++stats_.launches;
    push([this, thunk, live = live_] { call(thunk, live); });
    return options_.deferred ? world_lives() : take_failure();
  }
  Status copy(void* dst, const void* src, size_t bytes, Copy kind) override {
    if (!options_.host_visible && bytes &&
        (is_remote(dst) == (kind == Copy::DeviceToHost) || is_remote(src) == (kind == Copy::HostToDevice)))
      return invalid("copy: the addresses are not what the kind of copy says");
    stats_.count(kind, bytes);
    push([dst, src, bytes] {
      if (bytes) std::memmove(local(dst), local(src), bytes);
    });
    return Status::ok();
  }
  Status record(Event& event) override {
    auto& e = static_cast<NullEvent&>(event);
    e.queue = queue_;
    e.mark = queue_->asked();
    return Status::ok();
  }
  Status wait(const Event& event) override {
    auto& e = static_cast<const NullEvent&>(event);
    if (e.queue) push([queue = e.queue, mark = e.mark] { queue->run_until(mark); });
    return Status::ok();
  }
  Status synchronize() override {
    queue_->run_until(queue_->asked());
    return take_failure();
  }
  Status synchronize(const Event& event) override {
    auto& e = static_cast<const NullEvent&>(event);
    if (e.queue) e.queue->run_until(e.mark);
    return take_failure();
  }
  StreamStats stats() const override { return stats_; }

  Status replay(const std::vector<Thunk>& thunks, const LiveSizes& live) {
    ++stats_.replays;
    push([this, thunks, live] {
      for (const Thunk& t : thunks) call(t, live);
    });
    return options_.deferred ? world_lives() : take_failure();
  }

 private:
  void push(std::function<void()> task) {
    queue_->push(std::move(task));
    if (!options_.deferred) queue_->run_until(queue_->asked());
  }
  // What follows a failed launch would compute with its garbage: nothing runs until the failure was told, and what was
  // asked for by then never does.
  Status take_failure() {
    if (!failed_.is_ok()) queue_->drop_all();
    RETURN_IF_ERROR(world_lives());
    return std::exchange(failed_, Status::ok());
  }
  Status world_lives() const {
    return options_.member && options_.member->aborted() ? options_.member->lost() : Status::ok();
  }
  void call(const Thunk& thunk, const LiveSizes& live) {
    if (!failed_.is_ok()) return;
    if (options_.launched) options_.launched->push_back(thunk.node);
    LaunchArgs args = thunk.args;
    for (void*& p : args.ptr) p = local(p);
    args.workspace = local(args.workspace);
    for (OpaqueKernel part : thunk.part) {
      if (!part) continue;
      if (!options_.call) {
        reinterpret_cast<NullKernel>(part)(args, live);
      } else if (Status called = options_.call(part, args, live); !called.is_ok() && failed_.is_ok()) {
        failed_ = std::move(called);
      }
    }
  }

  NullDeviceOptions options_;
  std::shared_ptr<Queue> queue_;
  LiveSizes live_;
  StreamStats stats_;
  Status failed_;  // the first failure since the last synchronize()
};

// The recorded thunks, at the sizes of the capture. Where work may wait, replays of several streams mix them, each time
// in another way.
class NullGraph final : public DeviceGraph, public Recorder {
 public:
  NullGraph(const LiveSizes& live, bool mixes) : live_(live), mixes_(mixes) {}

  Status record(uint8_t stream, uint32_t mark) override { return order_.record(stream, mark); }
  Status wait(uint8_t stream, uint32_t mark) override { return order_.wait(stream, mark); }
  Status finish() const { return order_.finish(); }
  Status launch(const Thunk& thunk) override {
    RETURN_IF_ERROR(order_.launch(thunk.stream));
    thunks_.push_back(thunk);
    patchable_.push_back(false);
    return Status::ok();
  }
  Result<PatchId> launch_patchable(const Thunk& thunk) override {
    RETURN_IF_ERROR(order_.launch(thunk.stream));
    thunks_.push_back(thunk);
    patchable_.push_back(true);
    return static_cast<PatchId>(thunks_.size() - 1);
  }
  Status replay(Stream& stream, std::span<const Patch> patches) override {
    for (const Patch& p : patches) {
      if (p.id >= patchable_.size() || !patchable_[p.id])
        return invalid("launch {} of this graph is not patchable", p.id);
      if (!p.args) return invalid("the patch of launch {} carries no arguments", p.id);
    }
    for (const Patch& p : patches) thunks_[p.id].args = *p.args;
    RETURN_IF_ERROR(static_cast<NullStream&>(stream).replay(in_some_order(), live_));
    ++replays_;
    return Status::ok();
  }
  GraphStats stats() const override {
    GraphStats g;
    g.launches = thunks_.size();
    g.bytes = thunks_.capacity() * sizeof(Thunk);
    g.replays = replays_;
    g.waits = order_.waits();
    return g;
  }

 private:
  std::vector<Thunk> in_some_order() const {
    if (!mixes_ || !order_.several_streams()) return thunks_;
    std::vector<Thunk> mixed;
    for (const uint32_t i : order_.order(replays_)) mixed.push_back(thunks_[i]);
    return mixed;
  }

  LiveSizes live_;
  std::vector<Thunk> thunks_;
  std::vector<bool> patchable_;
  bool mixes_;
  RecordedOrder order_;
  uint64_t replays_ = 0;
};

class NullDevice final : public Device {
 public:
  explicit NullDevice(const NullDeviceOptions& options) : options_(options), pool_(options.host_visible) {
    info_.kind = options.kind;
    info_.name = options.name;
    info_.isa = "none";
    info_.order = options.order;
    info_.host_visible = options.host_visible;
    info_.asynchronous = options.deferred;
    info_.index_dtype = options.index_dtype;
    info_.read_ahead = options.read_ahead;
    info_.free_patches = options.free_patches;
    if (options.between_ranks) between_.emplace(*options.between_ranks);
    if (options.member) shared_.emplace(options.member->region());
  }
  const DeviceInfo& info() const override { return info_; }
  MemoryPool& pool() override { return pool_; }
  MemoryPool& shared_pool() override { return shared_ ? static_cast<MemoryPool&>(*shared_) : pool_; }
  MemoryPool* between_ranks() override { return between_ ? &*between_ : nullptr; }
  MemoryPool& host_pool() override { return options_.host_visible ? pool_ : host_pool_; }
  ProductWays* product_ways() override { return options_.product_ways.get(); }
  Result<std::unique_ptr<Stream>> make_stream() override {
    return std::unique_ptr<Stream>(std::make_unique<NullStream>(options_));
  }
  Result<std::unique_ptr<Event>> make_event() override { return std::unique_ptr<Event>(std::make_unique<NullEvent>()); }
  Result<std::unique_ptr<DeviceGraph>> capture(Stream& stream, const std::function<Status(Recorder&)>& body) override {
    auto graph = std::make_unique<NullGraph>(static_cast<NullStream&>(stream).live_sizes(), options_.deferred);
    RETURN_IF_ERROR(body(*graph));
    RETURN_IF_ERROR(graph->finish());
    return std::unique_ptr<DeviceGraph>(std::move(graph));
  }

 private:
  NullDeviceOptions options_;
  DeviceInfo info_;
  NullPool pool_;
  NullPool host_pool_{true};
  std::optional<SharedPool> between_, shared_;
};

void nothing(const LaunchArgs&, const LiveSizes&) {}
void meet(const LaunchArgs& args, const LiveSizes&) {
  const_cast<ranks::Member*>(static_cast<const ranks::Member*>(args.constant))->meet(0);
}

}  // namespace

std::unique_ptr<Device> make_null_device(const NullDeviceOptions& options) {
  return std::make_unique<NullDevice>(options);
}

void register_null(KernelRegistry& kernels, const OpRegistry& ops, DType index_dtype,
                   std::shared_ptr<ranks::Member> member) {
  for (const OpSchema* op : ops.all()) {
    if (op->has(op_trait::kSource) || op->has(op_trait::kView) || op->has(op_trait::kDeviceForm)) continue;
    KernelEntry e;
    e.name = "null." + op->name;
    e.op = op->name;
    e.device = DeviceKind::Null;
    e.index_dtype = index_dtype;
    e.accepts = [](const OpCall&) { return Status::ok(); };
    e.bind = [](const OpCall&, LaunchArgs&) {};
    e.part[0] = opaque(nothing);
    if (member && op->has(op_trait::kCollective)) {
      e.bind = [member](const OpCall&, LaunchArgs& args) { args.constant = member.get(); };
      e.part[0] = opaque(meet);
    }
    kernels.add(std::move(e));
  }
}

}  // namespace reprise::null

#include "backends/cpu/cpu_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <mutex>

#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/team.h"

namespace reprise::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr int kMaxThreads = 256;

// Anonymous mappings: zero-filled, touched lazily, huge pages where they are long enough.
class CpuPool final : public MemoryPool {
 public:
  Result<Buffer> allocate(size_t bytes, std::string_view label) override {
    if (bytes == 0) return Buffer();
    const bool huge = bytes >= kHugePage;
    const size_t unit = huge ? kHugePage : 4096;
    if (bytes > SIZE_MAX / 2) return error(Code::OutOfMemory, "{}: {} bytes cannot be allocated", label, bytes);
    const size_t size = (bytes + unit - 1) / unit * unit;
    const size_t span = huge ? size + kHugePage : size;  // room to align
    void* raw = ::mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED)
      return error(Code::OutOfMemory, "{}: {} bytes could not be allocated: {}", label, bytes, std::strerror(errno));
    auto* base = static_cast<uint8_t*>(raw);
    if (huge) {
      base = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(raw) + kHugePage - 1) & ~(kHugePage - 1));
      ::madvise(base, size, MADV_HUGEPAGE);
    }
    std::string name(label);
    {
      std::lock_guard lock(mutex_);
      stats_.live_bytes += bytes;
      stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
      stats_.live_by_label[name] += bytes;
    }
    return Buffer(base, bytes, [this, raw, span, name](void*, size_t size_given) {
      ::munmap(raw, span);
      std::lock_guard lock(mutex_);
      stats_.live_bytes -= size_given;
      stats_.live_by_label[name] -= size_given;
    });
  }

  PoolStats stats() const override {
    std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  mutable std::mutex mutex_;
  PoolStats stats_;
};

class CpuEvent final : public Event {};

// Launches run at once, so every event has already happened when it is recorded.
class CpuStream final : public Stream {
 public:
  explicit CpuStream(Team& team) : team_(team) {}

  void set_live_sizes(const LiveSizes& live) override { live_ = live; }
  const LiveSizes& live_sizes() const { return live_; }

  Status launch(const Thunk& thunk) override {
    thunk_ = &thunk;
    team_.run(
        [](void* context, Team& team, int rank, int ranks) {
          auto& self = *static_cast<CpuStream*>(context);
          const Thunk& t = *self.thunk_;
          for (size_t phase = 0; phase < t.phase.size() && t.phase[phase]; ++phase) {
            if (phase) team.barrier(rank);
            reinterpret_cast<CpuKernel>(t.phase[phase])(t.args, self.live_, rank, ranks);
          }
        },
        this);
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
  Team& team_;
  LiveSizes live_;
  const Thunk* thunk_ = nullptr;
};

struct CpuStep {
  std::array<CpuKernel, 2> phase{};
  LaunchArgs args;
  bool depends = true;
};

// A replay is one job of the team: every rank walks the whole list and meets the others only where a step depends on
// one before.
class CpuGraph final : public DeviceGraph {
 public:
  explicit CpuGraph(Team& team) : team_(team) {}

  uint32_t add(const Thunk& t) {
    CpuStep s;
    for (size_t i = 0; i < t.phase.size(); ++i) s.phase[i] = reinterpret_cast<CpuKernel>(t.phase[i]);
    s.args = t.args;
    s.depends = t.depends && !steps_.empty();
    steps_.push_back(s);
    return static_cast<uint32_t>(steps_.size() - 1);
  }
  void mark_patchable(uint32_t step) {
    patchable_.resize(steps_.size(), false);
    patchable_[step] = true;
  }

  Status replay(Stream& stream, std::span<const Patch> patches) override {
    for (const Patch& p : patches) {
      if (p.id >= patchable_.size() || !patchable_[p.id])
        return invalid("launch {} of this graph is not patchable", p.id);
      steps_[p.id].args = *p.args;
    }
    live_ = static_cast<CpuStream&>(stream).live_sizes();
    ++replays_;
    team_.run([](void* context, Team& team, int rank,
                 int ranks) { static_cast<CpuGraph*>(context)->walk(team, rank, ranks); },
              this);
    return Status::ok();
  }

  GraphStats stats() const override {
    GraphStats g;
    g.launches = steps_.size();
    for (auto& s : steps_) g.barriers += (s.depends ? 1 : 0) + (s.phase[1] ? 1 : 0);
    g.bytes = steps_.capacity() * sizeof(CpuStep);
    g.replays = replays_;
    return g;
  }

 private:
  void walk(Team& team, int rank, int ranks) const {
    for (const CpuStep& s : steps_) {
      if (s.depends) team.barrier(rank);
      s.phase[0](s.args, live_, rank, ranks);
      if (s.phase[1]) {
        team.barrier(rank);
        s.phase[1](s.args, live_, rank, ranks);
      }
    }
  }

  Team& team_;
  std::vector<CpuStep> steps_;
  std::vector<bool> patchable_;
  LiveSizes live_;
  uint64_t replays_ = 0;
};

class CpuRecorder final : public Recorder {
 public:
  explicit CpuRecorder(CpuGraph& graph) : graph_(graph) {}
  Status launch(const Thunk& thunk) override {
    graph_.add(thunk);
    return Status::ok();
  }
  Result<PatchId> launch_patchable(const Thunk& thunk) override {
    const uint32_t id = graph_.add(thunk);
    graph_.mark_patchable(id);
    return id;
  }

 private:
  CpuGraph& graph_;
};

class CpuDevice final : public Device {
 public:
  CpuDevice(DeviceInfo info, bool pin) : info_(std::move(info)), team_(info_.ranks, pin) {}

  const DeviceInfo& info() const override { return info_; }
  MemoryPool& pool() override { return pool_; }
  Result<std::unique_ptr<Stream>> make_stream() override {
    return std::unique_ptr<Stream>(std::make_unique<CpuStream>(team_));
  }
  Result<std::unique_ptr<Event>> make_event() override { return std::unique_ptr<Event>(std::make_unique<CpuEvent>()); }
  Result<std::unique_ptr<DeviceGraph>> capture(Stream&, const std::function<Status(Recorder&)>& body) override {
    auto graph = std::make_unique<CpuGraph>(team_);
    CpuRecorder recorder(*graph);
    RETURN_IF_ERROR(body(recorder));
    return std::unique_ptr<DeviceGraph>(std::move(graph));
  }

 private:
  DeviceInfo info_;
  CpuPool pool_;
  Team team_;
};

}  // namespace

Result<std::unique_ptr<Device>> make_cpu_device(const CpuDeviceOptions& options) {
  const int allowed = static_cast<int>(Team::allowed_processors().size());
  const int threads = options.threads == 0 ? allowed : options.threads;
  if (threads < 1 || threads > kMaxThreads)
    return invalid("threads {} is out of range; allowed: 1 to {}, or 0 for one per processor", threads, kMaxThreads);
  DeviceInfo info;
  info.kind = DeviceKind::Cpu;
  info.isa = std::string(isa_name(options.isa));
  info.ranks = threads;
  info.live_sizes = true;
  info.name = fmt::format("cpu ({} thread{}, {})", threads, threads == 1 ? "" : "s", info.isa);
  info.memory_bytes = static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(std::move(info), options.pin));
}

}  // namespace reprise::cpu

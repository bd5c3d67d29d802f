#include "backends/cpu/cpu_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <optional>

#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/thread_pool.h"
#include "backends/shared_pool.h"
#include "backends/sum_order.h"
#include "device/pool_ledger.h"
#include "device/recorded_order.h"
#include "device/trace.h"

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
    ledger_.add(name, bytes);
    return Buffer(base, bytes, [this, raw, span, name](void*, size_t size_given) {
      ::munmap(raw, span);
      ledger_.remove(name, size_given);
    });
  }
  PoolStats stats() const override { return ledger_.stats(); }

 private:
  PoolLedger ledger_;
};

class CpuEvent final : public Event {};

// Times what one thread does. The end of one event is the beginning of the next, so that nothing in between is lost and
// the clock is read once per event.
class ThreadClock {
 public:
  ThreadClock(Trace& trace, int thread) : trace_(trace), thread_(thread), last_(trace.now()) {}
  void done(TraceEvent::Kind kind, uint32_t node, size_t part) {
    const int64_t now = trace_.now();
    trace_.add(thread_, {kind, static_cast<uint8_t>(part), node, trace_.replay(), last_, now});
    last_ = now;
  }

 private:
  Trace& trace_;
  int thread_;
  int64_t last_;
};

// Stands in for ThreadClock when nothing is timed.
struct NoClock {
  void done(TraceEvent::Kind, uint32_t, size_t) {}
};

// One job of the pool: walker.walk() on every thread.
template <typename Walker>
void run_on_pool(ThreadPool& pool, const Walker& walker, Trace* trace) {
  struct Job {
    const Walker& walker;
    Trace* trace;
  } job{walker, trace};
  if (!trace) {
    pool.run([](void* context, ThreadPool& t, int thread,
                int threads) { static_cast<const Job*>(context)->walker.walk(t, thread, threads, NoClock()); },
             &job);
    return;
  }
  trace->next_replay();
  pool.run(
      [](void* context, ThreadPool& t, int thread, int threads) {
        const Job& j = *static_cast<const Job*>(context);
        j.walker.walk(t, thread, threads, ThreadClock(*j.trace, thread));
      },
      &job);
  // The caller is thread 0; it has waited for the others to finish.
  if (const auto mine = trace->events(0); pool.threads() > 1 && !mine.empty())
    trace->add(0, {TraceEvent::Kind::Wait, 0, TraceEvent::kNoNode, trace->replay(), mine.back().end_ns, trace->now()});
}

// LaunchArgs::taken of so many launches. A single thread has nobody to help.
std::unique_ptr<std::atomic<int32_t>[]> none_taken(size_t launches, int threads) {
  if (threads == 1) return nullptr;
  return std::make_unique<std::atomic<int32_t>[]>(launches * static_cast<size_t>(threads));
}

// Launches run at once, so every event has already happened when it is recorded.
class CpuStream final : public Stream {
 public:
  CpuStream(ThreadPool& pool, const ranks::Member* member)
      : threads_(pool), member_(member), taken_(none_taken(1, pool.threads())) {}

  void set_live_sizes(const LiveSizes& live) override { live_ = live; }
  const LiveSizes& live_sizes() const { return live_; }

  Status launch(const Thunk& thunk) override {
    ++stats_.launches;
    thunk_ = thunk;
    thunk_.args.taken = taken_.get();
    run_on_pool(threads_, *this, trace_);
    return world_lives();
  }
  // A collective that was left because a rank is gone has no result.
  Status world_lives() const { return member_ && member_->aborted() ? member_->lost() : Status::ok(); }

  Status copy(void* dst, const void* src, size_t bytes, Copy kind) override {
    stats_.count(kind, bytes);
    if (bytes) std::memcpy(dst, src, bytes);
    return Status::ok();
  }
  Status record(Event&) override { return Status::ok(); }
  Status wait(const Event&) override { return Status::ok(); }
  Status synchronize() override { return Status::ok(); }
  Status synchronize(const Event&) override { return Status::ok(); }
  StreamStats stats() const override { return stats_; }
  void count_replay() { ++stats_.replays; }
  Status set_trace(Trace* trace) override {
    if (trace && trace->tracks() < threads_.threads())
      return invalid("a trace of {} tracks is too small for {} threads", trace->tracks(), threads_.threads());
    trace_ = trace;
    return Status::ok();
  }
  Trace* trace() const { return trace_; }

  template <typename Clock>
  void walk(ThreadPool& pool, int thread, int threads, Clock clock) const {
    const Thunk& t = thunk_;
    for (size_t part = 0; part < t.part.size() && t.part[part]; ++part) {
      if (part) {
        pool.barrier(thread);
        clock.done(TraceEvent::Kind::Wait, t.node, part);
      }
      reinterpret_cast<CpuKernel>(t.part[part])(t.args, live_, thread, threads);
      clock.done(TraceEvent::Kind::Kernel, t.node, part);
    }
  }

 private:
  ThreadPool& threads_;
  const ranks::Member* member_;
  LiveSizes live_;
  StreamStats stats_;
  Thunk thunk_;
  std::unique_ptr<std::atomic<int32_t>[]> taken_;  // LaunchArgs::taken
  Trace* trace_ = nullptr;
};

struct CpuStep {
  std::array<CpuKernel, 2> part{};
  LaunchArgs args;
  uint32_t node = 0;
  bool depends = true;
};

// A replay is one job of the pool: every thread walks the whole list and meets the others only where a step depends on
// one before. Where two streams have launches that wait for nothing in each other, one half of the threads walks those
// of the main stream and the other half those of the side stream; all meet before and behind.
class CpuGraph final : public DeviceGraph {
 public:
  // `frozen`: the sizes of every replay; without, those of the stream at that time.
  CpuGraph(ThreadPool& pool, std::optional<LiveSizes> frozen) : threads_(pool), frozen_(frozen) {}

  // How several streams run.
  struct Streams {
    std::optional<uint64_t> mix;  // one after the other in this order (RecordedOrder::order)
    bool halves = false;          // halves of the threads at once, if that is not set; else one after the other
  };

  RecordedOrder& order() { return order_; }
  Result<uint32_t> add(const Thunk& t) {
    RETURN_IF_ERROR(order_.launch(t.stream));
    CpuStep s;
    for (size_t i = 0; i < t.part.size(); ++i) s.part[i] = reinterpret_cast<CpuKernel>(t.part[i]);
    s.args = t.args;
    s.node = t.node;
    s.depends = t.depends && !steps_.empty();
    steps_.push_back(s);
    return static_cast<uint32_t>(steps_.size() - 1);
  }
  void mark_patchable(uint32_t step) {
    patchable_.resize(steps_.size(), false);
    patchable_[step] = true;
  }
  // Everything is recorded.
  Status finish(const Streams& how) {
    RETURN_IF_ERROR(order_.finish());
    taken_ = none_taken(steps_.size(), threads_.threads());
    if (taken_)
      for (size_t i = 0; i < steps_.size(); ++i)
        steps_[i].args.taken = &taken_[i * static_cast<size_t>(threads_.threads())];
    if (!order_.several_streams()) return Status::ok();
    if (how.mix) {
      put_in_order(order_.order(*how.mix));
      for (size_t i = 0; i < steps_.size(); ++i) steps_[i].depends = i > 0;
    } else if (how.halves) {
      put_in_stages(order_.stages());
    }
    return Status::ok();
  }

  Status replay(Stream& stream, std::span<const Patch> patches) override {
    for (const Patch& p : patches) {
      if (p.id >= patchable_.size() || !patchable_[p.id])
        return invalid("launch {} of this graph is not patchable", p.id);
      if (!p.args) return invalid("the patch of launch {} carries no arguments", p.id);
    }
    for (const Patch& p : patches) {
      LaunchArgs& args = steps_[place_.empty() ? p.id : place_[p.id]].args;
      std::atomic<int32_t>* taken = args.taken;
      args = *p.args;
      args.taken = taken;
    }
    auto& cpu_stream = static_cast<CpuStream&>(stream);
    cpu_stream.count_replay();
    live_ = frozen_ ? *frozen_ : cpu_stream.live_sizes();
    ++replays_;
    run_on_pool(threads_, *this, cpu_stream.trace());
    return cpu_stream.world_lives();
  }

  GraphStats stats() const override {
    GraphStats g;
    g.launches = steps_.size();
    for (auto& s : steps_) g.barriers += (s.depends ? 1 : 0) + (s.part[1] ? 1 : 0);
    g.barriers += stages_.empty() ? 0 : stages_.size() - 1;
    g.bytes = steps_.capacity() * sizeof(CpuStep) + stages_.capacity() * sizeof(Stage);
    if (taken_) g.bytes += steps_.size() * static_cast<size_t>(threads_.threads()) * sizeof(taken_[0]);
    g.replays = replays_;
    g.waits = order_.waits();
    return g;
  }

  template <typename Clock>
  void walk(ThreadPool& pool, int thread, int threads, Clock clock) const {
    const auto all = [&] { pool.barrier(thread); };
    if (stages_.empty()) return walk_steps(steps_, all, thread, threads, clock);
    const std::span<const CpuStep> steps(steps_);
    const int near = pool.first_half();
    for (const Stage& stage : stages_) {
      if (stage.begin > 0) {
        all();
        clock.done(TraceEvent::Kind::Wait, steps_[stage.begin].node, 0);
      }
      if (!stage.halves) {
        walk_steps(steps.subspan(stage.begin, stage.end - stage.begin), all, thread, threads, clock);
        continue;
      }
      const auto half = [&] { pool.half_barrier(thread); };
      if (thread < near)
        walk_steps(steps.subspan(stage.begin, stage.side - stage.begin), half, thread, near, clock);
      else
        walk_steps(steps.subspan(stage.side, stage.end - stage.side), half, thread - near, threads - near, clock);
    }
  }

 private:
  // A part of the list behind which all threads meet: [begin, end), or two parts at once, of which the second begins at
  // `side`.
  struct Stage {
    uint32_t begin = 0, side = 0, end = 0;
    bool halves = false;
  };

  template <typename Barrier, typename Clock>
  void walk_steps(std::span<const CpuStep> steps, const Barrier& barrier, int thread, int threads, Clock& clock) const {
    for (const CpuStep& s : steps) {
      if (s.depends) {
        barrier();
        clock.done(TraceEvent::Kind::Wait, s.node, 0);
      }
      s.part[0](s.args, live_, thread, threads);
      clock.done(TraceEvent::Kind::Kernel, s.node, 0);
      if (s.part[1]) {
        barrier();
        clock.done(TraceEvent::Kind::Wait, s.node, 1);
        s.part[1](s.args, live_, thread, threads);
        clock.done(TraceEvent::Kind::Kernel, s.node, 1);
      }
    }
  }

  void put_in_order(const std::vector<uint32_t>& order) {
    std::vector<CpuStep> steps;
    place_.resize(steps_.size());
    for (const uint32_t i : order) {
      place_[i] = static_cast<uint32_t>(steps.size());
      steps.push_back(steps_[i]);
    }
    steps_ = std::move(steps);
  }

  // Marks of dependencies hold within a stream, and what waits for another one is in a later stage.
  void put_in_stages(const std::vector<RecordedOrder::Stage>& stages) {
    std::vector<uint32_t> order, first;
    for (const RecordedOrder::Stage& of : stages) {
      Stage stage{.begin = static_cast<uint32_t>(order.size())};
      int streams = 0;
      for (const std::vector<uint32_t>& launches : of) {
        if (launches.empty()) continue;
        if (++streams == 2) stage.side = static_cast<uint32_t>(order.size());  // a third one goes behind the second
        first.push_back(static_cast<uint32_t>(order.size()));
        order.insert(order.end(), launches.begin(), launches.end());
      }
      stage.end = static_cast<uint32_t>(order.size());
      stage.halves = streams > 1;
      stages_.push_back(stage);
    }
    put_in_order(order);
    for (const uint32_t i : first) steps_[i].depends = false;  // the stage before is done
  }

  ThreadPool& threads_;
  std::vector<CpuStep> steps_;
  std::vector<Stage> stages_;  // empty: one list
  std::vector<bool> patchable_;
  std::vector<uint32_t> place_;                    // of the launches in steps_; empty: as recorded
  std::unique_ptr<std::atomic<int32_t>[]> taken_;  // LaunchArgs::taken of all steps
  RecordedOrder order_;
  std::optional<LiveSizes> frozen_;
  LiveSizes live_;
  uint64_t replays_ = 0;
};

class CpuRecorder final : public Recorder {
 public:
  explicit CpuRecorder(CpuGraph& graph) : graph_(graph) {}
  Status launch(const Thunk& thunk) override { return graph_.add(thunk).status(); }
  Result<PatchId> launch_patchable(const Thunk& thunk) override {
    ASSIGN_OR_RETURN(const uint32_t id, graph_.add(thunk));
    graph_.mark_patchable(id);
    return id;
  }
  Status record(uint8_t stream, uint32_t mark) override { return graph_.order().record(stream, mark); }
  Status wait(uint8_t stream, uint32_t mark) override { return graph_.order().wait(stream, mark); }

 private:
  CpuGraph& graph_;
};

class CpuDevice final : public Device {
 public:
  CpuDevice(DeviceInfo info, const CpuDeviceOptions& options)
      : info_(std::move(info)),
        member_(options.member),
        mix_(options.mix_streams),
        threads_(info_.threads, options.pin) {
    if (member_) shared_.emplace(member_->region());
  }

  const DeviceInfo& info() const override { return info_; }
  MemoryPool& pool() override { return pool_; }
  MemoryPool& shared_pool() override {
    if (shared_) return *shared_;
    return pool_;
  }
  Result<std::unique_ptr<Stream>> make_stream() override {
    return std::unique_ptr<Stream>(std::make_unique<CpuStream>(threads_, member_.get()));
  }
  Result<std::unique_ptr<Event>> make_event() override { return std::unique_ptr<Event>(std::make_unique<CpuEvent>()); }
  Result<std::unique_ptr<DeviceGraph>> capture(Stream& stream, const std::function<Status(Recorder&)>& body) override {
    std::optional<LiveSizes> frozen;
    if (!info_.live_sizes) frozen = static_cast<CpuStream&>(stream).live_sizes();
    auto graph = std::make_unique<CpuGraph>(threads_, frozen);
    CpuRecorder recorder(*graph);
    RETURN_IF_ERROR(body(recorder));
    // Collectives meet the threads of other ranks one by one.
    RETURN_IF_ERROR(graph->finish({mix_, threads_.threads() > 1 && !member_}));
    return std::unique_ptr<DeviceGraph>(std::move(graph));
  }

 private:
  DeviceInfo info_;
  std::shared_ptr<ranks::Member> member_;
  std::optional<uint64_t> mix_;
  CpuPool pool_;
  std::optional<SharedPool> shared_;
  ThreadPool threads_;
};

}  // namespace

Result<std::unique_ptr<Device>> make_cpu_device(const CpuDeviceOptions& options) {
  const int threads = options.threads == 0 ? ThreadPool::usual_threads() : options.threads;
  if (threads < 1 || threads > kMaxThreads)
    return invalid("threads {} is out of range; allowed: 1 to {}, or 0 for one per core", threads, kMaxThreads);
  DeviceInfo info;
  info.kind = DeviceKind::Cpu;
  info.isa = std::string(isa_name(options.isa));
  info.order = sum_order_name(info.kind, info.isa);
  info.threads = threads;
  info.live_sizes = options.live_sizes;
  info.bf16_dots = has_fast_bf16(options.isa);
  info.int8_blocks = has_fast_int8_blocks(options.isa);
  info.read_ahead.refusal = "a CPU reads ahead by itself, and asking for more gained nothing";
  info.name = fmt::format("cpu ({} thread{}, {})", threads, threads == 1 ? "" : "s", info.isa);
  if (options.member && threads > ranks::Member::kMaxThreads)
    return invalid("threads {} is out of range with several ranks; allowed: 1 to {}", threads,
                   ranks::Member::kMaxThreads);
  info.memory_bytes = static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(std::move(info), options));
}

}  // namespace reprise::cpu

// How one task runs: what it does, and what it does to the clock.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "ascend/runtime/collective.h"
#include "ascend/runtime/fill.h"
#include "ascend/runtime/stream.h"

namespace ascend_sim {
namespace {

// Where arithmetic is skipped only control data moves: tokens, lengths, tables.
constexpr size_t kMovesAnyway = size_t{1} << 20;

std::string describe(const void* address, size_t bytes) {
  char text[96];
  std::snprintf(text, sizeof text, "%s address %p, %zu bytes", is_device_address(address) ? "device" : "host", address,
                bytes);
  return text;
}

// Null where the range is not alive.
void* locate(const World& world, const void* address, size_t bytes) {
  const int device = device_of_address(address);
  if (device < 0 || device >= kMaxDevices || !world.memories[device]) return nullptr;
  return world.memories[device]->host(address, bytes);
}

// Resolves either side of a queued copy. The host's side was pinned when it was queued, and must still be.
void* resolve(const World& world, const void* address, size_t bytes) {
  if (is_device_address(address)) return locate(world, address, bytes);
  return is_pinned(world, address, bytes) ? const_cast<void*>(address) : nullptr;
}

// Runs the body outside of the mutex.
template <typename Body>
void outside(World& world, Lock& lock, Body&& body) {
  ++world.busy;
  lock.unlock();
  body();
  lock.lock();
  --world.busy;
}

const Soc& soc(const World& world) { return *world.config.soc; }

// Empty, or what is wrong with running the kernel now.
std::string fault_before(World& world, const Kernel& kernel) {
  const std::string& name = kernel.name;
  for (const auto& fault : world.config.faults.kernels) {
    if (fault.name != name && fault.name != name.substr(0, name.find('/'))) continue;
    if (++world.kernel_runs[fault.name] == fault.at) return "fault on demand (ASCEND_SIM_FAULT)";
  }
  for (const Touch& touch : kernel.touches) {
    if (touch.bytes == 0 || locate(world, touch.address, touch.bytes) != nullptr) continue;
    return describe(touch.address, touch.bytes) + (touch.written ? ", written" : ", read") +
           ": not alive (freed, never allocated, or beyond the end of its block)";
  }
  return "";
}

struct Runner {
  World& world;
  Lock& lock;
  Stream& stream;
  Lane& lane;
  const std::shared_ptr<Task>& task;

  // `share`: of the chip, as far as it counts beside other streams of a graph.
  void device_time(double micros, Share share = {}) {
    lane.clock += micros;
    lane.busy_before = true;
    if (lane.steps) lane.steps->push_back({SharedStep::Kind::Work, micros, share});
  }
  void not_before(double clock) {
    lane.clock = std::max(lane.clock, clock);
    if (lane.steps) lane.steps->push_back({SharedStep::Kind::Until, clock});
  }
  // An event is a task of the graph like others.
  void event_time() {
    if (lane.steps) device_time(rate(Rate::GapGraph));
  }
  // When the task can begin: after the call that queued it, and for work of the cores after a gap.
  void begin(bool after_gap) {
    if (after_gap && lane.busy_before) device_time(rate(lane.in_graph ? Rate::GapGraph : Rate::GapEager));
    if (lane.in_graph) return;
    lane.clock = std::max(lane.clock, task->launched);
    if (task->host) lane.order.join(*task->host);
  }
  // Notes what a task touches, where races are looked for; empty, or the race.
  std::string touches(const void* address, size_t bytes, bool written, const std::string& name) {
    if (!world.config.races) return "";
    std::string race = world.accesses.note(lane.order, lane.id, address, bytes, written, name);
    if (!race.empty()) ++world.stats.races;
    return race;
  }
  void touch(const void* address, size_t bytes, bool written, const std::string& name) {
    if (!is_device_address(address)) return;
    const std::string race = touches(address, bytes, written, name);
    if (!race.empty()) raise(world, stream, kCoreException, race);
  }

  void operator()(const KernelTask& what) {
    const std::shared_ptr<const Kernel> kernel = what.kernel;  // an update may replace it meanwhile
    begin(true);
    if (kernel->exchange) return together(what, kernel);
    const double micros = kernel_micros(soc(world), world.config.rates, *kernel);
    device_time(micros, kernel_share(soc(world), *kernel, micros));
    if (lane.steps) lane.steps->back().reading = kernel_reading(soc(world), world.config.rates, *kernel);
    auto& stats = world.stats.kernels[kernel->name];
    ++stats.count;
    stats.micros += micros;
    std::string fault = fault_before(world, *kernel);
    if (task->in_group && fault.empty()) fault = touches(task.get(), 1, false, kernel->name);
    for (const Touch& one : kernel->touches) {
      if (fault.empty()) fault = touches(one.address, one.bytes, one.written, kernel->name);
    }
    if (fault.empty() && world.config.computes && kernel->compute) {
      outside(world, lock, [&] {
        try {
          kernel->compute();
        } catch (const std::exception& thrown) {
          fault = thrown.what();
        }
      });
    }
    if (!fault.empty()) raise(world, stream, kCoreException, "AI core exception in " + kernel->name + ": " + fault);
  }

  void operator()(const CopyTask& copy) {
    begin(true);
    const bool within = is_device_address(copy.to) && is_device_address(copy.from);
    if (within)
      device_time(device_copy_micros(soc(world), copy.bytes), {0, 0, 1});
    else
      device_time(link_copy_micros(copy.bytes));
    void* to = resolve(world, copy.to, copy.bytes);
    const void* from = resolve(world, copy.from, copy.bytes);
    if (to == nullptr || from == nullptr) {
      raise(world, stream, kCoreException,
            "asynchronous copy: " + describe(to == nullptr ? copy.to : copy.from, copy.bytes) +
                ": freed or never allocated");
      return;
    }
    touch(copy.from, copy.bytes, false, task->name());
    touch(copy.to, copy.bytes, true, task->name());
    if (world.config.computes || copy.bytes <= kMovesAnyway) {
      outside(world, lock, [&] { std::memmove(to, from, copy.bytes); });
    }
  }

  void operator()(const CollectiveTask& what) {
    begin(true);
    const std::string problem = meet(what);
    if (!problem.empty()) raise(world, stream, kCoreException, std::string(what.name()) + ": " + problem);
  }

  // Waits for all ranks and moves their bytes; empty, or what is wrong.
  std::string meet(const CollectiveTask& what) {
    const void* from = locate(world, what.from, what.sent_bytes());
    void* to = locate(world, what.to, what.taken_bytes());
    if (from == nullptr || to == nullptr)
      return describe(from == nullptr ? what.from : what.to, from == nullptr ? what.sent_bytes() : what.taken_bytes()) +
             ": freed or never allocated";
    touch(what.from, what.sent_bytes(), false, task->name());
    touch(what.to, what.taken_bytes(), true, task->name());
    const bool moves = world.config.computes || what.taken_bytes() <= kMovesAnyway;
    const std::string problem = among_ranks(
        [&](double* clock, const auto& stopped) { return collect(what, moves ? from : nullptr, to, clock, stopped); });
    device_time(collective_micros(link_bytes(what)));
    return problem;
  }

  // Runs `body`, which waits for other ranks, outside of the mutex; empty, or what is wrong.
  template <typename Body>
  std::string among_ranks(const Body& body) {
    double clock = lane.clock;
    std::string problem;
    bool waits = false;
    const std::function<std::string()> stopped = [&]() -> std::string {
      Lock again(world.mutex);
      if (!waits) ++world.waiting;
      waits = true;
      return is_abandoned(stream) ? "the stream was stopped while it waited for other ranks" : "";
    };
    outside(world, lock, [&] { problem = body(&clock, stopped); });
    if (waits) --world.waiting;
    not_before(clock);
    return problem;
  }

  // A kernel that all ranks run: its time is that of a collective of what the fullest link carries.
  void together(const KernelTask& what, const std::shared_ptr<const Kernel>& kernel) {
    const Exchange& exchange = *kernel->exchange;
    std::string fault = fault_before(world, *kernel);
    for (const Touch& one : kernel->touches)
      if (fault.empty()) fault = touches(one.address, one.bytes, one.written, kernel->name);
    double bytes = exchange.even_bytes;
    if (fault.empty())
      fault = among_ranks([&](double* clock, const auto& stopped) {
        return meet_and_compute(exchange, kernel->name, what.meeting.get(), world.config.computes, clock, &bytes,
                                stopped);
      });
    const double micros = collective_micros(static_cast<size_t>(bytes));
    device_time(micros);
    auto& stats = world.stats.kernels[kernel->name];
    ++stats.count;
    stats.micros += micros;
    if (!fault.empty()) raise(world, stream, kCoreException, "AI core exception in " + kernel->name + ": " + fault);
  }

  void operator()(const FillTask& fill) {
    begin(true);
    device_time(device_copy_micros(soc(world), fill.bytes / 2), {0, 0, 1});  // only written
    void* to = locate(world, fill.to, fill.bytes);
    if (to == nullptr) {
      raise(world, stream, kCoreException, "asynchronous fill: " + describe(fill.to, fill.bytes) + ": not alive");
      return;
    }
    touch(fill.to, fill.bytes, true, task->name());
    if (world.config.computes || fill.bytes <= kMovesAnyway) {
      outside(world, lock, [&] { fill_bytes(to, fill.value, fill.bytes, is_device_address(fill.to)); });
    }
  }

  void operator()(const PrefetchTask& prefetch) {
    begin(true);
    device_time(prefetch_micros(soc(world), prefetch.bytes), {0, 0, 1});
    if (lane.steps) {
      const auto from = reinterpret_cast<uintptr_t>(prefetch.from);
      lane.steps->back().fills = {from, from + prefetch.bytes};
      lane.steps->back().before_filling = rate(Rate::PrefetchStart);
    }
    if (locate(world, prefetch.from, prefetch.bytes) == nullptr) {
      raise(world, stream, kCoreException, "prefetch: " + describe(prefetch.from, prefetch.bytes) + ": not alive");
      return;
    }
    touch(prefetch.from, prefetch.bytes, false, task->name());
    world.stats.prefetched += prefetch.bytes;
  }

  void operator()(const RecordTask& record) {
    begin(false);
    event_time();
    if (lane.steps) lane.steps->push_back({SharedStep::Kind::Record, 0, {}, record.mark.get()});
    if (++world.records == world.config.faults.event_at) return;  // lost
    record.mark->done = true;
    record.mark->stamp = lane.clock;
    record.mark->lane = lane.id;
    record.mark->order = lane.order;
  }

  void operator()(const WaitTask& wait) {
    begin(false);
    event_time();
    const Mark& mark = *wait.mark;
    const double hop = mark.lane == lane.id ? 0 : rate(Rate::Hop);
    if (lane.steps) lane.steps->push_back({SharedStep::Kind::Wait, hop, {}, &mark});
    lane.clock = std::max(lane.clock, mark.stamp + hop);
    lane.order.join(mark.order);
    if (!lane.in_graph) --wait.mark->waiting;
  }

  void operator()(const ResetTask& reset) { reset.mark->done = false; }

  void operator()(const ValueWriteTask& write) {
    begin(false);
    void* to = locate(world, write.address, sizeof write.value);
    if (to == nullptr) {
      raise(world, stream, kCoreException, "value write: " + describe(write.address, 8) + ": not alive");
      return;
    }
    __atomic_store_n(static_cast<uint64_t*>(to), write.value, __ATOMIC_RELEASE);
    const auto key = reinterpret_cast<uintptr_t>(write.address);
    world.value_stamps[key] = lane.clock;
    if (world.config.races) world.value_orders[key] = lane.order;
  }

  void operator()(const ValueWaitTask& wait) {
    begin(false);
    if (locate(world, wait.address, sizeof wait.value) == nullptr) {
      raise(world, stream, kCoreException, "value wait: " + describe(wait.address, 8) + ": not alive");
      return;
    }
    if (world.config.races) {
      lane.order.join(world.value_orders[reinterpret_cast<uintptr_t>(wait.address)]);
      lane.order.join(*world.host_order);  // the host may have written it
    }
    auto stamp = world.value_stamps.find(reinterpret_cast<uintptr_t>(wait.address));
    if (stamp != world.value_stamps.end()) not_before(stamp->second + rate(Rate::Hop));
  }

  void operator()(const HostTask& host) {
    begin(false);
    host_learns(world, lane.order);
    const double begin = lane.clock;
    double end = begin;
    outside(world, lock, [&] {
      ThreadState& thread = thread_state();
      thread.clock = begin;
      thread.in_callback = true;
      host.function(host.arguments);
      thread.in_callback = false;
      end = thread.clock;
    });
    not_before(end + rate(Rate::HostCallback));
    if (world.config.races) lane.order.join(*world.host_order);
  }

  void operator()(const CallbackTask& callback) {
    begin(false);
    auto report = std::make_shared<Report>();
    report->task = callback;
    report->clock = lane.clock;
    world.reports.push_back(report);
    host_learns(world, lane.order);
    moved(world);
    if (!callback.blocks) return;
    world.changed.wait(lock, [&] { return report->done || is_abandoned(stream); });
    not_before(report->clock);
  }

  void operator()(const GraphTask& replay);

  void operator()(const RewriteTask& rewrite) {
    begin(false);
    device_time(rate(Rate::Rewrite));
    const std::string& name = rewrite.kernel->name;
    const std::string race = touches(rewrite.target.get(), 1, true, "a task update of " + name);
    if (!race.empty()) raise(world, stream, kCoreException, race);
    std::get<KernelTask>(rewrite.target->what).kernel = rewrite.kernel;
    ++world.stats.updates;
  }
};

void Runner::operator()(const GraphTask& replay) {
  Graph& graph = *replay.graph;
  for (const auto& mark : graph.marks) *mark = Mark{};
  begin(true);
  std::vector<Lane> lanes(graph.lanes.size());
  // The first lane goes on in the stream's own order; further ones are handed back to it at the end.
  for (Lane& one : lanes) {
    one.id = &one == lanes.data() ? lane.id : world.next_lane++;
    one.clock = lane.clock;
    one.in_graph = true;
    one.order = lane.order;
  }
  // One stream has the chip to itself. Several are timed together once it is known what each did.
  const double started = lane.clock;
  std::vector<std::vector<SharedStep>> steps(lanes.size());
  if (lanes.size() > 1)
    for (size_t i = 0; i < lanes.size(); ++i) lanes[i].steps = &steps[i];
  std::vector<size_t> next(graph.lanes.size(), 0);
  ++world.stats.replays;
  while (!is_abandoned(stream)) {
    // Lanes that could go on now; their order is the device's business.
    std::vector<size_t> candidates;
    bool unfinished = false;
    for (size_t i = 0; i < lanes.size(); ++i) {
      const auto& tasks = graph.lanes[i].tasks;
      if (next[i] == tasks.size()) continue;
      unfinished = true;
      if (is_ready(world, *tasks[next[i]])) candidates.push_back(i);
    }
    if (!unfinished) break;
    if (candidates.empty()) {
      world.changed.wait(lock);
      continue;
    }
    const size_t pick = candidates[world.config.jitter ? stream.random() % candidates.size() : 0];
    execute(world, lock, stream, lanes[pick], graph.lanes[pick].tasks[next[pick]]);
    ++next[pick];
    moved(world);
  }
  if (lanes.size() > 1) {
    const std::vector<double> ends = shared_ends(steps, started, l2_cache(soc(world)));
    for (size_t i = 0; i < lanes.size(); ++i) lanes[i].clock = ends[i];
  }
  for (const Lane& one : lanes) {
    lane.clock = std::max(lane.clock, one.clock);
    lane.order.join(one.order);
  }
  if (world.config.races) {
    for (size_t i = 1; i < lanes.size(); ++i) world.accesses.hand_over(lanes[i].id, lane.order, lane.id);
  }
  lane.busy_before = true;
  drop(world, *task);
}

}  // namespace

std::string Task::name() const {
  struct Names {
    std::string operator()(const KernelTask& task) const { return task.kernel->name; }
    std::string operator()(const CopyTask&) const { return "asynchronous copy"; }
    std::string operator()(const CollectiveTask& task) const { return task.name(); }
    std::string operator()(const FillTask&) const { return "asynchronous fill"; }
    std::string operator()(const PrefetchTask&) const { return "prefetch"; }
    std::string operator()(const RecordTask&) const { return "event record"; }
    std::string operator()(const WaitTask&) const { return "event wait"; }
    std::string operator()(const ResetTask&) const { return "event reset"; }
    std::string operator()(const ValueWriteTask&) const { return "value write"; }
    std::string operator()(const ValueWaitTask&) const { return "value wait"; }
    std::string operator()(const HostTask&) const { return "host function"; }
    std::string operator()(const CallbackTask&) const { return "host callback"; }
    std::string operator()(const GraphTask&) const { return "graph"; }
    std::string operator()(const RewriteTask&) const { return "task update"; }
  };
  return std::visit(Names{}, what);
}

bool is_ready(World& world, const Task& task) {
  if (const auto* wait = std::get_if<WaitTask>(&task.what)) return wait->mark->done;
  const auto* wait = std::get_if<ValueWaitTask>(&task.what);
  if (wait == nullptr) return true;
  const void* at = locate(world, wait->address, sizeof wait->value);
  if (at == nullptr) return true;  // running it tells the fault
  const uint64_t value = __atomic_load_n(static_cast<const uint64_t*>(at), __ATOMIC_ACQUIRE);
  switch (wait->flag) {
    case ACL_STREAM_WAIT_VALUE_GEQ: return static_cast<int64_t>(value - wait->value) >= 0;
    case ACL_STREAM_WAIT_VALUE_EQ: return value == wait->value;
    case ACL_STREAM_WAIT_VALUE_AND: return (value & wait->value) != 0;
    default: return ~(value | wait->value) != 0;
  }
}

void execute(World& world, Lock& lock, Stream& stream, Lane& lane, const std::shared_ptr<Task>& task) {
  ++world.stats.tasks;
  std::visit(Runner{world, lock, stream, lane, task}, task->what);
}

void drop(World& world, const Task& task) {
  if (const auto* wait = std::get_if<WaitTask>(&task.what)) --wait->mark->waiting;
  const auto* replay = std::get_if<GraphTask>(&task.what);
  if (replay == nullptr) return;
  Graph& graph = *replay->graph;
  world.replays.erase(replay->replay);
  if (--graph.executions > 0) return;
  graph.running_on = -1;
  if (world.config.new_stack) world.devices[graph.context->device].queues -= graph.queues();
}

void* host_address(const void* device_address) {
  World& all = world();
  void* at = locate(all, device_address, 1);
  if (at == nullptr) throw DeviceFault(describe(device_address, 1) + ": not alive");
  return at;
}

}  // namespace ascend_sim

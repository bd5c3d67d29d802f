#include "ascend/runtime/world.h"

#include <algorithm>

namespace ascend_sim {

namespace {
thread_local ThreadState state;
}

World& world() {
  // Never destroyed: workers may outlive main().
  static World& only = *new World;
  return only;
}

ThreadState& thread_state() {
  const uint64_t epoch = world().epoch.load();
  if (state.epoch != epoch) {
    // Texts and the call under way survive: aclInit itself may fail.
    std::string recent = std::move(state.recent);
    const char* call = state.call;
    state = ThreadState{};
    state.recent = std::move(recent);
    state.call = call;
    state.epoch = epoch;
  }
  return state;
}

void* World::new_handle() {
  // No address at all, so that following a handle faults.
  return reinterpret_cast<void*>((uint64_t{1} << 61) + 16 * next_handle++);
}

Memory& World::memory(int device) {
  auto& memory = memories[device];
  if (!memory) {
    memory = std::make_unique<Memory>(device, config.hbm_bytes, config.computes);
    if (config.faults.free_bytes) memory->leave(*config.faults.free_bytes);
  }
  return *memory;
}

void moved(World& world) {
  ++world.progress;
  world.changed.notify_all();
}

void host_learns(World& world, const Order& order) {
  if (!world.config.races) return;
  auto known = std::make_shared<Order>(*world.host_order);
  known->join(order);
  std::vector<const Order*> orders = {known.get()};
  const auto add_front = [&](const Stream& stream) {
    if (!stream.queue.empty() && stream.queue.front()->host) orders.push_back(stream.queue.front()->host.get());
  };
  for (const auto& [handle, stream] : world.streams) add_front(*stream);
  for (const auto& [handle, context] : world.contexts) add_front(*context->default_stream);
  world.accesses.prune(orders);
  world.host_order = std::move(known);
}

std::string host_access(World& world, const void* address, size_t bytes, bool written, const std::string& name) {
  if (!world.config.races) return "";
  auto known = std::make_shared<Order>(*world.host_order);
  std::string race = world.accesses.note(*known, kHostLane, address, bytes, written, name);
  world.host_order = std::move(known);
  if (!race.empty()) ++world.stats.races;
  return race;
}

Waited wait_until(World& world, Lock& lock, int timeout_ms, const std::function<bool()>& condition) {
  using Clock = std::chrono::steady_clock;
  const auto tick = std::chrono::milliseconds(5);
  const auto hang = std::chrono::milliseconds(world.config.hang_ms);
  auto seen = world.progress;
  auto moved_at = Clock::now();
  // Only time in which nothing moves counts: how long this machine computes says nothing about the device.
  auto idle = std::chrono::steady_clock::duration::zero();
  auto before = Clock::now();
  while (!condition()) {
    world.changed.wait_for(lock, tick);
    const auto now = Clock::now();
    if (world.busy <= world.waiting && world.progress == seen) idle += now - before;
    before = now;
    if (world.progress != seen || world.busy > 0) {
      seen = world.progress;
      moved_at = now;
    }
    if (condition()) break;
    if (timeout_ms >= 0 && idle >= std::chrono::milliseconds(timeout_ms)) return Waited::TimedOut;
    if (now - moved_at >= hang) return Waited::Hung;
  }
  return Waited::Done;
}

int refuse(int code, const std::string& text) {
  ++world().stats.refused[code];
  return fail(code, std::string(thread_state().call) + ": " + text);
}

int fail(int code, std::string text) {
  ThreadState& thread = thread_state();
  thread.recent = std::to_string(code) + ": " + std::move(text);
  thread.last_error = code;
  return code;
}

void charge_host(double microseconds) { thread_state().clock += microseconds; }

// What operators spend. The configuration stays as aclInit read it.
void spend_host(double microseconds) { charge_host(microseconds * world().config.launch_factor); }

bool updating() {
  World& all = world();
  Lock lock(all.mutex);
  auto it = all.updating.find(std::this_thread::get_id());
  return it != all.updating.end() && it->second > 0;
}

const Machine& machine() { return world().machine; }

int api(const char* name, double host_micros, const std::function<int(World&, Lock&)>& body) {
  World& all = world();
  Lock lock(all.mutex);
  ThreadState& thread = thread_state();
  thread.call = name;
  if (!all.initialised) return refuse(kUninitialized, "aclInit was not called");
  thread.clock += host_micros;
  return body(all, lock);
}

int current_context(World& world, std::shared_ptr<Context>* context) {
  *context = thread_state().context;
  if (*context && (*context)->alive) return 0;
  return refuse(kContextNull, "this thread has no device; call aclrtSetDevice or aclrtSetCurrentContext first");
}

int find_stream(World& world, void* handle, std::shared_ptr<Stream>* stream) {
  std::shared_ptr<Context> context;
  ASCEND_SIM_TRY(current_context(world, &context));
  if (handle == nullptr) {
    *stream = context->default_stream;
    return 0;
  }
  auto it = world.streams.find(handle);
  if (it == world.streams.end()) return refuse(kInvalidHandle, "not a stream, or one that was destroyed");
  *stream = it->second;
  if ((*stream)->context == context) return 0;
  return refuse(kStreamContext, "the stream belongs to another context than the thread's current one");
}

int find_event(World& world, void* handle, std::shared_ptr<Event>* event) {
  if (handle == nullptr) return refuse(kParamInvalid, "the event is null");
  auto it = world.events.find(handle);
  if (it == world.events.end()) return refuse(kInvalidHandle, "not an event, or one that was destroyed");
  *event = it->second;
  return 0;
}

int find_graph(World& world, void* handle, std::shared_ptr<Graph>* graph) {
  if (handle == nullptr) return refuse(kParamInvalid, "the graph is null");
  auto it = world.graphs.find(handle);
  if (it == world.graphs.end()) return refuse(kInvalidHandle, "not a graph, or one that was destroyed");
  *graph = it->second;
  return 0;
}

bool is_pinned(const World& world, const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  auto it = world.pinned.upper_bound(begin);
  if (it == world.pinned.begin()) return false;
  --it;
  return begin + bytes <= it->first + it->second;
}

int check_not_in_callback() {
  if (!thread_state().in_callback) return 0;
  return refuse(kNotSupported, "a host callback may not synchronise, allocate or launch");
}

int check_post_8_1(const World& world) {
  if (world.config.cann != Cann::V8_1) return 0;
  return refuse(kNotSupported, "this symbol is younger than CANN 8.1.RC1 (ASCEND_SIM_CANN=8.1)");
}

size_t Graph::tasks() const {
  size_t count = 0;
  for (const GraphLane& lane : lanes) count += lane.tasks.size();
  return count;
}

int Graph::queues() const {
  int count = 0;
  for (const GraphLane& lane : lanes) count += lane.queues;
  return count;
}

}  // namespace ascend_sim

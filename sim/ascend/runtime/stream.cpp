#include "ascend/runtime/stream.h"

#include <algorithm>
#include <utility>

#include "ascend/runtime/capture.h"
#include "ascend/runtime/update.h"

namespace ascend_sim {
namespace {

// Streams only promise an order within themselves; delays bring out what relied on more.
void delay(World& world, Lock& lock, Stream& stream) {
  if (!world.config.jitter || stream.random() % 4 != 0) return;
  const auto pause = std::chrono::microseconds(stream.random() % 300);
  ++world.busy;
  lock.unlock();
  std::this_thread::sleep_for(pause);
  lock.lock();
  --world.busy;
}

// False: the wait timed out, and said so.
bool wait_for_start(World& world, Lock& lock, Stream& stream, const Task& task) {
  const auto* wait = std::get_if<WaitTask>(&task.what);
  const auto can_go_on = [&] { return is_ready(world, task) || is_abandoned(stream); };
  if (wait == nullptr || wait->seconds == 0) {
    world.changed.wait(lock, can_go_on);
    return true;
  }
  if (world.changed.wait_for(lock, std::chrono::seconds(wait->seconds), can_go_on)) return true;
  raise(world, stream, kWaitTimeout,
        "the stream waited more than " + std::to_string(wait->seconds) + " s for an event");
  return false;
}

void work(const std::shared_ptr<Stream>& stream) {
  World& all = world();
  Lock lock(all.mutex);
  while (true) {
    all.changed.wait(lock, [&] { return stream->stopping || !stream->queue.empty(); });
    if (stream->stopping) return;
    const std::shared_ptr<Task> task = stream->queue.front();
    delay(all, lock, *stream);
    const bool starts = wait_for_start(all, lock, *stream, *task);
    if (is_abandoned(*stream) || !starts) {
      drop(all, *task);
    } else {
      execute(all, lock, *stream, stream->lane, task);
    }
    stream->queue.pop_front();
    stream->ends[stream->finished++ % kStreamDepth] = stream->lane.clock;
    moved(all);
  }
}

int enqueue(World& world, Lock& lock, const std::shared_ptr<Stream>& stream, Task task) {
  ThreadState& thread = thread_state();
  const auto has_room = [&] { return stream->queue.size() < kStreamDepth || is_abandoned(*stream); };
  if (!has_room() && wait_until(world, lock, -1, has_room) == Waited::Hung) {
    return refuse(kStreamSyncTimeout, "the queue of the stream is full and nothing in it moves");
  }
  if (stream->stopping) return refuse(kStreamAbort, "the stream was destroyed meanwhile");
  if (stream->context->error != 0) return refuse(stream->context->error, stream->context->error_text);
  if (stream->launched >= kStreamDepth) {
    // The entry that this task takes was free only when an earlier task ended.
    thread.clock = std::max(thread.clock, stream->ends[stream->launched % kStreamDepth]);
  }
  task.launched = thread.clock;
  if (world.config.races) task.host = world.host_order;
  if (auto* wait = std::get_if<WaitTask>(&task.what)) ++wait->mark->waiting;
  stream->queue.push_back(std::make_shared<Task>(std::move(task)));
  ++stream->launched;
  if (!stream->worker.joinable()) stream->worker = std::thread(work, stream);
  moved(world);
  return 0;
}

}  // namespace

bool take_queues(World& world, int device, int count) {
  if (++world.queues_made == world.config.faults.stream_at) return false;
  int& used = world.devices[device].queues;
  if (used + count > kHardwareQueues) return false;
  used += count;
  return true;
}

int make_stream(World& world, const std::shared_ptr<Context>& context, bool is_default, bool holds_queue,
                std::shared_ptr<Stream>* stream) {
  Device& device = world.devices[context->device];
  if (world.config.new_stack && device.streams >= kStreamsNewStack) {
    return refuse(kNoStream, "no stream left: all " + std::to_string(kStreamsNewStack) + " are in use");
  }
  // On the old stack every stream holds a queue for life.
  const bool queue = holds_queue || !world.config.new_stack;
  if (queue && !take_queues(world, context->device, 1)) {
    return refuse(kNoStream, "alloc sq cq fail: " + std::to_string(device.queues) + " of " +
                                 std::to_string(kHardwareQueues) + " queues of the device are in use");
  }
  ++device.streams;
  auto made = std::make_shared<Stream>();
  made->handle = world.new_handle();
  made->id = static_cast<int32_t>(world.next_lane);
  made->context = context;
  made->is_default = is_default;
  made->holds_queue = queue;
  made->ends.resize(kStreamDepth);
  made->lane.id = world.next_lane++;
  made->random.seed(static_cast<unsigned>(world.config.jitter.value_or(0) + 7919 * made->lane.id));
  if (!is_default) world.streams[made->handle] = made;
  *stream = made;
  return 0;
}

void stop_stream(World& world, Lock& lock, const std::shared_ptr<Stream>& stream) {
  if (stream->stopping) return;
  stream->stopping = true;
  world.streams.erase(stream->handle);
  moved(world);
  std::thread worker = std::move(stream->worker);
  if (worker.joinable()) {
    lock.unlock();
    worker.join();
    lock.lock();
  }
  for (const auto& task : stream->queue) drop(world, *task);
  stream->queue.clear();
  if (stream->update) abandon_update(world, *stream);
  Device& device = world.devices[stream->context->device];
  --device.streams;
  if (stream->holds_queue) --device.queues;
  moved(world);
}

int submit(World& world, Lock& lock, const std::shared_ptr<Stream>& stream, Task task) {
  ASCEND_SIM_TRY(check_not_in_callback());
  if (stream->capture) return capture_task(world, *stream, std::move(task));
  if (!stream->update) return enqueue(world, lock, stream, std::move(task));
  RewriteTask rewrite;
  ASCEND_SIM_TRY(redirect(*stream, task, &rewrite));
  charge_host(update_micros(world.config.rates));
  return enqueue(world, lock, stream, Task{std::move(rewrite), 0});
}

int take_error(Stream& stream) {
  const Context& context = *stream.context;
  if (context.error != 0) return refuse(context.error, context.error_text);
  if (stream.error == 0) return 0;
  const int code = std::exchange(stream.error, 0);
  return refuse(code, std::exchange(stream.error_text, ""));
}

int synchronise(World& world, Lock& lock, const std::shared_ptr<Stream>& stream, int timeout_ms) {
  ASCEND_SIM_TRY(check_not_in_callback());
  ThreadState& thread = thread_state();
  const uint64_t target = stream->launched;
  const auto done = [&] { return stream->finished >= target || is_abandoned(*stream); };
  const Waited waited = wait_until(world, lock, timeout_ms, done);
  if (waited != Waited::Done) {
    const std::string head = stream->queue.empty() ? "" : "; it is at " + stream->queue.front()->name();
    return refuse(kStreamSyncTimeout,
                  (waited == Waited::TimedOut
                       ? "the stream did not finish within " + std::to_string(timeout_ms) + " ms"
                       : "the stream hangs: nothing moved for " + std::to_string(world.config.hang_ms) + " ms") +
                      head);
  }
  if (stream->stopping) return refuse(kStreamAbort, "the stream was destroyed meanwhile");
  const bool known = target > 0 && stream->finished - target < kStreamDepth;
  const double end = known ? stream->ends[(target - 1) % kStreamDepth] : stream->lane.clock;
  thread.clock = std::max(thread.clock, end) + rate(Rate::HostSync);
  host_learns(world, stream->lane.order);
  return take_error(*stream);
}

void learn(const World& world, std::set<uint64_t>& into, const std::set<uint64_t>& from) {
  into.insert(from.begin(), from.end());
  std::erase_if(into, [&](uint64_t replay) { return world.replays.count(replay) == 0; });
}

bool is_abandoned(const Stream& stream) { return stream.stopping || stream.context->error != 0; }

void raise(World& world, Stream& stream, int code, const std::string& text) {
  if (stream.error == 0) {
    stream.error = code;
    stream.error_text = text;
  }
  Context& context = *stream.context;
  if (context.stops_on_failure && context.error == 0) {
    context.error = code;
    context.error_text = text;
  }
  moved(world);
}

}  // namespace ascend_sim

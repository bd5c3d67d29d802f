#include "ascend/runtime/capture.h"

#include <algorithm>

#include "ascend/runtime/stream.h"

namespace ascend_sim {
namespace {

// A queue of a capture: what the runtime keeps free in it, and its depth.
constexpr int kQueueDepth = 2048;
constexpr int kQueueReserve = 32;
constexpr int kGroupNoOps = 8;  // as many as the device fetches ahead

int invalidate(Capture& capture, int code, const std::string& text) {
  capture.invalidated = true;
  return refuse(code, text + "; the capture is invalid now");
}

// On the old stack a queue of the hardware for the life of the graph, on the new one a number of the runtime.
bool take_capture_queue(World& world, int device) {
  if (!world.config.new_stack) return take_queues(world, device, 1);
  if (++world.queues_made == world.config.faults.stream_at) return false;
  if (world.devices[device].streams >= kStreamsNewStack) return false;
  ++world.devices[device].streams;
  return true;
}

std::string no_queue(const World& world, int device) {
  return "alloc sq cq fail: no queue left for the capture; " + std::to_string(world.devices[device].queues) + " of " +
         std::to_string(kHardwareQueues) + " queues of the device are in use";
}

// Room for so many further entries, in a cascaded queue if need be.
int make_room(World& world, Capture& capture, GraphLane& lane, int entries) {
  if (lane.entries + kQueueReserve + entries < kQueueDepth) return 0;
  const int device = capture.graph->context->device;
  if (!take_capture_queue(world, device)) return invalidate(capture, kNoStream, no_queue(world, device));
  ++lane.queues;
  lane.entries = 1;  // what links the queues
  return 0;
}

int check_valid(const Capture& capture) {
  return capture.invalidated ? refuse(kCaptureInvalidated, "the capture of this stream is invalid; end it") : 0;
}

int new_record(Capture& capture, Event& event, const std::shared_ptr<Capture>& owner) {
  Capture::Record record;
  record.mark = std::make_shared<Mark>();
  capture.graph->marks.push_back(record.mark);
  capture.records.push_back(std::move(record));
  event.capture = owner;
  event.capture_record = static_cast<int>(capture.records.size()) - 1;
  event.mark = nullptr;
  return event.capture_record;
}

// Whether what the lane did last is a record that leads back to the first lane.
bool is_joined(const Capture& capture, int lane, std::set<int>* visited) {
  if (lane == 0) return true;
  if (!visited->insert(lane).second) return false;
  const auto& tasks = capture.graph->lanes[lane].tasks;
  if (tasks.empty()) return false;
  for (const Capture::Record& record : capture.records) {
    if (!record.recorded || record.task != tasks.back().get()) continue;
    for (const int waiter : record.waited_by) {
      if (is_joined(capture, waiter, visited)) return true;
    }
  }
  return false;
}

// 0 or the code that ends the capture, with its text.
int judge(World& world, const Capture& capture, std::string* text) {
  if (capture.mode != ACL_MODEL_RI_CAPTURE_MODE_RELAXED && capture.thread != std::this_thread::get_id()) {
    *text = "another thread began this capture, and its mode is not relaxed";
    return kCaptureWrongThread;
  }
  if (capture.invalidated) {
    *text = "the capture was invalidated by an earlier error";
    return kCaptureInvalidated;
  }
  if (capture.group) {
    *text = "a task group is still open";
    return kTaskGroupStatus;
  }
  for (size_t lane = 1; lane < capture.members.size(); ++lane) {
    std::set<int> visited;
    if (is_joined(capture, static_cast<int>(lane), &visited)) continue;
    *text = "stream " + std::to_string(capture.members[lane]->id) +
            " was forked and not joined: its last task must be a record that the first stream waits for";
    return kStreamUnjoined;
  }
  for (const Capture::Record& record : capture.records) {
    if (record.recorded) continue;
    *text = "an event is waited for in the capture and never recorded in it";
    return kCaptureDependency;
  }
  if (++world.captures_ended == world.config.faults.capture_end_at) {
    *text = "fault on demand (ASCEND_SIM_FAULT)";
    return kCaptureInvalidated;
  }
  return 0;
}

int check_event_family(const Event& event) {
  if (event.family == Event::Family::External) return 0;
  if (event.family == Event::Family::Ex && (event.flags & ACL_EVENT_SYNC) != 0) return 0;
  return refuse(kNotSupported,
                "a capture takes events of aclrtCreateEventExWithFlag with ACL_EVENT_SYNC, and external ones");
}

}  // namespace

int check_not_captured(const Stream& stream, const char* what) {
  if (!stream.capture) return 0;
  return refuse(kStreamCaptured, std::string("not allowed to ") + what + " a capturing stream");
}

int check_not_captured(const Event& event, const char* what) {
  if (event.capture.expired()) return 0;
  return refuse(kEventCaptured, std::string("not allowed to ") + what + " an event of a capture");
}

bool any_capture(const World& world, const Context& context) {
  return std::any_of(world.captures.begin(), world.captures.end(),
                     [&](const auto& capture) { return capture->graph->context.get() == &context; });
}

bool unsafe_call_allowed(const World& world, const Context& context) {
  bool global = false, own_local = false, own_global = false;
  for (const auto& capture : world.captures) {
    if (capture->graph->context.get() != &context) continue;
    const bool own = capture->thread == std::this_thread::get_id();
    const bool is_global = capture->mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
    global = global || is_global;
    own_global = own_global || (own && is_global);
    own_local = own_local || (own && capture->mode == ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL);
  }
  switch (thread_state().mode) {
    case ACL_MODEL_RI_CAPTURE_MODE_RELAXED: return true;
    case ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL: return !own_global && !own_local;
    case ACL_MODEL_RI_CAPTURE_MODE_GLOBAL: return !global && !own_local;
  }
  return true;
}

int begin_capture(World& world, const std::shared_ptr<Stream>& stream, int mode) {
  if (stream->is_default) return refuse(kNotSupported, "the default stream cannot be captured");
  if ((stream->flags & (ACL_STREAM_CPU_SCHEDULE | ACL_STREAM_DEVICE_USE_ONLY)) != 0) {
    return refuse(kNotSupported, "a stream for the device's own use cannot be captured");
  }
  if (stream->capture) return refuse(kStreamCaptured, "the stream is capturing already");
  if (stream->update) return refuse(kTaskGroupStatus, "a task update is open on the stream");
  if (mode < ACL_MODEL_RI_CAPTURE_MODE_GLOBAL || mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
    return refuse(kParamInvalid, "the mode is " + std::to_string(mode) + "; allowed: 0, 1, 2");
  }
  const int device = stream->context->device;
  if (!take_capture_queue(world, device)) return refuse(kNoStream, no_queue(world, device));
  auto capture = std::make_shared<Capture>();
  capture->mode = static_cast<aclmdlRICaptureMode>(mode);
  capture->thread = std::this_thread::get_id();
  capture->graph = std::make_shared<Graph>();
  capture->graph->handle = world.new_handle();
  capture->graph->id = static_cast<uint32_t>(world.next_lane++);
  capture->graph->context = stream->context;
  capture->graph->lanes.emplace_back();
  capture->members.push_back(stream);
  stream->capture = capture;
  stream->capture_lane = 0;
  world.graphs[capture->graph->handle] = capture->graph;
  world.captures.push_back(capture);
  return 0;
}

int end_capture(World& world, const std::shared_ptr<Stream>& stream, std::shared_ptr<Graph>* graph) {
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) return refuse(kStreamNotCaptured, "the stream is not capturing");
  if (capture->members.front() != stream) return refuse(kCaptureUnmatched, "another stream began this capture");
  std::string text;
  const int code = judge(world, *capture, &text);
  tear_down(world, capture, code == 0);
  if (code != 0) return refuse(code, text);
  capture->graph->ready = true;
  *graph = capture->graph;
  return 0;
}

void tear_down(World& world, const std::shared_ptr<Capture>& capture, bool keep) {
  for (const auto& member : capture->members) {
    member->capture = nullptr;
    member->capture_lane = -1;
  }
  for (const auto& [handle, event] : world.events) {
    if (event->capture.lock() == capture) event->capture.reset();
  }
  capture->graph->capturing = false;
  std::erase(world.captures, capture);
  if (!keep) forget_graph(world, *capture->graph);
}

void forget_graph(World& world, Graph& graph) {
  if (world.graphs.erase(graph.handle) == 0) return;
  Device& device = world.devices[graph.context->device];
  (world.config.new_stack ? device.streams : device.queues) -= graph.queues();
  for (const GraphLane& lane : graph.lanes) {
    for (const auto& task : lane.tasks) {
      if (task->in_group) world.accesses.forget(task.get(), 1);
    }
  }
  for (void* group : graph.groups) world.groups.erase(group);
}

int capture_task(World& world, Stream& stream, Task task) {
  Capture& capture = *stream.capture;
  ASCEND_SIM_TRY(check_valid(capture));
  if (capture.group && capture.group_stream != &stream) {
    return invalidate(capture, kTaskGroupInterrupted, "a task group is open on another stream of the capture");
  }
  if (capture.group && !task.is_kernel()) {
    return invalidate(capture, kTaskType, refusal(Rule::GroupKernelsOnly, task.name()));
  }
  if (capture.group && std::get<KernelTask>(task.what).kernel->unit == Unit::AiCpu) {
    return invalidate(capture, kTaskType, refusal(Rule::GroupAiCpu, task.name()));
  }
  GraphLane& lane = capture.graph->lanes[stream.capture_lane];
  ASCEND_SIM_TRY(make_room(world, capture, lane, 1));
  ++lane.entries;
  lane.tasks.push_back(std::make_shared<Task>(std::move(task)));
  if (!capture.group) return 0;
  lane.tasks.back()->in_group = true;
  capture.group->tasks.push_back(lane.tasks.back());
  return 0;
}

int capture_record(World& world, Stream& stream, const std::shared_ptr<Event>& event) {
  const std::shared_ptr<Capture> capture = stream.capture;
  ASCEND_SIM_TRY(check_valid(*capture));
  ASCEND_SIM_TRY(check_event_family(*event));
  if (event->family == Event::Family::External) return capture_task(world, stream, Task{RecordTask{event->mark}, 0});
  const std::shared_ptr<Capture> other = event->capture.lock();
  if (other && other != capture) return invalidate(*capture, kCaptureConflict, "the event belongs to another capture");
  // A wait may have come first; it waits for this record.
  const bool awaited = other && !capture->records[event->capture_record].recorded;
  const int index = awaited ? event->capture_record : new_record(*capture, *event, capture);
  ASCEND_SIM_TRY(capture_task(world, stream, Task{RecordTask{capture->records[index].mark}, 0}));
  Capture::Record& record = capture->records[index];
  record.recorded = true;
  record.lane = stream.capture_lane;
  record.task = capture->graph->lanes[stream.capture_lane].tasks.back().get();
  return 0;
}

namespace {

// A stream that waits for an event of a capture takes part in it from then on.
int join_capture(World& world, const std::shared_ptr<Stream>& stream, const std::shared_ptr<Capture>& capture) {
  ASCEND_SIM_TRY(check_valid(*capture));
  if (stream->is_default) {
    return invalidate(*capture, kCaptureImplicit, "the default stream would be pulled into a capture");
  }
  if (stream->update) return invalidate(*capture, kTaskGroupStatus, "a task update is open on the stream");
  if (stream->context != capture->graph->context) {
    return invalidate(*capture, kStreamContext, "the stream belongs to another context than the capture");
  }
  const int device = stream->context->device;
  if (!take_capture_queue(world, device)) return invalidate(*capture, kNoStream, no_queue(world, device));
  capture->graph->lanes.emplace_back();
  capture->members.push_back(stream);
  stream->capture = capture;
  stream->capture_lane = static_cast<int>(capture->members.size()) - 1;
  return 0;
}

}  // namespace

int capture_wait(World& world, const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event) {
  const std::shared_ptr<Capture> other = event->capture.lock();
  if (!stream->capture) {
    if (!other->records[event->capture_record].recorded) {
      return refuse(kEventCaptured, "a capture waits for this event, which was not recorded in it yet");
    }
    ASCEND_SIM_TRY(join_capture(world, stream, other));
  } else {
    const std::shared_ptr<Capture> capture = stream->capture;
    ASCEND_SIM_TRY(check_valid(*capture));
    ASCEND_SIM_TRY(check_event_family(*event));
    if (event->family == Event::Family::External) return capture_task(world, *stream, Task{WaitTask{event->mark}, 0});
    if (other && other != capture) {
      other->invalidated = true;
      return invalidate(*capture, kCaptureConflict, "the event belongs to another capture; the two would merge");
    }
    if (!other && event->mark) {
      return invalidate(*capture, kCaptureDependency, "the event was recorded outside of the capture");
    }
    if (!other) new_record(*capture, *event, capture);
  }
  Capture::Record& record = stream->capture->records[event->capture_record];
  ASCEND_SIM_TRY(capture_task(world, *stream, Task{WaitTask{record.mark}, 0}));
  record.waited_by.insert(stream->capture_lane);
  return 0;
}

int begin_group(World& world, const std::shared_ptr<Stream>& stream) {
  if (!stream->capture) return refuse(kStreamNotCaptured, "the stream is not capturing");
  Capture& capture = *stream->capture;
  ASCEND_SIM_TRY(check_valid(capture));
  if (capture.group && capture.group_stream != stream.get()) {
    return invalidate(capture, kTaskGroupInterrupted, "a task group is open on another stream of the capture");
  }
  if (capture.group) return refuse(kTaskGroupStatus, "a task group is open on the stream already");
  GraphLane& lane = capture.graph->lanes[stream->capture_lane];
  ASCEND_SIM_TRY(make_room(world, capture, lane, kGroupNoOps + 1));
  lane.entries += kGroupNoOps;
  capture.group = std::make_shared<TaskGroup>();
  capture.group->graph = capture.graph;
  capture.group_stream = stream.get();
  return 0;
}

int end_group(World& world, const std::shared_ptr<Stream>& stream, std::shared_ptr<TaskGroup>* group) {
  if (!stream->capture) return refuse(kStreamNotCaptured, "the stream is not capturing");
  Capture& capture = *stream->capture;
  ASCEND_SIM_TRY(check_valid(capture));
  if (!capture.group || capture.group_stream != stream.get()) {
    return refuse(kTaskGroupStatus, "no task group is open on the stream");
  }
  *group = std::move(capture.group);
  capture.group = nullptr;
  capture.group_stream = nullptr;
  (*group)->handle = world.new_handle();
  world.groups[(*group)->handle] = *group;
  capture.graph->groups.push_back((*group)->handle);
  return 0;
}

}  // namespace ascend_sim

// Events, and values in device memory that streams wait for.
#include <algorithm>

#include "ascend/runtime/capture.h"
#include "ascend/runtime/stream.h"

using namespace ascend_sim;

namespace {

const double kAsk = rate(Rate::HostCall);
const double kMake = rate(Rate::HostCreate);
const double kQueue = rate(Rate::HostEvent);

constexpr uint32_t kExFlags = ACL_EVENT_SYNC | ACL_EVENT_CAPTURE_STREAM_PROGRESS | ACL_EVENT_TIME_LINE |
                              ACL_EVENT_DEVICE_USE_ONLY | ACL_EVENT_IPC;

int create(const char* name, aclrtEvent* event, uint32_t flags, Event::Family family) {
  return api(name, kMake, [&](World& world, Lock&) {
    if (event == nullptr) return refuse(kParamInvalid, "event is null");
    std::shared_ptr<Context> context;
    ASCEND_SIM_TRY(current_context(world, &context));
    Device& device = world.devices[context->device];
    if (device.events >= kEventsPerDevice) {
      return refuse(kNoEvent, "all " + std::to_string(kEventsPerDevice) + " events of the device are in use");
    }
    ++device.events;
    auto made = std::make_shared<Event>();
    made->handle = world.new_handle();
    made->family = family;
    made->flags = flags;
    made->device = context->device;
    if (family != Event::Family::Ex) made->mark = std::make_shared<Mark>();
    world.events[made->handle] = made;
    *event = made->handle;
    return 0;
  });
}

int wait_for(const char* name, aclrtStream stream, aclrtEvent event, int seconds, bool post_8_1) {
  return api(name, kQueue, [&](World& world, Lock& lock) {
    if (post_8_1) ASCEND_SIM_TRY(check_post_8_1(world));
    if (seconds < 0) return refuse(kParamInvalid, "the timeout is 0 (for ever) or a number of seconds");
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    std::shared_ptr<Event> awaited;
    ASCEND_SIM_TRY(find_event(world, event, &awaited));
    if (found->capture || !awaited->capture.expired()) return capture_wait(world, found, awaited);
    if (!awaited->mark) return 0;  // never recorded
    learn(world, found->after, awaited->mark->after);
    return submit(world, lock, found, Task{WaitTask{awaited->mark, seconds > 0 ? seconds : world.wait_seconds}, 0});
  });
}

int synchronise_event(const char* name, aclrtEvent event, int timeout_ms) {
  return api(name, kNoCost, [&](World& world, Lock& lock) {
    ASCEND_SIM_TRY(check_not_in_callback());
    if (timeout_ms == 0 || timeout_ms < -1) return refuse(kParamInvalid, "the timeout is -1 (for ever) or above 0");
    std::shared_ptr<Event> found;
    ASCEND_SIM_TRY(find_event(world, event, &found));
    if (found->family == Event::Family::External)
      return refuse(kNotSupported, "the host cannot wait for an external event");
    ASCEND_SIM_TRY(check_not_captured(*found, "synchronise"));
    const std::shared_ptr<Mark> mark = found->mark;
    const std::shared_ptr<Context> context = thread_state().context;
    if (mark) {
      const auto failed = [&] { return context && context->error != 0; };
      const auto ended = [&] { return !world.initialised || (context && !context->alive); };
      const Waited waited = wait_until(world, lock, timeout_ms, [&] { return mark->done || failed() || ended(); });
      if (waited != Waited::Done) {
        return refuse(kEventSyncTimeout, waited == Waited::TimedOut
                                             ? "the event was not reached within " + std::to_string(timeout_ms) + " ms"
                                             : "the event is never reached: nothing moved for " +
                                                   std::to_string(world.config.hang_ms) + " ms");
      }
      if (failed()) return refuse(context->error, context->error_text);
      if (!mark->done) return refuse(kStreamAbort, "the device was reset meanwhile");
    }
    ThreadState& thread = thread_state();
    thread.clock = std::max(thread.clock, mark ? mark->stamp : 0) + rate(Rate::HostSync);
    if (mark) host_learns(world, mark->order);
    return 0;
  });
}

// The stamp of an event that was recorded and reached, with the timeline flag.
int stamp_of(World& world, aclrtEvent event, double* stamp) {
  std::shared_ptr<Event> found;
  ASCEND_SIM_TRY(find_event(world, event, &found));
  ASCEND_SIM_TRY(check_not_captured(*found, "read the time of"));
  if (found->flags != 0 && (found->flags & ACL_EVENT_TIME_LINE) == 0) {
    return refuse(kTimestampInvalid, "the event was created without ACL_EVENT_TIME_LINE");
  }
  if (!found->mark || !found->mark->done) return refuse(kTimestampInvalid, "the event is not recorded yet");
  *stamp = found->mark->stamp;
  return 0;
}

int check_value(const World& world, const void* address, uint32_t flag, uint32_t most) {
  ASCEND_SIM_TRY(check_post_8_1(world));
  if (!is_device_address(address)) return refuse(kParamInvalid, "the address is not one of device memory");
  if (reinterpret_cast<uintptr_t>(address) % 8 != 0) return refuse(kParamInvalid, "the address is not a multiple of 8");
  if (flag <= most) return 0;
  return refuse(kParamInvalid, "the flag is " + std::to_string(flag) + "; allowed: 0 to " + std::to_string(most));
}

}  // namespace

// No flag: such an event can be recorded, waited for and timed.
aclError aclrtCreateEvent(aclrtEvent* event) { return create("aclrtCreateEvent", event, 0, Event::Family::Legacy); }

aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag) {
  if (flag == ACL_EVENT_EXTERNAL) return create("aclrtCreateEventWithFlag", event, flag, Event::Family::External);
  if ((flag & ~(ACL_EVENT_SYNC | ACL_EVENT_CAPTURE_STREAM_PROGRESS | ACL_EVENT_TIME_LINE)) != 0 || flag == 0) {
    return fail(kParamInvalid, "aclrtCreateEventWithFlag: the flags are " + std::to_string(flag) +
                                   "; allowed: 0x1, 0x2, 0x8, or-ed, or 0x20 alone");
  }
  return create("aclrtCreateEventWithFlag", event, flag, Event::Family::Legacy);
}

aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag) {
  if ((flag & ~kExFlags) != 0 || flag == 0) {
    return fail(kParamInvalid, "aclrtCreateEventExWithFlag: the flags are " + std::to_string(flag) +
                                   "; allowed: 0x1, 0x2, 0x8, 0x10, 0x40, or-ed");
  }
  return create("aclrtCreateEventExWithFlag", event, flag, Event::Family::Ex);
}

aclError aclrtDestroyEvent(aclrtEvent event) {
  return api("aclrtDestroyEvent", kMake, [&](World& world, Lock&) {
    std::shared_ptr<Event> found;
    ASCEND_SIM_TRY(find_event(world, event, &found));
    --world.devices[found->device].events;
    world.events.erase(event);
    return 0;
  });
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
  return api("aclrtRecordEvent", kQueue, [&](World& world, Lock& lock) {
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    std::shared_ptr<Event> recorded;
    ASCEND_SIM_TRY(find_event(world, event, &recorded));
    if (found->capture) return capture_record(world, *found, recorded);
    ASCEND_SIM_TRY(check_not_captured(*recorded, "record on another stream"));
    if (recorded->family != Event::Family::Ex) {
      learn(world, recorded->mark->after, found->after);
      return submit(world, lock, found, Task{RecordTask{recorded->mark}, 0});
    }
    const auto mark = std::make_shared<Mark>();
    learn(world, mark->after, found->after);
    ASCEND_SIM_TRY(submit(world, lock, found, Task{RecordTask{mark}, 0}));
    recorded->mark = mark;
    return 0;
  });
}

aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream) {
  return api("aclrtResetEvent", kQueue, [&](World& world, Lock& lock) {
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    std::shared_ptr<Event> reset;
    ASCEND_SIM_TRY(find_event(world, event, &reset));
    if (reset->family == Event::Family::Ex) {
      return refuse(kNotSupported, "an event of aclrtCreateEventExWithFlag is never reset");
    }
    if (found->capture && reset->family != Event::Family::External) {
      return refuse(kNotSupported, "a capture takes only external events here");
    }
    return submit(world, lock, found, Task{ResetTask{reset->mark}, 0});
  });
}

aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status) {
  return api("aclrtQueryEventStatus", kAsk, [&](World& world, Lock&) {
    if (status == nullptr) return refuse(kParamInvalid, "status is null");
    std::shared_ptr<Event> found;
    ASCEND_SIM_TRY(find_event(world, event, &found));
    if (found->family == Event::Family::External) return refuse(kNotSupported, "an external event cannot be queried");
    ASCEND_SIM_TRY(check_not_captured(*found, "query"));
    const bool complete = !found->mark || found->mark->done;
    // A thread that learns that it was reached has come that far.
    if (complete && found->mark) {
      ascendSimHostAdvanceTo(found->mark->stamp);
      host_learns(world, found->mark->order);
    }
    *status = complete ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    return 0;
  });
}

aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus* status) {
  if (status == nullptr) return fail(kParamInvalid, "aclrtQueryEvent: status is null");
  aclrtEventRecordedStatus recorded = ACL_EVENT_RECORDED_STATUS_NOT_READY;
  const int code = aclrtQueryEventStatus(event, &recorded);
  // The older call counts the other way round.
  *status = recorded == ACL_EVENT_RECORDED_STATUS_COMPLETE ? ACL_EVENT_STATUS_COMPLETE : ACL_EVENT_STATUS_NOT_READY;
  return code;
}

aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus* status) {
  return api("aclrtQueryEventWaitStatus", kAsk, [&](World& world, Lock&) {
    if (status == nullptr) return refuse(kParamInvalid, "status is null");
    std::shared_ptr<Event> found;
    ASCEND_SIM_TRY(find_event(world, event, &found));
    if (found->family != Event::Family::Legacy) {
      return refuse(kNotSupported, "only events of aclrtCreateEvent and aclrtCreateEventWithFlag know their waits");
    }
    *status = found->mark->waiting == 0 ? ACL_EVENT_WAIT_STATUS_COMPLETE : ACL_EVENT_WAIT_STATUS_NOT_READY;
    return 0;
  });
}

aclError aclrtSynchronizeEvent(aclrtEvent event) { return synchronise_event("aclrtSynchronizeEvent", event, -1); }

aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout) {
  return synchronise_event("aclrtSynchronizeEventWithTimeout", event, timeout);
}

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  return wait_for("aclrtStreamWaitEvent", stream, event, 0, false);
}

aclError aclrtStreamWaitEventWithTimeout(aclrtStream stream, aclrtEvent event, int32_t timeout) {
  return wait_for("aclrtStreamWaitEventWithTimeout", stream, event, timeout, true);
}

aclError aclrtSetOpWaitTimeout(uint32_t timeout) {
  return api("aclrtSetOpWaitTimeout", kAsk, [&](World& world, Lock&) {
    world.wait_seconds = static_cast<int>(std::min<uint32_t>(timeout, 1u << 30));
    return 0;
  });
}

aclError aclrtEventElapsedTime(float* ms, aclrtEvent startEvent, aclrtEvent endEvent) {
  return api("aclrtEventElapsedTime", kAsk, [&](World& world, Lock&) {
    if (ms == nullptr) return refuse(kParamInvalid, "ms is null");
    double start = 0, end = 0;
    ASCEND_SIM_TRY(stamp_of(world, startEvent, &start));
    ASCEND_SIM_TRY(stamp_of(world, endEvent, &end));
    if (end < start) return refuse(kTimestampReversal, "the second event was reached before the first");
    *ms = static_cast<float>((end - start) / 1e3);
    return 0;
  });
}

aclError aclrtEventGetTimestamp(aclrtEvent event, uint64_t* timestamp) {
  return api("aclrtEventGetTimestamp", kAsk, [&](World& world, Lock&) {
    if (timestamp == nullptr) return refuse(kParamInvalid, "timestamp is null");
    double stamp = 0;
    ASCEND_SIM_TRY(stamp_of(world, event, &stamp));
    *timestamp = static_cast<uint64_t>(stamp);
    return 0;
  });
}

aclError aclrtValueWrite(void* devAddr, uint64_t value, uint32_t flag, aclrtStream stream) {
  return api("aclrtValueWrite", kQueue, [&](World& world, Lock& lock) {
    ASCEND_SIM_TRY(check_value(world, devAddr, flag, 0));
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    return submit(world, lock, found, Task{ValueWriteTask{devAddr, value}, 0});
  });
}

aclError aclrtValueWait(void* devAddr, uint64_t value, uint32_t flag, aclrtStream stream) {
  return api("aclrtValueWait", kQueue, [&](World& world, Lock& lock) {
    ASCEND_SIM_TRY(check_value(world, devAddr, flag, ACL_STREAM_WAIT_VALUE_NOR));
    if (world.config.faults.value_wait) return refuse(kNotSupported, "fault on demand (ASCEND_SIM_FAULT=value_wait)");
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    return submit(world, lock, found, Task{ValueWaitTask{devAddr, value, flag}, 0});
  });
}

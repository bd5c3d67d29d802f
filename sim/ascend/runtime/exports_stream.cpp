// Streams, and launch(), through which every operator comes.
#include "ascend/runtime/capture.h"
#include "ascend/runtime/stream.h"

using namespace ascend_sim;

namespace {

const double kAsk = rate(Rate::HostCall);
const double kMake = rate(Rate::HostCreate);

constexpr uint32_t kStreamFlags = ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC | ACL_STREAM_PERSISTENT |
                                  ACL_STREAM_HUGE | ACL_STREAM_CPU_SCHEDULE | ACL_STREAM_DEVICE_USE_ONLY;
constexpr uint32_t kPriorities = 8;

int create(const char* name, aclrtStream* stream, uint32_t priority, uint32_t flags) {
  return api(name, kMake, [&](World& world, Lock&) {
    ASCEND_SIM_TRY(check_not_in_callback());
    if (stream == nullptr) return refuse(kParamInvalid, "stream is null");
    if ((flags & ~kStreamFlags) != 0) {
      return refuse(kParamInvalid, "the flags are " + std::to_string(flags) + "; allowed: 0x1 to 0x20, or-ed");
    }
    if (priority >= kPriorities) {
      return refuse(kParamInvalid, "the priority is " + std::to_string(priority) + "; allowed: 0 to 7");
    }
    std::shared_ptr<Context> context;
    ASCEND_SIM_TRY(current_context(world, &context));
    std::shared_ptr<Stream> made;
    ASCEND_SIM_TRY(make_stream(world, context, false, (flags & ACL_STREAM_FAST_LAUNCH) != 0, &made));
    made->flags = flags;
    *stream = made->handle;
    return 0;
  });
}

int destroy(const char* name, aclrtStream stream, bool force) {
  return api(name, kMake, [&](World& world, Lock& lock) {
    ASCEND_SIM_TRY(check_not_in_callback());
    if (stream == nullptr) return refuse(kParamInvalid, "the default stream goes with its context");
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    ASCEND_SIM_TRY(check_not_captured(*found, "destroy"));
    int code = 0;
    if (!force) code = synchronise(world, lock, found, -1);
    stop_stream(world, lock, found);
    return code;
  });
}

int synchronise_stream(const char* name, aclrtStream stream, int timeout_ms) {
  return api(name, kNoCost, [&](World& world, Lock& lock) {
    if (timeout_ms == 0 || timeout_ms < -1) return refuse(kParamInvalid, "the timeout is -1 (for ever) or above 0");
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    ASCEND_SIM_TRY(check_not_captured(*found, "synchronise"));
    return synchronise(world, lock, found, timeout_ms);
  });
}

}  // namespace

aclError aclrtCreateStream(aclrtStream* stream) { return create("aclrtCreateStream", stream, 0, 0); }

aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t flag) {
  return create("aclrtCreateStreamWithConfig", stream, priority, flag);
}

aclError aclrtDestroyStream(aclrtStream stream) { return destroy("aclrtDestroyStream", stream, false); }
aclError aclrtDestroyStreamForce(aclrtStream stream) { return destroy("aclrtDestroyStreamForce", stream, true); }

aclError aclrtSynchronizeStream(aclrtStream stream) { return synchronise_stream("aclrtSynchronizeStream", stream, -1); }

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
  return synchronise_stream("aclrtSynchronizeStreamWithTimeout", stream, timeout);
}

aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status) {
  return api("aclrtStreamQuery", kAsk, [&](World& world, Lock&) {
    if (status == nullptr) return refuse(kParamInvalid, "status is null");
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    ASCEND_SIM_TRY(check_not_captured(*found, "query"));
    const bool complete = found->finished == found->launched;
    if (complete) {  // the host has come that far when it learns of it
      ascendSimHostAdvanceTo(found->lane.clock);
      host_learns(world, found->lane.order);
    }
    *status = complete ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
    return 0;
  });
}

aclError aclrtStreamGetId(aclrtStream stream, int32_t* streamId) {
  return api("aclrtStreamGetId", kAsk, [&](World& world, Lock&) {
    if (streamId == nullptr) return refuse(kParamInvalid, "streamId is null");
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    *streamId = found->id;
    return 0;
  });
}

aclError aclrtGetStreamAvailableNum(uint32_t* streamCount) {
  return api("aclrtGetStreamAvailableNum", kAsk, [&](World& world, Lock&) {
    ASCEND_SIM_TRY(check_post_8_1(world));
    if (streamCount == nullptr) return refuse(kParamInvalid, "streamCount is null");
    std::shared_ptr<Context> context;
    ASCEND_SIM_TRY(current_context(world, &context));
    const Device& device = world.devices[context->device];
    *streamCount = static_cast<uint32_t>(world.config.new_stack ? kStreamsNewStack - device.streams
                                                                : kHardwareQueues - device.queues);
    return 0;
  });
}

aclError aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode) {
  return api("aclrtSetStreamFailureMode", kAsk, [&](World& world, Lock&) {
    if (mode > 1) {
      return refuse(kParamInvalid, "the mode is " + std::to_string(mode) + "; allowed: 0 (continue), 1 (stop)");
    }
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    if (found->is_default) return refuse(kParamInvalid, "the default stream has no failure mode");
    if (found->failure_mode_set) return refuse(kParamInvalid, "the failure mode of a stream is set once");
    found->failure_mode_set = true;
    if (mode == 1) found->context->stops_on_failure = true;
    return 0;
  });
}

// Where ranks meet in a kernel that they run together: its communicator is of the stream's device, and runs nothing
// else.
static int find_meeting(const World& world, const Stream& stream, KernelTask& task) {
  if (!task.kernel->exchange) return 0;
  const std::string& group = task.kernel->exchange->group;
  for (const auto& [handle, known] : world.communicators) {
    if (known.name != group) continue;
    if (known.device != stream.context->device)
      return refuse(kParamInvalid, "the stream belongs to device " + std::to_string(stream.context->device) +
                                       ", the communicator to " + std::to_string(known.device));
    if (known.use == Communicator::Use::Collectives && holds(Rule::DispatchAlone, world.config.cann))
      return refuse(kParamInvalid, refusal(Rule::DispatchAlone, group + " has run collectives"));
    known.use = Communicator::Use::Experts;
    task.meeting = known.meeting;
    return 0;
  }
  return refuse(kParamInvalid, "there is no communicator " + group);
}

int ascend_sim::launch(void* stream, std::vector<Kernel> kernels) {
  const std::string name =
      kernels.empty() ? "a launch" : kernels.front().name.substr(0, kernels.front().name.find('/'));
  return api(name.c_str(), kNoCost, [&](World& world, Lock& lock) {
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    for (Kernel& kernel : kernels) {
      Task task;
      KernelTask what{std::make_shared<const Kernel>(std::move(kernel))};
      ASCEND_SIM_TRY(find_meeting(world, *found, what));
      task.what = std::move(what);
      ASCEND_SIM_TRY(submit(world, lock, found, std::move(task)));
    }
    return 0;
  });
}

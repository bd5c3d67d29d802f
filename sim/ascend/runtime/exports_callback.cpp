// Host callbacks of streams: on a thread of the caller that pumps, or on one of the runtime.
#include <pthread.h>

#include <algorithm>

#include "ascend/runtime/capture.h"
#include "ascend/runtime/stream.h"

using namespace ascend_sim;

namespace {

const double kAsk = rate(Rate::HostCall);
const double kQueue = rate(Rate::HostAsyncCopy);

}  // namespace

aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream) {
  return api("aclrtSubscribeReport", kAsk, [&](World& world, Lock&) {
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    if (found->subscriber) return refuse(kParamInvalid, "a thread is subscribed to the stream already");
    found->subscriber = threadId;
    return 0;
  });
}

aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream) {
  return api("aclrtUnSubscribeReport", kAsk, [&](World& world, Lock&) {
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    if (found->subscriber != threadId) return refuse(kParamInvalid, "this thread is not subscribed to the stream");
    found->subscriber.reset();
    return 0;
  });
}

aclError aclrtProcessReport(int32_t timeout) {
  std::shared_ptr<Report> report;
  const uint64_t self = pthread_self();
  const int code = api("aclrtProcessReport", kNoCost, [&](World& world, Lock& lock) {
    if (timeout == 0 || timeout < -1) return refuse(kParamInvalid, "the timeout is -1 (for ever) or above 0");
    const auto mine = [&] {
      return std::find_if(world.reports.begin(), world.reports.end(),
                          [&](const auto& one) { return one->task.thread == self; });
    };
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout);
    while (mine() == world.reports.end()) {
      if (!world.initialised) return refuse(kUninitialized, "aclFinalize was called meanwhile");
      if (timeout > 0 && std::chrono::steady_clock::now() >= limit) {
        return refuse(kWaitTimeout, "no callback within " + std::to_string(timeout) + " ms");
      }
      world.changed.wait_for(lock, std::chrono::milliseconds(5));
    }
    report = *mine();
    world.reports.erase(mine());
    ++world.busy;
    return 0;
  });
  if (code != 0) return code;
  ThreadState& thread = thread_state();
  thread.clock = std::max(thread.clock, report->clock);
  thread.in_callback = true;
  report->task.function(report->task.arguments);
  thread.in_callback = false;
  thread.clock += rate(Rate::HostCallback);
  World& all = world();
  Lock lock(all.mutex);
  --all.busy;
  report->clock = thread.clock;
  report->done = true;
  moved(all);
  return 0;
}

aclError aclrtLaunchCallback(aclrtCallback fn, void* userData, aclrtCallbackBlockType blockType, aclrtStream stream) {
  return api("aclrtLaunchCallback", kQueue, [&](World& world, Lock& lock) {
    if (fn == nullptr) return refuse(kParamInvalid, "fn is null");
    if (blockType != ACL_CALLBACK_NO_BLOCK && blockType != ACL_CALLBACK_BLOCK) {
      return refuse(kParamInvalid, "the block type is " + std::to_string(blockType) + "; allowed: 0, 1");
    }
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    if (!found->subscriber) return refuse(kNoSubscriber, "no thread is subscribed to the stream");
    Task task;
    task.what = CallbackTask{fn, userData, blockType == ACL_CALLBACK_BLOCK, *found->subscriber};
    return submit(world, lock, found, std::move(task));
  });
}

aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void* args) {
  return api("aclrtLaunchHostFunc", kQueue, [&](World& world, Lock& lock) {
    ASCEND_SIM_TRY(check_post_8_1(world));
    if (fn == nullptr) return refuse(kParamInvalid, "fn is null");
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    return submit(world, lock, found, Task{HostTask{fn, args}, 0});
  });
}

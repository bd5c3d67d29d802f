#include "backends/ascend/ascend_stream.h"

namespace reprise::ascend {
namespace {

// No step takes so long: what is still running then waits for something that will not come.
constexpr int32_t kStuckMs = 300'000;

int32_t direction(Copy kind) {
  switch (kind) {
    case Copy::HostToDevice: return ACL_MEMCPY_HOST_TO_DEVICE;
    case Copy::DeviceToHost: return ACL_MEMCPY_DEVICE_TO_HOST;
    case Copy::DeviceToDevice: break;
  }
  return ACL_MEMCPY_DEVICE_TO_DEVICE;
}

}  // namespace

Result<std::unique_ptr<AscendEvent>> AscendEvent::make(std::shared_ptr<Context> context, bool timed) {
  RETURN_IF_ERROR(context->attach());
  const Library& acl = context->library();
  aclrtEvent event = nullptr;
  const uint32_t flags = ACL_EVENT_SYNC | (timed ? ACL_EVENT_TIME_LINE : 0);
  RETURN_IF_ERROR(acl.check(acl.aclrtCreateEventExWithFlag(&event, flags), "make an event"));
  return std::unique_ptr<AscendEvent>(new AscendEvent(std::move(context), event));
}

AscendEvent::~AscendEvent() {
  if (context_->attach().is_ok()) (void)context_->library().aclrtDestroyEvent(event_);
}

Result<std::unique_ptr<AscendStream>> AscendStream::make(std::shared_ptr<Context> context) {
  RETURN_IF_ERROR(context->attach());
  const Library& acl = context->library();
  aclrtStream stream = nullptr;
  RETURN_IF_ERROR(acl.check(acl.aclrtCreateStreamWithConfig(&stream, 0, ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC),
                            "make a stream"));
  std::unique_ptr<AscendStream> out(new AscendStream(std::move(context), stream));
  // What follows a failed kernel would compute with its garbage.
  RETURN_IF_ERROR(acl.check(acl.aclrtSetStreamFailureMode(stream, 1), "let the stream stop at errors"));
  return out;
}

AscendStream::~AscendStream() {
  if (!context_->attach().is_ok()) return;
  const Library& acl = context_->library();
  if (lost_.is_ok()) (void)synchronize();
  (void)acl.aclrtDestroyStreamForce(stream_);
}

Status AscendStream::ready() const {
  if (!lost_.is_ok()) return lost_;
  return context_->attach();
}

Status AscendStream::noted(Status status) {
  if (status.code() == Code::DeviceLost && lost_.is_ok())
    lost_ = error(Code::DeviceLost, "in an earlier step: {}", status.message());
  return status;
}

Status AscendStream::check(int code, std::string_view what) { return noted(context_->library().check(code, what)); }

Status AscendStream::launch(const Thunk& thunk) {
  RETURN_IF_ERROR(ready());
  ++stats_.launches;
  return noted(executors_.launch(thunk, live_, context_->operators(), stream_, spare_));
}

Status AscendStream::copy(void* dst, const void* src, size_t bytes, Copy kind) {
  stats_.count(kind, bytes);
  if (bytes == 0) return Status::ok();
  RETURN_IF_ERROR(ready());
  const Library& acl = context_->library();
  return check(acl.aclrtMemcpyAsync(dst, bytes, src, bytes, direction(kind), stream_), "copy");
}

Status AscendStream::record(Event& event) {
  RETURN_IF_ERROR(ready());
  const Library& acl = context_->library();
  return check(acl.aclrtRecordEvent(static_cast<AscendEvent&>(event).native(), stream_), "record an event");
}

Status AscendStream::wait(const Event& event) {
  RETURN_IF_ERROR(ready());
  const Library& acl = context_->library();
  return check(acl.aclrtStreamWaitEvent(stream_, static_cast<const AscendEvent&>(event).native()), "wait for an event");
}

Status AscendStream::synchronize() {
  RETURN_IF_ERROR(ready());
  const Library& acl = context_->library();
  return or_failed(wait_for([&](int32_t ms) { return acl.aclrtSynchronizeStreamWithTimeout(stream_, ms); }));
}

Status AscendStream::synchronize(const Event& event) {
  RETURN_IF_ERROR(ready());
  const Library& acl = context_->library();
  const aclrtEvent mark = static_cast<const AscendEvent&>(event).native();
  return or_failed(wait_for([&](int32_t ms) { return acl.aclrtSynchronizeEventWithTimeout(mark, ms); }));
}

Status AscendStream::wait_for(const std::function<int(int32_t)>& call) {
  constexpr int32_t kLookMs = 100;
  const Communicator* ranks = context_->communicator();
  if (!ranks) return check(call(kStuckMs), "synchronize");
  int code = ACL_SUCCESS;
  for (int32_t waited = 0; waited < kStuckMs; waited += kLookMs) {
    code = call(kLookMs);
    if (ranks->member().aborted()) return noted(ranks->member().lost());
    if (code != ACL_ERROR_RT_STREAM_SYNC_TIMEOUT && code != ACL_ERROR_RT_EVENT_SYNC_TIMEOUT) break;
  }
  return check(code, "synchronize");
}

Status AscendStream::or_failed(Status done) {
  std::lock_guard lock(mutex_);
  Status failed = std::exchange(failed_, Status::ok());
  return failed.is_ok() || done.code() == Code::DeviceLost ? done : noted(std::move(failed));
}

void AscendStream::fail(Status status) {
  std::lock_guard lock(mutex_);
  if (failed_.is_ok()) failed_ = std::move(status);
}

}  // namespace reprise::ascend

// What the files of this backend share: the CUDA runtime, its errors as Status, and its streams. A LaunchContext
// belongs to its device and outlives the streams. One thread at a time drives a stream, which makes the device that
// thread's.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "backends/cuda/cuda_kernel.h"
#include "base/status.h"
#include "device/stream.h"
#include "device/trace.h"

namespace reprise::cuda {

// After such an error the process's context is of no use, and every call that follows fails alike.
inline bool loses_device(cudaError_t result) {
  switch (result) {
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure: return true;
    default: return false;
  }
}

// `what` names the call's purpose. Takes the error off the runtime's record, so that no later call reports it again.
inline Status check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return Status::ok();
  (void)cudaGetLastError();
  const bool lost = loses_device(result);
  const Code code = lost ? Code::DeviceLost : result == cudaErrorMemoryAllocation ? Code::OutOfMemory : Code::Device;
  return error(code, "cuda: {}: {} ({}){}", what, cudaGetErrorString(result), cudaGetErrorName(result),
               lost ? "; the process has lost the device: start it anew" : "");
}

// Makes the calling thread use the device; a thread uses device 0 from its beginning.
inline Status use_device(int device) {
  thread_local int used = 0;
  if (used == device) return Status::ok();
  RETURN_IF_ERROR(check(cudaSetDevice(device), "use the device"));
  used = device;
  return Status::ok();
}

class Blas;
class Communicator;

// What launches need of their device, apart from a stream.
struct LaunchContext {
  LaunchLimits limits;
  Blas* blas = nullptr;  // null where the library is absent
  int device = 0;
  Communicator* ranks = nullptr;  // null: there is one rank

  Status attach() const { return use_device(device); }
};

// Runs a thunk's parts on the stream; what the launches themselves report comes back.
Status launch_parts(const Thunk& thunk, const LiveSizes& live, cudaStream_t stream, const LaunchContext& context);

// Streams do not wait for the default stream, nor it for them.
class CudaStream final : public Stream {
 public:
  // `context` outlives the stream.
  static Result<std::unique_ptr<CudaStream>> make(const LaunchContext& context);
  ~CudaStream() override;

  void set_live_sizes(const LiveSizes& live) override { live_ = live; }
  Status launch(const Thunk& thunk) override;
  Status copy(void* dst, const void* src, size_t bytes, Copy kind) override;
  Status record(Event& event) override;
  Status wait(const Event& event) override;
  Status synchronize() override;
  Status synchronize(const Event& event) override;
  StreamStats stats() const override { return stats_; }
  // While a trace is attached every launch stands between two events, and a replay runs launch by launch.
  Status set_trace(Trace* trace) override;
  bool traced() const { return trace_ != nullptr; }
  Status launch_timed(const Thunk& thunk, const LiveSizes& live);

  const LiveSizes& live_sizes() const { return live_; }
  cudaStream_t native() const { return stream_; }
  const LaunchContext& context() const { return context_; }
  void count_replay() { ++stats_.replays; }

 private:
  CudaStream(cudaStream_t stream, const LaunchContext& context) : stream_(stream), context_(context) {}

  // A launch between two events, of which the trace has not been told.
  struct Timed {
    cudaEvent_t begin = nullptr, end = nullptr;
    uint32_t node = 0, replay = 0;
  };
  Result<cudaEvent_t> take_event();
  // The outcome of a wait. Where another rank is gone, what was waited for was called off.
  Status waited(Status status) const;
  Status tell_trace();

  cudaStream_t stream_;
  const LaunchContext& context_;
  LiveSizes live_;
  Trace* trace_ = nullptr;
  int64_t trace_begin_ns_ = 0;  // of zero_, on the trace's clock
  cudaEvent_t zero_ = nullptr;
  std::vector<cudaEvent_t> events_;  // all that were made; the first used_ are in use
  size_t used_ = 0;
  std::vector<Timed> timed_;
  StreamStats stats_;
};

}  // namespace reprise::cuda

// What the files of this backend share: the CUDA runtime, its errors as Status, and its streams.
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.h"
#include "device/stream.h"

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

// Runs a thunk's phases on the stream; what the launches themselves report comes back.
Status launch_phases(const Thunk& thunk, const LiveSizes& live, cudaStream_t stream);

// Streams do not wait for the default stream, nor it for them.
class CudaStream final : public Stream {
 public:
  static Result<std::unique_ptr<CudaStream>> make();
  ~CudaStream() override;

  void set_live_sizes(const LiveSizes& live) override { live_ = live; }
  Status launch(const Thunk& thunk) override;
  Status copy(void* dst, const void* src, size_t bytes, Copy kind) override;
  Status record(Event& event) override;
  Status wait(const Event& event) override;
  Status synchronize() override;
  StreamStats stats() const override { return stats_; }

  const LiveSizes& live_sizes() const { return live_; }
  cudaStream_t native() const { return stream_; }
  void count_replay() { ++stats_.replays; }

 private:
  explicit CudaStream(cudaStream_t stream) : stream_(stream) {}

  cudaStream_t stream_;
  LiveSizes live_;
  StreamStats stats_;
};

}  // namespace reprise::cuda

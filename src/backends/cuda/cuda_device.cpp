#include "backends/cuda/cuda_device.h"

#include <cstring>

#include "backends/cuda/blas.h"
#include "backends/cuda/cuda_graph.h"
#include "backends/cuda/runtime.h"
#include "device/aligned_pool.h"

namespace reprise::cuda {
namespace {

constexpr int kOldestArchitecture = 80;  // the oldest of CMAKE_CUDA_ARCHITECTURES (cmake/cuda.cmake)

// Device memory, or pinned host memory.
class CudaPool final : public AlignedPool {
 public:
  // `zeroing` is used for nothing else.
  CudaPool(bool host, size_t limit, cudaStream_t zeroing) : AlignedPool(limit), host_(host), zeroing_(zeroing) {}

 private:
  Status allocate_raw(size_t bytes, void** raw) override {
    return host_ ? check(cudaMallocHost(raw, bytes), "pinned host memory") : check(cudaMalloc(raw, bytes), "memory");
  }
  void free_raw(void* raw) override { (void)(host_ ? cudaFreeHost(raw) : cudaFree(raw)); }
  Status zero(void* data, size_t bytes) override {
    if (host_) {
      std::memset(data, 0, bytes);
      return Status::ok();
    }
    RETURN_IF_ERROR(check(cudaMemsetAsync(data, 0, bytes, zeroing_), "zero new memory"));
    return check(cudaStreamSynchronize(zeroing_), "zero new memory");
  }

  bool host_;
  cudaStream_t zeroing_;
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(cudaEvent_t event) : event_(event) {}
  ~CudaEvent() override { (void)cudaEventDestroy(event_); }
  cudaEvent_t native() const { return event_; }

 private:
  cudaEvent_t event_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(DeviceInfo info, int multiprocessors, std::unique_ptr<Blas> blas, cudaStream_t zeroing)
      : info_(std::move(info)),
        blas_(std::move(blas)),
        context_{multiprocessors, blas_.get()},
        zeroing_(zeroing),
        pool_(false, info_.memory_bytes, zeroing),
        host_pool_(true, SIZE_MAX / 4, zeroing) {}
  ~CudaDevice() override { (void)cudaStreamDestroy(zeroing_); }

  const DeviceInfo& info() const override { return info_; }
  MemoryPool& pool() override { return pool_; }
  MemoryPool& host_pool() override { return host_pool_; }
  Result<std::unique_ptr<Stream>> make_stream() override {
    ASSIGN_OR_RETURN(auto stream, CudaStream::make(context_));
    return std::unique_ptr<Stream>(std::move(stream));
  }
  Result<std::unique_ptr<Event>> make_event() override {
    cudaEvent_t event = nullptr;
    RETURN_IF_ERROR(check(cudaEventCreate(&event), "make an event"));
    return std::unique_ptr<Event>(std::make_unique<CudaEvent>(event));
  }
  std::optional<double> between_us(const Event& from, const Event& to) const override {
    float ms = 0;
    const cudaError_t result = cudaEventElapsedTime(&ms, static_cast<const CudaEvent&>(from).native(),
                                                    static_cast<const CudaEvent&>(to).native());
    if (result == cudaSuccess) return static_cast<double>(ms) * 1e3;
    (void)cudaGetLastError();
    return std::nullopt;
  }
  Result<std::unique_ptr<DeviceGraph>> capture(Stream& stream, const std::function<Status(Recorder&)>& body) override {
    return capture_graph(static_cast<CudaStream&>(stream), body);
  }

 private:
  DeviceInfo info_;
  std::unique_ptr<Blas> blas_;
  LaunchContext context_;
  cudaStream_t zeroing_;
  CudaPool pool_;
  CudaPool host_pool_;
};

cudaMemcpyKind direction(Copy kind) {
  switch (kind) {
    case Copy::HostToDevice: return cudaMemcpyHostToDevice;
    case Copy::DeviceToHost: return cudaMemcpyDeviceToHost;
    case Copy::DeviceToDevice: break;
  }
  return cudaMemcpyDeviceToDevice;
}

}  // namespace

Result<std::unique_ptr<CudaStream>> CudaStream::make(const LaunchContext& context) {
  cudaStream_t stream = nullptr;
  RETURN_IF_ERROR(check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream"));
  return std::unique_ptr<CudaStream>(new CudaStream(stream, context));
}

CudaStream::~CudaStream() {
  (void)cudaStreamSynchronize(stream_);
  for (cudaEvent_t e : events_) (void)cudaEventDestroy(e);
  if (zero_) (void)cudaEventDestroy(zero_);
  (void)cudaStreamDestroy(stream_);
}

Status CudaStream::launch(const Thunk& thunk) {
  ++stats_.launches;
  if (!trace_) return launch_parts(thunk, live_, stream_, context_);
  trace_->next_replay();
  return launch_timed(thunk, live_);
}

Result<cudaEvent_t> CudaStream::take_event() {
  if (used_ == events_.size()) {
    cudaEvent_t event = nullptr;
    RETURN_IF_ERROR(check(cudaEventCreate(&event), "make an event"));
    events_.push_back(event);
  }
  return events_[used_++];
}

Status CudaStream::launch_timed(const Thunk& thunk, const LiveSizes& live) {
  Timed t;
  ASSIGN_OR_RETURN(t.begin, take_event());
  ASSIGN_OR_RETURN(t.end, take_event());
  t.node = thunk.node;
  t.replay = trace_->replay();
  RETURN_IF_ERROR(check(cudaEventRecord(t.begin, stream_), "time a launch"));
  RETURN_IF_ERROR(launch_parts(thunk, live, stream_, context_));
  RETURN_IF_ERROR(check(cudaEventRecord(t.end, stream_), "time a launch"));
  timed_.push_back(t);
  return Status::ok();
}

Status CudaStream::set_trace(Trace* trace) {
  RETURN_IF_ERROR(synchronize());
  trace_ = trace;
  if (!trace) return Status::ok();
  if (!zero_) RETURN_IF_ERROR(check(cudaEventCreate(&zero_), "make an event"));
  RETURN_IF_ERROR(check(cudaEventRecord(zero_, stream_), "time a launch"));
  RETURN_IF_ERROR(check(cudaEventSynchronize(zero_), "time a launch"));
  trace_begin_ns_ = trace->now();
  return Status::ok();
}

Status CudaStream::tell_trace() {
  for (const Timed& t : timed_) {
    float begin = 0, end = 0;
    RETURN_IF_ERROR(check(cudaEventElapsedTime(&begin, zero_, t.begin), "time a launch"));
    RETURN_IF_ERROR(check(cudaEventElapsedTime(&end, zero_, t.end), "time a launch"));
    auto at = [this](float ms) { return trace_begin_ns_ + static_cast<int64_t>(static_cast<double>(ms) * 1e6); };
    trace_->add(0, {TraceEvent::Kind::Kernel, 0, t.node, t.replay, at(begin), at(end)});
  }
  timed_.clear();
  used_ = 0;
  return Status::ok();
}

Status CudaStream::copy(void* dst, const void* src, size_t bytes, Copy kind) {
  stats_.count(kind, bytes);
  if (bytes == 0) return Status::ok();
  return check(cudaMemcpyAsync(dst, src, bytes, direction(kind), stream_), "copy");
}

Status CudaStream::record(Event& event) {
  return check(cudaEventRecord(static_cast<CudaEvent&>(event).native(), stream_), "record an event");
}

Status CudaStream::wait(const Event& event) {
  return check(cudaStreamWaitEvent(stream_, static_cast<const CudaEvent&>(event).native(), 0), "wait for an event");
}

Status CudaStream::synchronize() {
  RETURN_IF_ERROR(check(cudaStreamSynchronize(stream_), "synchronize"));
  return trace_ ? tell_trace() : Status::ok();
}

Status CudaStream::synchronize(const Event& event) {
  if (trace_) return synchronize();  // its events lie behind the mark, too
  return check(cudaEventSynchronize(static_cast<const CudaEvent&>(event).native()), "synchronize");
}

// The data sheet's bandwidth and cache; what a launch, a branch of a graph and its beginning take is assumed, and that
// products read what is cached twice as fast. None of it was measured.
ReadAhead read_ahead_of(int device, const cudaDeviceProp& p) {
  int clock_khz = 0, bits = 0;
  const bool told = cudaDeviceGetAttribute(&clock_khz, cudaDevAttrMemoryClockRate, device) == cudaSuccess &&
                    cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device) == cudaSuccess;
  if (!told) (void)cudaGetLastError();
  ReadAhead r;
  const double bytes_per_us = 2.0 * clock_khz * 1e3 * bits / 8 / 1e6;  // both edges of the clock
  if (!told || bytes_per_us <= 0 || p.l2CacheSize <= 0) {
    r.refusal = "the driver does not tell the bandwidth of memory and the size of the L2 cache";
    return r;
  }
  constexpr double kLaunch = 2, kDelay = 2, kMark = 0.5, kCollective = 10;
  return {"", bytes_per_us, 2 * bytes_per_us, kLaunch, kCollective, kDelay, kMark, static_cast<size_t>(p.l2CacheSize)};
}

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

Result<std::unique_ptr<Device>> make_cuda_device() {
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    return error(Code::Unsupported, "no CUDA device: {}",
                 found == cudaSuccess ? "the driver knows of none" : cudaGetErrorString(found));
  }
  RETURN_IF_ERROR(check(cudaSetDevice(0), "use the device"));
  cudaDeviceProp p{};
  RETURN_IF_ERROR(check(cudaGetDeviceProperties(&p, 0), "ask for the device's properties"));
  const int architecture = p.major * 10 + p.minor;
  if (architecture < kOldestArchitecture)
    return error(Code::Unsupported, "no CUDA device: {} is sm_{}, and this build has kernels for sm_{} and later",
                 p.name, architecture, kOldestArchitecture);
  DeviceInfo info;
  info.kind = DeviceKind::Cuda;
  info.isa = fmt::format("sm_{}", architecture);
  info.name = fmt::format("{} ({})", p.name, info.isa);
  info.memory_bytes = p.totalGlobalMem;
  info.host_visible = false;
  info.asynchronous = true;
  info.read_ahead = read_ahead_of(0, p);
  info.records_cold = true;  // kernels are loaded and products chosen while a launch is recorded
  std::unique_ptr<Blas> blas = Blas::open(info.notes);
  cudaStream_t zeroing = nullptr;
  RETURN_IF_ERROR(check(cudaStreamCreateWithFlags(&zeroing, cudaStreamNonBlocking), "make a stream"));
  return std::unique_ptr<Device>(
      std::make_unique<CudaDevice>(std::move(info), p.multiProcessorCount, std::move(blas), zeroing));
}

}  // namespace reprise::cuda

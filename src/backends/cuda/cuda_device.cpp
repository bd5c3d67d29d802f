#include "backends/cuda/cuda_device.h"

#include <cstring>
#include <optional>

#include "backends/cuda/blas.h"
#include "backends/cuda/chip_remarks.h"
#include "backends/cuda/cuda_graph.h"
#include "backends/cuda/product_choices.h"
#include "backends/cuda/runtime.h"
#include "backends/shared_pool.h"
#include "backends/sum_order.h"
#include "device/aligned_pool.h"

namespace reprise::cuda {
namespace {

constexpr int kOldestArchitecture = 80;  // the oldest of CMAKE_CUDA_ARCHITECTURES (cmake/cuda.cmake)

// Device memory, or pinned host memory.
class CudaPool final : public AlignedPool {
 public:
  // `zeroing` is used for nothing else.
  CudaPool(bool host, size_t limit, cudaStream_t zeroing, int device)
      : AlignedPool(limit), host_(host), zeroing_(zeroing), device_(device) {}

 private:
  Status allocate_raw(size_t bytes, void** raw) override {
    RETURN_IF_ERROR(use_device(device_));
    return host_ ? check(cudaMallocHost(raw, bytes), "pinned host memory") : check(cudaMalloc(raw, bytes), "memory");
  }
  void free_raw(void* raw) override {
    if (use_device(device_).is_ok()) (void)(host_ ? cudaFreeHost(raw) : cudaFree(raw));
  }
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
  int device_;
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
  // `device`: its number among the visible ones. `ranks`: null where there is one.
  CudaDevice(DeviceInfo info, int device, const LaunchLimits& limits, std::unique_ptr<Blas> blas, cudaStream_t zeroing,
             std::shared_ptr<Communicator> ranks)
      : info_(std::move(info)),
        blas_(std::move(blas)),
        ranks_(std::move(ranks)),
        context_{limits, blas_.get(), device, ranks_.get()},
        zeroing_(zeroing),
        pool_(false, info_.memory_bytes, zeroing, device),
        host_pool_(true, SIZE_MAX / 4, zeroing, device) {
    if (ranks_) between_.emplace(ranks_->member().region());
  }
  ~CudaDevice() override { (void)cudaStreamDestroy(zeroing_); }

  const DeviceInfo& info() const override { return info_; }
  MemoryPool& pool() override { return pool_; }
  MemoryPool& host_pool() override { return host_pool_; }
  MemoryPool* between_ranks() override { return between_ ? &*between_ : nullptr; }
  Result<std::unique_ptr<Stream>> make_stream() override {
    ASSIGN_OR_RETURN(auto stream, CudaStream::make(context_));
    return std::unique_ptr<Stream>(std::move(stream));
  }
  Result<std::unique_ptr<Event>> make_event() override {
    RETURN_IF_ERROR(context_.attach());
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
  std::vector<OwnCheck> own_checks() override {
    const auto nccl = Nccl::open();  // large, so that one rank leaves it alone
    if (!nccl.is_ok()) return {{"NCCL, for several GPUs", nccl.status()}};
    return {{fmt::format("NCCL {}, for several GPUs", (*nccl)->version()), Status::ok()}};
  }
  ProductWays* product_ways() override { return blas_ ? &blas_->choices() : nullptr; }
  Result<std::unique_ptr<DeviceGraph>> capture(Stream& stream, const std::function<Status(Recorder&)>& body) override {
    return capture_graph(static_cast<CudaStream&>(stream), body);
  }

 private:
  DeviceInfo info_;
  std::unique_ptr<Blas> blas_;
  std::shared_ptr<Communicator> ranks_;
  LaunchContext context_;
  cudaStream_t zeroing_;
  CudaPool pool_;
  CudaPool host_pool_;
  std::optional<SharedPool> between_;  // where there are several ranks
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
  RETURN_IF_ERROR(context.attach());
  cudaStream_t stream = nullptr;
  RETURN_IF_ERROR(check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream"));
  return std::unique_ptr<CudaStream>(new CudaStream(stream, context));
}

CudaStream::~CudaStream() {
  (void)context_.attach();
  (void)cudaStreamSynchronize(stream_);
  for (cudaEvent_t e : events_) (void)cudaEventDestroy(e);
  if (zero_) (void)cudaEventDestroy(zero_);
  (void)cudaStreamDestroy(stream_);
}

Status CudaStream::launch(const Thunk& thunk) {
  RETURN_IF_ERROR(context_.attach());
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
  // A replay would run launch by launch on this rank alone; NCCL wants all ranks to replay, or none.
  if (trace && context_.ranks)
    return error(Code::Unsupported, "launches of one of several ranks are not timed on cuda");
  RETURN_IF_ERROR(synchronize());
  RETURN_IF_ERROR(context_.attach());
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
  RETURN_IF_ERROR(context_.attach());
  return check(cudaMemcpyAsync(dst, src, bytes, direction(kind), stream_), "copy");
}

Status CudaStream::record(Event& event) {
  RETURN_IF_ERROR(context_.attach());
  return check(cudaEventRecord(static_cast<CudaEvent&>(event).native(), stream_), "record an event");
}

Status CudaStream::wait(const Event& event) {
  RETURN_IF_ERROR(context_.attach());
  return check(cudaStreamWaitEvent(stream_, static_cast<const CudaEvent&>(event).native(), 0), "wait for an event");
}

Status CudaStream::waited(Status status) const {
  return context_.ranks && context_.ranks->member().aborted() ? context_.ranks->member().lost() : status;
}

Status CudaStream::synchronize() {
  RETURN_IF_ERROR(context_.attach());
  RETURN_IF_ERROR(waited(check(cudaStreamSynchronize(stream_), "synchronize")));
  return trace_ ? tell_trace() : Status::ok();
}

Status CudaStream::synchronize(const Event& event) {
  if (trace_) return synchronize();  // its events lie behind the mark, too
  RETURN_IF_ERROR(context_.attach());
  return waited(check(cudaEventSynchronize(static_cast<const CudaEvent&>(event).native()), "synchronize"));
}

// The data sheet's bandwidth of memory; 0: the driver does not tell it.
double sheet_bytes_per_us(int device) {
  int clock_khz = 0, bits = 0;
  const bool told = cudaDeviceGetAttribute(&clock_khz, cudaDevAttrMemoryClockRate, device) == cudaSuccess &&
                    cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device) == cudaSuccess;
  if (!told) (void)cudaGetLastError();
  return told ? 2.0 * clock_khz * 1e3 * bits / 8 / 1e6 : 0;  // both edges of the clock
}

// That, and the cache; what a launch, a branch of a graph and its beginning take is assumed, and that products read
// what is cached twice as fast. None of it was measured.
ReadAhead read_ahead_of(int device, const cudaDeviceProp& p) {
  ReadAhead r;
  const double bytes_per_us = sheet_bytes_per_us(device);
  if (bytes_per_us <= 0 || p.l2CacheSize <= 0) {
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

namespace {

// "driver 13.0" of the number 13000.
std::string version_text(const char* what, int version) {
  return fmt::format("{} {}.{}", what, version / 1000, version % 1000 / 10);
}

// What the driver tells, in lines for people.
std::vector<std::string> lines_about(int device, const cudaDeviceProp& p) {
  std::vector<std::string> out{fmt::format(
      "compute capability {}.{}, {} multiprocessors, {:.0f} MB of L2 cache, {:.0f} KB of memory a block", p.major,
      p.minor, p.multiProcessorCount, p.l2CacheSize / 1e6, static_cast<double>(p.sharedMemPerBlockOptin) / 1024)};
  if (const double us = sheet_bytes_per_us(device); us > 0)
    out.push_back(fmt::format("memory bandwidth by its clock and width: {:.0f} GB/s", us * 1e-3));
  int driver = 0, runtime = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && cudaRuntimeGetVersion(&runtime) == cudaSuccess)
    out.push_back(fmt::format("CUDA: {}, {}", version_text("driver for", driver), version_text("runtime", runtime)));
  return out;
}

// The GPU of this rank, by its number among the visible ones.
Result<int> device_of(const CudaOptions& options) {
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    return error(Code::Unsupported, "no CUDA device: {}",
                 found == cudaSuccess ? "the driver knows of none" : cudaGetErrorString(found));
  }
  const ranks::World world = options.member ? options.member->world() : ranks::World{};
  if (!world.one_host())
    return error(Code::Unsupported,
                 "ranks of several hosts exchange data on cpu and ascend; on cuda allowed: one host");
  const int here = count - options.index;
  if (here < 1)
    return invalid("GPU {} is not visible here (CUDA_VISIBLE_DEVICES); allowed: 0 to {}", options.index, count - 1);
  if (world.local_size > here)
    return invalid("`tp_size` {}: {} GPU{} visible here{} (CUDA_VISIBLE_DEVICES); allowed: 1 to {}", world.size, here,
                   here == 1 ? " is" : "s are",
                   options.index == 0 ? "" : fmt::format(" from number {} on", options.index), here);
  return options.index + world.local_rank;
}

Result<std::shared_ptr<Communicator>> join(const CudaOptions& options) {
  if (!options.member) return std::shared_ptr<Communicator>();
  ASSIGN_OR_RETURN(auto nccl, Nccl::open());
  return Communicator::make(std::move(nccl), options.member);
}

}  // namespace

Result<CudaParts> make_cuda_device(const CudaOptions& options) {
  ASSIGN_OR_RETURN(const int device, device_of(options));
  RETURN_IF_ERROR(check(cudaSetDevice(device), "use the device"));
  RETURN_IF_ERROR(use_device(device));
  cudaDeviceProp p{};
  RETURN_IF_ERROR(check(cudaGetDeviceProperties(&p, device), "ask for the device's properties"));
  const int architecture = p.major * 10 + p.minor;
  if (architecture < kOldestArchitecture)
    return error(Code::Unsupported, "no CUDA device: {} is sm_{}, and this build has kernels for sm_{} and later",
                 p.name, architecture, kOldestArchitecture);
  CudaParts parts;
  ASSIGN_OR_RETURN(parts.ranks, join(options));
  DeviceInfo info;
  info.kind = DeviceKind::Cuda;
  info.isa = fmt::format("sm_{}", architecture);
  info.order = sum_order_name(info.kind, info.isa);
  info.name = fmt::format("{} ({})", p.name, info.isa);
  info.memory_bytes = p.totalGlobalMem;
  size_t total = 0;  // as above
  RETURN_IF_ERROR(check(cudaMemGetInfo(&info.free_bytes, &total), "ask for the device's free memory"));
  info.host_visible = false;
  info.asynchronous = true;
  // A patch runs the launch once more, and one of NCCL's would have to run on all ranks.
  info.free_patches = !parts.ranks;
  info.graphs_take_memory = true;
  info.read_ahead = read_ahead_of(device, p);
  // Kernels are loaded and products chosen while a launch is recorded. Links to other ranks may be made at a first run.
  info.records_cold = !parts.ranks;
  info.notes = lines_about(device, p);
  if (const std::string_view remark = int8_remark(architecture); !remark.empty()) info.notes.emplace_back(remark);
  std::unique_ptr<Blas> blas = Blas::open(info.isa, p.multiProcessorCount, info.notes);
  cudaStream_t zeroing = nullptr;
  RETURN_IF_ERROR(check(cudaStreamCreateWithFlags(&zeroing, cudaStreamNonBlocking), "make a stream"));
  const LaunchLimits limits{p.multiProcessorCount, p.sharedMemPerBlockOptin};
  parts.device = std::make_unique<CudaDevice>(std::move(info), device, limits, std::move(blas), zeroing, parts.ranks);
  return parts;
}

}  // namespace reprise::cuda

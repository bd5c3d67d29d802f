#include "measurement/device_probe.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "backends/all.h"
#include "base/half.h"
#include "compile/compiled_model.h"

namespace reprise::measurement {
namespace {

constexpr int kDeviceTrials = 5;
constexpr int kProducts = 8;  // in a row, so that a launch's own time counts little

// Microseconds of the best of a few runs, by marks of the device where they carry a time. The first run, which pays for
// what is loaded lazily, does not count.
Result<double> best_us(Device& device, Stream& stream, const std::function<Status()>& body) {
  ASSIGN_OR_RETURN(const auto from, device.make_event());
  ASSIGN_OR_RETURN(const auto to, device.make_event());
  double best = HUGE_VAL;
  for (int i = 0; i <= kDeviceTrials; ++i) {
    const double begin = now_us(device);
    RETURN_IF_ERROR(stream.record(*from));
    RETURN_IF_ERROR(body());
    RETURN_IF_ERROR(stream.record(*to));
    RETURN_IF_ERROR(stream.synchronize());
    const double waited = now_us(device) - begin;
    if (i > 0) best = std::min(best, device.between_us(*from, *to).value_or(waited));
  }
  return best;
}

Result<double> copy_GBps(Device& device, size_t bytes) {
  ASSIGN_OR_RETURN(const Buffer from, device.pool().allocate(bytes, "probe"));
  ASSIGN_OR_RETURN(const Buffer to, device.pool().allocate(bytes, "probe"));
  ASSIGN_OR_RETURN(const auto stream, device.make_stream());
  ASSIGN_OR_RETURN(const double us, best_us(device, *stream, [&] {
                     return stream->copy(to.data(), from.data(), bytes, Copy::DeviceToDevice);
                   }));
  return 2e-3 * static_cast<double>(bytes) / us;
}

Status measure_host_copies(Device& device, size_t bytes, DeviceSpeed& speed) {
  ASSIGN_OR_RETURN(const Buffer there, device.pool().allocate(bytes, "probe"));
  ASSIGN_OR_RETURN(const Buffer here, device.host_pool().allocate(bytes, "probe"));
  ASSIGN_OR_RETURN(const auto stream, device.make_stream());
  const auto there_and_back = [&](size_t n) {
    RETURN_IF_ERROR(stream->copy(there.data(), here.data(), n, Copy::HostToDevice));
    return stream->copy(here.data(), there.data(), n, Copy::DeviceToHost);
  };
  ASSIGN_OR_RETURN(const double in, best_us(device, *stream, [&] {
                     return stream->copy(there.data(), here.data(), bytes, Copy::HostToDevice);
                   }));
  ASSIGN_OR_RETURN(const double out, best_us(device, *stream, [&] {
                     return stream->copy(here.data(), there.data(), bytes, Copy::DeviceToHost);
                   }));
  speed.to_device_GBps = 1e-3 * static_cast<double>(bytes) / in;
  speed.to_host_GBps = 1e-3 * static_cast<double>(bytes) / out;
  double best = HUGE_VAL;
  for (int i = 0; i <= kDeviceTrials; ++i) {  // by the host's clock: it is the host that waits
    const double begin = now_us(device);
    RETURN_IF_ERROR(there_and_back(sizeof(float)));
    RETURN_IF_ERROR(stream->synchronize());
    if (i > 0) best = std::min(best, now_us(device) - begin);
  }
  speed.round_trip_us = best;
  return Status::ok();
}

// Numbers in [-1, 1): on zeros a GPU draws less power and is faster than it ever is with a model.
std::vector<uint16_t> random_bf16(int64_t n) {
  std::vector<uint16_t> out(static_cast<size_t>(n));
  uint64_t state = 0x9E3779B97F4A7C15u;
  for (uint16_t& v : out) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    v = float_to_bf16(static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31f);
  }
  return out;
}

// bf16 [n, n] times [n, n], compiled as models are.
Result<double> product_tflops(const Platform& platform, int64_t n) {
  Device& device = *platform.device;
  Graph g("probe");
  ASSIGN_OR_RETURN(const SymbolId rows, g.add_symbol("T", n));
  ASSIGN_OR_RETURN(Node * x, g.add_source(*platform.ops->find("input"), "x", {DType::BF16, {Dim(1, rows), Dim(n)}}));
  ASSIGN_OR_RETURN(Node * w, g.add_source(*platform.ops->find("param"), "w", {DType::BF16, {Dim(n), Dim(n)}}));
  ASSIGN_OR_RETURN(Node * y, g.add(*platform.ops->find("linear"), {x->result(), w->result()}, {}));
  RETURN_IF_ERROR(g.add_output("y", y->result()));
  const LiveSizes live = g.bounds();
  ASSIGN_OR_RETURN(const KernelSelection selection, select_kernels(g, platform));
  Staging staging;
  staging.declare(g, {});
  RETURN_IF_ERROR(staging.allocate(device));
  const std::vector<uint16_t> numbers = random_bf16(n * n);
  std::copy(numbers.begin(), numbers.end(), static_cast<uint16_t*>(staging.input("x").value().data));
  ASSIGN_OR_RETURN(ParamStore params, ParamStore::create(selection.params, device));
  RETURN_IF_ERROR(params.pack_rows(0, reinterpret_cast<const uint8_t*>(numbers.data()), 0, n));
  MemoryPlan plan = plan_memory(g, selection.workspace);
  ASSIGN_OR_RETURN(const Buffer arena, device.pool().allocate(plan.arena_bytes, "probe"));
  CompileRequest request;
  request.platform = &platform;
  request.params = &params;
  request.staging = &staging;
  request.arena = arena.data();
  request.size_symbols = {rows};
  ASSIGN_OR_RETURN(const auto model, CompiledModel::compile(std::move(g), selection, std::move(plan), request));
  model->cut(GraphMode::Whole);
  ASSIGN_OR_RETURN(const auto stream, device.make_stream());
  stream->set_live_sizes(live);
  RETURN_IF_ERROR(model->run(live, *stream));  // brings the inputs there
  RETURN_IF_ERROR(stream->synchronize());
  ASSIGN_OR_RETURN(const auto graph, device.capture(*stream, [&](Recorder& recorder) {
    for (int i = 0; i < kProducts; ++i)
      for (Thunk t : model->pieces().front().thunks) {
        t.depends = true;
        RETURN_IF_ERROR(recorder.launch(t));
      }
    return Status::ok();
  }));
  ASSIGN_OR_RETURN(const double us, best_us(device, *stream, [&] { return graph->replay(*stream); }));
  return 2e-6 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) * kProducts / us;
}

}  // namespace

MachineSpeed measure_speed_of(const DeviceInfo& info, int threads) {
  if (info.kind != DeviceKind::Cuda) return measure_machine(threads);
  MachineSpeed speed;
  DeviceOptions options;
  options.kind = info.kind;
  const auto platform = make_platform(options);
  if (!platform.is_ok()) return speed;
  const auto measured = copy_GBps(*platform->device, DeviceTrial{}.bytes);
  speed.read_GBps_1 = speed.read_GBps_all = measured.is_ok() ? *measured : 0;
  return speed;
}

bool has_device_speed(const Device& device) {
  return !device.info().host_visible && device.info().computes && !device.clock_us();
}

Result<DeviceSpeed> measure_device(const Platform& platform, const DeviceTrial& trial) {
  DeviceSpeed speed;
  ASSIGN_OR_RETURN(speed.copy_GBps, copy_GBps(*platform.device, trial.bytes));
  RETURN_IF_ERROR(measure_host_copies(*platform.device, std::min(trial.bytes, size_t{64} << 20), speed));
  const auto product = product_tflops(platform, trial.size);
  if (product.is_ok()) {
    speed.bf16_tflops = *product;
    speed.size = trial.size;
  } else if (product.status().code() != Code::Unsupported) {
    return product.status();
  }
  return speed;
}

}  // namespace reprise::measurement

#include "engine/memory_rules.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"

namespace reprise::engine {
namespace {

constexpr int64_t kGb = 1024;  // in MB
constexpr StepDefaults kCpu{64, 2048};
constexpr double kCpuFraction = 0.8;
constexpr double kUnknownFraction = 0.88;
// The original's table gives an NPU of 61 GiB chunks of 32,768 tokens and its formula 48 GiB for them, which together
// leave no room for a model. A chunk that was not asked for is halved until so much of the memory is left.
constexpr double kLeastFraction = 0.6;
constexpr int64_t kLeastChunk = 2048;

bool accelerator(DeviceKind kind) { return kind == DeviceKind::Cuda || kind == DeviceKind::Ascend; }

// A step cannot be larger than the limit, so sizes above it go and the limit itself comes in their place.
void fit(std::vector<int64_t>& sizes, int64_t limit, std::string_view flag) {
  if (sizes.empty() || sizes.back() <= limit) return;
  std::erase_if(sizes, [&](int64_t n) { return n > limit; });
  if (sizes.empty() || sizes.back() != limit) sizes.push_back(limit);
  log::notice("{}: a step holds at most {}; effective: {}", flag, limit, fmt::join(sizes, ","));
}

int64_t usable_chunk(int64_t chunk, DeviceKind kind, int64_t memory_mb, const EngineOptions& o) {
  if (!accelerator(kind) || memory_mb <= 0 || o.mem_fraction_static != 0) return chunk;
  const auto left = [&](int64_t c) {
    return 1 - reserved_mb({.memory_mb = memory_mb, .chunk = c, .largest_batch = o.max_running_requests}) /
                   static_cast<double>(memory_mb);
  };
  while (chunk > kLeastChunk && left(chunk) < kLeastFraction) chunk /= 2;
  return chunk;
}

}  // namespace

StepDefaults step_defaults(DeviceKind kind, int64_t memory_mb, int64_t tp) {
  if (!accelerator(kind)) return kCpu;
  const bool ascend = kind == DeviceKind::Ascend;
  const auto by_tp = [tp](int64_t few, int64_t many) { return tp < 4 ? few : many; };
  if (memory_mb <= 0) return {160, 4096};
  if (memory_mb < 20 * kGb) return {8, 2048};
  if (ascend && memory_mb < 32 * kGb) return {by_tp(16, 64), 32768};
  if (memory_mb < 35 * kGb) return {by_tp(24, 80), 2048};
  if (memory_mb < 60 * kGb) return {by_tp(32, 160), 4096};
  if (ascend && memory_mb < 64 * kGb) return {by_tp(64, 128), 32768};
  if (memory_mb < 160 * kGb) return {by_tp(256, 512), 8192};
  return {512, 16384};
}

double reserved_mb(const FractionInputs& in) {
  const auto batch = static_cast<double>(in.largest_batch);
  double mb = 512 + 1.5 * static_cast<double>(std::max<int64_t>(in.chunk, 2048)) + 2 * batch +
              1024.0 * static_cast<double>(in.tp * in.pp) / 8;
  if (in.dp > 0) mb += (in.largest_batch > 300 ? 4.5 : 3.0) * batch * static_cast<double>(in.dp);
  if (in.memory_mb > 60 * kGb) mb = std::max(mb, 10.0 * kGb);
  switch (in.draft) {
    case Draft::None: break;
    case Draft::Eagle: mb += 2 * kGb; break;
    case Draft::Standalone: mb += 6 * kGb; break;
  }
  return mb;
}

Result<double> mem_fraction(const FractionInputs& in) {
  if (in.memory_mb <= 0) return kUnknownFraction;
  const auto memory = static_cast<double>(in.memory_mb);
  const double fraction = std::round((memory - reserved_mb(in)) / memory * 1000) / 1000;
  if (fraction <= 0)
    return error(Code::OutOfMemory,
                 "{:.0f} MB are reserved for steps of {} tokens and batches of {}, and the device has {:.0f} MB; set "
                 "`mem_fraction_static` (0.5, say), or lower `chunked_prefill_size` and `max_running_requests`",
                 reserved_mb(in), in.chunk, in.largest_batch, memory);
  return fraction;
}

WeightCount count_weights(const checkpoint::Checkpoint& checkpoint, const checkpoint::QuantPlan& plan) {
  WeightCount n;
  for (const auto& t : checkpoint.tensors()) {
    n.all += t.elements();
    if (plan.of(t.name).scheme == checkpoint::LinearScheme::Packed) n.packed += t.elements();
  }
  return n;
}

namespace {

constexpr int64_t kSmall = 250'000'000;  // weights of a model that shows each rounding and is fast all the same

}  // namespace

bool usual_int8_activations(const WeightCount& weights, const DeviceInfo& device) {
  return device.int8_blocks && weights.packed > 0 && weights.all > kSmall;
}

UsualDtype usual_dtype(const checkpoint::ModelConfigFields& fields, const checkpoint::Checkpoint* checkpoint,
                       const checkpoint::QuantPlan& plan, const DeviceInfo& device) {
  if (fields.dtype) return {*fields.dtype};
  if (!checkpoint) return {DType::BF16};
  const auto [elements, packed] = count_weights(*checkpoint, plan);
  if (elements > kSmall) return {DType::BF16, "above 250 million weights"};
  // Nearly all: norms and routers are floats in every file, and what is unpacked would be rounded.
  if (packed * 10 < elements * 9 || device.kind != DeviceKind::Cpu) return {DType::F32, "up to 250 million weights"};
  return {device.bf16_dots ? DType::BF16 : DType::F32,
          fmt::format("weights stay packed, and {} has {} fast bf16 dot product here", device.isa,
                      device.bf16_dots ? "a" : "no")};
}

Status fill_defaults(EngineOptions& o, const DeviceInfo& device) {
  const auto memory_mb = static_cast<int64_t>(device.memory_bytes >> 20);
  const StepDefaults defaults = step_defaults(device.kind, memory_mb, 1);
  if (o.max_running_requests == 0) o.max_running_requests = defaults.largest_batch;
  if (o.chunked_prefill_size == 0) o.chunked_prefill_size = usable_chunk(defaults.chunk, device.kind, memory_mb, o);
  fit(o.graph.decode_sizes, o.max_running_requests, "`graph_decode_sizes`");
  fit(o.graph.prefill_sizes, std::max(o.chunked_prefill_size, o.max_running_requests), "`graph_prefill_sizes`");
  if (o.mem_fraction_static != 0) return Status::ok();
  if (!accelerator(device.kind)) {
    o.mem_fraction_static = kCpuFraction;
    return Status::ok();
  }
  const int64_t captured = o.graph.decode_sizes.empty() ? o.max_running_requests : o.graph.decode_sizes.back();
  ASSIGN_OR_RETURN(o.mem_fraction_static,
                   mem_fraction({.memory_mb = memory_mb, .chunk = o.chunked_prefill_size, .largest_batch = captured}));
  log::info("from {} MB of memory: `max_running_requests` {}, `chunked_prefill_size` {}, `mem_fraction_static` {}",
            memory_mb, o.max_running_requests, o.chunked_prefill_size, o.mem_fraction_static);
  return Status::ok();
}

double usable_bytes(const DeviceInfo& device) {
  return static_cast<double>(device.free_bytes > 0 ? device.free_bytes : device.memory_bytes);
}

Result<int64_t> kv_pages_that_fit(const KvBudget& b, int64_t wanted) {
  if (b.memory_bytes <= 0)
    return error(Code::OutOfMemory, "the device does not say how much memory it has; set `max_total_tokens`");
  const auto fits = static_cast<int64_t>((b.fraction * b.memory_bytes - b.weight_bytes) / b.page_bytes) - b.scratch;
  if (fits >= 1) return std::min(wanted, fits);
  // One page for tokens, and the scratch ones; the third digit is rounded up.
  const double least =
      std::ceil((b.weight_bytes + static_cast<double>(1 + b.scratch) * b.page_bytes) / b.memory_bytes * 1000) / 1000;
  const std::string why =
      fmt::format("no memory is left for the KV cache: {:.2f} GB x `mem_fraction_static` {} minus {:.2f} GB of weights",
                  b.memory_bytes / 1e9, b.fraction, b.weight_bytes / 1e9);
  if (least <= 1) return error(Code::OutOfMemory, "{}; set `mem_fraction_static` {} or more", why, least);
  return error(Code::OutOfMemory,
               "{}; the device is too small for this model at any fraction, or other processes use it: a smaller "
               "`dtype` or model is needed",
               why);
}

}  // namespace reprise::engine

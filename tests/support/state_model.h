// A recurrent model for tests: Qwen3 whose every layer adds a state that runs through the sequence, and which may go by
// three rows of positions besides. Its ops are registered here, with kernels for the CPU and the null device; engine,
// passes and backends know nothing of it.
#pragma once

#include "backends/cpu/cpu_kernel.h"
#include "backends/null/null_device.h"
#include "engine/engine.h"
#include "models/decoder.h"
#include "models/rope.h"

namespace reprise::testing_support {

// state' = state / 2 + x, row by row: what it gives depends on the order of rows, and on where a chunk begins.
// ptr: x or state, ...; dim: 0 sequences, 1 width, 2 rows.
inline void decay(float* s, const float* x, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) s[i] = 0.5f * s[i] + x[i];
}

// state_scan: row t of y is the state behind row t. Rows of no sequence are zero.
inline void scan_columns(const LaunchArgs& a, const LiveSizes& live, int64_t begin, int64_t end) {
  const auto* x = static_cast<const float*>(a.ptr[0]);
  const auto* state = static_cast<const float*>(a.ptr[1]);
  const auto *read = static_cast<const int32_t*>(a.ptr[2]), *borders = static_cast<const int32_t*>(a.ptr[3]);
  auto* y = static_cast<float*>(a.ptr[4]);
  const int64_t sequences = a.dim[0].value(live), width = a.dim[1].value(live), rows = a.dim[2].value(live);
  for (int64_t r = 0; r < sequences; ++r)
    for (int64_t t = borders[r]; t < borders[r + 1]; ++t) {
      const float* before = t == borders[r] ? state + read[r] * width : y + (t - 1) * width;
      std::copy(before + begin, before + end, y + t * width + begin);
      decay(y + t * width, x + t * width, begin, end);
    }
  for (int64_t t = borders[sequences]; t < rows; ++t) std::fill(y + t * width + begin, y + t * width + end, 0.f);
}

// state_advance: the state behind the last row of each sequence, from the slot that is read to the one that is written.
inline void advance_columns(const LaunchArgs& a, const LiveSizes& live, int64_t begin, int64_t end) {
  auto* state = static_cast<float*>(a.ptr[0]);
  const auto* x = static_cast<const float*>(a.ptr[1]);
  const auto *read = static_cast<const int32_t*>(a.ptr[2]), *write = static_cast<const int32_t*>(a.ptr[3]),
             *borders = static_cast<const int32_t*>(a.ptr[4]);
  const int64_t sequences = a.dim[0].value(live), width = a.dim[1].value(live);
  for (int64_t r = 0; r < sequences; ++r) {
    if (write[r] < 0) continue;
    float* to = state + write[r] * width;
    const float* from = state + read[r] * width;
    if (to != from) std::copy(from + begin, from + end, to + begin);
    for (int64_t t = borders[r]; t < borders[r + 1]; ++t) decay(to, x + t * width, begin, end);
  }
}

using Columns = void (*)(const LaunchArgs&, const LiveSizes&, int64_t begin, int64_t end);
template <Columns F>
void on_cpu(const LaunchArgs& a, const LiveSizes& live, int thread, int threads) {
  const cpu::Range r = cpu::share(a.dim[1].value(live), thread, threads);
  F(a, live, r.begin, r.end);
}
template <Columns F>
void on_null(const LaunchArgs& a, const LiveSizes& live) {
  F(a, live, 0, a.dim[1].value(live));
}

inline void add_state_ops(Platform& p) {
  p.ops->add(
      "state_scan(Tensor x, Cache state, Index read, Index borders) -> Tensor : split_point",
      [](const OpCall& c) -> Result<std::vector<TensorType>> { return std::vector<TensorType>{c.in[0]}; },
      "the state behind every row");
  p.ops->add(
      "state_advance(Cache(a!) state, Tensor x, Index read, Index write, Index borders) -> Tensor(a)",
      [](const OpCall& c) -> Result<std::vector<TensorType>> { return std::vector<TensorType>{c.in[0]}; },
      "the state behind the last row of each sequence");
  const auto entry = [&](const std::string& op, size_t x, size_t read, DeviceKind kind, OpaqueKernel kernel) {
    KernelEntry e;
    e.name = fmt::format("test.{}.{}", op, device_kind_name(kind));
    e.op = op;
    e.device = kind;
    e.accepts = [](const OpCall& c) {
      return c.in[0].dtype == DType::F32 ? Status::ok() : error(Code::Unsupported, "states other than f32");
    };
    e.bind = [x, read](const OpCall& c, LaunchArgs& a) {
      a.dim[0] = c.in[read].shape[0];
      a.dim[1] = c.in[x].shape[1];
      a.dim[2] = c.in[x].shape[0];
    };
    e.part[0] = kernel;
    p.kernels->add(std::move(e));
  };
  entry("state_scan", 0, 2, DeviceKind::Cpu, cpu::opaque(on_cpu<scan_columns>));
  entry("state_advance", 1, 2, DeviceKind::Cpu, cpu::opaque(on_cpu<advance_columns>));
  entry("state_scan", 0, 2, DeviceKind::Null, null::opaque(on_null<scan_columns>));
  entry("state_advance", 1, 2, DeviceKind::Null, null::opaque(on_null<advance_columns>));
}

inline models::ModelOutputs forward_states(const models::ModelConfig& config, nn::StepInputs& in,
                                           const nn::ParamScope& root) {
  const auto attention = models::grouped_attention(config, {.qk_norm = true}, in);
  const auto mlp = [&](Tensor x, int64_t layer, const nn::ParamScope& p) {
    Tensor& state = in.cache("state", layer);
    state = x.tracer()->call("state_advance", {state, x, in.state_read, in.state_write, in.cu_seqlens})[0];
    Tensor y = x.tracer()->call("state_scan", {x, state, in.state_read, in.cu_seqlens})[0];
    return nn::add(nn::gated_mlp(x, config.fields.intermediate_size, false, p / "mlp"), y);
  };
  return models::decoder(config, attention, mlp, in, root);
}

template <bool Idempotent>
void declare_states(const models::ModelConfig& config, const models::TraceOptions& trace, models::StepSpec& step) {
  for (models::InputSpec& i : models::state_inputs(trace)) step.inputs.push_back(std::move(i));
  for (int64_t l = 0; l < config.fields.num_hidden_layers; ++l)
    step.caches.push_back({.name = nn::cache_name("state", l),
                           .kind = models::CacheSpec::Kind::PerSequence,
                           .dtype = DType::F32,
                           .shape = {Dim(config.fields.hidden_size)},
                           .idempotent = Idempotent});
}

inline models::ModelSpec qwen3_with(decltype(models::ModelSpec::forward) forward,
                                    decltype(models::ModelSpec::declare) declare) {
  models::ModelSpec spec = models::qwen3::kQwen3;
  spec.forward = forward;
  spec.declare = declare;
  return spec;
}

inline const models::ModelSpec& state_model() {
  static const models::ModelSpec spec = qwen3_with(forward_states, declare_states<false>);
  return spec;
}
// The same, declared as if a step might run twice over its states.
inline const models::ModelSpec& misdeclared_state_model() {
  static const models::ModelSpec spec = qwen3_with(forward_states, declare_states<true>);
  return spec;
}

}  // namespace reprise::testing_support

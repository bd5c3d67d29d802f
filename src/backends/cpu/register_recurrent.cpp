// Entries of the ops of layers with a state for each sequence.
#include "backends/cpu/register_recurrent.h"

#include "backends/cpu/kernels/delta_shape.h"
#include "backends/cpu/kernels/recurrent_table.h"
#include "backends/cpu/register.h"
#include "base/check.h"
#include "ops/args/recurrent.h"

namespace reprise::cpu {

#define REPRISE_DECLARE(name) void name(const LaunchArgs& args, const LiveSizes& live, int thread, int threads);
#define REPRISE_SET(isa, set)                                                                   \
  namespace set {                                                                               \
  REPRISE_DECLARE(causal_conv_f32)                                                              \
  REPRISE_DECLARE(causal_conv_bf16)                                                             \
  REPRISE_DECLARE(causal_conv_f16)                                                              \
  REPRISE_DECLARE(gated_delta_f32)                                                              \
  REPRISE_DECLARE(gated_delta_bf16)                                                             \
  REPRISE_DECLARE(gated_delta_f16)                                                              \
  static const RecurrentTable kRecurrent{{causal_conv_f32, causal_conv_bf16, causal_conv_f16},  \
                                         {gated_delta_f32, gated_delta_bf16, gated_delta_f16}}; \
  }
REPRISE_CPU_ISAS(REPRISE_SET)
#undef REPRISE_SET
#undef REPRISE_DECLARE

const RecurrentTable& recurrent_table(Isa isa) {
#define REPRISE_CHOOSE(choice, set) \
  if (isa == Isa::choice) return set::kRecurrent;
  REPRISE_CPU_ISAS(REPRISE_CHOOSE)
#undef REPRISE_CHOOSE
  check_failed("isa", __FILE__, __LINE__, fmt::format("no kernels for isa {}", isa_name(isa)));
}

namespace {

size_t delta_bytes(const GatedDeltaArgs& a, const LiveSizes&, int threads) {
  return static_cast<size_t>(delta_thread_floats(a.key) * threads) * sizeof(float);
}

Status accepts_taps(const OpCall& c) {
  constexpr int64_t kMostTaps = 16;
  if (const int64_t taps = c.in[2].shape[2].factor; taps > kMostTaps)
    return error(Code::Unsupported, "takes convolutions over 1 to {} rows, not {}", kMostTaps, taps);
  return Status::ok();
}

}  // namespace

void register_recurrent(KernelRegistry& kernels, Isa isa) {
  const RecurrentTable& k = recurrent_table(isa);
  Entries entries(kernels, isa);
  entries.add("causal_conv", k.causal_conv, {.accepts = accepts_taps});
  entries.add("gated_delta", k.gated_delta, {.scratch = scratch(delta_bytes)});
}

}  // namespace reprise::cpu

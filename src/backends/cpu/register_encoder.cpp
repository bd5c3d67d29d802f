// Entries of the ops of encoders, of pooled outputs and of heads that draft.
#include "backends/cpu/register_encoder.h"

#include "backends/cpu/kernels/encoder_table.h"
#include "backends/cpu/kernels/segment_shape.h"
#include "backends/cpu/register.h"
#include "base/check.h"
#include "ops/args/encoder.h"

namespace reprise::cpu {

#define REPRISE_DECLARE(name) void name(const LaunchArgs& args, const LiveSizes& live, int thread, int threads);
#define REPRISE_DECLARE_TYPED(name) \
  REPRISE_DECLARE(name##_f32)       \
  REPRISE_DECLARE(name##_bf16)      \
  REPRISE_DECLARE(name##_f16)
#define REPRISE_SET(isa, set)                                                                          \
  namespace set {                                                                                      \
  REPRISE_DECLARE_TYPED(segment_attention)                                                             \
  REPRISE_DECLARE_TYPED(pool_rows)                                                                     \
  REPRISE_DECLARE_TYPED(widen)                                                                         \
  REPRISE_DECLARE(l2_normalize)                                                                        \
  REPRISE_DECLARE(concat)                                                                              \
  const EncoderTable kEncoders{{segment_attention_f32, segment_attention_bf16, segment_attention_f16}, \
                               {pool_rows_f32, pool_rows_bf16, pool_rows_f16},                         \
                               {widen_f32, widen_bf16, widen_f16},                                     \
                               l2_normalize,                                                           \
                               concat};                                                                \
  }
REPRISE_CPU_ISAS(REPRISE_SET)

const EncoderTable& encoder_table(Isa isa) {
#define REPRISE_CHOOSE(choice, set) \
  if (isa == Isa::choice) return set::kEncoders;
  REPRISE_CPU_ISAS(REPRISE_CHOOSE)
  check_failed("isa", __FILE__, __LINE__, fmt::format("no kernels for isa {}", isa_name(isa)));
}

namespace {

size_t segment_bytes(const SegmentAttentionArgs& a, const LiveSizes& bound, int threads) {
  return static_cast<size_t>(SegmentShape(a.tokens.value(bound), a.size).thread_floats() * threads) * sizeof(float);
}

}  // namespace

void register_encoder(KernelRegistry& kernels, Isa isa) {
  const EncoderTable& k = encoder_table(isa);
  Entries entries(kernels, isa);
  entries.add("segment_attention", k.segment_attention, {.scratch = scratch(segment_bytes)});
  entries.add("pool_rows", k.pool_rows);
  entries.add("widen", k.widen);
  entries.add("l2_normalize", k.l2_normalize);
  entries.add("concat", k.concat);
}

}  // namespace reprise::cpu

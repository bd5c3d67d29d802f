// ExpertKernels: the kernels of mixtures of experts as plain function pointers, one instruction set at a time. Beside
// table.h and as it is, so that a new kernel here leaves the others compiled.
#pragma once

#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/isa.h"

namespace reprise::cpu {

// One name per kernel; a new kernel is one new line here.
#define REPRISE_CPU_EXPERT_KERNELS(X) \
  X(moe_gate)                         \
  X(moe_route)                        \
  X(moe_combine_f32)                  \
  X(moe_combine_bf16)                 \
  X(moe_combine_f16)                  \
  X(scale_rows_f32)                   \
  X(scale_rows_bf16)                  \
  X(scale_rows_f16)                   \
  X(sigmoid_f32)                      \
  X(sigmoid_bf16)                     \
  X(sigmoid_f16)                      \
  X(grouped_linear_f32)               \
  X(grouped_linear_bf16)              \
  X(grouped_linear_f16)

#define REPRISE_DECLARE(name) void name(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks);
namespace baseline {
REPRISE_CPU_EXPERT_KERNELS(REPRISE_DECLARE)
}
namespace avx2 {
REPRISE_CPU_EXPERT_KERNELS(REPRISE_DECLARE)
}
namespace avx512 {
REPRISE_CPU_EXPERT_KERNELS(REPRISE_DECLARE)
}
#undef REPRISE_DECLARE

struct ExpertKernels {
#define REPRISE_MEMBER(name) CpuKernel name;
  REPRISE_CPU_EXPERT_KERNELS(REPRISE_MEMBER)
#undef REPRISE_MEMBER
};

const ExpertKernels& expert_kernels(Isa isa);

}  // namespace reprise::cpu

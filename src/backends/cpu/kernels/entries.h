// What each kernel file adds to the registry; one copy per instruction set. backends/cpu/register.cpp calls them.
#pragma once

#include "backends/cpu/cpu_kernel.h"
#include "ops/kernel.h"

namespace reprise::cpu {

#define REPRISE_CPU_ENTRIES(isa)                        \
  namespace isa {                                       \
  void add_linear_kernels(KernelRegistry& kernels);     \
  void add_attention_kernels(KernelRegistry& kernels);  \
  void add_norm_kernels(KernelRegistry& kernels);       \
  void add_elementwise_kernels(KernelRegistry& kernels);\
  }
REPRISE_CPU_ENTRIES(baseline)
REPRISE_CPU_ENTRIES(avx2)
REPRISE_CPU_ENTRIES(avx512)
#undef REPRISE_CPU_ENTRIES

}  // namespace reprise::cpu

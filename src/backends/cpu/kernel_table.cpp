#include "backends/cpu/kernels/table.h"

namespace reprise::cpu {

#define REPRISE_BASELINE(name) baseline::name,
#define REPRISE_AVX2(name) avx2::name,
#define REPRISE_AVX512(name) avx512::name,

const KernelTable& kernel_table(Isa isa) {
  static const KernelTable tables[] = {{REPRISE_CPU_KERNELS(REPRISE_BASELINE)},
                                       {REPRISE_CPU_KERNELS(REPRISE_AVX2)},
                                       {REPRISE_CPU_KERNELS(REPRISE_AVX512)}};
  return tables[static_cast<int>(isa)];
}

}  // namespace reprise::cpu

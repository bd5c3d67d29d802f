#include "backends/cpu/kernels/table.h"
#include "base/check.h"

namespace reprise::cpu {

#define REPRISE_TYPED(name) {name##_f32, name##_bf16, name##_f16},
#define REPRISE_NAME(name) name,
#define REPRISE_TABLE(isa, set)                                                                                      \
  namespace set {                                                                                                    \
  static const KernelTable kTable{REPRISE_CPU_TYPED_KERNELS(REPRISE_TYPED) REPRISE_CPU_OTHER_KERNELS(REPRISE_NAME)}; \
  }
REPRISE_CPU_ISAS(REPRISE_TABLE)

const KernelTable& kernel_table(Isa isa) {
#define REPRISE_CHOOSE(choice, set) \
  if (isa == Isa::choice) return set::kTable;
  REPRISE_CPU_ISAS(REPRISE_CHOOSE)
  check_failed("isa", __FILE__, __LINE__, fmt::format("no kernels for isa {}", isa_name(isa)));
}

}  // namespace reprise::cpu

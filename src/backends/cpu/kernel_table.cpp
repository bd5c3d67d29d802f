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

// Sets with tile registers: those products, and the rest of the set they stand on.
#define REPRISE_OWN_BF16(name) t.name.bf16 = name##_bf16;
#define REPRISE_OWN_TYPED(name) t.name = {name##_f32, name##_bf16, name##_f16};
#define REPRISE_OWN(name) t.name = name;
#define REPRISE_TILE_TABLE(isa, set)                  \
  namespace set {                                     \
  static KernelTable on(KernelTable t) {              \
    REPRISE_CPU_TILE_PRODUCTS(REPRISE_OWN_BF16)       \
    REPRISE_CPU_TILE_TYPED(REPRISE_OWN_TYPED)         \
    REPRISE_CPU_TILE_OTHER(REPRISE_OWN)               \
    return t;                                         \
  }                                                   \
  static KernelTable with_blocks(KernelTable t) {     \
    REPRISE_CPU_TILE_BLOCK_PRODUCTS(REPRISE_OWN_BF16) \
    REPRISE_CPU_TILE_BLOCK_OTHER(REPRISE_OWN)         \
    return t;                                         \
  }                                                   \
  }
REPRISE_CPU_TILE_ISAS(REPRISE_TILE_TABLE)

const KernelTable& kernel_table(Isa isa) {
#define REPRISE_CHOOSE(choice, set) \
  if (isa == Isa::choice) return set::kTable;
  REPRISE_CPU_ISAS(REPRISE_CHOOSE)
#define REPRISE_CHOOSE_TILES(choice, set)                                 \
  if (without_block_tiles(isa) == Isa::choice) {                          \
    static const KernelTable table = set::on(kernel_table(base_of(isa))); \
    static const KernelTable all = set::with_blocks(table);               \
    return has_block_tiles(isa) ? all : table;                            \
  }
  REPRISE_CPU_TILE_ISAS(REPRISE_CHOOSE_TILES)
  check_failed("isa", __FILE__, __LINE__, fmt::format("no kernels for isa {}", isa_name(isa)));
}

bool unit_works([[maybe_unused]] Isa isa) {
#define REPRISE_TRY(choice, set) \
  if (isa == Isa::choice) return set::unit_works();
  REPRISE_CPU_TILE_ISAS(REPRISE_TRY)
  return false;
}

}  // namespace reprise::cpu

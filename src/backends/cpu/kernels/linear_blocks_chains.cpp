// The products of fp32 and f16 rows with weights in GGUF blocks.
#include "backends/cpu/kernels/linear_blocks.h"
#include "backends/cpu/kernels/packed_tiles.h"

namespace reprise::cpu::REPRISE_ISA {

PanelProduct chains_product(BlockFormat format) {
  PanelProduct product = nullptr;
  with_format(format, [&](auto p) { product = packed_product<decltype(p)>; });
  return product;
}

}  // namespace reprise::cpu::REPRISE_ISA

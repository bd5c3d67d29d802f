// The products of rows in int8 with weights in GGUF blocks.
#include "backends/cpu/kernels/byte_sums.h"
#include "backends/cpu/kernels/linear_blocks.h"

namespace reprise::cpu::REPRISE_ISA {

PanelProduct bytes_product(BlockFormat format) {
  PanelProduct product = nullptr;
  with_format(format, [&](auto p) { product = byte_product<decltype(p)>; });
  return product;
}

}  // namespace reprise::cpu::REPRISE_ISA

// The products of bf16 rows with weights in GGUF blocks by fp32 multiply-adds.
#include "backends/cpu/kernels/packed_strips.h"

namespace reprise::cpu::REPRISE_ISA {

PanelProduct pair_floats_product(BlockFormat format) { return sums_product_of<PairFloats>(format); }

}  // namespace reprise::cpu::REPRISE_ISA

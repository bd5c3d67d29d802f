// The products of bf16 rows with weights in GGUF blocks by the bf16 dot instruction, where the set has one.
#if defined(__AVX512BF16__)
#include "backends/cpu/kernels/packed_strips.h"

namespace reprise::cpu::REPRISE_ISA {

PanelProduct pair_words_product(BlockFormat format) { return sums_product_of<PairWords>(format); }

}  // namespace reprise::cpu::REPRISE_ISA
#endif

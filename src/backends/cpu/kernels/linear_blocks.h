// PackedPanel: one panel of weights in GGUF blocks and the rows that it is multiplied with; and the products of each
// way to add up, chosen by format. The ways have a source file each, because their tiles are most of what a compiler
// works on. Lives on the stack of one kernel call.
#pragma once

#include <cstdint>

#include "base/block_format.h"

namespace reprise::cpu::REPRISE_ISA {

struct PackedPanel {
  const void* x = nullptr;       // rows as the way has them: fp32 numbers, items of pairs, or words of bytes
  const float* whole = nullptr;  // of pairs the sums of a row's blocks, of bytes their factors (ByteRows)
  int64_t stride = 0;            // from row to row, of both, in 4 bytes
  int64_t rows = 0;
  const uint8_t* panel = nullptr;
  int64_t k = 0;
  int first = 0, columns = 0;  // of the panel, columns a multiple of 16
  int64_t direct = 0;          // of chains: rows up to which every tile unpacks for itself
  float *c = nullptr,
        *strip = nullptr;  // the sums, kPanelColumns apart, and scratch memory (Scratch of linear_tiles.h)
};
using PanelProduct = void (*)(const PackedPanel&);

PanelProduct chains_product(BlockFormat format);       // packed_tiles.h
PanelProduct bytes_product(BlockFormat format);        // byte_sums.h
PanelProduct pair_floats_product(BlockFormat format);  // packed_sums.h
#if defined(__AVX512BF16__)
PanelProduct pair_words_product(BlockFormat format);
#endif

}  // namespace reprise::cpu::REPRISE_ISA

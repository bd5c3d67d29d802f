// PackedPanel: one panel of weights in GGUF blocks and the rows that it is multiplied with; and the products of each
// way to add up, chosen by format. The ways have a source file each, because their tiles are most of what a compiler
// works on. Lives on the stack of one kernel call.
#pragma once

#include <cstdint>
#include <span>

#include "base/block_format.h"

namespace reprise::cpu::REPRISE_ISA {

// A number of a row that stays as it is beside int8 ones (byte_rows.h).
struct Outlier {
  uint16_t row;
  uint16_t k;  // in its chunk
  float number;
};
static_assert(sizeof(Outlier) == 8);

// The outliers of a block of rows, chunk by chunk, in the order of their k, and those of one k in that of their rows.
struct OutlierList {
  const uint32_t* ends = nullptr;  // of each chunk's
  const Outlier* all = nullptr;
  bool empty(int64_t chunks) const { return ends[chunks - 1] == 0; }
  std::span<const Outlier> of_chunk(int64_t chunk) const {
    const uint32_t begin = chunk == 0 ? 0 : ends[chunk - 1];
    return {all + begin, ends[chunk] - begin};
  }
};

struct PackedPanel {
  const void* x = nullptr;       // rows as the way has them: fp32 numbers, items of pairs, or words of bytes
  const float* whole = nullptr;  // of pairs the sums of a row's blocks, of bytes their factors (ByteRows)
  int64_t stride = 0;            // from row to row, of both, in 4 bytes
  int64_t rows = 0;
  OutlierList outliers = {};  // of bytes
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

// linear_packed, lm_head_argmax_packed and embedding_packed: weights that stay in GGUF blocks (packed_tiles.h).
//
// Arguments of the products: ptr x, weight, bias (or null; linear_packed only), out; dim rows, K, N, format, rows up
// to which weights are unpacked in registers. Workspace: as linear and lm_head_argmax.
#include "backends/cpu/kernels/packed_tiles.h"
#include "backends/cpu/kernels/sums.h"
#include "backends/cpu/kernels/table.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <class In, class Out>
void linear_packed(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* bias = static_cast<const typename In::Type*>(args.ptr[2]);
  auto* out = static_cast<typename Out::Type*>(args.ptr[3]);
  const int64_t n = args.dim[2].factor;
  packed_products_of<In>(
      args, live, rank, ranks, [&](const float* sums, int64_t row, int64_t rows, int64_t column, int columns) {
        round_sums<In, Out>(sums, rows, columns, bias ? bias + column : nullptr, out + row * n + column, n);
      });
}

template <class In>
void lm_head_argmax_packed(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const int64_t all_rows = args.dim[0].value(live);
  Best* found = found_by_ranks(args, live, ranks) + rank * best_stride(all_rows);
  for (int64_t r = 0; r < all_rows; ++r) found[r] = {kLowest, kNoIndex};
  packed_products_of<In>(args, live, rank, ranks,
                         [&](float* sums, int64_t row, int64_t rows, int64_t column, int columns) {
                           search_rows(sums, rows, column, columns, found + row);
                         });
}

// A block of one row of a table. As checkpoint/dequantize.cpp has it, each operation rounded on its own.
void block_of_row(BlockFormat format, const uint8_t* block, int64_t column, float* out) {
  uint16_t factors[16] = {};
  std::memcpy(factors, block + 2 * column, 2);
  if (format == BlockFormat::Q4_1) std::memcpy(factors + 1, block + 2 * (kPanelColumns + column), 2);
  const F32x16 wide = F16::load(factors);
  const float factor = wide[0], minimum = wide[1];
  const uint8_t* numbers = block + 2 * kPanelColumns * (format == BlockFormat::Q4_1 ? 2 : 1);
  for (int64_t i = 0; i < kBlockK; ++i) {
    if (format == BlockFormat::Q8_0) {
      out[i] = factor * static_cast<float>(static_cast<int8_t>(numbers[i * kPanelColumns + column]));
      continue;
    }
    const uint8_t pair = numbers[(i / kGroupK * kPanelColumns + column) * 4 + i % kGroupK / 2];
    const int number = i % 2 == 0 ? pair & 15 : pair >> 4;
    out[i] = format == BlockFormat::Q4_0 ? factor * static_cast<float>(number - 8)
                                         : factor * static_cast<float>(number) + minimum;
  }
}

// ptr: table, ids, out. dim: ids, width, rows of the table, format, bytes of a panel's block.
template <class Out>
void embedding_packed(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  const auto* table = static_cast<const uint8_t*>(args.ptr[0]);
  const auto* ids = static_cast<const int32_t*>(args.ptr[1]);
  auto* out = static_cast<typename Out::Type*>(args.ptr[2]);
  const int64_t width = args.dim[1].factor, table_rows = args.dim[2].factor, block_bytes = args.dim[4].factor;
  const auto format = static_cast<BlockFormat>(args.dim[3].factor);
  const int64_t blocks = width / kBlockK;
  // A row of a panel is spread over all of its lines, so even a single row is worth sharing.
  const Range mine = share(args.dim[0].value(live) * blocks, rank, ranks);
  for (int64_t u = mine.begin; u < mine.end; ++u) {
    const int64_t t = u / blocks, b = u % blocks, id = ids[t];
    float row[kBlockK] = {};
    if (id >= 0 && id < table_rows)
      block_of_row(format, table + (id / kPanelColumns * blocks + b) * block_bytes, id % kPanelColumns, row);
    for (int64_t i = 0; i < kBlockK; i += 16) Out::store(out + t * width + b * kBlockK + i, load(row + i));
  }
}

}  // namespace

void linear_packed_f32(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  linear_packed<F32, F32>(args, live, rank, ranks);
}
void linear_packed_bf16(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  linear_packed<Bf16, Bf16>(args, live, rank, ranks);
}
void linear_packed_bf16_f32(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  linear_packed<Bf16, F32>(args, live, rank, ranks);
}
void linear_packed_f16(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  linear_packed<F16, F16>(args, live, rank, ranks);
}
void linear_packed_f16_f32(const LaunchArgs& args, const LiveSizes& live, int rank, int ranks) {
  linear_packed<F16, F32>(args, live, rank, ranks);
}
REPRISE_KERNELS(lm_head_argmax_packed, lm_head_argmax_packed)
REPRISE_KERNELS(embedding_packed, embedding_packed)

}  // namespace reprise::cpu::REPRISE_ISA

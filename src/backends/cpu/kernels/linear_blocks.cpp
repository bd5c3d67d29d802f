// linear_blocks, grouped_linear_blocks, lm_head_argmax_blocks and embedding_blocks: weights that stay in GGUF blocks
// (packed_products.h). Workspace: packed_thread_bytes() a thread; of the head, then the best of every thread.
#include "backends/cpu/kernels/define.h"
#include "backends/cpu/kernels/grouped_rows.h"
#include "backends/cpu/kernels/packed_products.h"
#include "backends/cpu/kernels/sums.h"
#include "ops/args/products.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

template <class In, class Out>
void linear_blocks(const LinearBlocksArgs& a, const Launch& l) {
  const typename In::Type* bias = a.bias;
  typename Out::Type* out = a.out;
  const int64_t n = a.shape.columns;
  packed_products_of<In>(a, l, [&](const float* sums, int64_t row, int64_t rows, int64_t column, int columns) {
    round_sums<In, Out>(sums, rows, columns, bias ? bias + column : nullptr, out + row * n + column, n);
  });
}

template <class In, class Way, class P>
void grouped_products(const GroupedLinearBlocksArgs& a, const Launch& l) {
  using T = typename In::Type;
  const int64_t all = l.size(a.shape.rows), k = a.shape.depth, n = a.shape.columns,
                panels = (n + kPanelColumns - 1) / kPanelColumns, panel_bytes = k / kBlockK * P::kBlockBytes;
  const T* x = a.x;
  const uint8_t* weight = a.weight;
  T* out = a.out;
  auto* own = l.scratch<float>(static_cast<int64_t>(packed_thread_bytes(all, k)));
  const GroupWalk walk{a.starts, a.groups, all};
  Scratch scratch;
  [[maybe_unused]] const typename Way::Mode mode;
  const int64_t used =
      for_each_share(walk, panels, l.thread, l.threads, [&](int64_t g, int64_t begin, int64_t count, Range mine) {
        const int64_t block = linear_row_block(count);
        for (int64_t m = begin; m < begin + count; m += block) {
          const int64_t rows = std::min(block, begin + count - m);
          const auto xt = Way::rows(x + m * k, rows, k, own);
          for (int64_t p = mine.begin; p < mine.end; ++p) {
            const int64_t column = p * kPanelColumns;
            const int columns = static_cast<int>(std::min<int64_t>(kPanelColumns, n - column));
            Way::template product<P>(xt, rows, weight + (g * panels + p) * panel_bytes, 0, k, (columns + 15) / 16 * 16,
                                     l.way, scratch);
            round_sums<In, In>(scratch.c, rows, columns, nullptr, out + m * n + column, n);
          }
        }
      });
  clear_rows(walk, used, out, n, l);
}

template <class In>
void grouped_linear_blocks(const GroupedLinearBlocksArgs& a, const Launch& l) {
  with_way<In>(a.format, l, [&](auto way, auto p) { grouped_products<In, decltype(way), decltype(p)>(a, l); });
}

Best* packed_found(const LmHeadBlocksArgs& a, const Launch& l) {
  return found_by_threads(l, packed_thread_bytes(l.size(a.shape.rows), a.shape.depth));
}

template <class In>
void lm_head_argmax_blocks(const LmHeadBlocksArgs& a, const Launch& l) {
  const int64_t all_rows = l.size(a.shape.rows);
  Best* found = packed_found(a, l) + l.thread * best_stride(all_rows);
  for (int64_t r = 0; r < all_rows; ++r) found[r] = {kLowest, kNoIndex};
  packed_products_of<In>(a, l, [&](float* sums, int64_t row, int64_t rows, int64_t column, int columns) {
    search_rows(sums, rows, column, columns, found + row);
  });
}

void merge(const LmHeadBlocksArgs& a, const Launch& l) {
  merge_best(packed_found(a, l), a.out, l.size(a.shape.rows), l.thread, l.threads);
}

// A block of one row of a table. As checkpoint/dequantize.cpp has it, each operation rounded on its own.
void block_of_row(BlockFormat format, const uint8_t* block, int64_t column, float* out) {
  constexpr float kFp4[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const bool power = format == BlockFormat::Mxfp4;
  uint16_t factors[16] = {};
  if (!power) std::memcpy(factors, block + 2 * column, 2);
  if (format == BlockFormat::Q4_1) std::memcpy(factors + 1, block + 2 * (kPanelColumns + column), 2);
  const F32x16 wide = F16::load(factors);
  float factor = wide[0];
  const float minimum = wide[1];
  if (power) {
    float powers[kLanes];
    uint8_t bytes[kLanes] = {block[column]};
    reg_store(powers, reg_power(bytes));
    factor = powers[0];
  }
  const uint8_t* numbers = block + kPanelColumns * (power ? 1 : format == BlockFormat::Q4_1 ? 4 : 2);
  for (int64_t i = 0; i < kBlockK; ++i) {
    if (format == BlockFormat::Q8_0) {
      out[i] = factor * static_cast<float>(static_cast<int8_t>(numbers[i * kPanelColumns + column]));
      continue;
    }
    const uint8_t pair = numbers[(i / kGroupK * kPanelColumns + column) * 4 + i % kGroupK / 2];
    const int number = i % 2 == 0 ? pair & 15 : pair >> 4;
    if (power) {
      out[i] = factor * (number < 8 ? kFp4[number] : -kFp4[number - 8]);
      continue;
    }
    out[i] = format == BlockFormat::Q4_0 ? factor * static_cast<float>(number - 8)
                                         : factor * static_cast<float>(number) + minimum;
  }
}

// The launch's way is the bytes of a panel's block.
template <class Out>
void embedding_blocks(const EmbeddingBlocksArgs& a, const Launch& l) {
  const uint8_t* table = a.table;
  const int32_t* ids = a.ids;
  typename Out::Type* out = a.out;
  const int64_t width = a.width, blocks = width / kBlockK;
  // A row of a panel is spread over all of its lines, so even a single row is worth sharing.
  const Range mine = l.share(l.size(a.tokens) * blocks);
  for (int64_t u = mine.begin; u < mine.end; ++u) {
    const int64_t t = u / blocks, b = u % blocks, id = ids[t];
    float row[kBlockK] = {};
    if (id >= 0 && id < a.vocabulary)
      block_of_row(a.format, table + (id / kPanelColumns * blocks + b) * l.way, id % kPanelColumns, row);
    for (int64_t i = 0; i < kBlockK; i += 16) Out::store(out + t * width + b * kBlockK + i, load(row + i));
  }
}

}  // namespace

REPRISE_KERNEL(linear_blocks_f32, linear_blocks<F32, F32>)
REPRISE_KERNEL(linear_blocks_bf16, linear_blocks<Bf16, Bf16>)
REPRISE_KERNEL(linear_blocks_bf16_f32, linear_blocks<Bf16, F32>)
REPRISE_KERNEL(linear_blocks_f16, linear_blocks<F16, F16>)
REPRISE_KERNEL(linear_blocks_f16_f32, linear_blocks<F16, F32>)
REPRISE_KERNELS(grouped_linear_blocks, grouped_linear_blocks)
REPRISE_KERNELS(lm_head_argmax_blocks, lm_head_argmax_blocks)
REPRISE_KERNEL(lm_head_argmax_blocks_merge, merge)
REPRISE_KERNELS(embedding_blocks, embedding_blocks)

}  // namespace reprise::cpu::REPRISE_ISA

#include "backends/cpu/layout.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace reprise::cpu {
namespace {

struct Sizes {
  int64_t matrices, n, k;
};

Sizes sizes_of(const TensorType& type) {
  const Shape& s = type.shape;
  CHECK(s.rank() == 2 || s.rank() == 3, "layout of {}", describe(type));
  for (Dim d : s.dims()) CHECK(d.is_constant(), "layout of {}", describe(type));
  return {s.rank() == 3 ? s[0].factor : 1, s[s.rank() - 2].factor, s.back().factor};
}

int64_t panels_of(int64_t n) { return (n + kPanelWidth - 1) / kPanelWidth; }

// Where a row of a stack of matrices goes: a column of a panel, and how many rows from there on share the panel.
struct PanelPlace {
  int64_t panel, column, rows;
};
PanelPlace place_of(const Sizes& s, int64_t row) {
  const int64_t matrix = row / s.n, r = row % s.n, column = r % kPanelWidth;
  return {matrix * panels_of(s.n) + r / kPanelWidth, column, std::min(kPanelWidth - column, s.n - r)};
}

size_t row_major_bytes(const TensorType& type) {
  // Any rank: norms and biases are row-major too.
  return static_cast<size_t>(type.shape.elements(LiveSizes{})) * size_of(type.dtype);
}

void row_major_pack(const TensorType& type, void* dst, const void* rows, int64_t first, int64_t count) {
  if (count <= 0) return;
  const int64_t width = type.shape.rank() == 1 ? 1 : type.shape.back().factor;
  const size_t row = static_cast<size_t>(width) * size_of(type.dtype);
  std::memcpy(static_cast<char*>(dst) + static_cast<size_t>(first) * row, rows, static_cast<size_t>(count) * row);
}

int64_t one_panel_bytes(DType t, int64_t k) {
  const int64_t group = panel_group(t);
  return panel_header(t) + (k + group - 1) / group * group * kPanelWidth * static_cast<int64_t>(size_of(t));
}

size_t panel_bytes(const TensorType& type) {
  const auto [matrices, n, k] = sizes_of(type);
  return static_cast<size_t>(matrices * panels_of(n) * one_panel_bytes(type.dtype, k));
}

int32_t sum_of(const int8_t* row, int64_t k) {
  int32_t sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += row[i];
  return sum;
}

// Rows of `Group`s become columns of one panel. Sixteen groups of all rows at a time: each cache line of the source is
// read once and the lines of the panel are filled while they are near.
template <typename Group>
void transpose(const char* rows, int64_t row_bytes, int64_t count, int64_t groups, Group* panel) {
  constexpr int64_t kBlock = 64 / static_cast<int64_t>(sizeof(Group));
  for (int64_t g = 0; g < groups; g += kBlock) {
    const int64_t n = std::min(kBlock, groups - g);
    for (int64_t r = 0; r < count; ++r) {
      Group line[kBlock];
      std::memcpy(line, rows + r * row_bytes + g * static_cast<int64_t>(sizeof(Group)),
                  static_cast<size_t>(n) * sizeof(Group));
      for (int64_t i = 0; i < n; ++i) panel[(g + i) * kPanelWidth + r] = line[i];
    }
  }
}

void panel_pack(const TensorType& type, void* dst, const void* rows, int64_t first, int64_t count) {
  const Sizes sizes = sizes_of(type);
  const int64_t k = sizes.k;
  const int64_t elem = static_cast<int64_t>(size_of(type.dtype)), group = panel_group(type.dtype);
  const int64_t groups = k / group, row_bytes = k * elem, group_bytes = group * elem;
  const int64_t panel_size = one_panel_bytes(type.dtype, k), header = panel_header(type.dtype);
  const auto* from = static_cast<const char*>(rows);
  while (count > 0) {
    const auto [index, column, fitting] = place_of(sizes, first);
    const int64_t now = std::min(count, fitting);
    char* panel = static_cast<char*>(dst) + index * panel_size;
    char* to = panel + header + column * group_bytes;
    switch (group_bytes) {
      case 1: transpose(from, row_bytes, now, groups, reinterpret_cast<uint8_t*>(to)); break;
      case 2: transpose(from, row_bytes, now, groups, reinterpret_cast<uint16_t*>(to)); break;
      case 4: transpose(from, row_bytes, now, groups, reinterpret_cast<uint32_t*>(to)); break;
      case 8: transpose(from, row_bytes, now, groups, reinterpret_cast<uint64_t*>(to)); break;
    }
    if (k % group != 0)  // the rest of the last group stays zero
      for (int64_t r = 0; r < now; ++r)
        std::memcpy(to + (groups * kPanelWidth + r) * group_bytes, from + r * row_bytes + groups * group_bytes,
                    static_cast<size_t>(k % group * elem));
    if (header != 0)
      for (int64_t r = 0; r < now; ++r)
        reinterpret_cast<int32_t*>(panel)[column + r] =
            -128 * sum_of(reinterpret_cast<const int8_t*>(from + r * row_bytes), k);
    from += now * row_bytes;
    first += now;
    count -= now;
  }
}

// Eight numbers of kBits in a byte each, side by side.
template <int kBits>
uint32_t squeezed(uint64_t bytes) {
  constexpr uint64_t kOne = (1 << kBits) - 1, kTwo = (1 << 2 * kBits) - 1, kFour = (1 << 4 * kBits) - 1;
  bytes &= kOne * 0x0101010101010101u;
  bytes = (bytes | bytes >> (8 - kBits)) & kTwo * 0x0001000100010001u;
  bytes = (bytes | bytes >> (16 - 2 * kBits)) & kFour * 0x0000000100000001u;
  return static_cast<uint32_t>(bytes | bytes >> (32 - 4 * kBits));
}

uint64_t eight_bytes(const uint8_t* p) {
  uint64_t v;
  std::memcpy(&v, p, 8);
  return v;
}
void put_word(uint8_t* words, int64_t column, uint32_t word) { std::memcpy(words + column * 4, &word, 4); }
// Its lower 16 bits.
void put_half(uint8_t* halves, int64_t column, uint32_t word) { std::memcpy(halves + column * 2, &word, 2); }

// 32 nibbles of which number i is in the low and number 16 + i in the high one of byte i, as four words of neighbours.
void place_halves(const uint8_t* numbers, uint8_t* to, int64_t column) {
  for (int64_t group = 0; group < 4; ++group, to += 4 * kPanelWidth)
    put_word(to, column, squeezed<4>(eight_bytes(numbers + group % 2 * 8) >> (group / 2 * 4)));
}

// The eight factors or minima of 6 bits that the 12 bytes of q4_k and q5_k hold.
void six_bits(const uint8_t* s, uint8_t (&factors)[8], uint8_t (&minima)[8]) {
  for (int j = 0; j < 4; ++j) {
    factors[j] = s[j] & 63;
    minima[j] = s[j + 4] & 63;
    factors[j + 4] = static_cast<uint8_t>((s[j + 8] & 15) | (s[j] >> 6) << 4);
    minima[j + 4] = static_cast<uint8_t>(s[j + 8] >> 4 | (s[j + 4] >> 6) << 4);
  }
}

// q4_k; q5_k with the fifth bits behind the factors.
template <bool kFifth>
void place_nibbles(const uint8_t* block, uint8_t* to, int64_t column) {
  uint8_t factors[8], minima[8], head[4];
  std::memcpy(head, block, 4);
  head[3] ^= 0x80;
  std::memcpy(to + 2 * column, head, 2);
  std::memcpy(to + 2 * (kPanelWidth + column), head + 2, 2);
  six_bits(block + 4, factors, minima);
  to += 4 * kPanelWidth;
  const uint8_t *high = block + 16, *low = high + (kFifth ? 32 : 0);
  for (int j = 0; j < 8; ++j) {
    to[column] = factors[j];
    to[kPanelWidth + column] = minima[j];
    to += 2 * kPanelWidth;
    for (int e = 0; e < 4; ++e) {
      put_word(to, column, squeezed<4>(eight_bytes(low + j / 2 * 32 + 8 * e) >> (j % 2 * 4)));
      to += 4 * kPanelWidth;
      if (!kFifth) continue;
      to[column] = static_cast<uint8_t>(squeezed<1>(eight_bytes(high + 8 * e) >> j));
      to += kPanelWidth;
    }
  }
}

// Numbers of 2 bits; a byte has the factor of 16 of them in its low half and the minimum in the high one, as in the
// file.
void place_q2_k(const uint8_t* block, uint8_t* to, int64_t column) {
  uint8_t head[4];
  std::memcpy(head, block + 80, 4);
  head[3] ^= 0x80;
  std::memcpy(to + 2 * column, head, 2);
  std::memcpy(to + 2 * (kPanelWidth + column), head + 2, 2);
  to += 4 * kPanelWidth;
  for (int j = 0; j < 16; ++j) {
    to[column] = block[j];
    to += kPanelWidth;
    const uint8_t* q = block + 16 + j / 8 * 32 + j % 2 * 16;
    for (int e = 0; e < 2; ++e, to += 2 * kPanelWidth)
      put_half(to, column, squeezed<2>(eight_bytes(q + 8 * e) >> (j / 2 % 4 * 2)));
  }
}

// Numbers of 3 bits: the lower 16 of a group's 24 bits in an integer of two bytes, the upper 8 in a byte behind it.
void place_q3_k(const uint8_t* block, uint8_t* to, int64_t column) {
  const uint8_t *high = block, *low = block + 32, *scales = block + 96;
  std::memcpy(to + 2 * column, block + 108, 2);
  to += 2 * kPanelWidth;
  for (int j = 0; j < 16; ++j) {
    const int lower = j < 8 ? scales[j] & 15 : scales[j - 8] >> 4, upper = scales[8 + j % 4] >> (j / 4 * 2) & 3;
    to[column] = static_cast<uint8_t>((lower | upper << 4) - 32);
    to += kPanelWidth;
    for (int e = 0; e < 2; ++e) {
      const int first = j % 2 * 16 + 8 * e;
      const uint64_t two = eight_bytes(low + j / 8 * 32 + first) >> (j / 2 % 4 * 2) & 0x0303030303030303u;
      const uint64_t third = eight_bytes(high + first) >> (j / 2) & 0x0101010101010101u;
      const uint32_t numbers = squeezed<3>(two | third << 2);
      put_half(to, column, numbers);
      to += 2 * kPanelWidth;
      to[column] = static_cast<uint8_t>(numbers >> 16);
      to += kPanelWidth;
    }
  }
}

void place_iq4_xs(const uint8_t* block, uint8_t* to, int64_t column) {
  std::memcpy(to + 2 * column, block, 2);
  to += 2 * kPanelWidth;
  const int high = block[2] | block[3] << 8;
  for (int j = 0; j < 8; ++j) {
    const int factor = (block[4 + j / 2] >> (j % 2 * 4) & 15) | (high >> (2 * j) & 3) << 4;
    to[column] = static_cast<uint8_t>(factor - 32);
    to += kPanelWidth;
    place_halves(block + 8 + 16 * j, to, column);
    to += 16 * kPanelWidth;
  }
}

void place_q6_k(const uint8_t* block, uint8_t* to, int64_t column) {
  std::memcpy(to + 2 * column, block + 208, 2);
  to += 2 * kPanelWidth;
  for (int j = 0; j < 16; ++j) {
    to[column] = block[192 + j];
    to += kPanelWidth;
    const uint8_t *low = block + j / 8 * 64 + j % 4 * 16, *high = block + 128 + j / 8 * 32 + j % 2 * 16;
    for (int e = 0; e < 2; ++e) {
      put_word(to, column, squeezed<4>(eight_bytes(low + 8 * e) >> (j / 4 % 2 * 4)));
      to += 4 * kPanelWidth;
      put_half(to, column, squeezed<2>(eight_bytes(high + 8 * e) >> (j / 2 % 4 * 2)));
      to += 2 * kPanelWidth;
    }
  }
}

// A row's block into one column of a panel's block.
template <BlockFormat kFormat>
void place_block(const uint8_t* block, uint8_t* to, int64_t column) {
  if constexpr (kFormat == BlockFormat::Q2_K) return place_q2_k(block, to, column);
  if constexpr (kFormat == BlockFormat::Q3_K) return place_q3_k(block, to, column);
  if constexpr (kFormat == BlockFormat::Q6_K) return place_q6_k(block, to, column);
  if constexpr (kFormat == BlockFormat::IQ4_XS) return place_iq4_xs(block, to, column);
  if constexpr (kFormat == BlockFormat::Q4_K || kFormat == BlockFormat::Q5_K)
    return place_nibbles<kFormat == BlockFormat::Q5_K>(block, to, column);
  constexpr BlockFormatInfo kInfo = block_format_info(kFormat);
  constexpr int64_t kFactor = kInfo.factor_bytes, kFactors = kFactor * kInfo.factors;
  for (int64_t i = 0; i < kInfo.factors; ++i)
    std::memcpy(to + kFactor * (i * kPanelWidth + column), block + kFactor * i, static_cast<size_t>(kFactor));
  constexpr bool kFifth = kFormat == BlockFormat::Q5_0 || kFormat == BlockFormat::Q5_1;
  const uint8_t *fifth = block + kFactors, *numbers = fifth + (kFifth ? 4 : 0);
  to += kFactors * kPanelWidth;
  if (kFormat == BlockFormat::Q8_0) {
    for (int64_t i = 0; i < 32; ++i) to[i * kPanelWidth + column] = numbers[i];
    return;
  }
  if constexpr (!kFifth) return place_halves(numbers, to, column);
  for (int64_t group = 0; group < 4; ++group) {
    put_word(to, column, squeezed<4>(eight_bytes(numbers + group % 2 * 8) >> (group / 2 * 4)));
    to += 4 * kPanelWidth;
    to[column] = fifth[group];
    to += kPanelWidth;
  }
}

// Bytes of a block's column in a panel. A factor of 6 bits takes a byte there.
constexpr int64_t column_bytes(BlockFormat format) {
  const int64_t bytes = block_format_info(format).bytes;
  switch (format) {
    case BlockFormat::Q3_K:
    case BlockFormat::Q4_K:
    case BlockFormat::Q5_K: return bytes + 4;
    case BlockFormat::IQ4_XS: return bytes + 2;
    default: return bytes;
  }
}

template <BlockFormat kFormat>
size_t bytes_packed(const TensorType& type) {
  const auto [matrices, n, row] = sizes_of(type);
  return packed_bytes(kFormat, matrices, n, row);
}

template <BlockFormat kFormat>
void packed_pack(const TensorType& type, void* dst, const void* rows, int64_t first, int64_t count) {
  const Sizes sizes = sizes_of(type);
  const int64_t row = sizes.k, bytes = block_format_info(kFormat).bytes, blocks = row / bytes;
  constexpr int64_t kBytes = kPanelWidth * column_bytes(kFormat);
  const auto* from = static_cast<const uint8_t*>(rows);
  while (count > 0) {
    const auto [index, column, fitting] = place_of(sizes, first);
    const int64_t now = std::min(count, fitting);
    auto* panel = static_cast<uint8_t*>(dst) + index * blocks * kBytes;
    for (int64_t b = 0; b < blocks; ++b)
      for (int64_t r = 0; r < now; ++r)
        place_block<kFormat>(from + r * row + b * bytes, panel + b * kBytes, column + r);
    from += now * row;
    first += now;
    count -= now;
  }
}

template <BlockFormat kFormat>
void add_packed(KernelRegistry& kernels) {
  kernels.add(ParamLayout{packed_layout(kFormat), DeviceKind::Cpu, bytes_packed<kFormat>, packed_pack<kFormat>});
}

}  // namespace

size_t packed_bytes(BlockFormat format, int64_t matrices, int64_t rows, int64_t row_bytes) {
  const int64_t blocks = row_bytes / block_format_info(format).bytes;
  return static_cast<size_t>(matrices * panels_of(rows) * kPanelWidth * blocks * column_bytes(format));
}

std::string packed_layout(BlockFormat format) { return fmt::format("{}_panel64", block_format_info(format).name); }

void register_layouts(KernelRegistry& kernels) {
  kernels.add(ParamLayout{"row_major", DeviceKind::Cpu, row_major_bytes, row_major_pack});
  kernels.add(ParamLayout{"panel64", DeviceKind::Cpu, panel_bytes, panel_pack});
  [&]<size_t... kAt>(std::index_sequence<kAt...>) { (add_packed<kBlockFormats[kAt].format>(kernels), ...); }
  (std::make_index_sequence<kBlockFormats.size()>());
}

}  // namespace reprise::cpu

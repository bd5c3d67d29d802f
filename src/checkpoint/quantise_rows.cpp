#include "checkpoint/quantise_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "checkpoint/wide.h"

namespace reprise::checkpoint {
namespace {

constexpr float kLargest = 127.0f;

struct LargestOf {
  REPRISE_INLINE void operator()(const float* row, int64_t width, float* out) const {
    // Several chains, so that the compiler can keep them in one vector register; the maximum does not depend on order.
    constexpr int64_t kLanes = 16;
    float lanes[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= width; i += kLanes)
      for (int64_t l = 0; l < kLanes; ++l) {
        const float a = std::fabs(row[i + l]);
        lanes[l] = a > lanes[l] ? a : lanes[l];
      }
    float largest = 0;
    for (; i < width; ++i) largest = std::max(largest, std::fabs(row[i]));
    for (float lane : lanes) largest = std::max(largest, lane);
    *out = largest;
  }
};

struct QuantiseRow {
  REPRISE_INLINE void operator()(const float* row, float scale, int64_t width, int8_t* out) const {
    // Adding and taking away 1.5 * 2^23 rounds to the nearest even integer, for numbers this small.
    constexpr float kRound = 12582912.0f;
    for (int64_t i = 0; i < width; ++i) {
      float q = row[i] / scale;
      q = q == q ? q : 0.0f;
      q = q > kLargest ? kLargest : q;
      q = q < -kLargest ? -kLargest : q;
      out[i] = static_cast<int8_t>(static_cast<int32_t>((q + kRound) - kRound));
    }
  }
};

template <typename T>
void integers(std::span<const uint8_t> in, std::vector<float>& out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T v;
    std::memcpy(&v, in.data() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<float>(v);
  }
}

}  // namespace

void row_scales(const float* rows, int64_t count, int64_t width, float* scales) {
  for (int64_t r = 0; r < count; ++r) {
    float largest = 0;
    run_wide<LargestOf>(rows + r * width, width, &largest);
    scales[r] = largest / kLargest;
  }
}

void quantise_rows(const float* rows, const float* scales, int64_t count, int64_t width, int8_t* out) {
  for (int64_t r = 0; r < count; ++r) {
    if (scales[r] == 0)
      std::memset(out + r * width, 0, static_cast<size_t>(width));
    else
      run_wide<QuantiseRow>(rows + r * width, scales[r], width, out + r * width);
  }
}

Result<std::vector<float>> read_numbers(const Checkpoint& checkpoint, const CheckpointTensor& t) {
  std::vector<float> out(static_cast<size_t>(t.elements()));
  if (readable_as_float(t.type)) {
    uint64_t bad = 0;
    RETURN_IF_ERROR(checkpoint.read_rows(t, 0, t.rows(), DType::F32, out.data(), &bad));
    RETURN_IF_ERROR(checkpoint.require_finite(t, bad));
    return out;
  }
  const std::span<const uint8_t> bytes = checkpoint.raw(t);
  switch (t.type) {
    case StorageType::I8: integers<int8_t>(bytes, out); break;
    case StorageType::U8: integers<uint8_t>(bytes, out); break;
    case StorageType::I16: integers<int16_t>(bytes, out); break;
    case StorageType::I32: integers<int32_t>(bytes, out); break;
    case StorageType::I64: integers<int64_t>(bytes, out); break;
    default:
      return error(Code::Unsupported, "{}: tensor \"{}\" is stored as {}; allowed: floats and integers",
                   checkpoint.source(), t.name, t.type_name);
  }
  return out;
}

Result<std::vector<float>> read_deq_scales(const Checkpoint& checkpoint, const CheckpointTensor& t) {
  if (t.type != StorageType::I64) {
    if (readable_as_float(t.type)) return read_numbers(checkpoint, t);
    return error(Code::Unsupported, "{}: tensor \"{}\" is stored as {}; allowed: floats, or I64 with the bits of F32",
                 checkpoint.source(), t.name, t.type_name);
  }
  std::vector<float> out(static_cast<size_t>(t.elements()));
  const std::span<const uint8_t> bytes = checkpoint.raw(t);
  for (size_t i = 0; i < out.size(); ++i) {
    uint64_t v = 0;
    std::memcpy(&v, bytes.data() + i * sizeof v, sizeof v);
    const auto bits = static_cast<uint32_t>(v);
    std::memcpy(&out[i], &bits, sizeof bits);
    // Sign extension of a negative number's bits is allowed, anything else in the upper half is not.
    const auto upper = static_cast<uint32_t>(v >> 32);
    if ((upper != 0 && upper != UINT32_MAX) || !std::isfinite(out[i]))
      return invalid("{}: tensor \"{}\": element {} ({:#x}) is not the bits of a finite F32", checkpoint.source(),
                     t.name, i, v);
  }
  return out;
}

uint64_t non_finite_in_blocks(BlockFormat format, const uint8_t* blocks, size_t bytes) {
  const BlockFormatInfo& info = block_format_info(format);
  const auto block = static_cast<size_t>(info.bytes), factors_at = static_cast<size_t>(info.factors_at);
  uint64_t bad = 0;
  if (format == BlockFormat::Mxfp4) {
    // Only numbers up to 1.5 times 2^127 are finite, and 255 stands for NaN.
    for (size_t at = 0; at + block <= bytes; at += block)
      for (size_t i = 1; i < block && blocks[at] >= 253; ++i)
        for (const int number : {blocks[at + i] & 7, blocks[at + i] >> 4 & 7})
          bad += blocks[at] == 255 || number >= (blocks[at] == 254 ? 4 : 6) ? 1 : 0;
    return bad;
  }
  for (size_t at = 0; at + block <= bytes; at += block) {
    bool finite = true;
    for (int64_t i = 0; i < info.factors; ++i) {
      uint16_t h;
      std::memcpy(&h, blocks + at + factors_at + 2 * static_cast<size_t>(i), 2);
      finite = finite && (h & 0x7c00) != 0x7c00;
    }
    if (!finite) bad += static_cast<uint64_t>(info.elements);
  }
  return bad;
}

}  // namespace reprise::checkpoint

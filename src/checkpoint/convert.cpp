#include "checkpoint/convert.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "checkpoint/dequantize.h"
#include "checkpoint/wide.h"

namespace reprise::checkpoint {
namespace {

// Elements converted at a time: the float32 stage and its source stay in the first-level cache.
constexpr size_t kChunk = 2048;

template <typename T>
REPRISE_INLINE T load(const uint8_t* p, size_t i) {
  T v;
  std::memcpy(&v, p + i * sizeof(T), sizeof(T));
  return v;
}

// Unlike base/half.h the loops choose by mask, not by branch or ?:, since the compiler turns the latter back into
// branches around float operations and then cannot make vector code. Comparisons are signed, as SSE2 knows no others.
REPRISE_INLINE uint32_t select(bool condition, uint32_t yes, uint32_t no) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

struct F16ToF32 {
  REPRISE_INLINE void operator()(const uint8_t* in, float* out, size_t n) const {
    for (size_t i = 0; i < n; ++i) {
      const uint32_t h = load<uint16_t>(in, i);
      const uint32_t a = h & 0x7fff;
      const auto signed_a = static_cast<int32_t>(a);
      const uint32_t normal = (a << 13) + (112u << 23);
      const uint32_t quiet = select(signed_a > 0x7c00, 0x400000u, 0);
      const uint32_t special = (normal + (112u << 23)) | quiet;
      // (1 + m/1024) * 2^-14 minus 2^-14 is the subnormal, exactly.
      const float small = std::bit_cast<float>((a << 13) + (113u << 23)) - std::bit_cast<float>(113u << 23);
      uint32_t bits = select(signed_a < 0x400, std::bit_cast<uint32_t>(small), normal);
      bits = select(signed_a >= 0x7c00, special, bits);
      out[i] = std::bit_cast<float>(bits | (h & 0x8000) << 16);
    }
  }
};

struct Bf16ToF32 {
  REPRISE_INLINE void operator()(const uint8_t* in, float* out, size_t n) const {
    for (size_t i = 0; i < n; ++i) out[i] = std::bit_cast<float>(uint32_t{load<uint16_t>(in, i)} << 16);
  }
};

struct F32ToBf16 {
  REPRISE_INLINE void operator()(const float* in, uint16_t* out, size_t n) const {
    for (size_t i = 0; i < n; ++i) {
      const uint32_t u = std::bit_cast<uint32_t>(in[i]);
      const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
      const uint32_t nan = (u >> 16) | 0x40u;
      out[i] = static_cast<uint16_t>(select(static_cast<int32_t>(u & 0x7fffffffu) > 0x7f800000, nan, rounded));
    }
  }
};

struct F32ToF16 {
  REPRISE_INLINE void operator()(const float* in, uint16_t* out, size_t n) const {
    for (size_t i = 0; i < n; ++i) {
      const uint32_t u = std::bit_cast<uint32_t>(in[i]);
      const uint32_t a = u & 0x7fffffffu;
      const auto signed_a = static_cast<int32_t>(a);
      const uint32_t normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
      // Adding 0.5 leaves exactly the bits of a subnormal half, rounded to nearest even.
      const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(a) + 0.5f) - 0x3f000000u;
      const uint32_t nan = 0x7e00u | ((a >> 13) & 0x3ffu);
      uint32_t bits = select(signed_a < 0x38800000, small, normal);
      bits = select(signed_a >= 0x477ff000, 0x7c00u, bits);
      bits = select(signed_a > 0x7f800000, nan, bits);
      out[i] = static_cast<uint16_t>(bits | ((u >> 16) & 0x8000u));
    }
  }
};

template <typename T>
struct CountExponent {
  REPRISE_INLINE void operator()(const uint8_t* in, size_t n, T exponent, uint64_t* total) const {
    // Short runs with a counter of the element's width, so that the loop needs no widening.
    constexpr size_t kRun = 32768;
    for (size_t begin = 0; begin < n; begin += kRun) {
      const size_t end = std::min(n, begin + kRun);
      T count = 0;
      for (size_t i = begin; i < end; ++i) count = static_cast<T>(count + ((load<T>(in, i) & exponent) == exponent));
      *total += count;
    }
  }
};

template <typename T>
uint64_t count_exponent(const void* data, size_t n, T exponent) {
  uint64_t total = 0;
  run_wide<CountExponent<T>>(static_cast<const uint8_t*>(data), n, exponent, &total);
  return total;
}

}  // namespace

void f16_to_f32(const uint8_t* in, float* out, size_t n) { run_wide<F16ToF32>(in, out, n); }
void bf16_to_f32(const uint8_t* in, float* out, size_t n) { run_wide<Bf16ToF32>(in, out, n); }
void f32_to_bf16(const float* in, uint16_t* out, size_t n) { run_wide<F32ToBf16>(in, out, n); }
void f32_to_f16(const float* in, uint16_t* out, size_t n) { run_wide<F32ToF16>(in, out, n); }
void f64_to_f32(const uint8_t* in, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(load<double>(in, i));
}

uint64_t count_non_finite(DType dtype, const void* data, size_t n) {
  switch (dtype) {
    case DType::F32: return count_exponent<uint32_t>(data, n, 0x7f800000u);
    case DType::BF16: return count_exponent<uint16_t>(data, n, 0x7f80);
    case DType::F16: return count_exponent<uint16_t>(data, n, 0x7c00);
    case DType::F64: return count_exponent<uint64_t>(data, n, 0x7ff0000000000000u);
    default: return 0;
  }
}

Status convert_elements(StorageType type, std::span<const uint8_t> in, DType target, void* out, size_t n,
                        uint64_t* non_finite) {
  const BlockLayout layout = block_layout(type);
  if (type == StorageType::Other) return error(Code::Unsupported, "a type that cannot be read");
  if (n % layout.elements != 0 || in.size() / layout.bytes != n / layout.elements || in.size() % layout.bytes != 0)
    return invalid("{} bytes of {} do not hold {} elements", in.size(), storage_name(type), n);
  const bool copy = plain_dtype(type) == target;
  if (!copy && (!readable_as_float(type) || (target != DType::F32 && target != DType::F16 && target != DType::BF16)))
    return error(Code::Unsupported, "{} cannot be read as {}; allowed: {}", storage_name(type), dtype_name(target),
                 readable_as_float(type) ? "f32, f16, bf16" : dtype_name(*plain_dtype(type)));

  auto* to = static_cast<uint8_t*>(out);
  const size_t out_size = size_of(target);
  if (copy && (!non_finite || !is_float(target))) {
    if (n) std::memcpy(to, in.data(), in.size());
    return Status::ok();
  }
  alignas(64) float stage[kChunk];
  for (size_t i = 0; i < n; i += kChunk) {
    const size_t m = std::min(kChunk, n - i);
    const auto from = in.subspan(i / layout.elements * layout.bytes, m / layout.elements * layout.bytes);
    uint8_t* dest = to + i * out_size;
    if (copy) {
      std::memcpy(dest, from.data(), from.size());
    } else {
      float* floats = target == DType::F32 ? reinterpret_cast<float*>(dest) : stage;
      if (type == StorageType::F64)
        f64_to_f32(from.data(), floats, m);
      else
        RETURN_IF_ERROR(dequantize(type, from, {floats, m}));
      if (target == DType::BF16) f32_to_bf16(floats, reinterpret_cast<uint16_t*>(dest), m);
      if (target == DType::F16) f32_to_f16(floats, reinterpret_cast<uint16_t*>(dest), m);
    }
    if (non_finite) *non_finite += count_non_finite(target, dest, m);
  }
  return Status::ok();
}

}  // namespace reprise::checkpoint

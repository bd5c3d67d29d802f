#include "checkpoint/dequantize.h"

#include <cstring>

#include "base/block_format.h"
#include "base/half.h"
#include "checkpoint/convert.h"
#include "checkpoint/wide.h"

namespace reprise::checkpoint {
namespace {

// One function for each block format: kElements numbers from kBytes bytes. Every product and sum is its own float
// operation, in the order that the reference uses; the folder is built without contraction, so bits agree.

REPRISE_INLINE float half_at(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return half_to_float(h);
}

REPRISE_INLINE uint32_t u32_at(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}

struct Q8_0 {
  static constexpr size_t kElements = 32, kBytes = 34;
  REPRISE_INLINE static void block(const uint8_t* p, float* out) {
    const float d = half_at(p);
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(p[2 + i]));
  }
};

struct Q4_0 {
  static constexpr size_t kElements = 32, kBytes = 18;
  REPRISE_INLINE static void block(const uint8_t* p, float* out) {
    const float d = half_at(p);
    for (int i = 0; i < 16; ++i) out[i] = d * static_cast<float>((p[2 + i] & 15) - 8);
    for (int i = 0; i < 16; ++i) out[16 + i] = d * static_cast<float>((p[2 + i] >> 4) - 8);
  }
};

struct Q4_1 {
  static constexpr size_t kElements = 32, kBytes = 20;
  REPRISE_INLINE static void block(const uint8_t* p, float* out) {
    const float d = half_at(p), m = half_at(p + 2);
    for (int i = 0; i < 16; ++i) out[i] = d * static_cast<float>(p[4 + i] & 15) + m;
    for (int i = 0; i < 16; ++i) out[16 + i] = d * static_cast<float>(p[4 + i] >> 4) + m;
  }
};

struct Q5_0 {
  static constexpr size_t kElements = 32, kBytes = 22;
  REPRISE_INLINE static void block(const uint8_t* p, float* out) {
    const float d = half_at(p);
    const uint32_t high = u32_at(p + 2);
    for (int i = 0; i < 16; ++i) {
      const int q = (p[6 + i] & 15) | static_cast<int>(((high >> i) & 1) << 4);
      out[i] = d * static_cast<float>(q - 16);
    }
    for (int i = 0; i < 16; ++i) {
      const int q = (p[6 + i] >> 4) | static_cast<int>(((high >> (16 + i)) & 1) << 4);
      out[16 + i] = d * static_cast<float>(q - 16);
    }
  }
};

struct Q5_1 {
  static constexpr size_t kElements = 32, kBytes = 24;
  REPRISE_INLINE static void block(const uint8_t* p, float* out) {
    const float d = half_at(p), m = half_at(p + 2);
    const uint32_t high = u32_at(p + 4);
    for (int i = 0; i < 16; ++i) {
      const int q = (p[8 + i] & 15) | static_cast<int>(((high >> i) & 1) << 4);
      out[i] = d * static_cast<float>(q) + m;
    }
    for (int i = 0; i < 16; ++i) {
      const int q = (p[8 + i] >> 4) | static_cast<int>(((high >> (16 + i)) & 1) << 4);
      out[16 + i] = d * static_cast<float>(q) + m;
    }
  }
};

struct Iq4Nl {
  static constexpr size_t kElements = 32, kBytes = 18;
  REPRISE_INLINE static void block(const uint8_t* p, float* out) {
    const float d = half_at(p);
    for (int i = 0; i < 16; ++i) out[i] = d * static_cast<float>(kIq4Numbers[p[2 + i] & 15]);
    for (int i = 0; i < 16; ++i) out[16 + i] = d * static_cast<float>(kIq4Numbers[p[2 + i] >> 4]);
  }
};

// 16 scales and minima of 4 bits, 256 numbers of 2 bits, then the two factors.
struct Q2K {
  static constexpr size_t kElements = 256, kBytes = 84;
  REPRISE_INLINE static void block(const uint8_t* p, float* out) {
    const float d = half_at(p + 80), dmin = half_at(p + 82);
    for (int j = 0; j < 16; ++j) {
      const uint8_t* q = p + 16 + (j / 8) * 32 + (j % 2) * 16;
      const int shift = (j / 2) % 4 * 2;
      const float scale = d * static_cast<float>(p[j] & 15), min = dmin * static_cast<float>(p[j] >> 4);
      for (int i = 0; i < 16; ++i) out[16 * j + i] = scale * static_cast<float>((q[i] >> shift) & 3) - min;
    }
  }
};

// The high bits, the low 2 bits, 16 scales of 6 bits in 12 bytes, the factor. A number whose high bit is clear is 4
// less.
struct Q3K {
  static constexpr size_t kElements = 256, kBytes = 110;
  REPRISE_INLINE static void block(const uint8_t* p, float* out) {
    const uint8_t* scales = p + 96;
    const float d = half_at(p + 108);
    for (int j = 0; j < 16; ++j) {
      const int low = j < 8 ? scales[j] & 15 : scales[j - 8] >> 4;
      const int high = (scales[8 + j % 4] >> (j / 4 * 2)) & 3;
      const float scale = d * static_cast<float>((low | high << 4) - 32);
      const uint8_t* mask = p + (j % 2) * 16;
      const uint8_t* q = p + 32 + (j / 8) * 32 + (j % 2) * 16;
      const int shift = (j / 2) % 4 * 2, bit = j / 2;
      for (int i = 0; i < 16; ++i) {
        const int v = ((q[i] >> shift) & 3) - (((mask[i] >> bit) & 1) ? 0 : 4);
        out[16 * j + i] = scale * static_cast<float>(v);
      }
    }
  }
};

// 8 scales and 8 minima of 6 bits in 12 bytes, shared by Q4_K and Q5_K.
REPRISE_INLINE void scale_min(const uint8_t* s, int j, int& scale, int& min) {
  if (j < 4) {
    scale = s[j] & 63;
    min = s[j + 4] & 63;
  } else {
    scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    min = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
  }
}

struct Q4K {
  static constexpr size_t kElements = 256, kBytes = 144;
  REPRISE_INLINE static void block(const uint8_t* p, float* out) {
    const float d = half_at(p), dmin = half_at(p + 2);
    for (int j = 0; j < 8; ++j) {
      int s, m;
      scale_min(p + 4, j, s, m);
      const float scale = d * static_cast<float>(s), min = dmin * static_cast<float>(m);
      const uint8_t* q = p + 16 + (j / 2) * 32;
      const int shift = (j % 2) * 4;
      for (int i = 0; i < 32; ++i) out[32 * j + i] = scale * static_cast<float>((q[i] >> shift) & 15) - min;
    }
  }
};

struct Q5K {
  static constexpr size_t kElements = 256, kBytes = 176;
  REPRISE_INLINE static void block(const uint8_t* p, float* out) {
    const float d = half_at(p), dmin = half_at(p + 2);
    const uint8_t* high = p + 16;
    for (int j = 0; j < 8; ++j) {
      int s, m;
      scale_min(p + 4, j, s, m);
      const float scale = d * static_cast<float>(s), min = dmin * static_cast<float>(m);
      const uint8_t* q = p + 48 + (j / 2) * 32;
      const int shift = (j % 2) * 4;
      for (int i = 0; i < 32; ++i) {
        const int v = ((q[i] >> shift) & 15) | ((high[i] >> j) & 1) << 4;
        out[32 * j + i] = scale * static_cast<float>(v) - min;
      }
    }
  }
};

struct Q6K {
  static constexpr size_t kElements = 256, kBytes = 210;
  REPRISE_INLINE static void block(const uint8_t* p, float* out) {
    const float d = half_at(p + 208);
    for (int j = 0; j < 16; ++j) {
      const uint8_t* low = p + (j / 8) * 64 + (j % 4) * 16;
      const uint8_t* high = p + 128 + (j / 8) * 32 + (j % 2) * 16;
      const int low_shift = (j / 4) % 2 * 4, high_shift = (j / 2) % 4 * 2;
      const float scale = d * static_cast<float>(static_cast<int8_t>(p[192 + j]));
      for (int i = 0; i < 16; ++i) {
        const int v = ((low[i] >> low_shift) & 15) | ((high[i] >> high_shift) & 3) << 4;
        out[16 * j + i] = scale * static_cast<float>(v - 32);
      }
    }
  }
};

struct Iq4Xs {
  static constexpr size_t kElements = 256, kBytes = 136;
  REPRISE_INLINE static void block(const uint8_t* p, float* out) {
    const float d = half_at(p);
    const int high = p[2] | p[3] << 8;
    for (int j = 0; j < 8; ++j) {
      const int s = ((p[4 + j / 2] >> (j % 2 * 4)) & 15) | ((high >> 2 * j) & 3) << 4;
      const float scale = d * static_cast<float>(s - 32);
      const uint8_t* q = p + 8 + 16 * j;
      for (int i = 0; i < 16; ++i) out[32 * j + i] = scale * static_cast<float>(kIq4Numbers[q[i] & 15]);
      for (int i = 0; i < 16; ++i) out[32 * j + 16 + i] = scale * static_cast<float>(kIq4Numbers[q[i] >> 4]);
    }
  }
};

// Powers of two, and numbers of 4 bits: a sign, two bits of exponent, one of mantissa. Their products are exact but for
// the largest powers, whose larger numbers overflow.
constexpr float kFp4Values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                  -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

struct Mxfp4 {
  static constexpr size_t kElements = 32, kBytes = 17;
  REPRISE_INLINE static void block(const uint8_t* p, float* out) {
    const uint32_t bits = p[0] == 0 ? 0x00400000u : p[0] == 255 ? 0x7fc00000u : static_cast<uint32_t>(p[0]) << 23;
    float d;
    std::memcpy(&d, &bits, 4);
    for (int i = 0; i < 16; ++i) out[i] = d * kFp4Values[p[1 + i] & 15];
    for (int i = 0; i < 16; ++i) out[16 + i] = d * kFp4Values[p[1 + i] >> 4];
  }
};

template <typename Block>
struct AllBlocks {
  REPRISE_INLINE void operator()(const uint8_t* in, float* out, size_t n) const {
    for (size_t i = 0; i < n; ++i) Block::block(in + i * Block::kBytes, out + i * Block::kElements);
  }
};

template <typename Block>
void all_blocks(std::span<const uint8_t> blocks, std::span<float> out) {
  run_wide<AllBlocks<Block>>(blocks.data(), out.data(), out.size() / Block::kElements);
}

}  // namespace

Status dequantize(StorageType type, std::span<const uint8_t> blocks, std::span<float> out) {
  const BlockLayout layout = block_layout(type);
  if (!readable_as_float(type) || type == StorageType::F64)
    return error(Code::Unsupported, "type {} has no conversion to float32", storage_name(type));
  if (out.size() % layout.elements != 0 || blocks.size() % layout.bytes != 0 ||
      out.size() / layout.elements != blocks.size() / layout.bytes)
    return invalid("{} bytes of {} do not hold {} elements", blocks.size(), storage_name(type), out.size());
  switch (type) {
    case StorageType::F32:
      if (!out.empty()) std::memcpy(out.data(), blocks.data(), blocks.size());
      break;
    case StorageType::F16: f16_to_f32(blocks.data(), out.data(), out.size()); break;
    case StorageType::BF16: bf16_to_f32(blocks.data(), out.data(), out.size()); break;
    case StorageType::Q8_0: all_blocks<Q8_0>(blocks, out); break;
    case StorageType::Q4_0: all_blocks<Q4_0>(blocks, out); break;
    case StorageType::Q4_1: all_blocks<Q4_1>(blocks, out); break;
    case StorageType::Q5_0: all_blocks<Q5_0>(blocks, out); break;
    case StorageType::Q5_1: all_blocks<Q5_1>(blocks, out); break;
    case StorageType::Q2_K: all_blocks<Q2K>(blocks, out); break;
    case StorageType::Q3_K: all_blocks<Q3K>(blocks, out); break;
    case StorageType::Q4_K: all_blocks<Q4K>(blocks, out); break;
    case StorageType::Q5_K: all_blocks<Q5K>(blocks, out); break;
    case StorageType::Q6_K: all_blocks<Q6K>(blocks, out); break;
    case StorageType::IQ4_NL: all_blocks<Iq4Nl>(blocks, out); break;
    case StorageType::IQ4_XS: all_blocks<Iq4Xs>(blocks, out); break;
    case StorageType::MXFP4: all_blocks<Mxfp4>(blocks, out); break;
    default: return error(Code::Unsupported, "type {} has no conversion to float32", storage_name(type));
  }
  return Status::ok();
}

}  // namespace reprise::checkpoint

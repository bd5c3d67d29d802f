// Floats to int8, shared by the plain and the fused kernels so that both give the same bits.
#pragma once

#include "backends/cpu/kernels/elements.h"
#include "backends/cpu/kernels/exp.h"

namespace reprise::cpu::REPRISE_ISA {

#if defined(__AVX512F__)
// Half to even, at most 127; NaN gives 0. What is too small becomes the smallest integer.
inline I32x16 integers_of(F32x16 v) {
  const __m512 x = reinterpret_cast<__m512>(v);
  const __mmask16 number = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
  return reinterpret_cast<I32x16>(_mm512_maskz_cvt_roundps_epi32(number, _mm512_min_ps(x, _mm512_set1_ps(127.0f)),
                                                                 _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#endif

// Half to even, clamped; NaN gives 0.
inline void store_i8(int8_t* p, F32x16 v) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(reinterpret_cast<__m512i>(integers_of(v))));
#elif defined(__aarch64__)
  // The conversion makes 0 of NaN, and it and both narrowing steps saturate.
  float32x4_t part[4];
  std::memcpy(part, &v, 64);
  const int16x8_t low = vqmovn_high_s32(vqmovn_s32(vcvtnq_s32_f32(part[0])), vcvtnq_s32_f32(part[1]));
  const int16x8_t high = vqmovn_high_s32(vqmovn_s32(vcvtnq_s32_f32(part[2])), vcvtnq_s32_f32(part[3]));
  vst1q_s8(p, vqmovn_high_s16(vqmovn_s16(low), high));
#elif defined(REPRISE_TWO_REGISTERS)
  // The limits come first among the operands, so that a NaN stays, which the mask makes 0.
  const I32x16 q = each_register<I32x16>(
      [](auto x) {
        const __m256 number = _mm256_and_ps(x, _mm256_cmp_ps(x, x, _CMP_ORD_Q));
        return _mm256_cvtps_epi32(
            _mm256_max_ps(_mm256_set1_ps(-128.0f), _mm256_min_ps(_mm256_set1_ps(127.0f), number)));
      },
      v);
  // Sixteen words, whose middle quarters have changed places.
  const __m256i words = _mm256_permute4x64_epi64(
      _mm256_packs_epi32(reinterpret_cast<__m256i>(q.low), reinterpret_cast<__m256i>(q.high)), 0xd8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
#else
  v = select(is_number(v), v, zero());
  v = select(greater(v, splat(127.0f)), splat(127.0f), v);
  v = select(greater(splat(-128.0f), v), splat(-128.0f), v);
  const F32x16 magic = splat(0x1.8p+23f);  // adding it rounds to an integer
  const I32x16 q = to_int((v + magic) - magic);
  for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(q[i]);
#endif
}

inline void store_i8_n(int8_t* p, F32x16 v, int64_t n) {
  if (n >= 16) return store_i8(p, v);
  int8_t part[16];
  store_i8(part, v);
  for (int64_t i = 0; i < n; ++i) p[i] = part[i];
}

// Scale and offset of quantize_static: one number per column (step 1), or one for all (step 0).
class StaticScale {
 public:
  StaticScale(const void* scale, const void* offset, int64_t scale_step, int64_t offset_step)
      : scale_(static_cast<const float*>(scale)),
        offset_(static_cast<const float*>(offset)),
        scale_step_(scale_step),
        offset_step_(offset_step) {}
  // Reads a launch's scale and offset, and how many numbers each has.
  explicit StaticScale(const auto& args)
      : StaticScale(args.scale.data, args.offset.data, args.scales == 1 ? 0 : 1, args.offsets == 1 ? 0 : 1) {}
  // The first n of sixteen columns from `column` on.
  F32x16 apply(F32x16 v, int64_t column, int64_t n) const {
    return v * at(scale_, scale_step_, column, n) + at(offset_, offset_step_, column, n);
  }

 private:
  static F32x16 at(const float* p, int64_t step, int64_t column, int64_t n) {
    return step == 0 ? splat(*p) : load_n<F32>(p + column, n);
  }
  const float* scale_;
  const float* offset_;
  int64_t scale_step_, offset_step_;
};

// Lane by lane; NaN is never larger.
inline F32x16 larger_magnitude(F32x16 top, F32x16 v) {
  const F32x16 magnitude = bits_as<F32x16>(bits_as<U32x16>(v) & 0x7fffffffu);
#if defined(__AVX512F__)
  // The second operand where one is NaN.
  return reinterpret_cast<F32x16>(_mm512_max_ps(reinterpret_cast<__m512>(magnitude), reinterpret_cast<__m512>(top)));
#else
  return larger(magnitude, top);
#endif
}

// The scale of a row whose largest magnitude is `top`. Values are divided by it; 0 / 0 is NaN and so gives 0.
inline float dynamic_scale(float top) { return top / 127.0f; }

// Values over the scale of their row, as a division gives them. Where there is an FMA, the rounded reciprocal and two
// corrections by the exact remainder give the same number in a fraction of a division's time (the first leaves it
// within one unit of the last place, the second rounds it correctly). Scales near the ends of the range, where a
// remainder could be too small to be exact, are divided by.
class ByScale {
 public:
  explicit ByScale(float scale)
      : scale_(scale), reciprocal_(1.0f / scale), usual_(kFma && scale > 0x1p-60f && scale < 0x1p60f) {}
  // n values of a row, quantised.
  template <typename E>
  void store(const typename E::Type* x, int8_t* out, int64_t n) const {
    if (usual_)
      store_quotients<E>(x, out, n, [this](F32x16 v) { return fast(v); });
    else
      store_quotients<E>(x, out, n, [this](F32x16 v) { return v / splat(scale_); });
  }

 private:
  template <typename E, typename Quotient>
  static void store_quotients(const typename E::Type* x, int8_t* out, int64_t n, const Quotient& quotient) {
    each_sixteen(n, [&](int64_t i, int64_t rest) { store_i8_n(out + i, quotient(load_n<E>(x + i, rest)), rest); });
  }
  F32x16 fast(F32x16 v) const {
    const F32x16 s = splat(scale_), r = splat(reciprocal_);
    F32x16 q = v * r;
    q = fma(fma(-q, s, v), r, q);
    return fma(fma(-q, s, v), r, q);
  }
  float scale_, reciprocal_;
  bool usual_;
};

// The largest magnitude of n numbers.
template <typename E>
inline float row_top(const typename E::Type* x, int64_t n) {
  F32x16 top = zero(), other = zero();  // two chains, so that one does not wait for itself
  int64_t c = 0;
  for (; c + 32 <= n; c += 32) {
    top = larger_magnitude(top, E::load(x + c));
    other = larger_magnitude(other, E::load(x + c + 16));
  }
  each_sixteen(n - c, [&](int64_t i, int64_t rest) { top = larger_magnitude(top, load_n<E>(x + c + i, rest)); });
  return reduce_max(larger_magnitude(top, other));
}

// A whole row; returns its scale.
template <typename E>
inline float quantize_row(const typename E::Type* x, int8_t* out, int64_t n) {
  const float scale = dynamic_scale(row_top<E>(x, n));
  ByScale(scale).store<E>(x, out, n);
  return scale;
}

}  // namespace reprise::cpu::REPRISE_ISA

#include "measurement/peak_loops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace reprise::measurement {

#if defined(__x86_64__)

namespace {

// Eight accumulators fit every instruction set; the wide sets use sixteen.
#define EIGHT(I) I(0) I(1) I(2) I(3) I(4) I(5) I(6) I(7)
#define SIXTEEN(I) EIGHT(I) I(8) I(9) I(10) I(11) I(12) I(13) I(14) I(15)
#define LOW_REGISTERS "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7"
#define HIGH_REGISTERS "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

#define ZERO_512(k) "vpxorq %%zmm" #k ",%%zmm" #k ",%%zmm" #k "\n"
#define FMA_512(k) "vfmadd231ps %%zmm30,%%zmm31,%%zmm" #k "\n"
#define BF16_512(k) "vdpbf16ps %%zmm30,%%zmm31,%%zmm" #k "\n"
#define INT8_512(k) "vpdpbusd %%zmm30,%%zmm31,%%zmm" #k "\n"
#define FMA_256(k) "vfmadd231ps %%ymm14,%%ymm15,%%ymm" #k "\n"
#define MUL_128(k) "mulps %%xmm15,%%xmm" #k "\n"
#define ADD_128(k) "addps %%xmm15,%%xmm" #k "\n"

#define LOOP_512(name, instruction)                                                                      \
  __attribute__((target("avx512f"))) void name(int64_t rounds) {                                         \
    asm volatile(SIXTEEN(ZERO_512) "vpxorq %%zmm30,%%zmm30,%%zmm30\nvpxorq %%zmm31,%%zmm31,%%zmm31\n" :: \
                     : LOW_REGISTERS, HIGH_REGISTERS, "xmm30", "xmm31");                                 \
    for (int64_t i = 0; i < rounds; ++i)                                                                 \
      asm volatile(SIXTEEN(instruction)::: LOW_REGISTERS, HIGH_REGISTERS, "xmm30", "xmm31");             \
    asm volatile("vzeroupper" ::: LOW_REGISTERS, HIGH_REGISTERS);                                        \
  }
LOOP_512(fma_512, FMA_512)
LOOP_512(bf16_512, BF16_512)
LOOP_512(int8_512, INT8_512)

#define FMA_256_ALL EIGHT(FMA_256) FMA_256(8) FMA_256(9) FMA_256(10) FMA_256(11) FMA_256(12) FMA_256(13)
__attribute__((target("avx2,fma"))) void fma_256(int64_t rounds) {
  asm volatile("vzeroall" ::: LOW_REGISTERS, HIGH_REGISTERS);
  for (int64_t i = 0; i < rounds; ++i) asm volatile(FMA_256_ALL ::: LOW_REGISTERS, HIGH_REGISTERS);
  asm volatile("vzeroupper" ::: LOW_REGISTERS, HIGH_REGISTERS);
}

#define ZERO_128(k) "xorps %%xmm" #k ",%%xmm" #k "\n"
#define MUL_ADD_128_ALL EIGHT(MUL_128) ADD_128(8) ADD_128(9) ADD_128(10) ADD_128(11) ADD_128(12) ADD_128(13) ADD_128(14)
void mul_add_128(int64_t rounds) {
  asm volatile(SIXTEEN(ZERO_128)::: LOW_REGISTERS, HIGH_REGISTERS);
  for (int64_t i = 0; i < rounds; ++i) asm volatile(MUL_ADD_128_ALL ::: LOW_REGISTERS, HIGH_REGISTERS);
}

// Four results and two operands on each side, as a product has them.
#define TILES(instruction)                                                                \
  instruction " %%tmm6,%%tmm4,%%tmm0\n" instruction " %%tmm7,%%tmm4,%%tmm1\n" instruction \
              " %%tmm6,%%tmm5,%%tmm2\n" instruction " %%tmm7,%%tmm5,%%tmm3\n"
#define TILE_LOOP(name, instruction)                                                               \
  __attribute__((target("amx-tile,amx-bf16,amx-int8"))) void name(int64_t rounds) {                \
    const TileConfig config;                                                                       \
    asm volatile("ldtilecfg %0" ::"m"(config));                                                    \
    load_operands();                                                                               \
    for (int64_t i = 0; i < rounds / 4; ++i)                                                       \
      asm volatile(TILES(instruction) TILES(instruction) TILES(instruction) TILES(instruction)::); \
    asm volatile("tilerelease");                                                                   \
  }
// Palette 1: eight registers of 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
// Numbers of both signs from 1/2 to 2 in bf16, and bytes of every kind: products of zeros draw less power, and the
// clock of processors rose by a fifth with them, which no real product sees.
struct alignas(64) TileOperands {
  uint16_t numbers[4][512];
  constexpr TileOperands() : numbers{} {
    uint32_t seed = 1;
    for (auto& tile : numbers)
      for (uint16_t& n : tile) {
        seed = seed * 1664525u + 1013904223u;
        n = static_cast<uint16_t>((seed >> 16 & 0x80ffu) | 0x3f00u);
      }
  }
};
constexpr TileOperands kTileOperands;
__attribute__((target("amx-tile"))) void load_operands() {
  asm volatile(
      "tileloadd (%0,%4,1), %%tmm4\ntileloadd (%1,%4,1), %%tmm5\n"
      "tileloadd (%2,%4,1), %%tmm6\ntileloadd (%3,%4,1), %%tmm7\n" ::"r"(kTileOperands.numbers[0]),
      "r"(kTileOperands.numbers[1]), "r"(kTileOperands.numbers[2]), "r"(kTileOperands.numbers[3]), "r"(int64_t{64})
      : "memory");
}
TILE_LOOP(bf16_tiles, "tdpbf16ps")
TILE_LOOP(int8_tiles, "tdpbssd")

__attribute__((target("avx512f"))) uint64_t read_512(const char* data, uint64_t size) {
  __m512i a[8] = {};
  for (uint64_t i = 0; i < size; i += 512)
    for (int k = 0; k < 8; ++k) a[k] = _mm512_add_epi64(a[k], _mm512_load_si512(data + i + 64 * k));
  __m512i sum = a[0];
  for (int k = 1; k < 8; ++k) sum = _mm512_add_epi64(sum, a[k]);
  alignas(64) uint64_t lanes[8];
  _mm512_store_si512(lanes, sum);
  return lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3] ^ lanes[4] ^ lanes[5] ^ lanes[6] ^ lanes[7];
}

__attribute__((target("avx2"))) uint64_t read_256(const char* data, uint64_t size) {
  __m256i a[8] = {};
  for (uint64_t i = 0; i < size; i += 256)
    for (int k = 0; k < 8; ++k)
      a[k] = _mm256_add_epi64(a[k], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + i + 32 * k)));
  __m256i sum = a[0];
  for (int k = 1; k < 8; ++k) sum = _mm256_add_epi64(sum, a[k]);
  alignas(32) uint64_t lanes[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sum);
  return lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3];
}

uint64_t read_128(const char* data, uint64_t size) {
  __m128i a[8] = {};
  for (uint64_t i = 0; i < size; i += 128)
    for (int k = 0; k < 8; ++k)
      a[k] = _mm_add_epi64(a[k], _mm_load_si128(reinterpret_cast<const __m128i*>(data + i + 16 * k)));
  __m128i sum = a[0];
  for (int k = 1; k < 8; ++k) sum = _mm_add_epi64(sum, a[k]);
  alignas(16) uint64_t lanes[2];
  _mm_store_si128(reinterpret_cast<__m128i*>(lanes), sum);
  return lanes[0] ^ lanes[1];
}

bool have_512() { return __builtin_cpu_supports("avx512f"); }
bool have_256() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

}  // namespace

PeakLoop fp32_loop() {
  if (have_512()) return {fma_512, 16 * 16 * 2};
  if (have_256()) return {fma_256, 14 * 8 * 2};
  return {mul_add_128, 15 * 4};
}

bool have_bf16_dot() { return have_512() && __builtin_cpu_supports("avx512bf16"); }
PeakLoop bf16_dot_loop() { return {bf16_512, 16 * 32 * 2}; }
bool have_int8_dot() { return have_512() && __builtin_cpu_supports("avx512vnni"); }
PeakLoop int8_dot_loop() { return {int8_512, 16 * 64 * 2}; }
PeakLoop bf16_tile_loop() { return {bf16_tiles, 4 * 16 * 16 * 32 * 2}; }
PeakLoop int8_tile_loop() { return {int8_tiles, 4 * 16 * 16 * 64 * 2}; }

uint64_t read_all(const char* data, uint64_t size) {
  if (have_512()) return read_512(data, size);
  if (have_256()) return read_256(data, size);
  return read_128(data, size);
}

#elif defined(__aarch64__)

namespace {

// Twenty accumulators of four lanes: more than any core has of its multiply-adds under way.
#define EACH(I) \
  I(0) I(1) I(2) I(3) I(4) I(5) I(6) I(7) I(8) I(9) I(10) I(11) I(12) I(13) I(14) I(15) I(16) I(17) I(18) I(19)
#define REGISTERS                                                                                                     \
  "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", \
      "v18", "v19", "v30", "v31"
#define ZERO(k) "movi v" #k ".4s, #0\n"
#define FMA(k) "fmla v" #k ".4s, v30.4s, v31.4s\n"
#define BF16_DOT(k) "bfdot v" #k ".4s, v30.8h, v31.8h\n"
#define INT8_DOT(k) "sdot v" #k ".4s, v30.16b, v31.16b\n"

#define LOOP(name, arch, instruction)                                                  \
  __attribute__((target(arch))) void name(int64_t rounds) {                            \
    asm volatile(EACH(ZERO) ZERO(30) ZERO(31)::: REGISTERS);                           \
    for (int64_t i = 0; i < rounds; ++i) asm volatile(EACH(instruction)::: REGISTERS); \
  }
LOOP(fma_128, "arch=armv8-a", FMA)
LOOP(bf16_128, "arch=armv8.2-a+bf16", BF16_DOT)
LOOP(int8_128, "arch=armv8.2-a+dotprod", INT8_DOT)

}  // namespace

PeakLoop fp32_loop() { return {fma_128, 20 * 4 * 2}; }
bool have_bf16_dot() { return ::getauxval(AT_HWCAP2) & HWCAP2_BF16; }
PeakLoop bf16_dot_loop() { return {bf16_128, 20 * 8 * 2}; }
bool have_int8_dot() { return ::getauxval(AT_HWCAP) & HWCAP_ASIMDDP; }
PeakLoop int8_dot_loop() { return {int8_128, 20 * 16 * 2}; }
PeakLoop bf16_tile_loop() { return bf16_dot_loop(); }
PeakLoop int8_tile_loop() { return int8_dot_loop(); }

uint64_t read_all(const char* data, uint64_t size) {
  uint64x2_t a[8] = {};
  for (uint64_t i = 0; i < size; i += 128)
    for (int k = 0; k < 8; ++k)
      a[k] = vaddq_u64(a[k], vreinterpretq_u64_u8(vld1q_u8(reinterpret_cast<const uint8_t*>(data + i + 16 * k))));
  uint64x2_t sum = a[0];
  for (int k = 1; k < 8; ++k) sum = vaddq_u64(sum, a[k]);
  return vgetq_lane_u64(sum, 0) ^ vgetq_lane_u64(sum, 1);
}

#endif

}  // namespace reprise::measurement

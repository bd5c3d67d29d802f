// Isa: which instruction set the CPU kernels use. One device uses one set for everything, so that its bits are one.
//
// Kernel sources are compiled once per set (backends/cpu/kernels, see the CMake file) into namespaces of the same name;
// register_cpu() adds the entries of the chosen set only. A program has the sets of the architecture it was built for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise::cpu {

enum class Isa : uint8_t {
  Baseline,  // x86-64 (SSE2), no FMA: products and sums are rounded separately. aarch64: ARMv8.0 with Advanced SIMD
  Avx2,      // AVX2 + FMA + F16C
  Avx512,    // AVX-512 F, BW, DQ, VL, VNNI, BF16
  DotProd,   // aarch64 with SDOT, four products of bytes at a time: ARMv8.2, Kunpeng 920
  Amx,       // Avx512 with products of int8 and bf16 on the tile registers of AMX: the latter in an order of their own
  // The products of Amx in plain C++ on processors with AVX2 or more, and the best set of those for the rest: all bits
  // of Amx where that is Avx512. Slow, and never chosen by itself.
  AmxEmulated,
  // Both with GGUF blocks on tile registers too: prompts and batches are several times as fast, one sequence is slower.
  // The first is the best set where Amx works.
  AmxBlocks,
  AmxBlocksEmulated,
};

// The sets of this program: X(Isa's name, namespace). A build that is checked and not used may leave some out
// (REPRISE_WITHOUT_ISAS of the CMake file), and that of ./dev demo has those of its processor alone.
#ifdef REPRISE_WITHOUT_BASELINE
#define REPRISE_BASELINE(X)
#else
#define REPRISE_BASELINE(X) X(Baseline, baseline)
#endif
#ifdef REPRISE_WITHOUT_AVX2
#define REPRISE_AVX2(X)
#else
#define REPRISE_AVX2(X) X(Avx2, avx2)
#endif
#ifdef REPRISE_WITHOUT_AVX512
#define REPRISE_AVX512(X)
#else
#define REPRISE_AVX512(X) X(Avx512, avx512)
#endif
// Those that are another set with products of their own.
#if defined(REPRISE_WITHOUT_AMX) || defined(REPRISE_WITHOUT_AVX512)
#define REPRISE_AMX(X)
#else
#define REPRISE_AMX(X) X(Amx, amx)
#endif
#ifdef REPRISE_WITHOUT_AMX_EMULATED
#define REPRISE_AMX_EMULATED(X)
#else
#define REPRISE_AMX_EMULATED(X) X(AmxEmulated, amx_emulated)
#endif
#if defined(__x86_64__)
#define REPRISE_CPU_TILE_ISAS(X) REPRISE_AMX(X) REPRISE_AMX_EMULATED(X)
#else
#define REPRISE_CPU_TILE_ISAS(X)
#endif
#if defined(__x86_64__)
#define REPRISE_CPU_ISAS(X) REPRISE_BASELINE(X) REPRISE_AVX2(X) REPRISE_AVX512(X)
#elif defined(__aarch64__)
#define REPRISE_CPU_ISAS(X) REPRISE_BASELINE(X) X(DotProd, dotprod)
#endif

std::string_view isa_name(Isa isa);
std::optional<Isa> isa_named(std::string_view name);  // as a device tells it, supported or not
std::vector<Isa> built_isas();                        // those of this program, ascending
// By this processor too, ascending, without the emulated ones and those with blocks on tile registers. None only where
// a program of ./dev demo came to another processor, which its main() tells.
std::vector<Isa> supported_isas();
std::string isa_choices();                     // "auto" and built_isas(), for a text of help
Result<Isa> parse_isa(std::string_view name);  // "auto" = the best one; unsupported or unknown names are errors

// The set that has what is not a product on tile registers: `isa` itself where it has no such products.
Isa base_of(Isa isa);
// Whether that is Avx512.
inline bool is_avx512(Isa isa) { return base_of(isa) == Isa::Avx512; }
// Whether products of int8 and bf16 go through tile registers.
constexpr bool has_tiles(Isa isa) { return isa >= Isa::Amx; }
// Whether those of GGUF blocks do.
constexpr bool has_block_tiles(Isa isa) { return isa >= Isa::AmxBlocks; }
// The set whose kernels those are.
constexpr Isa without_block_tiles(Isa isa) {
  return isa == Isa::AmxBlocks ? Isa::Amx : isa == Isa::AmxBlocksEmulated ? Isa::AmxEmulated : isa;
}

// Whether a multiply-add is one instruction with one rounding.
constexpr bool has_fused_multiply_add(Isa isa) {
#if defined(__aarch64__)
  return true;
#else
  return isa != Isa::Baseline;
#endif
}

// Why the set `amx` is not offered here, for `reprise doctor`; empty where it is, or where the processor has no AMX.
std::string why_no_amx();

// Whether vdpbf16ps beats two fp32 FMA: Zen runs it at twice the speed of fp32 FMA, Intel cores at half of it. Both
// ways give the same bits (kernels/tile.h).
bool bf16_dot_is_fast();
// Whether rows of bf16 are multiplied with GGUF blocks faster than rows of fp32 are.
bool has_fast_bf16(Isa isa);
// Whether weights in GGUF blocks are multiplied faster by int8 than by floats. On tile registers they are not; sets
// that were not measured count as slow.
bool has_fast_int8_blocks(Isa isa);

}  // namespace reprise::cpu

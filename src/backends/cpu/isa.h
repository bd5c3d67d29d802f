// Isa: which instruction set the CPU kernels use. One device uses one set for everything, so that its bits are one.
//
// Kernel sources are compiled once per set (backends/cpu/kernels, see the CMake file) into namespaces of the same name;
// register_cpu() adds the entries of the chosen set only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise::cpu {

enum class Isa : uint8_t {
  Baseline,  // x86-64 (SSE2), no FMA: products and sums are rounded separately
  Avx2,      // AVX2 + FMA + F16C
  Avx512,    // AVX-512 F, BW, DQ, VL, VNNI, BF16
};

std::string_view isa_name(Isa isa);
std::vector<Isa> supported_isas();             // by this processor, ascending
Result<Isa> parse_isa(std::string_view name);  // "auto" = the best supported; unsupported or unknown names are errors

// Whether vdpbf16ps beats two fp32 FMA: Zen runs it at twice the speed of fp32 FMA, Intel cores at half of it. Both
// ways give the same bits (kernels/tile.h).
bool bf16_dot_is_fast();

}  // namespace reprise::cpu

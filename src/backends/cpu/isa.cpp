#include "backends/cpu/isa.h"

#include <algorithm>
#include <iterator>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace reprise::cpu {
namespace {

constexpr Isa kAllIsas[] = {Isa::Baseline, Isa::Avx2, Isa::Avx512, Isa::DotProd};

#define REPRISE_ISA_OF(name, set) Isa::name,
constexpr Isa kBuiltIsas[] = {REPRISE_CPU_ISAS(REPRISE_ISA_OF)};
#undef REPRISE_ISA_OF

#if defined(__x86_64__)
// What some compilers know no name for: MOVBE, F16C (clang 14) and LZCNT.
bool has_movbe_f16c_and_lzcnt() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kMovbe = 1u << 22, kF16c = 1u << 29, kLzcnt = 1u << 5;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & kMovbe) || !(c & kF16c)) return false;
  return __get_cpuid(0x80000001u, &a, &b, &c, &d) && (c & kLzcnt);
}
#endif

std::string join(std::string text, const std::vector<Isa>& isas) {
  for (const Isa isa : isas) text += fmt::format(", {}", isa_name(isa));
  return text;
}

// Everything that src/backends/CMakeLists.txt compiles the kernels with (tests/tools/isa_test.py compares the two), but
// what every processor with AVX2 has.
std::vector<Isa> isas_of_this_processor() {
  std::vector<Isa> out{Isa::Baseline};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
      __builtin_cpu_supports("bmi2") && has_movbe_f16c_and_lzcnt())
    out.push_back(Isa::Avx2);
  if (out.back() == Isa::Avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16") &&
      __builtin_cpu_supports("avx512vbmi"))
    out.push_back(Isa::Avx512);
#elif defined(__aarch64__)
  // The compiler takes SDOT with all of ARMv8.2 alone.
  constexpr unsigned long kDotProd = HWCAP_ASIMDDP | HWCAP_ASIMDRDM | HWCAP_ATOMICS | HWCAP_CRC32;
  if ((::getauxval(AT_HWCAP) & kDotProd) == kDotProd) out.push_back(Isa::DotProd);
#endif
  return out;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::Baseline: return "baseline";
    case Isa::Avx2: return "avx2";
    case Isa::Avx512: return "avx512";
    case Isa::DotProd: return "dotprod";
  }
  return "?";
}

std::vector<Isa> built_isas() { return {std::begin(kBuiltIsas), std::end(kBuiltIsas)}; }

std::vector<Isa> supported_isas() {
  std::vector<Isa> out;
  for (const Isa isa : isas_of_this_processor())
    if (std::find(std::begin(kBuiltIsas), std::end(kBuiltIsas), isa) != std::end(kBuiltIsas)) out.push_back(isa);
  return out;
}

std::string isa_choices() { return join("auto", built_isas()); }

Result<Isa> parse_isa(std::string_view name) {
  const auto supported = supported_isas();
  if (name == "auto") return supported.back();
  for (Isa isa : supported)
    if (name == isa_name(isa)) return isa;
  const std::string allowed = join("auto", supported);
  for (Isa isa : kAllIsas)
    if (name == isa_name(isa))
      return error(Code::Unsupported, "isa \"{}\" is not supported by this processor; allowed here: {}", name, allowed);
  return invalid("isa \"{}\" is not known; allowed here: {}", name, allowed);
}

bool bf16_dot_is_fast() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}

}  // namespace reprise::cpu

#include "backends/cpu/isa.h"

#include <algorithm>
#include <iterator>

#include "backends/cpu/kernels/table.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace reprise::cpu {
namespace {

constexpr Isa kAllIsas[] = {Isa::Baseline, Isa::Avx2,        Isa::Avx512,    Isa::DotProd,
                            Isa::Amx,      Isa::AmxEmulated, Isa::AmxBlocks, Isa::AmxBlocksEmulated};

#define REPRISE_ISA_OF(name, set) Isa::name,
constexpr Isa kBuiltIsas[] = {REPRISE_CPU_ISAS(REPRISE_ISA_OF) REPRISE_CPU_TILE_ISAS(REPRISE_ISA_OF)};
#undef REPRISE_ISA_OF

#if defined(__x86_64__)
// What some compilers know no name for: MOVBE, F16C (clang 14) and LZCNT.
bool find_movbe_f16c_and_lzcnt() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kMovbe = 1u << 22, kF16c = 1u << 29, kLzcnt = 1u << 5;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & kMovbe) || !(c & kF16c)) return false;
  return __get_cpuid(0x80000001u, &a, &b, &c, &d) && (c & kLzcnt);
}
// Asked once: in a virtual machine each CPUID takes its host tens of microseconds.
bool has_movbe_f16c_and_lzcnt() {
  static const bool has = find_movbe_f16c_and_lzcnt();
  return has;
}
#endif

constexpr bool is_built(Isa isa) {
  return std::find(std::begin(kBuiltIsas), std::end(kBuiltIsas), without_block_tiles(isa)) != std::end(kBuiltIsas);
}

// What keeps the set away: empty where it works.
struct AmxState {
  bool there = false;  // the processor names AMX
  std::string why;
};

#if defined(__x86_64__)
thread_local sigjmp_buf after_trial;
void leave_trial(int) { siglongjmp(after_trial, 1); }

// Runs `trial` and answers whether it is true; false where the processor refuses an instruction of it. Handlers belong
// to the process: another thread that meets such an instruction meanwhile would be lost anyway.
bool try_instructions(bool (*trial)()) {
  struct sigaction ours {
  }, before{};
  ours.sa_handler = leave_trial;
  ::sigemptyset(&ours.sa_mask);
  if (::sigaction(SIGILL, &ours, &before) != 0) return false;
  const bool works = sigsetjmp(after_trial, 1) == 0 && trial();
  ::sigaction(SIGILL, &before, nullptr);
  return works;
}

// Leaves 1DH and 1EH, which describe the tiles, are zeros in some virtual machines that have them: they are not asked.
AmxState find_amx() {
  AmxState state;
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25, kAll = kBf16 | kTile | kInt8;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kAll) != kAll) return state;
  state.there = true;
  constexpr unsigned kOsXsave = 1u << 27, kTileState = 3u << 17;
  unsigned low = 0, high = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) && (c & kOsXsave)) asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & kTileState) != kTileState) {
    state.why = "the operating system does not save the tile registers";
    return state;
  }
#ifdef SYS_arch_prctl
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, Linux 5.16
  if (::syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) {
    state.why = fmt::format("the operating system does not permit the tile registers: {}", std::strerror(errno));
    return state;
  }
#endif
  if (is_built(Isa::Amx) && !try_instructions([] { return unit_works(Isa::Amx); }))
    state.why = "a trial product on the tile registers failed";
  return state;
}
#else
AmxState find_amx() { return {}; }
#endif

// Once in a process: permission is the process's.
const AmxState& amx_state() {
  static const AmxState state = find_amx();
  return state;
}

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
  if (out.back() == Isa::Avx512 && amx_state().there && amx_state().why.empty()) out.push_back(Isa::Amx);
#elif defined(__aarch64__)
  // The compiler takes SDOT with all of ARMv8.2 alone.
  constexpr unsigned long kDotProd = HWCAP_ASIMDDP | HWCAP_ASIMDRDM | HWCAP_ATOMICS | HWCAP_CRC32;
  if ((::getauxval(AT_HWCAP) & kDotProd) == kDotProd) out.push_back(Isa::DotProd);
#endif
  return out;
}

bool emulates_amx() {
  const auto here = isas_of_this_processor();
  return is_built(Isa::AmxEmulated) && std::find(here.begin(), here.end(), Isa::Avx2) != here.end();
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::Baseline: return "baseline";
    case Isa::Avx2: return "avx2";
    case Isa::Avx512: return "avx512";
    case Isa::DotProd: return "dotprod";
    case Isa::Amx: return "amx";
    case Isa::AmxEmulated: return "amx-emulated";
    case Isa::AmxBlocks: return "amx-blocks";
    case Isa::AmxBlocksEmulated: return "amx-blocks-emulated";
  }
  return "?";
}

std::optional<Isa> isa_named(std::string_view name) {
  for (const Isa isa : kAllIsas)
    if (isa_name(isa) == name) return isa;
  return std::nullopt;
}

std::vector<Isa> built_isas() {
  std::vector<Isa> out;
  for (const Isa isa : kAllIsas)
    if (is_built(isa)) out.push_back(isa);
  return out;
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> out;
  for (const Isa isa : isas_of_this_processor())
    if (is_built(isa)) out.push_back(isa);
  return out;
}

Isa base_of(Isa isa) {
  isa = without_block_tiles(isa);
  if (isa == Isa::Amx) return Isa::Avx512;
  if (isa != Isa::AmxEmulated) return isa;
  const std::vector<Isa> supported = supported_isas();
  return supported.back() == Isa::Amx ? Isa::Avx512 : supported.back();
}

std::string isa_choices() { return join("auto", built_isas()); }

Result<Isa> parse_isa(std::string_view name) {
  auto supported = supported_isas();
  if (supported.empty()) return error(Code::Unsupported, "nothing built here has kernels for this processor");
  if (supported.back() == Isa::Amx) supported.push_back(Isa::AmxBlocks);
  if (name == "auto") return supported.back();
  if (emulates_amx()) supported.insert(supported.end(), {Isa::AmxEmulated, Isa::AmxBlocksEmulated});
  for (Isa isa : supported)
    if (name == isa_name(isa)) return isa;
  const std::string allowed = join("auto", supported);
  if (const auto isa = isa_named(name)) {
    const std::string amx = without_block_tiles(*isa) == Isa::Amx ? why_no_amx() : "";
    const std::string why = !is_built(*isa) ? "not in this program"
                            : amx.empty()   ? "not supported by this processor"
                                            : fmt::format("not used here: {}", amx);
    return error(Code::Unsupported, "isa \"{}\" is {}; allowed here: {}", name, why, allowed);
  }
  return invalid("isa \"{}\" is not known; allowed here: {}", name, allowed);
}

std::string why_no_amx() {
  if (!amx_state().there) return {};
  return is_built(Isa::Amx) ? amx_state().why : "this program was built without it";
}

bool bf16_dot_is_fast() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}

bool has_fast_bf16(Isa isa) { return has_block_tiles(isa) || (is_avx512(isa) && bf16_dot_is_fast()); }
// With AVX2 formats of up to six bits are faster so, and Q8_0 is not on every processor.
bool has_fast_int8_blocks(Isa isa) { return isa == Isa::Avx512; }

}  // namespace reprise::cpu

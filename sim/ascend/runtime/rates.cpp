#include "ascend/runtime/rates.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace ascend_sim {
namespace {

constexpr double kTera = 1e12;
constexpr double kTebi = 1099511627776.0;
constexpr size_t kGibi = size_t{1} << 30;
constexpr size_t kMebi = size_t{1} << 20;

constexpr const char* kProfile = "documented: vendor's performance model, matched to this chip by cores and clock";
constexpr const char* kScaled = "documented: bf16 from the platform file; int8 and vector assumed, scaled by the clock";

constexpr std::array<Soc, 7> kSocs = {{
    {"Ascend910B1", 2, 24, 48, 363.7 * kTera, 773 * kTera, 22.6 * kTera, 64 * kGibi, 1.6 * kTebi, 192 * kMebi, 1850, 8,
     kScaled},
    {"Ascend910B2", 2, 24, 48, 353.9 * kTera, 752 * kTera, 22 * kTera, 64 * kGibi, 1.6 * kTebi, 192 * kMebi, 1800, 8,
     kProfile},
    {"Ascend910B3", 2, 20, 40, 294.9 * kTera, 626 * kTera, 18 * kTera, 64 * kGibi, 1.6 * kTebi, 192 * kMebi, 1800, 8,
     kProfile},
    {"Ascend910B4", 2, 20, 40, 245.8 * kTera, 560 * kTera, 16 * kTera, 32 * kGibi, 0.8 * kTebi, 96 * kMebi, 1500, 8,
     kProfile},
    {"Ascend910_9391", 3, 24, 48, 353.9 * kTera, 752 * kTera, 22 * kTera, 64 * kGibi, 1.6 * kTebi, 192 * kMebi, 1850,
     16, kProfile},
    {"Ascend910_9381", 3, 24, 48, 353.9 * kTera, 752 * kTera, 22 * kTera, 64 * kGibi, 1.6 * kTebi, 192 * kMebi, 1800,
     16, kProfile},
    {"Ascend910_9372", 3, 20, 40, 294.9 * kTera, 626 * kTera, 18 * kTera, 64 * kGibi, 1.6 * kTebi, 192 * kMebi, 1800,
     16, kScaled},
}};

enum class Known { Measured, Documented, Assumed };

struct Constant {
  const char* what;
  double value;
  const char* unit;
  Known known;
  const char* source;
};

// Nothing was measured on a device by this project. What is "derived" follows from published end-to-end times of other
// engines and is an assumption all the same; one device would replace it.
constexpr std::array<Constant, static_cast<size_t>(Rate::Count)> kRates = {{
    {"host: a call that only asks or sets", 0.5, "us", Known::Assumed, "no source"},
    {"host: making or destroying a stream, event or context", 10, "us", Known::Assumed, "no source"},
    {"host: allocating or freeing memory", 50, "us", Known::Assumed, "no source"},
    {"host: an asynchronous copy, fill or callback", 4, "us", Known::Assumed,
     "derived from published eager step times"},
    {"host: recording or waiting for an event or a value", 1.5, "us", Known::Assumed,
     "derived from published eager step times"},
    {"host: replaying a graph", 40, "us", Known::Assumed, "derived from published graph step times"},
    {"host: replaying a graph, per task", 0.02, "us", Known::Assumed, "derived from published graph step times"},
    {"host: a task update, per kernel, beside its launch", 1, "us", Known::Assumed, "6 us in all, with 5 for a launch"},
    {"host: return from a synchronisation", 10, "us", Known::Assumed, "derived from published eager step times"},
    {"host: running a callback", 5, "us", Known::Assumed, "no source"},
    {"device: gap between kernels, eager", 1.75, "us", Known::Assumed, "derived: 1.5 to 2 us back to back"},
    {"device: gap between kernels of a graph", 1, "us", Known::Assumed, "derived from published graph step times"},
    {"device: from an event to a waiting stream", 3, "us", Known::Assumed, "derived from published graph step times"},
    {"device: start of a matrix kernel", 5, "us", Known::Documented, "vendor's performance model"},
    {"device: start of a vector kernel", 2, "us", Known::Documented,
     "vendor's performance model; a published profile has means of 2.4 to 11.9, see ASCEND_SIM_RATES=published"},
    {"device: rewriting one task of a graph", 2, "us", Known::Assumed, "a small copy to the device"},
    {"device: start of a copy", 2, "us", Known::Assumed, "as a vector kernel"},
    {"device: start of a prefetch into the L2 cache", 2, "us", Known::Assumed, "as a copy"},
    {"what a matrix core reads of the L2 cache", 110, "bytes/cycle", Known::Documented, "vendor's platform files"},
    {"link between host and device", 25e9, "bytes/s", Known::Assumed, "PCIe 4 x16 at about 80 percent"},
    {"device: a collective of several ranks, beside its bytes", 10, "us", Known::Assumed,
     "derived from published steps of tensor parallel engines"},
    {"link between two devices, one way", 28e9, "bytes/s", Known::Assumed,
     "an eighth of an A2's links: 392 GB/s, both ways, to seven others"},
    {"share of the peak that arithmetic sustains", 0.7, "", Known::Assumed, "vendor's start value, to be calibrated"},
    {"share of the bandwidth that matrix kernels sustain", 0.75, "", Known::Assumed, "long streams of weights"},
    {"share of the bandwidth that other kernels sustain", 0.6, "", Known::Assumed,
     "vendor's start value, to be calibrated"},
}};

// Means of one public profile of a card: vLLM in eager mode, Qwen3-32B tensor parallel over 16 dies of an A3, batches
// of 1 to 32 and prefill up to 4,096 tokens (fork Horacehxw/msModeling of Ascend/msmodeling,
// docs/perf_database/reports/ profiling_analysis_eager/qwen332b_compute_ops.csv). Matrix products and attention are not
// among them: their times follow from sizes that the profile does not give. Forms that quantise behind a norm stand for
// the plain one.
struct Mean {
  const char* kernel;  // the beginning of its name
  double micros;
};
constexpr std::array<Mean, 13> kMeans = {{
    {"aclnnAddRmsNorm", 6.1},
    {"aclnnInplaceAddRmsNorm", 6.1},
    {"aclnnRmsNorm", 11.9},
    {"aclnnSwiGlu", 5.6},
    {"aclnnDequantSwigluQuant", 5.6},
    {"aclnnRopeWithSinCosCache", 5.5},
    {"aclnnApplyRotaryPosEmb", 5.5},
    {"aclnnRotaryPositionEmbedding", 5.5},
    {"aclnnScatterPaKvCache", 3.9},
    {"aclnnScatterNdUpdate", 3.9},
    {"aclnnIndexSelect", 10},
    {"aclnnCast", 2.4},
    {"aclnnArgMax", 88},
}};
constexpr double kSliceMean = 2.6;
// Measured for paged attention over 28 layers from Python, after a change; before it 86 to 105 us (vllm-ascend #15579).
constexpr double kPublishedUpdate = 59;

const char* word(Known known) {
  switch (known) {
    case Known::Measured: return "measured by others";
    case Known::Documented: return "documented";
    case Known::Assumed: return "assumed";
  }
  return "";
}

bool is_matrix(Unit unit) { return unit != Unit::Vector && unit != Unit::AiCpu; }

double peak(const Soc& soc, Unit unit) {
  switch (unit) {
    case Unit::AiCpu:  // not told apart in time
    case Unit::Vector: return soc.vector;
    case Unit::CubeInt8: return soc.int8;
    case Unit::Cube:
    case Unit::Mixed: return soc.bf16;
  }
  return soc.bf16;
}

double memory_seconds(const Soc& soc, const Kernel& kernel) {
  // Attention walks pages; only plain matrix kernels read one long stream.
  const bool streams = kernel.unit == Unit::Cube || kernel.unit == Unit::CubeInt8;
  return kernel.work.bytes / (soc.hbm_bandwidth * rate(streams ? Rate::StreamingEfficiency : Rate::MemoryEfficiency));
}

std::string line(const char* format, auto... values) {
  char text[400];
  std::snprintf(text, sizeof text, format, values...);
  return std::string(text) + "\n";
}

}  // namespace

const Soc* find_soc(const std::string& name) {
  for (const Soc& soc : kSocs) {
    if (name == soc.name) return &soc;
  }
  return nullptr;
}

std::string soc_names() {
  std::string names;
  for (const Soc& soc : kSocs) names += (names.empty() ? "" : ", ") + std::string(soc.name);
  return names;
}

double rate(Rate which) { return kRates[static_cast<size_t>(which)].value; }

double published_mean(const std::string& kernel) {
  if (kernel.ends_with("/contiguous")) return kSliceMean;
  for (const Mean& mean : kMeans)
    if (kernel.starts_with(mean.kernel)) return mean.micros;
  return 0;
}

double kernel_micros(const Soc& soc, Rates rates, const Kernel& kernel) {
  const Unit unit = kernel.unit;
  const double compute = kernel.work.operations / (peak(soc, unit) * rate(Rate::ComputeEfficiency));
  const double micros = std::max(compute, memory_seconds(soc, kernel)) * 1e6 +
                        rate(is_matrix(unit) ? Rate::StartCube : Rate::StartVector);
  return rates == Rates::Published ? std::max(micros, published_mean(kernel.name)) : micros;
}

Share kernel_share(const Soc& soc, const Kernel& kernel, double alone) {
  const Unit unit = kernel.unit;
  // From its start on it has all cores of its kind, also those that it leaves idle.
  return {is_matrix(unit) ? 1.0 : 0.0, unit == Unit::Vector || unit == Unit::Mixed ? 1.0 : 0.0,
          memory_seconds(soc, kernel) * 1e6 / alone};
}

Reading kernel_reading(const Soc& soc, Rates rates, const Kernel& kernel) {
  Reading r;
  r.start = rate(is_matrix(kernel.unit) ? Rate::StartCube : Rate::StartVector);
  r.compute = kernel.work.operations / (peak(soc, kernel.unit) * rate(Rate::ComputeEfficiency)) * 1e6;
  r.memory = memory_seconds(soc, kernel) * 1e6;
  r.least = rates == Rates::Published ? published_mean(kernel.name) : 0;
  r.bytes = kernel.work.bytes;
  for (const Touch& t : kernel.touches) {
    const auto begin = reinterpret_cast<uintptr_t>(t.address);
    if (!t.written && t.bytes > 0) r.from.push_back({begin, begin + t.bytes});
  }
  return r;
}

L2Cache l2_cache(const Soc& soc) {
  const double bytes_per_us = rate(Rate::CachedBytes) * soc.cube_cores * soc.mhz;
  return {static_cast<double>(soc.l2_bytes), 1 / (bytes_per_us * rate(Rate::StreamingEfficiency))};
}

double prefetch_micros(const Soc& soc, size_t bytes) {
  return rate(Rate::PrefetchStart) +
         static_cast<double>(bytes) / (soc.hbm_bandwidth * rate(Rate::StreamingEfficiency)) * 1e6;
}

double update_micros(Rates rates) {
  return rates == Rates::Published ? kPublishedUpdate - PhaseCosts::kRetiled - PhaseCosts::kLaunch
                                   : rate(Rate::HostUpdatePerKernel);
}

double device_copy_micros(const Soc& soc, size_t bytes) {
  const double moved = 2 * static_cast<double>(bytes);  // read and written
  return rate(Rate::CopyStart) + moved / (soc.hbm_bandwidth * rate(Rate::MemoryEfficiency)) * 1e6;
}

double link_copy_micros(size_t bytes) {
  return rate(Rate::CopyStart) + static_cast<double>(bytes) / rate(Rate::LinkBandwidth) * 1e6;
}

double collective_micros(size_t bytes) {
  return rate(Rate::CollectiveStart) + static_cast<double>(bytes) / rate(Rate::PeerBandwidth) * 1e6;
}

std::string assumptions(const Soc& soc, bool computes, double launch_factor, Rates rates) {
  std::string text = "times are a model, not a measurement; no constant was calibrated on a device by this project\n";
  text += line("%s: bf16 %.4g T, int8 %.4g T, vector %.4g T operations/s, %.4g GB/s, %zu GiB (%s)", soc.name,
               soc.bf16 / kTera, soc.int8 / kTera, soc.vector / kTera, soc.hbm_bandwidth / 1e9, soc.hbm_bytes / kGibi,
               soc.source);
  for (const Constant& constant : kRates) {
    text += line("%s: %.6g %s (%s; %s)", constant.what, constant.value, constant.unit, word(constant.known),
                 constant.source);
  }
  text += line(
      "host: phase 1 of an operator: %.6g us with new operands, %.6g us with known ones, %.6g us with new ones in "
      "a task update; phase 2: %.6g us for each kernel (assumed; derived from published eager step times)",
      PhaseCosts::kCold, PhaseCosts::kCached, PhaseCosts::kRetiled, PhaseCosts::kLaunch);
  if (rates == Rates::Published) {
    text += line("published rates: a task update costs the host at least %.3g us (%s; vllm-ascend #15579, from Python)",
                 kPublishedUpdate, word(Known::Measured));
    text += line(
        "published rates: no kernel is faster than the mean of its kind in a profile of an A3, %.3g us to make "
        "an operand contiguous (%s; Horacehxw/msModeling, qwen332b_compute_ops.csv)",
        kSliceMean, word(Known::Measured));
    for (const Mean& mean : kMeans)
      text += line("published rates: %s: at least %.3g us (%s; the same profile)", mean.kernel, mean.micros,
                   word(Known::Measured));
  }
  text +=
      "streams of one graph divide cores and bandwidth: a kernel has all matrix cores, all vector cores or both from "
      "its start on, and the bandwidth that it would use alone; an event is a task with the gap of one (assumed)\n";
  text += "streams of different graphs, and launches by themselves, do not compete (assumed)\n";
  text += line(
      "kernels read device memory, but for what a prefetch brought into the L2 cache (%zu MiB) since the replay of "
      "their graph began: that comes at the cache's rate, as far as it is sustained, and is gone when as much as the "
      "cache holds has passed through it; no other reuse is modelled (assumed)",
      soc.l2_bytes / kMebi);
  if (launch_factor != 1)
    text +=
        line("host time of operators' phases is multiplied by %.6g (asked for, to see what it decides)", launch_factor);
  if (!computes) text += "arithmetic is skipped: results are not computed, copies above 1 MiB move no bytes\n";
  return text;
}

}  // namespace ascend_sim

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
    {"Ascend910B1", 2, 24, 48, 363.7 * kTera, 773 * kTera, 22.6 * kTera, 64 * kGibi, 1.6 * kTebi, 192 * kMebi, 8,
     kScaled},
    {"Ascend910B2", 2, 24, 48, 353.9 * kTera, 752 * kTera, 22 * kTera, 64 * kGibi, 1.6 * kTebi, 192 * kMebi, 8,
     kProfile},
    {"Ascend910B3", 2, 20, 40, 294.9 * kTera, 626 * kTera, 18 * kTera, 64 * kGibi, 1.6 * kTebi, 192 * kMebi, 8,
     kProfile},
    {"Ascend910B4", 2, 20, 40, 245.8 * kTera, 560 * kTera, 16 * kTera, 32 * kGibi, 0.8 * kTebi, 96 * kMebi, 8,
     kProfile},
    {"Ascend910_9391", 3, 24, 48, 353.9 * kTera, 752 * kTera, 22 * kTera, 64 * kGibi, 1.6 * kTebi, 192 * kMebi, 16,
     kProfile},
    {"Ascend910_9381", 3, 24, 48, 353.9 * kTera, 752 * kTera, 22 * kTera, 64 * kGibi, 1.6 * kTebi, 192 * kMebi, 16,
     kProfile},
    {"Ascend910_9372", 3, 20, 40, 294.9 * kTera, 626 * kTera, 18 * kTera, 64 * kGibi, 1.6 * kTebi, 192 * kMebi, 16,
     kScaled},
}};

enum class Known { Measured, Documented, Assumed };

struct Constant {
  const char* what;
  double value;
  const char* unit;
  Known known;
  const char* source;
};

// Nothing was measured on a device by this project, so nothing says so yet. What is "derived" follows from published
// end-to-end times of other engines and is an assumption all the same; one device would replace it.
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
    {"device: start of a vector kernel", 2, "us", Known::Documented, "vendor's performance model"},
    {"device: rewriting one task of a graph", 2, "us", Known::Assumed, "a small copy to the device"},
    {"device: start of a copy", 2, "us", Known::Assumed, "as a vector kernel"},
    {"link between host and device", 25e9, "bytes/s", Known::Assumed, "PCIe 4 x16 at about 80 percent"},
    {"share of the peak that arithmetic sustains", 0.7, "", Known::Assumed, "vendor's start value, to be calibrated"},
    {"share of the bandwidth that matrix kernels sustain", 0.75, "", Known::Assumed, "long streams of weights"},
    {"share of the bandwidth that other kernels sustain", 0.6, "", Known::Assumed,
     "vendor's start value, to be calibrated"},
}};

const char* word(Known known) {
  switch (known) {
    case Known::Measured: return "measured";
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

double kernel_micros(const Soc& soc, Unit unit, const Work& work) {
  // Attention walks pages; only plain matrix kernels read one long stream.
  const bool streams = unit == Unit::Cube || unit == Unit::CubeInt8;
  const double compute = work.operations / (peak(soc, unit) * rate(Rate::ComputeEfficiency));
  const double memory =
      work.bytes / (soc.hbm_bandwidth * rate(streams ? Rate::StreamingEfficiency : Rate::MemoryEfficiency));
  return std::max(compute, memory) * 1e6 + rate(is_matrix(unit) ? Rate::StartCube : Rate::StartVector);
}

double device_copy_micros(const Soc& soc, size_t bytes) {
  const double moved = 2 * static_cast<double>(bytes);  // read and written
  return rate(Rate::CopyStart) + moved / (soc.hbm_bandwidth * rate(Rate::MemoryEfficiency)) * 1e6;
}

double link_copy_micros(size_t bytes) {
  return rate(Rate::CopyStart) + static_cast<double>(bytes) / rate(Rate::LinkBandwidth) * 1e6;
}

std::string assumptions(const Soc& soc, bool computes, double launch_factor) {
  std::string text = "times are a model, not a measurement; no constant was calibrated on a device\n";
  text += line("%s: bf16 %.4g T, int8 %.4g T, vector %.4g T operations/s, %.4g GB/s, %zu GiB (%s)", soc.name,
               soc.bf16 / kTera, soc.int8 / kTera, soc.vector / kTera, soc.hbm_bandwidth / 1e9, soc.hbm_bytes / kGibi,
               soc.source);
  for (const Constant& constant : kRates) {
    text += line("%s: %.6g %s (%s; %s)", constant.what, constant.value, constant.unit, word(constant.known),
                 constant.source);
  }
  text += "kernels on different streams do not compete for cores or bandwidth (assumed)\n";
  text += "every kernel reads its operands from device memory; reuse in the L2 cache is not modelled (assumed)\n";
  if (launch_factor != 1)
    text +=
        line("host time of operators' phases is multiplied by %.6g (asked for, to see what it decides)", launch_factor);
  if (!computes) text += "arithmetic is skipped: results are not computed, copies above 1 MiB move no bytes\n";
  return text;
}

}  // namespace ascend_sim

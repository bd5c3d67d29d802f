// What the modelled clock is made of: the chips, and every constant with where it comes from. Immutable.
#pragma once

#include <string>

#include "ascend/kernel.h"
#include "ascend/runtime/sharing.h"

namespace ascend_sim {

struct Soc {
  const char* name;
  int generation;  // 2: Atlas A2; 3: Atlas A3
  int cube_cores;
  int vector_cores;
  double bf16;  // operations per second at the peak, as the others
  double int8;
  double vector;
  size_t hbm_bytes;
  double hbm_bandwidth;  // bytes per second, nominal
  size_t l2_bytes;
  double mhz;   // of the cube cores
  int devices;  // of one server
  const char* source;
};

// Null where there is no such chip.
const Soc* find_soc(const std::string& name);
std::string soc_names();

// Host costs and device gaps are microseconds.
enum class Rate {
  HostCall,
  HostCreate,
  HostMalloc,
  HostAsyncCopy,
  HostEvent,
  HostExecute,
  HostExecutePerTask,
  HostUpdatePerKernel,
  HostSync,
  HostCallback,
  GapEager,
  GapGraph,
  Hop,
  StartCube,
  StartVector,
  Rewrite,
  CopyStart,
  PrefetchStart,
  CachedBytes,
  LinkBandwidth,
  CollectiveStart,
  PeerBandwidth,
  ComputeEfficiency,
  StreamingEfficiency,
  MemoryEfficiency,
  Count,
};
double rate(Rate which);

// Two readings of the same model. `Published` replaces what public measurements of a card contradict: a small kernel is
// no faster than the published mean of its kind, and a task update costs the host what another engine published.
// Nothing in it was fitted to a time of a whole step.
enum class Rates : uint8_t { Model, Published };

// Microseconds below which the published reading has no kernel of this name; 0 where none was published. A copy that
// makes an operand contiguous ("NAME/contiguous") counts as a slice.
double published_mean(const std::string& kernel);

// Device time of one kernel without the gap before it.
double kernel_micros(const Soc& soc, Rates rates, const Kernel& kernel);
// What the kernel keeps busy during that time.
Share kernel_share(const Soc& soc, const Kernel& kernel, double alone);
Reading kernel_reading(const Soc& soc, Rates rates, const Kernel& kernel);
L2Cache l2_cache(const Soc& soc);
double prefetch_micros(const Soc& soc, size_t bytes);
// Host time of a task update, for one kernel, without both phases of its operator.
double update_micros(Rates rates);
double device_copy_micros(const Soc& soc, size_t bytes);  // within the device
double link_copy_micros(size_t bytes);                    // between host and device
// What a collective takes when all ranks have come, where each sends so many bytes to each other one.
double collective_micros(size_t bytes);

// Every constant above in words, one line each.
std::string assumptions(const Soc& soc, bool computes, double launch_factor, Rates rates);

}  // namespace ascend_sim

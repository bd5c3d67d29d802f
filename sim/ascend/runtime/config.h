// What the environment asks of the simulator, read once by aclInit. A value; nothing changes it afterwards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ascend/runtime/rates.h"

namespace ascend_sim {

// Faults on demand: what happens at the N-th call or execution, counted from 1 since aclInit; 0 is never.
struct Faults {
  struct Kernel {
    std::string name;  // whole, or the part before a slash
    int64_t at = 0;
  };
  int64_t malloc_at = 0;        // 207001
  int64_t stream_at = 0;        // 207008; streams and the queues of captures count alike
  int64_t event_at = 0;         // the record is lost
  int64_t update_at = 0;        // 107040 at the end of the update
  int64_t capture_end_at = 0;   // 507903
  std::vector<Kernel> kernels;  // 507015 at the next synchronisation
  Kernel refused;               // phase 1 of this operator answers 561002
  std::optional<int> devices;
  std::optional<size_t> free_bytes;  // of device memory; the rest belongs to another process
  bool value_wait = false;           // aclrtValueWait answers 207000
  bool old_driver = false;           // the driver's version is 24.1.RC2, task updates answer 207000
  bool old_firmware = false;         // task updates take kernels of mixed type only: 207019
  bool no_kernels = false;           // phase 1 of every operator answers 561112
  bool wrong_chip = false;           // aclrtGetSocName answers Ascend310P3
  bool no_permission = false;        // aclrtSetDevice answers 507899
};

struct Config {
  const Soc* soc = nullptr;        // ASCEND_SIM_SOC
  bool new_stack = false;          // ASCEND_SIM_STACK: queues of graphs are bound when they execute
  size_t hbm_bytes = 0;            // ASCEND_SIM_HBM_BYTES
  bool computes = true;            // ASCEND_SIM_COMPUTE
  Cann cann = kNewest;             // ASCEND_SIM_CANN
  std::optional<uint64_t> jitter;  // ASCEND_SIM_JITTER: seed of random delays between streams
  bool races = false;              // ASCEND_SIM_RACES: unordered work on the same memory is a fault
  int hang_ms = 20000;             // ASCEND_SIM_HANG_MS: nothing moves for so long: 507046
  int destroy_ms = 10000;          // ASCEND_SIM_DESTROY_MS: how long destroying a running graph waits: 107037
  double launch_factor = 1;        // ASCEND_SIM_LAUNCH_FACTOR: host time of operators' phases, times this
  Rates rates = Rates::Model;      // ASCEND_SIM_RATES
  Faults faults;                   // ASCEND_SIM_FAULT
};

// Fills the configuration from the environment; the answer is empty, or says which variable is wrong and what it may
// be.
std::string read_config(Config* config);

}  // namespace ascend_sim

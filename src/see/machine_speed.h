// MachineSpeed: what a machine can do at best, as it was measured: the limits that a step's time is compared with. A
// plain value; any thread. `reprise doctor` and the benchmarks measure it.
#pragma once

#include <optional>
#include <string>

namespace reprise::see {

// Decimal units: GB/s, GFLOP/s (a multiply-add counts twice). nullopt: this processor has no such instruction.
struct MachineSpeed {
  double read_GBps_1 = 0;
  double read_GBps_all = 0;
  double fp32_gflops = 0;
  // The fastest instruction for such products gives these: on tile registers where the set `amx` is supported.
  std::optional<double> bf16_gflops;
  std::optional<double> int8_gops;
  std::optional<double> barrier_ns;  // nullopt with one processor
  // Processors that other programs, or other guests of the host, kept busy meanwhile; 0 where the system does not say.
  double other_load = 0;

  // Under other load the figures are what was left over: no share of them means anything.
  bool disturbed() const { return other_load > kMostOtherLoad; }
  static constexpr double kMostOtherLoad = 0.25;
};
// One line for people; "" when nothing disturbed the figures.
std::string disturbance(const MachineSpeed& speed);

}  // namespace reprise::see

// MachineProbe: what this machine can do at best: bandwidth of reading memory, peak arithmetic, cost of a barrier.
// These are the limits that `reprise doctor` prints and that `reprise bench` compares with. Every figure is the best of
// a few short trials, because other programs can only make it worse. One probe at a time; it starts and joins threads
// of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace reprise::apps {

// Decimal units: GB/s, GFLOP/s (a multiply-add counts twice). nullopt: this processor has no such instruction.
struct MachineSpeed {
  double read_GBps_1 = 0;
  double read_GBps_all = 0;
  double fp32_gflops = 0;
  std::optional<double> bf16_gflops;
  std::optional<double> int8_gops;
  std::optional<double> barrier_ns;  // nullopt with one processor
  // Processors that other programs, or other guests of the host, kept busy meanwhile; 0 where the system does not say.
  double other_load = 0;

  // Beside other load the figures are what was left over: no share of them means anything.
  bool disturbed() const { return other_load > kMostOtherLoad; }
  static constexpr double kMostOtherLoad = 0.25;
};
// One line for people; "" when nothing disturbed the figures.
std::string disturbance(const MachineSpeed& speed);

struct Machine {
  std::string cpu;
  std::vector<std::string> isa;  // values of --isa that work here
  int threads = 1;               // processors this process may use: affinity and control group
  std::vector<std::string> devices;
  std::vector<std::string> warnings;
};

// Memory larger than the caches, for reading it again and again. Gives it back when it goes.
class ReadProbe {
 public:
  explicit ReadProbe(int threads);
  ~ReadProbe();
  ReadProbe(const ReadProbe&) = delete;
  ReadProbe& operator=(const ReadProbe&) = delete;

  // GB/s of that many threads, each with its own part of the memory; 0 when there was no memory.
  double measure(int threads) const;

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

Machine describe_machine();
// Takes about two seconds.
MachineSpeed measure_machine(int threads);
// The object of `doctor --json`.
OrderedJson machine_json(const Machine& machine, const MachineSpeed& speed);

}  // namespace reprise::apps

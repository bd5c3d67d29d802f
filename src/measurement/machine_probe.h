// MachineProbe: what this machine can do at best: bandwidth of reading memory, peak arithmetic, cost of a barrier.
// These are the limits that `reprise doctor` prints and that `reprise bench` compares with. Every figure is the best of
// a few short trials, because other programs can only make it worse. One probe at a time; it starts and joins threads
// of its own.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "see/machine_speed.h"

namespace reprise::measurement {

using see::MachineSpeed;

struct Machine {
  std::string cpu;
  std::vector<std::string> isa;  // values of --isa that work here
  std::string isa_used;          // what "auto" is of them
  std::string order;             // its order of sums (backends/sum_order.h)
  int threads = 1;               // cores this process may use: affinity and control group
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

}  // namespace reprise::measurement

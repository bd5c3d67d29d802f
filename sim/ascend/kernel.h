// What the two halves of the simulator share: kernels that operators launch, and the machine they run on.
//
// ops/ (the aclnn protocol and the arithmetic) makes Kernels; runtime/ (streams, capture, updates, memory, clock)
// queues, records, redirects and runs them. Device addresses are not host addresses: only host_address() turns one into
// the other, and only while a kernel computes. Any thread may call these functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ascend/rules.h"

namespace ascend_sim {

// The part of a core that does the work. A task update may not change it.
enum class Unit : uint8_t { Vector, Cube, CubeInt8, Mixed, AiCpu };

// Device memory that a kernel reads or writes: checked to be alive when it runs.
struct Touch {
  const void* address = nullptr;
  size_t bytes = 0;
  bool written = false;
};

// What the clock needs to know.
struct Work {
  double operations = 0;  // a multiply-add is two
  double bytes = 0;       // from and to device memory
};

// Thrown by compute() where a real core would fault, as for a page id outside its pool: the stream fails with 507015.
struct DeviceFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What a kernel does that all ranks of a communicator run together, in place of compute().
struct Exchange {
  std::string group;   // the communicator's name
  uint64_t count = 0;  // what all ranks must say alike: elements and their type
  int32_t type = 0;
  double even_bytes = 0;  // over the fullest link where all get as much, for where arithmetic is skipped
  // Both as compute(): what the other ranks may read, and what is made of that of all of them, by rank. Of the latter
  // the bytes that cross the fullest link.
  std::function<std::vector<uint8_t>()> give;
  std::function<double(const std::vector<std::vector<uint8_t>>&)> take;
};

struct Kernel {
  std::string name;  // "aclnnRmsNorm"; of a copy that makes an operand contiguous "aclnnRmsNorm/contiguous"
  Unit unit = Unit::Vector;
  Work work;
  std::vector<Touch> touches;
  std::function<void()> compute;  // everything it reads was noted at launch; not called where arithmetic is skipped
  std::shared_ptr<const Exchange> exchange = nullptr;
};

// This process's seat in a communicator.
struct Seat {
  int rank = 0, size = 0;  // size 0: there is no communicator of that name
};

#pragma GCC visibility push(default)  // visible outside the library for the tests of both halves

// What phase 2 of an operator does with its kernels: queued on the stream, recorded by a capture, or redirected by an
// open task update. The answer is the runtime's error code.
int launch(void* stream, std::vector<Kernel> kernels);

Seat seat_in(const std::string& group);

// In compute() only: where the bytes of a device address really are. An address outside every living block throws,
// which the runtime turns into the fault of the kernel; let it pass.
void* host_address(const void* device_address);
template <typename T>
T* host(const void* device_address) {
  return static_cast<T*>(host_address(device_address));
}

// Notes the text for aclGetRecentErrMsg of this thread and gives the code back.
int fail(int code, std::string text);

// Host time of an operator's two phases, in microseconds. Assumed: no source states it for one operator, and these are
// derived from published eager step times of other engines.
struct PhaseCosts {
  static constexpr double kCold = 60;     // phase 1 with operands not met before
  static constexpr double kCached = 8;    // phase 1 with known ones
  static constexpr double kRetiled = 20;  // phase 1 with new ones in a task update: only the tiling is computed
  static constexpr double kLaunch = 5;    // phase 2, for each kernel
};

// Host time that the calling thread's clock moves on by.
void spend_host(double microseconds);

// True while this thread has a task update open: phase 1 then only computes the tiling anew.
bool updating();

struct Machine {
  std::string soc;     // "Ascend910B3"
  int generation = 2;  // 2: Atlas A2; 3: Atlas A3
  int cube_cores = 20;
  int vector_cores = 40;
  size_t unified_buffer = 192 << 10;  // bytes of a vector core
  bool computes = true;               // false: kernels take time and touch nothing
  Cann cann = kNewest;                // which of the rules hold
  std::string refuses;                // phase 1 of this operator fails at its `refuses_at`-th call, counted from 1
  int64_t refuses_at = 0;
  bool has_kernels = true;  // false: the package with the chip's kernels is not installed
};
const Machine& machine();

// Counts the calls of the operator that is to be refused anew.
void restart_refusals();

#pragma GCC visibility pop

}  // namespace ascend_sim

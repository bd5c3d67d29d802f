// The loops behind the peak figures: sixteen independent accumulators in registers, in assembly so that nothing is
// folded away. Each is compiled for its own instruction set and may run only where the processor has it; have_*() say
// where.
#pragma once

#include <cstdint>

namespace reprise::measurement {

struct PeakLoop {
  void (*run)(int64_t rounds);
  double operations_per_round;  // multiplications and additions
};

PeakLoop fp32_loop();  // the widest one here
bool have_bf16_dot();
PeakLoop bf16_dot_loop();
bool have_int8_dot();
PeakLoop int8_dot_loop();
// On the tile registers of AMX, which may run where the instruction set `amx` is supported.
PeakLoop bf16_tile_loop();
PeakLoop int8_tile_loop();

// Reads `size` bytes (a multiple of 512) with the widest loads here; the answer only keeps the loads alive.
uint64_t read_all(const char* data, uint64_t size);

}  // namespace reprise::measurement

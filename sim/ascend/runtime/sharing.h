// When work on several streams of one graph is done while it shares the chip. What runs at the same time divides the
// cores of each kind and the bandwidth by what each asks for: the more one asks for together with others, the slower
// all that need it become. What a prefetch brings into the L2 cache is read from there by what begins later, unless as
// much as the cache holds has passed through it since. Pure functions of modelled times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ascend_sim {

// What a task would take of the chip if it ran alone, from 0 to 1.
struct Share {
  double cube = 0, vector = 0;  // cores
  double bandwidth = 0;         // of device memory, as far as such a task can use it
};

struct Range {
  uintptr_t begin = 0, end = 0;
};

// The parts of a kernel's time, so that it can be computed anew when a part of what it reads is cached.
struct Reading {
  double start = 0, compute = 0, memory = 0;  // microseconds; the last two beside each other
  double least = 0;                           // that the whole takes in any case
  double bytes = 0;                           // that `memory` is for
  std::vector<Range> from;                    // read
};

struct L2Cache {
  double bytes = 0;            // 0: there is none
  double micros_per_byte = 0;  // that a kernel reads of it
};

struct SharedStep {
  enum class Kind {
    Work,    // takes `micros` alone, longer beside others
    Until,   // not before `micros` of the clock
    Record,  // marks the point
    Wait,    // for the mark, and `micros` more
  } kind = Kind::Work;
  double micros = 0;
  Share share{};
  const void* mark = nullptr;
  Reading reading{};  // of a kernel; nothing: its time is its time
  // What a prefetch leaves in the cache once it is done, and in parts before; the first microseconds bring nothing.
  Range fills{};
  double before_filling = 0;
};

#pragma GCC visibility push(default)  // for tests

// The clock at the end of each stream, all of which start at `begin`. A mark that is never recorded holds up nothing.
std::vector<double> shared_ends(const std::vector<std::vector<SharedStep>>& streams, double begin,
                                const L2Cache& cache = {});

#pragma GCC visibility pop

}  // namespace ascend_sim

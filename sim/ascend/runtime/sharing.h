// When work on several streams of one graph is done while it shares the chip. What runs at the same time divides the
// cores of each kind and the bandwidth by what each asks for: the more one asks for together with others, the slower
// all that need it become. Pure functions of modelled times.
#pragma once

#include <vector>

namespace ascend_sim {

// What a task would take of the chip if it ran alone, from 0 to 1.
struct Share {
  double cube = 0, vector = 0;  // cores
  double bandwidth = 0;         // of device memory, as far as such a task can use it
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
};

#pragma GCC visibility push(default)  // for tests

// The clock at the end of each stream, all of which start at `begin`. A mark that is never recorded holds up nothing.
std::vector<double> shared_ends(const std::vector<std::vector<SharedStep>>& streams, double begin);

#pragma GCC visibility pop

}  // namespace ascend_sim

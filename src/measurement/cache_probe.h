// CacheProbe: read bandwidth of every level of the memory hierarchy, with all threads of a run reading at once, each a
// part of its own. What limits an op depends on where its operands lie; bandwidth_for() says which level that is.
// Measuring takes about a second and starts and joins threads of its own; the result is a plain value.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace reprise::measurement {

struct CacheLevel {
  std::string name;         // "L1", "L2", "L3", "far L3", "memory"
  size_t serves_above = 0;  // bytes per thread; what is larger than this (up to the next level's) is read from here
  size_t probed = 0;        // bytes per thread that were read again and again
  double read_GBps = 0;     // of all threads together
};

struct CacheSpeeds {
  int threads = 1;
  std::vector<CacheLevel> levels;  // the fastest first

  // The level that a working set of so many bytes, spread evenly over the threads, is read from.
  const CacheLevel& level_for(double bytes) const;
};

CacheSpeeds measure_caches(int threads);

}  // namespace reprise::measurement

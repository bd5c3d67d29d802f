#include "measurement/cache_probe.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/check.h"
#include "measurement/machine_probe.h"
#include "measurement/peak_loops.h"
#include "measurement/pinned_threads.h"

namespace reprise::measurement {
namespace {

constexpr int kCacheTrials = 7;
constexpr size_t kTrialBytes = size_t{128} << 20;  // that each thread reads in one trial: some milliseconds
constexpr size_t kAlignment = 4096;

// What the system says, or a usual size where it says nothing.
size_t cache_bytes(int name, size_t otherwise) {
  const long n = ::sysconf(name);
  return n > 0 ? static_cast<size_t>(n) : otherwise;
}

struct Free {
  void operator()(char* p) const { std::free(p); }
};
using Bytes = std::unique_ptr<char, Free>;

double read_GBps(int threads, size_t bytes) {
  std::vector<Bytes> parts;
  for (int t = 0; t < threads; ++t) {
    parts.emplace_back(static_cast<char*>(std::aligned_alloc(kAlignment, bytes)));
    if (!parts.back()) return 0;
  }
  const size_t passes = std::max<size_t>(1, kTrialBytes / bytes);
  std::atomic<uint64_t> keep{0};
  double best = 0;
  // The first trial touches the memory.
  for (int i = 0; i <= kCacheTrials; ++i) {
    const double seconds = together(threads, [&](int t) {
      char* data = parts[static_cast<size_t>(t)].get();
      if (i == 0) std::fill(data, data + bytes, static_cast<char>(t + 1));
      for (size_t p = 0; p < passes; ++p) keep += read_all(data, bytes);
    });
    if (i > 0) best = std::max(best, static_cast<double>(bytes * passes) * threads / seconds / 1e9);
  }
  return best;
}

}  // namespace

const CacheLevel& CacheSpeeds::level_for(double bytes) const {
  CHECK(!levels.empty(), "no level was measured");
  const CacheLevel* found = &levels.front();
  for (const CacheLevel& l : levels)
    if (bytes / threads > static_cast<double>(l.serves_above)) found = &l;
  return *found;
}

CacheSpeeds measure_caches(int threads) {
  const size_t l1 = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, size_t{32} << 10);
  const size_t l2 = cache_bytes(_SC_LEVEL2_CACHE_SIZE, size_t{1} << 20);
  const size_t l3 = cache_bytes(_SC_LEVEL3_CACHE_SIZE, size_t{16} << 20) / static_cast<size_t>(threads);
  const auto whole = [](size_t bytes) { return std::max(kAlignment, bytes / kAlignment * kAlignment); };
  CacheSpeeds s;
  s.threads = threads;
  const auto add = [&](const char* name, size_t serves_above, size_t probed) {
    s.levels.push_back({name, serves_above, probed, read_GBps(threads, probed)});
  };
  add("L1", 0, whole(l1 / 2));
  add("L2", l1, whole(l2 / 2));
  if (l3 > 2 * l2) add("L3", l2, whole(std::min(2 * l2, l3 / 2)));
  // A large cache is slower in its far parts, and one that other machines share is never all ours.
  const size_t end = std::min(l3, 32 * l2);
  if (end > 16 * l2) add("far L3", 8 * l2, whole(8 * l2));
  const ReadProbe memory(threads);
  s.levels.push_back({"memory", std::max(end, l2), size_t{0}, memory.measure(threads)});
  // A neighbour that took the machine for a moment must not make a cache slower than what lies behind it.
  for (size_t i = s.levels.size() - 1; i > 0; --i)
    s.levels[i - 1].read_GBps = std::max(s.levels[i - 1].read_GBps, s.levels[i].read_GBps);
  return s;
}

}  // namespace reprise::measurement

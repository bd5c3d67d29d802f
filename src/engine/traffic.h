// TrafficHistogram: how often each row count occurred in one phase; learn_sizes(): the captured sizes that would have
// padded that traffic least. The source of `--graph-decode-sizes learned`. Owned by a StepRunner; one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace reprise::engine {

class TrafficHistogram {
 public:
  explicit TrafficHistogram(int64_t largest) : counts_(static_cast<size_t>(largest) + 1) {}

  void add(int64_t rows, uint64_t times = 1) {
    if (rows >= 1 && rows < static_cast<int64_t>(counts_.size())) counts_[rows] += times;
  }
  std::span<const uint64_t> counts() const { return counts_; }  // by row count; entry 0 is unused
  uint64_t total() const;

 private:
  std::vector<uint64_t> counts_;
};

// At most `count` sizes, ascending, the last one `largest`, such that the rows added by padding every observed batch to
// the next size are fewest. Exact up to 512 distinct row counts; beyond that neighbours are merged first. Traffic that
// was never seen gives {largest}.
std::vector<int64_t> learn_sizes(std::span<const uint64_t> counts, int64_t count, int64_t largest);

// Rows that padding would have added to that traffic; batches above the largest size are not padded.
uint64_t padded_rows(std::span<const uint64_t> counts, std::span<const int64_t> sizes);

}  // namespace reprise::engine

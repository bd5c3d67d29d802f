#include "engine/traffic.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace reprise::engine {
namespace {

struct Bin {
  int64_t rows = 0;  // the largest row count in it
  uint64_t batches = 0;
  uint64_t sum = 0;  // of the row counts of its batches
};

constexpr size_t kMaxBins = 512;

std::vector<Bin> bins_of(std::span<const uint64_t> counts, int64_t largest) {
  std::vector<Bin> bins;
  for (int64_t rows = 1; rows < static_cast<int64_t>(counts.size()) && rows <= largest; ++rows)
    if (counts[rows]) bins.push_back({rows, counts[rows], counts[rows] * static_cast<uint64_t>(rows)});
  if (bins.empty() || bins.back().rows != largest) bins.push_back({largest, 0, 0});
  while (bins.size() > kMaxBins) {
    std::vector<Bin> merged;
    for (size_t i = 0; i < bins.size(); i += 2) {
      Bin b = bins[i];
      if (i + 1 < bins.size()) b = {bins[i + 1].rows, b.batches + bins[i + 1].batches, b.sum + bins[i + 1].sum};
      merged.push_back(b);
    }
    bins = std::move(merged);
  }
  return bins;
}

}  // namespace

uint64_t TrafficHistogram::total() const { return std::accumulate(counts_.begin(), counts_.end(), uint64_t{0}); }

std::vector<int64_t> learn_sizes(std::span<const uint64_t> counts, int64_t count, int64_t largest) {
  if (largest < 1 || count < 1) return {};
  const std::vector<Bin> bins = bins_of(counts, largest);
  const size_t n = bins.size(), most = std::min(n, static_cast<size_t>(count));
  // batches[i], sum[i]: of the first i bins, so that a group's padding is one subtraction.
  std::vector<uint64_t> batches(n + 1), sum(n + 1);
  for (size_t i = 0; i < n; ++i) {
    batches[i + 1] = batches[i] + bins[i].batches;
    sum[i + 1] = sum[i] + bins[i].sum;
  }
  auto padding = [&](size_t from, size_t to) {  // bins [from, to) all run at the size of the last of them
    return (batches[to] - batches[from]) * static_cast<uint64_t>(bins[to - 1].rows) - (sum[to] - sum[from]);
  };
  // best[k][i]: least padding of the first i bins with k sizes; cut[k][i]: where the last of those groups begins.
  constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
  std::vector<std::vector<uint64_t>> best(most + 1, std::vector<uint64_t>(n + 1, kNever));
  std::vector<std::vector<size_t>> cut(most + 1, std::vector<size_t>(n + 1, 0));
  best[0][0] = 0;
  for (size_t k = 1; k <= most; ++k) {
    for (size_t i = k; i <= n; ++i) {
      for (size_t j = k - 1; j < i; ++j) {
        if (best[k - 1][j] == kNever) continue;
        const uint64_t cost = best[k - 1][j] + padding(j, i);
        if (cost < best[k][i]) best[k][i] = cost, cut[k][i] = j;
      }
    }
  }
  size_t k = 1;  // the fewest sizes that reach the least padding
  for (size_t c = 2; c <= most; ++c)
    if (best[c][n] < best[k][n]) k = c;
  std::vector<int64_t> sizes;
  for (size_t i = n; k > 0; i = cut[k][i], --k) sizes.push_back(bins[i - 1].rows);
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

uint64_t padded_rows(std::span<const uint64_t> counts, std::span<const int64_t> sizes) {
  uint64_t rows = 0;
  for (size_t n = 1; n < counts.size(); ++n) {
    auto it = std::lower_bound(sizes.begin(), sizes.end(), static_cast<int64_t>(n));
    if (it != sizes.end()) rows += counts[n] * static_cast<uint64_t>(*it - static_cast<int64_t>(n));
  }
  return rows;
}

}  // namespace reprise::engine

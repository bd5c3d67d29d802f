// What ranks need to exchange data: each kind of exchange once with known bytes, which must come as they were written,
// then its time. For `reprise doctor` and `bench ops` with --tp-size. All ranks of a world call the same function.
#pragma once

#include <string>
#include <vector>

#include "ranks/member.h"

namespace reprise::measurement {

struct CollectiveTime {
  std::string name;   // "all_gather"
  int64_t bytes = 0;  // of the whole result
  double us = 0;      // the median of rank 0
};

// Ok when everything came as it was sent; times are of rank 0.
Result<std::vector<CollectiveTime>> measure_collectives(ranks::Member& member, int64_t repeat);

}  // namespace reprise::measurement

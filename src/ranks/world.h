// World: which of several processes this one is, where they run one model together. A plain value.
//
// A rank is a process that drives one device; the threads inside it are its workers. Rank 0 is the front: it has the
// scheduler. The others follow its steps.
#pragma once

#include "base/status.h"

namespace reprise::ranks {

constexpr int kMaxRanks = 64;

struct World {
  int rank = 0;
  int size = 1;  // ranks that hold the model together

  bool alone() const { return size == 1; }
  bool front() const { return rank == 0; }
};

// Ok when such a world can be.
Status check_world(const World& world);

}  // namespace reprise::ranks

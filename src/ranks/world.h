// World: which of several processes this one is, where they run one model together. A plain value.
//
// A rank is a process that drives one device; the threads inside it are its workers. Rank 0 is the front: it has the
// scheduler. The others follow its steps. The lowest rank of a host is its leader.
#pragma once

#include "base/status.h"

namespace reprise::ranks {

constexpr int kMaxRanks = 64;

struct World {
  int rank = 0;
  int size = 1;                              // ranks that hold the model together
  int local_rank = rank, local_size = size;  // among those of this host

  bool alone() const { return size == 1; }
  bool front() const { return rank == 0; }
  bool leader() const { return local_rank == 0; }
  bool one_host() const { return local_size == size; }
};

// Ok when such a world can be.
Status check_world(const World& world);

}  // namespace reprise::ranks

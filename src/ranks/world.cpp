#include "ranks/world.h"

namespace reprise::ranks {

Status check_world(const World& world) {
  if (world.size < 1 || world.size > kMaxRanks)
    return invalid("a world of {} ranks; allowed: 1 to {}", world.size, kMaxRanks);
  if (world.rank < 0 || world.rank >= world.size)
    return invalid("rank {} of {} does not exist; allowed: 0 to {}", world.rank, world.size, world.size - 1);
  if (world.local_size < 1 || world.local_size > world.size)
    return invalid("{} ranks of {} on one host; allowed: 1 to {}", world.local_size, world.size, world.size);
  if (world.local_rank < 0 || world.local_rank >= world.local_size)
    return invalid("rank {} of the {} on a host does not exist; allowed: 0 to {}", world.local_rank, world.local_size,
                   world.local_size - 1);
  return Status::ok();
}

}  // namespace reprise::ranks

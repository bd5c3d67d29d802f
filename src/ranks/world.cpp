#include "ranks/world.h"

namespace reprise::ranks {

Status check_world(const World& world) {
  if (world.size < 1 || world.size > kMaxRanks)
    return invalid("a world of {} ranks; allowed: 1 to {}", world.size, kMaxRanks);
  if (world.rank < 0 || world.rank >= world.size)
    return invalid("rank {} of {} does not exist; allowed: 0 to {}", world.rank, world.size, world.size - 1);
  return Status::ok();
}

}  // namespace reprise::ranks

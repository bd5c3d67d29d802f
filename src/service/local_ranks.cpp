#include "service/local_ranks.h"

#include <algorithm>

#include "ranks/processors.h"

namespace reprise::service {

Result<LocalRanks> open_local_ranks(RunSettings settings, RankProcessors on) {
  LocalRanks out;
  if (settings.tp_size == 1) {
    ASSIGN_OR_RETURN(out.alone, open_engine(settings));
    return out;
  }
  const ranks::Processors all = ranks::Processors::allowed();
  const auto size = static_cast<int>(settings.tp_size);
  if (settings.threads == 0) settings.threads = on == RankProcessors::Apart ? std::max(1, all.count() / size) : 1;
  const auto one = [=](std::shared_ptr<ranks::Member> member) {
    // Threads that the rank starts from now on have the same.
    if (on == RankProcessors::Apart) (void)all.take(member->world().rank, size);
    RunSettings mine = settings;
    mine.member = std::move(member);
    if (!mine.member->world().front()) mine.bars = false;
    return open_engine(mine);
  };
  ASSIGN_OR_RETURN(out.world, engine::LocalWorld::start(size, one));
  return out;
}

std::vector<engine::Engine*> LocalRanks::all() const {
  std::vector<engine::Engine*> out{&**this};
  for (int rank = 1; world && rank < world->size(); ++rank) out.push_back(&world->at(rank));
  return out;
}

}  // namespace reprise::service

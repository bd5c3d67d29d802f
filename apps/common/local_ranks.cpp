#include "common/local_ranks.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "common/flags.h"
#include "ranks/processors.h"

namespace reprise::apps {

Result<LocalRanks> open_local_ranks(ModelFlags flags, RankProcessors on) {
  LocalRanks out;
  if (flags.tp_size == 1) {
    ASSIGN_OR_RETURN(out.alone, open_engine(flags));
    return out;
  }
  const ranks::Processors all = ranks::Processors::allowed();
  const auto size = static_cast<int>(flags.tp_size);
  if (flags.threads == 0) flags.threads = on == RankProcessors::Apart ? std::max(1, all.count() / size) : 1;
  const auto one = [=](std::shared_ptr<ranks::Member> member) {
    // Threads that the rank starts from now on have the same.
    if (on == RankProcessors::Apart) (void)all.take(member->world().rank, size);
    ModelFlags mine = flags;
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

void add_rank(CLI::App& app, int64_t& rank) {
  add_integer(app, "--rank", rank, {0, ranks::kMaxRanks - 1}, "with --tp-size: the rank that is shown");
}

Status check_rank(const ModelFlags& flags, int64_t rank) {
  if (rank < flags.tp_size) return Status::ok();
  return invalid("--rank {} with `tp_size` {}: allowed: 0 to {}", rank, flags.tp_size, flags.tp_size - 1);
}

}  // namespace reprise::apps

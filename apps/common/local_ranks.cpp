#include "common/local_ranks.h"

#include <CLI/CLI.hpp>

#include "common/flags.h"

namespace reprise::apps {

Result<LocalRanks> open_local_ranks(ModelFlags flags) {
  LocalRanks out;
  if (flags.tp_size == 1) {
    ASSIGN_OR_RETURN(out.alone, open_engine(flags));
    return out;
  }
  if (flags.threads == 0) flags.threads = 1;
  const auto one = [flags](std::shared_ptr<ranks::Member> member) {
    ModelFlags mine = flags;
    mine.member = std::move(member);
    if (!mine.member->world().front()) mine.bars = false;
    return open_engine(mine);
  };
  ASSIGN_OR_RETURN(out.world, engine::LocalWorld::start(static_cast<int>(flags.tp_size), one));
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

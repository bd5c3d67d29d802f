#include "common/ranked_run.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/log.h"
#include "common/flags.h"
#include "ranks/launched.h"
#include "service/rank_processors.h"

namespace reprise::apps {
namespace {

// Opens the same engine as the front, and follows it. The front says what is in effect.
int follow(const Command& command, service::RunSettings& flags, const std::shared_ptr<ranks::Member>& member,
           int replica) {
  log::set_level(std::max(log::level(), log::Level::Warning));
  flags.bars = false;
  flags.member = member;
  flags.replica = replica;
  const auto end = [&]() -> Status {
    if (command.follow) return command.follow();
    ASSIGN_OR_RETURN(auto engine, service::open_engine(flags));
    return engine->follow();
  }();
  if (end.is_ok()) return kExitOk;
  member->abort(fmt::format("rank {}: {}", member->world().rank, end.message()));
  return kExitFailed;
}

}  // namespace

Result<Ranks> ranks_of(const Command& command) {
  Ranks out;
  service::RunSettings* flags = command.over_ranks ? command.over_ranks() : nullptr;
  if (!flags) return out;
  ranks::WorldWish wish;
  ASSIGN_OR_RETURN(wish.launcher, ranks::parse_launcher(flags->dist_launcher));
  wish.size = flags->tp_size;
  wish.hosts = flags->nnodes;
  wish.command = command.app->get_name();
  ASSIGN_OR_RETURN(out.launched, ranks::launched_world(::getenv, wish));
  if (out.launched && flags->replicas() > 1)
    return invalid("`dp_size` {}: the replicas of a server are started by itself; allowed under a launcher: 1",
                   flags->dp_size);
  const int shares =
      out.launched ? out.launched->world.local_size : static_cast<int>(flags->replicas() * flags->tp_size);
  ASSIGN_OR_RETURN(out.processors, service::processors_of(*flags, shares, out.launched.has_value()));
  if (out.processors.unbound() && flags->threads == 0 && !out.launched)
    flags->threads = std::max(1, out.processors.count() / shares);
  if (shares == 1 && out.processors.asked()) (void)out.processors.take(0, 1);
  if (out.launched || (flags->tp_size > 1 && !command.as_threads)) out.flags = flags;
  return out;
}

Status run_over_ranks(const Command& command, const Ranks& ranks) {
  if (!ranks.flags) return command.run();
  service::RunSettings& flags = *ranks.flags;
  const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(flags.dist_timeout * 1e3));
  const ranks::Followers::Run run = [&](const std::shared_ptr<ranks::Member>& member, int replica) {
    return follow(command, flags, member, replica);
  };
  std::vector<std::unique_ptr<ranks::Followers>> worlds;
  if (ranks.launched) {
    auto world = ranks::join_launched_world(*ranks.launched, run, timeout, ranks.processors);
    // One line a host.
    if (!world.is_ok() && !ranks.launched->world.leader()) return Status(world.status().code(), "");
    RETURN_IF_ERROR(world.status());
    worlds.push_back(std::move(*world));
  } else {
    ASSIGN_OR_RETURN(worlds, ranks::Followers::start(static_cast<int>(flags.replicas()),
                                                     static_cast<int>(flags.tp_size), run, timeout, ranks.processors));
  }
  for (const auto& world : worlds) flags.fronts.push_back(world->front());
  flags.member = flags.fronts[0];
  Status done = command.run();
  flags.member = nullptr;
  flags.fronts.clear();
  return done;
}

}  // namespace reprise::apps

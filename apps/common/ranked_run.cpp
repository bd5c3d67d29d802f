#include "common/ranked_run.h"

#include <algorithm>

#include "base/log.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "ranks/followers.h"

namespace reprise::apps {
namespace {

// Opens the same engine as the front, and follows it. The front says what is in effect.
int follow(ModelFlags flags, std::shared_ptr<ranks::Member> member) {
  log::set_level(std::max(log::level(), log::Level::Warning));
  flags.bars = false;
  flags.member = member;
  const auto end = [&]() -> Status {
    ASSIGN_OR_RETURN(auto engine, open_engine(flags));
    return engine->follow();
  }();
  if (end.is_ok()) return kExitOk;
  member->abort(fmt::format("rank {}: {}", member->world().rank, end.message()));
  return kExitFailed;
}

}  // namespace

Status run_over_ranks(const Command& command) {
  ModelFlags* flags = command.over_ranks ? command.over_ranks() : nullptr;
  if (!flags || flags->tp_size == 1) return command.run();
  const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(flags->dist_timeout * 1e3));
  ASSIGN_OR_RETURN(
      const auto followers,
      ranks::Followers::start(
          static_cast<int>(flags->tp_size),
          [&](std::shared_ptr<ranks::Member> member) { return follow(*flags, std::move(member)); }, timeout));
  flags->member = followers->front();
  Status done = command.run();
  flags->member = nullptr;
  return done;
}

}  // namespace reprise::apps

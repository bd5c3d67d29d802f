// A tiny model over several ranks in one process, on one host or on several.
#pragma once

#include "engine/local_world.h"
#include "support/ranked_hosts.h"
#include "support/tiny_models.h"

namespace reprise::testing_support {

inline Result<std::unique_ptr<engine::LocalWorld>> open_ranked(const std::string& path, const EngineSetup& setup,
                                                               int size) {
  return engine::LocalWorld::start(size, [=](std::shared_ptr<ranks::Member> member) {
    EngineSetup mine = setup;
    mine.member = std::move(member);
    return open_engine(path, mine);
  });
}

// The hosts outlive what this returns.
inline Result<std::unique_ptr<engine::LocalWorld>> open_ranked(const std::string& path, const EngineSetup& setup,
                                                               const RankedHosts& hosts) {
  std::vector<std::shared_ptr<ranks::Member>> seats;
  for (int rank = 0; rank < hosts.size(); ++rank) seats.push_back(hosts.member(rank));
  return engine::LocalWorld::start(std::move(seats), [=](std::shared_ptr<ranks::Member> member) {
    EngineSetup mine = setup;
    mine.member = std::move(member);
    return open_engine(path, mine);
  });
}

}  // namespace reprise::testing_support

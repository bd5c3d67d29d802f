// A tiny model over several ranks in one process.
#pragma once

#include "engine/local_world.h"
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

}  // namespace reprise::testing_support

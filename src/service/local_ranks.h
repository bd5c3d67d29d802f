// LocalRanks: the engines of a model in one process, for commands that look at them: on one rank, or a world whose
// ranks are threads. A plain owner; one thread.
#pragma once

#include <memory>
#include <vector>

#include "engine/local_world.h"
#include "service/run_settings.h"

namespace reprise::service {

struct LocalRanks {
  std::unique_ptr<engine::Engine> alone;
  std::unique_ptr<engine::LocalWorld> world;

  engine::Engine& operator*() const { return world ? world->front() : *alone; }
  engine::Engine* operator->() const { return &**this; }
  // That of a rank, at rest.
  engine::Engine& at(int64_t rank) const { return world ? world->at(static_cast<int>(rank)) : *alone; }
  std::vector<engine::Engine*> all() const;  // by rank
};

// What several ranks run on: the same processors, with one thread each unless the settings say otherwise; or, where
// they are timed, each on its share, with as many threads.
enum class RankProcessors : uint8_t { Same, Apart };

// settings.tp_size of them.
Result<LocalRanks> open_local_ranks(RunSettings settings, RankProcessors processors = RankProcessors::Same);

}  // namespace reprise::service

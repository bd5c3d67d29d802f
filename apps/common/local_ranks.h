// LocalRanks: the engines of a model in one process, for commands that look at them: on one rank, or a world whose
// ranks are threads. A plain owner; one thread.
#pragma once

#include <memory>
#include <vector>

#include "common/model_flags.h"
#include "engine/local_world.h"

namespace reprise::apps {

struct LocalRanks {
  std::unique_ptr<engine::Engine> alone;
  std::unique_ptr<engine::LocalWorld> world;

  engine::Engine& operator*() const { return world ? world->front() : *alone; }
  engine::Engine* operator->() const { return &**this; }
  // That of a rank, at rest.
  engine::Engine& at(int64_t rank) const { return world ? world->at(static_cast<int>(rank)) : *alone; }
  std::vector<engine::Engine*> all() const;  // by rank
};

// What several ranks run on: the same processors, with one thread each unless the flags say otherwise; or, where they
// are timed, each on its share, with as many threads.
enum class RankProcessors : uint8_t { Same, Apart };

// flags.tp_size of them.
Result<LocalRanks> open_local_ranks(ModelFlags flags, RankProcessors processors = RankProcessors::Same);

// --rank of commands that show one, and whether there is such a rank.
void add_rank(CLI::App& app, int64_t& rank);
Status check_rank(const ModelFlags& flags, int64_t rank);

}  // namespace reprise::apps

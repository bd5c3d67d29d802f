// A command whose model lies over several ranks: they meet before it runs, and end after it. Called by main(), while
// the process has one thread.
#pragma once

#include <optional>

#include "command.h"
#include "ranks/launcher.h"
#include "ranks/processors.h"

namespace reprise::apps {

// Where a command's ranks come from; neither: it runs on one.
struct Ranks {
  service::RunSettings* flags = nullptr;                        // null: the command's model is on one rank
  std::optional<ranks::LaunchedWorld> launched;                 // by mpirun or srun; else this process starts them
  ranks::Processors processors = ranks::Processors::allowed();  // that ranks of this host share out
};
// Errors are of usage: a launcher that started another number of ranks than the flags ask for, processors that are not
// there. A command on one rank that is bound to some keeps to them from now on.
Result<Ranks> ranks_of(const Command& command);

// The command's run(), over these ranks. In a follower it does not return.
Status run_over_ranks(const Command& command, const Ranks& ranks);

}  // namespace reprise::apps

// A command whose model lies over several ranks: its followers are started before it runs, and end after it. Called by
// main(), while the process has one thread.
#pragma once

#include "command.h"

namespace reprise::apps {

// The command's run(), over --tp-size ranks where that is above 1 and the command can do so. In a follower it does not
// return.
Status run_over_ranks(const Command& command);

}  // namespace reprise::apps

// A rank that a launcher started: how it meets the others of its world and, unless it is the front, how it lives and
// ends. For processes with one thread.
#pragma once

#include "ranks/followers.h"
#include "ranks/launcher.h"

namespace reprise::ranks {

// The front gets its followers; another rank does `run` with its seat and does not return.
Result<std::unique_ptr<Followers>> join_launched_world(const LaunchedWorld& launched, const Followers::Run& run,
                                                       std::chrono::milliseconds timeout, const Processors& processors);

}  // namespace reprise::ranks

// together(): a function on pinned threads that start at once, timed; what every probe of the machine is built on.
// Each call makes and joins its threads.
#pragma once

#include <functional>

namespace reprise::measurement {

// Runs f(rank) on `threads` pinned threads that start together, on cores before their siblings; the wall seconds of all
// of them. The caller's own thread is left where it was.
double together(int threads, const std::function<void(int)>& f);

}  // namespace reprise::measurement

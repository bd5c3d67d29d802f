// together(): a function on pinned threads that start at once, timed; what every probe of the machine is built on.
// Each call makes and joins its threads.
#pragma once

#include <functional>
#include <vector>

namespace reprise::apps {

// Processors that this process may run on.
std::vector<int> allowed_processors();

// Runs f(rank) on `threads` pinned threads that start together; the wall seconds of all of them. The caller's own
// thread is left where it was.
double together(int threads, const std::function<void(int)>& f);

}  // namespace reprise::apps

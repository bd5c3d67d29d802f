// What the threads of this process do, for the last words of a process that hangs.
#pragma once

#include <pthread.h>

#include <string>

namespace reprise::service {

// A line for every thread: its number, name and state (R runs, S sleeps, D waits for a device).
std::string thread_states();
// The stack of one thread to standard error, as addresses that addr2line reads; waits for it up to a second, as the
// thread may take no signals.
void dump_stack(pthread_t thread);

}  // namespace reprise::service

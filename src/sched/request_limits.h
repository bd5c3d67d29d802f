// What an executor can serve of a request: whether it can at all, and how long the answer may get. Plain functions for
// any thread; they read what of an executor never changes.
#pragma once

#include "engine/executor.h"
#include "sched/request.h"

namespace reprise::sched {

// Invalid or Unsupported, and why.
Status check_request(const Request& request, engine::Executor& executor);
// Tokens; 0 where the request is for a vector or for scores.
int64_t most_new_tokens(const Request& request, engine::Executor& executor);

}  // namespace reprise::sched

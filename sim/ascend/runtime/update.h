// Task updates: between begin and end every launch on the stream goes, one to one and in order, to the kernels of a
// recorded group. The rewrite itself is a task of the update stream, so only what is ordered after it sees it. Call
// everything with the World's mutex held.
#pragma once

#include "ascend/runtime/world.h"

namespace ascend_sim {

int begin_update(World& world, const std::shared_ptr<Stream>& stream, void* handle);
int end_update(World& world, const std::shared_ptr<Stream>& stream);

// What a task launched on a stream with an open update becomes.
int redirect(Stream& stream, const Task& task, RewriteTask* rewrite);
// The stream goes away.
void abandon_update(World& world, Stream& stream);

}  // namespace ascend_sim

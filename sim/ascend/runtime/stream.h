// Streams: queues that a worker thread each empties in order, and how a task runs. Call everything with the World's
// mutex held; what blocks or computes releases it meanwhile.
#pragma once

#include "ascend/runtime/world.h"

namespace ascend_sim {

// Takes one queue of the hardware or, on the new stack, only a number of the runtime; 207008 when there is none left.
int make_stream(World& world, const std::shared_ptr<Context>& context, bool is_default, bool holds_queue,
                std::shared_ptr<Stream>* stream);
// Abandons what is queued and forgets the stream. Waits for a kernel that computes right now.
void stop_stream(World& world, Lock& lock, const std::shared_ptr<Stream>& stream);

// Where every task of every call goes: into a capture, through an open task update, or into the queue. Blocks while the
// queue is full.
int submit(World& world, Lock& lock, const std::shared_ptr<Stream>& stream, Task task);

// Waits for what is queued so far, moves the thread's clock on and tells errors of tasks.
int synchronise(World& world, Lock& lock, const std::shared_ptr<Stream>& stream, int timeout_ms);
// The context's error, or the stream's, which is told once.
int take_error(Stream& stream);

// Queues of the hardware for a capture or for a replay. False: none left.
bool take_queues(World& world, int device, int count);

// Runs the task at the head of a lane. The stream carries errors and the abandoning of what it runs.
void execute(World& world, Lock& lock, Stream& stream, Lane& lane, const std::shared_ptr<Task>& task);
// Whether the task may start now, and waiting for that. False: the stream was stopped, or the context failed.
bool is_ready(World& world, const Task& task);
bool is_abandoned(const Stream& stream);
// What is known to come before a point: `into` learns what `from` knows, and forgets replays that are over.
void learn(const World& world, std::set<uint64_t>& into, const std::set<uint64_t>& from);
// Undoes what queueing a task noted, where it will not run.
void drop(World& world, const Task& task);

// A task failed. Told by the next synchronisation; stops the context where it was asked to.
void raise(World& world, Stream& stream, int code, const std::string& text);

}  // namespace ascend_sim

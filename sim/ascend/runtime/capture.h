// Capturing streams into a graph: which call is refused, which one ends the capture, and what is recorded. A refused
// call leaves the capture as it was; an error while a task is added to it, or while one of its events is recorded or
// waited for, invalidates it. Call everything with the World's mutex held.
#pragma once

#include "ascend/runtime/world.h"

namespace ascend_sim {

int begin_capture(World& world, const std::shared_ptr<Stream>& stream, int mode);
// Checks in the documented order. From 107038 on any failure ends the capture and destroys its graph; a call with a
// stream that captures nothing, or that joined later, changes nothing.
int end_capture(World& world, const std::shared_ptr<Stream>& stream, std::shared_ptr<Graph>* graph);
// Ends it without asking; the graph stays where `keep` says so.
void tear_down(World& world, const std::shared_ptr<Capture>& capture, bool keep);

int capture_task(World& world, Stream& stream, Task task);
int capture_record(World& world, Stream& stream, const std::shared_ptr<Event>& event);
// Also where only the event belongs to a capture: the stream joins it then.
int capture_wait(World& world, const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event);

// 107027 while the stream captures, 107028 while the event is part of a capture.
int check_not_captured(const Stream& stream, const char* what);
int check_not_captured(const Event& event, const char* what);
bool any_capture(const World& world, const Context& context);
// The rule of "unsafe" calls: synchronous copies and fills.
bool unsafe_call_allowed(const World& world, const Context& context);

int begin_group(World& world, const std::shared_ptr<Stream>& stream);
int end_group(World& world, const std::shared_ptr<Stream>& stream, std::shared_ptr<TaskGroup>* group);

// Gives the graph's queues and groups back and forgets its handle.
void forget_graph(World& world, Graph& graph);

}  // namespace ascend_sim

// Bringing up and taking down contexts, devices and the whole library. Call everything with the World's mutex held;
// taking down releases it while workers end.
#pragma once

#include "ascend/runtime/world.h"

namespace ascend_sim {

int device_count(const World& world);
int check_device(const World& world, int device);
int make_context(World& world, int device, bool primary, std::shared_ptr<Context>* context);
// Abandons everything queued on its streams.
void close_context(World& world, Lock& lock, const std::shared_ptr<Context>& context);
// All contexts, graphs, events and the memory of the device.
void close_device(World& world, Lock& lock, int device);
// Everything; the library is uninitialised afterwards.
void close_world(World& world, Lock& lock);

// All streams of the context, the default one included.
std::vector<std::shared_ptr<Stream>> streams_of(const World& world, const Context& context);

}  // namespace ascend_sim

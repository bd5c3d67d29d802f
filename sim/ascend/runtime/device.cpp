#include "ascend/runtime/device.h"

#include <cstdlib>

#include "ascend/runtime/capture.h"
#include "ascend/runtime/stream.h"

namespace ascend_sim {

int device_count(const World& world) { return world.config.faults.devices.value_or(world.config.soc->devices); }

int check_device(const World& world, int device) {
  const int count = device_count(world);
  if (device >= 0 && device < count) return 0;
  return refuse(kInvalidDevice, "device " + std::to_string(device) + " does not exist; there are " +
                                    std::to_string(count) + ", numbered from 0");
}

int make_context(World& world, int device, bool primary, std::shared_ptr<Context>* context) {
  auto made = std::make_shared<Context>();
  made->handle = world.new_handle();
  made->device = device;
  made->primary = primary;
  if (!world.memory(device).usable()) {
    world.memories[device].reset();
    return refuse(kMemoryAllocation, "the host gives no address range of twice ASCEND_SIM_HBM_BYTES");
  }
  ASCEND_SIM_TRY(make_stream(world, made, true, true, &made->default_stream));
  world.contexts[made->handle] = made;
  *context = made;
  return 0;
}

std::vector<std::shared_ptr<Stream>> streams_of(const World& world, const Context& context) {
  std::vector<std::shared_ptr<Stream>> streams = {context.default_stream};
  for (const auto& [handle, stream] : world.streams) {
    if (stream->context.get() == &context) streams.push_back(stream);
  }
  return streams;
}

void close_context(World& world, Lock& lock, const std::shared_ptr<Context>& context) {
  context->alive = false;
  world.contexts.erase(context->handle);
  const std::vector<std::shared_ptr<Capture>> captures = world.captures;
  for (const auto& capture : captures) {
    if (capture->graph->context == context) tear_down(world, capture, false);
  }
  const std::vector<std::shared_ptr<Stream>> streams = streams_of(world, *context);
  for (const auto& stream : streams) stop_stream(world, lock, stream);
  std::vector<std::shared_ptr<Graph>> graphs;
  for (const auto& [handle, graph] : world.graphs) {
    if (graph->context == context) graphs.push_back(graph);
  }
  for (const auto& graph : graphs) forget_graph(world, *graph);
  context->default_stream = nullptr;
}

void close_device(World& world, Lock& lock, int device) {
  std::vector<std::shared_ptr<Context>> contexts;
  for (const auto& [handle, context] : world.contexts) {
    if (context->device == device) contexts.push_back(context);
  }
  for (const auto& context : contexts) close_context(world, lock, context);
  std::erase_if(world.events, [&](const auto& event) { return event.second->device == device; });
  std::erase_if(world.communicators, [&](const auto& one) { return one.second.device == device; });
  world.devices[device] = Device{};
  world.memories[device].reset();
}

void close_world(World& world, Lock& lock) {
  world.initialised = false;
  for (int device = 0; device < kMaxDevices; ++device) close_device(world, lock, device);
  for (const auto& [begin, block] : world.owned) std::free(block);
  world.pinned.clear();
  world.owned.clear();
  world.groups.clear();
  world.value_stamps.clear();
  world.updating.clear();
  world.reports.clear();
  world.replays.clear();
  world.host_order = std::make_shared<Order>();
  world.accesses.clear();
  world.value_orders.clear();
  world.kernel_runs.clear();
  world.stats = {};
  world.wait_seconds = 0;
  world.mallocs = world.queues_made = world.records = world.updates_ended = world.captures_ended = 0;
  world.machine = {};
  moved(world);
}

}  // namespace ascend_sim

// What only the simulator has: its clock, its assumptions, its counters.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "ascend/loaded/loaded.h"
#include "ascend/runtime/world.h"

using namespace ascend_sim;

namespace {

std::string member(const char* name, double value) {
  char text[96];
  std::snprintf(text, sizeof text, "\"%s\": %.10g", name, value);
  return text;
}

std::string stats_json(const World& world) {
  double streams = 0, queues = 0, events = 0, groups = static_cast<double>(world.groups.size());
  for (const Device& device : world.devices) {
    streams += device.streams;
    queues += device.queues;
    events += device.events;
  }
  std::string kernels;
  for (const auto& [name, one] : world.stats.kernels) {
    kernels += (kernels.empty() ? "" : ", ") + ("\"" + name + "\": {") +
               member("count", static_cast<double>(one.count)) + ", " + member("micros", one.micros) + "}";
  }
  std::string refused;
  for (const auto& [code, count] : world.stats.refused) {
    refused += (refused.empty() ? "" : ", ") + member(std::to_string(code).c_str(), static_cast<double>(count));
  }
  return "{" + member("streams", streams) + ", " + member("queues", queues) + ", " + member("events", events) + ", " +
         member("graphs", static_cast<double>(world.graphs.size())) + ", " + member("groups", groups) + ", " +
         member("replays", static_cast<double>(world.stats.replays)) + ", " +
         member("tasks", static_cast<double>(world.stats.tasks)) + ", " +
         member("updates", static_cast<double>(world.stats.updates)) + ", " +
         member("prefetched_bytes", static_cast<double>(world.stats.prefetched)) + ", " +
         member("races", static_cast<double>(world.stats.races)) + ", \"refused\": {" + refused + "}, \"kernels\": {" +
         kernels + "}}";
}

}  // namespace

void ascendSimLoaded(int32_t parts, int32_t by) { world().libraries[parts != 0] += by; }

double ascendSimHostMicros() { return thread_state().clock; }

void ascendSimHostAdvanceTo(double micros) { thread_state().clock = std::max(thread_state().clock, micros); }

const char* ascendSimAssumptions() {
  const char* text = "";
  api("ascendSimAssumptions", kNoCost, [&](World& world, Lock&) {
    text = world.assumptions.c_str();
    return 0;
  });
  return text;
}

int32_t ascendSimComputes() {
  int32_t computes = 1;
  api("ascendSimComputes", kNoCost, [&](World& world, Lock&) {
    computes = world.config.computes ? 1 : 0;
    return 0;
  });
  return computes;
}

int ascendSimStats(char* json, size_t n) {
  int length = -1;
  api("ascendSimStats", kNoCost, [&](World& world, Lock&) {
    const std::string text = stats_json(world);
    length = static_cast<int>(text.size());
    if (json != nullptr && n > 0) std::snprintf(json, n, "%s", text.c_str());
    return 0;
  });
  return length;
}

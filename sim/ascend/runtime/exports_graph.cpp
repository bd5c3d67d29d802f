// Graphs: capture, task groups and updates, replay.
#include <cstdio>
#include <cstdlib>
#include <map>

#include "ascend/runtime/capture.h"
#include "ascend/runtime/stream.h"
#include "ascend/runtime/update.h"

using namespace ascend_sim;

namespace {

const double kAsk = rate(Rate::HostCall);

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

// ASCEND_SIM_GRAPHS: a line of JSON for every graph, with the kernels that it launches by name. An operator that copies
// an operand first launches two.
void note_graph(const Graph& graph) {
  const char* path = std::getenv("ASCEND_SIM_GRAPHS");
  if (path == nullptr || *path == '\0') return;
  std::map<std::string, size_t> kernels;
  for (const auto& lane : graph.lanes)
    for (const auto& task : lane.tasks)
      if (std::get_if<KernelTask>(&task->what) != nullptr) ++kernels[task->name()];
  std::string text;
  for (const auto& [name, count] : kernels)
    text += (text.empty() ? "" : ", ") + quoted(name) + ": " + std::to_string(count);
  std::FILE* file = std::fopen(path, "a");
  if (file == nullptr) return;
  std::fprintf(file, "{%s}\n", text.c_str());
  std::fclose(file);
}

int check_ready(const Graph& graph) {
  if (graph.capturing) return refuse(kModelCaptured, "the graph is still being captured");
  return graph.ready ? 0 : refuse(kModelExecute, "the graph is not ready");
}

// On the new stack the queues are bound when the graph executes, and come back when it is done.
int bind_queues(World& world, const Graph& graph) {
  if (!world.config.new_stack || graph.executions > 0) return 0;
  Device& device = world.devices[graph.context->device];
  const int wanted = graph.queues();
  if (wanted > kQueuesPerExecution) {
    return refuse(kResourceAlloc, "EE1023: the graph has " + std::to_string(wanted) + " queues; one execution takes " +
                                      std::to_string(kQueuesPerExecution));
  }
  if (device.queues + wanted > kHardwareQueues) {
    return refuse(kResourceAlloc, "EE1023: the graph has " + std::to_string(wanted) + " queues; " +
                                      std::to_string(kHardwareQueues - device.queues) + " of " +
                                      std::to_string(kHardwareQueues) + " are free");
  }
  device.queues += wanted;
  return 0;
}

}  // namespace

aclError aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode mode) {
  return api("aclmdlRICaptureBegin", rate(Rate::HostCreate), [&](World& world, Lock&) {
    ASCEND_SIM_TRY(check_not_in_callback());
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    return begin_capture(world, found, mode);
  });
}

aclError aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus* status, aclmdlRI* modelRI) {
  return api("aclmdlRICaptureGetInfo", kAsk, [&](World& world, Lock&) {
    if (status == nullptr && modelRI == nullptr) return refuse(kParamInvalid, "status and modelRI are both null");
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    const auto& capture = found->capture;
    if (status != nullptr) {
      *status = !capture               ? ACL_MODEL_RI_CAPTURE_STATUS_NONE
                : capture->invalidated ? ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED
                                       : ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE;
    }
    if (modelRI != nullptr) *modelRI = capture ? capture->graph->handle : nullptr;
    return 0;
  });
}

aclError aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI* modelRI) {
  return api("aclmdlRICaptureEnd", rate(Rate::HostCreate), [&](World& world, Lock&) {
    if (modelRI == nullptr) return refuse(kParamInvalid, "modelRI is null");
    *modelRI = nullptr;
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    std::shared_ptr<Graph> graph;
    ASCEND_SIM_TRY(end_capture(world, found, &graph));
    *modelRI = graph->handle;
    note_graph(*graph);
    return 0;
  });
}

aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode* mode) {
  return api("aclmdlRICaptureThreadExchangeMode", kAsk, [&](World&, Lock&) {
    if (mode == nullptr) return refuse(kParamInvalid, "mode is null");
    if (*mode < ACL_MODEL_RI_CAPTURE_MODE_GLOBAL || *mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
      return refuse(kParamInvalid, "the mode is " + std::to_string(*mode) + "; allowed: 0, 1, 2");
    }
    std::swap(*mode, thread_state().mode);
    return 0;
  });
}

aclError aclmdlRICaptureTaskGrpBegin(aclrtStream stream) {
  return api("aclmdlRICaptureTaskGrpBegin", kAsk, [&](World& world, Lock&) {
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    return begin_group(world, found);
  });
}

aclError aclmdlRICaptureTaskGrpEnd(aclrtStream stream, aclrtTaskGrp* handle) {
  return api("aclmdlRICaptureTaskGrpEnd", kAsk, [&](World& world, Lock&) {
    if (handle == nullptr) return refuse(kParamInvalid, "handle is null");
    *handle = nullptr;
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    std::shared_ptr<TaskGroup> group;
    ASCEND_SIM_TRY(end_group(world, found, &group));
    *handle = group->handle;
    return 0;
  });
}

aclError aclmdlRICaptureTaskUpdateBegin(aclrtStream stream, aclrtTaskGrp handle) {
  return api("aclmdlRICaptureTaskUpdateBegin", kAsk, [&](World& world, Lock&) {
    if (handle == nullptr) return refuse(kParamInvalid, "handle is null");
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    // RT docs/zh/api_ref/15_model_running_instance__management.md:423-426: A2 and A3 need a driver of 25.0.RC1.
    if (world.config.faults.old_driver)
      return refuse(kNotSupported, "the driver changes no captured tasks (ASCEND_SIM_FAULT=old_driver)");
    return begin_update(world, found, handle);
  });
}

aclError aclmdlRICaptureTaskUpdateEnd(aclrtStream stream) {
  return api("aclmdlRICaptureTaskUpdateEnd", kAsk, [&](World& world, Lock&) {
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    return end_update(world, found);
  });
}

aclError aclmdlRIExecuteAsync(aclmdlRI modelRI, aclrtStream stream) {
  return api("aclmdlRIExecuteAsync", kNoCost, [&](World& world, Lock& lock) {
    std::shared_ptr<Graph> graph;
    ASCEND_SIM_TRY(find_graph(world, modelRI, &graph));
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    ASCEND_SIM_TRY(check_ready(*graph));
    ASCEND_SIM_TRY(check_not_captured(*found, "execute a graph on"));
    if (found->update) return refuse(kTaskType, "a task update is open on the stream; it takes kernels only");
    // The graph's queues exist once: two replays at the same time are undocumented.
    const bool ordered = graph->running_on == found->id || found->after.count(graph->last_replay) > 0;
    if (graph->executions > 0 && !ordered) {
      return refuse(kModelExecute, "the graph is still queued or running on stream " +
                                       std::to_string(graph->running_on) + ", and this stream does not wait for it");
    }
    ASCEND_SIM_TRY(bind_queues(world, *graph));
    charge_host(rate(Rate::HostExecute) + rate(Rate::HostExecutePerTask) * static_cast<double>(graph->tasks()));
    ++graph->executions;
    graph->running_on = found->id;
    graph->last_replay = world.next_replay++;
    world.replays.insert(graph->last_replay);
    learn(world, found->after, {graph->last_replay});
    Task task;
    task.what = GraphTask{graph, graph->last_replay};
    const int code = submit(world, lock, found, task);
    if (code != 0) drop(world, task);
    return code;
  });
}

aclError aclmdlRIExecute(aclmdlRI modelRI, int32_t) {
  return api("aclmdlRIExecute", kAsk, [&](World& world, Lock&) {
    ASCEND_SIM_TRY(check_post_8_1(world));
    std::shared_ptr<Graph> graph;
    ASCEND_SIM_TRY(find_graph(world, modelRI, &graph));
    return refuse(kParamInvalid, "a captured graph runs through aclmdlRIExecuteAsync only");
  });
}

aclError aclmdlRIDestroy(aclmdlRI modelRI) {
  return api("aclmdlRIDestroy", rate(Rate::HostCreate), [&](World& world, Lock& lock) {
    ASCEND_SIM_TRY(check_not_in_callback());
    std::shared_ptr<Graph> graph;
    ASCEND_SIM_TRY(find_graph(world, modelRI, &graph));
    if (graph->capturing) return refuse(kModelCaptured, "the graph is still being captured");
    const auto limit = std::chrono::milliseconds(world.config.destroy_ms);
    if (!world.changed.wait_for(lock, limit, [&] { return graph->executions == 0; })) {
      return refuse(kModelRunning, "the graph still runs after " + std::to_string(limit.count()) + " ms");
    }
    forget_graph(world, *graph);
    return 0;
  });
}

aclError aclmdlRIDebugPrint(aclmdlRI modelRI) {
  return api("aclmdlRIDebugPrint", kAsk, [&](World& world, Lock&) {
    std::shared_ptr<Graph> graph;
    ASCEND_SIM_TRY(find_graph(world, modelRI, &graph));
    std::printf("graph %u: %zu streams, %d queues, %zu tasks, %zu task groups\n", graph->id, graph->lanes.size(),
                graph->queues(), graph->tasks(), graph->groups.size());
    for (size_t lane = 0; lane < graph->lanes.size(); ++lane) {
      size_t index = 0;
      for (const auto& task : graph->lanes[lane].tasks) {
        std::printf("  stream %zu, task %zu: %s\n", lane, index++, task->name().c_str());
      }
    }
    std::fflush(stdout);
    return 0;
  });
}

aclError aclmdlRIDebugJsonPrint(aclmdlRI modelRI, const char* path, uint32_t flags) {
  return api("aclmdlRIDebugJsonPrint", kAsk, [&](World& world, Lock&) {
    ASCEND_SIM_TRY(check_post_8_1(world));
    if (path == nullptr) return refuse(kParamInvalid, "path is null");
    if (flags > 1) return refuse(kParamInvalid, "the flags are " + std::to_string(flags) + "; allowed: 0, 1");
    std::shared_ptr<Graph> graph;
    ASCEND_SIM_TRY(find_graph(world, modelRI, &graph));
    std::string text = "[";
    for (size_t lane = 0; lane < graph->lanes.size(); ++lane) {
      size_t index = 0;
      for (const auto& task : graph->lanes[lane].tasks) {
        text += text.size() > 1 ? ",\n" : "\n";
        text += "{\"name\": " + quoted(task->name()) + ", \"ph\": \"X\", \"pid\": " + std::to_string(graph->id) +
                ", \"tid\": " + std::to_string(lane) + ", \"ts\": " + std::to_string(index++) + ", \"dur\": 1";
        if (const auto* kernel = std::get_if<KernelTask>(&task->what); kernel != nullptr && flags == 1) {
          const Work& work = kernel->kernel->work;
          text += ", \"args\": {\"operations\": " + std::to_string(work.operations) +
                  ", \"bytes\": " + std::to_string(work.bytes) + "}";
        }
        text += "}";
      }
    }
    text += "\n]\n";
    std::FILE* file = std::fopen(path, "w");
    if (file == nullptr) return refuse(kParamInvalid, std::string("cannot write ") + path);
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (std::fclose(file) == 0 && written) return 0;
    return refuse(kParamInvalid, std::string("cannot write ") + path);
  });
}

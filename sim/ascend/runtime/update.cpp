#include "ascend/runtime/update.h"

#include "ascend/runtime/capture.h"

namespace ascend_sim {

int begin_update(World& world, const std::shared_ptr<Stream>& stream, void* handle) {
  ASCEND_SIM_TRY(check_not_captured(*stream, "update tasks through"));
  if (stream->update) return refuse(kTaskGroupStatus, "a task update is open on the stream already");
  auto it = world.groups.find(handle);
  if (it == world.groups.end()) return refuse(kInvalidHandle, "not a task group, or one of a destroyed graph");
  const std::shared_ptr<TaskGroup>& group = it->second;
  const std::shared_ptr<Graph> graph = group->graph.lock();
  if (!graph) return refuse(kInvalidHandle, "the graph of the task group is gone");
  if (graph->capturing) return refuse(kModelCaptured, "the graph of the task group is still being captured");
  if (group->open_on != nullptr) {
    return refuse(kTaskGroupStatus, "the task group is being updated on stream " + std::to_string(group->open_on->id));
  }
  stream->update = std::make_shared<Update>();
  stream->update->group = group;
  stream->update->thread = std::this_thread::get_id();
  group->open_on = stream.get();
  ++world.updating[stream->update->thread];
  return 0;
}

void abandon_update(World& world, Stream& stream) {
  stream.update->group->open_on = nullptr;
  --world.updating[stream.update->thread];
  stream.update = nullptr;
}

int end_update(World& world, const std::shared_ptr<Stream>& stream) {
  if (!stream->update) return refuse(kTaskGroupStatus, "no task update is open on the stream");
  const size_t done = stream->update->next;
  const size_t all = stream->update->group->tasks.size();
  abandon_update(world, *stream);
  if (++world.updates_ended == world.config.faults.update_at) {
    return refuse(kModelUpdateFailed, "fault on demand (ASCEND_SIM_FAULT)");
  }
  if (done == all) return 0;
  return refuse(kInternal,
                refusal(Rule::UpdateAllTasks, "the task group contains unupdated tasks: " + std::to_string(done) +
                                                  " of " + std::to_string(all) + " were launched again"));
}

int redirect(Stream& stream, const Task& task, RewriteTask* rewrite) {
  const auto* kernel = std::get_if<KernelTask>(&task.what);
  if (kernel == nullptr) return refuse(kTaskType, refusal(Rule::GroupKernelsOnly, task.name()));
  Update& update = *stream.update;
  const auto& tasks = update.group->tasks;
  if (update.group->graph.expired()) return refuse(kInvalidHandle, "the graph of the task group was destroyed");
  if (update.next >= tasks.size()) {
    return refuse(kInternal, refusal(Rule::UpdateAllTasks, task.name() + ": more launches than the " +
                                                               std::to_string(tasks.size()) + " tasks of the group"));
  }
  const Kernel& recorded = *std::get<KernelTask>(tasks[update.next]->what).kernel;
  if (recorded.unit != kernel->kernel->unit) {
    return refuse(kInternal, refusal(Rule::UpdateSameClass,
                                     task.name() + ": not of the kernel class of the recorded " + recorded.name));
  }
  if (recorded.unit != Unit::Mixed && world().config.faults.old_firmware)
    return refuse(text_of(Rule::UpdateMixedOnly).code, refusal(Rule::UpdateMixedOnly, task.name()));
  *rewrite = {tasks[update.next++], kernel->kernel};
  return 0;
}

}  // namespace ascend_sim

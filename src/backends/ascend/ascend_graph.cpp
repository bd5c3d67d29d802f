#include "backends/ascend/ascend_graph.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "device/recorded_order.h"

namespace reprise::ascend {
namespace {

// Task groups begin with so many empty tasks, and a wait stands before each.
constexpr int64_t kTasksOfGroup = 8 + 1;
constexpr size_t kWordBytes = 64;  // one word of memory to wait for, in a line of its own

// What a body launches, noted down. So it is known whether the graph fits before anything is taken, and a body that
// fails never opens a capture.
class Notes final : public Recorder {
 public:
  struct Note {
    enum class Kind : uint8_t { Launch, Patchable, Record, Wait } kind;
    Thunk thunk;         // of a launch
    uint8_t stream = 0;  // where
    uint32_t mark = 0;   // recorded or waited for
  };
  Status launch(const Thunk& thunk) override {
    RETURN_IF_ERROR(order_.launch(thunk.stream));
    notes_.push_back({Note::Kind::Launch, thunk, thunk.stream});
    ++launches_;
    return Status::ok();
  }
  Result<PatchId> launch_patchable(const Thunk& thunk) override {
    RETURN_IF_ERROR(order_.launch(thunk.stream));
    notes_.push_back({Note::Kind::Patchable, thunk, thunk.stream});
    ++launches_;
    return groups_++;
  }
  Status record(uint8_t stream, uint32_t mark) override {
    RETURN_IF_ERROR(order_.record(stream, mark));
    notes_.push_back({Note::Kind::Record, {}, stream, mark});
    return Status::ok();
  }
  Status wait(uint8_t stream, uint32_t mark) override {
    RETURN_IF_ERROR(order_.wait(stream, mark));
    notes_.push_back({Note::Kind::Wait, {}, stream, mark});
    return Status::ok();
  }
  Status finish() const { return order_.finish(); }
  const std::vector<Note>& notes() const { return notes_; }
  size_t groups() const { return groups_; }
  size_t launches() const { return launches_; }
  size_t waits() const { return order_.waits(); }
  // Whether anything is on the stream.
  bool on(uint8_t stream) const {
    return std::any_of(notes_.begin(), notes_.end(), [&](const Note& n) { return n.stream == stream; });
  }

  // Tasks on each stream that captures all this; none on a stream that takes no part.
  using Tasks = std::array<int64_t, kMaxGraphStreams>;
  Result<Tasks> tasks(const Context& context, const LiveSizes& live) const {
    Tasks tasks{1};
    for (const Note& n : notes_) {
      int64_t& here = tasks[n.stream];
      if (n.kind == Note::Kind::Record || n.kind == Note::Kind::Wait) {
        ++here;
        continue;
      }
      const bool group = n.kind == Note::Kind::Patchable;
      Launch probe(context.library(), context.operators(), Launch::Probe::Call);
      if (group) probe.set_group(Launch::Group::Record);
      RETURN_IF_ERROR(run_thunk(n.thunk, live, probe));
      here += 2 * probe.launched() + (group ? kTasksOfGroup : 0);  // an operator may be two kernels
    }
    return tasks;
  }

 private:
  std::vector<Note> notes_;
  RecordedOrder order_;
  PatchId groups_ = 0;
  size_t launches_ = 0;
};

struct Group {
  Thunk thunk;  // as recorded or last patched
  aclrtTaskGrp handle = nullptr;
};

class AscendGraph final : public DeviceGraph {
 public:
  explicit AscendGraph(std::shared_ptr<GraphResources> resources)
      : resources_(std::move(resources)), context_(resources_->context()), acl_(context_->library()) {}

  ~AscendGraph() override {
    if (context_->attach().is_ok()) {
      if (worker_) worker_->drain();
      if (model_) (void)acl_.aclmdlRIDestroy(model_);
      if (words_) (void)acl_.aclrtFree(words_);
    }
    resources_->release(queues_.queues);
  }

  // Takes what the graph will hold.
  Status reserve(const AscendStream& stream, const Notes& counted) {
    live_ = stream.live_sizes();
    ASSIGN_OR_RETURN(const Notes::Tasks tasks, counted.tasks(*context_, live_));
    // Collectives, which add streams of their own, are on the first.
    int queues = resources_->streams_of_each() * GraphResources::queues_of(tasks[0]);
    int64_t all = tasks[0];
    for (size_t s = 1; s < tasks.size(); ++s) {
      queues += tasks[s] > 0 ? GraphResources::queues_of(tasks[s]) : 0;
      all += tasks[s];
    }
    RETURN_IF_ERROR(resources_->reserve(queues));
    queues_ = {all, queues};
    ASSIGN_OR_RETURN(done_, AscendEvent::make(context_));
    if (counted.groups() == 0) return Status::ok();
    ASSIGN_OR_RETURN(worker_, resources_->worker());
    ASSIGN_OR_RETURN(cleared_, AscendEvent::make(context_));
    beside_ = acl_.aclrtValueWait && acl_.aclrtValueWrite;
    if (!beside_) return Status::ok();
    const size_t bytes = counted.groups() * kWordBytes;
    RETURN_IF_ERROR(acl_.check(acl_.aclrtMalloc(&words_, bytes, ACL_MEM_MALLOC_HUGE_FIRST), "words to wait for"));
    RETURN_IF_ERROR(acl_.check(acl_.aclrtMemsetAsync(words_, bytes, 0, bytes, stream.native()), "clear the words"));
    // Both functions may be there without a chip or driver that has them; a capture would fail at the first wait.
    Status tried = write(0, 1, stream.native());
    if (tried.is_ok())
      tried = acl_.check(acl_.aclrtValueWait(word(0), 1, ACL_STREAM_WAIT_VALUE_EQ, stream.native()), "wait for a word");
    if (!tried.is_ok()) {
      log::debug("ascend: {}; launches are updated before a replay instead of beside it", tried.message());
      beside_ = false;
    }
    for (size_t i = 1; beside_ && i < counted.groups(); ++i) RETURN_IF_ERROR(write(i, 1, stream.native()));
    return acl_.check(acl_.aclrtSynchronizeStream(stream.native()), "clear the words");
  }

  Status replay(Stream& stream, std::span<const Patch> patches) override {
    for (const Patch& p : patches) {
      if (p.id >= groups_.size()) return invalid("launch {} of this graph is not patchable", p.id);
      if (!p.args) return invalid("the patch of launch {} carries no arguments", p.id);
    }
    RETURN_IF_ERROR(context_->attach());
    auto& on = static_cast<AscendStream&>(stream);
    RETURN_IF_ERROR(on.wait(*done_));  // the graph's queues exist once
    if (!patches.empty()) RETURN_IF_ERROR(beside_ ? update_beside(on, patches) : update_before(on, patches));
    if (const int code = acl_.aclmdlRIExecuteAsync(model_, on.native()); code != ACL_SUCCESS) {
      if (worker_) worker_->drain();
      return on.check(code, "replay");
    }
    RETURN_IF_ERROR(on.record(*done_));
    on.count_replay();
    ++stats_.replays;
    return Status::ok();
  }
  GraphStats stats() const override { return stats_; }
  const GraphQueues& queues() const { return queues_; }

  Status capture(AscendStream& stream, const Notes& notes) {
    // Further streams of this capture alone: captures that share one have read each other's data (SGLang #30965). Each
    // is pulled into the capture by its first wait, and free again at the end.
    std::array<std::unique_ptr<AscendStream>, kMaxGraphStreams> further;
    for (uint8_t s = 1; s < kMaxGraphStreams; ++s) {
      if (!notes.on(s)) continue;
      auto made = AscendStream::make(context_);
      // Busy: a graph of one stream may be captured all the same.
      if (!made) return error(Code::Busy, "no further stream for the capture: {}", made.status().message());
      further[s] = std::move(*made);
    }
    // Only this thread's copies are forbidden meanwhile: another may load weights.
    RETURN_IF_ERROR(acl_.check(acl_.aclmdlRICaptureBegin(stream.native(), ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL),
                               "begin to capture"));
    Status recorded = Status::ok();
    for (const Notes::Note& n : notes.notes()) {
      recorded = put(n, n.stream == 0 ? stream.native() : further[n.stream]->native());
      if (!recorded.is_ok()) break;
    }
    int32_t state = ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE;
    const Status looked =
        acl_.check(acl_.aclmdlRICaptureGetInfo(stream.native(), &state, nullptr), "look at the capture");
    const Status ended = acl_.check(acl_.aclmdlRICaptureEnd(stream.native(), &model_), "end to capture");
    RETURN_IF_ERROR(recorded);
    RETURN_IF_ERROR(looked);
    RETURN_IF_ERROR(ended);
    if (state != ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE)
      return error(Code::Device, "ascend: the capture was broken on the way");
    stats_.launches = notes.launches();
    stats_.waits = notes.waits();
    stats_.bytes = groups_.capacity() * sizeof(Group);  // the runtime does not tell what it holds itself
    return Status::ok();
  }

 private:
  Status put(const Notes::Note& n, aclrtStream stream) {
    switch (n.kind) {
      case Notes::Note::Kind::Launch: return record(n.thunk, stream);
      case Notes::Note::Kind::Patchable: return record_group(n.thunk, stream);
      case Notes::Note::Kind::Record: {
        auto made = AscendEvent::make(context_);
        if (!made) return error(Code::Busy, "no event between streams: {}", made.status().message());
        marks_[n.mark] = std::move(*made);
        return acl_.check(acl_.aclrtRecordEvent(marks_[n.mark]->native(), stream), "record an event");
      }
      case Notes::Note::Kind::Wait:
        return acl_.check(acl_.aclrtStreamWaitEvent(stream, marks_.at(n.mark)->native()), "wait for an event");
    }
    return Status::ok();
  }
  Status record(const Thunk& thunk, aclrtStream stream, Launch::Group group = Launch::Group::None) {
    Launch launch(acl_, context_->operators(), stream, thunk.args.workspace, thunk.args.workspace_bytes);
    launch.set_group(group);
    return run_thunk(thunk, live_, launch);
  }

  Status record_group(const Thunk& thunk, aclrtStream stream) {
    if (beside_)
      RETURN_IF_ERROR(acl_.check(acl_.aclrtValueWait(word(groups_.size()), 1, ACL_STREAM_WAIT_VALUE_EQ, stream),
                                 "wait for a word"));
    RETURN_IF_ERROR(acl_.check(acl_.aclmdlRICaptureTaskGrpBegin(stream), "begin a task group"));
    const Status launched = record(thunk, stream, Launch::Group::Record);
    Group group{thunk, nullptr};
    const Status ended = acl_.check(acl_.aclmdlRICaptureTaskGrpEnd(stream, &group.handle), "end a task group");
    RETURN_IF_ERROR(launched);
    RETURN_IF_ERROR(ended);
    groups_.push_back(group);
    return Status::ok();
  }

  void* word(size_t group) const { return static_cast<uint8_t*>(words_) + group * kWordBytes; }
  Status write(size_t group, uint64_t value, aclrtStream stream) {
    return acl_.check(acl_.aclrtValueWrite(word(group), value, 0, stream), "set a word");
  }

  // Redirects the launch onto the recorded tasks; they read the arguments when the update stream gets there.
  Status update(Group& group, AscendStream& updates) {
    RETURN_IF_ERROR(
        acl_.check(acl_.aclmdlRICaptureTaskUpdateBegin(updates.native(), group.handle), "begin to update a launch"));
    Launch launch(acl_, context_->operators(), updates.native(), group.thunk.args.workspace,
                  group.thunk.args.workspace_bytes);
    launch.set_group(Launch::Group::Update);
    launch.set_spare(&updates.spare());
    const Status launched = run_thunk(group.thunk, live_, launch);
    const Status ended = acl_.check(acl_.aclmdlRICaptureTaskUpdateEnd(updates.native()), "end an update");
    return launched.is_ok() ? ended : launched;
  }

  Status update_beside(AscendStream& on, std::span<const Patch> patches) {
    // What the worker still has to put on its stream belongs before this replay's wait, or that would hold up the
    // updates which the replay before waits for.
    worker_->drain();
    if (patches.size() == groups_.size()) {
      const size_t bytes = groups_.size() * kWordBytes;
      RETURN_IF_ERROR(acl_.check(acl_.aclrtMemsetAsync(words_, bytes, 0, bytes, on.native()), "clear the words"));
    } else {
      for (const Patch& p : patches) RETURN_IF_ERROR(write(p.id, 0, on.native()));
    }
    RETURN_IF_ERROR(on.record(*cleared_));
    RETURN_IF_ERROR(worker_->stream().wait(*cleared_));
    std::vector<PatchId> ids;
    for (const Patch& p : patches) {
      groups_[p.id].thunk.args = *p.args;
      // Once, with its last arguments: after its word is set the launch may run, and nothing may change it again.
      if (std::find(ids.begin(), ids.end(), p.id) == ids.end()) ids.push_back(p.id);
    }
    worker_->submit([this, ids = std::move(ids), &on](AscendStream& updates) {
      for (const PatchId id : ids) {
        if (Status s = update(groups_[id], updates); !s.is_ok()) on.fail(std::move(s));
        // Even then: a graph must not wait for ever, and the error is told at the stream's end.
        if (Status s = write(id, 1, updates.native()); !s.is_ok()) on.fail(std::move(s));
      }
    });
    return Status::ok();
  }

  Status update_before(AscendStream& on, std::span<const Patch> patches) {
    AscendStream& updates = worker_->stream();
    RETURN_IF_ERROR(updates.wait(*done_));  // a running graph must not change
    for (const Patch& p : patches) {
      groups_[p.id].thunk.args = *p.args;
      RETURN_IF_ERROR(update(groups_[p.id], updates));
    }
    RETURN_IF_ERROR(updates.record(*cleared_));
    return on.wait(*cleared_);
  }

  std::shared_ptr<GraphResources> resources_;
  std::shared_ptr<Context> context_;
  const Library& acl_;
  aclmdlRI model_ = nullptr;
  LiveSizes live_;  // of the capture
  std::vector<Group> groups_;
  void* words_ = nullptr;
  bool beside_ = false;
  GraphQueues queues_;
  UpdateWorker* worker_ = nullptr;
  std::map<uint32_t, std::unique_ptr<AscendEvent>> marks_;  // between streams, part of the graph
  std::unique_ptr<AscendEvent> done_;                       // the last replay has ended
  std::unique_ptr<AscendEvent> cleared_;  // the words are cleared; or, without words, the updates are done
  GraphStats stats_;
};

}  // namespace

Result<UpdateWorker*> GraphResources::worker() {
  if (!worker_) {
    ASSIGN_OR_RETURN(worker_, UpdateWorker::make(context_));
  }
  return worker_.get();
}

QueueBudget GraphResources::budget() {
  if (!budget_) {
    const Library& acl = context_->library();
    uint32_t streams = 0;
    const bool known = acl.aclrtGetStreamAvailableNum && context_->attach().is_ok() &&
                       acl.aclrtGetStreamAvailableNum(&streams) == ACL_SUCCESS;
    const bool numbers = known && streams > kMoreThanQueues;
    budget_ = QueueBudget{!numbers,
                          (numbers ? static_cast<int>(streams) - kSpareStreams : kQueues) -
                              (context_->communicator() ? kQueuesOfCommunicator : 0),
                          0};
  }
  return {budget_->held_for_life, budget_->total, used_};
}

int GraphResources::streams_of_each() const {
  if (!context_->communicator()) return 1;
  const char* mode = std::getenv("HCCL_OP_EXPANSION_MODE");
  return mode && std::string_view(mode) == "AIV" ? 2 : 3;
}

Status GraphResources::reserve(int queues) {
  const QueueBudget b = budget();
  if (!b.held_for_life && queues > kQueuesOfRun)
    return error(Code::OutOfMemory, "the graph needs {} queues while it runs; the driver binds at most {} at a time",
                 queues, kQueuesOfRun);
  if (used_ + queues > b.total)
    return error(Code::Busy,
                 "the graph needs {} of the chip's queues, and {} of {} are held by other graphs; capture fewer sizes "
                 "(`cuda_graph_bs`) or whole steps instead of pieces",
                 queues, used_, b.total);
  used_ += queues;
  return Status::ok();
}

Result<std::unique_ptr<DeviceGraph>> capture_graph(const std::shared_ptr<GraphResources>& resources,
                                                   AscendStream& stream, const std::function<Status(Recorder&)>& body) {
  RETURN_IF_ERROR(resources->context()->attach());
  Notes notes;
  RETURN_IF_ERROR(body(notes));
  RETURN_IF_ERROR(notes.finish());
  auto graph = std::make_unique<AscendGraph>(resources);
  RETURN_IF_ERROR(graph->reserve(stream, notes));
  RETURN_IF_ERROR(graph->capture(stream, notes));
  return std::unique_ptr<DeviceGraph>(std::move(graph));
}

std::optional<GraphQueues> queues_of(const DeviceGraph& graph) {
  const auto* mine = dynamic_cast<const AscendGraph*>(&graph);
  return mine ? std::optional(mine->queues()) : std::nullopt;
}

}  // namespace reprise::ascend

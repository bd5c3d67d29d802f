// What handles stand for: contexts, streams, events, graphs, task groups, communicators. Owned by the World's tables
// and by what is still running; handles are numbers that are never used twice, so that a destroyed object is always
// recognised. Guarded by the World's mutex.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ascend/runtime/task.h"

namespace ascend_sim {

struct Device;
struct Capture;
struct Update;

struct Context {
  void* handle = nullptr;
  int device = 0;
  bool primary = false;
  bool alive = true;
  std::shared_ptr<Stream> default_stream;
  // Set by the first task error where a stream asked to stop; stays until the device is reset.
  bool stops_on_failure = false;
  int error = 0;
  std::string error_text;
};

// Entries that a queue of the device has for the user; the runtime keeps the rest of 2048 for itself.
constexpr size_t kStreamDepth = 2013;

struct Stream {
  void* handle = nullptr;
  int32_t id = 0;
  std::shared_ptr<Context> context;
  bool is_default = false;
  bool holds_queue = false;
  uint32_t flags = 0;
  std::deque<std::shared_ptr<Task>> queue;  // the front is the one that runs
  uint64_t launched = 0;
  uint64_t finished = 0;
  std::vector<double> ends;  // device clock at the end of the last tasks, a ring
  Lane lane;
  std::thread worker;  // started by the first task
  bool stopping = false;
  int error = 0;  // of a task, until a synchronisation tells it
  std::string error_text;
  bool failure_mode_set = false;
  std::optional<uint64_t> subscriber;
  std::minstd_rand random;
  std::shared_ptr<Capture> capture;
  int capture_lane = -1;
  std::shared_ptr<Update> update;
  std::set<uint64_t> after;  // replays, queued or running, that come before the next task queued
};

struct Event {
  enum class Family : uint8_t { Ex, Legacy, External };
  void* handle = nullptr;
  Family family = Family::Ex;
  uint32_t flags = 0;
  int device = 0;
  std::shared_ptr<Mark> mark;      // Ex: of the latest record, null before the first
  std::weak_ptr<Capture> capture;  // Ex: where it was recorded or waited for last, if in a capture
  int capture_record = -1;         // index into the capture's records
};

// The tasks of one captured stream, in order.
struct GraphLane {
  std::vector<std::shared_ptr<Task>> tasks;
  int entries = 0;  // of the last queue
  int queues = 1;
};

struct Graph {
  void* handle = nullptr;
  uint32_t id = 0;
  std::shared_ptr<Context> context;
  std::vector<GraphLane> lanes;
  std::vector<std::shared_ptr<Mark>> marks;  // cleared when a replay begins
  bool ready = false;
  bool capturing = true;
  int executions = 0;       // queued or running
  int32_t running_on = -1;  // id of the stream of the last replay, while there is any
  uint64_t last_replay = 0;
  std::vector<void*> groups;  // handles of those that were ended

  size_t tasks() const;
  int queues() const;
};

struct TaskGroup {
  void* handle = nullptr;
  std::weak_ptr<Graph> graph;
  std::vector<std::shared_ptr<Task>> tasks;
  Stream* open_on = nullptr;  // an update
};

// Between TaskUpdateBegin and TaskUpdateEnd.
struct Update {
  std::shared_ptr<TaskGroup> group;
  size_t next = 0;
  std::thread::id thread;
};

// A capture from begin to end.
struct Capture {
  struct Record {
    std::shared_ptr<Mark> mark;
    bool recorded = false;
    int lane = -1;
    const Task* task = nullptr;
    std::set<int> waited_by;  // lanes
  };
  std::shared_ptr<Graph> graph;
  aclmdlRICaptureMode mode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  bool invalidated = false;
  std::vector<std::shared_ptr<Stream>> members;  // by lane; the first began it
  std::vector<Record> records;
  std::shared_ptr<TaskGroup> group;  // open
  Stream* group_stream = nullptr;
};

// HCCL's state.
struct Communicator {
  int device = 0;
  std::string name;
  void* buffers = nullptr;
  std::shared_ptr<Meeting> meeting = nullptr;  // null with one rank
  uint32_t size = 1, rank = 0;
  // What has run on it: collectives, or operators that send rows to experts.
  enum class Use : uint8_t { Nothing, Collectives, Experts };
  mutable Use use = Use::Nothing;
};

struct Device {
  int index = 0;
  int references = 0;
  std::shared_ptr<Context> primary;
  int queues = 0;   // of the hardware
  int streams = 0;  // allotted by the runtime
  int events = 0;
};

}  // namespace ascend_sim

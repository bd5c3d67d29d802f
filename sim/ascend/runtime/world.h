// The whole state of the simulated library between aclInit and aclFinalize: one mutex guards it, and kernels compute
// outside of it. There is one World in a process; aclFinalize empties it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "ascend/runtime/config.h"
#include "ascend/runtime/memory.h"
#include "ascend/runtime/objects.h"

namespace ascend_sim {

using Lock = std::unique_lock<std::mutex>;

// Error codes by the vendor's names, as far as the simulator gives them.
enum Code : int {
  kInvalidParam = 100000,
  kUninitialized = 100001,
  kRepeatInitialize = 100002,
  kParamInvalid = 107000,
  kInvalidDevice = 107001,
  kContextNull = 107002,
  kStreamContext = 107003,
  kTimestampInvalid = 107006,
  kTimestampReversal = 107007,
  kNoSubscriber = 107015,
  kInvalidHandle = 107017,
  kWaitTimeout = 107019,
  kStreamAbort = 107023,
  kCaptureDependency = 107024,
  kStreamUnjoined = 107025,
  kModelCaptured = 107026,
  kStreamCaptured = 107027,
  kEventCaptured = 107028,
  kStreamNotCaptured = 107029,
  kCaptureMode = 107030,
  kCaptureImplicit = 107031,
  kCaptureConflict = 107032,
  kTaskGroupStatus = 107033,
  kTaskGroupInterrupted = 107034,
  kCaptureUnmatched = 107036,
  kModelRunning = 107037,
  kCaptureWrongThread = 107038,
  kModelUpdateFailed = 107040,
  kCaptureBlockAsync = 107041,
  kNotSupported = 207000,
  kMemoryAllocation = 207001,
  kResourceAlloc = 207005,
  kNoEvent = 207007,
  kNoStream = 207008,
  kInternal = 507000,
  kTaskType = 507009,
  kModelExecute = 507011,
  kCoreException = 507015,
  kStreamSyncTimeout = 507046,
  kEventSyncTimeout = 507047,
  kDriverInternal = 507899,
  kCaptureInvalidated = 507903,
};

// Documented limits.
constexpr int kHardwareQueues = 1984;  // of 2038, what is promised to users
constexpr int kStreamsNewStack = 32768;
constexpr int kQueuesPerExecution = 1024;
constexpr int kEventsPerDevice = 65536;
constexpr int kMaxDevices = 16;

// What the runtime keeps per host thread; starts anew with every aclInit.
struct ThreadState {
  uint64_t epoch = 0;
  const char* call = "";
  std::string recent;    // text of the last failure
  std::string returned;  // what aclGetRecentErrMsg gave last
  int last_error = 0;
  std::shared_ptr<Context> context;
  double clock = 0;
  aclmdlRICaptureMode mode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
  bool in_callback = false;
};
ThreadState& thread_state();

struct Stats {
  struct Kernels {
    uint64_t count = 0;
    double micros = 0;
  };
  uint64_t updates = 0;  // tasks rewritten
  uint64_t replays = 0;
  uint64_t races = 0;
  uint64_t tasks = 0;       // executed
  uint64_t prefetched = 0;  // bytes
  std::map<std::string, Kernels> kernels;
  std::map<int, uint64_t> refused;  // calls of the runtime by the code they were refused with
};

// A callback that waits for its thread to call aclrtProcessReport.
struct Report {
  CallbackTask task;
  double clock = 0;
  bool done = false;
};

struct World {
  std::mutex mutex;
  std::condition_variable changed;  // anything
  bool initialised = false;
  std::atomic<uint64_t> epoch{0};
  std::array<std::atomic<int>, 2> libraries{};  // loaded ones of operators: whole, in parts
  Config config;
  Machine machine;
  std::string assumptions;
  std::array<std::unique_ptr<Memory>, kMaxDevices> memories;
  std::array<Device, kMaxDevices> devices;
  std::unordered_map<void*, std::shared_ptr<Context>> contexts;
  std::unordered_map<void*, std::shared_ptr<Stream>> streams;
  std::unordered_map<void*, std::shared_ptr<Event>> events;
  std::unordered_map<void*, std::shared_ptr<Graph>> graphs;
  std::unordered_map<void*, std::shared_ptr<TaskGroup>> groups;
  std::unordered_map<void*, Communicator> communicators;
  uint64_t communicators_made = 0;
  std::vector<std::shared_ptr<Capture>> captures;
  std::map<uintptr_t, size_t> pinned;  // host ranges; those of aclrtMallocHost also in `owned`
  std::map<uintptr_t, void*> owned;
  std::map<uintptr_t, double> value_stamps;  // device clock of the last write of a value
  std::deque<std::shared_ptr<Report>> reports;
  std::set<uint64_t> replays;  // queued or running
  uint64_t next_replay = 1;
  std::map<std::thread::id, int> updating;  // open task updates by the thread that began them
  // What the host knows, shared by its threads, and who touched what.
  std::shared_ptr<const Order> host_order = std::make_shared<Order>();
  Accesses accesses;
  std::map<uintptr_t, Order> value_orders;
  int wait_seconds = 0;  // aclrtSetOpWaitTimeout
  Stats stats;
  // Counted for faults on demand.
  int64_t mallocs = 0, queues_made = 0, records = 0, updates_ended = 0, captures_ended = 0;
  std::map<std::string, int64_t> kernel_runs;
  uint64_t next_handle = 1;
  uint64_t next_lane = 1;
  // For the watchdog: steps made, workers that are busy outside of the mutex, and those of them that wait for other
  // ranks.
  uint64_t progress = 0;
  int busy = 0, waiting = 0;

  void* new_handle();
  Memory& memory(int device);  // made on first use
};
World& world();

// The runtime's own share of the calling thread's time (kernel.h's spend_host() is the operators').
void charge_host(double microseconds);

// Something moved: wakes everyone who waits.
void moved(World& world);

// The host learns that something is over.
void host_learns(World& world, const Order& order);
// An access of the host's own; empty, or what it races with.
std::string host_access(World& world, const void* address, size_t bytes, bool written, const std::string& name);

enum class Waited : uint8_t { Done, TimedOut, Hung };
// Waits until the condition holds; TimedOut after so many milliseconds (-1: never) in which nothing moved and no worker
// was busy but with waiting for other ranks, Hung when nothing moved for as long as the configuration says.
Waited wait_until(World& world, Lock& lock, int timeout_ms, const std::function<bool()>& condition);

// The body of an API call: takes the mutex, checks that the library is initialised, charges the host, runs the body,
// and notes the error that it answers with.
int api(const char* name, double host_micros, const std::function<int(World&, Lock&)>& body);
constexpr double kNoCost = 0;

// Inside api() only: a failure of the running call.
int refuse(int code, const std::string& text);

#define ASCEND_SIM_TRY(expression)                                         \
  do {                                                                     \
    if (const int try_code = (expression); try_code != 0) return try_code; \
  } while (false)

// The thread's current context; 107002 without one.
int current_context(World& world, std::shared_ptr<Context>* context);
// Null is the context's default stream.
int find_stream(World& world, void* handle, std::shared_ptr<Stream>* stream);
int find_event(World& world, void* handle, std::shared_ptr<Event>* event);
int find_graph(World& world, void* handle, std::shared_ptr<Graph>* graph);
// Whether all of it is host memory that the device may reach.
bool is_pinned(const World& world, const void* address, size_t bytes);
int check_not_in_callback();
int check_post_8_1(const World& world);

}  // namespace ascend_sim

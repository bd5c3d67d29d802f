// Profiler: what /start_profile and /stop_profile do: spans are recorded, and written to a file in the server's folder
// for profiles (--profile-dir) by a thread of its own, so that a slow or full disk stops no request.
//
// start() and stop() are the HTTP thread's. Nothing in a request chooses a path: names are made here.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/status.h"
#include "server/span_trace.h"

namespace reprise::server {

class Profiler {
 public:
  using Answer = std::function<void(Result<std::string>)>;  // the file's name, or what went wrong

  // `folder`: "" when there is none, and nothing can be profiled. The trace outlives the profiler.
  Profiler(SpanTrace& trace, std::string folder);
  ~Profiler();  // a profile that runs is written

  // Busy: a profile is running. Invalid: there is no folder, or no file can be made in it.
  Status start(int64_t steps);
  // Ends the profile and has it written. `answer` is called once, on any thread: for a profile that has ended by itself
  // after its steps, with the name of its file. Invalid: none was started.
  Status stop(Answer answer);

 private:
  enum class State : uint8_t { Idle, Running, Writing, Written };

  void write();  // the writer's thread
  void ended();  // its steps are over
  std::string next_name();

  SpanTrace& trace_;
  std::string folder_;
  std::mutex mutex_;
  std::condition_variable wake_;
  State state_ = State::Idle;
  Answer answer_;  // of the one who waits for the file
  std::optional<Result<std::string>> written_;
  int64_t count_ = 0;
  bool ending_ = false;
  std::thread writer_;
};

}  // namespace reprise::server

#include "server/profiler.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/file.h"
#include "base/log.h"

namespace reprise::server {

Profiler::Profiler(SpanTrace& trace, std::string folder) : trace_(trace), folder_(std::move(folder)) {}

Profiler::~Profiler() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    if (state_ == State::Running) state_ = State::Writing;
  }
  wake_.notify_all();
  if (writer_.joinable()) writer_.join();
}

Status Profiler::start(int64_t steps) {
  if (folder_.empty()) return invalid("profiles are off: start the server with --profile-dir FOLDER");
  if (::access(folder_.c_str(), W_OK | X_OK) != 0)
    return invalid("no file can be made in the server's --profile-dir: {}", std::strerror(errno));
  std::lock_guard lock(mutex_);
  if (state_ == State::Running || state_ == State::Writing)
    return error(Code::Busy, "a profile is {}; /stop_profile ends it",
                 state_ == State::Running ? "running" : "being written");
  if (!writer_.joinable()) writer_ = std::thread([this] { write(); });
  written_.reset();
  state_ = State::Running;
  trace_.start(steps, [this] { ended(); });
  return Status::ok();
}

void Profiler::ended() {
  {
    std::lock_guard lock(mutex_);
    if (state_ != State::Running) return;
    state_ = State::Writing;
  }
  wake_.notify_all();
}

Status Profiler::stop(Answer answer) {
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::Idle) return invalid("no profile is running; /start_profile starts one");
    if (answer_) return error(Code::Busy, "the profile is being written");
    answer_ = std::move(answer);
    if (state_ == State::Running) state_ = State::Writing;
  }
  wake_.notify_all();
  return Status::ok();
}

std::string Profiler::next_name() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &parts);
  return fmt::format("reprise-{}-{}-{}.trace.json", stamp, ::getpid(), ++count_);
}

void Profiler::write() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return ending_ || state_ == State::Writing || answer_; });
    if (state_ == State::Writing) {
      const std::string name = next_name();
      lock.unlock();
      const std::string text = trace_.take();
      const Status done = write_file_atomically(folder_ + "/" + name, text);
      lock.lock();
      if (done.is_ok()) {
        log::info("a profile was written: {}/{} ({} bytes)", folder_, name, text.size());
        written_ = name;
      } else {
        log::error("a profile could not be written: {}", done.message());
        written_ = error(Code::Internal, "the profile could not be written: {}", done.message());
      }
      state_ = State::Written;
    }
    if (answer_ && written_) {
      state_ = State::Idle;
      Answer answer = std::exchange(answer_, nullptr);
      const Result<std::string> result = *written_;
      lock.unlock();
      answer(result);
      lock.lock();
    }
    if (ending_) return;
  }
}

}  // namespace reprise::server

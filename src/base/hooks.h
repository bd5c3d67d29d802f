// Hooks: what a program that embeds the library gets to know instead of reading standard error: log lines, how far long
// work is, and each new thread. A thread has the hooks that HookScope set on it, or none; start_thread() hands them on.
// Without hooks log lines and progress go to standard error, as the programs of apps/ want it. Hooks outlive the
// threads that have them; their functions are called by several threads at once, but for progress, which one thread at
// a time calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/log.h"

namespace reprise {

struct Hooks {
  log::Level least = log::Level::Warning;
  // Each may be empty.
  std::function<void(log::Level level, std::string_view message)> log;
  std::function<bool(const std::string& stage, uint64_t done, uint64_t total)> progress;  // false: give up
  std::function<void(const char* name)> thread;                                           // first on each new thread

  std::atomic<bool> given_up{false};  // progress() said so; stays
};

// Those of the calling thread; null: none.
Hooks* current_hooks();

// The calling thread has these hooks while it lives, and then again those it had.
class HookScope {
 public:
  explicit HookScope(Hooks* hooks);
  ~HookScope();
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;

 private:
  Hooks* before_;
};

// A thread with the hooks of the calling one; `name` outlives it.
template <typename Work>
std::thread start_thread(const char* name, Work work) {
  return std::thread([hooks = current_hooks(), name, work = std::move(work)]() mutable {
    const HookScope scope(hooks);
    if (hooks && hooks->thread) hooks->thread(name);
    work();
  });
}

}  // namespace reprise

#include "service/thread_dump.h"

#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace reprise::service {
namespace {

constexpr int kFrames = 64;
std::atomic<bool> g_dumped{false};

void write_stack(int) {
  void* frames[kFrames];
  ::backtrace_symbols_fd(frames, ::backtrace(frames, kFrames), STDERR_FILENO);
  g_dumped = true;
}

std::string content_of(const std::filesystem::path& file) {
  std::stringstream out;
  out << std::ifstream(file).rdbuf();
  return out.str();
}

}  // namespace

std::string thread_states() {
  std::string out;
  std::error_code failed;
  for (std::filesystem::directory_iterator it("/proc/self/task", failed), end; !failed && it != end;
       it.increment(failed)) {
    const auto& task = *it;
    // "1234 (name) S ..."; a name may hold anything.
    const std::string stat = content_of(task.path() / "stat");
    const size_t open = stat.find('('), close = stat.rfind(')');
    if (open == std::string::npos || close == std::string::npos || close + 2 >= stat.size()) continue;
    out += "  thread " + task.path().filename().string() + " " + stat.substr(open + 1, close - open - 1) + ": " +
           stat[close + 2] + "\n";
  }
  return out;
}

void dump_stack(pthread_t thread) {
  void* one[1];
  ::backtrace(one, 1);  // loads what the handler needs
  struct sigaction action {};
  action.sa_handler = write_stack;
  if (::sigaction(SIGRTMIN + 4, &action, nullptr) != 0 || ::pthread_kill(thread, SIGRTMIN + 4) != 0) return;
  for (int i = 0; i < 100 && !g_dumped; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace reprise::service

// WorkPool: a few threads for what would hold up the HTTP thread, like long bodies and grammars. At most so many tasks
// wait. Any thread may add one; the code that owns the pool destroys it before what its tasks use.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace reprise::server {

class WorkPool {
 public:
  WorkPool(int threads, size_t most_waiting);
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // False, and nothing was taken, when as many wait as may, and after stop().
  bool add(std::function<void()> task);
  // Drops the tasks that wait. Those that run are finished, which the destructor waits for.
  void stop();

 private:
  void work();

  const size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<std::function<void()>> waiting_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace reprise::server

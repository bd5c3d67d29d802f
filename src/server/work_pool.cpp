#include "server/work_pool.h"

#include <utility>

namespace reprise::server {

WorkPool::WorkPool(int threads, size_t most_waiting) : most_waiting_(most_waiting) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

WorkPool::~WorkPool() {
  stop();
  for (std::thread& t : threads_) t.join();
}

bool WorkPool::add(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    if (stopped_ || waiting_.size() >= most_waiting_) return false;
    waiting_.push_back(std::move(task));
  }
  added_.notify_one();
  return true;
}

void WorkPool::stop() {
  std::deque<std::function<void()>> dropped;  // goes without the lock
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped.swap(waiting_);
  }
  added_.notify_all();
}

void WorkPool::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    added_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
    if (stopped_) return;
    std::function<void()> task = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // what it holds goes without the lock
    lock.lock();
  }
}

}  // namespace reprise::server
